"""``mnist-scene``: a digit anywhere in a scene of any size, cut out as a window of 32x32, in two stages.

    python -m reproduction.train.mnist_scene --out mnist-scene.safetensors

The first stage scores all positions. The second, the judge, looks at the windows at the best few of them as a whole. It
learns which one is at the digit; the others are near misses and pieces of other digits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import unshift
from reproduction.train.common import calibrate_on_held_out, fit, main, prepared, seeded_pose
from reproduction.train.mnist import HELD_OUT
from unshift.coordinates import Pose, Scene
from unshift.coordinates.shifts import circular_distance
from unshift.exact import IntegerEstimator, JudgedEstimator, Scores, propose, windows_at
from unshift.shifts import unravel
from unshift.training.scenes import Scenes

WINDOW, SCENE = (32, 32), (48, 48)
"""Scenes of 48x48 take half the work of 64x64, and the restorer serves scenes of any size."""
COUNT, LEARNT, RADIUS = 4, 6, 2
"""Proposals, those that the judge learns from, and how many pixels apart they are."""
JUDGE = {"channels": (16, 32, 64), "kernel_size": 5, "hidden": 64, "size": WINDOW}


class Proposals(Scene):
    """The windows at the proposals of a first stage in scenes that are rolled to their digit: the one there is first.

    Args:
        first: The first stage.
    """

    whole = True

    def __init__(self, first: IntegerEstimator) -> None:
        super().__init__(WINDOW)
        self.first = first

    def canvases(self, images: Tensor) -> list[Tensor]:
        """Return the window at the digit (the proposal within a pixel, if there is one), then those at others."""
        size = tuple(images.shape[2:])
        places = propose(self.first(images), images, LEARNT, RADIUS)
        distance = circular_distance(unravel(places.flatten(), size), size).view(places.shape)
        near, nearest = distance.min(1)
        digit = torch.where(near <= 1, places.gather(1, nearest[:, None])[:, 0], 0)
        last = torch.where(near <= 1, nearest, LEARNT - 1)  # the proposal that the digit replaces
        others = places.scatter(1, last[:, None], places[:, :1])
        windows = windows_at(images, torch.cat([digit[:, None], others[:, 1:]], 1), WINDOW)
        return list(windows.unflatten(0, (len(images), LEARNT)).unbind(1))

    def candidate(self, pose: Any, size: tuple[int, ...]) -> Tensor:
        """Return the window at the digit."""
        return torch.zeros_like(pose.shift[:, 0])

    def pose(self, index: Tensor, scores: Scores, size: tuple[int, ...]) -> Pose:
        """Return no shift for the window at the digit, and some shift for all others."""
        return Pose(index[:, None].expand(-1, len(size)))


def images(split: str) -> Tensor:
    """Return MNIST at 32x32 to train on; the test split as scenes, like those that ``fit`` makes."""
    digits = prepared("mnist", split, {"resize": [32, 32]})
    if split == "train":
        return digits
    make, generator = Scenes(SCENE, WINDOW, digits.shape[1:], "clutter", 0.0), torch.Generator().manual_seed(1)
    return torch.cat([make(part, generator) for part in digits.split(500)])


def train(first: Any = None, **options: Any) -> unshift.Restorer:
    """Fit both stages on scenes of MNIST, with pieces of other digits behind the digit.

    Args:
        first: A restorer whose network is the first stage. Default: fit one by the preset ``scene``.
        **options: Changes of both recipes.
    """
    digits = images("train")
    scenes: Any = {"scene": SCENE, "patience": 8, **options}
    first = first or fit("mnist", digits, "scene", {"resize": [32, 32]}, HELD_OUT, coordinates=Scene(WINDOW), **scenes)
    if "checkpoint" in options:
        scenes["checkpoint"] = Path(options["checkpoint"]).with_suffix(".judge")
    network = seeded_pose(0, 1, **JUDGE)
    recipe = {"epochs": 4, "learning_rate": 0.005, "batch_size": 64, "average": 0.998, "optimizer": "muon"}
    judge = fit("mnist", digits, network, {}, HELD_OUT, coordinates=Proposals(first.scorer), **{**recipe, **scenes})
    judge_net: Any = judge.scorer
    restorer = unshift.Restorer(
        JudgedEstimator.of(first.scorer, judge_net, COUNT, RADIUS), coordinates=Scene(WINDOW)
    ).eval()
    restorer.trained_on, restorer.metadata = first.trained_on, first.metadata
    restorer.metadata["judge"] = {key: judge.metadata[key] for key in ("epochs", "learning_rate", "validation")}
    calibrate_on_held_out(restorer, digits, HELD_OUT)
    return restorer


if __name__ == "__main__":
    main()
