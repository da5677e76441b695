"""Large data: photos a second from JPEG files, memory by their number, and two processes compared with one."""

from __future__ import annotations

import functools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from PIL import Image
from timing import ROOT, Rows

SIZE = 224


def photos(folder: Path, count: int, size: tuple[int, int] = (375, 500)) -> Path:
    """Write ``count`` JPEGs, crops of smooth colours with noise: decoding and training take as long as for photos."""
    folder.mkdir()
    chance = torch.Generator().manual_seed(0)
    large = [3 * n for n in size]
    for number in range(count):
        if number % 50 == 0:
            soft = torch.nn.functional.interpolate(torch.rand(1, 3, 27, 36, generator=chance), large, mode="bicubic")[0]
            pixels = (255 * (soft + 0.05 * torch.randn(3, *large, generator=chance)).clamp(0, 1)).byte()
        top, left = (int(torch.randint(2 * n, (1,), generator=chance)) for n in size)
        crop = pixels[:, top : top + size[0], left : left + size[1]]
        Image.fromarray(crop.permute(1, 2, 0).contiguous().numpy()).save(folder / f"{number:06}.jpg", quality=90)
    return folder


def fit(folder: Path, *options: object, processes: int = 1, threads: int = 2) -> dict[str, float]:
    """Run ``unshift fit`` on a folder; return its seconds, photos a second, and peak memory in MB."""
    out = folder.parent / "x.safetensors"
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [
        *(sys.executable, *(launcher if processes > 1 else []), "-m", "unshift", "fit", str(folder)),
        *("--preset", "seam", "--size", str(SIZE), "--crop", "--out", str(out), "--force", "--json"),
        *("--threads", str(threads), *map(str, options)),
    ]
    code = (
        "import resource, subprocess, sys; run = subprocess.run(sys.argv[1:], capture_output=True, text=True);"
        "sys.stderr.write(run.stderr); run.check_returncode(); print(run.stdout);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(threads)}
    started = time.monotonic()
    run = subprocess.run([sys.executable, "-c", code, *command], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    text, memory = run.stdout.rstrip().rsplit("\n", 1)
    found = json.loads(text)
    # From the end of the first epoch, so that start-up does not count.
    epochs = [line for line in run.stderr.splitlines() if line.startswith("fit seam") and "; epoch " in line]
    ends = [int(line.split("batches, ")[1].split(" s")[0]) for line in epochs]
    rate = found["train_images"] * (len(ends) - 1) / max(1, ends[-1] - ends[0])
    return {"whole": time.monotonic() - started, "rate": rate, "memory": float(memory)}


def reading(quick: bool) -> Rows:
    """Photos a second in ``unshift fit --preset seam --size 224 --crop``, from a folder of JPEGs of 500x375."""
    rows = []
    with tempfile.TemporaryDirectory() as place:
        folder = photos(Path(place) / "photos", 200 if quick else 1000)
        for workers in (0, 1, 2):
            found = fit(
                folder, "--epochs", 3, "--workers", workers, "--validation", 20, threads=torch.get_num_threads()
            )
            rows.append({"workers": workers, "photos a second": f"{found['rate']:.0f}"})
    return rows


def memory(quick: bool) -> Rows:
    """Peak memory of ``unshift fit`` at 224x224 in MB, of its largest process, by number of photos; three runs."""
    rows = []
    for count in (100, 400) if quick else (100, 10_000):
        with tempfile.TemporaryDirectory() as place:
            folder = photos(Path(place) / "photos", count, (256, 256))
            options = ("--epochs", 1, "--batch-size", 16)
            peaks = [fit(folder, *options, threads=torch.get_num_threads())["memory"] for _ in range(3)]
            rows.append({"photos": f"{count:,}", "peak, MB": ", ".join(f"{peak:.0f}" for peak in peaks)})
    return rows


def processes(quick: bool) -> Rows:
    """One process of one thread, and two with ``torchrun``: the same global batch of 32 photos of 224x224."""
    rates = _rates(quick)
    return [
        {"processes": count, "photos a second": f"{rate:.0f}", "efficiency": f"{rate / (count * rates[1]):.2f}"}
        for count, rate in rates.items()
    ]


def imagenet(quick: bool) -> Rows:
    """An epoch over ImageNet's 1,281,167 photos at 224x224.

    Measured: photos a second of one process and of two, one thread each. Extrapolated: hours, with the efficiency of
    two processes for each doubling.
    """
    rates = _rates(quick)
    doubling = min(1.0, rates[2] / (2 * rates[1]))
    hours = {count: 1_281_167 / (rates[1] * count * doubling ** math.log2(count)) / 3600 for count in (1, 2, 8, 64)}
    return [
        {
            "processes": count,
            "photos a second, measured": f"{rates[count]:.0f}" if count in rates else "-",
            "hours an epoch, extrapolated": f"{found:.2f}",
        }
        for count, found in hours.items()
    ]


@functools.cache
def _rates(quick: bool) -> dict[int, float]:
    """Return photos a second of one process and of two, one thread each, which decode their own photos."""
    options = ("--epochs", 6, "--batch-size", 32, "--workers", 0, "--validation", 20)
    with tempfile.TemporaryDirectory() as place:
        folder = photos(Path(place) / "photos", 200 if quick else 1000)
        return {count: fit(folder, *options, processes=count, threads=1)["rate"] for count in (1, 2)}
