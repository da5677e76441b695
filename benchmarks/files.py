"""Files restored, beside files only decoded and encoded again."""

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
from unshift.cli.allocator import keep_freed_memory
from unshift.cli.image_files import Reader, write
from unshift.cli.restoring import Restoring

sys.path.insert(0, str(ROOT / "tests"))
from first_hour import photograph

SIZE = (375, 500)


def files(quick: bool) -> Rows:
    """JPEGs of 500x375, each shifted, restored at their own size by `photos`, and beside that only decoded and encoded.

    All with memory kept for reuse, as the command line keeps it (``unshift.cli.allocator``).
    """
    count, different, repeats = (60, 20, 3) if quick else (1000, 100, 5)
    arguments = [str(number) for number in (count, different, repeats, torch.get_num_threads())]
    command = [sys.executable, __file__, *arguments]  # a process of its own: the allocator's settings stay
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows: Rows = json.loads(done.stdout)
    return rows


def measure(count: int, different: int, repeats: int, threads: int) -> Rows:
    keep_freed_memory()
    generator = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as place:
        source, out = Path(place, "in"), Path(place, "out")
        source.mkdir()
        for number in range(different):
            moved = np.roll(photograph(generator, *SIZE), [*generator.integers(0, SIZE)], (0, 1))
            Image.fromarray(moved).save(source / f"{number}.jpg", quality=90)
        for number in range(different, count):
            shutil.copy(source / f"{number % different}.jpg", source / f"{number}.jpg")
        out.mkdir()
        paths = sorted(source.iterdir())

        def again(path: Path) -> None:
            with Image.open(path) as image:
                image.load()
                write(image, out / path.name, path)

        def in_threads() -> None:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(again, paths))

        alone = f"decode and encode, {threads} threads"
        targets = {out / path.name: path for path in paths}

        def restore(model: unshift.Restorer | unshift.Chain) -> Step:
            return lambda: Restoring(model, Reader(3)).run(targets, lambda target: target, lambda _: None)

        contenders = {
            alone: in_threads,
            "restore by photos": restore(unshift.load("photos")),
        }
        found = take_turns(contenders, repeats)
    return [
        {
            "what": name,
            "photos a second": f"{count / middle:.0f} ({count / high:.0f} to {count / low:.0f})",
            "share": f"{found[alone][1] / middle:.2f}",
        }
        for name, (low, middle, high) in found.items()
    ]


if __name__ == "__main__":
    json.dump(measure(*map(int, sys.argv[1:])), sys.stdout)
