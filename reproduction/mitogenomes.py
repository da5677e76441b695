"""Mitogenomes of vertebrates: 2,726 of GenBank, split by genus or by order, from the first base of tRNA-Phe.

``$UNSHIFT_DATA/mitogenomes-vertebrates.fa.gz`` holds them, with ``>Genus_species Class`` as header, each turned to the
gene of tRNA-Phe as GenBank annotates it. Some annotations are a few bases off. ``python -m reproduction.mitogenomes``
finds them without any network and writes ``mitogenome-starts.txt``. ``mitogenome-orders.txt`` holds the order of each
genus by the taxonomy of NCBI (September 2024).
"""

from __future__ import annotations

import functools
import math
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Literal, NamedTuple

from torch import Tensor

from unshift.data import DataError, root
from unshift.data.sequences import Record, encode, oriented, read_fasta, to_fasta

__all__ = ["FILE", "FOREIGN", "Mitogenome", "Split", "examples", "fetch_foreign", "foreign", "genomes"]

FILE = "mitogenomes-vertebrates.fa.gz"
ORDERS = Path(__file__).with_name("mitogenome-orders.txt")
STARTS = Path(__file__).with_name("mitogenome-starts.txt")
Split = Literal["train", "calibration", "test"]


class Mitogenome(NamedTuple):
    """One genome, turned to its start."""

    name: str
    text: str
    group: str
    """Its class."""
    order: str
    """Its order, or its class where the taxonomy has none."""
    genus: str
    split: Split
    """By genus: every fourth for the test, an eighth to calibrate on."""
    test_order: bool
    """Whether its order is held out in the split by order: every fourth."""
    mended: int = 0
    """Bases from the annotated start to this one."""


@functools.cache
def deposited() -> dict[str, tuple[str, str]]:
    """Return the text and class of each genome as deposited, by name.

    Raises:
        DataError: If the file is missing.
    """
    path = root() / FILE
    if not path.is_file():
        raise DataError(f"{path} is missing: mitogenomes of GenBank, one of each species in {FILE}")
    return {record.name: (record.text, record.header.split()[1]) for record in read_fasta(path)}


@functools.cache
def genomes() -> tuple[Mitogenome, ...]:
    """Return all genomes whose start is the gene of tRNA-Phe, with corrected annotations."""
    lines = (line.split() for line in STARTS.read_text(encoding="utf-8").splitlines())
    starts = {name: None if start == "none" else int(start) for name, start in lines}
    orders = dict(line.split() for line in ORDERS.read_text(encoding="utf-8").splitlines())
    named = [(name, name.split("_")[0], *rest) for name, rest in deposited().items() if starts.get(name, 0) is not None]
    order = {genus: orders.get(genus, group) for _, genus, _, group in named}
    places = {genus: place for place, genus in enumerate(sorted(order))}
    held = set(sorted(set(order.values()))[1::4])
    splits: dict[int, Split] = {1: "test", 3: "calibration", 5: "test"}
    return tuple(
        Mitogenome(
            name,
            oriented(text, (starts.get(name) or 0) % len(text), 0),
            group,
            order[genus],
            genus,
            splits.get(places[genus] % 8, "train"),
            order[genus] in held,
            starts.get(name) or 0,
        )
        for name, genus, text, group in named
    )


def examples(split: Split) -> list[Tensor]:
    """Return the genomes of a split by genus, as fractions of the four bases."""
    return [encode(one.text) for one in genomes() if one.split == split]


# --- sequences that are no mitogenomes --------------------------------------------------------------------------------

FOREIGN = "not-mitogenomes.fa.gz"
PARTS = ("Blat/balAcu1.fa", "Blat/hg38.fa", "Blat/panTro6.fa", "GenBank/NC_000932.gb", "GenBank/NC_005816.gb")
PARTS += ("GenBank/arab1.gb", "GenBank/extra_keywords.gb")
"""Of the tests of Biopython: a whale, human and chimpanzee, a chloroplast, a plasmid, a thale cress and a fly."""


