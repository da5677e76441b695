"""Canvas: the image itself, on a margin of constant pixels if wanted. Its moves are circular shifts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from unshift.coordinates.protocol import Coordinates, Pose, Posed
from unshift.estimator import ShiftEstimator
from unshift.shifts import add_margin, apply, check_images, undo

__all__ = ["KIND", "Canvas", "all_shifts", "circular_distance", "draw_shifts", "ravel", "unravel"]


def unravel(index: Tensor, size: tuple[int, ...]) -> Tensor:
    """Turn flat indices ``(batch,)`` into positions ``(batch, d)``."""
    position: list[Tensor] = []
    for n in reversed(size[1:]):
        position.insert(0, index % n)
        index = index // n
    return torch.stack([index, *position], 1)


def ravel(position: Tensor, size: tuple[int, ...]) -> Tensor:
    """Turn positions ``(batch, d)``, any integers, into flat indices ``(batch,)``: the inverse of :func:`unravel`."""
    index = torch.zeros_like(position[:, 0])
    for axis, n in enumerate(size):
        index = index * n + position[:, axis] % n
    return index


def all_shifts(size: tuple[int, ...]) -> Tensor:
    """Return every shift of a grid, int64 ``(N, d)``, in row-major order.

    >>> all_shifts((2, 2)).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    grids = torch.meshgrid(*[torch.arange(n) for n in size], indexing="ij")
    return torch.stack([grid.flatten() for grid in grids], 1)


def draw_shifts(size: tuple[int, ...], count: int, scope: int | None, generator: torch.Generator) -> Tensor:
    """Draw ``count`` shifts, each axis uniform in ``[-scope, scope]``, or over all positions."""
    if scope is None:
        return torch.stack([torch.randint(n, (count,), generator=generator) for n in size], 1)
    if scope < 0:
        raise ValueError(f"scope must be 0 or more pixels, got {scope}")
    return torch.randint(-scope, scope + 1, (count, len(size)), generator=generator)


def circular_distance(shift: Tensor, size: tuple[int, ...]) -> Tensor:
    """Return the largest of the ways along each axis, the short way round, float64 ``(batch,)``."""
    whole = torch.tensor(size, device=shift.device)
    short = shift % whole
    return torch.minimum(short, whole - short).amax(1).to(torch.float64)


class Canvas(nn.Module, Coordinates):
    """Cartesian coordinates: the image as it is, all of whose axes go round.

    With ``pad`` the image is put on a margin first and cut out again after: ``crop(apply(pad(x), s))`` is a zero-filled
    shift of ``x`` by up to ``pad`` pixels, and on the padded canvas it is a circular one, which can be undone. A shift
    is then told the short way round, as -2 and not as ``size - 2``.

    Args:
        pad: Pixels of margin on every side.
        value: What the margin is filled with.
    """

    unit = "pixels"
    step = "pixel"
    undoes = "circular shifts, exactly"
    reads = frozenset({"shift"})

    def __init__(self, pad: int = 0, value: float = 0.0) -> None:
        super().__init__()
        if pad < 0:
            raise ValueError(f"pad must be 0 or more pixels, got {pad}")
        self.pad, self.value = pad, value

    def describe(self) -> dict[str, Any]:
        return {"kind": "canvas", "pad": self.pad, "value": self.value}

    def extra_repr(self) -> str:
        """Show the padding."""
        return f"pad={self.pad}, value={self.value}" if self.pad else ""

    def canvas(self, images: Tensor) -> Tensor:
        check_images(images)
        return add_margin(images, self.pad, self.value)[:, None]

    def candidate(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        return ravel(pose.shift, tuple(n + 2 * self.pad for n in size))

    def pose(self, index: Tensor, scores: Tensor, size: tuple[int, ...]) -> Pose:
        positions = tuple(n + 2 * self.pad for n in size)
        shift = unravel(index, positions)
        if self.pad:
            whole = torch.tensor(positions, device=index.device)
            shift = (shift + whole // 2) % whole - whole // 2
        return Pose(shift)

    def undo(self, images: Tensor, pose: Posed) -> Tensor:
        return add_margin(undo(add_margin(images, self.pad, self.value), pose.shift), -self.pad)

    def redo(self, images: Tensor, pose: Posed) -> Tensor:
        return add_margin(apply(add_margin(images, self.pad, self.value), pose.shift), -self.pad)

    def draw(self, size: tuple[int, ...], count: int, scope: int | None, generator: torch.Generator) -> Pose:
        """See :class:`Coordinates`. On a margin, any shift is one by up to the margin: beyond it pixels are lost."""
        return Pose(draw_shifts(size, count, self.pad if self.pad and scope is None else scope, generator))

    def ground(self, images: Tensor) -> tuple[Tensor, Coordinates]:
        """See :class:`Coordinates`. On a margin, shifts are exact where they are circular: on the padded image."""
        return add_margin(images, self.pad, self.value), Canvas()

    def moves(self, size: tuple[int, ...]) -> Pose:
        return Pose(all_shifts(size))

    def carry(self, scores: Tensor, pose: Posed) -> Tensor:
        return apply(scores, pose.shift)

    def distance(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        return circular_distance(pose.shift, tuple(n + 2 * self.pad for n in size))

    def network(self, preset: str, channels: int, size: tuple[int, ...]) -> ShiftEstimator:
        return ShiftEstimator.preset(preset, channels, [n + 2 * self.pad for n in size])

    def image_size(self, positions: tuple[int, ...] | None) -> tuple[int, ...] | None:
        return None if positions is None else tuple(n - 2 * self.pad for n in positions)


KIND = Canvas
