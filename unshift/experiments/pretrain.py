"""How each shipped restorer was trained: ``python -m unshift.experiments.pretrain NAME…`` makes it again.

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
from unshift.data import dataset, pad, resize, to_float
from unshift.data.volumes import mnist3d
from unshift.evaluation import restoration_rates

__all__ = ["RECIPES", "make", "prepare"]

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
        "validation": 5000,
        "batch_size": 64,
        "learning_rate": 0.005,
        "epochs": 16,
        "mirror": True,
    },
    "mnist-rotation": {
        "kind": "rotation",
        "data": "mnist",
        "preparation": {"resize": [224, 224]},
        "preset": "dense",
        "validation": 5000,
        "epochs": 6,
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


def prepare(images: Tensor, preparation: dict[str, Any]) -> Tensor:
    """Bring raw images to what a restorer was trained on: to [0, 1], then resized, then padded."""
    ready = to_float(images)
    if "resize" in preparation:
        ready = resize(ready, tuple(preparation["resize"]))
    return pad(ready, preparation["pad"]) if "pad" in preparation else ready


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


def make(name: str, folder: Path, *, progress: bool = True, **changes: Any) -> unshift.Restorer:
    """Train restorer ``name`` on its full training set and save it in ``folder``; goes on after a kill."""
    recipe = {**RECIPES[name], **changes}
    data, preparation = recipe.pop("data"), recipe.pop("preparation")
    raw = _images(data, "train")
    restorer = unshift.fit(
        _Prepared(raw, preparation) if recipe.get("kind") == "rotation" else prepare(raw, preparation),
        **recipe,
        data_name=data,
        checkpoint=folder / f"{name}.checkpoint",
        resume=True,
        drop_unusable=True,
        progress=progress,
    )
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
