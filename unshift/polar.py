"""Polar coordinates: a rotation is a shift of the angle axis.

The paper's grid (section 5.2) in ``d + 1`` dimensions, with ``0 < a < 1``::

    x(I) = image at (pi i_1/(n_1 - 1), ..., pi i_{d-1}/(n_{d-1} - 1), 2 pi i_d/n_d, R a^{i_{d+1}})

or with the linear radius ``R i/n``. Of its angles one goes all the way round, the azimuth: it is the one
axis of the canvas, and a rotation in its plane shifts it circularly. Radii, and a volume's angles to its
axis, are *channels*. The estimator, its training and its exact integers then work as they are.

Convention
----------
Angles are degrees, **counter-clockwise** as one looks at the image, as ``torch.rot90(x, 1, (2, 3))`` turns::

    rotate([[1, 2], [3, 4]], 90) == [[2, 4], [1, 3]]
    polar(rotate(x, 90)) == apply(polar(x), angles / 4)

Azimuth 0 looks right. The centre is the middle of the image, ``((H - 1)/2, (H - 1)/2)``.

Quarter turns are exact, bit for bit. One quadrant of the grid is computed, and the canvas is what *that*
quadrant shows of the image and of its three quarter turns; each value is a fixed number of products and
sums, so no batch, position or thread shows in it. An angle is undone as whole quarter turns (which move
pixels) and a rest between -45 and 45 degrees (bilinear, zero outside; a rest of 0 touches nothing).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unshift.estimator import ShiftEstimator, as_float
from unshift.exact import ordered_bits
from unshift.shifts import check_images

__all__ = ["ROTATIONS", "Polar", "polar_points", "rotate", "rotation_grid", "rotation_network"]

ROTATIONS: dict[str, dict[str, Any]] = {
    "paper": {"grid": {"angles": 36, "radii": 36, "ratio": 0.92, "refine": False}, "channels": None},
    "dense": {"grid": {"angles": 48, "radii": 20, "ratio": None, "refine": True}, "channels": (32, 32, 1)},
}
"""The presets of ``fit(kind="rotation")``: the grid, and the widths of full-size filters (None: the paper's net)."""

POLAR_ANGLES = 9  # of a volume, unless told: from one pole to the other in steps of 22.5 degrees
GRAIN = 1024  # angles are multiples of 1/1024 degree: adding 90 to one, or taking it away, is exact


# --- the grid -------------------------------------------------------------------------------------


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


class Polar(nn.Module):
    """Polar coordinates of square images, or spherical ones of cubic volumes about one of their axes.

    ``forward`` takes images ``(batch, channel, size, size)`` to canvases ``(batch, channel * radii, angles)``;
    volumes, with ``polar_angles``, to ``(batch, channel * polar_angles * radii, angles)``. ``radius`` is R in
    pixels, half the image's size unless given; ``ratio`` is the paper's ``a``, and ``None`` spaces radii evenly.
    ``refine`` reads the angle between grid positions, off the parabola through the scores about the highest.
    Differentiable; uint8 is scaled to [0, 1].
    """

    index: Tensor
    weight_bits: Tensor

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
        super().__init__()
        outer = size / 2 if radius is None else radius
        if angles < 4 or angles % 4:
            raise ValueError(
                f"angles must be a multiple of 4, so that quarter turns fall on the grid and are exact, got {angles}"
            )
        if size < 2 or radii < 1:
            raise ValueError(f"size must be 2 or more pixels and radii 1 or more, got {size} and {radii}")
        if not 0 < outer <= size / 2:
            raise ValueError(
                f"radius must be positive and within the image: at most {size / 2:g} for size {size}, got {radius}"
            )
        if ratio is not None and not 0 < ratio < 1:
            raise ValueError(f"ratio must lie between 0 and 1, or be None for evenly spaced radii, got {ratio}")
        if polar_angles is not None and polar_angles < 2:
            raise ValueError(f"polar_angles must be 2 or more, from pole to pole, got {polar_angles}")
        if axis not in (0, 1, 2):
            raise ValueError(f"axis must be 0, 1 or 2, the volume's axis to turn about, got {axis}")
        self.size, self.angles, self.refine, self.axis = size, angles, refine, axis
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
        quadrant = [2 * math.pi * i / angles for i in range(angles // 4)]
        points = polar_points(() if polar_angles is None else (polar_angles,), quadrant, lengths)
        place = torch.tensor(points, dtype=torch.float64).flatten(0, 1)  # (channel, azimuth, axis)
        # Right is the column, up is minus the row; a volume's axis of rotation comes before them.
        place = torch.stack([*place.unbind(-1)[:-2], -place[..., -1], place[..., -2]], -1)
        index, weight = _corners((size - 1) / 2 + place, size)
        # What stands at azimuth t + 90 q in an image stands at t once it is turned back q quarters. So each
        # quadrant looks, with the same weights in the same order, at the pixels of the image so turned.
        numbers = torch.arange(size**self.spatial_axes).view([size] * self.spatial_axes)
        if self.spatial_axes == 3:
            numbers = numbers.movedim(axis, 0)
        turned = [torch.rot90(numbers, -quarter, (-2, -1)).flatten() for quarter in range(4)]
        self.register_buffer("index", torch.cat([pixel[index] for pixel in turned], -1).flatten(1), persistent=False)
        # As integers, which Module.half() leaves alone.
        bits = weight.repeat(1, 1, 4).flatten(1).view(torch.int64)
        self.register_buffer("weight_bits", bits, persistent=False)

    @property
    def channels(self) -> int:
        """Channels of the canvas per channel of the image."""
        return self.index.shape[1] // self.angles

    def describe(self) -> dict[str, Any]:
        """Return the coordinates as plain data, for the weights file."""
        return {"kind": "polar", **self._description}

    def extra_repr(self) -> str:
        """Show the grid."""
        return ", ".join(f"{key}={value}" for key, value in self._description.items())

    def forward(self, images: Tensor) -> Tensor:
        """Sample ``images`` on the grid: a canvas whose last axis is the azimuth."""
        self._check(images)
        flat = as_float(images, torch.promote_types(images.dtype, torch.float32)).flatten(2)
        weight = self.weight_bits.view(torch.float64).to(flat.dtype)
        total = flat.index_select(2, self.index[0]) * weight[0]
        for index, share in zip(self.index[1:], weight[1:], strict=True):
            total = total + flat.index_select(2, index) * share
        return total.unflatten(2, (-1, self.angles)).flatten(1, 2)

    def _check(self, images: Tensor) -> None:
        found = check_images(images)
        what = "square images" if self.spatial_axes == 2 else "cubic volumes"
        if len(found) != self.spatial_axes or len(set(found)) > 1:
            raise ValueError(
                f"polar coordinates want {what}, so that a quarter turn fits, got shape {tuple(images.shape)}"
            )
        if found[0] != self.size:
            raise ValueError(f"this polar grid was made for {what} of size {self.size}, got {found[0]}: resize them")

    # --- what was read, and how to undo it --------------------------------------------------------

    def angle(self, shift: Tensor, scores: Tensor | None = None) -> Tensor:
        """Return the rotation that was applied, float64 degrees ``(batch,)`` in [-180, 180).

        ``shift`` counts whole grid steps. With ``refine`` and the ``scores`` it was read from, the angle lies
        where the parabola through the three scores about it is highest.
        """
        step = shift[:, 0].long() % self.angles
        quarter = self.angles // 4
        rest = (step % quarter).double()
        if self.refine and scores is not None and len(scores):
            before, top, after = (
                scores.gather(1, ((step + side) % self.angles)[:, None])[:, 0].double() for side in (-1, 0, 1)
            )
            bend = before - 2 * top + after  # of integers: exact, and the same wherever the peak stands
            rest = rest + torch.where(bend < 0, (before - after) / (2 * bend), 0.0)
        # Rounded before whole quarters are added: what follows is then exact.
        degrees = (rest * (360 / self.angles * GRAIN)).round() / GRAIN + 90 * (step // quarter).double()
        return torch.where(degrees >= 180, degrees - 360, degrees)

    def undo(self, images: Tensor, shift: Tensor, angle: Tensor | None = None) -> Tensor:
        """Rotate ``images`` back by ``shift`` grid steps, or by ``angle`` degrees where it is given."""
        self._check(images)
        return rotate(images, -(self.angle(shift) if angle is None else angle), axis=self.axis)

    def prefer(self, image: Tensor, scores: Tensor, candidates: Tensor) -> int:
        """Return which of the tied ``candidates`` (steps) restores to the largest *image*.

        Their canvases are one and the same; the images may still differ, where the grid does not look.
        """
        shift = candidates[:, None]
        count = len(candidates)
        angle = self.angle(shift, scores.expand(count, *scores.shape))
        keys = ordered_bits(self.undo(image.expand(count, *image.shape), shift, angle)).flatten(1)
        best = 0
        for other in range(1, count):
            different = (keys[other] != keys[best]).nonzero()
            if len(different) and keys[other, different[0]] > keys[best, different[0]]:
                best = other
        return best


# --- rotation of the image itself -----------------------------------------------------------------


def rotate(images: Tensor, degrees: Tensor | float, *, axis: int = 0) -> Tensor:
    """Rotate each image counter-clockwise by its own angle, about its centre; the dtype stays.

    ``degrees`` is one number or ``(batch,)``. Multiples of 90 move pixels and are exact; what is left is
    bilinear, with zeros from outside. Volumes turn about their spatial ``axis``, slice by slice. The two
    axes that turn must be of one length.

    >>> rotate(torch.tensor([[[[1, 2], [3, 4]]]]), 90)
    tensor([[[[2, 4],
              [1, 3]]]])
    """
    size = check_images(images)
    if len(size) == 3:
        upright = images.movedim(2 + axis, 2)
        turned = rotate(upright.flatten(1, 2), degrees)
        return turned.unflatten(1, tuple(upright.shape[1:3])).movedim(2, 2 + axis)
    if len(size) != 2 or size[0] != size[1]:
        raise ValueError(f"rotate wants square images, so that a quarter turn fits, got shape {tuple(images.shape)}")
    wanted = torch.as_tensor(degrees, dtype=torch.float64, device=images.device).detach()
    if wanted.ndim > 1 or (wanted.ndim == 1 and len(wanted) != len(images)) or not torch.isfinite(wanted).all():
        raise ValueError(
            f"degrees must be one finite number, or one per image ({len(images)}), got shape {tuple(wanted.shape)}"
        )
    wanted = wanted.expand(len(images))
    rest = torch.remainder(wanted + 45, 90) - 45
    quarters = ((wanted - rest) / 90).round().long() % 4
    turned = images.clone()
    for quarter in range(1, 4):
        rows = (quarters == quarter).nonzero().flatten()
        if len(rows):
            turned[rows] = torch.rot90(images[rows], quarter, (2, 3))
    # In parts, for memory; every pixel is computed by itself, so the parts do not show.
    part = max(1, 2**17 // math.prod(images.shape[1:]))
    for rows in (rest != 0).nonzero().flatten().split(part):
        if len(rows):
            turned[rows] = _interpolate(turned[rows], rest[rows])
    return turned


def _interpolate(images: Tensor, degrees: Tensor) -> Tensor:
    """Rotate by ``degrees``, bilinearly."""
    size = images.shape[-1]
    # cos and sin one by one: a vectorised kernel may round differently at the end of a batch.
    radians = [math.radians(value) for value in degrees.tolist()]
    cos = torch.tensor([math.cos(r) for r in radians], dtype=torch.float64, device=images.device).view(-1, 1, 1)
    sin = torch.tensor([math.sin(r) for r in radians], dtype=torch.float64, device=images.device).view(-1, 1, 1)
    middle = (size - 1) / 2
    along = torch.arange(size, dtype=torch.float64, device=images.device) - middle
    right, up = along[None, None, :], -along[None, :, None]
    # On a margin of zeros (one pixel, and one more to look at beyond it), where all that is outside is sent.
    row = (middle + 1 + (right * sin - up * cos)).flatten(1).clamp(0, size + 1)
    column = (middle + 1 + (right * cos + up * sin)).flatten(1).clamp(0, size + 1)
    wide = torch.promote_types(images.dtype, torch.float32)
    flat = F.pad(images.to(wide), (1, 2, 1, 2)).flatten(2)
    top, left = row.floor(), column.floor()
    lower, further = ((value - whole).to(wide)[:, None] for value, whole in ((row, top), (column, left)))
    upper, nearer = 1 - lower, 1 - further
    first = (top.long() * (size + 3) + left.long())[:, None].expand(-1, flat.shape[1], -1)
    above = flat.gather(2, first) * nearer + flat.gather(2, first + 1) * further
    below = flat.gather(2, first + (size + 3)) * nearer + flat.gather(2, first + (size + 4)) * further
    total = above * upper + below * lower
    if not images.is_floating_point():
        total = total.round()
    return total.to(images.dtype).view_as(images)


# --- presets --------------------------------------------------------------------------------------


def rotation_grid(preset: str, size: Sequence[int]) -> Polar:
    """Return the grid of preset ``"paper"`` or ``"dense"`` for square images or cubic volumes of this size."""
    if len(size) not in (2, 3) or len(set(size)) > 1:
        raise ValueError(f"rotations want square images or cubic volumes, got size {tuple(size)}")
    grid = _rotation(preset)["grid"]
    return Polar(size[0], polar_angles=None if len(size) == 2 else POLAR_ANGLES, **grid)


def rotation_network(preset: str, channels: int, angles: int) -> ShiftEstimator:
    """Return the network of preset ``"paper"`` or ``"dense"`` for canvases ``(batch, channels, angles)``."""
    widths = _rotation(preset)["channels"]
    if widths is None:
        return ShiftEstimator.preset("paper", channels, [angles])
    return ShiftEstimator(channels, channels=widths, kernel_size=[angles], bias=True, size=[angles])


def _rotation(preset: str) -> dict[str, Any]:
    if preset not in ROTATIONS:
        raise ValueError(f"no preset {preset!r} for rotations; there are {', '.join(ROTATIONS)}")
    return ROTATIONS[preset]
