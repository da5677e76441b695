"""What others do to a circular genome: find the gene that begins it, or take its least rotation."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from unshift.data.sequences import oriented

__all__ = ["Aragorn", "least_rotation"]


class Aragorn:
    """The tRNA search of Debian's package ``aragorn``, for vertebrate mitochondria."""

    COMMAND = ("aragorn", "-mt", "-gcvert", "-c", "-w")
    GENE = re.compile(r"mtRNA-Phe\s+(c?)\[(-?\d+),(-?\d+)\].*\(gaa\)")

    @classmethod
    def found(cls) -> bool:
        """Tell whether it is installed."""
        return shutil.which(cls.COMMAND[0]) is not None

    def __call__(self, text: str) -> tuple[int, int] | None:
        """Return the shift and turn of the first gene of tRNA-Phe, or None if it finds none."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "genome.fa"
            path.write_text(f">genome\n{text}\n", encoding="ascii")
            told = subprocess.run([*self.COMMAND, str(path)], capture_output=True, text=True, check=True).stdout
        gene = self.GENE.search(told)
        if gene is None:
            return None
        return (int(gene[3]) % len(text), 1) if gene[1] else ((int(gene[2]) - 1) % len(text), 0)


def least_rotation(text: str) -> tuple[int, int]:
    """Return the shift and turn to the least of all rotations of both strands, in the order of their letters."""
    other = oriented(text, 0, 1)
    one, two = _least(text), _least(other)
    if oriented(text, one, 0) <= oriented(other, two, 0):
        return one, 0
    # Rotation ``two`` of the other strand undoes a shift by -two of this one, once it is turned.
    return -two % len(text), 1


def _least(text: str) -> int:
    """Return where the least rotation of a text begins, in time proportional to its length."""
    n, i, j, same = len(text), 0, 1, 0
    while i < n and j < n and same < n:
        a, b = text[(i + same) % n], text[(j + same) % n]
        if a == b:
            same += 1
            continue
        if a > b:
            i += same + 1
        else:
            j += same + 1
        j += i == j
        same = 0
    return min(i, j)
