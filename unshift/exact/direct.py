"""Exact sums of products, term by term: convolutions."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from unshift.exact.task import FLOAT32, FLOAT64, Task

__all__ = ["Direct32", "Direct64", "rows_between"]


def wrap(images: Tensor, axis: int, before: int, after: int) -> Tensor:
    """Continue ``images`` circularly along ``axis``, in operations that every runtime has."""
    n = images.shape[axis]
    ends = (images.narrow(axis, n - before, before), images, images.narrow(axis, 0, after))
    parts = [part for part in ends if part.shape[axis]]
    return torch.cat(parts, axis) if len(parts) > 1 else images


def rows_between(images: Tensor, start: int, end: int) -> Tensor:
    """Return the rows from ``start`` to ``end``, which may lie past the ends: a view, but for what goes round."""
    n = images.shape[2]
    ends = (images[:, :, n + min(start, 0) :], images[:, :, max(start, 0) : end], images[:, :, : max(end - n, 0)])
    parts = [part for part in ends if part.shape[2]]
    return torch.cat(parts, 2) if len(parts) > 1 else parts[0]


class _Direct:
    """A convolution of the image on a margin of itself: one product and sum for every tap."""

    dtype: ClassVar[torch.dtype]

    def __init__(self, weight: Tensor, task: Task) -> None:
        # Outside of graphs float32 has its channels last in memory: so does oneDNN, which else copies there and back.
        self.last = self.dtype == torch.float32 and not task.traced
        self.line = self.last and weight.ndim == 3  # such memory is for two axes or three
        self.weight = self._arranged(weight.to(self.dtype))

    def _arranged(self, images: Tensor) -> Tensor:
        if self.line:
            images = images[:, :, None]
        kind = torch.channels_last if images.ndim == 4 else torch.channels_last_3d
        return images.contiguous(memory_format=kind) if self.last else images

    def __call__(self, images: Tensor, margin: bool, bias: Tensor | None = None) -> Tensor:
        """See :class:`Kernel`."""
        images = self._arranged(images)
        for axis, taps in enumerate(self.weight.shape[2:], 2):
            if taps > 1 and not (margin and axis == 2 + self.line):
                images = wrap(images, axis, taps // 2, taps - 1 - taps // 2)
        sums = (F.conv1d, F.conv2d, F.conv3d)[self.weight.ndim - 3](images, self.weight, bias)
        return sums[:, :, 0] if self.line else sums


class Direct32(_Direct):
    """Exact where every sum is below 2^24: float32 holds all integers up to there, in whatever order they add up."""

    dtype: ClassVar[torch.dtype] = torch.float32
    traced: ClassVar[bool] = True
    bytes: ClassVar[int] = 4

    @staticmethod
    def holds(task: Task) -> bool:
        """See the class."""
        return task.worst < FLOAT32

    @staticmethod
    def cost(task: Task) -> float:
        """Few channels leave the vector units half empty."""
        outputs, inputs = task.shape[:2]
        return 10 + 0.03 * task.taps * max(inputs, 2) * max(outputs, 8)


class Direct64(_Direct):
    """Exact where every sum is below 2^53, as in float32 below 2^24."""

    dtype: ClassVar[torch.dtype] = torch.float64
    traced: ClassVar[bool] = False
    bytes: ClassVar[int] = 16

    @staticmethod
    def holds(task: Task) -> bool:
        """See the class."""
        return task.worst < FLOAT64

    @staticmethod
    def cost(task: Task) -> float:
        """Through a matrix of all patches: memory is what it costs."""
        outputs, inputs = task.shape[:2]
        return 8 + task.taps * inputs * (2 + 0.15 * outputs)
