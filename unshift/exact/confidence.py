"""The confidence: a softmax in fixed-point integers, because a float sum would depend on the shift of the image."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from unshift.exact.runtime import in_graphs

FRACTION = 1024  # steps of the table per factor of two
DEPTH = 41  # range of the table in factors of two: a term below 2^-41 of the highest counts as 0
BLOCK = 2**16  # scores per block: the temporaries of a block stay in a core's cache

_POWERS = 2.0 ** torch.arange(DEPTH - 1, -1, -1, dtype=torch.float64)[:, None]
_PARTS = torch.exp2(-torch.arange(FRACTION, dtype=torch.float64) / FRACTION)
TABLE = torch.cat([(_POWERS * _PARTS).round().flatten(), torch.zeros(1, dtype=torch.float64)]).to(torch.int64)
"""``2^(40 - t)`` for distances ``t`` from the highest score, in factors of two, in steps of 1/1024; and a final 0."""


def softmax_of_highest(scores: Tensor, score_unit: float) -> Tensor:
    """Return the softmax probability of the highest of each row of scores, int64 ``(batch, n)``: float64 ``(batch,)``.

    It is the same for every order of a row. One integer step of a score is worth ``score_unit`` nats as a logit.
    """
    n = scores.shape[1]
    # A tensor: torch.export would round a Python float to float32.
    step = torch.tensor([score_unit / math.log(2) * FRACTION], dtype=torch.float64, device=scores.device)
    # n terms of up to 2^40 must fit in 63 bits, so large maps drop low bits of each.
    dropped = max(0, (n - 1).bit_length() - 22)
    table = (TABLE >> dropped if dropped else TABLE).to(scores.device)
    # Subtracted as floats, because a foreign scorer's scores may be more than 2^63 apart. All of this is pointwise.
    top = scores.amax(1, keepdim=True).to(torch.float64)
    steps = (((top - block) * step).clamp_(max=DEPTH * FRACTION).to(torch.int64) for block in _blocks(scores))
    total = functools.reduce(torch.add, (table.take(index).sum(1) for index in steps))
    return table[0].to(torch.float64) / total


@in_graphs(lambda scores: (scores,))
def _blocks(scores: Tensor) -> Sequence[Tensor]:
    n = scores.shape[1]
    return scores.split(max(1, BLOCK * n // scores.numel()), 1) if scores.numel() > BLOCK else (scores,)


class Curve(nn.Module):
    """A rising, piecewise linear curve from confidence to the probability of being right, from (0, 0) to (1, 1).

    The knots between the ends are pairs of whole numbers, both rising, in steps of ``1 / Curve.WHOLE``. The curve keeps
    the order of images. Its values take operations in float64 that every runtime rounds alike.

    >>> Curve([(Curve.WHOLE // 2, Curve.WHOLE // 4)])(torch.tensor([0.25, 0.5, 1.0], dtype=torch.float64)).tolist()
    [0.125, 0.25, 1.0]
    """

    WHOLE = 2**30  # the integer that stands for 1 in a knot
    given: Tensor
    right: Tensor

    def __init__(self, knots: Sequence[Sequence[int]]) -> None:
        super().__init__()
        pairs = [(0, 0), *((given, right) for given, right in knots), (self.WHOLE, self.WHOLE)]
        for name, values in zip(("given", "right"), zip(*pairs, strict=True), strict=True):
            whole = all(type(value) is int for value in values)
            if not whole or any(low >= high for low, high in itertools.pairwise(values)):
                raise ValueError(f"the knots of a curve must be whole numbers that rise from 0 to {self.WHOLE}")
            # Integers, which .half() leaves alone. The file's header stores them, not its tensors.
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
        return torch.clamp(y[at] + share * (y[at + 1] - y[at]), 0.0, 1.0)  # rounding may exceed an end by one bit
