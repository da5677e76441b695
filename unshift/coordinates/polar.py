"""Polar coordinates: a rotation is a shift of the angle axis.

The grid is the paper's (section 5.2) in ``d + 1`` dimensions, with ``0 < a < 1``::

    x(I) = image at (pi i_1/(n_1 - 1), ..., pi i_{d-1}/(n_{d-1} - 1), 2 pi i_d/n_d, R a^{i_{d+1}})

or with the linear radius ``R i/n``. One of its angles, the azimuth, covers the full circle. It is the only axis of the
canvas, and a rotation in its plane shifts it circularly. Radii, and a volume's angles to its axis, are *channels*. The
estimator, its training and its exact integers apply unchanged.

Convention
----------
Angles are degrees, **counter-clockwise** as seen by the viewer, as ``torch.rot90(x, 1, (2, 3))`` turns::

    rotate([[1, 2], [3, 4]], 90) == [[2, 4], [1, 3]]
    canvases(rotate(x, 90))[0] == apply(canvases(x)[0], angles / 4)

Azimuth 0 looks right. The centre is the middle of the image, ``((H - 1)/2, (H - 1)/2)``.

Quarter turns are exact, bit for bit. One quadrant of the grid is computed; the canvas samples *that* quadrant from the
image and from its three quarter turns. Each value is a fixed number of products and sums, so it does not depend on the
batch, the position or the number of threads. An angle is undone as whole quarter turns, which move pixels, and a rest
between -45 and 45 degrees, which is bilinear with zeros outside (:mod:`~unshift.coordinates.rotation`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unshift.coordinates.interface import check_count, check_finite_number
from unshift.coordinates.rotation import Rotating, corners, float_dtype, in_all_quarters, sampled
from unshift.network import ShiftEstimator, as_float
from unshift.shifts import check_images

ROTATIONS: dict[str, dict[str, Any]] = {
    "paper": {"grid": {"angles": 36, "radii": 36, "ratio": 0.92, "refine": False}, "channels": None},
    "dense": {"grid": {"angles": 48, "radii": 20, "ratio": None, "refine": True}, "channels": (32, 32, 1)},
}
"""The presets for rotations: the grid, and the widths of full-size filters (None: the paper's net)."""

LARGEST_GRID = 2**20  # largest number of points of a grid: larger ones are mistakes or damaged files

POLAR_ANGLES = 9  # default polar angles of a volume: from pole to pole in steps of 22.5 degrees


class Polar(Rotating):
    """Polar coordinates of square images, or spherical ones of cubic volumes about one of their axes.

    Images ``(batch, channel, size, size)`` have canvases ``(batch, 1, channel * radii, angles)``; volumes, with
    ``polar_angles``, ``(batch, 1, channel * polar_angles * radii, angles)``. Differentiable; uint8 is scaled to [0, 1].

    Args:
        size: Size of the images or volumes along each axis.
        angles: Number of azimuths, a multiple of 4.
        radii: Number of circles.
        radius: Radius of the outermost circle, in pixels. Default: half the size.
        ratio: Ratio of each radius to the one before, the paper's ``a``. None spaces radii evenly.
        refine: Interpolate the angle between grid positions, by the parabola through the highest score and those beside
            it.
        polar_angles: Number of a volume's angles from pole to pole; None for images.
        axis: The axis that a volume rotates about.

    Raises:
        ValueError: If the grid does not fit the images, or quarter turns do not fall on it.
    """

    index: Tensor

    def __init__(
        self,
        size: int,
        *,
        angles: int = 36,
        radii: int = 36,
        radius: float | None = None,
        ratio: float | None = 0.92,
        refine: bool = False,
        polar_angles: int | None = None,
        axis: int = 0,
    ) -> None:
        super().__init__(angles, refine, axis)
        check_count("size", size, 2)
        check_count("radii", radii, 1)
        if polar_angles is not None:
            check_count("polar_angles", polar_angles, 2)
        if angles * radii * (polar_angles or 1) > LARGEST_GRID:
            raise ValueError(f"the grid must have at most {LARGEST_GRID} points, got {angles} angles and {radii} radii")
        outer = check_finite_number("radius", size / 2 if radius is None else radius)
        if not 0 < outer <= size / 2:
            raise ValueError(f"radius must lie within the image: above 0, at most {size / 2:g}, got {radius}")
        if ratio is not None and not 0 < check_finite_number("ratio", ratio) < 1:
            raise ValueError(f"ratio must lie between 0 and 1, or be None for evenly spaced radii, got {ratio}")
        self.size = size
        self.spatial_axes = 2 if polar_angles is None else 3
        self._description: dict[str, Any] = {
            "size": size,
            "angles": angles,
            "radii": radii,
            "radius": outer,
            "ratio": ratio,
            "refine": refine,
            "polar_angles": polar_angles,
            "axis": axis,
        }
        lengths = [outer * (i / radii if ratio is None else ratio**i) for i in range(radii)]
        index, weight = _grid_samples(size, angles, lengths, polar_angles, axis)
        self.register_buffer("index", index, persistent=False)
        self._weights = weight  # a plain attribute, not a buffer: .half() would round it

    @property
    def channels(self) -> int:
        """Channels of the canvas per channel of the image."""
        return self.index.shape[1] // self.angles

    @classmethod
    def preset(cls, name: str, size: Sequence[int]) -> Polar:
        """Return the grid of preset ``"paper"`` or ``"dense"`` for square images or cubic volumes of this size."""
        if len(size) not in (2, 3) or len(set(size)) > 1:
            raise ValueError(f"rotations want square images or cubic volumes, got size {tuple(size)}")
        return cls(size[0], polar_angles=None if len(size) == 2 else POLAR_ANGLES, **_preset(name)["grid"])

    def describe(self) -> dict[str, Any]:
        return {"kind": "polar", **self._description}

    def check(self, images: Tensor) -> None:
        size, kind = check_images(images), "square images" if self.spatial_axes == 2 else "cubic volumes"
        if len(size) != self.spatial_axes or len(set(size)) > 1:
            raise ValueError(f"polar coordinates want {kind}, got shape {tuple(images.shape)}")
        if size[0] != self.size:
            raise ValueError(f"this polar grid was made for {kind} of size {self.size}, got {size[0]}; resize them")

    def canvases(self, images: Tensor) -> list[Tensor]:
        """See :class:`Coordinates`. The last axis is the azimuth."""
        self.check(images)
        flat = as_float(images, float_dtype(images.dtype)).flatten(2)
        return [sampled(flat, self.index, self._weights).unflatten(2, (-1, self.angles)).flatten(1, 2)]

    def network(self, preset: str, channels: int, size: tuple[int, ...]) -> ShiftEstimator:
        widths, inputs = _preset(preset)["channels"], channels * self.channels
        if widths is None:
            return ShiftEstimator.preset("paper", inputs, [self.angles])
        return ShiftEstimator(inputs, channels=widths, kernel_size=[self.angles], bias=True, size=[self.angles])

    def image_shape(
        self, channels: int | None, positions: tuple[int, ...] | None, size: tuple[int, ...] | None = None
    ) -> tuple[int | None, tuple[int, ...] | None]:
        return None if channels is None else channels // self.channels, (self.size,) * self.spatial_axes


def _preset(preset: str) -> dict[str, Any]:
    if preset not in ROTATIONS:
        raise ValueError(f"no preset {preset!r} for rotations; there are {', '.join(ROTATIONS)}")
    return ROTATIONS[preset]


def polar_points(
    polar_angles: Sequence[int], azimuth: Sequence[float], radii: Sequence[float]
) -> list[list[list[list[float]]]]:
    """Return the grid's Cartesian points, ``[point of the polar angles][radius][azimuth][d + 1]``.

    ``polar_angles`` are the numbers ``n_1, ..., n_{d-1}`` of angles from 0 to pi, ends included; empty for an image.
    The last two coordinates span the plane of rotation: right and up.

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


def _grid_samples(
    size: int, angles: int, radii: Sequence[float], polar_angles: int | None, axis: int
) -> tuple[Tensor, Tensor]:
    """Return the flat indices of the pixels that the grid samples and their float64 weights, each ``(corners,
    points)``.

    One quadrant of the grid is computed; the other three sample the quarter turns of the image with the same weights in
    the same order. So a quarter turn of the image shifts its canvas bit for bit. All ``radii`` are in pixels.
    """
    axes = 2 if polar_angles is None else 3
    quadrant = [2 * math.pi * i / angles for i in range(angles // 4)]
    points = polar_points(() if polar_angles is None else (polar_angles,), quadrant, radii)
    place = torch.tensor(points, dtype=torch.float64).flatten(0, 1)  # (channel, azimuth, axis)
    # Right is the column, up is minus the row; a volume's axis of rotation comes before them.
    place = torch.stack([*place.unbind(-1)[:-2], -place[..., -1], place[..., -2]], -1)
    index, weight = corners((size - 1) / 2 + place, size)
    numbers = torch.arange(size**axes).view([size] * axes)
    index, weight = in_all_quarters(index, weight, numbers if axes == 2 else numbers.movedim(axis, 0))
    return index.flatten(1), weight.flatten(1)
