"""Turns: a finite group of exact permutations of the array, together with all circular shifts.

Convention
----------
The input is ``apply(turn(x, g), s)``: turned first, then shifted. A turn maps shifts to shifts::

    turn(apply(x, s), g) == apply(turn(x, g), g . s)

Why one argmax is exact: the network scores the copies ``turn(input, g^-1)`` for all ``g``. Candidate (g, p) restores
copy ``g`` undone by ``p``. Moving the input by (h, t) turns copy ``h^-1 g`` into copy ``g``, shifted by ``g^-1 . t``.
This only permutes the candidates, so the highest score stays, and so does the choice among ties, which compares
restored arrays.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from unshift.coordinates.groups import GROUPS, Turn, Turning
from unshift.coordinates.interface import Labels, Pose, Posed, circular_distance
from unshift.coordinates.shifts import draw_shifts
from unshift.exact import Scores
from unshift.shifts import all_shifts, ravel, unravel


class Turns(Turning):
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
        super().__init__(group)
        self.labels = Labels(
            f"circular shifts and turns (group {group})",
            frozenset({"shift", "turn"}),
            *(("bases", "base") if group == "strand" else ("pixels", "pixel")),
            GROUPS[group].names,
        )

    def describe(self) -> dict[str, Any]:
        return {"kind": "turns", "group": self.group}

    def canvases(self, images: Tensor) -> list[Tensor]:
        axes = len(self.check(images))
        return [turn(images) for turn in self.inverses(axes)]

    def candidate(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        assert pose.turn is not None
        position = _turned_shift(pose.shift, pose.turn, self.inverses(len(size)))
        return pose.turn * math.prod(size) + ravel(position, size)

    def pose(self, index: Tensor, scores: Scores, size: tuple[int, ...]) -> Pose:
        turn, position = index // math.prod(size), unravel(index % math.prod(size), size)
        whole = torch.tensor(size, device=index.device)
        return Pose(_turned_shift(position, turn, self.elements(len(size))) % whole, turn)

    def draw(self, size: tuple[int, ...], count: int, scope: int | None, generator: torch.Generator) -> Pose:
        return self._drawn(size, draw_shifts(size, count, scope, generator), scope, generator)

    def moves(self, size: tuple[int, ...]) -> Pose:
        shifts, count = all_shifts(size), len(self.elements(len(size)))
        return Pose(shifts.repeat(count, 1), torch.arange(count).repeat_interleave(len(shifts)))

    def distance(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        assert pose.turn is not None
        return torch.where(pose.turn == 0, circular_distance(pose.shift, size), math.inf)


def _turned_shift(shift: Tensor, turn: Tensor, elements: list[Turn]) -> Tensor:
    """Turn each row of ``shift`` by an element of the group."""
    turned = torch.stack([element.turn_shift(shift) for element in elements], 1)
    return turned.gather(1, turn[:, None, None].expand(-1, 1, shift.shape[1]))[:, 0]
