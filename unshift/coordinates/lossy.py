"""Moves that lose pixels: those that leave the image are lost, and zeros, the edge or more of the photo enter instead.

All three are one operation: shift a larger image and crop its middle.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from unshift.coordinates.interface import Coordinates, Pose, Posed
from unshift.shifts import add_margin, apply, check_images, format_size

__all__ = ["MOVES", "Kind", "Moves"]

Kind = Literal["circular", "zeros", "edge", "crop"]
"""The pixels that fill the side that a move vacates: the image itself, zeros, its edge, or the rest of the photo."""
MOVES: tuple[Kind, ...] = get_args(Kind)
PART = 8  # by default images move by up to this part of their shorter side: 4 of 32 pixels


class Moves:
    """Random moves of images, as an augmentation whose target is the move.

    The coordinates draw the moves, and do turns and circular shifts. Shifts reach up to ``scope`` pixels along each
    axis; None: any, for circular shifts only.

    >>> from unshift.coordinates import Shifts
    >>> one = Pose(torch.tensor([[1]]))
    >>> Moves("zeros", Shifts(), 1).move(torch.tensor([[[1, 2, 3]]]), one).tolist()
    [[[0, 1, 2]]]
    >>> Moves("edge", Shifts(), 1).move(torch.tensor([[[1, 2, 3]]]), one).tolist()
    [[[1, 1, 2]]]
    >>> Moves("crop", Shifts(), 1).move(torch.tensor([[[1, 2, 3, 4, 5]]]), one).tolist()
    [[[1, 2, 3]]]
    """

    def __init__(self, kind: Kind, coordinates: Coordinates, scope: int | None = None) -> None:
        if kind not in MOVES:
            raise ValueError(f"no kind of moves named {kind!r}; there are {', '.join(MOVES)}")
        if kind != "circular":
            if "shift" not in coordinates.labels.reads or coordinates.labels.scenes:
                raise ValueError(f"moves that lose pixels shift whole images, not {coordinates.labels.undoes}")
            if scope is None or scope < 0:
                raise ValueError(f"moves that lose pixels need a scope of 0 or more pixels, got {scope}")
        self.kind, self.coordinates, self.scope = kind, coordinates, scope

    @classmethod
    def for_training(
        cls, kind: Kind, coordinates: Coordinates, scope: int | None, size: tuple[int, ...]
    ) -> Moves | None:
        """Return the moves to train on images of ``size`` with; None for circular ones, all one example to the network.

        The scope is, by default, an eighth of the shorter side.
        """
        if kind == "circular":
            if scope is not None:
                raise ValueError("scope is for moves that lose pixels (zeros, edge, crop); circular moves need none")
            return None
        if scope is not None and scope >= min(size):
            raise ValueError(f"scope must be smaller than the images ({format_size(size)}), got {scope}")
        moves = cls(kind, coordinates, max(1, min(size) // PART) if scope is None else scope)
        moves.visible_size(size)
        return moves

    def describe(self) -> dict[str, Any]:
        """Return plain data, for a restorer's metadata."""
        return {"kind": self.kind, "scope": self.scope}

    def visible_size(self, size: tuple[int, ...]) -> tuple[int, ...]:
        """Return the visible size of images of ``size``. Raise a ``ValueError`` if nothing is visible."""
        margin = (self.scope or 0) if self.kind == "crop" else 0
        visible = tuple(n - 2 * margin for n in size)
        if min(visible) < 1:
            raise ValueError(f"images of size {size} are too small for windows that move by up to {self.scope} pixels")
        return visible

    def move(self, images: Tensor, pose: Posed) -> Tensor:
        """Move images of any dtype, and return what is visible of them."""
        if self.kind == "circular":
            circular: Tensor = self.coordinates.redo(images, pose)
            return circular
        assert self.scope is not None
        if len(images) and int(pose.shift.abs().max()) > self.scope:
            raise ValueError(f"a shift of {int(pose.shift.abs().max())} pixels is beyond the scope of {self.scope}")
        self.visible_size(check_images(images))
        larger: Tensor = self.coordinates.redo(images, Pose(torch.zeros_like(pose.shift), pose.turn, pose.angle))
        if self.kind == "zeros":
            larger = add_margin(larger, self.scope)
        if self.kind == "edge":
            for axis, n in enumerate(larger.shape[2:], 2):
                larger = larger.index_select(axis, torch.arange(-self.scope, n + self.scope).clamp(0, n - 1))
        return add_margin(apply(larger, pose.shift), -self.scope)

    def __call__(self, images: Tensor, generator: torch.Generator) -> tuple[Tensor, Pose]:
        """Move each image at random; return what is visible, and the moves."""
        pose = self.coordinates.draw(self.visible_size(check_images(images)), len(images), self.scope, generator)
        return self.move(images, pose), pose

    def lose_pixels(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Move each image at random and back, so that only the lost pixels differ."""
        back: Tensor = self.coordinates.undo(*self(images, generator))
        return back
