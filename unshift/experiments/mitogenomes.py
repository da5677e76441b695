"""Mitogenomes of bony fish: 755 of GenBank, split by genus, and which of them begin at the agreed base.

``$UNSHIFT_DATA/mitogenomes-teleost.fa.gz`` holds them under their accessions; the shipped restorer ``mitogenome`` needs
it no more. Most are deposited from the gene of tRNA-Phe, as is agreed for vertebrates: they are the examples.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from unshift.data import DataError, root
from unshift.data.sequences import Record, encode, read_fasta

__all__ = ["FILE", "Mitogenome", "at_start", "examples", "genomes", "substitutions"]

FILE = "mitogenomes-teleost.fa.gz"
ACCESSIONS = Path(__file__).with_name("mitogenome-accessions.txt")
"""Which they are, to download them from GenBank."""
START = "G.TA..GTAGCTTAA"
"""How the gene of tRNA-Phe begins in most bony fish."""
ABOUT = {
    "trained on": "mitogenomes of bony fish of GenBank that are deposited from tRNA-Phe, of two genera out of three, "
    "the others being the test",
    "does not know": "other starts than tRNA-Phe; mitochondria of animals that are not bony fish; plasmids, phages and "
    "bacteria; genomes that lack the gene. It answers all the same, so mind the confidence",
}
"""For the card of the restorer."""
MOST = 0.1
"""The largest share of bases that training replaces: other fish are as far from those it has seen."""


class Mitogenome(NamedTuple):
    """One genome, its genus, and whether this is one of those held out."""

    record: Record
    genus: str
    test: bool

    @property
    def text(self) -> str:
        """Its letters."""
        return self.record.text


def at_start(text: str) -> bool:
    """Tell whether a sequence begins like tRNA-Phe, as far as its letters are known."""
    shares = encode(text[: len(START)])
    return shares.shape[1] == len(START) and all(
        letter == "." or float(shares["ACGT".index(letter), at]) > 0 for at, letter in enumerate(START)
    )


@functools.cache
def genomes() -> tuple[Mitogenome, ...]:
    """Return all genomes, each sequence once.

    Every third genus is held out, by the alphabet, so that no near copy of a test genome is trained on.

    Raises:
        DataError: If the file is not there.
        ValueError: If one sequence is deposited under two genera, on both sides of the split.
    """
    path = root() / FILE
    if not path.is_file():
        raise DataError(
            f"{path} is missing: mitogenomes of bony fish from GenBank, by the accessions in {ACCESSIONS.name}, "
            "as docs/sequences.md says"
        )
    first: dict[str, Record] = {}
    for record in read_fasta(path):
        kept = first.setdefault(record.text.upper(), record)
        if _genus(kept) != _genus(record):
            raise ValueError(f"{kept.name} and {record.name} are one sequence of two genera")
    names = sorted({_genus(record) for record in first.values()})
    held = set(names[1::3])
    return tuple(Mitogenome(record, _genus(record), _genus(record) in held) for record in first.values())


def _genus(record: Record) -> str:
    """Return the first word after the accession that is a name."""
    return re.sub(r"^UNVERIFIED: ", "", record.header.split(maxsplit=1)[1]).split()[0]


def examples(split: str) -> list[Tensor]:
    """Return the genomes of a split that are deposited from tRNA-Phe, as shares of the bases."""
    return [encode(one.text) for one in genomes() if one.test == (split == "test") and at_start(one.text)]


def substitutions(images: Tensor, generator: torch.Generator, share: float | None = None) -> Tensor:
    """Replace a share of the bases by random ones: a random share up to :data:`MOST`, unless it is given."""
    rate = MOST * float(torch.rand(1, generator=generator)) if share is None else share
    chosen = torch.rand(len(images), 1, images.shape[2], generator=generator) < rate
    bases = torch.randint(4, (len(images), images.shape[2]), generator=generator)
    return torch.where(chosen, F.one_hot(bases, 4).movedim(2, 1).to(images.dtype), images)
