"""Rotate circular genomes to their start: FASTA or GFA in, the same out.

All rotations and both strands of a genome have the same confidence and give the same output, byte for byte. IN may be
plain, gzip or bzip2, or "-" for stdin; the format is detected from the content. Headers, case, ambiguous letters, the
order of the sequences and the width of lines stay.

With the restorer "mitogenome", the default, a mitogenome of a vertebrate begins at the first base of tRNA-Phe, on the
strand that carries it. A sequence with a confidence below --min-confidence is copied unchanged and named on stderr. The
default threshold is the one stored with the restorer, or 0.9 if its file has none.

In FASTA, all sequences are rotated; with --circular-only, those whose header marks them as circular (circular=true,
topology=circular). In GFA, the segments that their links make circular are rotated; segments with links to others are
copied. --names selects the sequences by a list instead. --strand-only puts linear sequences on the right strand and
does not rotate them.

The TSV of --table has the columns name, length, start (the base of the input, counted from 1, that became the first),
strand, confidence, tied (whether several starts had the same score) and result ("turned", "low confidence", "not
circular", "linked" or "too short").

The exit code is 0; with --strict it is 1 if a sequence of low confidence was copied. After an error it is 2, and
nothing is written.

\b
Examples:
  unshift orient assembly.fa -o oriented.fa --table starts.tsv
  zcat assembly.gfa.gz | unshift orient - --circular-only > oriented.gfa
  unshift orient plasmids.fa --restorer mine.safetensors > oriented.fa
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unshift.cli import options
from unshift.cli.allocator import limit_onednn_cache
from unshift.cli.outputs import check_folder, join_names, write_table

if TYPE_CHECKING:
    from unshift.data.assemblies import Assembly, Segment
    from unshift.restorer import Chain, Restorer

FALLBACK = 0.9
"""The least confidence for a restorer whose file has none."""
LOW = "low confidence"
COLUMNS = ("name", "length", "start", "strand", "confidence", "tied", "result")

Row = dict[str, Any]


def orient(
    sources: Annotated[list[Path], typer.Argument(metavar="IN...", help="FASTA files or a GFA file; - is stdin.")],
    restorer: Annotated[str, typer.Option("--restorer", "-r", help=options.MODEL_HELP)] = "mitogenome",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write. Default: stdout.")] = None,
    table: Annotated[Path | None, typer.Option(metavar="TSV", help="Also write the starts as a table.")] = None,
    circular_only: Annotated[bool, typer.Option("--circular-only", help="Rotate only those marked circular.")] = False,
    names: Annotated[Path | None, typer.Option(metavar="FILE", help="Rotate only the sequences listed here.")] = None,
    strand_only: Annotated[bool, typer.Option("--strand-only", help="Choose the strand; do not rotate.")] = False,
    min_confidence: options.MinConfidence = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if a confidence is low.")] = False,
    device: options.Device = "cpu",
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Rotate circular genomes in FASTA or GFA to their start."""
    rows = orient_files(
        sources, restorer, out, table, circular_only, names, strand_only, min_confidence, device, force, quiet
    )
    raise typer.Exit(1 if strict and any(row["result"] == LOW for row in rows) else 0)


def orient_files(
    sources: Sequence[Path],
    restorer: str,
    out: Path | None,
    table: Path | None,
    circular_only: bool = False,
    names: Path | None = None,
    strand_only: bool = False,
    min_confidence: float | None = None,
    device: str = "cpu",
    force: bool = False,
    quiet: bool = False,
) -> list[Row]:
    """Orient the sequences of files and return the rows of the table. The arguments are those of the command."""
    from unshift.data.assemblies import read_assembly
    from unshift.data.sequences import compressed
    from unshift.distributed import count
    from unshift.files import load
    from unshift.progress import tracked

    if count() > 1:
        raise ValueError("sequences are restored by one process: omit torchrun")
    limit_onednn_cache()
    for place in filter(None, (out, table)):
        _check_place(place, sources, force)
    model = load(restorer).to(device)
    shortest = _filter_width(model)
    assembly = read_assembly(sources)
    chosen = None if names is None else _read_names(names, assembly)
    if min_confidence is None:
        min_confidence = float(model.metadata.get("orient", {}).get("min_confidence", FALLBACK))

    def reason(segment: Segment) -> str:
        """Return the reason to copy a segment without an estimate, or an empty string."""
        if segment.linked:
            return "linked"
        if chosen is None:
            eligible = segment.circular or strand_only or not (circular_only or assembly.graph)
        else:
            eligible = segment.name in chosen
        if not eligible:
            return "not circular"
        return "too short" if len(segment.record.text) - segment.overlap < shortest else ""

    rows: list[Row] = []
    texts: dict[str, str] = {}
    for segment in tracked(assembly.segments, "orient", "sequences", not quiet):
        row: Row = dict.fromkeys(COLUMNS, "")
        row |= {"name": segment.name, "length": len(segment.record.text), "result": reason(segment)}
        rows.append(row)
        if row["result"]:
            continue
        found, text = _turn(segment, model, strand_only, device)
        row |= found | {"result": LOW}
        if found["confidence"] >= min_confidence:
            row["result"], texts[segment.name] = "turned", text
    if table:
        write_table(table, rows, force, delimiter="," if table.suffix == ".csv" else "\t")
    try:
        _write(compressed(assembly.write(texts), out), out, force)
    except (OSError, ValueError):
        if table and table.is_file():
            table.unlink()
        raise
    _summarise(rows, min_confidence)
    return rows


