"""What an experiment runs on, and where its numbers came from.

A *case* is a test set, a frozen classifier for it and the restorers to put before it; :data:`CASES` names those
of the paper, and ours. :func:`setting` loads one.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import unshift
from unshift import Restorer
from unshift.data import DataError, ImageSet, dataset, prepare, to_float
from unshift.experiments import classifiers

__all__ = ["CASES", "Case", "Remembering", "Setting", "provenance", "setting"]


@dataclass(frozen=True)
class Case:
    """Names of what belongs together. ``bare`` limits the shifted images that go through the bare classifier."""

    data: str
    title: str
    classifier: str
    restorers: tuple[str, ...]
    bare: int = 10_000


_CIFAR = ("cifar10", "CIFAR-10 test, padded to 40x40")
CASES = {
    "mnist": Case("mnist", "MNIST test, 32x32", "lenet5-mnist", ("mnist", "mnist-paper")),
    "mnist-augmented": Case("mnist", "MNIST test, 32x32", "lenet5-mnist-augmented", ("mnist",)),
    "cifar10-vgg16": Case(*_CIFAR, "vgg16-cifar10", ("cifar10",), bare=1000),
    "cifar10-vgg16-augmented": Case(*_CIFAR, "vgg16-cifar10-augmented", ("cifar10",), bare=1000),
    "cifar10-resnet18": Case(*_CIFAR, "resnet18-cifar10", ("cifar10",), bare=1000),
    "cifar10-densenet121": Case(*_CIFAR, "densenet121-cifar10", ("cifar10",), bare=1000),
    "cifar10-mobilenet-v2": Case(*_CIFAR, "mobilenet-v2-cifar10", ("cifar10",), bare=1000),
    "cifar10-plain": Case("cifar10", "CIFAR-10 test, 32x32", "resnet20-cifar10-plain", ("cifar10-seam",), bare=2000),
    "fashion-mnist": Case(
        "fashion-mnist", "Fashion-MNIST test, 32x32", "lenet5-fashion-mnist", ("fashion-mnist",), bare=10_000
    ),
    "fashion-mnist-augmented": Case(
        "fashion-mnist", "Fashion-MNIST test, 32x32", "lenet5-fashion-mnist-augmented", ("fashion-mnist",)
    ),
}
NAMES = {
    "lenet5": "LeNet-5",
    "vgg16": "VGG-16",
    "resnet18": "ResNet-18",
    "densenet121": "DenseNet-121",
    "mobilenet-v2": "MobileNet v2",
    "resnet20": "ResNet-20",
}
"""Architectures as papers spell them."""


@dataclass(frozen=True)
class Setting:
    """A test set, a frozen classifier for it, and the restorers to put before it."""

    data: str
    images: Tensor
    labels: Tensor
    classifier: Callable[[Tensor], Tensor]
    classifier_name: str
    restorers: dict[str, Restorer] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0,)
    bare: int = 10_000
    """shifted images that go through the bare classifier: the first so many"""
    about: dict[str, Any] = field(default_factory=dict)
    """what is known of the classifier's training"""
    classes: tuple[str, ...] = ()
    progress: bool = True
    train: bool = False
    """whether restorers are to be fitted anew, where the experiment is about that"""

    def describe(self) -> dict[str, Any]:
        """Return what a reader needs to repeat the run, as plain data."""
        return {
            "data": self.data,
            "images": len(self.images),
            "bare_images": min(self.bare, len(self.images)),
            "classifier": self.classifier_name,
            "training": {key: self.about[key] for key in _TOLD if key in self.about},
            "restorers": list(self.restorers),
            "seeds": list(self.seeds),
        }


_TOLD = (
    "epochs",
    "small_epochs",
    "scope",
    "recipe",
    "budget",
    "train_images",
    "parameters",
    "validation_accuracy",
    "validation_images",
    "seed",
    "torch",
)


class Remembering:
    """A classifier that is asked about no image twice: what it said of those very bits, it says again.

    A large net's answer may hang on which other images are in the batch, in the last bit; and most restored
    images are the same ones at every shift. So this makes the accuracy a function of the images, and quick.
    """

    def __init__(self, classifier: Callable[[Tensor], Tensor]) -> None:
        self.classifier = classifier
        self.known: dict[bytes, Tensor] = {}

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """Return the logits of a batch."""
        keys = [hashlib.blake2b(image.numpy().tobytes(), digest_size=16).digest() for image in images.contiguous()]
        new = {key: row for row, key in enumerate(keys) if key not in self.known}
        if new:
            unseen = images[list(new.values())]
            if unseen.ndim == 4:
                unseen = unseen.contiguous(memory_format=torch.channels_last)
            logits = self.classifier(unseen)
            self.known.update(zip(new, logits, strict=True))
        return torch.stack([self.known[key] for key in keys])


