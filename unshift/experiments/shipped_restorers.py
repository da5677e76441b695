"""How each shipped restorer was trained: ``python -m unshift.experiments.shipped_restorers NAME…`` makes it again.

Each run holds out part of the *training* set to choose by; the test set is measured once, at the end.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

import unshift
from unshift.data import dataset, prepare, to_float
from unshift.evaluation import restoration_rates
from unshift.polar import rotate, rotation_grid, rotation_network

__all__ = ["RECIPES", "make"]

RECIPES: dict[str, dict[str, Any]] = {
    "mnist": {"data": "mnist", "preparation": {"resize": [32, 32]}, "preset": "dense", "validation": 5000},
    "mnist-paper": {"data": "mnist", "preparation": {"resize": [32, 32]}, "preset": "paper", "validation": 5000},
    "fashion-mnist": {
        "data": "fashion-mnist",
        "preparation": {"resize": [32, 32]},
        "preset": "dense",
        "validation": 5000,
    },
    "cifar10": {"data": "cifar10", "preparation": {"pad": 4}, "preset": "paper", "validation": 5000},
    "cifar10-seam": {
        "data": "cifar10",
        "preparation": {},
        "preset": "seam",
        "validation": 2000,
        "mirror": True,
        "windows": True,
    },
    "mnist-rotation": {
        "kind": "rotation",
        "data": "mnist",
        "preparation": {"resize": [224, 224]},
        "preset": "dense",
        "validation": 5000,
        "epochs": 6,
        "learning_rate": 0.003,
        "hide_lattice": True,
    },
    "mnist-rotation-paper": {
        "kind": "rotation",
        "data": "mnist",
        "preparation": {"resize": [224, 224]},
        "preset": "paper",
        "validation": 5000,
    },
    "mnist3d": {
        "data": "mnist3d",
        "preparation": {},
        "preset": "paper",
        "validation": 500,
        "batch_size": 32,
        "epochs": 6,
    },
}


class _Prepared(Dataset[Tensor]):
    """Images prepared one by one as they are asked for: at 224x224 they would not fit in memory together."""

    def __init__(self, images: Tensor, preparation: dict[str, Any]) -> None:
        self.images, self.preparation = images, preparation

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        return prepare(self.images[index : index + 1], self.preparation)[0]


def _images(data: str, split: str) -> Tensor:
    return mnist3d(split).images if data == "mnist3d" else dataset(data, split).images


def _rates(restorer: unshift.Restorer, images: Tensor, preparation: dict[str, Any]) -> dict[str, Any]:
    """Measure on canvases: of large images, they are what fits in memory."""
    parts = (restorer.coordinates(prepare(part, preparation)) for part in images.split(500))
    return restoration_rates(unshift.Restorer(restorer.scorer), torch.cat(list(parts))).as_dict()


def _fit_without_lattice(raw: Tensor, preparation: dict[str, Any], recipe: dict[str, Any]) -> unshift.Restorer:
    """Fit a rotation restorer that sees the digit and not the pixels it is made of.

    Enlarged, an upright digit shows the lattice of its own 28x28 pixels, upright as well; a strong network
    reads the angle off that, and fails on digits that were turned before they became pixels. So each digit is
    first turned *at its own size*, by a random number of grid steps, and its canvas is shifted back: the digit
    stands upright, the lattice anyhow. A canvas is an image of one axis: ``fit`` takes it as it is.
    """
    preset, seed = recipe.pop("preset"), recipe.get("seed", 0)
    polar = rotation_grid(preset, preparation["resize"])
    steps = torch.randint(polar.angles, (len(raw), 1), generator=torch.Generator().manual_seed(seed))
    canvases = []
    for part, step in zip(raw.split(500), steps.split(500), strict=True):
        turned = rotate(to_float(part), 360 / polar.angles * step[:, 0].double())
        canvases.append(unshift.undo(polar(prepare(turned, preparation)), step))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = rotation_network(preset, polar.channels * raw.shape[1], polar.angles)
    bare = unshift.fit(torch.cat(canvases), network, **recipe)
    restorer = unshift.Restorer(bare.scorer, coordinates=polar).eval()
    restorer.metadata = {**bare.metadata, "kind": "rotation", "preset": preset, "size": preparation["resize"]}
    restorer.metadata["hide_lattice"] = True
    return restorer


def make(name: str, folder: Path, *, progress: bool = True, **changes: Any) -> unshift.Restorer:
    """Train restorer ``name`` on its full training set and save it in ``folder``; goes on after a kill."""
    recipe = {**RECIPES[name], **changes}
    data, preparation = recipe.pop("data"), recipe.pop("preparation")
    raw = _images(data, "train")
    recipe |= {"data_name": data, "checkpoint": folder / f"{name}.checkpoint", "resume": True, "progress": progress}
    recipe["drop_unusable"] = True
    if recipe.pop("hide_lattice", False):
        restorer = _fit_without_lattice(raw, preparation, {k: v for k, v in recipe.items() if k != "kind"})
    else:
        turning = recipe.get("kind") == "rotation"
        restorer = unshift.fit(_Prepared(raw, preparation) if turning else prepare(raw, preparation), **recipe)
    restorer.metadata["preparation"] = preparation
    restorer.metadata["test"] = _rates(restorer, _images(data, "test"), preparation)
    restorer.save(folder / f"{name}.safetensors")
    return restorer


def main() -> None:
    """Train the restorers named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=list(RECIPES))
    parser.add_argument("--out", type=Path, default=Path(unshift.__file__).parent / "pretrained")
    parser.add_argument("--threads", type=int, help="CPU threads; results differ in the last bits between counts")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    for name in arguments.names:
        metadata = make(name, arguments.out).metadata
        print(name, json.dumps({key: metadata[key] for key in ("validation", "test", "seconds")}), flush=True)


if __name__ == "__main__":
    main()
