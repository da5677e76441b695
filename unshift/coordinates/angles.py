"""Angles: rotations by any angle, scored copy by copy: one number for each of ``n`` angles; the highest wins.

Each copy is the image rotated back by one angle, inside its inscribed circle; outside it, every copy is zero. The
copies of the first quarter are sampled from the image, those of the others from its three quarter turns, with the same
weights in the same order. So a quarter turn of the image permutes the copies bit for bit. The angle is then refined and
undone once, from the original pixels, as in :mod:`~unshift.coordinates.rotation`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from unshift.coordinates.boxes import LARGEST_BOX, box_means
from unshift.coordinates.interface import check_count
from unshift.coordinates.rotation import Rotating, corners, float_dtype, in_all_quarters, sampled
from unshift.network import as_float
from unshift.shifts import check_images


class Angles(Rotating):
    """Rotations of square images by any angle, about their centre. The network is a ``PoseEstimator``.

    Args:
        size: Size of the images along each axis.
        angles: Number of copies, a multiple of 4.
        reduce: Copies are made of means of boxes of this many pixels along each axis.
        refine: Interpolate the angle between copies, by the parabola through the highest score and those beside it.

    Raises:
        ValueError: If the numbers do not fit.
    """

    whole = True
    index: Tensor

    def __init__(self, size: int, angles: int = 24, *, reduce: int = 1, refine: bool = True) -> None:
        super().__init__(angles, refine)
        self.size = check_count("size", size, 2)
        self.reduce = check_count("reduce", reduce, 1)
        if reduce > min(LARGEST_BOX, size // 2):
            raise ValueError(f"reduce must be at most {min(LARGEST_BOX, size // 2)} at size {size}, got {reduce}")
        self._side = box_means(torch.zeros(1, 1, size), reduce).shape[2]
        index, self._weights = _samples(self._side, angles)  # plain attribute, not a buffer: .half() would round it
        self.register_buffer("index", index, persistent=False)

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "angles",
            "size": self.size,
            "angles": self.angles,
            "reduce": self.reduce,
            "refine": self.refine,
        }

    def check(self, images: Tensor) -> None:
        if check_images(images) != (self.size, self.size):
            raise ValueError(f"these coordinates take square images of size {self.size}, got {tuple(images.shape)}")

    def canvases(self, images: Tensor) -> list[Tensor]:
        self.check(images)
        small = box_means(images, self.reduce)
        flat = as_float(small, float_dtype(images.dtype)).flatten(2)
        copies = sampled(flat, self.index, self._weights).unflatten(2, (self.angles, self._side, self._side))
        return list(copies.unbind(2))

    def image_shape(
        self, channels: int | None, positions: tuple[int, ...] | None, size: tuple[int, ...] | None = None
    ) -> tuple[int | None, tuple[int, ...] | None]:
        return channels, (self.size, self.size)


def _samples(side: int, angles: int) -> tuple[Tensor, Tensor]:
    """Return the pixels that the copies sample and their weights, each ``(4, angles * side * side)``."""
    along = torch.arange(side, dtype=torch.float64) - (side - 1) / 2
    right, up = along[None, :].expand(side, side), -along[:, None].expand(side, side)
    inside = (right.square() + up.square() <= (side / 2) ** 2).flatten()
    indices, weights = [], []
    for step in range(angles // 4):
        cos, sin = math.cos(2 * math.pi * step / angles), math.sin(2 * math.pi * step / angles)
        place = torch.stack([-(sin * right + cos * up), cos * right - sin * up], -1) + (side - 1) / 2
        index, weight = corners(place.flatten(0, 1), side)
        indices.append(index)
        weights.append(torch.where(inside, weight, 0.0))
    numbers = torch.arange(side * side).view(side, side)
    return in_all_quarters(torch.cat(indices, 1), torch.cat(weights, 1), numbers)
