"""The commands from files to files: restoring photos and genomes, and training on many photos."""

from __future__ import annotations

import functools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from PIL import Image
from timing import ROOT, Rows, take_turns

import unshift
from unshift.cli.allocator import raise_mmap_threshold
from unshift.cli.image_files import Reader
from unshift.cli.restoring import Restoring

WITH_PEAK = (
    "import resource, subprocess, sys; run = subprocess.run(sys.argv[1:], capture_output=True, text=True);"
    "sys.stderr.write(run.stderr); run.check_returncode(); print(run.stdout);"
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)"
)


def run(*command: object, threads: int) -> tuple[str, str, float]:
    """Run a command; return what it printed, its messages, and its peak memory in MB."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(threads)}
    words = [sys.executable, "-c", WITH_PEAK, sys.executable, *map(str, command)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text, memory = done.stdout.rstrip().rsplit("\n", 1)
    return text, done.stderr, float(memory)


def photos(folder: Path, count: int, size: tuple[int, int] = (375, 500), suffix: str = ".jpg") -> Path:
    """Write ``count`` crops of smooth colours with noise: decoding and training take as long as for photos."""
    folder.mkdir()
    chance = torch.Generator().manual_seed(0)
    large = [3 * n for n in size]
    for number in range(count):
        if number % 50 == 0:
            soft = torch.nn.functional.interpolate(torch.rand(1, 3, 27, 36, generator=chance), large, mode="bicubic")[0]
            pixels = (255 * (soft + 0.05 * torch.randn(3, *large, generator=chance)).clamp(0, 1)).byte()
        top, left = (int(torch.randint(2 * n, (1,), generator=chance)) for n in size)
        shift = [int(torch.randint(n, (1,), generator=chance)) for n in size]
        crop = pixels[:, top : top + size[0], left : left + size[1]].roll(shift, (1, 2))
        Image.fromarray(crop.permute(1, 2, 0).contiguous().numpy()).save(folder / f"{number:06}{suffix}", quality=90)
    return folder


def files(quick: bool) -> Rows:
    """Compare restoring shifted JPEGs and PNGs of 500x375 by `photos` with decoding and encoding them.

    Both use the memory settings of the command line (``unshift.cli.allocator``). PNGs are also decoded again, to check
    them.
    """
    rows: Rows = []
    for suffix in (".jpg", ".png"):  # in a process of its own: the allocator's settings stay
        text, _, _ = run(__file__, suffix, *((80, 20, 3) if quick else (1000, 100, 5)), threads=torch.get_num_threads())
        rows += json.loads(text)
    return rows


def restored_files(suffix: str, count: int, different: int, repeats: int) -> Rows:
    raise_mmap_threshold()
    threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as place:
        out = Path(place, "out")
        source = photos(Path(place, "in"), different, suffix=suffix)
        out.mkdir()
        for number in range(different, count):
            shutil.copy(source / f"{number % different:06}{suffix}", source / f"{number:06}{suffix}")
        pairs = [(path, out / path.name) for path in sorted(source.iterdir())]

        def copy(pair: tuple[Path, Path]) -> None:
            with Image.open(pair[0]) as image:
                image.save(pair[1], quality=95, subsampling=0)

        def copy_all() -> None:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(copy, pairs))

        model, alone = unshift.load("photos"), f"{suffix}: decode and encode, {threads} threads"
        restore = {f"{suffix}: restore by photos": lambda: Restoring(model, Reader(3)).run(pairs)}
        times = take_turns({alone: copy_all, **restore}, repeats)
    return [
        {
            "what": name,
            "photos a second": f"{count / middle:.0f} ({count / high:.0f} to {count / low:.0f})",
            "share": f"{times[alone][1] / middle:.2f}",
        }
        for name, (low, middle, high) in times.items()
    ]


def genomes(quick: bool) -> Rows:
    """`unshift orient FASTA` on random bases, start-up included."""
    rows = []
    for count, length in [(20, 16_600), (1, 100_000)] if quick else [(1_000, 16_600), (1, 5_000_000)]:
        chance = random.Random(0)
        with tempfile.TemporaryDirectory() as place:
            source = Path(place) / "in.fa"
            source.write_text("".join(f">g{n}\n{''.join(chance.choices('ACGT', k=length))}\n" for n in range(count)))
            command = ("-m", "unshift", "orient", source, "--out", Path(place) / "out.fa")
            started = time.monotonic()
            *_, memory = run(*command, threads=torch.get_num_threads())
            seconds = time.monotonic() - started
        what = {"sequences": f"{count:,}", "bases each": f"{length:,}"}
        rows.append({**what, "seconds": f"{seconds:.1f}", "peak, MB": f"{memory:.0f}"})
    return rows


def fit(folder: Path, *options: object, processes: int = 1, threads: int = 2) -> tuple[float, float]:
    """Run ``unshift fit`` on a folder; return photos a second, and peak memory in MB."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", processes) if processes > 1 else ()
    command = (*launcher, "-m", "unshift", "fit", folder, "--preset", "seam", "--size", 224, "--crop", "--force")
    out = folder.parent / "x.safetensors"
    text, messages, memory = run(*command, "--out", out, "--json", "--threads", threads, *options, threads=threads)
    # From the end of the first epoch, so that start-up does not count.
    epochs = [line for line in messages.splitlines() if line.startswith("fit seam") and "; epoch " in line]
    ends = [int(line.split("batches, ")[1].split(" s")[0]) for line in epochs]
    return json.loads(text)["train_images"] * (len(ends) - 1) / max(1, ends[-1] - ends[0]), memory


def reading(quick: bool) -> Rows:
    """Photos a second in ``unshift fit --preset seam --size 224 --crop``, from a folder of JPEGs of 500x375."""
    rows = []
    with tempfile.TemporaryDirectory() as place:
        folder = photos(Path(place) / "photos", 200 if quick else 1000)
        for workers in (0, 1, 2):
            options = ("--epochs", 3, "--workers", workers, "--validation", 20)
            rate, _ = fit(folder, *options, threads=torch.get_num_threads())
            rows.append({"workers": workers, "photos a second": f"{rate:.0f}"})
    return rows


def memory(quick: bool) -> Rows:
    """Peak memory of ``unshift fit`` at 224x224 in MB, of its largest process, by number of photos; three runs."""
    rows = []
    for count in (100, 400) if quick else (100, 10_000):
        with tempfile.TemporaryDirectory() as place:
            folder = photos(Path(place) / "photos", count, (256, 256))
            again = functools.partial(fit, folder, "--epochs", 1, "--batch-size", 16, threads=torch.get_num_threads())
            peaks = [again()[1] for _ in range(3)]
            rows.append({"photos": f"{count:,}", "peak, MB": ", ".join(f"{peak:.0f}" for peak in peaks)})
    return rows


def processes(quick: bool) -> Rows:
    """One process of one thread, and two with ``torchrun``: the same global batch of 32 photos of 224x224."""
    options = ("--epochs", 6, "--batch-size", 32, "--workers", 0, "--validation", 20)
    with tempfile.TemporaryDirectory() as place:
        folder = photos(Path(place) / "photos", 200 if quick else 1000)
        rates = {count: fit(folder, *options, processes=count, threads=1)[0] for count in (1, 2)}
    return [
        {"processes": count, "photos a second": f"{rate:.0f}", "efficiency": f"{rate / (count * rates[1]):.2f}"}
        for count, rate in rates.items()
    ]


if __name__ == "__main__":
    json.dump(restored_files(sys.argv[1], *map(int, sys.argv[2:])), sys.stdout)
