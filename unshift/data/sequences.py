"""Circular sequences: read and write FASTA, encode letters as channels.

Channels are in the order A C G T, so that reversing them is the complement and ``Turns("strand")`` gives the other
strand. An ambiguous letter is a fraction of each base it may stand for: R is half A, half G.
"""

from __future__ import annotations

import bz2
import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = ["MEANING", "Record", "check_records", "compressed", "encode", "encode_letters", "is_fasta",
           "oriented", "read_bytes", "read_fasta", "to_fasta"]  # fmt: skip

SUFFIXES = (".fa", ".fasta", ".fna", ".fas", ".fsa")
BASES = "ACGT"
MEANING = {
    **{base: base for base in BASES},
    **{"U": "T", "R": "AG", "Y": "CT", "S": "CG", "W": "AT", "K": "GT", "M": "AC"},
    **{"B": "CGT", "D": "AGT", "H": "ACT", "V": "ACG", "N": "ACGT"},
}
"""The IUPAC letters, and the bases that each may stand for."""
COMPLEMENT = str.maketrans("ACGTURYSWKMBDHVNacgturyswkmbdhvn", "TGCAAYRSWMKVHDBNtgcaayrswmkvhdbn")


class Record(NamedTuple):
    """One sequence of a FASTA file."""

    header: str  # the text after `>`
    text: str  # the letters, as written

    @property
    def name(self) -> str:
        """The first word of the header."""
        return self.header.split(maxsplit=1)[0] if self.header.strip() else ""


FRACTIONS = np.full((256, len(BASES)), np.nan, dtype=np.float16)
for _letter, _bases in MEANING.items():
    FRACTIONS[[ord(_letter), ord(_letter.lower())]] = [(base in _bases) / len(_bases) for base in BASES]
"""The fractions of the bases for each byte; NaN for bytes that are not nucleotide letters."""


def is_fasta(path: str | os.PathLike[str]) -> bool:
    """Return whether a file has a FASTA suffix, compressed or not."""
    return os.fspath(path).lower().removesuffix(".gz").removesuffix(".bz2").endswith(SUFFIXES)


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Read a file, or stdin for ``-``, and decompress it if its content is gzip or bzip2."""
    try:
        content = sys.stdin.buffer.read() if os.fspath(path) == "-" else Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        if content.startswith(b"\x1f\x8b"):
            return gzip.decompress(content)
        return bz2.decompress(content) if content.startswith(b"BZh") else content
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise ValueError(f"{path} is truncated or damaged, and cannot be decompressed: {error}") from error


def read_fasta(path: str | os.PathLike[str], content: bytes | None = None) -> list[Record]:
    """Read a FASTA file of nucleotides, plain, gzip or bzip2; or ``content``, which was read from it."""
    try:
        import dnaio
    except ImportError as error:
        raise ValueError("reading FASTA needs dnaio: pip install 'unshift[genomes]'") from error
    try:
        with dnaio.open(io.BytesIO(read_bytes(path) if content is None else content), fileformat="fasta") as file:
            records = [Record(read.name, read.sequence) for read in file]
    except (dnaio.FileFormatError, UnicodeError) as error:
        raise ValueError(f"{path} cannot be read as FASTA: {error}") from error
    check_records(path, records)
    return records


def check_records(path: str | os.PathLike[str], records: Sequence[Record]) -> None:
    """Raise a ``ValueError`` if there are no records, or that names the first one that is not a nucleotide sequence."""
    if not records:
        raise ValueError(f"{path} is empty: it holds no sequence")
    for number, record in enumerate(records, 1):
        try:
            _check(record.text)
        except ValueError as error:
            raise ValueError(f"{path}: sequence {number} ({record.name or 'without a name'}) {error}") from error


def _check(text: str) -> None:
    if not text:
        raise ValueError("is empty")
    if invalid := sorted(set(text) - set(MEANING) - set("".join(MEANING).lower())):
        shown = ", ".join(map(repr, invalid[:5]))
        hint = "; remove the gaps" if "-" in invalid else "; is it a protein?"
        raise ValueError(f"is not a nucleotide sequence: it has {shown}{hint}")
    if {"T", "U"} <= set(text.upper()):
        raise ValueError("has both T and U: it must be DNA or RNA")


def encode(text: str) -> Tensor:
    """Return a sequence as fractions of A, C, G and T: float16 ``(4, length)``.

    >>> encode("ACGTRn").tolist()[0]
    [1.0, 0.0, 0.0, 0.0, 0.5, 0.25]
    """
    _check(text)
    return torch.from_numpy(FRACTIONS[_bytes(text)].T.copy())


def encode_letters(text: str) -> Tensor:
    """Return the letters and their complements, uint8 ``(2, length)``: reversing the channels is the complement.

    They break ties: case and ambiguous letters may differ where the fractions of the bases are equal.
    """
    return torch.from_numpy(np.stack([_bytes(text), _bytes(_complement(text))]))


def _bytes(text: str) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(text.encode("ascii"), np.uint8)


def _complement(text: str) -> str:
    complement = text.translate(COMPLEMENT)
    rna = "U" in text or "u" in text
    return complement.replace("T", "U").replace("t", "u") if rna else complement


def oriented(text: str, shift: int, turn: int) -> str:
    """Undo a shift and a turn of ``Turns("strand")`` on the text.

    >>> oriented("GTAC", 2, 0), oriented("aCGT", 1, 1)
    ('ACGT', 'tACG')
    """
    rolled = text[shift:] + text[:shift]
    return _complement(rolled)[::-1] if turn else rolled


def to_fasta(records: Iterable[Record], path: Path, width: int = 80) -> bytes:
    """Return the content of a FASTA file with lines of ``width`` letters, compressed if the suffix of ``path`` asks it.

    Equal records give equal bytes.
    """
    lines: list[str] = []
    for record in records:
        lines.append(f">{record.header}")
        lines += [record.text[at : at + width] for at in range(0, len(record.text), width)]
    return compressed("".join(f"{line}\n" for line in lines).encode("latin-1"), path)


def compressed(content: bytes, path: Path | None) -> bytes:
    """Compress content for a file whose name ends in .gz or .bz2."""
    suffix = path.suffix.lower() if path else ""
    if suffix == ".gz":
        return gzip.compress(content, mtime=0)
    return bz2.compress(content) if suffix == ".bz2" else content
