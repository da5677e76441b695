"""The choice of a pose: the highest score and, where several candidates tie, the one with the largest restored array.

A plain argmax resolves ties by the index, which moves with the input. Here tied candidates are compared as *restored
arrays*, pixel by pixel in a fixed order, and the largest wins. The result depends on the set of restored arrays only,
and that set is the same for every move of the input. Candidates with equal arrays (of a periodic input, for example)
restore the same image, so any of them may win. :func:`rank_restored` compares positions, all at once; :func:`largest`
compares a few copies, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from unshift.exact import graph
from unshift.exact.runtime import in_graphs
from unshift.exact.scores import Scores
from unshift.shifts import integer_view

BLOCK = 2**17  # candidates to rank at a time

Order = Callable[[Tensor, Tensor], Tensor]
"""From the highest candidates ``(batch, candidates)`` and the tied images ``(batch,)`` to int64 ranks of all
candidates: among the highest candidates, the largest rank wins."""


def choose(scores: Scores, order: Order) -> tuple[Tensor, Tensor]:
    """Choose one candidate of each image; ``order`` ranks those that tie by the arrays that they restore.

    Return the flat index of the choice, int64 ``(batch,)``, and whether several had the highest score, bool
    ``(batch,)``.
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

    uint64 values of 2^63 and more come first. That is not their numeric order, but any fixed order can break ties.
    """
    if not image.is_floating_point():
        return image.to(torch.int64)
    bits = integer_view(image)
    return torch.where(bits < 0, bits ^ torch.iinfo(bits.dtype).max, bits).to(torch.int64)


@in_graphs(graph.rank_restored)
def rank_restored(copies: Sequence[Tensor], tied: Tensor) -> Tensor:
    """Rank the restored arrays of all candidates of the tied images: int64 ``(batch, copies * positions)``.

    A candidate's restored array is its copy, ``(batch, channel, *positions)``, undone by its position. Equal arrays
    share a rank. Images that are not tied get zeros. This is prefix doubling, as for suffix arrays: the rank of a block
    of length 2L is the rank of the pair of its two blocks of length L. It takes ``log N`` rounds of sorting, even if
    all N candidates tie.
    """
    count, size = len(copies), tuple(copies[0].shape[2:])
    pixels = torch.cat([copy.flatten(2) for copy in copies], 2)
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
def largest(restored: Callable[[Tensor, Tensor], Tensor], count: int, among: Tensor, tied: Tensor) -> Tensor:
    """Return, for each tied image, the candidate with the largest restored array; for others the first of ``among``.

    ``restored`` maps an image's index ``(1,)`` and a candidate ``(1,)`` to the array, of ``count`` entries, that the
    candidate restores. ``among`` are the candidates to compare, bool ``(batch, candidates)``.
    """
    index = among.to(torch.uint8).argmax(1)
    for row in tied.nonzero().flatten().split(1):
        champion: Tensor | None = None
        for candidate in among[row[0]].nonzero().flatten().split(1):
            own = restored(row, candidate)
            if champion is None or _exceeds(own, champion):
                index[row], champion = candidate, own
    return index


def _exceeds(one: Tensor, other: Tensor) -> bool:
    """Return whether ``one`` is larger than ``other``. Compute the key of one pixel only, because pages are large."""
    if one.shape != other.shape:
        return tuple(one.shape) > tuple(other.shape)
    first = (integer_view(one) != integer_view(other)).flatten().to(torch.uint8).argmax()
    return bool(ordered_bits(one.flatten()[first]) > ordered_bits(other.flatten()[first]))
