"""Timing and memory: contenders alternate within one run, and times are medians with quartiles."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import unshift

ROOT = Path(__file__).resolve().parent.parent
Step = Callable[[], object]
Rows = list[dict[str, Any]]


def take_turns(contenders: dict[str, Step], repeats: int) -> dict[str, list[float]]:
    """Return each contender's seconds: lower quartile, median, upper quartile."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for step in contenders.values():
        step()
        step()
    for _ in range(repeats):
        for name, step in contenders.items():
            start = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.quantiles(found, n=4) for name, found in times.items()}


def milliseconds(quartiles: list[float]) -> str:
    low, middle, high = (1000 * q for q in quartiles)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def made(preset: str, channels: int, size: tuple[int, ...], coordinates: Any = None) -> unshift.Restorer:
    torch.manual_seed(0)
    net = unshift.ShiftEstimator.preset(preset, channels, size)
    return unshift.Restorer(unshift.quantise(net, torch.rand(4, channels, *size)), coordinates=coordinates).eval()


def peak_memory(restorer: str, images: str, output: bool = False) -> float:
    """Return the peak in MB above the input of estimating images in one call; both are given as expressions.

    With ``output``: of restoring them, above the input and the output. Linux only: the kernel's peak is reset first,
    and freed memory is returned to the system, so that earlier allocations do not hide the peak.
    """
    code = (
        'import ctypes, gc, sys, torch, unshift; sys.path.insert(0, "benchmarks"); from timing import made, resident;'
        f"torch.set_num_threads({torch.get_num_threads()}); r, x = {restorer}, {images};"
        "gc.collect(); ctypes.CDLL(None).malloc_trim(0); open('/proc/self/clear_refs', 'w').write('5');"
        f"a = resident('VmRSS'); y = {'r(x)' if output else 'r.estimate(x)'};"
        f"print(resident('VmHWM') - a - {'x.nbytes' if output else '0'})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return int(done.stdout) / 2**20


def resident(name: str) -> int:
    """Return this process's resident memory in bytes: ``VmRSS`` now, ``VmHWM`` at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))
