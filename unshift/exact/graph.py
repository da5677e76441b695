"""The tie rule in operations that captured graphs have: the same results as :mod:`unshift.exact.choice`.

A graph cannot select the tied images of a batch, because their number depends on values. It loops over them instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from unshift.exact.runtime import while_loop

MINUS_ZERO = torch.tensor([-(2.0**-150)], dtype=torch.float64)
"""The key of -0.0: between 0 and the first float32 below it."""


def restored_keys(pixels: Tensor) -> Tensor:
    """Return float64 keys that order float32 pixels as ``ordered_bits`` does. The reciprocal detects -0.0."""
    return torch.where((pixels == 0) & (pixels.reciprocal() < 0), MINUS_ZERO, pixels.to(torch.float64))


def rank(keys: Tensor) -> Tensor:
    """Replace each key by its rank within its row ``(rows, n)``."""
    values, order = keys.sort(1)
    changes = (values[:, 1:] != values[:, :-1]).to(torch.int64)
    ranks = torch.cat([torch.zeros_like(order[:, :1]), changes.cumsum(1)], 1)
    return torch.zeros_like(order).scatter(1, order, ranks)


def rank_restored(copies: Sequence[Tensor], tied: Tensor) -> Tensor:
    """See :func:`unshift.exact.choice.rank_restored`. Each step computes two kinds of keys and selects one."""
    from unshift.exact.choice import doubling_steps

    count, size = len(copies), tuple(copies[0].shape[2:])
    pixels = torch.cat([copy.flatten(2) for copy in copies], 2)
    channels, candidates = pixels.shape[1:]
    steps = doubling_steps(size) or [(0, 0)]  # a step by 0 changes nothing
    places = torch.arange(candidates).view(count, *size)
    ahead = torch.stack([places.roll(-length, 1 + axis).flatten() for axis, length in steps]).to(pixels.device)

    def extend(row: Tensor, step: Tensor, ranks: Tensor) -> tuple[Tensor]:
        own = ranks.index_select(0, row)
        block = own.index_select(1, ahead.index_select(0, (step - channels).clamp(min=0))[0])
        channel = pixels.index_select(0, row).index_select(1, step.clamp(max=channels - 1))[:, 0]
        second = torch.where(step < channels, rank(restored_keys(channel)), block)
        return (ranks.index_copy(0, row, rank(own * candidates + second)),)

    ranks: Tensor = _for_each_tied(
        tied, channels + len(ahead), extend, torch.zeros_like(pixels[:, 0], dtype=torch.int64)
    )[0]
    return ranks


def largest(restored: Callable[[Tensor, Tensor], Tensor], count: int, among: Tensor, tied: Tensor) -> Tensor:
    """See :func:`unshift.exact.choice.largest`."""

    def compare(row: Tensor, candidate: Tensor, index: Tensor, champion: Tensor) -> tuple[Tensor, Tensor]:
        held = index.index_select(0, row)  # initially the first of ``among``
        own = restored_keys(restored(row, candidate).flatten())
        first = (own != champion).to(torch.int32).argmax(0, keepdim=True)  # the first pixel that differs, if any
        larger = own.index_select(0, first) > champion.index_select(0, first)
        eligible = among.index_select(0, row)[0].index_select(0, candidate)
        wins = eligible & ((candidate == held) | larger)
        index = index.index_copy(0, row, torch.where(wins, candidate, held))
        return index, torch.where(wins, own, champion)

    start = among.to(torch.uint8).argmax(1), torch.zeros(count, dtype=torch.float64, device=among.device)
    index: Tensor = _for_each_tied(tied, among.shape[1], compare, *start)[0]
    return index


def _for_each_tied(tied: Tensor, steps: int, body: Callable[..., tuple[Tensor, ...]], *state: Tensor) -> Any:
    """Run ``body(row, step, *state)`` for ``steps`` steps of each tied image, as a loop of the graph."""
    rows, count = (~tied).to(torch.int32).argsort(), tied.sum() * steps  # the tied images first

    def more(at: Tensor, *state: Tensor) -> Tensor:
        return at < count

    def advance(at: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        return at + 1, *body(rows.index_select(0, at[None] // steps), at[None] % steps, *state)

    return while_loop(more, advance, (torch.zeros((), dtype=torch.int64, device=tied.device), *state))[1:]
