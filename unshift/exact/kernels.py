"""Circular correlation of integers without error: the table of kernels, and the choice among them."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor

from unshift.exact.direct import Direct32, Direct64
from unshift.exact.fourier import Fft64, Waves64
from unshift.exact.task import FLOAT32, Kernel, Task

__all__ = ["GRAPH_KERNELS", "KERNELS", "prepare"]

KERNELS: tuple[type[Kernel], ...] = (Direct32, Direct64, Fft64)
GRAPH_KERNELS: tuple[type[Kernel], ...] = (Direct32, Waves64)
"""Those that every runtime computes exactly."""


def prepare(weight: Tensor, task: Task, plain: bool, passed: set[Any]) -> Kernel:
    """Return the cheapest kernel that is exact for this task, made ready.

    Args:
        weight: The filters, int64 ``(out, in, *kernel)``.
        task: What they will be used on.
        plain: Whether float32 may be used (:func:`float32_is_plain`).
        passed: Trials that these filters have passed, for the caller to keep: at many sizes they are the same one.

    Raises:
        ValueError: If no kernel is exact for sums so large, or the filters are larger than the image.
    """
    if not task.traced:
        _keep_what_is_freed()
    if any(k > n for k, n in zip(task.shape[2:], task.size, strict=True)):
        raise ValueError(f"kernel {task.shape[2:]} is larger than the image {task.size}")
    for kernel in sorted(GRAPH_KERNELS if task.traced else KERNELS, key=lambda kernel: kernel.cost(task)):
        sure = task.traced or kernel.dtype == torch.float64
        if kernel.holds(task) and (sure or plain):
            made = kernel(weight, task)
            if sure or _tried(made, weight, task, passed):
                return made
    raise ValueError(f"this network's sums reach {task.worst:.0f}; they must stay below 2^53")


@functools.cache
def _keep_what_is_freed() -> None:
    """Spare every call the page faults of its temporaries.

    The C library of Linux gives large blocks back to the kernel as they are freed, and gets them again as pages to be
    cleared one by one. Which it keeps depends on the largest that it has seen freed, up to 32 MB: so one is freed here,
    none of whose pages is touched. Other allocators do not mind.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)


def _tried(kernel: Kernel, weight: Tensor, task: Task, passed: set[Any]) -> bool:
    """Run float32 once on an image as bad as can be, beside float64: a kernel that is not plain shows at once.

    Bfloat16 keeps 8 bits of a product, Winograd and FFT kernels round between their transforms. The image's
    pixels are as large as the sums allow, and odd, so that every bit of every product matters.
    """
    side = [max(k, min(n, 16)) if len(task.size) < 3 else k for k, n in zip(task.shape[2:], task.size, strict=True)]
    side[-1] = math.ceil(side[-1] / task.fold) * task.fold
    trial = (type(kernel), *side, task.fold, task.worst, weight.device)
    if trial not in passed:
        l1 = float(weight.double().abs().flatten(1).sum(1).max())
        largest = int(min(task.worst, FLOAT32 - 1) / max(l1, 1.0))
        shape, generator = (2, task.shape[1], *side), torch.Generator().manual_seed(0)
        image = torch.randint(-largest, largest + 1, shape, generator=generator).bitwise_or(1).clamp(-largest, largest)
        image = image.to(weight.device, torch.float64)
        exact, single = Direct64(weight, task)(image, margin=False), image.to(torch.float32)
        for some in (single, single[:1]):  # one image may be summed in another way
            if not torch.equal(kernel(some, margin=False).to(torch.float64), exact[: len(some)]):
                return False
        passed.add(trial)
    return True
