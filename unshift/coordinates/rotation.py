"""Rotation of images about their centre, and what the kinds of pose that undo rotations share.

Whole quarter turns move pixels, the rest is bilinear. Angles are degrees, counter-clockwise. An estimated angle is a
whole number of *grains* of 1/1024 degree, so adding 90 degrees is exact. Graphs read cosines from a table, because
runtimes differ in theirs.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from unshift.coordinates.interface import Coordinates, Labels, Pose, Posed, check_count
from unshift.exact import Scores, in_graphs, largest
from unshift.shifts import check_images, movable, take, view_as

GRAIN = 1024
QUARTER = 90 * GRAIN

# Cosines and sines of all grains up to 45 degrees. Module constants, because a loop of a graph cannot create them.
COS, SIN = (
    torch.tensor([wave(math.radians(grains / GRAIN)) for grains in range(QUARTER // 2 + 1)], dtype=torch.float64)
    for wave in (math.cos, math.sin)
)


def rotate(images: Tensor, degrees: Tensor | float, *, axis: int = 0) -> Tensor:
    """Rotate each image counter-clockwise by its own angle, about its centre; the dtype stays.

    >>> rotate(torch.tensor([[[[1, 2], [3, 4]]]]), 90)
    tensor([[[[2, 4],
              [1, 3]]]])

    Args:
        images: Square images, or volumes, which are rotated slice by slice.
        degrees: One number, or ``(batch,)``. Multiples of 90 move pixels and are exact; other angles are interpolated
            bilinearly, with zeros outside.
        axis: The axis that volumes rotate about.
    """
    check_images(images)
    angles = torch.as_tensor(degrees, dtype=torch.float64, device=images.device).detach()
    if angles.ndim > 1 or (angles.ndim == 1 and len(angles) != len(images)) or not torch.isfinite(angles).all():
        raise ValueError(
            f"degrees must be one finite number, or one per image ({len(images)}), got shape {tuple(angles.shape)}"
        )
    angles = angles.expand(len(images))
    rest = torch.remainder(angles + 45, 90) - 45
    quarters = ((angles - rest) / 90).round().to(torch.int64) % 4
    # One by one: a vectorised kernel may round differently at the end of a batch.
    radians = [math.radians(value) for value in rest.tolist()]
    cos, sin = (
        torch.tensor([wave(r) for r in radians], dtype=torch.float64, device=images.device)
        for wave in (math.cos, math.sin)
    )
    turned, side = _quarter_turns(images, quarters, axis)
    # Blocks bound the memory. Pixels are computed independently, so blocks do not change the result.
    block = max(1, 2**17 // math.prod(images.shape[1:]))
    for rows in (rest != 0).nonzero().flatten().split(block):
        if len(rows):
            pixels = view_as(movable(turned)[rows], images.dtype)
            pixels = pixels.to(float_dtype(images.dtype))
            rotated = _interpolate(pixels, cos[rows], sin[rows], side)
            rotated = rotated if images.is_floating_point() else rotated.round()
            movable(turned)[rows] = movable(rotated.to(images.dtype))
    return _unflatten(turned, images, axis)


def _rotate_grains_in_graph(images: Tensor, grains: Tensor, axis: int = 0) -> Tensor:
    rest = (grains + QUARTER // 2) % QUARTER - QUARTER // 2
    quarters = torch.div(grains - rest, QUARTER, rounding_mode="floor") % 4
    cos, sin = COS[rest.abs()], SIN[rest.abs()] * rest.sign()
    turned, side = _quarter_turns(images, quarters, axis)
    # A gather instead of torch.where, which in ONNX Runtime turns -0.0 into 0.0.
    both = torch.cat([turned, _interpolate(turned, cos, sin, side)], 2)
    chosen = torch.arange(side**2) + side**2 * (rest != 0).to(torch.int64)[:, None]
    return _unflatten(both.gather(2, chosen[:, None].expand(-1, turned.shape[1], -1)), images, axis)


@in_graphs(_rotate_grains_in_graph)
def rotate_grains(images: Tensor, grains: Tensor, axis: int = 0) -> Tensor:
    """Rotate each image by a whole number of grains ``(batch,)``."""
    return rotate(images, grains.to(torch.float64) / GRAIN, axis=axis)


def _quarter_turns(images: Tensor, quarters: Tensor, axis: int) -> tuple[Tensor, int]:
    """Turn each image by its own number of quarters; return ``(batch, slices, side * side)`` and the side."""
    volumes = images.movedim(2 + axis, 2) if images.ndim == 5 else images
    height, width = volumes.shape[-2:]
    if height != width or images.ndim == 3:
        raise ValueError(f"rotate wants square images, so that a quarter turn fits, got shape {tuple(images.shape)}")
    flat = volumes.flatten(1, -3).flatten(2)
    pixels = torch.arange(height * width, device=images.device).view(height, width)
    tables = torch.stack([torch.rot90(pixels, quarter, (0, 1)).flatten() for quarter in range(4)])
    return take(flat, tables[quarters][:, None].expand(-1, flat.shape[1], -1)), height


def _unflatten(flat: Tensor, images: Tensor, axis: int) -> Tensor:
    """Return the result of :func:`_quarter_turns` in the shape of ``images``."""
    if images.ndim == 4:
        return flat.reshape(images.shape)
    return flat.reshape(images.movedim(2 + axis, 2).shape).movedim(2, 2 + axis)


def float_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which pixels are interpolated: float64 for float64 and 64-bit integers, else float32."""
    return torch.float64 if dtype.itemsize == 8 else torch.float32


