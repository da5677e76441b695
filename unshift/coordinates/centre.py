"""Centre: the shift of an object from the true centre of the image, found alike in every quarter turn of it.

The first half of "shift and any angle": find the centre, then the turn. For the whole to commute with quarter turns bit
for bit, the centre must turn with the image. So the network's filters are one with their quarter turns, and its scores
stand where the image's centre can be: on pixels for odd sizes, on the corners between them for even ones.

Convention
----------
Position ``M`` of a map of corners is the corner before pixel ``M``. A quarter turn of the image maps corner ``M`` to
``-M`` along a reversed axis, and pixel ``M`` to ``-1 - M``. The true centre is position ``n // 2`` of either map.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

from unshift.coordinates.canvas import ravel, unravel
from unshift.coordinates.protocol import Coordinates, Pose, Posed
from unshift.coordinates.turns import Turns
from unshift.estimator import ShiftEstimator

__all__ = ["KIND", "Centre"]


class Centre(nn.Module, Coordinates):
    """Shifts of square images, told from their true centre. Takes nets with ``symmetric=True`` only.

    Its moves are shifts and quarter turns. Quarter turns are kept, not undone: what stands upright comes out
    upright and centred, what stands on its side comes out on its side and centred.
    """

    unit = "pixels"
    step = "pixel"
    undoes = "circular shifts, exactly"
    reads = frozenset({"shift"})

    def __init__(self) -> None:
        super().__init__()
        self._turns = Turns("quarter")

    def describe(self) -> dict[str, Any]:
        return {"kind": "centre"}

    def canvas(self, images: Tensor) -> Tensor:
        self._turns.check(images)
        return images[:, None]

    def looks(self, images: Tensor) -> Tensor:
        """See :class:`Coordinates`. All four quarter turns: the choice must not depend on which of them came."""
        return self._turns.canvas(images)

    def settle(self, images: Tensor, scores: Tensor, ranks: Tensor, best: Tensor, tied: Tensor) -> Tensor:
        """See :class:`Coordinates`. A candidate counts as the largest of its four quarter turns, then as itself.

        Candidates that are quarter turns of each other are told apart by what they are: by their index, a shift would
        show. Which of them wins may depend on how the image stands; what undoes the turn after that does not see it.
        """
        n = images.shape[-1]
        shifts = unravel(torch.arange(n * n, device=ranks.device), (n, n)) - n // 2
        values = []
        for copy, inverse in zip(ranks.unflatten(1, (4, n * n)).unbind(1), self._turns.inverses(2), strict=True):
            # The copy undone by the turned shift is the turned candidate.
            at = inverse.of_shift(shifts) % n
            values.append(copy.index_select(1, at[:, 0] * n + at[:, 1]))
        largest: Tensor = functools.reduce(torch.maximum, values)
        order: Tensor = largest * ranks.shape[1] + values[0]
        return order

    def candidate(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        return ravel(pose.shift + torch.tensor(size, device=pose.shift.device) // 2, size)

    def pose(self, index: Tensor, scores: Tensor, size: tuple[int, ...]) -> Pose:
        whole = torch.tensor(size, device=index.device)
        return Pose((unravel(index, size) - whole // 2) % whole)

    def draw(self, size: tuple[int, ...], count: int, scope: int | None, generator: torch.Generator) -> Pose:
        return Pose(self._turns.draw(size, count, scope, generator).shift)

    def moves(self, size: tuple[int, ...]) -> Pose:
        """See :class:`Coordinates`. On its own it promises shifts; quarter turns pass through it."""
        found = self._turns.moves(size)
        return Pose(found.shift[found.turn == 0])

    def distance(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        return self._turns.distance(Pose(pose.shift, torch.zeros_like(pose.shift[:, 0])), size)

    def network(self, preset: str, channels: int, size: tuple[int, ...]) -> ShiftEstimator:
        self._turns.check(torch.empty(1, channels, *size))
        described = ShiftEstimator.preset(preset, channels, size).describe()
        return ShiftEstimator(**{**described, "symmetric": True, "corners": size[0] % 2 == 0})


KIND = Centre
