"""The interface of a kernel: a way to compute exact sums of integers in floating point.

Notation of the proofs: images hold integers up to ``L``; ``worst`` is the largest absolute value that any sum can
reach: ``L`` times the L1 norm of a filter over all its inputs, plus its bias; ``u = 2^-53``; ``N`` is the number of
pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

FLOAT32 = 2**24  # float32 holds every integer up to this
FLOAT64 = 2**53  # float64 holds every integer up to this


class Task(NamedTuple):
    """Filters of a shape, on images of a size, with sums of at most ``worst``."""

    shape: tuple[int, ...]  # ``(out, in, *kernel)``
    size: tuple[int, ...]
    worst: float


class Kernel(Protocol):
    """One way to correlate with int64 filters circularly, and to add the bias, without error."""

    dtype: ClassVar[torch.dtype]

    def __init__(self, weight: Tensor, bias: Tensor, size: Sequence[int]) -> None: ...

    def __call__(self, images: Tensor) -> Tensor:
        """Return the sums of images ``(batch, in, *size)`` that hold integers in this kernel's dtype."""

    @property
    def nbytes(self) -> int:
        """Size of the prepared filters in bytes."""

    @staticmethod
    def is_exact(task: Task) -> bool:
        """Return whether all sums of this task are exact."""

    @staticmethod
    def cost(task: Task) -> float:
        """Estimate the nanoseconds per pixel on one core. Measured with ``benchmarks/run.py kernels``."""
