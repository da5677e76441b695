"""``mnist-scene``: a digit anywhere in a scene of any size, cut out as a window of 32x32.

python -m reproduction.train.mnist_scene --out mnist-scene.safetensors
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import unshift
from reproduction.train.common import fit, main, prepared
from reproduction.train.mnist import HELD_OUT
from unshift.coordinates import Scene
from unshift.training.scenes import Scenes

WINDOW, SCENE = (32, 32), (48, 48)
"""Scenes of 48x48 take half the work of 64x64, and the restorer serves scenes of any size."""


def images(split: str) -> Tensor:
    """Return MNIST at 32x32 to train on; the test split as scenes, like those that ``fit`` makes."""
    digits = prepared("mnist", split, {"resize": [32, 32]})
    if split == "train":
        return digits
    make, generator = Scenes(SCENE, WINDOW, digits.shape[1:], "clutter", 0.0), torch.Generator().manual_seed(1)
    return torch.cat([make(part, generator) for part in digits.split(500)])


def train(**options: Any) -> unshift.Restorer:
    """Fit the preset ``scene`` on scenes of MNIST, with pieces of other digits behind the digit."""
    return fit(
        "mnist",
        images("train"),
        "scene",
        {"resize": [32, 32]},
        HELD_OUT,
        coordinates=Scene(WINDOW),
        scene=SCENE,
        **{"patience": 8, **options},
    )


if __name__ == "__main__":
    main()
