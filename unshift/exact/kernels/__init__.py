"""Fast circular correlations that return exact integers, and the choice among them.

A number format that holds every partial sum of integers returns the same sum in any order, so threads, batches, devices
and shifts cannot show in it. Each kernel proves in its docstring up to which sums it is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unshift.exact.kernels.direct import Diagonal32, Direct32, Direct64, Matrix32, Strided32, Strided64
from unshift.exact.kernels.fourier import Dft64, Fft64
from unshift.exact.kernels.interface import FLOAT32, FLOAT64, Kernel, Task
from unshift.exact.runtime import float32_is_plain, in_graphs

__all__ = ["FLOAT32", "FLOAT64", "GRAPH_KERNELS", "KERNELS", "Kernel", "Task", "prepare", "prepare_strided"]

KERNELS: tuple[type[Kernel], ...] = (Direct32, Diagonal32, Matrix32, Direct64, Fft64)
GRAPH_KERNELS: tuple[type[Kernel], ...] = (Direct32, Dft64)
"""The kernels whose operations every runtime of exported graphs has."""


def _prepare_for_graph(weight: Tensor, bias: Tensor, task: Task, passed: set[Any]) -> Kernel:
    """Choose by the shape alone: :mod:`unshift.exact.inference` has checked that all sums are below 2^24."""
    task = task._replace(worst=FLOAT32 - 1)
    _check_size(task)
    exact_kinds = [kind for kind in GRAPH_KERNELS if kind.is_exact(task)]
    kind = sorted(exact_kinds, key=lambda kind: kind.cost(task))[0]  # strict export cannot read min
    return kind(weight, bias, task.size)


@in_graphs(_prepare_for_graph)
def prepare(weight: Tensor, bias: Tensor, task: Task, passed: set[Any]) -> Kernel:
    """Prepare the cheapest kernel that is exact for a task: filters, int64 ``(out, in, *kernel)``, and a bias
    ``(out,)``.

    ``passed`` are the trials of float32 that these filters have passed; new ones are added.
    """
    _check_size(task)
    plain = float32_is_plain(weight.device)
    exact_kinds = [kind for kind in KERNELS if kind.is_exact(task)]
    for kind in sorted(exact_kinds, key=lambda kind: kind.cost(task)):
        if plain or kind.dtype != torch.float32:
            kernel = kind(weight, bias, task.size)
            if kind.dtype != torch.float32 or _passes_trial(kernel, weight, bias, task, passed):
                return kernel
    raise ValueError(f"this network's sums reach {task.worst:.0f}; they must stay below 2^53")


def _check_size(task: Task) -> None:
    if any(k > n for k, n in zip(task.shape[2:], task.size, strict=True)):
        raise ValueError(f"kernel {task.shape[2:]} is larger than the image {task.size}")


def _passes_trial(kernel: Kernel, weight: Tensor, bias: Tensor, task: Task, passed: set[Any]) -> bool:
    """Return whether a float32 kernel equals float64 on images with the largest possible sums."""
    axes = zip(task.shape[2:], task.size, strict=True)
    side = [max(k, min(n, 16)) if len(task.size) < 3 else k for k, n in axes]
    trial = (type(kernel), weight.data_ptr(), *side)
    if trial not in passed:
        if not _agree(type(kernel)(weight, bias, side), Direct64(weight, bias, side), weight, bias, side, task.worst):
            return False
        passed.add(trial)
    return True


def _agree(narrow: Any, wide: Any, weight: Tensor, bias: Tensor, side: Sequence[int], worst: float) -> bool:
    """Return whether two kernels are equal on two images of size ``side`` with the largest possible sums.

    A convolution that is not a plain sum of products fails at once: bfloat16 keeps 8 bits of a product, and Winograd
    and FFT kernels round between their transforms. The pixels are odd, so that every bit of every product matters.
    """
    l1 = float(weight.double().abs().flatten(1).sum(1).max())
    largest = int((worst - float(bias.abs().max())) / max(l1, 1.0))
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(-largest, largest + 1, (2, weight.shape[1], *side), generator=generator)
    images = pixels.bitwise_or(1).clamp(-largest, largest).to(weight.device, torch.float64)
    exact = wide(images)
    # PyTorch may choose another algorithm for one image
    return all(torch.equal(narrow(x.to(torch.float32)).double(), exact[: len(x)]) for x in (images, images[:1]))


@in_graphs(lambda weight, bias, stride, worst: Strided32(weight, bias, stride))
def prepare_strided(weight: Tensor, bias: Tensor, stride: int, worst: float) -> Strided32:
    """Prepare a strided convolution that is exact for sums of up to ``worst``: float32 where it is, else float64."""
    wide = Strided64(weight, bias, stride)
    if worst < FLOAT32 and float32_is_plain(weight.device):
        narrow, side = Strided32(weight, bias, stride), [k + 2 * stride for k in weight.shape[2:]]
        if _agree(narrow, wide, weight, bias, side, worst):
            return narrow
    if worst >= FLOAT64:
        raise ValueError(f"this network's sums reach {worst:.0f}; they must stay below 2^53")
    return wide
