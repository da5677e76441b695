"""Turns: a finite group of exact permutations of the array, together with all circular shifts.

Convention
----------
The input is ``apply(turn(x, g), s)``: turned first, then shifted. A turn maps shifts to shifts::

    turn(apply(x, s), g) == apply(turn(x, g), g . s)

``"quarter"`` counts counter-clockwise, as ``torch.rot90(x, g, (2, 3))`` turns: ``turn([[1, 2], [3, 4]], 1) ==
[[2, 4], [1, 3]]``. ``"flips"`` is ``g = q + 4 m``: mirrored left to right if ``m``, then turned ``q`` quarters.

Why one argmax is exact. The network scores the copies ``turn(input, g^-1)`` for all ``g``. Candidate (g, p) restores
copy ``g`` undone by ``p``. Moving the input by (h, t) turns copy ``h^-1 g`` into copy ``g``, shifted by ``g^-1 . t``.
This only permutes the candidates, so the highest score stays, and so does the choice among ties, which compares
restored arrays.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unshift.coordinates.interface import Coordinates, Labels, Pose, Posed
from unshift.coordinates.shifts import circular_distance, draw_shifts
from unshift.exact import Scores
from unshift.shifts import all_shifts, apply, check_images, movable, ravel, take, undo, unravel, view_as

__all__ = ["GROUPS", "Group", "Turn", "Turns"]


class Turn(NamedTuple):
    """One permutation of an array: axis ``a`` of the result is axis ``axes[a]`` of the input, possibly reversed."""

    axes: tuple[int, ...]
    reversed: tuple[bool, ...]
    complement: bool = False
    """True if the channels are reversed too, as A C G T become T G C A."""

    def then(self, other: Turn) -> Turn:
        """Return this turn followed by ``other``."""
        axes = tuple(self.axes[a] for a in other.axes)
        flips = tuple(r != self.reversed[a] for a, r in zip(other.axes, other.reversed, strict=True))
        return Turn(axes, flips, self.complement != other.complement)

    def __call__(self, images: Tensor) -> Tensor:
        """Turn ``images`` ``(batch, channel, *spatial)`` of any dtype."""
        bits = movable(images).permute(0, 1, *(2 + a for a in self.axes))
        flips = [2 + a for a, r in enumerate(self.reversed) if r]
        return view_as(bits.flip([*flips, *([1] if self.complement else [])]), images.dtype)

    def of_shift(self, shift: Tensor) -> Tensor:
        """Return ``g . s``: the shift of the turned array that corresponds to ``shift``."""
        return torch.stack(
            [-shift[:, a] if r else shift[:, a] for a, r in zip(self.axes, self.reversed, strict=True)], 1
        )


def _powers(turn: Turn, count: int) -> list[Turn]:
    identity = Turn(tuple(range(len(turn.axes))), (False,) * len(turn.axes))
    return list(itertools.accumulate([turn] * (count - 1), Turn.then, initial=identity))


def _mirror(axes: int) -> list[Turn]:
    return _powers(Turn(tuple(range(axes)), (*[False] * (axes - 1), True)), 2)


QUARTER = _powers(Turn((1, 0), (True, False)), 4)
FLIPS = [mirrored.then(turned) for mirrored in _mirror(2) for turned in QUARTER]
CUBE = [  # the signed permutations of the axes that keep its handedness
    Turn(order, flips)
    for order in itertools.permutations(range(3))
    for flips in itertools.product((False, True), repeat=3)
    if (sum(order[i] > order[j] for i, j in itertools.combinations(range(3), 2)) + sum(flips)) % 2 == 0
]


class Group(NamedTuple):
    """A group of turns and the arrays that it applies to."""

    elements: Callable[[int], list[Turn]]
    """From the number of spatial axes to the elements, the identity first."""
    axes: tuple[int, ...]
    cubic: bool
    """True if all sides must have the same length."""
    names: tuple[str, ...]
    """The names of the elements in tables."""
    takes: str
    """The arrays that it applies to, for messages."""


DEGREES = ("0°", "90°", "180°", "270°")
FLIPPED = (*DEGREES, *(f"mirrored, {degrees}" for degrees in DEGREES))
GROUPS = {
    "mirror": Group(_mirror, (1, 2, 3), False, ("as it is", "mirrored"), "any arrays"),
    "half": Group(lambda axes: _powers(Turn((0, 1), (True, True)), 2), (2,), False, ("0°", "180°"), "images"),
    "quarter": Group(lambda axes: QUARTER, (2,), True, DEGREES, "square images"),
    "flips": Group(lambda axes: FLIPS, (2,), True, FLIPPED, "square images"),
    "strand": Group(lambda axes: _powers(Turn((0,), (True,), True), 2), (1,), False, ("+", "-"), "sequences"),
    "cube": Group(lambda axes: CUBE, (3,), True, tuple(map(str, range(24))), "cubic volumes"),
}
"""The groups by name."""


class Turns(Coordinates):
    """Shifts and a group of turns at once, both undone bit for bit.

    The network scores one copy of the image for each element of the group, and one argmax chooses among all copies and
    positions.

    Args:
        group: ``"mirror"``, ``"half"``, ``"quarter"`` (square images), ``"flips"`` (quarter turns and mirror images),
            ``"strand"`` (a sequence and its reverse complement: axis and channels reversed) or ``"cube"`` (the 24
            rotations of a cubic volume).

    Raises:
        ValueError: If there is no such group.
    """

    def __init__(self, group: str) -> None:
        super().__init__()
        if group not in GROUPS:
            raise ValueError(f"no group of turns named {group!r}; there are {', '.join(GROUPS)}")
        self.group = group
        self.labels = Labels(
            f"circular shifts and turns (group {group})",
            frozenset({"shift", "turn"}),
            *(("bases", "base") if group == "strand" else ("pixels", "pixel")),
            GROUPS[group].names,
        )

    def describe(self) -> dict[str, Any]:
        return {"kind": "turns", "group": self.group}

    def elements(self, axes: int) -> list[Turn]:
        """Return the elements of the group for arrays of this many spatial axes. The first is the identity."""
        return GROUPS[self.group].elements(axes)

    def inverses(self, axes: int) -> list[Turn]:
        """Return the inverse of each element, in the order of :meth:`elements`."""
        elements = self.elements(axes)
        return [next(other for other in elements if turn.then(other) == elements[0]) for turn in elements]

    def check(self, images: Tensor) -> tuple[int, ...]:
        """Return the size of ``images``. Raise a ``ValueError`` if the group does not fit them."""
        size, kind = check_images(images), GROUPS[self.group]
        if len(size) not in kind.axes or (kind.cubic and len(set(size)) > 1):
            raise ValueError(f"turns of group {self.group!r} want {kind.takes}, got shape {tuple(images.shape)}")
        if self.group == "strand" and images.shape[1] % 2:
            raise ValueError(
                "strands want an even number of channels, each with its complement from the other end (A C G T), "
                f"got {images.shape[1]}: shape {tuple(images.shape)}"
            )
        return size

    def canvas(self, images: Tensor) -> Tensor:
        axes = len(self.check(images))
        return view_as(torch.stack([movable(turn(images)) for turn in self.inverses(axes)], 1), images.dtype)

    def candidate(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        assert pose.turn is not None
        position = _turned_shift(pose.shift, pose.turn, self.inverses(len(size)))
        return pose.turn * math.prod(size) + ravel(position, size)

    def pose(self, index: Tensor, scores: Scores, size: tuple[int, ...]) -> Pose:
        turn, position = index // math.prod(size), unravel(index % math.prod(size), size)
        whole = torch.tensor(size, device=index.device)
        return Pose(_turned_shift(position, turn, self.elements(len(size))) % whole, turn)

    def _turned(self, images: Tensor, turn: Tensor, elements: list[Turn]) -> Tensor:
        """Turn each image by an element of the group, with one gather."""
        size = self.check(images)
        numbers = torch.arange(math.prod(images.shape[1:]), device=images.device).view(1, *images.shape[1:])
        tables = torch.stack([element(numbers).flatten() for element in elements])
        return take(images.flatten(1)[:, None], tables[turn][:, None]).view(images.shape[0], images.shape[1], *size)

    def undo(self, images: Tensor, pose: Posed) -> Tensor:
        assert pose.turn is not None
        return self._turned(undo(images, pose.shift), pose.turn, self.inverses(images.ndim - 2))

    def redo(self, images: Tensor, pose: Posed, size: Sequence[int] | None = None) -> Tensor:
        assert pose.turn is not None
        self._check_no_scene(images, size)
        return apply(self._turned(images, pose.turn, self.elements(images.ndim - 2)), pose.shift)

    def draw(self, size: tuple[int, ...], count: int, scope: int | None, generator: torch.Generator) -> Pose:
        """See :class:`Coordinates`. A scope limits the shift; turns are any, except with scope 0: none."""
        shift = draw_shifts(size, count, scope, generator)
        turn = torch.randint(len(self.elements(len(size))), (count,), generator=generator)
        return Pose(shift, torch.zeros_like(turn) if scope == 0 else turn)

    def moves(self, size: tuple[int, ...]) -> Pose:
        shifts, count = all_shifts(size), len(self.elements(len(size)))
        return Pose(shifts.repeat(count, 1), torch.arange(count).repeat_interleave(len(shifts)))

    def distance(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        assert pose.turn is not None
        return torch.where(pose.turn == 0, circular_distance(pose.shift, size), math.inf)


def _turned_shift(shift: Tensor, turn: Tensor, elements: list[Turn]) -> Tensor:
    """Turn each row of ``shift`` by an element of the group."""
    turned = torch.stack([element.of_shift(shift) for element in elements], 1)
    return turned.gather(1, turn[:, None, None].expand(-1, 1, shift.shape[1]))[:, 0]
