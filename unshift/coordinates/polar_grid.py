"""The polar grid, and what it sees: which pixels, with which weights, make each of its values.

The grid is the paper's (section 5.2) in ``d + 1`` dimensions, with ``0 < a < 1``::

    x(I) = image at (pi i_1/(n_1 - 1), ..., pi i_{d-1}/(n_{d-1} - 1), 2 pi i_d/n_d, R a^{i_{d+1}})

or with the linear radius ``R i/n``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["grid_samples", "polar_points"]


def polar_points(
    polar_angles: Sequence[int], azimuth: Sequence[float], radii: Sequence[float]
) -> list[list[list[list[float]]]]:
    """Return the grid's Cartesian points, ``[point of the polar angles][radius][azimuth][d + 1]``.

    ``polar_angles`` are the numbers ``n_1, ..., n_{d-1}`` of angles from 0 to pi, ends included; none for an
    image. The last two coordinates span the plane of rotation: right, and up.

    >>> polar_points((), [0.0], [2.0])
    [[[[2.0, 0.0]]]]
    """
    steps = [[math.pi * i / (n - 1) for i in range(n)] for n in polar_angles]
    grid = []
    for angles in itertools.product(*steps):
        heads, rest = [], 1.0
        for angle in angles:
            heads.append(rest * math.cos(angle))
            rest *= math.sin(angle)
        unit = [[*heads, rest * math.cos(turn), rest * math.sin(turn)] for turn in azimuth]
        grid.append([[[radius * c for c in point] for point in unit] for radius in radii])
    return grid


def _corners(position: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return the flat indices and weights, each ``(2^m, ...)``, of the pixels around ``position`` ``(..., m)``.

    Positions count pixels from the first one's centre, all axes of length ``size``; what lies outside
    has weight 0.
    """
    low = position.floor()
    fraction = position - low
    indices, weights = [], []
    for corner in itertools.product((0, 1), repeat=position.shape[-1]):
        index = torch.zeros_like(low[..., 0], dtype=torch.int64)
        weight = torch.ones_like(low[..., 0])
        for axis, up in enumerate(corner):
            at = low[..., axis].long() + up
            share = fraction[..., axis] if up else 1 - fraction[..., axis]
            weight = weight * torch.where((at >= 0) & (at < size), share, 0.0)
            index = index * size + at.clamp(0, size - 1)
        indices.append(index)
        weights.append(weight)
    return torch.stack(indices), torch.stack(weights)


def grid_samples(
    size: int, *, angles: int, lengths: Sequence[float], polar_angles: int | None, axis: int
) -> tuple[Tensor, Tensor]:
    """Return which pixels the grid sees, and how much of each.

    One quadrant of the grid is computed; the other three see the quarter turns of the image with the same weights in
    the same order. So a quarter turn of the image shifts its canvas bit for bit.

    Args:
        size: Of the square images, or cubic volumes, along each axis.
        angles: Azimuths, a multiple of 4.
        lengths: The radii, in pixels.
        polar_angles: Of a volume, the angles from pole to pole; None for images.
        axis: Of a volume, the axis to turn about.

    Returns:
        Flat pixel indices and their float64 weights, each ``(corners, channels * angles)``: the value of a grid point
        is the sum over its corners.
    """
    axes = 2 if polar_angles is None else 3
    quadrant = [2 * math.pi * i / angles for i in range(angles // 4)]
    points = polar_points(() if polar_angles is None else (polar_angles,), quadrant, lengths)
    place = torch.tensor(points, dtype=torch.float64).flatten(0, 1)  # (channel, azimuth, axis)
    # Right is the column, up is minus the row; a volume's axis of rotation comes before them.
    place = torch.stack([*place.unbind(-1)[:-2], -place[..., -1], place[..., -2]], -1)
    index, weight = _corners((size - 1) / 2 + place, size)
    # What stands at azimuth t + 90 q in an image stands at t once it is turned back q quarters. So each
    # quadrant looks, with the same weights in the same order, at the pixels of the image so turned.
    numbers = torch.arange(size**axes).view([size] * axes)
    if axes == 3:
        numbers = numbers.movedim(axis, 0)
    turned = [torch.rot90(numbers, -quarter, (-2, -1)).flatten() for quarter in range(4)]
    return torch.cat([pixel[index] for pixel in turned], -1).flatten(1), weight.repeat(1, 1, 4).flatten(1)
