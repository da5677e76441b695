"""Measure speed and memory, as ratios within one run.

    python benchmarks/run.py [SECTION...] [--threads N] [--quick] [--dirty]

Writes ``benchmarks/results.json`` and renders it into ``docs/benchmarks.md``. Other sections are not changed.
Contenders alternate, so that other load on the machine affects all of them. Times are medians with quartiles. Peak
memory is measured in a separate process, without its input and output.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import platform
import time
from collections.abc import Callable
from typing import Any

import torch
from commands import files, genomes, memory, processes, reading
from inference import classifiers, onnx, pages, sizes, ties
from timing import ROOT, Rows
from tuning import blocks, kernels, layers, moves

from reproduction.records import refuse_dirty

STORED, PAGE = ROOT / "benchmarks" / "results.json", ROOT / "docs" / "benchmarks.md"
SHOWN = (classifiers, onnx, sizes, pages, files, genomes, memory)
SECTIONS = (*SHOWN, processes, ties, reading, layers, kernels, blocks, moves)
"""All sections. Those after SHOWN are stored but not shown on the page."""


def table(rows: Rows) -> str:
    heads = list(dict.fromkeys(key for row in rows for key in row))
    lines = [heads, ["---"] * len(heads), *([str(row.get(head, "-")) for head in heads] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def prose(section: Callable[[bool], Rows]) -> str:
    """Return a docstring as Markdown: without indentation, code between single backticks."""
    return (inspect.getdoc(section) or "").replace("``", "`")


def render(stored: dict[str, Any]) -> str:
    parts = [
        "# Benchmarks\n\nRendered from `benchmarks/results.json` by `python benchmarks/run.py`. Contenders alternate "
        "within one run: trust the ratios more than the milliseconds. Medians, with quartiles in brackets. That file "
        "also has the sections that measure the choice of constants.\n"
    ]
    for section in SHOWN:
        if found := stored.get(section.__name__):
            about = f"{found['threads']} threads, torch {found['torch']}, {found['machine']}, {found['seconds']:.0f} s"
            about += f", commit {found['commit']}" if found.get("commit") else ""
            parts.append(f"## {section.__name__}\n\n{prose(section)}\n\n{table(found['rows'])}\n\n<sub>{about}</sub>\n")
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    names = [section.__name__ for section in SECTIONS]
    parser.add_argument("sections", nargs="*", help=f"of {', '.join(names)}; default: all")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--quick", action="store_true", help="few repetitions, as a test; nothing is written")
    parser.add_argument("--dirty", action="store_true", help="write although the checkout has uncommitted changes")
    arguments = parser.parse_args()
    if unknown := set(arguments.sections) - set(names):
        parser.error(f"no section {', '.join(unknown)}; there are {', '.join(names)}")
    torch.set_num_threads(arguments.threads)
    origin = {} if arguments.quick else refuse_dirty(arguments.dirty)
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    for section in SECTIONS:
        if arguments.sections and section.__name__ not in arguments.sections:
            continue
        start = time.monotonic()
        rows = section(arguments.quick)
        print(f"\n{section.__name__}: {prose(section)}\n\n{table(rows)}\n", flush=True)
        stored[section.__name__] = {
            "rows": rows,
            "threads": arguments.threads,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "seconds": time.monotonic() - start,
            **origin,
        }
        if not arguments.quick:
            STORED.write_text(json.dumps(stored, indent=1) + "\n")
            PAGE.write_text(render(stored))


if __name__ == "__main__":
    main()
