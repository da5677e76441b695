"""What a net of lines needs: sums along each axis that become means, and scores that are a sum of one term for each.

A net of lines scores ``f(row) + g(column)``. Its highest score is where both are highest, and the softmax of a sum is
the product of the softmaxes. So neither the choice nor the confidence needs the map, whose size is the image's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from unshift.estimator import add_lines
from unshift.exact.filters import floor_divide
from unshift.exact.task import FLOAT32, FLOAT64

__all__ = ["LineRule", "Scores", "best_of_all", "score_map", "terms"]


class LineRule(NamedTuple):
    """How the sums along one axis become means that fit the next layer: multiplied, divided, rounded down."""

    added: torch.dtype
    """what holds the sums: the smaller of the two if it can, as adding them up is most of the work"""
    kind: torch.dtype
    """what holds them multiplied"""
    times: int
    divisor: Tensor
    """of each channel ``(channel, 1)``, in that kind"""

    @classmethod
    def at(
        cls, axis: int, size: tuple[int, ...], calibrated: tuple[int, ...] | None, divisor: Tensor, largest: int
    ) -> LineRule:
        """Return the rule for sums along ``axis`` of images of ``size``, whose terms are up to ``largest``.

        At the calibrated size that is the divisor itself. Where a line has ``c`` pixels instead of ``c0``, its sums are
        ``c / c0`` times as large: multiplied by ``c0`` and divided by ``c`` times the divisor they are means alike.

        Raises:
            ValueError: If such sums could not be held exactly.
        """
        divisor, times = divisor.to(torch.float64).view(-1, 1), 1
        if calibrated is not None and size != calibrated:
            wanted, found = (math.prod(n) // n[axis] for n in (calibrated, size))
            common = math.gcd(wanted, found)
            times, divisor = wanted // common, divisor * (found // common)
        alone = largest * math.prod(size) // size[axis]
        most, added = alone * times, torch.float64 if alone >= FLOAT32 else torch.float32
        if most >= FLOAT64 // 2:
            raise ValueError(f"images of size {size} are too large for a net calibrated at {calibrated}")
        if most >= FLOAT32:
            return cls(added, torch.float64, times, divisor)
        # No sum reaches 2^24, so dividing by that or by more is the same.
        return cls(added, torch.float32, times, divisor.clamp(max=FLOAT32).to(torch.float32))

    def sums(self, features: Tensor, over: list[int]) -> Tensor:
        """Sum features over all these axes, exactly: ``(batch, channel, n)``."""
        if not over:
            return features.to(self.added)
        if features.is_contiguous():
            return features.sum(over, dtype=self.added)
        # In memory the channels come last (exact.direct): sums in that order are quick.
        return features.movedim(1, -1).sum([at - 1 for at in over], dtype=self.added).movedim(-1, 1)

    def means(self, sums: Tensor, largest: int) -> Tensor:
        """Divide line sums so that they fit the next layer, whose integers go up to ``largest``."""
        sums = sums.to(self.kind)
        return floor_divide(sums if self.times == 1 else sums * self.times, self.divisor, largest)


Scores = Tensor | tuple[Tensor, ...]
"""int64 ``(batch, copies, *positions)``; or the terms of which these are the sums, ``(batch, axes, n)`` for all axes of
one length together: what a net of lines says of one copy of each image."""


def terms(scores: Scores) -> tuple[Tensor, ...]:
    """Return the terms ``(batch, terms, n)`` of which every score has one each: of a map, that is the map alone."""
    return (scores.flatten(1)[:, None],) if isinstance(scores, Tensor) else scores


def score_map(scores: Scores) -> Tensor:
    """Return the scores of all positions, ``(batch, *positions)``, with the copies before them if there are several."""
    if isinstance(scores, Tensor):
        return scores.squeeze(1) if scores.shape[1] == 1 else scores
    return add_lines([term for group in scores for term in group.unbind(1)])


def best_of_all(best: Sequence[Tensor]) -> Tensor:
    """Return which positions ``(batch, all)`` are best in every term, from which are in each (:func:`terms`)."""
    each = [one for group in best for one in group.unbind(1)]
    return functools.reduce(lambda one, other: torch.logical_and(one[:, :, None], other[:, None]).flatten(1), each)
