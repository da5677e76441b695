"""Circular sequences restored by the command line, from file to file."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from timing import ROOT, Rows

CODE = (
    "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, capture_output=True);"
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)"
)


def genomes(quick: bool) -> Rows:
    """`unshift restore FASTA --restorer mitogenome` on random bases, start-up included."""
    rows = []
    for count, length in [(20, 16_600), (1, 100_000)] if quick else [(1_000, 16_600), (1, 5_000_000)]:
        chance = random.Random(0)
        with tempfile.TemporaryDirectory() as place:
            source = Path(place) / "in.fa"
            source.write_text("".join(f">g{n}\n{''.join(chance.choices('ACGT', k=length))}\n" for n in range(count)))
            command = [sys.executable, "-m", "unshift", "restore", str(source), "--restorer", "mitogenome"]
            started = time.monotonic()
            run = subprocess.run(
                [sys.executable, "-c", CODE, *command, "--out", str(Path(place) / "out.fa")],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                check=True,
            )
            seconds = time.monotonic() - started
        what = {"sequences": f"{count:,}", "bases each": f"{length:,}"}
        rows.append({**what, "seconds": f"{seconds:.1f}", "peak, MB": run.stdout.strip()})
    return rows
