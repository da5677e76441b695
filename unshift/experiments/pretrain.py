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

import unshift
from unshift.data import dataset, pad, resize, to_float
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
    "cifar10-seam": {"data": "cifar10", "preparation": {}, "preset": "seam", "validation": 5000},
}


def prepare(images: Tensor, preparation: dict[str, Any]) -> Tensor:
    """Bring raw images to what a restorer was trained on: to [0, 1], then resized, then padded."""
    ready = to_float(images)
    if "resize" in preparation:
        ready = resize(ready, tuple(preparation["resize"]))
    return pad(ready, preparation["pad"]) if "pad" in preparation else ready


def make(name: str, folder: Path, *, progress: bool = True, **changes: Any) -> unshift.Restorer:
    """Train restorer ``name`` on its full training set and save it in ``folder``; goes on after a kill."""
    recipe = {**RECIPES[name], **changes}
    data, preparation = recipe.pop("data"), recipe.pop("preparation")
    restorer = unshift.fit(
        prepare(dataset(data, "train").images, preparation),
        **recipe,
        data_name=data,
        checkpoint=folder / f"{name}.checkpoint",
        resume=True,
        drop_unusable=True,
        progress=progress,
    )
    restorer.metadata["preparation"] = preparation
    restorer.metadata["test"] = restoration_rates(
        restorer, prepare(dataset(data, "test").images, preparation)
    ).as_dict()
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
