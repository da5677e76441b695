"""Poses: turns without shifts, of images of any shape. Each turned copy gets one score, and the highest wins.

Why it is exact: copy ``g`` is ``turn(input, g^-1)``, and its score depends on that copy only. If the input is
``turn(x, h)``, then copy ``h g`` of it is copy ``g`` of ``x``: a move only permutes the copies and their scores.
Several highest scores are compared by their restored arrays, which are the same set for every move.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from unshift.coordinates.boxes import LARGEST_BOX, box_means
from unshift.coordinates.groups import GROUPS, Turning, turn_each
from unshift.coordinates.interface import Labels, Pose, Posed, check_count
from unshift.exact import Scores, largest


class Poses(Turning):
    """The turns of a group, without shifts, undone bit for bit. The network is a ``PoseEstimator``.

    Images need not be square. If they are not and the group swaps axes, a batch of two or more images is returned as a
    list, each image in its own upright shape.

    Args:
        group: ``"mirror"``, ``"half"``, ``"quarter"``, ``"flips"``, ``"strand"`` or ``"cube"``; see :data:`GROUPS`.
        reduce: The network sees means of boxes of this many pixels along each axis.
        longest: Images with a longer side than this are reduced further, to at most this many pixels.

    Raises:
        ValueError: If there is no such group.
    """

    whole = True
    square = False

    def __init__(self, group: str, *, reduce: int = 1, longest: int | None = None) -> None:
        super().__init__(group)
        self.reduce = check_count("reduce", reduce, 1)
        self.longest = None if longest is None else check_count("longest", longest, 1)
        self.labels = Labels(f"turns (group {group})", frozenset({"turn"}), "turns", "turn", GROUPS[group].names)

    def describe(self) -> dict[str, Any]:
        optional = {"reduce": self.reduce if self.reduce > 1 else None, "longest": self.longest}
        return {"kind": "poses", "group": self.group} | {key: n for key, n in optional.items() if n is not None}

    def _width(self, size: tuple[int, ...]) -> int:
        """Return the width of the boxes for images of ``size``, the same for all its turns."""
        width = max(self.reduce, 1 if self.longest is None else -(-max(size) // self.longest))
        if width > LARGEST_BOX:
            raise ValueError(f"images of size {size} would be reduced by {width}, at most {LARGEST_BOX} is possible")
        return width

    def canvases(self, images: Tensor) -> Iterator[Tensor]:
        size = self.check(images)
        small = box_means(images, self._width(size))
        return (turn(small) for turn in self.inverses(len(size)))  # one at a time: pages are large

    def candidate(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        assert pose.turn is not None
        return pose.turn

    def pose(self, index: Tensor, scores: Scores, size: tuple[int, ...]) -> Pose:
        if len(scores.shape) > 1:
            raise ValueError(f"Poses want one score for each copy, got scores of shape {scores.shape}")
        return Pose(torch.zeros(index.shape[0], len(size), dtype=torch.int64, device=index.device), index)

    def order(self, images: Tensor, scores: Scores, highest: Tensor, tied: Tensor) -> Tensor:
        inverses = self.inverses(images.ndim - 2)

        def restored(row: Tensor, candidate: Tensor) -> Tensor:
            array: Tensor = turn_each(images.index_select(0, row), candidate, inverses)
            return array

        index = largest(restored, math.prod(images.shape[1:]), highest, tied)
        return (torch.arange(highest.shape[1], device=index.device) == index[:, None]).to(torch.int64)

    def draw(self, size: tuple[int, ...], count: int, scope: int | None, generator: torch.Generator) -> Pose:
        return self._drawn(size, torch.zeros(count, len(size), dtype=torch.int64), scope, generator)

    def moves(self, size: tuple[int, ...]) -> Pose:
        count = len(self.elements(len(size)))
        return Pose(torch.zeros(count, len(size), dtype=torch.int64), torch.arange(count))

    def distance(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        assert pose.turn is not None
        return torch.where(pose.turn == 0, 0.0, math.inf).to(torch.float64)
