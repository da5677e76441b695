"""Exact sums of products, term by term: convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from unshift.exact.kernels.interface import FLOAT32, FLOAT64, Task
from unshift.exact.runtime import in_graphs
from unshift.network import full_row
from unshift.pose_network import strided_correlation
from unshift.shifts import all_shifts

LARGE = 20480  # PyTorch convolves single images of up to this many values without oneDNN


MATRIX = 2**19  # largest number of entries of a filter's matrix: 2 MB


def slice_around(images: Tensor, axis: int, start: int, end: int) -> Tensor:
    """Slice with wrap-around: ``start`` may be negative, and ``end`` larger than the size.

    >>> slice_around(torch.tensor([0, 1, 2, 3]), 0, -1, 6).tolist()
    [3, 0, 1, 2, 3, 0, 1]
    """
    n = images.shape[axis]
    inside = max(start, 0)
    cuts = ((n + min(start, 0), -min(start, 0)), (inside, min(end, n) - inside), (0, max(end - n, 0)))
    parts = [images.narrow(axis, at, length) for at, length in cuts if length]
    return torch.cat(parts, axis) if len(parts) > 1 else parts[0]


@in_graphs(lambda images: images)
def _channels_last(images: Tensor) -> Tensor:
    """Put the channels last in memory, the format of oneDNN, which would otherwise convert the images twice."""
    large = images.ndim == 4 and images.shape[1] > 1 and images.numel() > LARGE
    return images.contiguous(memory_format=torch.channels_last) if large else images


class _Direct:
    """A convolution of the image with circular padding: one product and one addition for every tap."""

    dtype: ClassVar[torch.dtype]

    def __init__(self, weight: Tensor, bias: Tensor, size: Sequence[int]) -> None:
        self.weight, self.bias = weight.to(self.dtype), bias.to(self.dtype)

    def __call__(self, images: Tensor) -> Tensor:
        for axis, taps in enumerate(self.weight.shape[2:], 2):
            if taps > 1:
                images = slice_around(images, axis, -(taps // 2), images.shape[axis] + (taps - 1) // 2)
        return (F.conv1d, F.conv2d, F.conv3d)[images.ndim - 3](images, self.weight, self.bias)

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes


class Direct32(_Direct):
    """Exact if every sum is below 2^24.

    Proof: every partial sum, in any order, is an integer of at most ``worst``, and float32 holds all integers up to
    2^24, so no addition and no product rounds.
    """

    dtype: ClassVar[torch.dtype] = torch.float32

    def __call__(self, images: Tensor) -> Tensor:
        return super().__call__(_channels_last(images))

    @staticmethod
    def is_exact(task: Task) -> bool:
        return task.worst < FLOAT32

    @staticmethod
    def cost(task: Task) -> float:
        """Vectors hold 16 numbers."""
        outputs, *rest = task.shape
        return 1 + 0.1 * outputs + 0.18 * math.prod(rest) * math.ceil(outputs / 16)


class Diagonal32:
    """One output channel along one axis: all taps times all positions, then sums along diagonals.

    A convolution with one output channel fills one lane of a vector; here the taps fill it. Exact like
    :class:`Direct32`.
    """

    dtype: ClassVar[torch.dtype] = torch.float32

    def __init__(self, weight: Tensor, bias: Tensor, size: Sequence[int]) -> None:
        self.taps = weight.to(self.dtype)[0].T[..., None].contiguous()  # (taps, in, 1)
        self.bias = bias.to(self.dtype)

    def __call__(self, images: Tensor) -> Tensor:
        taps, n = len(self.taps), images.shape[2]
        products = F.conv1d(slice_around(images, 2, -(taps // 2), n + (taps - 1) // 2), self.taps).contiguous()
        # Sum ``products[:, j, M + j]`` over the taps ``j``.
        diagonals = products.as_strided((len(images), taps, n), (products.stride(0), products.shape[2] + 1, 1))
        return diagonals.sum(1, keepdim=True).add_(self.bias)

    @property
    def nbytes(self) -> int:
        return self.taps.nbytes

    @staticmethod
    def is_exact(task: Task) -> bool:
        return task.worst < FLOAT32 and len(task.size) == 1 and task.shape[0] == 1

    @staticmethod
    def cost(task: Task) -> float:
        """A vector of 16 numbers holds 16 taps."""
        _, inputs, taps = task.shape
        return 2 + 0.18 * inputs * math.ceil(taps / 16) + 0.2 * taps


class Matrix32:
    """The circular filter as a matrix, whose row ``M`` is row 0 translated by ``M``: for small images.

    Exact if every sum is below 2^24, like :class:`Direct32`.
    """

    dtype: ClassVar[torch.dtype] = torch.float32

    def __init__(self, weight: Tensor, bias: Tensor, size: Sequence[int]) -> None:
        row, axes = full_row(weight.to(self.dtype), size), tuple(range(2, weight.ndim))
        rows = torch.stack([row.roll(shift, axes) for shift in all_shifts(tuple(size)).tolist()], 1)
        self.matrix = rows.flatten(3).flatten(2).flatten(0, 1).T.contiguous()  # (in * N, out * N)
        self.bias = bias.to(self.dtype).repeat_interleave(math.prod(size))
        self.shape = (len(weight), *size)

    def __call__(self, images: Tensor) -> Tensor:
        return torch.addmm(self.bias, images.flatten(1), self.matrix).view(-1, *self.shape)

    @property
    def nbytes(self) -> int:
        return self.matrix.nbytes

    @staticmethod
    def is_exact(task: Task) -> bool:
        outputs, inputs = task.shape[:2]
        return task.worst < FLOAT32 and inputs * outputs * math.prod(task.size) ** 2 <= MATRIX

    @staticmethod
    def cost(task: Task) -> float:
        outputs, inputs = task.shape[:2]
        return 1 + 0.012 * inputs * outputs * math.prod(task.size)


class Direct64(_Direct):
    """Exact if every sum is below 2^53: the proof of :class:`Direct32`, with float64."""

    dtype: ClassVar[torch.dtype] = torch.float64

    @staticmethod
    def is_exact(task: Task) -> bool:
        return task.worst < FLOAT64

    @staticmethod
    def cost(task: Task) -> float:
        """PyTorch multiplies by a matrix of all patches, which takes memory."""
        return 8 + math.prod(task.shape[1:]) * (2 + 0.15 * task.shape[0])


class Strided32:
    """A strided convolution without padding. Exact like :class:`Direct32`."""

    dtype: ClassVar[torch.dtype] = torch.float32

    def __init__(self, weight: Tensor, bias: Tensor, stride: int) -> None:
        self.weight, self.bias, self.stride = weight.to(self.dtype), bias.to(self.dtype), stride

    def __call__(self, images: Tensor) -> Tensor:
        return strided_correlation(_channels_last(images), self.weight, self.bias, self.stride)

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes


class Strided64(Strided32):
    """The same in float64: exact like :class:`Direct64`."""

    dtype: ClassVar[torch.dtype] = torch.float64
