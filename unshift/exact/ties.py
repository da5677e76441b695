"""The choice of a position: the highest score, and where several tie, by what they restore to.

Equal scores must not fall to whichever index comes first: that index moves with the input. So tied candidates are
compared as *restored arrays*, pixel by pixel in a fixed order, and the largest wins. This sees the set of
candidates and nothing else. Candidates that are one array to the last bit (a periodic input) are one answer.

Everything is written in operations that graphs have too; :func:`for_each_tied` runs the same body in both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from unshift.exact.lines import Scores, best_of_all, terms
from unshift.exact.task import is_traced

__all__ = ["choose", "largest_of", "ordered_bits", "rank_restored", "restored_keys"]

BLOCK = 2**17
"""Positions to rank at a time."""

MINUS_ZERO = torch.tensor([-(2.0**-150)], dtype=torch.float64)
"""The key of -0.0, whose reciprocal is negative: between 0 and the first float32 below it."""


def for_each_tied(tied: Tensor, steps: int, body: Callable[..., tuple[Tensor, ...]], *state: Tensor) -> Any:
    """Run ``body(row, step, *state)`` for so many steps of each tied image: in Python, or as a loop of a graph."""
    rows, count = (~tied).to(torch.int32).argsort(), tied.sum() * steps  # those that are tied before the others

    def more(at: Tensor, *state: Tensor) -> Tensor:
        return at < count

    def advance(at: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        return at + 1, *body(rows.index_select(0, at[None] // steps), at[None] % steps, *state)

    whole: tuple[Tensor, ...] = torch.zeros((), dtype=torch.int64, device=tied.device), *state
    if is_traced():
        from torch._higher_order_ops.while_loop import while_loop

        if not torch.compiler.is_dynamo_compiling():  # what an export before this one compiled is of other sizes
            torch._dynamo.reset_code_caches()
        return while_loop(more, advance, whole)[1:]
    while bool(more(*whole)):
        whole = advance(*whole)
    return whole[1:]


def ordered_bits(image: Tensor) -> Tensor:
    """Map pixels to int64 keys that order as the values do and tell all bit patterns apart (-0.0 < 0.0)."""
    if not image.is_floating_point():
        return image.to(torch.int64)
    kind = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[image.element_size()]
    bits = image.contiguous().view(kind)
    return torch.where(bits < 0, bits ^ torch.iinfo(kind).max, bits).to(torch.int64)


def restored_keys(pixels: Tensor) -> Tensor:
    """Return keys that order as :func:`ordered_bits` does, in operations that graphs of float32 images have."""
    if not is_traced():
        return ordered_bits(pixels)
    return torch.where((pixels == 0) & (pixels.reciprocal() < 0), MINUS_ZERO, pixels.to(torch.float64))


def choose(
    scores: Scores,
    looks: Callable[[], Tensor],
    settle: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Choose one of all copies and positions of each image.

    Args:
        scores: int64 ``(batch, copies, *positions)``, or the terms along each axis of which these are the sums.
        looks: Returns the arrays to compare where positions tie, ``(batch, copies, channel, *positions)``: undone
            by a position, a copy is what is restored. Called only where something ties.
        settle: From ranks ``(batch, n)`` of the looks, the highest scores ``(batch, copies * positions)`` and
            ``tied`` to an order among copies and positions. Default: the ranks themselves.

    Returns:
        The flat index of the choice, int64 ``(batch,)``, and whether several had the highest score, bool ``(batch,)``.
    """
    along = terms(scores)
    if not along[0].shape[0]:
        return along[0].new_zeros(0), along[0].new_zeros(0, dtype=torch.bool)
    # A sum is highest where all its terms are, and there only.
    best, places = [], []
    for group in along:
        top, place = group.max(2)
        best.append(group == top[:, :, None])
        places += [(one, group.shape[2]) for one in place.unbind(1)]
    index = places[0][0]
    for place, length in places[1:]:
        index = index * length + place
    if not is_traced() and all(int(one.sum()) == one.shape[0] * one.shape[1] for one in best):
        return index, torch.zeros_like(index, dtype=torch.bool)
    tied = functools.reduce(torch.logical_or, [(one.sum(2) > 1).any(1) for one in best])
    everywhere = best_of_all(best)
    ranks = rank_restored(looks(), tied)
    order = settle(ranks, everywhere, tied) if settle else ranks
    return torch.where(tied, torch.where(everywhere, order, -1).argmax(1), index), tied


