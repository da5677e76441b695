"""Ring: an array with one circular axis, such as a panorama, a range image or an unrolled surface."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from unshift.coordinates.interface import Coordinates, Labels, Pose, Posed
from unshift.coordinates.shifts import draw_shifts
from unshift.exact import Scores
from unshift.network import ShiftEstimator
from unshift.shifts import check_images


class Ring(Coordinates):
    """Arrays that are circular along one axis and never move along the others.

    On the canvas the other axes become channels, so each position along the ring holds all pixels across it. A network
    takes arrays of one size along the other axes and of any length along the ring. The preset ``seam`` first runs local
    filters over all axes. Estimated shifts are 0 along the other axes, so ``unshift.undo`` undoes them too.

    Args:
        axis: The circular spatial axis: 0 is the first after the channels, -1 the last.
    """

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        if not isinstance(axis, int) or not -3 <= axis <= 2:
            raise ValueError(f"axis must be a spatial axis, 0 to 2, or -1 to -3 counted from the end, got {axis!r}")
        self.axis = axis
        self.labels = Labels("circular shifts along one axis")

    def describe(self) -> dict[str, Any]:
        return {"kind": "ring", "axis": self.axis}

    def _axis(self, axes: int) -> int:
        if not -axes <= self.axis < axes:
            raise ValueError(f"the ring runs along spatial axis {self.axis}, but these arrays have {axes} axes")
        return self.axis % axes

    def _pose(self, ring: Tensor, axes: int) -> Pose:
        """Return shifts that are ``ring`` ``(batch,)`` along the axis and 0 along the others."""
        zero = torch.zeros_like(ring)
        return Pose(torch.stack([ring if a == self._axis(axes) else zero for a in range(axes)], 1))

    def canvases(self, images: Tensor) -> list[Tensor]:
        axis = self._axis(len(check_images(images)))
        return [images.movedim(2 + axis, -1).flatten(1, -2)]

    def candidate(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        axis = self._axis(len(size))
        return pose.shift[:, axis] % size[axis]

    def pose(self, index: Tensor, scores: Scores, size: tuple[int, ...]) -> Pose:
        return self._pose(index, len(size))

    def draw(self, size: tuple[int, ...], count: int, scope: int | None, generator: torch.Generator) -> Pose:
        return self._pose(draw_shifts((size[self._axis(len(size))],), count, scope, generator)[:, 0], len(size))

    def moves(self, size: tuple[int, ...]) -> Pose:
        return self._pose(torch.arange(size[self._axis(len(size))]), len(size))

    def network(self, preset: str, channels: int, size: tuple[int, ...]) -> ShiftEstimator:
        axis = self._axis(len(size))
        others = (*size[:axis], *size[axis + 1 :])
        return ShiftEstimator.preset(preset, channels * math.prod(others), [size[axis]], across=others)

    def image_shape(
        self, channels: int | None, positions: tuple[int, ...] | None, size: tuple[int, ...] | None = None
    ) -> tuple[int | None, tuple[int, ...] | None]:
        if channels is None or size is None:
            return None, size
        return channels * size[self._axis(len(size))] // math.prod(size), size