def foreign() -> dict[str, str]:
    """Return pieces of chromosomes, a chloroplast and a plasmid, by name."""
    return {record.name: record.text for record in read_fasta(root() / FOREIGN)}


def fetch_foreign() -> None:
    """Take these sequences from the source archive of Biopython on PyPI."""
    records = []
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-build-isolation", "-d", folder]
        subprocess.run([*command, "--no-binary", ":all:", "biopython"], check=False)
        archive = next(Path(folder).glob("biopython-*.tar.gz"), None)
        if archive is None:
            raise DataError("the source archive of biopython could not be downloaded")
        with tarfile.open(archive) as files:
            for part in PARTS:
                file: Any = files.extractfile(f"{archive.name.removesuffix('.tar.gz')}/Tests/{part}")
                text = file.read().decode()
                body = text.split("\nORIGIN")[1].split("\n", 1)[1] if part.endswith(".gb") else text.split("\n", 1)[1]
                records.append(Record(part, re.sub("[^A-Z]", "", body.split("//")[0].split(">")[0].upper())))
    (root() / FOREIGN).write_bytes(to_fasta(records, Path(FOREIGN)))


# --- annotations that are some bases off ----------------------------------------------------------------------------

REACH, WIDTH = 12, 40
"""Bases to either side that are searched, and letters of the gene that are compared."""
GENE = re.compile(r"mtRNA-Phe\s+\[(-?\d+),")


def find_starts() -> dict[str, int | None]:
    """Return the starts to correct, as offsets from the annotated one; None for a genome without the gene at its start.

    The gene is searched by its letters (log odds of the first 40, by class) and by Debian's ``aragorn``. A start is
    corrected if the letters fit better by 30 nats at another base, or by 10 at one where ``aragorn`` finds the gene. A
    genome is dropped if neither finds the gene.
    """
    heads = {name: text[-60:] + text[:140] for name, (text, _) in deposited().items()}
    counts: dict[str, list[Counter[str]]] = {}
    for text, group in deposited().values():
        for counter, letter in zip(counts.setdefault(group, [Counter() for _ in range(WIDTH)]), text, strict=False):
            counter[letter] += 1
    everywhere = [sum(counters, Counter[str]()) for counters in zip(*counts.values(), strict=True)]
    starts: dict[str, int | None] = {}
    for name, gene in _genes(heads).items():
        odds = []
        for own, rest in zip(counts[deposited()[name][1]], everywhere, strict=True):
            share = {base: own[base] + 1 + 0.1 * (rest[base] + 1) for base in "ACGT"}
            odds.append({base: math.log(4 * count / sum(share.values())) for base, count in share.items()})
        fits = {
            by: sum(odd.get(letter, 0.0) for odd, letter in zip(odds, heads[name][60 + by :], strict=False))
            for by in range(-REACH, REACH + 1)
        }
        best = max(fits, key=lambda by: fits[by])
        gain = fits[best] - fits[0]
        if gene is None:
            if fits[best] < 0:
                starts[name] = None
        elif gain >= 30 or (gain >= 10 and best == gene):
            starts[name] = best
    return starts


def _genes(heads: dict[str, str]) -> dict[str, int | None]:
    """Return where ``aragorn`` finds tRNA-Phe in each head, from the annotated start."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "heads.fa"
        path.write_text("".join(f">{name}\n{head}\n" for name, head in heads.items()), encoding="ascii")
        command = ["aragorn", "-mt", "-gcvert", "-l", "-w", str(path)]
        reports = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split(">")[1:]
    found = ((report.split(maxsplit=1)[0], GENE.search(report)) for report in reports)
    return {name: int(gene[1]) - 61 if gene else None for name, gene in found if name in heads}


if __name__ == "__main__":
    mended = find_starts()
    lines = [f"{name} {'none' if start is None else start}\n" for name, start in sorted(mended.items())]
    STARTS.write_text("".join(lines), encoding="utf-8")
    print(f"{len(mended)} of {len(deposited()):,} annotations mended or dropped: {STARTS}")
