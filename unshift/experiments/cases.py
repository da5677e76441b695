"""What the translation experiments run on: test sets, frozen classifiers for them, restorers to put before them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import unshift
from unshift import Chain, Restorer
from unshift.data import DataError, ImageSet, dataset, prepare, to_float
from unshift.experiments import classifiers
from unshift.experiments.classifier_training import train_classifier
from unshift.experiments.record import Case, Options

__all__ = ["CASES", "LoadedCase", "Remembering"]

ARCHITECTURE_NAMES = {
    "lenet5": "LeNet-5",
    "vgg16": "VGG-16",
    "resnet18": "ResNet-18",
    "densenet121": "DenseNet-121",
    "mobilenet-v2": "MobileNet v2",
    "resnet20": "ResNet-20",
}
"""Architectures as papers spell them."""
_TOLD = {"epochs", "small_epochs", "scope", "recipe", "budget", "train_images", "parameters"}
_TOLD |= {"validation_accuracy", "validation_images", "seed", "torch"}


@dataclass(frozen=True)
class LoadedCase:
    """A test set, a frozen classifier for it, and the restorers to put before it."""

    data: str
    images: Tensor
    labels: Tensor
    classifier: Callable[[Tensor], Tensor]
    classifier_name: str
    restorers: Mapping[str, Restorer | Chain]
    seeds: tuple[int, ...] = (0,)
    bare: int = 10_000
    """how many of the images go shifted through the bare classifier: the first of them"""
    about: dict[str, Any] = field(default_factory=dict)
    """what is known of the classifier's training"""
    classes: tuple[str, ...] = ()
    progress: bool = True

    def describe(self) -> dict[str, Any]:
        """Return what a reader needs to repeat the run, as plain data."""
        return {
            "data": self.data,
            "images": len(self.images),
            "bare_images": min(self.bare, len(self.images)),
            "classifier": self.classifier_name,
            "training": {key: value for key, value in self.about.items() if key in _TOLD},
            "restorers": list(self.restorers),
            "seeds": list(self.seeds),
        }


class Remembering:
    """A classifier that remembers its answer to every image, and gives it again when the same bits come back.

    The last bit of a large net's answer may depend on the other images in the batch. With this, the accuracy depends on
    the images alone. It is also quick: most restored images are the same ones at every shift.
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


def _load(title: str, data: str, name: str, restorer_names: tuple[str, ...], bare: int, options: Options) -> LoadedCase:
    """Load a case; a classifier that is neither shipped nor in the data folder is trained now.

    A quick look's accuracies mean nothing: 100 digits, or a few photos (where the data is absent, noise) before a
    classifier trained for two steps on those same photos.
    """
    if options.train:
        raise ValueError(
            f"--train is for the embedded digits (--data mnist), not for {name}: train it with "
            "`python -m unshift.experiments.classifiers`, and its restorer with "
            "`python -m unshift.experiments.shipped_restorers`"
        )
    restorers = {each: unshift.load(each) for each in restorer_names}
    test = _quick_test(data) if options.quick else dataset(data, "test")
    images = to_float(prepare(test.images, next(iter(restorers.values())).trained_on["preparation"]))
    assert test.labels is not None
    shipped = name in classifiers.shipped()
    if options.quick and not shipped:
        recipe = replace(classifiers.RECIPES[name], epochs=2, small_epochs=0, batch_size=len(images))
        model: nn.Module = train_classifier(recipe, images, test.labels, progress=False)
    else:
        model = classifiers.obtain(name, progress=options.progress)
    about: Any = getattr(model, "about", {"recipe": "two steps, quick"})
    said = ARCHITECTURE_NAMES[classifiers.RECIPES[name].architecture] + (" (shipped)" if shipped else "")
    title, said = title + (", quick" if options.quick else ""), said + (", augmented" if about.get("scope") else "")
    made = LoadedCase(title, images, test.labels, model, said, restorers, options.seeds, bare, about, test.classes)
    return replace(made, progress=options.progress)


def _quick_test(data: str) -> ImageSet:
    count = 100 if data == "mnist" else 6
    try:
        test = dataset(data, "test", download=False)
    except DataError:  # not on this machine: noise has the right shape, and shows that all runs
        generator = torch.Generator().manual_seed(0)
        shape = (count, 3, 32, 32) if data == "cifar10" else (count, 1, 28, 28)
        noise = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
        return ImageSet(noise, torch.arange(count) % 10, f"{data}: noise", tuple("0123456789"))
    assert test.labels is not None
    return replace(test, images=test.images[:count], labels=test.labels[:count])


def _load_digits(options: Options) -> LoadedCase:
    """Load MNIST; to train, fit classifier and restorers now, on the embedded digits alone."""
    title, name = "MNIST test, 32x32", "lenet5-mnist"
    if not options.train:
        return _load(title, "mnist", name, ("mnist", "mnist-paper"), 10_000, options)
    test, digits = dataset("mnist-10k", "test"), dataset("mnist-10k", "train")
    assert test.labels is not None
    assert digits.labels is not None
    count, kept = (200, 2000) if options.quick else (len(test), len(digits))
    preparation = {"resize": [32, 32]}
    small = prepare(digits.images[:kept], preparation)
    epochs: dict[str, Any] = {"epochs": 2} if options.quick else {}
    recipe = replace(classifiers.RECIPES[name], **epochs)
    classifier = train_classifier(recipe, small, digits.labels[:kept], progress=options.progress)
    fitting = {"data_name": "mnist-10k", "progress": options.progress, **epochs}
    restorers = {preset: unshift.fit(small, preset, **fitting) for preset in ("dense", "paper")}
    images, said = prepare(test.images[:count], preparation), f"LeNet-5 trained here on {kept} digits"
    made = LoadedCase(title, images, test.labels[:count], classifier, said, restorers, options.seeds)
    return replace(made, progress=options.progress)


def _case(name: str, title: str, data: str, classifier: str, restorer: str, bare: int = 10_000) -> Case:
    return Case(name, data, partial(_load, title, data, classifier, (restorer,), bare))


def _padded(name: str, suffix: str = "") -> Case:
    title, classifier = "CIFAR-10 test, padded to 40x40", f"{name}-cifar10{suffix}"
    return _case(f"cifar10-{name}{suffix}", title, "cifar10", classifier, "cifar10-paper", bare=1000)


_CLOTHES = ("Fashion-MNIST test, 32x32", "fashion-mnist")
CASES = {
    case.name: case
    for case in (
        Case("mnist", "mnist", _load_digits, trainable=True),
        _case("mnist-augmented", "MNIST test, 32x32", "mnist", "lenet5-mnist-augmented", "mnist"),
        _padded("vgg16"),
        _padded("vgg16", "-augmented"),
        _padded("resnet18"),
        _padded("densenet121"),
        _padded("mobilenet-v2"),
        _case("cifar10-plain", "CIFAR-10 test, 32x32", "cifar10", "resnet20-cifar10-plain", "cifar10-seam", bare=2000),
        _case("fashion-mnist", *_CLOTHES, "lenet5-fashion-mnist", "fashion-mnist"),
        _case("fashion-mnist-augmented", *_CLOTHES, "lenet5-fashion-mnist-augmented", "fashion-mnist"),
    )
}
"""The cases of the paper, and ours."""
