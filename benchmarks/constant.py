"""Time a constant 224x224 image, where all 50,176 positions tie, against an ordinary one.

    python benchmarks/constant.py [--json FILE] [--threads N] [--repeats N]

Claim: it restores in less than 10 times the time. The tie rule ranks all shifts of an image at once,
in ``O(N log N)``; comparing the candidates one by one would take 50,176 times as long. Periodic and
all-tied images are timed as well. The images take turns within one run; the best repeat counts.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import time
from pathlib import Path

import torch
from torch import Tensor

from unshift import Restorer, ShiftEstimator, quantise

CLAIM = 10.0
SIZE = (224, 224)


def images() -> dict[str, Tensor]:
    """One image of each kind; ``tied`` is noise below the first quantisation step, so every position ties."""
    row, column = torch.meshgrid(*[torch.arange(n) for n in SIZE], indexing="ij")
    smooth = torch.nn.functional.avg_pool2d(torch.rand(1, 3, *SIZE), 9, stride=1, padding=4)
    kinds = {
        "ordinary": smooth / smooth.max(),
        "constant": torch.full((1, 3, *SIZE), 0.5),
        "stripes": (column % 2).float().expand(1, 3, *SIZE),
        "checkerboard": ((row + column) % 2).float().expand(1, 3, *SIZE),
        "tied": 1e-4 * torch.rand(1, 3, *SIZE),
    }
    return {name: image.contiguous() for name, image in kinds.items()}


def run(preset: str, repeats: int) -> list[dict[str, object]]:
    for seed in itertools.count():  # an untrained net of one channel may be dead: then every image ties
        torch.manual_seed(seed)
        kinds = images()
        restorer = Restorer(quantise(ShiftEstimator.preset(preset, 3, SIZE), kinds["ordinary"]))
        tied = {name: bool(restorer.estimate(image).tied) for name, image in kinds.items()}
        if not tied["ordinary"]:
            break
    assert tied["constant"]
    best = dict.fromkeys(kinds, float("inf"))
    for _ in range(repeats):
        for name, image in kinds.items():
            start = time.perf_counter()
            restorer(image)
            best[name] = min(best[name], time.perf_counter() - start)
    return [
        {"preset": preset, "image": name, "ms": 1e3 * best[name], "ratio": best[name] / best["ordinary"], "tied": flag}
        for name, flag in tied.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.add_argument("--threads", type=int, help="threads for torch (default: its own choice)")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)

    rows = [row for preset in ("paper", "seam") for row in run(preset, options.repeats)]
    print(f"{'preset':8s}{'image':14s}{'time':>10s}{'ratio':>8s}  tied")
    for row in rows:
        print(f"{row['preset']:8s}{row['image']:14s}{row['ms']:7.1f} ms{row['ratio']:7.2f}x  {row['tied']}")
    held = all(row["ratio"] < CLAIM for row in rows if row["image"] == "constant")
    print(f"a constant image takes less than {CLAIM:.0f} times an ordinary one: {'yes' if held else 'NO'}")

    if options.json:
        versions = {"torch": torch.__version__, "python": platform.python_version(), "machine": platform.machine()}
        setting = {"threads": torch.get_num_threads(), "repeats": options.repeats, "versions": versions}
        options.json.write_text(json.dumps({"claim": CLAIM, "held": held, "rows": rows, **setting}, indent=2) + "\n")
    raise SystemExit(0 if held else 1)


if __name__ == "__main__":
    main()
