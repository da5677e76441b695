"""Several positions of one image, by non-maximum suppression."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from unshift.exact.choice import choose, rank_restored
from unshift.exact.runtime import in_graphs
from unshift.exact.scores import Scores
from unshift.shifts import compose, format_size, ravel, undo, unravel

SUPPRESSED = torch.iinfo(torch.int64).min
"""The score of a position within the suppression radius of one that was chosen before."""


def next_best(
    scores: Tensor, canvas: Tensor, first: Tensor, radius: Sequence[int], count: int
) -> Iterator[tuple[Tensor, Tensor, Scores]]:
    """Yield ``count`` further positions by non-maximum suppression, best first, in a shift-invariant order.

    Scores ``(batch, *positions)`` and ``canvas``, the network's input, are rolled so that the first position is at 0.
    The rolled arrays are equal to the last bit for all shifts of the input, so all further choices are too. Positions
    nearer than ``radius`` along *every* axis are suppressed.

    Each item is the flat position ``(batch,)``, whether it was tied, and the scores of the positions that were left.
    """
    size = tuple(scores.shape[1:])
    frame = unravel(first, size)
    remaining, framed = undo(scores[:, None], frame)[:, 0], [undo(canvas, frame)]
    at = torch.zeros_like(frame)
    for number in range(count):
        remaining = remaining.masked_fill(_within(at, radius, size), SUPPRESSED)
        left = Scores([remaining.flatten(1)], (1, *size))
        if _is_full(left.terms[0]):
            raise ValueError(
                f"there is no room for {count + 1} positions {format_size(radius)} apart among {format_size(size)}: "
                f"{number + 1} were found; ask for fewer with top"
            )
        index, tied = choose(left, lambda highest, tied: rank_restored(framed, tied))
        at = unravel(index, size)
        yield ravel(compose(frame, at, size), size), tied, left


@in_graphs(lambda scores: False)  # a graph cannot raise
def _is_full(scores: Tensor) -> bool:
    """Return whether all positions of an image are suppressed."""
    return bool((scores.amax(1) == SUPPRESSED).any())


def _within(at: Tensor, radius: Sequence[int], size: Sequence[int]) -> Tensor:
    """Return which positions are nearer than ``radius`` to ``at`` ``(batch, d)``, bool ``(batch, *size)``."""
    near = torch.ones(at.shape[0], *[1] * len(size), dtype=torch.bool, device=at.device)
    for axis, (distance, n) in enumerate(zip(radius, size, strict=True)):
        way = (torch.arange(n, device=at.device) - at[:, axis, None]) % n
        along = torch.minimum(way, n - way) < distance
        near = near & along.view(-1, *[n if a == axis else 1 for a in range(len(size))])
    return near
