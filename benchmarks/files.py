"""Time of restoring files, compared with decoding and encoding them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from timing import ROOT, Rows, Step, take_turns

import unshift
from unshift.cli.allocator import raise_mmap_threshold
from unshift.cli.image_files import Reader
from unshift.cli.restoring import Restoring

sys.path.insert(0, str(ROOT / "tests"))
from first_hour import photograph

SIZE = (375, 500)


def files(quick: bool) -> Rows:
    """Compare restoring shifted JPEGs and PNGs of 500x375 by `photos` with decoding and encoding them.

    Both use the memory settings of the command line (``unshift.cli.allocator``). PNGs are also decoded again, to check
    them.
    """
    count, different, repeats = (80, 20, 3) if quick else (1000, 100, 5)
    rows: Rows = []
    for suffix in (".jpg", ".png"):
        arguments = [suffix, *(str(number) for number in (count, different, repeats, torch.get_num_threads()))]
        command = [sys.executable, __file__, *arguments]  # a process of its own: the allocator's settings stay
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        rows += json.loads(done.stdout)
    return rows


def measure(suffix: str, count: int, different: int, repeats: int, threads: int) -> Rows:
    raise_mmap_threshold()
    generator = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as place:
        source, out = Path(place, "in"), Path(place, "out")
        source.mkdir()
        for number in range(different):
            moved = np.roll(photograph(generator, *SIZE), [*generator.integers(0, SIZE)], (0, 1))
            Image.fromarray(moved).save(source / f"{number}{suffix}", quality=90)
        for number in range(different, count):
            shutil.copy(source / f"{number % different}{suffix}", source / f"{number}{suffix}")
        out.mkdir()
        pairs = [(path, out / path.name) for path in sorted(source.iterdir())]

        def copy(pair: tuple[Path, Path]) -> None:
            with Image.open(pair[0]) as image:
                image.save(pair[1], quality=95, subsampling=0)

        def copy_all() -> None:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(copy, pairs))

        def restore(model: unshift.Restorer | unshift.Chain) -> Step:
            return lambda: Restoring(model, Reader(3)).run(pairs)

        alone = f"{suffix}: decode and encode, {threads} threads"
        contenders = {alone: copy_all, f"{suffix}: restore by photos": restore(unshift.load("photos"))}
        times = take_turns(contenders, repeats)
    return [
        {
            "what": name,
            "photos a second": f"{count / middle:.0f} ({count / high:.0f} to {count / low:.0f})",
            "share": f"{times[alone][1] / middle:.2f}",
        }
        for name, (low, middle, high) in times.items()
    ]


if __name__ == "__main__":
    json.dump(measure(sys.argv[1], *map(int, sys.argv[2:])), sys.stdout)
