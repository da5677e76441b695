"""What lies beneath: a layer, an epoch of training, the distance to the limit, and what was tuned by measurement."""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
from typing import Any

import torch
from timing import ROOT, Rows, Step, milliseconds, take_turns
from torch import nn
from torch.nn import functional as F

import unshift
from unshift.circular import circular_correlation, faster_method
from unshift.exact import integers
from unshift.exact.kernels import KERNELS
from unshift.exact.task import Task


def layers(quick: bool) -> Rows:
    """One layer of circular filters, forward and backward: through the FFT, directly, and as PyTorch has it."""
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
            method: lambda method=method: circular_correlation(images, weight, method).backward(upstream)  # noqa: B023
            for method in ("fft", "direct")
        }
        if all(k % 2 for k in kernel):  # of an even kernel PyTorch's circular padding makes another size
            conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[len(size) - 1]
            padding = [k // 2 for k in kernel]
            naive = conv(inputs, outputs, kernel, padding=padding, padding_mode="circular", bias=False)  # type: ignore[arg-type]
            steps["nn.Conv"] = lambda: naive(images).backward(upstream)  # noqa: B023
        found = take_turns(steps, 3 if quick or math.prod(kernel) > 500 else 9)
        picked = faster_method(weight.shape, size)
        rows.append(
            {
                "batch": batch,
                "filters": "x".join(map(str, weight.shape)),
                "image": "x".join(map(str, size)),
                **{f"{name}, ms": milliseconds(times) for name, times in found.items()},
                "picked": picked,
                "nn.Conv / picked": f"{found['nn.Conv'][1] / found[picked][1]:.1f}" if "nn.Conv" in found else "-",
            }
        )
    return rows


class _Naive(nn.Sequential):
    """The paper's network as one would write it: six circular convolutions of kernel 9."""

    def __init__(self) -> None:
        layers = [nn.Conv2d(1, 1, 9, padding=4, padding_mode="circular", bias=False) for _ in range(6)]
        super().__init__(*[part for layer in layers[:-1] for part in (layer, nn.ReLU())], layers[-1])


def epoch(quick: bool) -> Rows:
    """One epoch of the paper's network on MNIST, batch 256: ours against ``nn.Conv2d(padding_mode="circular")``.

    Both with memory kept for reuse, as the command line keeps it (``unshift.cli.allocator``).
    """
    code = (
        "from unshift.cli.allocator import keep_freed_memory; keep_freed_memory();"
        f"import json, arithmetic; print(json.dumps(arithmetic.timed_epoch({quick})))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "benchmarks"), *sys.path])}
    threads = {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment | threads, capture_output=True, text=True, check=True
    )
    return [json.loads(done.stdout)]


def timed_epoch(quick: bool) -> dict[str, Any]:
    images = torch.rand(256 * (2 if quick else 8), 1, 32, 32)

    def train(net: nn.Module) -> Step:
        optimizer = torch.optim.Adam(net.parameters())

        def step() -> None:
            for batch in images.split(256):
                loss = F.cross_entropy(net(batch).flatten(1), torch.zeros(len(batch), dtype=torch.int64))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

        return step

    torch.manual_seed(0)
    ours = unshift.ShiftEstimator.preset("paper", 1, (32, 32))
    found = take_turns({"ours": train(ours), "naive": train(_Naive())}, 2 if quick else 5)
    before = resource.getrusage(resource.RUSAGE_SELF)
    step = train(ours)
    for _ in range(3):
        step()
    after = resource.getrusage(resource.RUSAGE_SELF)
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return {
        "images": len(images),
        "ours, ms": milliseconds(found["ours"]),
        "nn.Conv2d, ms": milliseconds(found["naive"]),
        "nn.Conv2d / ours": f"{found['naive'][1] / found['ours'][1]:.1f}",
        "system time / user time": f"{system / user:.2f}",
    }


def limit(quick: bool) -> Rows:
    """Useful multiply-adds a second, as a share of what a large float32 matrix product reaches on these threads."""
    n = 512 if quick else 1536
    a, b = torch.rand(n, n), torch.rand(n, n)
    rows = []
    for name, batch in (("mnist-paper", 256), ("cifar10", 64), ("cifar10-seam", 64)):
        restorer: Any = unshift.load(name)
        shape = (restorer.scorer.in_channels, *restorer.trained_on["size"])
        images = torch.rand(batch, *shape)
        local = [layer.weight[0].numel() * len(layer.weight) for layer in restorer.scorer.local]
        lines = [sum(layer.weight.numel() for layer in line) for line in restorer.scorer.lines]
        work = sum(local) * math.prod(shape[1:]) + sum(w * n for w, n in zip(lines, shape[1:], strict=False))
        found = take_turns({"restore": lambda: restorer(images), "matrix": lambda: a @ b}, 3 if quick else 15)  # noqa: B023
        ours, most = batch * work / found["restore"][1], n**3 / found["matrix"][1]
        rows.append(
            {
                "restorer": name,
                "batch": batch,
                "multiply-adds an image": f"{work:,}",
                "billion a second": f"{ours / 1e9:.2f}",
                "matrix product, billion a second": f"{most / 1e9:.1f}",
                "share": f"{100 * ours / most:.0f}%",
            }
        )
    return rows


def blocks(quick: bool) -> Rows:
    """Time to restore by how many bytes of a map are worked on at a time (``unshift.exact.integers.BLOCK``)."""
    cases = {"mnist": (256, 1, 32, 32), "mnist-paper": (256, 1, 32, 32), "cifar10-seam": (64, 3, 32, 32)}
    rows, usual = [], integers.BLOCK
    for power in (18, 20) if quick else (17, 18, 19, 20, 21, 22, 24):
        integers.BLOCK = 2**power
        row: dict[str, Any] = {"bytes": f"2^{power}{' (used)' if 2**power == usual else ''}"}
        for name, shape in cases.items():
            restorer, images = unshift.load(name), torch.rand(*shape)
            found = take_turns({"restore": lambda: restorer(images)}, 3 if quick else 9)  # noqa: B023
            row[f"{name}, batch {shape[0]}, ms"] = milliseconds(found["restore"])
        rows.append(row)
    integers.BLOCK = usual
    return rows


def kernels(quick: bool) -> Rows:
    """Measured nanoseconds a pixel of every kernel beside the estimate that chooses among them; one thread."""
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
            if kernel.holds(task):
                made = kernel(weight, task)
                images = torch.randint(0, 1000, (batch, shape[1], *size)).to(kernel.dtype)
                found = take_turns({"run": lambda: made(images, False)}, 3 if quick else 9)["run"]  # noqa: B023
                measured = 1e9 * found[1] / (batch * math.prod(size))
                row[f"{kernel.__name__}, ns (estimate)"] = f"{measured:.0f} ({kernel.cost(task):.0f})"
        rows.append(row)
    torch.set_num_threads(threads)
    return rows
