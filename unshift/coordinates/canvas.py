"""Canvas: the image itself, on a margin of constant pixels or as a scene to cut a window from, if wanted.

Its moves are circular shifts. In a scene, it is the scene that moves circularly; the object in it moves as objects do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unshift.coordinates.protocol import Coordinates, Pose, Posed
from unshift.estimator import ShiftEstimator
from unshift.shifts import add_margin, apply, check_images, times, undo

__all__ = ["KIND", "Canvas", "all_shifts", "circular_distance", "draw_shifts", "ravel", "unravel"]


def unravel(index: Tensor, size: tuple[int, ...]) -> Tensor:
    """Turn flat indices ``(batch,)`` into positions ``(batch, d)``."""
    position: list[Tensor] = []
    for n in size[:0:-1]:
        position.append(index % n)
        index = index.floor_divide(n)
    return torch.stack([index, *position[::-1]], 1)


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


def draw_shifts(size: Sequence[int], count: int, scope: int | None, generator: torch.Generator) -> Tensor:
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
    """Cartesian coordinates: the image as it is, circular along all axes.

    With ``pad`` the image is put on a margin first and cut out again after: ``crop(apply(pad(x), s))`` is a zero-filled
    shift of ``x`` by up to ``pad`` pixels, and on the padded canvas it is a circular one, which can be undone. A shift
    is then told the short way round, as -2 and not as ``size - 2``.

    With ``window`` the image is a scene, and what is restored is a window of it: the scene is rolled back, and its
    first pixels along each axis are cut out. The shift is where the window's first pixel stands in the scene.

    Args:
        pad: Pixels of margin on every side.
        value: What the margin is filled with.
        window: The size of what is cut out of a scene, one number per axis. None: the whole image is returned.

    Raises:
        ValueError: If a number is out of range, or both ``pad`` and ``window`` are given.
    """

    unit = "pixels"
    step = "pixel"
    reads = frozenset({"shift"})

    def __init__(self, pad: int = 0, value: float = 0.0, window: Sequence[int] | None = None) -> None:
        super().__init__()
        if pad < 0:
            raise ValueError(f"pad must be 0 or more pixels, got {pad}")
        if window is not None and (pad or not 1 <= len(window) <= 3 or min(window) < 1):
            raise ValueError(
                f"a window is 1, 2 or 3 positive sizes, one for each axis, and has no pad; got {window}, pad {pad}"
            )
        self.pad, self.value = pad, value
        self.window = None if window is None else tuple(window)
        self.undoes = f"circular shifts{'' if window is None else f' of scenes, a window of {times(window)}'}, exactly"

    def describe(self) -> dict[str, Any]:
        described: dict[str, Any] = {"kind": "canvas", "pad": self.pad, "value": self.value}
        return described if self.window is None else {**described, "window": list(self.window)}

    def extra_repr(self) -> str:
        """Show the padding, and the window."""
        if self.window is not None:
            return f"window={self.window}"
        return f"pad={self.pad}, value={self.value}" if self.pad else ""

    def canvas(self, images: Tensor) -> Tensor:
        self._check_scene(check_images(images))
        return add_margin(images, self.pad, self.value)[:, None]

    def _check_scene(self, size: tuple[int, ...]) -> None:
        if self.window is None:
            return
        if len(size) != len(self.window) or any(n < w for n, w in zip(size, self.window, strict=True)):
            raise ValueError(
                f"a window of {times(self.window)} is cut out of a scene at least as large, "
                f"and these images are {times(size)}"
            )

    def candidate(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        return ravel(pose.shift, tuple(n + 2 * self.pad for n in size))

    def pose(self, index: Tensor, scores: Tensor, size: tuple[int, ...]) -> Pose:
        if not self.pad:
            return Pose(unravel(index, size))
        whole = torch.tensor([n + 2 * self.pad for n in size], device=index.device)
        shift = unravel(index, tuple(n + 2 * self.pad for n in size))
        return Pose((shift + whole // 2) % whole - whole // 2)

    def undo(self, images: Tensor, pose: Posed) -> Tensor:
        whole = add_margin(undo(add_margin(images, self.pad, self.value), pose.shift), -self.pad)
        if self.window is None:
            return whole
        self._check_scene(tuple(images.shape[2:]))
        for axis, length in enumerate(self.window):
            whole = whole.narrow(2 + axis, 0, length)
        return whole.contiguous()  # not a view, which would keep the scene in memory

    def redo(self, images: Tensor, pose: Posed) -> Tensor:
        return add_margin(apply(add_margin(images, self.pad, self.value), pose.shift), -self.pad)

    def on_scene(self, images: Tensor, size: Sequence[int] | None) -> Tensor:
        """See :class:`Coordinates`. Around a window there is ``value``."""
        found = check_images(images)
        if self.window is None:
            return super().on_scene(images, size)
        if size is None and found == self.window:
            raise ValueError(
                f"to put a window back, give the size of its scene, such as size={tuple(2 * n for n in found)}"
            )
        whole = found if size is None else tuple(size)
        if whole == found:
            return images
        self._check_scene(whole)
        if found != self.window:
            raise ValueError(f"redo takes a window of {times(self.window)}, or a whole scene; got {times(found)}")
        room = [side for n, w in zip(reversed(whole), reversed(found), strict=True) for side in (0, n - w)]
        return F.pad(images, room, value=self.value)

    def apart(self, axes: int) -> tuple[int, ...]:
        """See :class:`Coordinates`. Windows whose middles lie in each other show one object."""
        return super().apart(axes) if self.window is None else tuple(max(1, (n + 1) // 2) for n in self.window)

    def draw(self, size: tuple[int, ...], count: int, scope: int | None, generator: torch.Generator) -> Pose:
        """See :class:`Coordinates`. On a margin, any shift is one by up to the margin: beyond it pixels are lost."""
        return Pose(draw_shifts(size, count, self.pad if self.pad and scope is None else scope, generator))

    def ground(self, images: Tensor) -> tuple[Tensor, Coordinates]:
        """See :class:`Coordinates`. On a margin, shifts are exact where they are circular: on the padded image."""
        return add_margin(images, self.pad, self.value), Canvas(window=self.window)

    def moves(self, size: tuple[int, ...]) -> Pose:
        return Pose(all_shifts(size))

    def distance(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        return circular_distance(pose.shift, tuple(n + 2 * self.pad for n in size))

    def network(self, preset: str, channels: int, size: tuple[int, ...]) -> ShiftEstimator:
        return ShiftEstimator.preset(preset, channels, [n + 2 * self.pad for n in size])

    def image_size(self, positions: tuple[int, ...] | None) -> tuple[int, ...] | None:
        return None if positions is None else tuple(n - 2 * self.pad for n in positions)


KIND = Canvas
