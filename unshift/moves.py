"""Moves that lose pixels: what leaves the image is gone, and zeros, its edge or more of the scene enter instead.

One mechanism for all: a larger image is rolled, and its middle is what the camera sees. The larger image is this one
on a margin of zeros, this one with its edges drawn out, or the photo itself, of which only a window is ever seen.
The target is the move.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from unshift.coordinates import Coordinates, Pose, Posed
from unshift.shifts import add_margin, apply, check_images

__all__ = ["MOVES", "Kind", "Moves"]

Kind = Literal["circular", "zeros", "edge", "crop"]
"""What enters on one side when the image leaves on the other: itself, zeros, its edge, the rest of the photo."""
MOVES: tuple[Kind, ...] = get_args(Kind)
PART = 8
"""Unless told otherwise, images move by up to this part of their shorter side: 4 of 32 pixels."""


class Moves:
    """Moves images for real, and says how: an augmentation whose target is the move.

    Args:
        kind: One of :data:`MOVES`.
        coordinates: What draws the moves, and does the part of them that loses nothing.
        scope: The largest shift along each axis, in pixels. None: any, of circular ones.

    Raises:
        ValueError: If there is no such kind, or it makes no sense here.

    >>> from unshift.coordinates import Canvas
    >>> Moves("zeros", Canvas(), 1).move(torch.tensor([[[1, 2, 3]]]), Pose(torch.tensor([[1]]))).tolist()
    [[[0, 1, 2]]]
    >>> Moves("edge", Canvas(), 1).move(torch.tensor([[[1, 2, 3]]]), Pose(torch.tensor([[1]]))).tolist()
    [[[1, 1, 2]]]
    >>> Moves("crop", Canvas(), 1).move(torch.tensor([[[1, 2, 3, 4, 5]]]), Pose(torch.tensor([[1]]))).tolist()
    [[[1, 2, 3]]]
    """

    def __init__(self, kind: Kind, coordinates: Coordinates, scope: int | None = None) -> None:
        if kind not in MOVES:
            raise ValueError(f"no kind of moves named {kind!r}; there are {', '.join(MOVES)}")
        if kind != "circular":
            if "shift" not in coordinates.reads or coordinates.window is not None:
                raise ValueError(f"moves that lose pixels are shifts of whole images; this undoes {coordinates.undoes}")
            if scope is None or scope < 0:
                raise ValueError(f"moves that lose pixels need a scope of 0 or more pixels, got {scope}")
        self.kind, self.coordinates, self.scope = kind, coordinates, scope

    @classmethod
    def of(cls, kind: Kind, coordinates: Coordinates, scope: int | None, size: tuple[int, ...]) -> Moves | None:
        """Return the moves to train by; None for circular ones: to an equivariant net they are all the same example.

        Args:
            kind: One of :data:`MOVES`.
            coordinates: What is to be undone.
            scope: The largest move; None: an eighth of the shorter side.
            size: Of the images.
        """
        if kind == "circular":
            if scope is not None:
                raise ValueError("scope is for moves that lose pixels (zeros, edge, crop); circular moves need none")
            return None
        found = cls(kind, coordinates, max(1, min(size) // PART) if scope is None else scope)
        found.seen(size)
        return found

    def describe(self) -> dict[str, Any]:
        """Return plain data, for a restorer's metadata."""
        return {"kind": self.kind, "scope": self.scope}

    @property
    def _margin(self) -> int:
        return self.scope or 0 if self.kind == "crop" else 0

    def seen(self, size: tuple[int, ...]) -> tuple[int, ...]:
        """Return the size of what is seen of images of ``size``.

        Raises:
            ValueError: If nothing is.
        """
        found = tuple(n - 2 * self._margin for n in size)
        if min(found) < 1:
            raise ValueError(f"images of size {size} are too small for windows that move by up to {self.scope} pixels")
        return found

    def move(self, images: Tensor, pose: Posed) -> Tensor:
        """Move images, of any dtype, and return what is seen of them then."""
        if self.kind == "circular":
            return self.coordinates.move(images, pose)
        assert self.scope is not None
        if len(images) and int(pose.shift.abs().max()) > self.scope:
            raise ValueError(f"a shift of {int(pose.shift.abs().max())} pixels is beyond the scope of {self.scope}")
        self.seen(check_images(images))
        turned = self.coordinates.move(images, Pose(torch.zeros_like(pose.shift), pose.turn, pose.angle))
        return add_margin(apply(self._larger(turned), pose.shift), -self.scope)

    def _larger(self, images: Tensor) -> Tensor:
        assert self.scope is not None
        if self.kind == "zeros":
            return add_margin(images, self.scope)
        if self.kind == "edge":
            for axis, n in enumerate(images.shape[2:], 2):
                images = images.index_select(axis, torch.arange(-self.scope, n + self.scope).clamp(0, n - 1))
        return images

    def __call__(self, images: Tensor, generator: torch.Generator) -> tuple[Tensor, Pose]:
        """Move each image at random; return what is seen, and the moves."""
        pose = self.coordinates.draw(self.seen(check_images(images)), len(images), self.scope, generator)
        return self.move(images, pose), pose

    def left(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Move each image at random and take it back: what is left of it, to measure as one that has not moved."""
        return self.coordinates.undo(*self(images, generator))
