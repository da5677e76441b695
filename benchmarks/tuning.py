"""The constants that were tuned by measurement: each section measures the choice that one of them makes."""

from __future__ import annotations

import math
from typing import Any

import torch
from timing import Rows, Step, milliseconds, take_turns
from torch import nn

import unshift
from unshift import shifts
from unshift.exact import inference
from unshift.exact.kernels import KERNELS, Task
from unshift.network import circular_correlation


def layers(quick: bool) -> Rows:
    """One layer of circular filters, forward and backward: by FFT, directly, and by PyTorch's circular padding."""
    shapes = [  # (batch, in, out, size, kernel)
        (256, 1, 1, (32, 32), (9, 9)),
        (64, 1, 8, (32, 32), (32, 32)),
        (64, 3, 24, (32, 32), (3, 3)),
        (64, 16, 16, (32, 32), (5, 5)),
        (4, 1, 1, (224, 224), (9, 9)),
        (64, 64, 64, (224,), (9,)),
        (16, 1, 1, (32, 32, 32), (9, 9, 9)),
    ]
    rows = []
    for batch, inputs, outputs, size, kernel in shapes[: 2 if quick else None]:
        images = torch.randn(batch, inputs, *size, requires_grad=True)
        weight = torch.randn(outputs, inputs, *kernel, requires_grad=True)
        upstream = torch.randn(batch, outputs, *size)
        steps: dict[str, Step] = {
            method or "default": lambda method=method: circular_correlation(images, weight, method).backward(upstream)  # noqa: B023
            for method in ("fft", "direct", None)
        }
        if all(k % 2 for k in kernel):  # with an even kernel, PyTorch's circular padding changes the size
            conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[len(size) - 1]
            padding = [k // 2 for k in kernel]
            naive = conv(inputs, outputs, kernel, padding=padding, padding_mode="circular", bias=False)
            steps["nn.Conv"] = lambda: naive(images).backward(upstream)  # noqa: B023
        found = take_turns(steps, 3 if quick or math.prod(kernel) > 500 else 9)
        times = {f"{name}, ms": milliseconds(quartiles) for name, quartiles in found.items()}
        ratio = f"{found['nn.Conv'][1] / found['default'][1]:.1f}" if "nn.Conv" in found else "-"
        shape = {"filters": "x".join(map(str, weight.shape)), "image": "x".join(map(str, size))}
        rows.append({"batch": batch, **shape, **times, "nn.Conv / default": ratio})
    return rows


def kernels(quick: bool) -> Rows:
    """Measured nanoseconds a pixel of every kernel, with the estimate that chooses among them; one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    shapes = [
        ((1, 1, 9, 9), (32, 32), 32),
        ((1, 3, 9, 9), (40, 40), 16),
        ((1, 1, 9, 9), (512, 512), 1),
        ((24, 3, 3, 3), (32, 32), 8),
        ((8, 1, 32, 32), (32, 32), 8),
        ((1, 8, 32, 32), (32, 32), 8),
        ((64, 64, 9), (32,), 64),
    ]
    rows = []
    for shape, size, batch in shapes[: 2 if quick else None]:
        weight = torch.randint(-9, 10, shape)
        task = Task(shape, size, worst=1000.0 * float(weight.abs().flatten(1).sum(1).max()))
        row: dict[str, Any] = {"filters": "x".join(map(str, shape)), "image": "x".join(map(str, size))}
        for kernel in KERNELS:
            if kernel.is_exact(task):
                made = kernel(weight, torch.zeros(shape[0], dtype=torch.int64), size)
                images = torch.randint(0, 1000, (batch, shape[1], *size)).to(kernel.dtype)
                found = take_turns({"run": lambda: made(images)}, 3 if quick else 9)["run"]  # noqa: B023
                measured = 1e9 * found[1] / (batch * math.prod(size))
                row[f"{kernel.__name__}, ns (estimate)"] = f"{measured:.0f} ({kernel.cost(task):.0f})"
        rows.append(row)
    torch.set_num_threads(threads)
    return rows


def blocks(quick: bool) -> Rows:
    """Time to restore by block size, the number of values computed at a time (``unshift.exact.inference.BLOCK``)."""
    cases = {"mnist": (256, 1, 32, 32), "mnist-paper": (256, 1, 32, 32), "cifar10-seam": (64, 3, 32, 32)}
    rows, usual = [], inference.BLOCK
    for power in (18, 20) if quick else (17, 18, 19, 20, 21, 22, 24):
        inference.BLOCK = 2**power
        row: dict[str, Any] = {"values": f"2^{power}{' (used)' if 2**power == usual else ''}"}
        for name, shape in cases.items():
            restorer, images = unshift.load(name), torch.rand(*shape)
            found = take_turns({"restore": lambda: restorer(images)}, 3 if quick else 9)  # noqa: B023
            row[f"{name}, batch {shape[0]}, ms"] = milliseconds(found["restore"])
        rows.append(row)
    inference.BLOCK = usual
    return rows


def moves(quick: bool) -> Rows:
    """Undoing shifts with ``roll``, image by image, and with ``gather`` (``unshift.shifts.LARGE``)."""
    rows, usual = [], shifts.LARGE
    for batch, side in ((64, 32), (64, 48), (64, 64), (16, 128), (16, 224)):
        images, shift = torch.rand(batch, 3, side, side), torch.randint(side, (batch, 2))

        def undone(large: int, images: torch.Tensor = images, shift: torch.Tensor = shift) -> None:
            shifts.LARGE = large
            unshift.undo(images, shift)

        found = take_turns({"roll": lambda: undone(1), "gather": lambda: undone(2**62)}, 3 if quick else 15)
        times = {f"{name}, ms": milliseconds(quartiles) for name, quartiles in found.items()}
        used = "roll" if 3 * side * side >= usual else "gather"
        rows.append({"images": f"{batch} x 3x{side}x{side}", **times, "used": used})
    shifts.LARGE = usual
    return rows
