"""The choice of a pose: the highest score and, where several candidates tie, the one with the largest restored array.

A plain argmax resolves ties by the index, which moves with the input. Here tied candidates are compared as *restored
arrays*, pixel by pixel in a fixed order, and the largest wins. The result depends on the set of restored arrays only,
and that set is the same for every move of the input. Candidates with equal arrays (of a periodic input, for example)
restore the same image, so any of them may win.

:func:`in_graphs` names the function that replaces another one while ``torch.export`` captures a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from unshift.exact import graph
from unshift.exact.runtime import in_graphs
from unshift.exact.scores import Scores
from unshift.shifts import compose, format_size, integer_view, ravel, undo, unravel

__all__ = ["choose", "doubling_steps", "largest", "next_best", "ordered_bits", "rank_restored", "restored_keys"]

BLOCK = 2**17
"""Candidates to rank at a time."""

SUPPRESSED = torch.iinfo(torch.int64).min
"""The score of a position within the suppression radius of one that was chosen before."""

Order = Callable[[Tensor, Tensor], Tensor]
"""From the highest candidates ``(batch, candidates)`` and the tied images ``(batch,)`` to int64 ranks of all
candidates: among the highest candidates, the largest rank wins."""


def choose(scores: Scores, order: Order) -> tuple[Tensor, Tensor]:
    """Choose one candidate of each image.

    Args:
        scores: The scores of all candidates.
        order: Ranks candidates by the arrays that they restore. Called only if there is a tie.

    Returns:
        The flat index of the choice, int64 ``(batch,)``, and whether several had the highest score, bool ``(batch,)``.
    """
    index, tied = scores.best()
    if _no_ties(tied):
        return index, tied
    highest = scores.highest()
    ranks = order(highest, tied)
    return torch.where(tied, torch.where(highest, ranks, -1).argmax(1), index), tied


@in_graphs(lambda tied: False)  # a graph has no values, and must handle ties
def _no_ties(tied: Tensor) -> bool:
    return not bool(tied.any())


def ordered_bits(image: Tensor) -> Tensor:
    """Map pixels to int64 keys that differ for different bits and order as the values do (-0.0 < 0.0).

    Values of uint64 from 2^63 on come first: the order is another one, but as good for breaking ties.
    """
    if not image.is_floating_point():
        return image.to(torch.int64)
    bits = integer_view(image)
    return torch.where(bits < 0, bits ^ torch.iinfo(bits.dtype).max, bits).to(torch.int64)


restored_keys = in_graphs(graph.restored_keys)(ordered_bits)
"""Keys for comparing restored arrays: :func:`ordered_bits`, or the same order in operations that graphs have."""


@in_graphs(graph.rank_restored)
def rank_restored(copies: Tensor, tied: Tensor) -> Tensor:
    """Rank the restored arrays of all candidates of the tied images. Equal arrays share a rank.

    This is prefix doubling, as for suffix arrays: the rank of a block of length 2L is the rank of the pair of its two
    blocks of length L. It takes ``O(N log N)`` even if all N candidates tie.

    Args:
        copies: ``(batch, copies, channel, *positions)``. A candidate's restored array is its copy, undone by its
            position.
        tied: bool ``(batch,)``: the images to rank; all others get zeros.

    Returns:
        int64 ``(batch, copies * positions)``.
    """
    count, size = copies.shape[1], tuple(copies.shape[3:])
    pixels = copies.transpose(1, 2).flatten(3).flatten(2)  # (batch, channel, copies * positions)
    candidates = pixels.shape[2]
    ranks = torch.zeros_like(pixels[:, 0], dtype=torch.int64)
    for rows in tied.nonzero().flatten().split(max(1, BLOCK // candidates)):
        own = ranks[rows]
        for channel in ordered_bits(pixels[rows]).unbind(1):
            own = _rank(own * candidates + _rank(channel))
        for axis, length in doubling_steps(size):
            ahead = own.unflatten(1, (count, *size)).roll(-length, 2 + axis).flatten(1)
            own = _rank(own * candidates + ahead)
        ranks[rows] = own
    return ranks


def doubling_steps(size: Sequence[int]) -> list[tuple[int, int]]:
    """Return, for each step of the doubling, the axis and the distance of the block that is appended."""
    return [
        (axis, min(2**k, n - 2**k))  # the last block of an axis may overlap the first
        for axis, n in reversed(list(enumerate(size)))
        for k in range((n - 1).bit_length())
    ]


def _rank(keys: Tensor) -> Tensor:
    """Replace each key by its rank within its row ``(rows, n)``."""
    if bool((keys == keys[:, :1]).all()):  # constant so far: nothing to sort
        return torch.zeros_like(keys, dtype=torch.int64)
    return graph.rank(keys)


@in_graphs(graph.largest)
def largest(keys: Callable[[Tensor, Tensor], Tensor], width: int, among: Tensor, tied: Tensor) -> Tensor:
    """Return, for each tied image, the candidate with the largest keys, the first of equals.

    Args:
        keys: From an image's index ``(1,)`` and a candidate ``(1,)`` to the keys ``(width,)`` of what it restores.
        width: Number of keys.
        among: bool ``(batch, candidates)``: the candidates to compare.
        tied: bool ``(batch,)``. For all other images the first of ``among`` is returned.
    """
    index = among.to(torch.uint8).argmax(1)
    for row in tied.nonzero().flatten().split(1):
        champion: Tensor | None = None
        for candidate in among[row[0]].nonzero().flatten().split(1):
            own = keys(row, candidate)
            if champion is None or _exceeds(own, champion):
                index[row], champion = candidate, own
    return index


def _exceeds(one: Tensor, other: Tensor) -> bool:
    """Return whether ``one`` is lexicographically larger than ``other``."""
    first = (one != other).nonzero().flatten()[:1]
    return bool((one[first] > other[first]).any())


def next_best(
    scores: Tensor, canvas: Tensor, first: Tensor, radius: Sequence[int], count: int, score_unit: float
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield further positions by non-maximum suppression, best first, in a shift-invariant order.

    Scores and canvas are rolled so that the first position is at 0. The rolled arrays are equal to the last bit for all
    shifts of the input, so every further choice is too.

    Args:
        scores: int64 ``(batch, *positions)``.
        canvas: What the network saw, ``(batch, channel, *positions)``: ties are compared on it.
        first: The best position of each image, flat ``(batch,)``.
        radius: Suppression radius: positions nearer than this along *every* axis are suppressed.
        count: Number of positions to yield.
        score_unit: The value of one integer step of the scores, in nats.

    Yields:
        The flat position ``(batch,)``, whether it was tied, and its softmax probability among the positions left.

    Raises:
        ValueError: If suppression leaves no position.
    """
    size = tuple(scores.shape[1:])
    frame = unravel(first, size)
    remaining, framed = undo(scores[:, None], frame)[:, 0], undo(canvas, frame)[:, None]
    at = torch.zeros_like(frame)
    for number in range(count):
        remaining = remaining.masked_fill(_within(at, radius, size), SUPPRESSED)
        left = Scores([remaining.flatten(1)], (1, *size))
        if bool((left.terms[0].amax(1) == SUPPRESSED).any()):
            raise ValueError(
                f"there is no room for {count + 1} positions {format_size(radius)} apart among {format_size(size)}: "
                f"{number + 1} were found; ask for fewer with top"
            )
        index, tied = choose(left, lambda highest, tied: rank_restored(framed, tied))
        at = unravel(index, size)
        yield ravel(compose(frame, at, size), size), tied, left.confidence(score_unit)


def _within(at: Tensor, radius: Sequence[int], size: Sequence[int]) -> Tensor:
    """Return which positions are nearer than ``radius`` to ``at`` ``(batch, d)``, bool ``(batch, *size)``."""
    near = torch.ones(len(at), *[1] * len(size), dtype=torch.bool, device=at.device)
    for axis, (distance, n) in enumerate(zip(radius, size, strict=True)):
        way = (torch.arange(n, device=at.device) - at[:, axis, None]) % n
        along = torch.minimum(way, n - way) < distance
        near = near & along.view(len(at), *[n if a == axis else 1 for a in range(len(size))])
    return near
