"""Assemblies: FASTA or GFA, recognised by content, and written back in their original layout.

In GFA, a segment is circular if its only link joins its end to its own start. The link may have an overlap, such as
``44M``, if the sequence repeats its first 44 bases at its end; the circle is then 44 bases shorter, and the bases are
repeated again after the rotation. So every link stays valid, and so do the paths that consist of this segment only. A
segment that is named in any other link, path, walk, jump, containment or fragment is not rotated, because that would
change the meaning of these lines.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from unshift.data.sequences import Record, check_records, read_bytes, read_fasta, to_fasta

__all__ = ["Assembly", "Segment", "read_assembly"]

CIRCULAR = re.compile(r"\b(suggest)?circular[=:](true|yes|y|1)\b|\btopology[=:]circular\b", re.IGNORECASE)
"""The marks of circular sequences in the headers of assemblers and GenBank."""


class Segment(NamedTuple):
    """One sequence of an assembly."""

    record: Record
    circular: bool
    """Whether the header or the links mark it as circular."""
    linked: bool = False
    """Whether other lines depend on where it begins."""
    overlap: int = 0
    """Number of its first bases that it repeats at its end."""

    @property
    def name(self) -> str:
        """The first word of the header."""
        return self.record.name


class Assembly:
    """The sequences of FASTA files, or of one GFA file."""

    def __init__(self, segments: Sequence[Segment], graph: Sequence[str] = (), width: int = 80) -> None:
        self.segments, self.graph, self.width = segments, graph, width
        counts = Counter(segment.name for segment in segments)
        if double := [name for name, count in counts.items() if count > 1]:
            more = f" and {len(double) - 1:,} more names" if len(double) > 1 else ""
            raise ValueError(f"several sequences are named {double[0]}{more}; rename them, or remove the copies")

    def write(self, texts: Mapping[str, str]) -> bytes:
        """Return the content of the file with new texts for some of the sequences."""
        if not self.graph:
            new = (s.record._replace(text=texts.get(s.name, s.record.text)) for s in self.segments)
            return to_fasta(new, Path(), self.width)
        lines = []
        for line in self.graph:
            if line.startswith("S\t") and (name := line.split("\t")[1]) in texts:
                tags = [tag for tag in line.rstrip("\r\n").split("\t")[3:] if not tag.startswith("SH:")]  # a checksum
                line = "\t".join(["S", name, texts[name], *tags])
            lines.append(line)
        return "\n".join(lines).encode("latin-1")


def read_assembly(paths: Sequence[Path]) -> Assembly:
    """Read FASTA files, or one GFA file: plain, gzip or bzip2, or ``-`` for stdin."""
    segments, widths = [], [0]
    for path in paths:
        content = read_bytes(path)
        if re.match(rb"\s*[HSLPWCJ]\t", content):
            if len(paths) > 1:
                raise ValueError(f"{path} is a GFA file, and there are other inputs; orient it alone")
            return _read_gfa(path, content.decode("latin-1"))
        records = read_fasta(path, content)
        segments += [Segment(record, bool(CIRCULAR.search(record.header))) for record in records]
        lines = [len(line.rstrip()) for line in content.split(b"\n") if line.strip() and not line.startswith(b">")]
        widths.append(max(lines) if len(lines) > len(records) else 0)
    # Keep sequences on one line if they came so.
    return Assembly(segments, width=max(widths) or max(len(segment.record.text) for segment in segments))


def _read_gfa(path: Path, text: str) -> Assembly:
    graph = text.split("\n")
    rows = [line.rstrip("\r").split("\t") for line in graph]
    records = [Record(row[1], row[2]) for row in rows if row[0] == "S" and len(row) > 2]
    if not records or all(record.text == "*" for record in records):
        raise ValueError(f"{path} has no sequences: its segments are missing or '*'; take the GFA that holds them")
    check_records(path, [record for record in records if record.text != "*"])
    loops: dict[str, set[int]] = {}
    linked: set[str] = set()
    for kind, *row in rows:
        if kind == "L" and len(row) > 3 and row[0] == row[2] and row[1] == row[3]:
            cigar = re.fullmatch(r"(\d+)M", row[4] if len(row) > 4 else "*")
            loops.setdefault(row[0], set()).add(int(cigar[1]) if cigar else 0)
        elif kind in ("L", "J", "C") and row:
            linked |= {row[0], *row[2:3]}
        elif kind == "P" and len(row) > 1:
            steps = {step.rstrip("+-") for step in re.split("[,;]", row[1])}
            linked |= steps if len(steps) > 1 else set()
        elif kind == "W" and len(row) > 5:
            linked |= set(re.split("[<>]", row[5]))
        elif kind == "F" and row:
            linked.add(row[0])
    segments = []
    for record in records:
        overlaps = loops.get(record.name, set())
        overlap = max(overlaps, default=0)
        repeats = 2 * overlap < len(record.text) and record.text.startswith(record.text[len(record.text) - overlap :])
        fixed = record.name in linked or record.text == "*" or len(overlaps) > 1 or not repeats
        segments.append(Segment(record, bool(overlaps), fixed, overlap))
    return Assembly(segments, graph)
