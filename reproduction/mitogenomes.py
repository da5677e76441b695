"""Mitogenomes of bony fish: 755 of GenBank, split by genus, and whether they begin at the agreed base.

``$UNSHIFT_DATA/mitogenomes-teleost.fa.gz`` holds them under their accessions. Most are deposited from the gene of
tRNA-Phe, the agreed start for vertebrates: these are the examples.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from unshift.data import DataError, root
from unshift.data.sequences import Record, encode, read_fasta

__all__ = ["FILE", "START", "Mitogenome", "at_start", "examples", "genomes"]

FILE = "mitogenomes-teleost.fa.gz"
ACCESSIONS = Path(__file__).with_name("mitogenome-accessions.txt")
"""Accessions to download from GenBank."""
START = "G.TA..GTAGCTTAA"
"""The first letters of the gene of tRNA-Phe in most bony fish."""


class Mitogenome(NamedTuple):
    """One genome, its genus, and whether the genus is held out."""

    record: Record
    genus: str
    test: bool

    @property
    def text(self) -> str:
        """The bases as letters."""
        return self.record.text


def at_start(text: str) -> bool:
    """Return whether a sequence begins like tRNA-Phe, as far as its letters are known."""
    shares = encode(text[: len(START)])
    return shares.shape[1] == len(START) and all(
        letter == "." or float(shares["ACGT".index(letter), at]) > 0 for at, letter in enumerate(START)
    )


@functools.cache
def genomes() -> tuple[Mitogenome, ...]:
    """Return all genomes, each sequence once. Every third genus by the alphabet is held out.

    Raises:
        DataError: If the file is missing.
        ValueError: If one sequence is deposited under two genera, which could be on both sides of the split.
    """
    path = root() / FILE
    if not path.is_file():
        raise DataError(f"{path} is missing: mitogenomes of GenBank, with the accessions in {ACCESSIONS}")
    first: dict[str, Record] = {}
    for record in read_fasta(path):
        kept = first.setdefault(record.text.upper(), record)
        if _genus(kept) != _genus(record):
            raise ValueError(f"{kept.name} and {record.name} are one sequence of two genera")
    held = set(sorted({_genus(record) for record in first.values()})[1::3])
    return tuple(Mitogenome(record, _genus(record), _genus(record) in held) for record in first.values())


def _genus(record: Record) -> str:
    """Return the first word of the description, without GenBank's mark for unverified entries."""
    return re.sub(r"^UNVERIFIED: ", "", record.header.split(maxsplit=1)[1]).split()[0]


def examples(split: str) -> list[Tensor]:
    """Return the genomes of a split that begin at tRNA-Phe, as shares of the four bases."""
    return [encode(one.text) for one in genomes() if one.test == (split == "test") and at_start(one.text)]