def rank_restored(looks: Tensor, tied: Tensor) -> Tensor:
    """Rank, for the tied images of a batch, all restored arrays of all copies; equal arrays share a rank.

    Prefix doubling, as for suffix arrays: ranks of blocks of length 2L are ranks of pairs of blocks of length L.
    That is ``O(N log N)`` even when all N positions tie. A step takes in one more channel of each pixel or, when
    all are in, the block that follows.

    Args:
        looks: ``(batch, copies, channel, *positions)``.
        tied: bool ``(batch,)``: the images to rank; all others get zeros.

    Returns:
        int64 ``(batch, copies * positions)``: at copy ``g`` and position ``s`` (row-major) the rank of the copy
        undone by ``s``.
    """
    copies, size = looks.shape[1], tuple(looks.shape[3:])
    pixels = looks.transpose(1, 2).flatten(3).flatten(2)  # (batch, channel, copies * positions)
    channels, positions = pixels.shape[1:]
    blocks = _blocks_ahead(size)
    ranks = torch.zeros_like(pixels[:, 0], dtype=torch.int64)
    if not is_traced():
        for rows in tied.nonzero().flatten().split(max(1, BLOCK // positions)):
            own = ranks[rows]
            for channel in pixels[rows].unbind(1):
                own = _rank(own * positions + _rank(restored_keys(channel)))
            for axis, length in blocks:
                second = own.view(len(rows), copies, *size).roll(-length, 2 + axis).flatten(1)
                own = _rank(own.mul_(positions).add_(second))
            ranks[rows] = own
        return ranks
    places = torch.arange(positions).view(copies, *size)
    ahead = torch.stack([places.roll(-length, 1 + axis).flatten() for axis, length in blocks]).to(looks.device)

    def extended(row: Tensor, stage: Tensor, ranks: Tensor) -> tuple[Tensor]:
        """Take one more channel, or one more block, of an image into its ranks: a graph does both and picks."""
        own = ranks.index_select(0, row)
        block = own.index_select(1, ahead.index_select(0, (stage - channels).clamp(min=0))[0])
        channel = pixels.index_select(0, row).index_select(1, stage.clamp(max=channels - 1))[:, 0]
        second = torch.where(stage < channels, _rank(restored_keys(channel)), block)
        return (ranks.index_copy(0, row, _rank(own * positions + second)),)

    found: Tensor = for_each_tied(tied, channels + len(ahead), extended, ranks)[0]
    return found


def _blocks_ahead(size: Sequence[int]) -> list[tuple[int, int]]:
    """Return, for each step of the doubling, the axis along which the block that follows begins, and how far ahead."""
    steps = [
        (axis, min(2**k, n - 2**k))  # the last block of an axis may overlap the first
        for axis, n in reversed(list(enumerate(size)))
        for k in range((n - 1).bit_length())
    ]
    return steps or [(0, 0)]  # never empty: a step by 0 does nothing


def _rank(keys: Tensor) -> Tensor:
    """Rank each row of keys ``(rows, n)``."""
    if not is_traced() and bool((keys == keys[:, :1]).all()):
        return torch.zeros_like(keys, dtype=torch.int64)  # constant so far: nothing to sort
    values, order = keys.sort(1)
    changes = (values[:, 1:] != values[:, :-1]).to(torch.int64)
    ranks = torch.cat([torch.zeros_like(order[:, :1]), changes.cumsum(1)], 1)
    return torch.zeros_like(order).scatter(1, order, ranks)


def largest_of(keys: Callable[[Tensor, Tensor], Tensor], width: int, same: Tensor, tied: Tensor) -> Tensor:
    """Return, of the candidates ``same`` of each tied image, the one whose keys are largest, the first of equals.

    Args:
        keys: From an image's number ``(1,)`` and a candidate ``(1,)`` to its keys ``(width,)``.
        width: How many keys there are.
        same: bool ``(batch, candidates)``.
        tied: bool ``(batch,)``: for all other images the first of ``same`` is returned.
    """

    def compare(row: Tensor, candidate: Tensor, index: Tensor, champion: Tensor) -> tuple[Tensor, Tensor]:
        held = index.index_select(0, row)  # at first the first of ``same``: none is compared before it
        own = keys(row, candidate)
        first = (own != champion).to(torch.int32).argmax(0, keepdim=True)  # pixel that differs, or any
        larger = own.index_select(0, first) > champion.index_select(0, first)
        eligible = same.index_select(0, row)[0].index_select(0, candidate)
        wins = eligible & ((candidate == held) | larger)
        index = index.index_copy(0, row, torch.where(wins, candidate, held))
        return index, torch.where(wins, own, champion)

    none = torch.zeros(width, dtype=torch.float64 if is_traced() else torch.int64, device=same.device)
    index: Tensor = for_each_tied(tied, same.shape[1], compare, same.to(torch.uint8).argmax(1), none)[0]
    return index