def _interpolate(flat: Tensor, cos: Tensor, sin: Tensor, size: int) -> Tensor:
    """Rotate images ``(batch, channel, size * size)`` by angles whose ``cos`` and ``sin`` are given, bilinearly."""
    cos, sin = cos.view(-1, 1, 1), sin.view(-1, 1, 1)
    middle = (size - 1) / 2
    along = torch.arange(size, dtype=torch.float64, device=flat.device) - middle
    right, up = along[None, None, :], -along[None, :, None]
    # Pad with zeros: one pixel, and one more for the right neighbour. Clamp positions further out to this margin.
    row = ((right * sin - up * cos) + (middle + 1)).flatten(1).clamp(0, size + 1)
    column = ((right * cos + up * sin) + (middle + 1)).flatten(1).clamp(0, size + 1)
    wide = F.pad(flat.unflatten(2, (size, size)), (1, 2, 1, 2)).flatten(2)
    top, left = row.floor(), column.floor()
    lower, further = ((row - top).to(flat.dtype)[:, None], (column - left).to(flat.dtype)[:, None])
    upper, nearer = 1 - lower, 1 - further
    first = (top.to(torch.int64) * (size + 3) + left.to(torch.int64))[:, None].expand(-1, flat.shape[1], -1)
    above = wide.gather(2, first) * nearer + wide.gather(2, first + 1) * further
    below = wide.gather(2, first + (size + 3)) * nearer + wide.gather(2, first + (size + 4)) * further
    return above * upper + below * lower


class Rotating(Coordinates):
    """Base class of kinds that undo rotations, quarter turns exactly.

    There are ``angles`` candidates, a multiple of 4. With ``refine``, the angle is interpolated between them, by the
    parabola through the highest score and those beside it. Volumes rotate about ``axis``.
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
        # Round before adding whole quarters, so that the sum is exact.
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


def in_all_quarters(index: Tensor, weight: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Extend samples of the first quarter to all four along the last axis; ``numbers`` are the indices of the pixels.

    Angle t + 90 q of an image is angle t of the image turned back by q quarters: the same weights in the same order.
    """
    turned = [torch.rot90(numbers, -quarter, (-2, -1)).flatten() for quarter in range(4)]
    return torch.cat([pixel[index] for pixel in turned], -1), torch.cat([weight] * 4, -1)


def sampled(flat: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """Sample pixels ``(batch, channel, n)`` with the results of :func:`corners`: a fixed order of products and sums."""
    weights = weights.to(flat)
    pixels = flat.flatten(0, 1).T.contiguous()  # pixels first: a sample copies one row, for all images
    total = pixels.index_select(0, index[0]) * weights[0][:, None]
    for corner in range(1, len(index)):
        total += pixels.index_select(0, index[corner]).mul_(weights[corner][:, None])
    result: Tensor = total.T.unflatten(0, flat.shape[:2])
    return result
