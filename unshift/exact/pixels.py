"""Pixels to integers, each by itself: one multiplication, one rounding, one clamp."""

from __future__ import annotations

import torch
from torch import Tensor

from unshift.estimator import as_float

__all__ = ["PixelScale"]


class PixelScale:
    """How pixels become integers.

    Args:
        scale: What one is worth.
        largest: Where integers end, either way.
    """

    def __init__(self, scale: float, largest: int) -> None:
        self.scale, self.largest, self.of_bytes = scale, largest, None
        # Bytes are divided by 255 first. Where one multiplication gives all 256 of them the same integers, it will do.
        every = torch.arange(256, dtype=torch.uint8)
        quick = every.to(torch.float32).mul_(scale / 255).round_()
        self.of_bytes = scale / 255 if torch.equal(quick, self(every)) else None

    def __call__(self, images: Tensor) -> Tensor:
        """Return integers as float32, in the order in memory that the images have."""
        if images.dtype == torch.uint8 and self.of_bytes is not None:
            return images.to(torch.float32).mul_(self.of_bytes).round_()
        return (as_float(images) * self.scale).round_().clamp_(-self.largest, self.largest)
