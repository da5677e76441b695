"""The choice of a shift, and its confidence, as plain tensor operations: :mod:`unshift.exact` for any runtime.

The tie rule is a loop over the tied images of a batch, as in ``exact.choose``, but one that is part of the graph:
where nothing ties it runs zero times. Its body is one step of the ranking of one image, and has fixed shapes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch._higher_order_ops.while_loop import while_loop

from unshift.exact import FRACTION, TABLE


class Keys(nn.Module):
    """Map float32 to float64 keys that order as the values do and tell 0.0 from -0.0, whose reciprocal is negative."""

    below_zero: Tensor

    def __init__(self) -> None:
        super().__init__()
        # Between 0 and the first float32 below it. A buffer: exporters write plain numbers as float32.
        self.register_buffer("below_zero", torch.tensor([-(2.0**-150)], dtype=torch.float64))

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the keys, of the shape of ``pixels``."""
        return torch.where((pixels == 0) & (pixels.reciprocal() < 0), self.below_zero, pixels.to(torch.float64))


class Ties(nn.Module):
    """Which positions have the highest score, and the rank among them of the images that they restore to."""

    ahead: Tensor

    def __init__(self, size: Sequence[int]) -> None:
        super().__init__()
        self.keys = Keys()
        # Prefix doubling, as in exact.rank_restored: at each step a block is paired with the one that follows it.
        places = torch.arange(math.prod(size)).view(tuple(size))
        steps = [
            places.roll(-min(2**k, n - 2**k), axis).flatten()  # the last block of an axis may overlap the first
            for axis, n in reversed(list(enumerate(size)))
            for k in range((n - 1).bit_length())
        ]
        self.register_buffer("ahead", torch.stack([*steps, places.flatten()]))  # never empty: a step by 0 does nothing

    def forward(self, scores: Tensor, canvas: Tensor) -> tuple[Tensor, Tensor]:
        """Return ranks, int64 ``(batch, positions)`` with -1 at those that are not highest, and bool ``(batch,)``."""
        flat = scores.flatten(1)
        best = flat == flat.amax(1, keepdim=True)
        tied = best.sum(1) > 1
        pixels = canvas.flatten(2)
        rows = tied_first(tied)
        channels, positions = pixels.shape[1:]
        steps = channels + len(self.ahead)
        count = tied.sum() * steps

        def more(step: Tensor, ranks: Tensor) -> Tensor:
            return step < count

        def advance(step: Tensor, ranks: Tensor) -> tuple[Tensor, Tensor]:
            """Take in one more channel of each pixel or, when all are in, the block that follows."""
            row = rows.index_select(0, step[None] // steps)
            stage = step[None] % steps
            own = ranks.index_select(0, row)[0]
            channel = pixels.index_select(0, row)[0].index_select(0, stage.clamp(max=channels - 1))[0]
            follows = own.index_select(0, self.ahead.index_select(0, (stage - channels).clamp(min=0))[0])
            second = torch.where(stage < channels, _rank(self.keys(channel)), follows)
            return step + 1, ranks.index_copy(0, row, _rank(own * positions + second)[None])

        start = torch.zeros((), dtype=torch.int64), torch.zeros_like(flat)
        return torch.where(best, while_loop(more, advance, start)[1], -1), tied


def tied_first(tied: Tensor) -> Tensor:
    """Return the numbers of all images of a batch, those that are tied before the others."""
    return (~tied).to(torch.int32).argsort()


def _rank(keys: Tensor) -> Tensor:
    values, order = keys.sort()
    changes = (values[1:] != values[:-1]).to(torch.int64)
    ranks = torch.cat([torch.zeros(1, dtype=torch.int64), changes.cumsum(0)])
    return torch.zeros_like(order).scatter(0, order, ranks)


def unravel(index: Tensor, size: Sequence[int]) -> Tensor:
    """Turn flat indices ``(batch,)`` into shifts ``(batch, d)``."""
    shift: list[Tensor] = []
    for n in reversed(size):
        shift.insert(0, index % n)
        index = index // n
    return torch.stack(shift, 1)


class Confidence(nn.Module):
    """Scores to the softmax probability of the highest: ``exact.confidence`` with a table of one factor of two."""

    steps: Tensor
    fraction: Tensor
    power: Tensor
    coarse: Tensor

    def __init__(self, score_unit: float, positions: int) -> None:
        super().__init__()
        self.register_buffer("steps", torch.tensor([score_unit / math.log(2) * FRACTION], dtype=torch.float64))
        self.register_buffer("fraction", torch.exp2(-torch.arange(FRACTION, dtype=torch.float64) / FRACTION))
        self.register_buffer("power", 2.0 ** torch.arange(40, -2, -1, dtype=torch.float64))
        self.register_buffer("coarse", torch.tensor([2.0 ** max(0, (positions - 1).bit_length() - 22)]).double())
        assert torch.equal((self.power[:-1, None] * self.fraction).round().flatten().to(torch.int64), TABLE)

    def forward(self, scores: Tensor) -> Tensor:
        """Return float64 ``(batch,)``."""
        flat = scores.flatten(1)
        below = (flat.amax(1, keepdim=True) - flat).to(torch.float64)
        index = (below * self.steps).clamp(max=len(TABLE)).to(torch.int64)
        whole = index // FRACTION
        terms = (self.power[whole] * self.fraction[index - whole * FRACTION]).round()
        terms = torch.where(index < len(TABLE), torch.floor(terms / self.coarse), 0.0)
        total = terms.to(torch.int64).sum(1).to(torch.float64)
        return torch.floor(self.power[:1] / self.coarse) / total
