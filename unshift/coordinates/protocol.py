"""What a kind of move must say: the interface between the exact choice and what it is about.

One idea carries everything: a pose is a shift in the right coordinates. The network scores positions of canvases that
coordinates make of an image; which pose a position stands for, how it is undone, put back, drawn at random, named and
described is for the coordinates to say. Nothing outside this package asks which kind it holds.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from unshift.estimator import ShiftEstimator
from unshift.shifts import apply, undo

__all__ = ["Coordinates", "Pose", "Posed", "rows"]


class Pose(NamedTuple):
    """What was done to a batch of images: turned by an angle or an element of a group first, then shifted."""

    shift: Tensor
    """int64 ``(batch, d)``: pixels along each spatial axis of the image; zeros where nothing shifts."""
    turn: Tensor | None = None
    """int64 ``(batch,)``: the element of the group of turns, 0 for none; None where nothing turns."""
    angle: Tensor | None = None
    """float64 ``(batch,)``: degrees counter-clockwise; None where nothing rotates."""


class Posed(Protocol):
    """Anything that carries a pose: a :class:`Pose`, or an estimate of one."""

    @property
    def shift(self) -> Tensor:
        """See :class:`Pose`."""

    @property
    def turn(self) -> Tensor | None:
        """See :class:`Pose`."""

    @property
    def angle(self) -> Tensor | None:
        """See :class:`Pose`."""


PoseLike = TypeVar("PoseLike", bound=tuple[Any, ...])


def rows(pose: PoseLike, at: slice | Tensor) -> PoseLike:
    """Return the poses (or estimates) of some images of a batch."""
    parts: list[Any] = [None if part is None else part[at] for part in pose]
    return type(pose)(*parts)


@runtime_checkable
class Coordinates(Protocol):
    """Where a pose is a shift.

    Canvases are ``(batch, copies, channel, *positions)``: the network scores each copy by itself. A *candidate* is one
    copy and one position of it, as a flat index. A kind of move inherits from this and says what is left abstract; the
    other methods do what most kinds want.
    """

    unit: str
    """What one step of a distance is: ``"pixels"``, ``"degrees"``, ``"bases"``."""
    step: str
    """What a distance of 1 is: ``"pixel"``, ``"step of 7.5 degrees"``."""
    undoes: str
    """What it undoes, in words: ``"circular shifts"``."""
    reads: frozenset[str]
    """Which parts of a pose it reads: of ``"shift"``, ``"turn"``, ``"angle"``."""
    window: tuple[int, ...] | None = None
    """The size of what is cut out of a scene; None where the whole image comes back."""
    names: tuple[str, ...] = ()
    """What the elements of its group of turns are called in tables: none where nothing turns."""

    # --- what the network sees, and what its answer means ---

    @abstractmethod
    def canvas(self, images: Tensor) -> Tensor:
        """Return what the network sees of ``images``, or raise a ``ValueError`` if they do not fit."""

    def looks(self, images: Tensor) -> Tensor:
        """Return the arrays that the tie rule compares: most often the canvas."""
        return self.canvas(images)

    def settle(self, images: Tensor, scores: Tensor, ranks: Tensor, best: Tensor, tied: Tensor) -> Tensor:
        """Turn ``ranks`` of the looks into an order among candidates; most often it is that already."""
        return ranks

    @abstractmethod
    def pose(self, index: Tensor, scores: Tensor, size: tuple[int, ...]) -> Pose:
        """Return the pose that candidates ``index`` ``(batch,)`` stand for in images of ``size``."""

    @abstractmethod
    def candidate(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        """Return the candidates that stand for ``pose``, the inverse of :meth:`pose`: the targets of training."""

    def apart(self, axes: int) -> tuple[int, ...]:
        """Return how far apart positions must be along one of ``axes`` axes to be no neighbours."""
        return (2,) * axes

    # --- undoing it, and doing it ---

    def undo(self, images: Tensor, pose: Posed) -> Tensor:
        """Take ``images`` back to where they were before ``pose``: most often a shift."""
        return undo(images, pose.shift)

    def redo(self, images: Tensor, pose: Posed) -> Tensor:
        """Put upright ``images`` (a mask, another image) where the input was: the inverse of :meth:`undo`."""
        return apply(images, pose.shift)

    def on_scene(self, images: Tensor, size: Sequence[int] | None) -> Tensor:
        """Return ``images`` as large as what was undone, ``size``, before :meth:`redo`: most kinds keep the size."""
        if size is not None and tuple(size) != tuple(images.shape[2:]):
            raise ValueError(
                f"size is for restorers that cut a window out of a scene; got {tuple(size)} for images of "
                f"{tuple(images.shape[2:])}"
            )
        return images

    def move(self, images: Tensor, pose: Posed) -> Tensor:
        """Move upright ``images`` as the world would: for evaluations and checks."""
        return self.redo(images, pose)

    @abstractmethod
    def draw(self, size: tuple[int, ...], count: int, scope: int | None, generator: torch.Generator) -> Pose:
        """Draw random poses of images of ``size``: up to ``scope`` units each way, or any at all."""

    # --- exactness ---

    def ground(self, images: Tensor) -> tuple[Tensor, Coordinates]:
        """Return the images on which :meth:`moves` are exact, and the coordinates there: most often both as given."""
        return images, self

    @abstractmethod
    def moves(self, size: tuple[int, ...]) -> Pose:
        """Return every move that must be undone bit for bit."""

    def carry(self, scores: Tensor, pose: Posed) -> Tensor:
        """Return what ``scores`` ``(batch, copies, *positions)`` become under one of :meth:`moves` of the image."""
        return apply(scores, pose.shift)

    @abstractmethod
    def distance(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        """Return how far ``pose`` is from no move, float64 ``(batch,)`` in steps; infinite for a wrong turn."""

    # --- making a restorer, and describing it ---

    @abstractmethod
    def network(self, preset: str, channels: int, size: tuple[int, ...]) -> ShiftEstimator:
        """Return a preset's network for images of ``channels`` and ``size``."""

    def image_channels(self, channels: int, size: tuple[int, ...]) -> int:
        """Return how many channels images of ``size`` have whose canvases have ``channels``."""
        return channels

    def image_size(self, positions: tuple[int, ...] | None) -> tuple[int, ...] | None:
        """Return the size of images whose canvases have these positions (None: any), or None if unknown."""
        return positions

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return plain data, ``{"kind": ..., **arguments}``, for the weights file."""
