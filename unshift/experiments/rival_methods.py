"""Other ways to make a frozen classifier care less where things are, all in one form.

A rival shows views of each image to a classifier, and answers with the mean of what it said (softmax). Nothing: one
view, the image. Test-time augmentation: several shifted ones. Whatever puts an image back first: one, put back.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from unshift import undo
from unshift.experiments.record import Style

__all__ = ["Rival", "centred", "correlated", "shifted_copies"]

Views = Callable[[Tensor], Iterator[Tensor]]
"""From a batch of images to what the classifier sees of it, one batch a view."""


def _as_they_are(images: Tensor) -> Iterator[Tensor]:
    yield images


@dataclass(frozen=True)
class Rival:
    """A way to classify images that may have moved."""

    name: str
    model: Callable[[Tensor], Tensor]
    views: Views = _as_they_are
    passes: int = 1
    parameters: int = 0
    """that it adds to the classifier"""
    labels: bool = False
    """whether it learns from labels"""
    retrained: bool = False
    """whether the classifier itself is trained for it"""
    training: dict[str, Any] = field(default_factory=dict)
    """what is known of its training"""
    count: int | None = None
    """how many of the images it is measured on, the first of them, where it takes too many passes for all"""
    style: Style = "plain"

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """Return the mean probabilities of a batch."""
        total = torch.zeros(())
        for view in self.views(images):
            total = total + self.model(view).softmax(1)
        return total / self.passes


def shifted_copies(reach: int) -> Views:
    """Return the views of test-time augmentation: all shifts of up to ``reach`` pixels along both axes."""

    def views(images: Tensor) -> Iterator[Tensor]:
        for shift in itertools.product(range(-reach, reach + 1), repeat=2):
            yield torch.roll(images, shift, (2, 3))

    return views


def circular_centre(images: Tensor) -> Tensor:
    """Return where the mass of each image lies on each axis, an angle ``(batch, 2)``: the axes go round."""
    mass = images.double().sum(1)
    angles = []
    for axis in (1, 2):
        line = torch.fft.fft(mass.sum(3 - axis))[:, 1]
        angles.append(-line.angle())
    return torch.stack(angles, 1)


def centred(mean: Tensor) -> Views:
    """Return views whose centre of mass lies where that of ``mean``, the mean training image, does: whole pixels."""
    target = circular_centre(mean[None])

    def views(images: Tensor) -> Iterator[Tensor]:
        size = torch.tensor(images.shape[2:])
        yield undo(images, ((circular_centre(images) - target) * size / (2 * torch.pi)).round().long())

    return views


def correlated(mean: Tensor, rule: Literal["cross", "phase"]) -> Views:
    """Return views that were shifted to where they look most like ``mean``, the mean training image.

    Args:
        mean: ``(channel, height, width)``.
        rule: Where the cross-correlation is highest, or that of the phases alone.
    """
    wanted = torch.fft.rfft2(mean.double())

    def views(images: Tensor) -> Iterator[Tensor]:
        product = (torch.fft.rfft2(images.double()) * wanted.conj()).sum(1)
        if rule == "phase":
            product = product / product.abs().clamp_min(1e-12)
        size = images.shape[2:]
        best = torch.fft.irfft2(product, s=tuple(size)).flatten(1).argmax(1)
        yield undo(images, torch.stack([best // size[1], best % size[1]], 1))

    return views
