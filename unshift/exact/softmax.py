"""The confidence: a softmax in fixed-point integers, because a float sum would depend on where the image stands.

A curve, looked up and straight between its knots, makes a probability of it: as exact as all else.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from unshift.exact.lines import Scores, terms
from unshift.exact.task import is_traced

__all__ = ["Curve", "confidence"]

FRACTION = 1024  # steps of the exponential's table per factor of two
DEPTH = 41  # factors of two down to which a score counts; anything below 2^-41 of the highest counts as nothing
BLOCK = 2**16  # scores at a time: what stays in a core's cache

_POWERS = 2.0 ** torch.arange(DEPTH - 1, -1, -1, dtype=torch.float64)[:, None]
_PARTS = torch.exp2(-torch.arange(FRACTION, dtype=torch.float64) / FRACTION)
TABLE = torch.cat([(_POWERS * _PARTS).round().flatten(), torch.zeros(1, dtype=torch.float64)]).to(torch.int64)
"""``2^(40 - t)`` for t in steps of 1/1024, and a 0 at the end."""


def confidence(scores: Scores, score_unit: float) -> Tensor:
    """Return the softmax probability of the highest score, the same for every shift to the last bit.

    A float softmax would add up its terms in the order the input came in. Here each term is an integer from a
    table of ``2^(40 - t)``, whose exact sum has no order. The softmax of a sum is the product of the softmaxes.

    Args:
        scores: int64 ``(batch, ...)``, or the terms along each axis of which these are the sums.
        score_unit: What one integer step of the scores is worth as a logit, in nats.

    Returns:
        float64 ``(batch,)`` in (0, 1].
    """
    each = [one for group in terms(scores) for one in _highest(group, score_unit).unbind(-1)]
    return functools.reduce(torch.mul, each)


def _highest(scores: Tensor, score_unit: float) -> Tensor:
    """Return the softmax probability of the highest of each row ``(..., n)``."""
    n = scores.shape[-1]
    step: Any = score_unit / math.log(2) * FRACTION
    if is_traced():  # a graph would round a number to float32
        step = torch.tensor([step], dtype=torch.float64, device=scores.device)
    # N terms of up to 2^40 must fit in 63 bits: large maps give up low bits of each.
    dropped = max(0, (n - 1).bit_length() - 22)
    table = (TABLE >> dropped if dropped else TABLE).to(scores.device)
    # As floats before they are subtracted: a foreign scorer's may be more than 2^63 apart. Then one
    # multiplication and one cut, all pointwise; the last entry of the table is 0.
    top = scores.amax(-1, keepdim=True).to(torch.float64)
    whole = is_traced() or scores.numel() <= BLOCK
    parts = (scores,) if whole else scores.split(max(1, BLOCK * n // scores.numel()), -1)
    indices = ((top - part).mul_(step).clamp_(max=DEPTH * FRACTION).to(torch.int64) for part in parts)
    totals = [table.take(index).sum(-1) for index in indices]
    return table[0].to(torch.float64) / functools.reduce(torch.add, totals)


class Curve(nn.Module):
    """A rising curve from confidence to the probability of being right, from (0, 0) to (1, 1).

    A curve that rises keeps the order of images, and what it is applied to is the same for every move, to the last bit.
    What it does to that is one comparison with each knot and four operations in float64, which are rounded alike in
    every runtime.

    Args:
        knots: Pairs of confidence and probability between the ends, both in steps of ``1 / Curve.WHOLE``, both rising.

    Raises:
        ValueError: If they do not rise, or are not whole numbers between the ends.

    >>> Curve([(Curve.WHOLE // 2, Curve.WHOLE // 4)])(torch.tensor([0.25, 0.5, 1.0], dtype=torch.float64)).tolist()
    [0.125, 0.25, 1.0]
    """

    WHOLE = 2**30
    """What stands for 1 in a knot: knots are integers, and the same in every file and runtime."""
    given: Tensor
    right: Tensor

    def __init__(self, knots: Sequence[Sequence[int]]) -> None:
        super().__init__()
        pairs = [(0, 0), *((given, right) for given, right in knots), (self.WHOLE, self.WHOLE)]
        for name, values in zip(("given", "right"), zip(*pairs, strict=True), strict=True):
            whole = all(type(value) is int for value in values)
            if not whole or any(low >= high for low, high in itertools.pairwise(values)):
                raise ValueError(f"the knots of a curve must be whole numbers that rise from 0 to {self.WHOLE}")
            # Integers, which .half() leaves alone; described by the file's header, not among its tensors.
            self.register_buffer(name, torch.tensor(values), persistent=False)

    def describe(self) -> list[list[int]]:
        """Return the knots as plain data: ``Curve(curve.describe())`` rebuilds it."""
        pairs: list[list[int]] = torch.stack([self.given, self.right], 1).tolist()
        return pairs[1:-1]

    def forward(self, confidence: Tensor) -> Tensor:
        """Return the probabilities of confidences ``(batch,)`` in [0, 1], float64."""
        x, y = (knots.to(torch.float64) / self.WHOLE for knots in (self.given, self.right))
        at = (confidence[:, None] >= x[1:-1]).sum(1)
        share = (confidence - x[at]) / (x[at + 1] - x[at])
        return torch.clamp(y[at] + share * (y[at + 1] - y[at]), 0.0, 1.0)  # rounding may pass an end by a bit
