"""Centre: the shift of an object from the true centre of the image, the same in every quarter turn of the image.

To undo a shift and any angle, first find the centre, then the turn. The centre must turn with the image. So the
network's filters equal their quarter turns, and it scores the positions where an image's centre can be: pixels for odd
sizes, the corners between them for even sizes.

Convention
----------
Position ``M`` of a map of corners is the corner before pixel ``M``. A quarter turn of the image maps corner ``M`` to
``-M`` along a reversed axis, and pixel ``M`` to ``-1 - M``. The true centre is position ``n // 2`` of either map.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from unshift.coordinates.interface import Labels, Pose, Posed
from unshift.coordinates.shifts import Shifts
from unshift.coordinates.turns import Turns
from unshift.exact import Scores, rank_restored
from unshift.network import ShiftEstimator
from unshift.shifts import ravel, unravel


class Centre(Shifts):
    """Shifts of square images, measured from their true centre. The network must have ``symmetric=True``.

    Quarter turns are not undone: an image that lies on its side is centred and stays on its side.
    """

    def __init__(self) -> None:
        super().__init__()
        self.labels = Labels("circular shifts")
        self._turns = Turns("quarter")

    def describe(self) -> dict[str, Any]:
        return {"kind": "centre"}

    def canvases(self, images: Tensor) -> list[Tensor]:
        self._turns.check(images)
        return [images]

    def order(self, images: Tensor, scores: Scores, highest: Tensor, tied: Tensor) -> Tensor:
        """See :class:`Coordinates`. Rank a candidate by the largest of its four quarter turns, then by itself.

        Candidates that are quarter turns of each other are compared by their own arrays, because their indices depend
        on the shift. Which of them wins may depend on the orientation, but a later stage restores all of them alike.
        """
        ranks = rank_restored(self._turns.canvases(images), tied)
        n = images.shape[-1]
        shifts = unravel(torch.arange(n * n, device=ranks.device), (n, n)) - n // 2
        values = []
        for copy, inverse in zip(ranks.unflatten(1, (4, n * n)).unbind(1), self._turns.inverses(2), strict=True):
            # The copy, undone by the turned shift, is the turned candidate.
            at = inverse.turn_shift(shifts) % n
            values.append(copy.index_select(1, at[:, 0] * n + at[:, 1]))
        largest: Tensor = functools.reduce(torch.maximum, values)
        order: Tensor = largest * ranks.shape[1] + values[0]
        return order

    def candidate(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        return ravel(pose.shift + torch.tensor(size, device=pose.shift.device) // 2, size)

    def pose(self, index: Tensor, scores: Scores, size: tuple[int, ...]) -> Pose:
        whole = torch.tensor(size, device=index.device)
        return Pose((unravel(index, size) - whole // 2) % whole)

    def network(self, preset: str, channels: int, size: tuple[int, ...]) -> ShiftEstimator:
        self._turns.check(torch.empty(1, channels, *size))
        described = ShiftEstimator.preset(preset, channels, size).describe()
        return ShiftEstimator(**{**described, "symmetric": True, "corners": size[0] % 2 == 0})
