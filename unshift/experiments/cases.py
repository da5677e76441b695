"""What the translation experiments run on: test sets, frozen classifiers for them, restorers to put before them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

import unshift
from unshift import Chain, Restorer
from unshift.data import DataError, ImageSet, dataset, prepare, to_float
from unshift.data.catalogue import find
from unshift.experiments import classifiers
from unshift.experiments.answers import Remembering
from unshift.experiments.borrowed_classifiers import BORROWED, borrow
from unshift.experiments.classifier_training import Recipe, train_classifier
from unshift.experiments.record import Case, Options

__all__ = ["CASES", "LoadedCase", "frozen_classifier", "images_of"]

ARCHITECTURE_NAMES = {
    "lenet5": "LeNet-5",
    "vgg16": "VGG-16",
    "resnet18": "ResNet-18",
    "densenet121": "DenseNet-121",
    "densenet-bc100": "DenseNet-BC-100",
    "mobilenet-v2": "MobileNet v2",
    "resnet20": "ResNet-20",
    "resnet20-polyphase": "ResNet-20, polyphase",
    "resnet20-blurred": "ResNet-20, blurred",
}
"""Architectures as papers spell them."""
_TOLD = {"preparation", "epochs", "small_epochs", "scope", "window", "recipe", "budget", "train_images", "parameters"}
_TOLD |= {"validation_accuracy", "validation_images", "seed", "torch", "source", "licence", "sha256"}


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
    test = images_of(data, options)
    images = to_float(prepare(test.images, next(iter(restorers.values())).trained_on["preparation"]))
    assert test.labels is not None
    model, said, about = frozen_classifier(name, images, test.labels, options)
    title = title + (", quick" if options.quick else "")
    made = LoadedCase(title, images, test.labels, model, said, restorers, options.seeds, bare, about, test.classes)
    return replace(made, progress=options.progress)


def frozen_classifier(
    name: str, images: Tensor, labels: Tensor, options: Options
) -> tuple[Callable[[Tensor], Tensor], str, dict[str, Any]]:
    """Return a classifier, what a table calls it, and what is known of it.

    Args:
        name: One that is shipped, one that others trained, or one with a recipe.
        images: What a quick look trains it on, unless it is shipped or given.
        labels: Their classes.
        options: How the run was asked for.
    """
    shipped, others = name in classifiers.shipped(), BORROWED.get(name)
    architecture = others.architecture if others else classifiers.RECIPES[name].architecture
    if options.quick and not shipped and name not in options.weights:
        recipe = Recipe(architecture, epochs=2, batch_size=len(images), optimizer="sgd", learning_rate=0.05)
        model: Any = train_classifier(recipe, images, labels, progress=False)
        model.about = {"recipe": "two steps, quick"}
    elif others:
        model = borrow(name, options.weights.get(name))
    else:
        model = classifiers.obtain(name, progress=options.progress)
    said = ARCHITECTURE_NAMES[architecture]
    said += " (shipped)" if shipped else " (trained by others)" if others else ""
    said += ", augmented" if model.about.get("scope") else ""
    large = not shipped and not options.quick
    return Remembering.on_disk(model, name) if large else model, said, model.about


def images_of(data: str, options: Options, split: str = "test", few: int | None = None) -> ImageSet:
    """Return a data set; for a quick look ``few`` images of it or, where it is not on this machine, of noise."""
    if not options.quick:
        return dataset(data, split)
    entry = find(data)
    count = few or (100 if entry.shape[0] == 1 else 6)  # the nets for colours are large
    try:
        found = dataset(data, split, download=False)
    except DataError:  # noise has the right shape, and shows that all runs
        noise = torch.randint(0, 256, (count, *entry.shape), generator=torch.Generator().manual_seed(0))
        labels = torch.arange(count) % len(entry.classes)
        return ImageSet(noise.to(torch.uint8), labels, f"{data}: noise", entry.classes)
    assert found.labels is not None
    return replace(found, images=found.images[:count], labels=found.labels[:count])


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


def _padded(name: str, classifier: str = "") -> Case:
    title, classifier = "CIFAR-10 test, padded to 40x40", classifier or f"{name}-cifar10"
    return _case(f"cifar10-{name}", title, "cifar10", classifier, "cifar10", bare=1000)


_CLOTHES = ("Fashion-MNIST test, 32x32", "fashion-mnist")
CASES = {
    case.name: case
    for case in (
        Case("mnist", "mnist", _load_digits, trainable=True),
        _case("mnist-augmented", "MNIST test, 32x32", "mnist", "lenet5-mnist-augmented", "mnist"),
        _padded("vgg16"),
        _padded("resnet18", "resnet18-cifar10-autoattack"),
        _padded("densenet-bc100"),
        _padded("mobilenet-v2"),
        _case("cifar10-plain", "CIFAR-10 test, 32x32", "cifar10", "resnet20-cifar10-plain", "cifar10-seam", bare=2000),
        _case(
            "cifar10-resnet18-plain",
            "CIFAR-10 test, 32x32",
            "cifar10",
            "resnet18-cifar10-autoattack",
            "cifar10-seam",
            bare=1000,
        ),
        _case("fashion-mnist", *_CLOTHES, "lenet5-fashion-mnist", "fashion-mnist"),
        _case("fashion-mnist-augmented", *_CLOTHES, "lenet5-fashion-mnist-augmented", "fashion-mnist"),
    )
}
"""The cases of the paper, and ours."""
