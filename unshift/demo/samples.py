"""The pictures that the page starts from: of each dataset the first five of every class in its test set.

MNIST's come with the package, and so do Fashion-MNIST's: ``samples/fashion-mnist.png``, its class 0 in the first
column, and so on (MIT; see ``LICENSE-FASHION-MNIST`` beside it). CIFAR-10 states no licence: its pictures are
taken from the data folder where it has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from unshift.data import DataError, dataset

__all__ = ["CHOICES", "PER_CLASS", "Choice", "samples", "sheet"]

PER_CLASS = 5
FOLDER = Path(__file__).with_name("samples")


@dataclass(frozen=True)
class Choice:
    """One choice on the page: a dataset, and the restorers and the classifier that go with it."""

    name: str
    title: str
    noun: str
    restorer: str
    classifier: str
    rotation: str | None = None
    """the restorer of rotations, on images of its own size"""
    pose: str | None = None
    """the restorer of shifts and rotations at once, on images as ``restorer`` takes them"""
    scene: str | None = None
    """the restorer of scenes, out of which it cuts images as ``restorer`` takes them"""
    drawn: bool = False
    """whether a visitor can draw one"""
    light_on_dark: bool = False
    """whether uploads on a light ground are to be inverted"""


CHOICES = (
    Choice(
        "mnist",
        "Digits",
        "digit",
        "mnist",
        "lenet5-mnist",
        rotation="mnist-rotation",
        pose="mnist-pose",
        scene="mnist-scene",
        drawn=True,
        light_on_dark=True,
    ),
    Choice("fashion-mnist", "Clothes", "garment", "fashion-mnist", "lenet5-fashion-mnist", light_on_dark=True),
    Choice("cifar10", "Photos", "photo", "cifar10-seam", "resnet20-cifar10-plain"),
)
"""What the page can offer; it does offer those whose classifier is shipped and whose pictures are there; of
``rotation``, ``pose`` and ``scene``, those that are shipped."""


def samples(entry: Choice) -> Tensor | None:
    """Return the entry's pictures, ``uint8`` ``(n, c, h, w)``, or None where they are not to be had.

    Number ``i`` is of class ``i`` modulo the number of classes.
    """
    path = FOLDER / f"{entry.name}.png"
    if path.is_file():
        pixels = torch.from_numpy(np.array(Image.open(path)))
        rows: Tensor = pixels.unflatten(0, (PER_CLASS, -1)).unflatten(2, (10, -1))  # row, y, column, x
        return rows.movedim(2, 1).flatten(0, 1)[:, None].contiguous()
    try:
        found = dataset(entry.name, "test", download=False)
    except DataError:
        return None
    assert found.labels is not None
    firsts = [(found.labels == label).nonzero().flatten()[:PER_CLASS] for label in range(len(found.classes))]
    return found.images[torch.stack(firsts, 1).flatten()]


def sheet(pictures: Tensor) -> Image.Image:
    """Lay pictures of one channel out as ``samples`` reads them: a row per round, a column per class."""
    rows = pictures[:, 0].unflatten(0, (PER_CLASS, -1)).movedim(1, 2)
    return Image.fromarray(rows.flatten(2, 3).flatten(0, 1).numpy())
