"""What a kernel is asked for and must say: sums of integers without error.

A sum of integers that a number format holds exactly does not care about its order, so threads, batches,
devices, strips and shifts cannot show in it.

Notation of the proofs: images hold integers up to ``largest``; ``worst`` is the largest that any output can be,
``largest`` times the L1 norm of a filter over all its inputs, plus the bias; ``u = 2^-53``.
"""

from __future__ import annotations

import math
import os
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

__all__ = ["FLOAT32", "FLOAT64", "Kernel", "Task", "float32_is_plain", "is_traced"]

FLOAT32 = 2**24
FLOAT64 = 2**53


class Task(NamedTuple):
    """What is to be added up: filters of a shape, on images of a size, with sums up to ``worst``."""

    shape: tuple[int, ...]
    """``(out, in, *kernel)``"""
    size: tuple[int, ...]
    worst: float
    strips: bool = False
    """whether the first axis comes in strips that carry their own margin"""
    traced: bool = False
    """whether it is for a graph, which must be exact wherever it runs"""
    groups: int = 1
    """of so many parts of the outputs, each sees its own part of the inputs; all other taps are 0"""

    def vectors(self, fold: int) -> float:
        """Vectors of 16 numbers that one row of taps takes a pixel, if ``fold`` neighbours are made at once."""
        return (self.shape[-1] + fold - 1) * math.ceil(fold * self.shape[0] / 16) / fold

    @property
    def fold(self) -> int:
        """How many neighbours along the last axis to make at once: few channels would leave vectors half empty."""
        width = self.size[-1] if self.parts == 1 else 1
        return min(
            (fold for fold in (16, 8, 4, 2, 1) if width % fold == 0 and 4 * fold <= max(4, width)), key=self.vectors
        )

    @property
    def parts(self) -> int:
        """Into how many groups to divide a convolution: none where one alone does not fill its vectors."""
        return self.groups if self.shape[0] // self.groups % 16 == 0 else 1


class Kernel(Protocol):
    """One way to correlate exactly."""

    dtype: ClassVar[torch.dtype]
    bytes: ClassVar[int]
    """what it needs a number, with what it makes beside the sums"""

    def __init__(self, weight: Tensor, task: Task) -> None:
        """Compute once what every call needs of the filters."""

    def __call__(self, images: Tensor, margin: bool, bias: Tensor | None = None) -> Tensor:
        """Return the sums, plus the bias ``(out,)``. With ``margin`` the first axis brings its margin, and loses it."""

    @staticmethod
    def holds(task: Task) -> bool:
        """Tell whether all sums of this task come out exact."""

    @staticmethod
    def cost(task: Task) -> float:
        """Estimate the nanoseconds a pixel on one core. Measured: ``benchmarks/run.py kernels``."""


def is_traced() -> bool:
    """Tell whether a graph is being made: then nothing may depend on values, nor on this machine.

    By this thread: PyTorch's own flag is set in all of them. ``torch.compile`` reads this code and does not run it;
    ``torch.export`` runs it under modes of its thread.
    """
    if not torch.compiler.is_compiling():
        return False
    return torch.compiler.is_dynamo_compiling() or torch._C._len_torch_dispatch_stack() > 0


def float32_is_plain(device: torch.device) -> bool:
    """Tell whether float32 means float32 here: products and sums of 24 bits, by oneDNN or a matrix product.

    Not where TF32 or bfloat16 may stand in for it (GPUs, a user's setting, an environment variable that oneDNN reads
    when it is first used), nor where oneDNN is off: PyTorch may then pick kernels that do not add up plain products.
    """
    mode = os.environ.get("ONEDNN_DEFAULT_FPMATH_MODE", "").upper()
    return device.type == "cpu" and _ONEDNN.is_available() and mode in ("", "STRICT") and float32_is_set_plain()


def float32_is_set_plain() -> bool:
    """Tell the same of the settings alone, which may change at any time."""
    return (
        torch._C._get_mkldnn_enabled()
        and _ONEDNN.fp32_precision in _PLAIN
        and _ONEDNN.conv.fp32_precision in _PLAIN
        and _ONEDNN.matmul.fp32_precision in _PLAIN
        and torch.get_float32_matmul_precision() == "highest"  # last: PyTorch refuses to say where one of those is set
    )


_ONEDNN: Any = torch.backends.mkldnn
_PLAIN = ("none", "ieee")
