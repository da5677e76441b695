"""Finite groups of exact permutations of an array: mirror images, quarter turns, the other strand, rotations of a cube.

Convention
----------
``"quarter"`` counts counter-clockwise, as ``torch.rot90(x, g, (2, 3))`` turns: ``turn([[1, 2], [3, 4]], 1) ==
[[2, 4], [1, 3]]``. ``"flips"`` is ``g = q + 4 m``: mirrored left to right if ``m``, then turned ``q`` quarters.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unshift.coordinates.interface import Coordinates, Pose, Posed
from unshift.exact import in_graphs
from unshift.shifts import apply, check_images, movable, take, undo, view_as


class Turn(NamedTuple):
    """One permutation of an array: axis ``a`` of the result is axis ``axes[a]`` of the input, possibly reversed."""

    axes: tuple[int, ...]
    reversed: tuple[bool, ...]
    complement: bool = False  # true if the channels are reversed too, as A C G T become T G C A

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

    def size(self, size: tuple[int, ...]) -> tuple[int, ...]:
        """Return the size of a turned array."""
        return tuple(size[a] for a in self.axes)

    def turn_shift(self, shift: Tensor) -> Tensor:
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

    elements: Callable[[int], list[Turn]]  # from the number of spatial axes to the elements, the identity first
    axes: tuple[int, ...]
    swaps: bool  # true if elements swap axes, so that turns of an array differ in shape unless its sides are equal
    names: tuple[str, ...]
    """The names of the elements in tables."""
    takes: str  # the arrays that it applies to, for messages


DEGREES = ("0°", "90°", "180°", "270°")
FLIPPED = (*DEGREES, *(f"mirrored, {degrees}" for degrees in DEGREES))
GROUPS = {
    "mirror": Group(_mirror, (1, 2, 3), False, ("as it is", "mirrored"), "any arrays"),
    "half": Group(lambda axes: _powers(Turn((0, 1), (True, True)), 2), (2,), False, ("0°", "180°"), "images"),
    "quarter": Group(lambda axes: QUARTER, (2,), True, DEGREES, "images"),
    "flips": Group(lambda axes: FLIPS, (2,), True, FLIPPED, "images"),
    "strand": Group(lambda axes: _powers(Turn((0,), (True,), True), 2), (1,), False, ("+", "-"), "sequences"),
    "cube": Group(lambda axes: CUBE, (3,), True, tuple(map(str, range(24))), "volumes"),
}
"""The groups by name."""


def _gathered(images: Tensor, turn: Tensor, elements: list[Turn]) -> Tensor:
    size = tuple(images.shape[2:])
    if len({element.size(size) for element in elements}) > 1:
        raise ValueError(f"a graph turns arrays of equal sides only, got size {size}")
    numbers = torch.arange(math.prod(images.shape[1:]), device=images.device).view(1, *images.shape[1:])
    tables = torch.stack([element(numbers).flatten() for element in elements])
    return take(images.flatten(1)[:, None], tables[turn][:, None]).view(images.shape)


@in_graphs(_gathered)
def turn_each(images: Tensor, turn: Tensor, elements: list[Turn]) -> Any:
    """Turn each image by its own element, ``(batch,)``.

    If elements bring two or more images to different shapes, the result is a list of ``(channel, *spatial)``.
    """
    if len(images) == 1:
        return elements[int(turn)](images).contiguous()
    if len({element.size(tuple(images.shape[2:])) for element in elements}) > 1:
        return [elements[g](image[None])[0] for g, image in zip(turn.tolist(), images, strict=True)]
    rows = [(turn == g).nonzero().flatten() for g in range(len(elements))]
    return torch.cat([element(images[at]) for element, at in zip(elements, rows, strict=True)])[
        torch.cat(rows).argsort()
    ]


class Turning(Coordinates):
    """Base class of kinds that undo the elements of a group, a name in :data:`GROUPS`."""

    square = True  # whether arrays must have equal sides where the group swaps axes

    def __init__(self, group: str) -> None:
        super().__init__()
        if group not in GROUPS:
            raise ValueError(f"no group of turns named {group!r}; there are {', '.join(GROUPS)}")
        self.group = group

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
        if len(size) not in kind.axes or (self.square and kind.swaps and len(set(size)) > 1):
            takes = f"{kind.takes} of equal sides" if self.square and kind.swaps else kind.takes
            raise ValueError(f"turns of group {self.group!r} want {takes}, got shape {tuple(images.shape)}")
        if self.group == "strand" and images.shape[1] % 2:
            raise ValueError(
                "strands want an even number of channels, each with its complement from the other end (A C G T), "
                f"got {images.shape[1]}: shape {tuple(images.shape)}"
            )
        return size

    def undo(self, images: Tensor, pose: Posed) -> Any:
        assert pose.turn is not None
        inverses = self.inverses(len(self.check(images)))
        return turn_each(images if self.whole else undo(images, pose.shift), pose.turn, inverses)

    def redo(self, images: Tensor, pose: Posed, size: Sequence[int] | None = None) -> Any:
        assert pose.turn is not None
        self._check_no_scene(images, size)
        turned = turn_each(images, pose.turn, self.elements(len(self.check(images))))
        return turned if self.whole else apply(turned, pose.shift)

    def _drawn(self, size: tuple[int, ...], shift: Tensor, scope: int | None, generator: torch.Generator) -> Pose:
        """Return shifts with random turns; with scope 0, without turns."""
        turn = torch.randint(len(self.elements(len(size))), (len(shift),), generator=generator)
        return Pose(shift, torch.zeros_like(turn) if scope == 0 else turn)