def _turn(segment: Segment, model: Restorer | Chain, strand_only: bool, device: str) -> tuple[Row, str]:
    """Return the columns of the estimate, and the oriented text."""
    from unshift.data.sequences import encode, encode_letters, oriented

    circle = segment.record.text[: len(segment.record.text) - segment.overlap]
    # The tie rule must compare the letters that are written: different letters may stand for the same bases.
    estimate = model.estimate([encode(circle).to(device)], target=[encode_letters(circle).to(device)])
    shift, turn = int(estimate.shift), 0 if estimate.turn is None else int(estimate.turn)
    found = {
        "start": (shift - turn) % len(circle) + 1,
        "strand": "+-"[turn],
        "confidence": float(estimate.confidence),
        "tied": bool(estimate.tied),
    }
    if strand_only:
        return found, oriented(segment.record.text, 0, turn)
    text = oriented(circle, shift, turn)
    return found, text + text[: segment.overlap]


def _summarise(rows: Sequence[Row], min_confidence: float) -> None:
    """Print on stderr how many sequences were turned, and which were not."""
    turned = [row for row in rows if row["result"] == "turned"]
    reverse = sum(row["strand"] == "-" for row in turned)
    print(
        f"{len(turned):,} of {len(rows):,} sequences turned to their start, {reverse:,} of them from the reverse "
        "strand",
        file=sys.stderr,
    )
    for result in dict.fromkeys(row["result"] for row in rows if row["result"] != "turned"):
        copied = [row["name"] for row in rows if row["result"] == result]
        why = f"of confidence below {min_confidence:.4g}" if result == LOW else f"{result}"
        print(f"{len(copied):,} {why}, copied as they are: {join_names(copied)}", file=sys.stderr)


def _write(content: bytes, out: Path | None, force: bool) -> None:
    from unshift.files import write_atomically

    if out is not None and (out.is_file() or not out.exists()):
        write_atomically(out, content, exclusive=not force)
        return
    try:
        if out is None:
            sys.stdout.buffer.write(content)
            sys.stdout.flush()
        else:  # a named pipe or a device
            out.write_bytes(content)
    except OSError as error:
        if out is None:  # the rest of the buffer must not fail again when the process exits
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise ValueError(f"{out or 'stdout'} cannot be written: {error.strerror}") from error


def _read_names(path: Path, assembly: Assembly) -> set[str]:
    try:
        chosen = set(path.read_text(encoding="utf-8").split())
    except (OSError, UnicodeError) as error:
        raise ValueError(f"--names {path} cannot be read: {error}") from error
    if missing := sorted(chosen - {segment.name for segment in assembly.segments}):
        raise ValueError(f"--names {path} lists {join_names(missing)}, and no sequence has that name")
    return chosen


def _filter_width(model: Restorer | Chain) -> int:
    """Return the width of the widest filter. Raise a ``ValueError`` if the model is not for sequences."""
    scorer: Any = model.stages[0].scorer
    channels = model.image_shape()[0]
    if len(model.stages) > 1 or scorer.axes != 1 or channels != 4:
        raise ValueError(
            f"this restorer is not for sequences: it takes {channels} channel(s) and {scorer.axes} axes, and a "
            "sequence has 4 channels (A C G T) and one axis"
        )
    if scorer.size is not None:
        raise ValueError(f"this restorer takes sequences of {scorer.size[0]} bases only; fit one with preset sequence")
    return int(max(layer.weight.shape[-1] for layer in scorer.local))


def _check_place(place: Path, sources: Sequence[Path], force: bool) -> None:
    if place.is_dir():
        raise ValueError(f"{place} is a folder; give the name of a file")
    if place.exists() and any(source.exists() and place.samefile(source) for source in sources):
        raise ValueError(f"{place} is one of the inputs; give another file")
    if place.is_file() and not force:
        raise ValueError(f"{place} exists; --force overwrites it")
    if not place.exists():
        check_folder(place.parent)
