"""Several objects: the best positions that are no neighbours, best first, in an order that no move changes.

The first position is the one choice that all images get. The rest is done *from there*: scores and image are rolled so
that the first position stands at 0, which makes them the same to the last bit however the input was moved. So whatever
is chosen in that frame is the same too, and no proof is needed for the order, nor for images that repeat themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from unshift.coordinates import ravel, unravel
from unshift.exact import choose, confidence
from unshift.shifts import compose, times, undo

__all__ = ["Found", "runners_up"]

TAKEN = torch.iinfo(torch.int64).min
"""The score of a position that is a neighbour of one chosen before."""


class Found(NamedTuple):
    """One more position of each image of a batch."""

    chosen: Tensor
    """int64 ``(batch,)``: its flat index"""
    tied: Tensor
    """bool ``(batch,)``"""
    confidence: Tensor
    """float64 ``(batch,)``: softmax probability among the positions that were left"""


def runners_up(
    scores: Tensor, looks: Callable[[], Tensor], first: Tensor, apart: Sequence[int], count: int, score_unit: float
) -> Iterator[Found]:
    """Yield the next best positions, each no neighbour of those before it.

    Args:
        scores: int64 ``(batch, 1, *positions)``.
        looks: Returns the arrays that the tie rule compares, ``(batch, 1, channel, *positions)``.
        first: The best position of each image, flat ``(batch,)``.
        apart: Positions nearer than this along *every* axis are neighbours.
        count: How many to yield.
        score_unit: What one step of the scores is worth, in nats.

    Raises:
        ValueError: If there is no room for this many.
    """
    size = tuple(scores.shape[2:])
    frame = unravel(first, size)
    scores = undo(scores, frame)
    at = torch.zeros_like(frame)
    for found in range(count):
        scores = scores.masked_fill(_near(at, apart, size)[:, None], TAKEN)
        if len(scores) and bool((scores.flatten(1).amax(1) == TAKEN).any()):
            raise ValueError(
                f"there is no room for {count + 1} positions {times(apart)} apart among {times(size)}: "
                f"{found + 1} were found; ask for fewer with top"
            )
        index, tied = choose(scores, lambda: undo(looks()[:, 0], frame)[:, None])
        at = unravel(index, size)
        yield Found(ravel(compose(frame, at, size), size), tied, confidence(scores, score_unit))


def _near(at: Tensor, apart: Sequence[int], size: Sequence[int]) -> Tensor:
    """Return which positions are neighbours of ``at`` ``(batch, d)``, bool ``(batch, *size)``."""
    near = torch.ones(len(at), *[1] * len(size), dtype=torch.bool, device=at.device)
    for axis, (distance, n) in enumerate(zip(apart, size, strict=True)):
        way = (torch.arange(n, device=at.device) - at[:, axis, None]) % n
        along = torch.minimum(way, n - way) < distance
        near = near & along.view(len(at), *[n if a == axis else 1 for a in range(len(size))])
    return near
