"""Files restored, beside files only decoded and encoded again."""

from __future__ import annotations

import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from timing import ROOT, Rows, made, take_turns

from unshift.cli.image_files import Reader, encoded
from unshift.cli.restoring import Restoring

sys.path.insert(0, str(ROOT / "tests"))
from first_hour import photograph

SIZE = (375, 500)


def files(quick: bool) -> Rows:
    """Photos of 500x375 as JPEG, restored by `seam` at their own size, beside decoding and encoding alone."""
    count, different = (60, 20) if quick else (1000, 100)
    generator = np.random.default_rng(0)
    threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as place:
        source, out = Path(place, "in"), Path(place, "out")
        source.mkdir()
        for number in range(different):
            photograph(generator, *SIZE).save(source / f"{number}.jpg", quality=90)
        for number in range(different, count):
            shutil.copy(source / f"{number % different}.jpg", source / f"{number}.jpg")
        out.mkdir()
        paths = sorted(source.iterdir())
        reader = Reader(3)
        restoring = Restoring(made("seam", 3, (224, 224)), reader)

        def again(path: Path) -> None:
            (out / path.name).write_bytes(encoded(reader(path).image, path))

        def in_threads() -> None:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(again, paths))

        contenders = {
            "decode and encode, one thread": lambda: [again(path) for path in paths],
            f"decode and encode, {threads} threads": in_threads,
            f"restore, {threads} cores": lambda: restoring.run(
                {out / path.name: path for path in paths}, lambda target: target, lambda _: None
            ),
        }
        found = take_turns(contenders, 2 if quick else 3)
    return [
        {
            "what": name,
            "photos a second": f"{count / middle:.0f} ({count / high:.0f} to {count / low:.0f})",
            "share of one thread": f"{found['decode and encode, one thread'][1] / middle:.2f}",
        }
        for name, (low, middle, high) in found.items()
    ]
