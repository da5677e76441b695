"""Coordinates: the interface that every kind of pose implements.

Coordinates turn an image into canvases, such that every pose of the image is a position on a canvas, or a canvas as a
whole. The network scores these candidates. Coordinates map a candidate to its pose and back, and undo, redo, draw,
measure and describe poses. The choice and the exact arithmetic do not depend on the kind of coordinates.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from unshift.exact import Scorer, Scores, rank_restored
from unshift.network import ShiftEstimator
from unshift.pose_network import PoseEstimator
from unshift.shifts import apply, undo

LARGEST_COUNT = 2**15
"""Largest size or margin that coordinates accept, in pixels: larger ones are mistakes or damaged files."""


class Pose(NamedTuple):
    """The poses of a batch of images: each was turned by an angle or an element of a group first, then shifted."""

    shift: Tensor
    """int64 ``(batch, d)``: pixels along each spatial axis of the image; zeros where nothing shifts."""
    turn: Tensor | None = None
    """int64 ``(batch,)``: the element of the group of turns, 0 for the identity; None where nothing turns."""
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


def rows(pose: PoseLike, index: slice | Tensor) -> PoseLike:
    """Return the poses (or estimates) of some images of a batch."""
    parts: list[Any] = [None if part is None else part[index] for part in pose]
    return type(pose)(*parts)


def circular_distance(shift: Tensor, size: tuple[int, ...]) -> Tensor:
    """Return the largest circular distance from 0 along any axis, float64 ``(batch,)``."""
    whole = torch.tensor(size, device=shift.device)
    forward = shift % whole
    return torch.minimum(forward, whole - forward).amax(1).to(torch.float64)


class Labels(NamedTuple):
    """The words that messages and tables use for a kind of pose."""

    undoes: str
    """The poses that are undone: ``"circular shifts"``."""
    reads: frozenset[str] = frozenset({"shift"})
    """The parts of a pose that are estimated: of ``"shift"``, ``"turn"``, ``"angle"``."""
    unit: str = "pixels"
    """The unit in which moves are counted: ``"pixels"``, ``"degrees"``, ``"bases"``."""
    step: str = "pixel"
    """A distance of 1: ``"pixel"``, ``"step of 7.5 degrees"``."""
    turns: tuple[str, ...] = ()
    """The names of the elements of the group of turns."""
    scenes: bool = False
    """True if images are scenes of any size, out of which a window is cut."""


def check_count(name: str, value: Any, least: int) -> int:
    """Return ``value``. Raise a ``ValueError`` unless it is a whole number from ``least`` to :data:`LARGEST_COUNT`."""
    if type(value) is not int or not least <= value <= LARGEST_COUNT:
        raise ValueError(f"{name} must be a whole number from {least} to {LARGEST_COUNT}, got {value!r}")
    return value


def check_finite_number(name: str, value: Any) -> float:
    """Return ``value``. Raise a ``ValueError`` unless it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    return value


class Coordinates(nn.Module, ABC):
    """A kind of pose.

    The network scores canvases, one for each copy of the image. A *candidate* is one copy and one position of it, as a
    flat index; where the network scores canvases as a ``whole``, a candidate is a copy. The methods that are not
    abstract suit circular shifts.
    """

    labels: Labels
    whole = False
    """Whether canvases are scored as a whole."""
    radius: tuple[int, ...] | None = None
    """Suppression radius along each axis, in positions, for ``estimate(top=...)``. None means 2."""

    # --- the canvas, and the candidates on it ---

    @abstractmethod
    def canvases(self, images: Tensor) -> Iterable[Tensor]:
        """Return the inputs of the network for ``images``, ``(batch, channel, *positions)`` for each copy."""

    @abstractmethod
    def pose(self, index: Tensor, scores: Scores, size: tuple[int, ...]) -> Pose:
        """Return the poses of candidates ``index`` ``(batch,)`` in images of ``size``."""

    @abstractmethod
    def candidate(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        """Return the candidates of poses: the inverse of :meth:`pose`, and the target of training."""

    def order(self, images: Tensor, scores: Scores, highest: Tensor, tied: Tensor) -> Tensor:
        """Rank the candidates of tied images by the arrays that they restore: int64 ``(batch, candidates)``."""
        return rank_restored(list(self.canvases(images)), tied)

    # --- undo and redo ---

    def undo(self, images: Tensor, pose: Posed) -> Any:
        """Return ``images`` as they were before ``pose``, or a list if their shapes then differ."""
        return undo(images, pose.shift)

    def redo(self, images: Tensor, pose: Posed, size: Sequence[int] | None = None) -> Any:
        """Move upright ``images`` by ``pose``: the inverse of :meth:`undo`. ``size`` is that of the scene, if any."""
        self._check_no_scene(images, size)
        return apply(images, pose.shift)

    @staticmethod
    def _check_no_scene(images: Tensor, size: Sequence[int] | None) -> None:
        if size is not None and tuple(size) != tuple(images.shape[2:]):
            raise ValueError(
                f"size is for restorers that cut a window out of a scene; got {tuple(size)} for images of "
                f"{tuple(images.shape[2:])}"
            )

    @abstractmethod
    def draw(self, size: tuple[int, ...], count: int, scope: int | None, generator: torch.Generator) -> Pose:
        """Draw random poses of images of ``size``: at most ``scope`` units in each direction, or any if it is None."""

    # --- exact moves, and distances ---

    @abstractmethod
    def moves(self, size: tuple[int, ...]) -> Pose:
        """Return every move of images of ``size`` that is undone bit for bit, on what :meth:`exact_on` returns."""

    def exact_on(self, images: Tensor) -> tuple[Tensor, Coordinates]:
        """Return images and coordinates whose :meth:`moves` are exact: with padding, padded images and ``Shifts``."""
        return images, self

    def distance(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        """Return the distance of ``pose`` from the identity in steps, float64 ``(batch,)``; infinite for a turn."""
        return circular_distance(pose.shift, size)

    # --- construction and description ---

    def check_network(self, network: ShiftEstimator | PoseEstimator | Scorer) -> None:
        """Raise a ``ValueError`` if a network scores positions where these coordinates have none, or the reverse."""
        if network.whole is not None and network.whole != self.whole:
            wants = "one number for each image, a PoseEstimator" if self.whole else "a score for each position"
            raise ValueError(
                f"{type(self).__name__} coordinates want a network with {wants}; a {type(network).__name__} returns "
                f"{'one number for each image' if network.whole else 'a score for each position'}"
            )

    def network(self, preset: str, channels: int, size: tuple[int, ...]) -> ShiftEstimator | PoseEstimator:
        """Return a preset's network for images of ``channels`` and ``size``."""
        canvas = next(iter(self.canvases(torch.empty(1, channels, *size))))
        kind = PoseEstimator if self.whole else ShiftEstimator
        return kind.preset(preset, canvas.shape[1], canvas.shape[2:])

    def image_shape(
        self, channels: int | None, positions: tuple[int, ...] | None, size: tuple[int, ...] | None = None
    ) -> tuple[int | None, tuple[int, ...] | None]:
        """Return channels and size of the images whose canvases have these ``channels`` and ``positions``.

        None stands for unknown or any. ``size`` is the size of the images, if known.
        """
        return channels, size or positions

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return plain data, ``{"kind": ..., **arguments}``, for the weights file."""

    def extra_repr(self) -> str:
        """Show the arguments."""
        return ", ".join(f"{name}={value!r}" for name, value in self.describe().items() if name != "kind")
