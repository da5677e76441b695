"""Polar coordinates: a rotation is a shift of the angle axis.

One angle of the paper's grid (:mod:`~unshift.coordinates.polar_grid`) goes all the way round: the azimuth. It is the
one axis of the canvas, and a rotation in its plane shifts it circularly. Radii, and a volume's angles to its
axis, are *channels*. The estimator, its training and its exact integers then work as they are.

Convention
----------
Angles are degrees, **counter-clockwise** as one looks at the image, as ``torch.rot90(x, 1, (2, 3))`` turns::

    rotate([[1, 2], [3, 4]], 90) == [[2, 4], [1, 3]]
    canvas(rotate(x, 90)) == apply(canvas(x), angles / 4)

Azimuth 0 looks right. The centre is the middle of the image, ``((H - 1)/2, (H - 1)/2)``.

Quarter turns are exact, bit for bit. One quadrant of the grid is computed, and the canvas is what *that*
quadrant shows of the image and of its three quarter turns; each value is a fixed number of products and
sums, so no batch, position or thread shows in it. An angle is undone as whole quarter turns (which move
pixels) and a rest between -45 and 45 degrees (bilinear, zero outside; a rest of 0 touches nothing:
:mod:`~unshift.coordinates.rotation`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from unshift.coordinates.polar_grid import grid_samples
from unshift.coordinates.protocol import Coordinates, Pose, Posed
from unshift.coordinates.rotation import GRAIN, rotate, rotate_grains
from unshift.estimator import ShiftEstimator, as_float
from unshift.exact import is_traced, largest_of, restored_keys
from unshift.shifts import apply, check_images

__all__ = ["KIND", "ROTATIONS", "Polar"]

ROTATIONS: dict[str, dict[str, Any]] = {
    "paper": {"grid": {"angles": 36, "radii": 36, "ratio": 0.92, "refine": False}, "channels": None},
    "dense": {"grid": {"angles": 48, "radii": 20, "ratio": None, "refine": True}, "channels": (32, 32, 1)},
}
"""The presets for rotations: the grid, and the widths of full-size filters (None: the paper's net)."""

POLAR_ANGLES = 9  # of a volume, unless told: from one pole to the other in steps of 22.5 degrees


class Polar(nn.Module, Coordinates):
    """Polar coordinates of square images, or spherical ones of cubic volumes about one of their axes.

    Images ``(batch, channel, size, size)`` have canvases ``(batch, 1, channel * radii, angles)``; volumes, with
    ``polar_angles``, ``(batch, 1, channel * polar_angles * radii, angles)``. Differentiable; uint8 is scaled to [0, 1].

    Args:
        size: Of the images or volumes, along each axis.
        angles: Steps of the full circle, a multiple of 4.
        radii: Circles of the grid.
        radius: Of the outermost circle, in pixels. Default: half the size.
        ratio: Of each radius to the one before, the paper's ``a``. None spaces radii evenly.
        refine: Read the angle between grid positions, off the parabola through the scores about the highest.
        polar_angles: Of a volume, the angles from pole to pole; None for images.
        axis: Of a volume, the axis to turn about.

    Raises:
        ValueError: If the grid does not fit the images, or quarter turns do not fall on it.
    """

    unit = "degrees"
    undoes = "rotations, quarter turns exactly"
    reads = frozenset({"angle"})
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
        index, weight = grid_samples(size, angles=angles, lengths=lengths, polar_angles=polar_angles, axis=axis)
        self.register_buffer("index", index, persistent=False)
        # As integers, which Module.half() leaves alone.
        self.register_buffer("weight_bits", weight.view(torch.int64), persistent=False)
        self.step = f"step of {360 / angles:g} degrees"
        # Made here: a loop of a graph cannot hold numbers made inside it, and a plain one would be rounded to float32.
        self._grains_a_step = torch.tensor(360 / angles * GRAIN, dtype=torch.float64)
        self._kept: dict[torch.dtype, tuple[Tensor, Tensor]] = {}
        self._weights(torch.float32)

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

    def extra_repr(self) -> str:
        """Show the grid."""
        return ", ".join(f"{key}={value}" for key, value in self._description.items())

    def _check(self, images: Tensor) -> None:
        found = check_images(images)
        what = "square images" if self.spatial_axes == 2 else "cubic volumes"
        if len(found) != self.spatial_axes or len(set(found)) > 1:
            raise ValueError(
                f"polar coordinates want {what}, so that a quarter turn fits, got shape {tuple(images.shape)}"
            )
        if found[0] != self.size:
            raise ValueError(f"this polar grid was made for {what} of size {self.size}, got {found[0]}: resize them")

    # --- what the network sees, and what its answer means ---

    def canvas(self, images: Tensor) -> Tensor:
        """See :class:`Coordinates`. Its last axis is the azimuth."""
        self._check(images)
        kind = images.dtype
        if kind.itemsize < 4 or not kind.is_floating_point:  # promoted by hand: not all small types know how
            kind = torch.float64 if kind in (torch.int64, torch.uint64) else torch.float32
        flat = as_float(images, kind).flatten(2)
        weight = self._weights(kind)
        total = flat.index_select(2, self.index[0]) * weight[0]
        for corner in range(1, len(self.index)):
            total = total + flat.index_select(2, self.index[corner]) * weight[corner]
        canvas: Tensor = total.unflatten(2, (-1, self.angles)).flatten(1, 2)[:, None]
        return canvas

    def _weights(self, kind: torch.dtype) -> Tensor:
        """Return the weights as floats: kept, because a graph cannot turn bits into numbers."""
        found = self._kept.get(kind)
        if not is_traced() and (found is None or found[0] is not self.weight_bits):
            found = self._kept[kind] = self.weight_bits, self.weight_bits.view(torch.float64).to(kind)
        assert found is not None, "run it once before a graph is made of it"
        return found[1]

    def settle(self, images: Tensor, scores: Tensor, ranks: Tensor, best: Tensor, tied: Tensor) -> Tensor:
        """See :class:`Coordinates`. Where canvases are one and the same, the images may differ: the largest wins.

        The grid does not look everywhere, so such candidates are compared as the images that they restore to.
        """
        order = torch.where(best, ranks, -1)
        same = order == order.amax(1, keepdim=True)

        def keys(row: Tensor, candidate: Tensor) -> Tensor:
            angle = self._grains(candidate, scores.index_select(0, row))
            return restored_keys(rotate_grains(images.index_select(0, row), -angle, self.axis).flatten())

        index = largest_of(keys, math.prod(images.shape[1:]), same, tied)
        places = torch.arange(self.angles, device=scores.device)
        return (places == index[:, None]).to(torch.int64)

    def candidate(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        assert pose.angle is not None
        return (pose.angle * self.angles / 360).round().to(torch.int64) % self.angles

    def _grains(self, step: Tensor, scores: Tensor) -> Tensor:
        """Return the rotation that was applied, int64 grains ``(batch,)`` from -180 to 180 degrees.

        With ``refine`` the angle lies where the parabola through the three scores about the highest is highest.
        """
        quarter = self.angles // 4
        rest = (step % quarter).to(torch.float64)
        if self.refine:
            flat = scores.flatten(1)
            before, top, after = (
                flat.gather(1, ((step + side) % self.angles)[:, None])[:, 0].to(torch.float64)
                for side in (self.angles - 1, 0, 1)
            )
            bend = before - 2 * top + after  # of integers: exact, and the same wherever the peak stands
            rest = rest + torch.where(bend < 0, (before - after) / (2 * bend), 0.0)
        # Rounded before whole quarters are added: what follows is then exact.
        grains = (rest * self._grains_a_step.to(rest.device)).round().to(torch.int64)
        grains = grains + 90 * GRAIN * (step // quarter)
        return torch.where(grains >= 180 * GRAIN, grains - 360 * GRAIN, grains)

    def pose(self, index: Tensor, scores: Tensor, size: tuple[int, ...]) -> Pose:
        still = torch.zeros(index.shape[0], len(size), dtype=torch.int64, device=index.device)
        return Pose(still, angle=self._grains(index, scores).to(torch.float64) / GRAIN)

    # --- undoing it, and doing it ---

    def undo(self, images: Tensor, pose: Posed) -> Tensor:
        return self._rotated(images, pose, -1)

    def redo(self, images: Tensor, pose: Posed) -> Tensor:
        """See :class:`Coordinates`. The inverse up to interpolation; exact for quarter turns."""
        return self._rotated(images, pose, 1)

    def _rotated(self, images: Tensor, pose: Posed, sign: int) -> Tensor:
        self._check(images)
        assert pose.angle is not None
        return rotate_grains(images, sign * (pose.angle * GRAIN).round().to(torch.int64), self.axis)

    def move(self, images: Tensor, pose: Posed) -> Tensor:
        """See :class:`Coordinates`. Any angle, not only those of the grid."""
        assert pose.angle is not None
        return rotate(images, pose.angle, axis=self.axis)

    def draw(self, size: tuple[int, ...], count: int, scope: int | None, generator: torch.Generator) -> Pose:
        limit = 180 if scope is None else scope
        angle = (2 * torch.rand(count, dtype=torch.float64, generator=generator) - 1) * limit
        return Pose(torch.zeros(count, len(size), dtype=torch.int64), angle=angle)

    # --- exactness ---

    def moves(self, size: tuple[int, ...]) -> Pose:
        """See :class:`Coordinates`. Quarter turns: all other angles are interpolated."""
        return Pose(torch.zeros(4, len(size), dtype=torch.int64), angle=90.0 * torch.arange(4, dtype=torch.float64))

    def carry(self, scores: Tensor, pose: Posed) -> Tensor:
        assert pose.angle is not None
        return apply(scores, (pose.angle / 90).round().to(torch.int64)[:, None] * (self.angles // 4))

    def distance(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        """See :class:`Coordinates`. In steps of the grid of angles."""
        assert pose.angle is not None
        around = torch.remainder(pose.angle + 180, 360) - 180
        return (around.abs() * self.angles / 360 - 0.5).ceil().clamp(min=0)  # half a step counts as none

    # --- making a restorer ---

    def network(self, preset: str, channels: int, size: tuple[int, ...]) -> ShiftEstimator:
        widths, inputs = _preset(preset)["channels"], channels * self.channels
        if widths is None:
            return ShiftEstimator.preset("paper", inputs, [self.angles])
        return ShiftEstimator(inputs, channels=widths, kernel_size=[self.angles], bias=True, size=[self.angles])

    def image_channels(self, channels: int, size: tuple[int, ...]) -> int:
        return channels // self.channels

    def image_size(self, positions: tuple[int, ...] | None) -> tuple[int, ...] | None:
        return (self.size,) * self.spatial_axes


def _preset(preset: str) -> dict[str, Any]:
    if preset not in ROTATIONS:
        raise ValueError(f"no preset {preset!r} for rotations; there are {', '.join(ROTATIONS)}")
    return ROTATIONS[preset]


KIND = Polar
