"""Ring: an array of which one axis goes round, as in panoramas, range images and anything unrolled."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from unshift.coordinates.canvas import circular_distance, draw_shifts
from unshift.coordinates.protocol import Coordinates, Pose, Posed
from unshift.estimator import ShiftEstimator
from unshift.shifts import apply, check_images

__all__ = ["KIND", "Ring"]


class Ring(nn.Module, Coordinates):
    """Arrays that are circular along one axis and never move along the others.

    On the canvas the other axes are channels: one circular position has all its pixels at once. So a network takes
    arrays of one extent along these axes, and of any length along the ring. The preset ``seam`` runs local filters over
    all axes first: on CIFAR-10's photos with their columns rolled, that finds 95.6% to the column where channels alone
    find 81.0% (``benchmarks/ring.py``). A shift has a zero for every other axis: ``unshift.undo`` takes it back.

    Args:
        axis: The circular spatial axis: 0 is the first after the channels, -1 the last.
    """

    unit = "pixels"
    step = "pixel"
    undoes = "circular shifts along one axis, exactly"
    reads = frozenset({"shift"})

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        if not isinstance(axis, int) or not -3 <= axis <= 2:
            raise ValueError(f"axis must be a spatial axis, 0 to 2, or -1 to -3 counted from the end, got {axis!r}")
        self.axis = axis

    def describe(self) -> dict[str, Any]:
        return {"kind": "ring", "axis": self.axis}

    def extra_repr(self) -> str:
        """Show the axis."""
        return f"axis={self.axis}"

    def _axis(self, axes: int) -> int:
        if not -axes <= self.axis < axes:
            raise ValueError(
                f"the ring goes along spatial axis {self.axis}, but these arrays have {axes}: 0 to {axes - 1}"
            )
        return self.axis % axes

    def _alone(self, ring: Tensor, axes: int) -> Tensor:
        """Return shifts ``(batch, d)`` that are ``ring`` ``(batch,)`` along the axis and 0 along the others."""
        zero = torch.zeros_like(ring)
        return torch.stack([ring if a == self._axis(axes) else zero for a in range(axes)], 1)

    def canvas(self, images: Tensor) -> Tensor:
        axis = self._axis(len(check_images(images)))
        return images.movedim(2 + axis, -1).flatten(1, -2)[:, None]

    def candidate(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        axis = self._axis(len(size))
        return pose.shift[:, axis] % size[axis]

    def pose(self, index: Tensor, scores: Tensor, size: tuple[int, ...]) -> Pose:
        return Pose(self._alone(index, len(size)))

    def draw(self, size: tuple[int, ...], count: int, scope: int | None, generator: torch.Generator) -> Pose:
        ring = draw_shifts((size[self._axis(len(size))],), count, scope, generator)[:, 0]
        return Pose(self._alone(ring, len(size)))

    def moves(self, size: tuple[int, ...]) -> Pose:
        return Pose(self._alone(torch.arange(size[self._axis(len(size))]), len(size)))

    def carry(self, scores: Tensor, pose: Posed) -> Tensor:
        return apply(scores, pose.shift[:, self._axis(pose.shift.shape[1]), None])

    def distance(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        return circular_distance(pose.shift, size)

    def network(self, preset: str, channels: int, size: tuple[int, ...]) -> ShiftEstimator:
        axis = self._axis(len(size))
        others = (*size[:axis], *size[axis + 1 :])
        return ShiftEstimator.preset(preset, channels * math.prod(others), [size[axis]], across=others)

    def image_channels(self, channels: int, size: tuple[int, ...]) -> int:
        return channels * size[self._axis(len(size))] // math.prod(size)

    def image_size(self, positions: tuple[int, ...] | None) -> tuple[int, ...] | None:
        return None


KIND = Ring
