"""Turns: a finite group of exact permutations of the array, together with all circular shifts.

Convention
----------
The input is ``apply(turn(x, g), s)``: turned first, then shifted. A turn maps shifts to shifts::

    turn(apply(x, s), g) == apply(turn(x, g), g . s)

``"quarter"`` counts counter-clockwise, as ``torch.rot90(x, g, (2, 3))`` turns: ``turn([[1, 2], [3, 4]], 1) ==
[[2, 4], [1, 3]]``. ``"flips"`` is ``g = q + 4 m``: mirrored left to right if ``m``, then turned ``q`` quarters.

Why one argmax is exact. The network scores the copies ``turn(input, g^-1)`` for all ``g``. Candidate (g, p) restores to
copy ``g`` undone by ``p``. Moving the input by (h, t) turns copy ``h^-1 g`` into copy ``g``, shifted by ``g^-1 . t``:
it only permutes the candidates, so the highest score and, with ties compared as restored arrays, the choice stay.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from unshift.coordinates.canvas import all_shifts, circular_distance, draw_shifts, ravel, unravel
from unshift.coordinates.protocol import Coordinates, Pose, Posed
from unshift.estimator import ShiftEstimator
from unshift.shifts import apply, check_images, take, undo

__all__ = ["GROUPS", "KIND", "Turn", "Turns"]


class Turn(NamedTuple):
    """One permutation of an array: axis ``a`` of the result is axis ``axes[a]`` of the input, reversed if told."""

    axes: tuple[int, ...]
    reversed: tuple[bool, ...]
    complement: bool = False
    """whether the channels are reversed too, as A C G T become T G C A"""

    def then(self, other: Turn) -> Turn:
        """Return this turn followed by ``other``."""
        axes = tuple(self.axes[a] for a in other.axes)
        flips = tuple(r != self.reversed[a] for a, r in zip(other.axes, other.reversed, strict=True))
        return Turn(axes, flips, self.complement != other.complement)

    def __call__(self, images: Tensor) -> Tensor:
        """Turn ``images`` ``(batch, channel, *spatial)``."""
        turned = images.permute(0, 1, *(2 + a for a in self.axes))
        flips = [2 + a for a, r in enumerate(self.reversed) if r]
        return turned.flip([*flips, *([1] if self.complement else [])])

    def of_shift(self, shift: Tensor) -> Tensor:
        """Return ``g . s``: where a shift points once the array is turned."""
        return torch.stack(
            [-shift[:, a] if r else shift[:, a] for a, r in zip(self.axes, self.reversed, strict=True)], 1
        )


def _powers(turn: Turn, count: int) -> list[Turn]:
    plain = Turn(tuple(range(len(turn.axes))), (False,) * len(turn.axes))
    return list(itertools.accumulate([turn] * (count - 1), Turn.then, initial=plain))


def _mirror(axes: int) -> list[Turn]:
    return _powers(Turn(tuple(range(axes)), (*[False] * (axes - 1), True)), 2)


def _quarter(axes: int) -> list[Turn]:
    return _powers(Turn((1, 0), (True, False)), 4)


def _flips(axes: int) -> list[Turn]:
    return [mirrored.then(turned) for mirrored in _mirror(2) for turned in _quarter(2)]


def _cube(axes: int) -> list[Turn]:
    """Return the 24 rotations of a cube: of all signed permutations of the axes, those that keep its handedness."""
    found = []
    for order in itertools.permutations(range(3)):
        odd = sum(order[i] > order[j] for i, j in itertools.combinations(range(3), 2)) % 2
        found += [Turn(order, f) for f in itertools.product((False, True), repeat=3) if sum(f) % 2 == odd]
    return found


class Group(NamedTuple):
    """A group of turns: its elements, and what arrays it takes."""

    elements: Callable[[int], list[Turn]]
    axes: tuple[int, ...]
    cubic: bool
    """whether all sides must be of one length"""
    names: tuple[str, ...] | None
    """what its elements are called in tables; None: their numbers"""
    takes: str


DEGREES = ("0°", "90°", "180°", "270°")
GROUPS = {
    "mirror": Group(_mirror, (1, 2, 3), False, ("as it is", "mirrored"), "any arrays"),
    "half": Group(lambda axes: _powers(Turn((0, 1), (True, True)), 2), (2,), False, ("0°", "180°"), "images"),
    "quarter": Group(_quarter, (2,), True, DEGREES, "square images"),
    "flips": Group(_flips, (2,), True, (*DEGREES, *(f"mirrored, {d}" for d in DEGREES)), "square images"),
    "strand": Group(lambda axes: _powers(Turn((0,), (True,), True), 2), (1,), False, ("+", "-"), "sequences"),
    "cube": Group(_cube, (3,), True, None, "cubic volumes"),
}
"""The groups by name. The identity comes first in each."""


class Turns(nn.Module, Coordinates):
    """Shifts and a group of turns at once, all of it undone bit for bit.

    One network scores every copy; the choice is one argmax over copies and positions. It costs as many passes as the
    group has elements.

    Args:
        group: ``"mirror"``, ``"half"``, ``"quarter"`` (square images), ``"flips"`` (quarter turns and mirror images),
            ``"strand"`` (a sequence and its reverse complement: axis and channels reversed) or ``"cube"`` (the 24
            rotations of a cubic volume).

    Raises:
        ValueError: If there is no such group.
    """

    reads = frozenset({"shift", "turn"})

    def __init__(self, group: str) -> None:
        super().__init__()
        if group not in GROUPS:
            raise ValueError(f"no group of turns named {group!r}; there are {', '.join(GROUPS)}")
        self.group = group
        self.unit, self.step = ("bases", "base") if group == "strand" else ("pixels", "pixel")
        self.undoes = f"circular shifts and turns (group {group}), exactly"
        kind = GROUPS[group]
        self.names = kind.names or tuple(str(g) for g in range(len(self.elements(kind.axes[0]))))

    def describe(self) -> dict[str, Any]:
        return {"kind": "turns", "group": self.group}

    def extra_repr(self) -> str:
        """Show the group."""
        return repr(self.group)

    def elements(self, axes: int) -> list[Turn]:
        """Return the elements of the group for arrays of this many spatial axes; the first leaves them alone."""
        return GROUPS[self.group].elements(axes)

    def inverses(self, axes: int) -> list[Turn]:
        """Return the inverse of each element, in their order, for arrays of this many spatial axes."""
        elements = self.elements(axes)
        return [next(other for other in elements if turn.then(other) == elements[0]) for turn in elements]

    def check(self, images: Tensor) -> tuple[int, ...]:
        """Return the size of ``images``, or raise a ``ValueError`` if the group does not fit them."""
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
        return torch.stack([turn(images) for turn in self.inverses(axes)], 1)

    def candidate(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        assert pose.turn is not None
        inverses = [element.of_shift(pose.shift) for element in self.inverses(len(size))]
        position = torch.stack(inverses, 1).gather(1, pose.turn[:, None, None].expand(-1, 1, len(size)))[:, 0]
        return pose.turn * math.prod(size) + ravel(position, size)

    def pose(self, index: Tensor, scores: Tensor, size: tuple[int, ...]) -> Pose:
        turn = index // math.prod(size)
        position = unravel(index % math.prod(size), size)
        moved = torch.stack([element.of_shift(position) for element in self.elements(len(size))], 1)
        whole = torch.tensor(size, device=index.device)
        chosen = moved.gather(1, turn[:, None, None].expand(-1, 1, len(size)))[:, 0]
        return Pose(chosen % whole, turn)

    def _turned(self, images: Tensor, turn: Tensor, elements: list[Turn]) -> Tensor:
        """Turn each image by its own element: one gather."""
        size = self.check(images)
        numbers = torch.arange(math.prod(images.shape[1:]), device=images.device).view(1, *images.shape[1:])
        tables = torch.stack([element(numbers).flatten() for element in elements])
        return take(images.flatten(1)[:, None], tables[turn][:, None]).view(images.shape[0], images.shape[1], *size)

    def undo(self, images: Tensor, pose: Posed) -> Tensor:
        assert pose.turn is not None
        return self._turned(undo(images, pose.shift), pose.turn, self.inverses(images.ndim - 2))

    def redo(self, images: Tensor, pose: Posed) -> Tensor:
        assert pose.turn is not None
        return apply(self._turned(images, pose.turn, self.elements(images.ndim - 2)), pose.shift)

    def draw(self, size: tuple[int, ...], count: int, scope: int | None, generator: torch.Generator) -> Pose:
        """See :class:`Coordinates`. A scope limits the shift; any turn may come with it, but none with scope 0."""
        shift = draw_shifts(size, count, scope, generator)
        turn = torch.randint(len(self.elements(len(size))), (count,), generator=generator)
        return Pose(shift, torch.zeros_like(turn) if scope == 0 else turn)

    def moves(self, size: tuple[int, ...]) -> Pose:
        shifts, count = all_shifts(size), len(self.elements(len(size)))
        return Pose(shifts.repeat(count, 1), torch.arange(count).repeat_interleave(len(shifts)))

    def carry(self, scores: Tensor, pose: Posed) -> Tensor:
        """See :class:`Coordinates`. Copy ``h^-1 g`` becomes copy ``g``, shifted by ``g^-1 . t``."""
        assert pose.turn is not None
        axes = scores.ndim - 2
        elements, inverses = self.elements(axes), self.inverses(axes)
        comes_from = torch.tensor([[elements.index(g.then(h)) for g in elements] for h in inverses])
        copies = scores[torch.arange(len(scores))[:, None], comes_from[pose.turn]]
        moved = [apply(copies[:, g : g + 1], inverses[g].of_shift(pose.shift)) for g in range(len(elements))]
        return torch.cat(moved, 1)

    def distance(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        assert pose.turn is not None
        return torch.where(pose.turn == 0, circular_distance(pose.shift, size), math.inf)

    def network(self, preset: str, channels: int, size: tuple[int, ...]) -> ShiftEstimator:
        self.check(torch.empty(1, channels, *size))
        return ShiftEstimator.preset(preset, channels, size)


KIND = Turns
