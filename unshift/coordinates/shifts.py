"""Circular shifts of the image itself, of the image on a margin, and of a scene around an object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from unshift.coordinates.interface import (
    Coordinates,
    Labels,
    Pose,
    Posed,
    check_count,
    check_finite_number,
    circular_distance,
)
from unshift.exact import Scores
from unshift.shifts import add_margin, all_shifts, apply, check_images, format_size, ravel, undo, unravel

__all__ = ["Padded", "Scene", "Shifts", "circular_distance", "draw_shifts"]


def draw_shifts(size: Sequence[int], count: int, scope: int | None, generator: torch.Generator) -> Tensor:
    """Draw ``count`` shifts, each axis uniform in ``[-scope, scope]``, or over all positions."""
    if scope is None:
        return torch.stack([torch.randint(n, (count,), generator=generator) for n in size], 1)
    if scope < 0:
        raise ValueError(f"scope must be 0 or more pixels, got {scope}")
    return torch.randint(-scope, scope + 1, (count, len(size)), generator=generator)


class Shifts(Coordinates):
    """Circular shifts of the image along all its axes: the canvas is the image itself."""

    def __init__(self) -> None:
        super().__init__()
        self.labels = Labels("circular shifts")

    def describe(self) -> dict[str, Any]:
        return {"kind": "shifts"}

    def canvases(self, images: Tensor) -> list[Tensor]:
        check_images(images)
        return [images]

    def pose(self, index: Tensor, scores: Scores, size: tuple[int, ...]) -> Pose:
        return Pose(unravel(index, size))

    def candidate(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        return ravel(pose.shift, size)

    def draw(self, size: tuple[int, ...], count: int, scope: int | None, generator: torch.Generator) -> Pose:
        return Pose(draw_shifts(size, count, scope, generator))

    def moves(self, size: tuple[int, ...]) -> Pose:
        return Pose(all_shifts(size))


class Padded(Shifts):
    """Shifts of the image on a margin of constant pixels, which is then cut off again.

    ``crop(apply(pad(x), s))`` is a zero-filled shift of ``x`` by up to ``pad`` pixels. If only margin leaves the
    canvas, it is a circular shift of the canvas, which can be undone. Shifts are signed and as short as possible: -2,
    not ``size - 2``.

    Args:
        pad: Width of the margin on every side, in pixels.
        value: Value of its pixels.
    """

    def __init__(self, pad: int, value: float = 0.0) -> None:
        super().__init__()
        self.pad, self.value = check_count("pad", pad, 0), check_finite_number("value", value)
        self.labels = Labels("circular shifts")

    def describe(self) -> dict[str, Any]:
        return {"kind": "padded", "pad": self.pad, "value": self.value}

    def _padded(self, images: Tensor) -> Tensor:
        return add_margin(images, self.pad, self.value)

    def _size(self, size: Sequence[int]) -> tuple[int, ...]:
        return tuple(n + 2 * self.pad for n in size)

    def canvases(self, images: Tensor) -> list[Tensor]:
        check_images(images)
        return [self._padded(images)]

    def pose(self, index: Tensor, scores: Scores, size: tuple[int, ...]) -> Pose:
        whole = torch.tensor(self._size(size), device=index.device)
        return Pose((unravel(index, self._size(size)) + whole // 2) % whole - whole // 2)

    def candidate(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        return ravel(pose.shift, self._size(size))

    def undo(self, images: Tensor, pose: Posed) -> Tensor:
        return add_margin(undo(self._padded(images), pose.shift), -self.pad)

    def redo(self, images: Tensor, pose: Posed, size: Sequence[int] | None = None) -> Tensor:
        self._check_no_scene(images, size)
        return add_margin(apply(self._padded(images), pose.shift), -self.pad)

    def draw(self, size: tuple[int, ...], count: int, scope: int | None, generator: torch.Generator) -> Pose:
        """See :class:`Coordinates`. Without a scope, shifts go up to the margin: beyond it pixels are lost."""
        return Pose(draw_shifts(size, count, self.pad if scope is None else scope, generator))

    def exact_on(self, images: Tensor) -> tuple[Tensor, Coordinates]:
        """See :class:`Coordinates`. Shifts are circular, and exact, on the padded image."""
        return self._padded(images), Shifts()

    def distance(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        return circular_distance(pose.shift, self._size(size))

    def image_shape(
        self, channels: int | None, positions: tuple[int, ...] | None, size: tuple[int, ...] | None = None
    ) -> tuple[int | None, tuple[int, ...] | None]:
        # A network of one size takes padded images of that size, so the images are smaller by the margin.
        return channels, size if positions is None else tuple(n - 2 * self.pad for n in positions)


class Scene(Shifts):
    """A scene that holds an object: the window around the object is cut out, wherever it is.

    The scene may be shifted circularly, and the object may be anywhere in it. The scene is rolled so that the
    window starts at position 0. The shift is the position of the window's first pixel in the scene.

    Args:
        window: Size of the window, one number per axis.
        value: Pixels around a window that :meth:`redo` puts back into a scene.
    """

    def __init__(self, window: Sequence[int], value: float = 0.0) -> None:
        super().__init__()
        if not 1 <= len(window) <= 3:
            raise ValueError(f"window must hold one size for each of 1, 2 or 3 axes, got {window}")
        self.window = tuple(check_count("window", length, 1) for length in window)
        self.value = check_finite_number("value", value)
        self.labels = Labels(f"circular shifts of scenes, a window of {format_size(window)}", scenes=True)
        # Two windows closer than half a window show the same object.
        self.radius = tuple(max(1, (n + 1) // 2) for n in self.window)

    def describe(self) -> dict[str, Any]:
        return {"kind": "scene", "window": list(self.window), "value": self.value}

    def _check(self, size: tuple[int, ...]) -> None:
        if len(size) != len(self.window) or any(n < w for n, w in zip(size, self.window, strict=True)):
            raise ValueError(
                f"a window of {format_size(self.window)} is cut out of a scene at least as large, "
                f"and these images are {format_size(size)}"
            )

    def canvases(self, images: Tensor) -> list[Tensor]:
        self._check(check_images(images))
        return [images]

    def undo(self, images: Tensor, pose: Posed) -> Tensor:
        self._check(check_images(images))
        scene = undo(images, pose.shift)
        for axis, length in enumerate(self.window):
            scene = scene.narrow(2 + axis, 0, length)
        return scene.contiguous()  # a view would keep the whole scene in memory

    def redo(self, images: Tensor, pose: Posed, size: Sequence[int] | None = None) -> Tensor:
        """See :class:`Coordinates`. Takes a window and the ``size`` of its scene, or a whole scene."""
        given = check_images(images)
        if size is None and given == self.window:
            raise ValueError(
                f"to put a window back, give the size of its scene, such as size={tuple(2 * n for n in given)}"
            )
        whole = given if size is None else tuple(size)
        self._check(whole)
        if whole == given:
            return apply(images, pose.shift)
        if given != self.window:
            raise ValueError(
                f"redo takes a window of {format_size(self.window)}, or a whole scene; got {format_size(given)}"
            )
        margin = [side for n, w in zip(reversed(whole), reversed(given), strict=True) for side in (0, n - w)]
        return apply(F.pad(images, margin, value=self.value), pose.shift)