def setting(
    name: str,
    *,
    train: bool = False,
    quick: bool = False,
    seeds: tuple[int, ...] = (0,),
    progress: bool = True,
) -> Setting:
    """Load case ``name``; classifiers that are neither shipped nor in the data folder are trained now.

    ``train`` (MNIST only) fits classifier and restorers anew, on the embedded 10,000 training digits.
    ``quick`` is for a look, and its accuracies mean nothing: 100 digits, or a few photos (where the data is
    absent, of noise) before a classifier trained for two steps on those same photos.
    """
    case = CASES[name]
    if train and name == "mnist":
        return _trained_here(case, quick, seeds, progress)
    if train and name != "cifar10-plain":
        raise ValueError(
            f"--train is for the embedded digits (--data mnist), not for {name}: its parts are trained by "
            "`python -m unshift.experiments.classifiers` and `python -m unshift.experiments.pretrain`"
        )
    if train and quick:
        raise ValueError(f"{name} has no quick training: leave out --train or --quick")
    restorers = {each: unshift.load(each) for each in case.restorers}
    test = _quick_test(case) if quick else dataset(case.data, "test")
    images = to_float(prepare(test.images, next(iter(restorers.values())).metadata["preparation"]))
    assert test.labels is not None
    model = _quick_classifier(case.classifier, images, test.labels) if quick else None
    model = model or classifiers.obtain(case.classifier, progress=progress)
    about: Any = getattr(model, "about", {"recipe": "two steps, quick"})
    kind = NAMES[classifiers.RECIPES[case.classifier].architecture]
    suffix = " (shipped)" if case.classifier in classifiers.shipped() else ""
    suffix += ", augmented" if about.get("scope") else ""
    return Setting(
        case.title + (", quick" if quick else ""),
        images,
        test.labels,
        model,
        f"{kind}{suffix}",
        restorers,
        seeds,
        case.bare,
        about,
        test.classes,
        progress,
        train,
    )


def _quick_test(case: Case) -> ImageSet:
    count = 100 if case.data == "mnist" else 6
    try:
        test = dataset(case.data, "test", download=False)
    except DataError:  # not on this machine: noise has the right shape, and shows that all runs
        generator = torch.Generator().manual_seed(0)
        shape = (count, 3, 32, 32) if case.data == "cifar10" else (count, 1, 28, 28)
        noise = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
        return ImageSet(noise, torch.arange(count) % 10, f"{case.data}: noise", tuple("0123456789"))
    assert test.labels is not None
    return replace(test, images=test.images[:count], labels=test.labels[:count])


def _quick_classifier(name: str, images: Tensor, labels: Tensor) -> nn.Module | None:
    if name in classifiers.shipped():
        return None
    recipe = replace(classifiers.RECIPES[name], epochs=2, small_epochs=0, batch_size=len(images))
    return classifiers.train_classifier(recipe, images, labels, progress=False)


def _trained_here(case: Case, quick: bool, seeds: tuple[int, ...], progress: bool) -> Setting:
    """Return MNIST with classifier and restorers fitted now, on embedded digits alone."""
    preparation = {"resize": [32, 32]}
    test, digits = dataset("mnist-10k", "test"), dataset("mnist-10k", "train")
    assert test.labels is not None
    assert digits.labels is not None
    count, kept = (200, 2000) if quick else (len(test), len(digits))
    small = prepare(digits.images[:kept], preparation)
    epochs: dict[str, Any] = {"epochs": 2} if quick else {}
    recipe = replace(classifiers.RECIPES["lenet5-mnist"], **epochs)
    classifier = classifiers.train_classifier(recipe, small, digits.labels[:kept], progress=progress)
    restorers = {
        preset: unshift.fit(small, preset, data_name="mnist-10k", progress=progress, **epochs)
        for preset in ("dense", "paper")
    }
    return Setting(
        case.title,
        prepare(test.images[:count], preparation),
        test.labels[:count],
        classifier,
        f"LeNet-5 trained here on {kept} digits",
        restorers,
        seeds,
        progress=progress,
    )


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
            ["git", "describe", "--always", "--dirty", "--exclude", "*"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None  # installed from a wheel, or no git here
    return done.stdout.strip()
