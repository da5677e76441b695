"""Rotating: the base of the kinds that undo rotations. Candidates are angles, a multiple of 4 of them."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from unshift.coordinates.interface import Coordinates, Labels, Pose, Posed, check_count
from unshift.coordinates.rotation import GRAIN, rotate_grains
from unshift.exact import Scores, largest


class Rotating(Coordinates):
    """Base class of kinds that undo rotations, quarter turns exactly.

    Args:
        angles: Number of candidates, a multiple of 4.
        refine: Interpolate the angle between candidates, by the parabola through the highest score and those beside it.
        axis: The axis that a volume rotates about.
    """

    def __init__(self, angles: int, refine: bool, axis: int = 0) -> None:
        super().__init__()
        check_count("angles", angles, 4)
        if angles % 4:
            raise ValueError(f"angles must be a multiple of 4, so that quarter turns are exact, got {angles}")
        if axis not in (0, 1, 2):
            raise ValueError(f"axis must be 0, 1 or 2, the volume's axis to rotate about, got {axis!r}")
        self.angles, self.refine, self.axis = angles, refine, axis
        # A plain attribute, not a buffer: .half() would round it.
        self._grains_per_step = torch.tensor(360 / angles * GRAIN, dtype=torch.float64)
        step = f"step of {360 / angles:g} degrees"
        self.labels = Labels("rotations, quarter turns exactly", frozenset({"angle"}), "degrees", step)

    @abstractmethod
    def check(self, images: Tensor) -> None:
        """Raise a ``ValueError`` if the images do not fit."""

    def order(self, images: Tensor, scores: Scores, highest: Tensor, tied: Tensor) -> Tensor:
        """See :class:`Coordinates`. Compare the restored images themselves."""
        peaks = scores.map().flatten(1)

        def restored(row: Tensor, candidate: Tensor) -> Tensor:
            angle = self._grains(candidate, peaks.index_select(0, row))
            return rotate_grains(images.index_select(0, row), -angle, self.axis)

        index = largest(restored, math.prod(images.shape[1:]), highest, tied)
        return (torch.arange(self.angles, device=index.device) == index[:, None]).to(torch.int64)

    def candidate(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        assert pose.angle is not None
        return (pose.angle * self.angles / 360).round().to(torch.int64) % self.angles

    def _grains(self, step: Tensor, scores: Tensor) -> Tensor:
        """Return the rotation of positions ``step`` given scores ``(batch, angles)``, int64 grains ``(batch,)``.

        With ``refine`` the angle is the vertex of the parabola through the scores at ``step`` and beside it.
        """
        quarter = self.angles // 4
        rest = (step % quarter).to(torch.float64)
        if self.refine:
            before, top, after = (
                scores.gather(1, ((step + side) % self.angles)[:, None])[:, 0].to(torch.float64)
                for side in (self.angles - 1, 0, 1)
            )
            bend = before - 2 * top + after  # integers: exact, and the same at every position
            rest = rest + torch.where(bend < 0, (before - after) / (2 * bend), 0.0)
        # Rounded before whole quarters are added, so that the sum is exact.
        grains = (rest * self._grains_per_step.to(rest.device)).round().to(torch.int64)
        grains = grains + 90 * GRAIN * (step // quarter)
        return torch.where(grains >= 180 * GRAIN, grains - 360 * GRAIN, grains)

    def pose(self, index: Tensor, scores: Scores, size: tuple[int, ...]) -> Pose:
        still = torch.zeros(index.shape[0], len(size), dtype=torch.int64, device=index.device)
        return Pose(still, angle=self._grains(index, scores.map().flatten(1)).to(torch.float64) / GRAIN)

    def undo(self, images: Tensor, pose: Posed) -> Tensor:
        return self._rotated(images, pose, -1)

    def redo(self, images: Tensor, pose: Posed, size: Sequence[int] | None = None) -> Tensor:
        """See :class:`Coordinates`. The inverse up to interpolation; exact for quarter turns."""
        self._check_no_scene(images, size)
        return self._rotated(images, pose, 1)

    def _rotated(self, images: Tensor, pose: Posed, sign: int) -> Tensor:
        self.check(images)
        assert pose.angle is not None
        return rotate_grains(images, sign * (pose.angle * GRAIN).round().to(torch.int64), self.axis)

    def draw(self, size: tuple[int, ...], count: int, scope: int | None, generator: torch.Generator) -> Pose:
        limit = 180 if scope is None else scope
        angle = (2 * torch.rand(count, dtype=torch.float64, generator=generator) - 1) * limit
        return Pose(torch.zeros(count, len(size), dtype=torch.int64), angle=angle)

    def moves(self, size: tuple[int, ...]) -> Pose:
        """See :class:`Coordinates`. Quarter turns; all other angles are interpolated."""
        return Pose(torch.zeros(4, len(size), dtype=torch.int64), angle=90.0 * torch.arange(4, dtype=torch.float64))

    def distance(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        """See :class:`Coordinates`. In steps of the angle grid."""
        assert pose.angle is not None
        around = torch.remainder(pose.angle + 180, 360) - 180
        return (around.abs() * self.angles / 360 - 0.5).ceil().clamp(min=0)  # up to half a step counts as 0


def corners(position: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return the flat indices and weights, each ``(2^m, ...)``, of the pixels around ``position`` ``(..., m)``.

    Positions count pixels from the centre of the first one. Pixels outside the image have weight 0.
    """
    low = position.floor()
    fraction = position - low
    indices, weights = [], []
    for corner in itertools.product((0, 1), repeat=position.shape[-1]):
        index = torch.zeros_like(low[..., 0], dtype=torch.int64)
        weight = torch.ones_like(low[..., 0])
        for axis, up in enumerate(corner):
            at = low[..., axis].to(torch.int64) + up
            share = fraction[..., axis] if up else 1 - fraction[..., axis]
            weight = weight * torch.where((at >= 0) & (at < size), share, 0.0)
            index = index * size + at.clamp(0, size - 1)
        indices.append(index)
        weights.append(weight)
    return torch.stack(indices), torch.stack(weights)


def sampled(flat: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """Sample pixels ``(batch, channel, n)`` with the results of :func:`corners`: a fixed order of products and sums."""
    weights = weights.to(flat)
    pixels = flat.flatten(0, 1).T.contiguous()  # pixels first: a sample copies one row, for all images
    total = pixels.index_select(0, index[0]) * weights[0][:, None]
    for corner in range(1, len(index)):
        total += pixels.index_select(0, index[corner]).mul_(weights[corner][:, None])
    result: Tensor = total.T.unflatten(0, flat.shape[:2])
    return result
