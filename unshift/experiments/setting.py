"""What an experiment runs on, and where its numbers came from."""

from __future__ import annotations

import platform
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import unshift
from unshift import Restorer
from unshift.data import dataset, resize, to_float

__all__ = ["Setting", "mnist_setting", "provenance"]


@dataclass(frozen=True)
class Setting:
    """A test set, a frozen classifier for it, and the restorers to put before it."""

    data: str
    images: Tensor
    labels: Tensor
    classifier: nn.Module
    classifier_name: str
    restorers: dict[str, Restorer] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0,)
    progress: bool = True

    def describe(self) -> dict[str, Any]:
        """Return what a reader needs to repeat the run, as plain data."""
        return {
            "data": self.data,
            "images": len(self.images),
            "classifier": self.classifier_name,
            "restorers": list(self.restorers),
            "seeds": list(self.seeds),
        }


def mnist_setting(
    *, train: bool = False, quick: bool = False, seeds: tuple[int, ...] = (0,), progress: bool = True
) -> Setting:
    """Return MNIST as in the paper: test digits at 32x32, LeNet-5, and our two restorers.

    Everything comes with the package. ``train`` fits classifier and restorers anew, on the embedded
    10,000 training digits; ``quick`` keeps 500 test digits (and trains briefly).
    """
    from unshift.experiments.classifiers import shipped, train_classifier

    test = dataset("mnist-10k", "test")
    assert test.labels is not None
    count = 500 if quick else len(test.images)
    images = resize(to_float(test.images[:count]), (32, 32))
    if train:
        digits = dataset("mnist-10k", "train")
        assert digits.labels is not None
        kept = 2000 if quick else len(digits.images)
        small = resize(to_float(digits.images[:kept]), (32, 32))
        epochs: dict[str, Any] = {"epochs": 2} if quick else {}
        classifier = train_classifier("lenet5", small, digits.labels[:kept], progress=progress, **epochs)
        restorers = {
            "dense": unshift.fit(small, "dense", data_name="mnist-10k", progress=progress, **epochs),
            "paper": unshift.fit(small, "paper", data_name="mnist-10k", progress=progress, **epochs),
        }
        name = f"LeNet-5 trained here on {kept} digits"
    else:
        classifier = shipped()["lenet5-mnist"]()
        restorers = {"mnist": unshift.load("mnist"), "mnist-paper": unshift.load("mnist-paper")}
        name = "LeNet-5 (shipped)"
    return Setting("MNIST test, 32x32", images, test.labels[:count], classifier, name, restorers, seeds, progress)


def provenance() -> dict[str, Any]:
    """Return the versions, threads and commit behind a result."""
    return {
        "unshift": unshift.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "commit": _commit(),
    }


def _commit() -> str | None:
    folder = Path(__file__).resolve().parent
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=folder, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None  # installed from a wheel, or no git here
    return done.stdout.strip()
