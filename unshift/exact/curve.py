"""From the confidence to a probability: a curve, looked up and straight between its knots, so exact like all else."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["Curve"]


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
