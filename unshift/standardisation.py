"""Pixels of mean 0 and deviation 1 to train on, and a network that takes pixels as they are once it is trained."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from unshift.estimator import ShiftEstimator

__all__ = ["Standard"]


class Standard:
    """The mean of each channel that the first filter of a network sees, and one deviation for all.

    Args:
        canvases: Pixels as floats, ``(n, channel, *positions)`` each: in parts, since images may be many.
        estimator: The network to train. Its first filter must have a bias.

    Raises:
        ValueError: If it has none.
    """

    def __init__(self, canvases: Iterable[Tensor], estimator: ShiftEstimator) -> None:
        first: Any = estimator.local[0]
        if first.filter.bias is None:
            raise ValueError(
                "standardise folds the mean into the first bias, and this network has none; make it with bias=True"
            )
        channels = math.prod(estimator.across) * first.filter.weight.shape[1]
        count, total, square = 0, torch.zeros(channels).double(), torch.zeros(channels).double()
        for canvas in canvases:
            wide = canvas.double().transpose(0, 1).flatten(1)
            count += wide.shape[1]
            total += wide.sum(1)
            square += wide.square().sum(1)
        seen = first.filter.weight.shape[1]  # axes across come as channels, but the filter sees them as axes
        mean, square = ((part / count).view(seen, -1).mean(1) for part in (total, square))
        self.mean: Tensor = mean.float()
        self.deviation: Tensor = (square - mean.square()).mean().clamp(min=1e-12).sqrt().view(1).float()

    def __call__(self, pixels: Tensor) -> Tensor:
        """Return the pixels with mean 0 and deviation 1."""
        mean = self.mean.repeat_interleave(pixels.shape[1] // len(self.mean))
        return (pixels - mean.view(1, -1, *[1] * (pixels.ndim - 2))) / self.deviation

    @torch.no_grad()
    def fold(self, estimator: ShiftEstimator) -> None:
        """Make the network take images as they are: W (x - m)/d + b is (W/d) x + (b - (W/d) m)."""
        first: Any = estimator.local[0].filter
        first.weight /= self.deviation.to(first.weight.device)
        first.bias -= first.weight.flatten(2).sum(2) @ self.mean.to(first.weight.device)
