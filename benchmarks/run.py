"""Measure speed and memory, always as ratios within one run.

    python benchmarks/run.py [SECTION...] [--threads N] [--quick]

Writes ``results/benchmarks.json`` and renders it into ``docs/benchmarks.md``; sections that are not named stay as they
were. Contenders take turns, so that whatever else the machine does hits all alike; medians, with the quartiles beside
them. Peak memory is measured in a process of its own, above what its input and output take.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from typing import Any

import torch
from arithmetic import blocks, epoch, kernels, layers, limit
from files import files
from frontier import frontier
from genomes import genomes
from inference import classifiers, moves, onnx, sizes, ties, turns
from scaling import imagenet, memory, processes, reading
from scene_rivals import scenes
from timing import ROOT, Rows

STORED, PAGE = ROOT / "results" / "benchmarks.json", ROOT / "docs" / "benchmarks.md"
SECTIONS = (
    classifiers,
    turns,
    onnx,
    sizes,
    ties,
    scenes,
    layers,
    epoch,
    frontier,
    limit,
    blocks,
    kernels,
    moves,
    files,
    genomes,
    reading,
    memory,
    processes,
    imagenet,
)


def table(rows: Rows) -> str:
    heads = list(dict.fromkeys(key for row in rows for key in row))
    lines = [heads, ["---"] * len(heads), *([str(row.get(head, "-")) for head in heads] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def render(stored: dict[str, Any]) -> str:
    parts = [
        "# Benchmarks\n\nRendered from `results/benchmarks.json` by `python benchmarks/run.py`. Contenders take turns "
        "within one run, so the ratios hold where the milliseconds do not: medians, with the quartiles in brackets.\n"
    ]
    for section in SECTIONS:
        if found := stored.get(section.__name__):
            about = f"{found['threads']} threads, torch {found['torch']}, {found['machine']}, {found['seconds']:.0f} s"
            parts.append(
                f"## {section.__name__}\n\n{section.__doc__}\n\n{table(found['rows'])}\n\n<sub>{about}</sub>\n"
            )
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [section.__name__ for section in SECTIONS]
    parser.add_argument("sections", nargs="*", help=f"of {', '.join(names)}; default: all")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--quick", action="store_true", help="a look, not a result: nothing is written")
    arguments = parser.parse_args()
    if unknown := set(arguments.sections) - set(names):
        parser.error(f"no section {', '.join(unknown)}; there are {', '.join(names)}")
    torch.set_num_threads(arguments.threads)
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    for section in SECTIONS:
        if arguments.sections and section.__name__ not in arguments.sections:
            continue
        start = time.monotonic()
        rows = section(arguments.quick)
        print(f"\n{section.__name__}: {section.__doc__}\n\n{table(rows)}\n", flush=True)
        stored[section.__name__] = {
            "rows": rows,
            "threads": arguments.threads,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "seconds": time.monotonic() - start,
        }
        if not arguments.quick:
            STORED.write_text(json.dumps(stored, indent=1) + "\n")
            PAGE.write_text(render(stored))


if __name__ == "__main__":
    main()
