"""The command of every training script: train, measure on the test set, and save.

Each script has ``images(split)``, which returns prepared images, ``HELD_OUT``, the number of training images held out,
and ``train(**options)``, which returns a restorer calibrated on these; one has ``measure(restorer)`` too. Those that
only call ``unshift.fit`` with a data set have all three as a :class:`Fit`. The test set is measured once, at the end.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

import unshift
from unshift.data import dataset, prepare
from unshift.evaluation import calibrate, rates_from, restoration_rates
from unshift.pose_network import PoseEstimator
from unshift.training.images import Examples

__all__ = ["Fit", "Prepared", "calibrate_on_held_out", "fit", "main", "prepared", "seeded", "seeded_pose"]


class Prepared(Dataset[Tensor]):
    """Images that are prepared one by one, because together they would not fit in memory."""

    def __init__(self, images: Tensor, prepare_one: Callable[[Tensor, int], Tensor]) -> None:
        self.images, self.prepare_one = images, prepare_one

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        return self.prepare_one(self.images[index : index + 1], index)[0]


def prepared(data: str, split: str, preparation: dict[str, Any]) -> Tensor:
    """Return the images of a data set, prepared."""
    return prepare(dataset(data, split).images, preparation)


def fit(
    data: str, images: Any, preset: Any, preparation: dict[str, Any], held_out: int | float, **options: Any
) -> unshift.Restorer:
    """Fit on unmoved images, without the few that are constant or copies; the restorer's file holds the preparation."""
    restorer = unshift.fit(images, preset, data_name=data, validation=held_out, drop_unusable=True, **options)
    restorer.trained_on["preparation"] = preparation
    return restorer


def seeded(seed: int, in_channels: int, **network: Any) -> unshift.ShiftEstimator:
    """Return an estimator whose weights follow from a seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return unshift.ShiftEstimator(in_channels, **network)


def seeded_pose(seed: int, in_channels: int, **network: Any) -> PoseEstimator:
    """Return a network of poses whose weights follow from a seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return PoseEstimator(in_channels, **network)


@dataclass(frozen=True)
class Fit:
    """A restorer that one call of ``unshift.fit`` makes from a data set."""

    data: str
    preset: str | dict[str, Any]
    """A preset, or the arguments of a network whose weights follow from seed 0."""
    preparation: dict[str, Any]
    recipe: dict[str, Any] = field(default_factory=dict)
    HELD_OUT: int = 5000

    def images(self, split: str) -> Tensor:
        """Return the images of a split, prepared."""
        return prepared(self.data, split, self.preparation)

    def train(self, **options: Any) -> unshift.Restorer:
        """Fit on the training images."""
        preset = self.preset if isinstance(self.preset, str) else seeded(0, **self.preset)
        settings = {**self.recipe, **options}
        return fit(self.data, self.images("train"), preset, self.preparation, self.HELD_OUT, **settings)


def calibrate_on_held_out(restorer: Any, images: Any, held_out: int | float) -> None:
    """Calibrate a restorer, a chain stage by stage, on the training images that ``fit`` held out with seed 0.

    Args:
        restorer: Its curves and its validation rates are replaced.
        images: All training images, prepared.
        held_out: As for ``fit(validation=...)``.
    """
    scenes = restorer.metadata.get("scenes")
    options: Any = {"scene": scenes["size"], "background": scenes["background"]} if scenes else {}
    options |= {"augmented": True, "validation": held_out, "drop_unusable": True}  # the images, not their canvases
    examples = Examples(images, restorer.stages[0].coordinates, **options)
    restorer.metadata["validation"] = rates_from(calibrate(restorer, lambda: examples.held_out(256))).as_dict()


def test_rates(restorer: Any, images: Any) -> dict[str, Any]:
    """Return the rates on test images, 500 at a time: large images do not fit in memory together."""
    rates = []
    for start in range(0, len(images), 500):
        rows = range(start, min(start + 500, len(images)))
        part = torch.stack([images[row] for row in rows]) if isinstance(images, Prepared) else images[start : rows.stop]
        rates.append((len(rows), restoration_rates(restorer, part).as_dict()))
    shares = {
        key: sum(count * rate[key] for count, rate in rates) / len(images)
        for key in ("exact", "within_1", "confidence")
    }
    return {"images": len(images), **shares, "tied": sum(rate["tied"] for _, rate in rates)}


def main(script: Any = None, words: list[str] | None = None) -> None:
    """Train with the functions of a script, and save the restorer.

    Args:
        script: The module. Default: the one that was started as ``python -m reproduction.train.NAME``.
        words: The command line. Default: that of the process.
    """
    script = script or sys.modules["__main__"]
    parser = argparse.ArgumentParser(description=script.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="where the restorer goes")
    parser.add_argument("--epochs", type=int, help="a trial: other epochs, and the test set is not measured")
    parser.add_argument(
        "--calibrate", metavar="FILE", help="train nothing: calibrate this restorer on the images held out"
    )
    parser.add_argument("--threads", type=int, help="CPU threads; the last bits of results depend on their number")
    given = parser.parse_args(words)
    if given.threads:
        torch.set_num_threads(given.threads)
    if given.calibrate:
        restorer: Any = unshift.load(given.calibrate)
        if hasattr(script, "calibrate_on_genera"):
            script.calibrate_on_genera(restorer)
        else:
            calibrate_on_held_out(restorer, script.images("train"), script.HELD_OUT)
    else:
        trial = {"epochs": given.epochs, "patience": given.epochs} if given.epochs else {}
        restorer = script.train(checkpoint=given.out.with_suffix(".checkpoint"), resume=True, **trial)
    if not given.epochs:
        restorer.metadata["test"] = test_rates(restorer, script.images("test"))
        if hasattr(script, "measure"):
            script.measure(restorer)
    restorer.save(given.out)
    facts = {key: restorer.metadata.get(key) for key in ("validation", "test", "calibration", "seconds")}
    print(given.out, json.dumps(facts), flush=True)
