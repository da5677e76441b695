"""Exact sums of products, term by term: convolutions."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from unshift.exact.task import FLOAT32, FLOAT64, Task

__all__ = ["Direct32", "Direct64", "between"]

SMALL = 20480
"""Numbers of a single image up to which PyTorch takes a matrix product, for which channels stand first."""


def convolve(images: Tensor, *filters: Any) -> Tensor:
    """Convolve along as many axes as there are."""
    return (F.conv1d, F.conv2d, F.conv3d)[images.ndim - 3](images, *filters)


def between(images: Tensor, axis: int, start: int, end: int) -> Tensor:
    """Cut out what lies from ``start`` to ``end``, either of which may lie past the ends: the image goes round."""
    n, first = images.shape[axis], max(start, 0)
    cuts = ((n + min(start, 0), -min(start, 0)), (first, min(end, n) - first), (0, max(end - n, 0)))
    parts = [images.narrow(axis, at, length) for at, length in cuts if length]
    return torch.cat(parts, axis) if len(parts) > 1 else parts[0]


class _Direct:
    """A convolution of the image on a margin of itself: one product and sum for every tap."""

    dtype: ClassVar[torch.dtype]

    def __init__(self, weight: Tensor, task: Task) -> None:
        self.weight = weight.to(self.dtype)
        # Outside of graphs float32 has its channels last in memory: so does oneDNN, which else copies there and back.
        self.last = self.dtype == torch.float32 and not task.traced
        self.groups = task.parts
        self.one, self.around = (1, weight.shape[1], *task.size), None
        if math.prod(self.one) <= SMALL and not (task.traced or task.strips):
            places = torch.arange(math.prod(self.one), device=weight.device).view(self.one)
            self.around = self._wrapped(places, margin=False)
        own = zip(range(self.groups), self.weight.chunk(self.groups), strict=True)
        weight = torch.cat([part.chunk(self.groups, 1)[at] for at, part in own])
        self.folded = {fold: _channels_last(_folded(weight, fold)) for fold in {1, task.fold} if self.last}

    def divide(self, power: int) -> None:
        """Give sums divided by a power of two from now on: as exact as before, since only exponents change."""
        self.weight = self.weight / power
        self.folded = {fold: weight / power for fold, weight in self.folded.items()}

    def __call__(self, images: Tensor, margin: bool, bias: Tensor | None = None) -> Tensor:
        if self.around is not None and images.shape == self.one:  # one pick instead of many cuts
            return convolve(images.take(self.around), self.weight, bias)
        last = self.last and (images.shape[0] > 1 or images.numel() > SMALL)
        line = last and images.ndim == 3  # a row of an image: such memory is for two axes or three
        images = self._wrapped(images[:, :, None] if line else images, margin, line)
        if not last:
            return convolve(images, self.weight, bias)
        width = images.shape[-1] - self.weight.shape[-1] + 1
        fold = max(fold for fold in self.folded if width % fold == 0)
        stride = (*[1] * (images.ndim - 3), fold)
        repeated = bias if bias is None or fold == 1 else bias.repeat(fold)
        sums = convolve(_channels_last(images), self.folded[fold], repeated, stride, 0, 1, self.groups).movedim(1, -1)
        sums = sums.reshape(*sums.shape[:-2], width, -1).movedim(-1, 1)  # one behind the other, as they are in memory
        return sums[:, :, 0] if line else sums

    def _wrapped(self, images: Tensor, margin: bool, line: bool = False) -> Tensor:
        """Put images on a margin of themselves, but for the one that they bring."""
        for axis, taps in enumerate(self.weight.shape[2:], 2 + line):
            if taps > 1 and not (margin and axis == 2 + line):
                images = between(images, axis, -(taps // 2), images.shape[axis] + (taps - 1) // 2)
        return images


def _folded(weight: Tensor, fold: int) -> Tensor:
    """Return filters that make ``fold`` neighbours along the last axis at once, each as channels of its own."""
    weight = weight[:, :, None] if weight.ndim == 3 else weight
    return torch.cat([F.pad(weight, (at, fold - 1 - at)) for at in range(fold)])


def _channels_last(images: Tensor) -> Tensor:
    """Put the channels last in memory, and show it: of one channel, PyTorch cannot tell."""
    planes = images.movedim(1, -1)
    return planes.reshape(-1).view(planes.shape).movedim(-1, 1)


class Direct32(_Direct):
    """Exact where every sum is below 2^24: float32 holds all integers up to there, in whatever order they add up."""

    dtype: ClassVar[torch.dtype] = torch.float32
    bytes: ClassVar[int] = 4

    @staticmethod
    def holds(task: Task) -> bool:
        return task.worst < FLOAT32

    @staticmethod
    def cost(task: Task) -> float:
        """Vectors of products, dearer where a row has few of them, and what is written."""
        rows = task.shape[1] // task.parts * math.prod(task.shape[2:-1])
        few = 1 + 4 * task.fold / task.size[-1]
        return 1 + 0.1 * task.shape[0] + 0.18 * rows * task.vectors(task.fold) * few


class Direct64(_Direct):
    """Exact where every sum is below 2^53, as in float32 below 2^24."""

    dtype: ClassVar[torch.dtype] = torch.float64
    bytes: ClassVar[int] = 16

    @staticmethod
    def holds(task: Task) -> bool:
        return task.worst < FLOAT64

    @staticmethod
    def cost(task: Task) -> float:
        """Through a matrix of all patches: memory is what it costs."""
        return 8 + math.prod(task.shape[1:]) * (2 + 0.15 * task.shape[0])
