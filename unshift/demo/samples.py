"""The sample images of the page: of each dataset the first five of every class in its test set.

The package holds those of MNIST, and those of Fashion-MNIST as ``samples/fashion-mnist.png`` with one class per column
(MIT; see ``LICENSE-FASHION-MNIST`` beside it). CIFAR-10 has no stated licence, so its images are read from the data
folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from unshift.data import DataError, dataset

__all__ = ["CHOICES", "PER_CLASS", "Choice", "samples"]

PER_CLASS = 5
FOLDER = Path(__file__).with_name("samples")


@dataclass(frozen=True)
class Choice:
    """A dataset on the page, with its restorers and its classifier."""

    name: str
    title: str
    noun: str
    restorer: str
    classifier: str
    rotation: str | None = None
    """restorer of rotations, for images of its own size"""
    pose: str | None = None
    """restorer of shifts and rotations together, for the images of ``restorer``"""
    scene: str | None = None
    """restorer of scenes, which cuts out the images of ``restorer``"""
    drawn: bool = False
    """whether visitors can draw an image"""


CHOICES = (
    Choice(
        "mnist", "Digits", "digit", "mnist", "lenet5-mnist", "mnist-rotation", "mnist-pose", "mnist-scene", drawn=True
    ),
    Choice("fashion-mnist", "Clothes", "garment", "fashion-mnist", "lenet5-fashion-mnist"),
    Choice("cifar10", "Photos", "photo", "cifar10-seam", "resnet20-cifar10-plain"),
)
"""The datasets that the page can offer. It offers those whose images are present."""


def samples(choice: Choice) -> Tensor | None:
    """Return the images of a choice, ``uint8`` ``(n, c, h, w)``, or None if they are not in the data folder.

    Image ``i`` is of class ``i`` modulo the number of classes.
    """
    path = FOLDER / f"{choice.name}.png"
    if path.is_file():
        pixels = torch.from_numpy(np.array(Image.open(path)))
        rows: Tensor = pixels.unflatten(0, (PER_CLASS, -1)).unflatten(2, (10, -1))  # row, y, column, x
        return rows.movedim(2, 1).flatten(0, 1)[:, None].contiguous()
    try:
        test_set = dataset(choice.name, "test", download=False)
    except DataError:
        return None
    assert test_set.labels is not None
    firsts = [(test_set.labels == label).nonzero().flatten()[:PER_CLASS] for label in range(len(test_set.classes))]
    chosen: Tensor = test_set.images[torch.stack(firsts, 1).flatten()]
    return chosen
