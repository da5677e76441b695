"""FASTA files: sequences turned to their start, and a table of where it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unshift.cli.outputs import check_folder, write_table
from unshift.cli.printing import print_json

if TYPE_CHECKING:
    from unshift.data.sequences import Record
    from unshift.restorer import Chain, Restorer

SHOWN = 5
"""Names that a message lists before it counts the rest."""


def restore_sequences(
    sources: Sequence[Path], model: Restorer | Chain, out: Path, min_confidence: float, force: bool, as_json: bool
) -> int:
    """Turn the sequences of FASTA files to their start, in order, into one file; return how many were left alone.

    Args:
        sources: The files.
        model: A restorer of sequences.
        out: The FASTA file to write; the table goes beside it, as ``.csv``.
        min_confidence: Leave sequences of a lower confidence as they are.
        force: Overwrite both.
        as_json: Print the rows of the table.

    Raises:
        ValueError: If a file cannot be read or written, or a sequence not restored. Nothing is written then.
    """
    from unshift.data.sequences import Record, oriented, to_fasta
    from unshift.progress import tracked
    from unshift.ranks import count
    from unshift.weights import write_atomically

    if count() > 1:
        raise ValueError("sequences are restored by one process: leave out torchrun")
    table = _table(out)
    _check_places(sources, out, table, force)
    records = _read(sources, _taps(model))
    written, rows = [], []
    for record in tracked(records, "restore", "sequences"):
        row, shift, turn = _located(model, record)
        row["oriented"] = row["confidence"] >= min_confidence
        rows.append(row)
        written.append(Record(record.header, oriented(record.text, shift, turn)) if row["oriented"] else record)
    write_atomically(out, to_fasta(written, out))
    write_table(table, rows)
    left = [row["name"] for row in rows if not row["oriented"]]
    if as_json:
        print_json(rows)
        return len(left)
    other = sum(row["strand"] == "-" and row["oriented"] for row in rows)
    print(
        f"{len(rows) - len(left):,} of {len(rows):,} sequences turned to their start, {other:,} of them on the other "
        f"strand; where they begin is in {table}"
    )
    if left:
        print(f"{len(left):,} left as they were, their confidence being below {min_confidence:g}: {_some(left)}")
    return len(left)


def _located(model: Restorer | Chain, record: Record) -> tuple[dict[str, Any], int, int]:
    """Return the row of a sequence in the table, and the shift and turn to undo."""
    from unshift.data.sequences import encode, encode_letters

    # The tie rule compares the letters that are written, not the bases that they stand for.
    found = model.estimate([encode(record.text)], of=[encode_letters(record.text)])
    shift, turn = int(found.shift), 0 if found.turn is None else int(found.turn)
    length = len(record.text)
    row = {
        "name": record.name,
        "length": length,
        "start": (shift - turn) % length + 1,
        "strand": "+-"[turn],
        "confidence": float(found.confidence),
        "tied": bool(found.tied),
    }
    return row, shift, turn


def _read(sources: Sequence[Path], taps: int) -> list[Record]:
    """Read all sequences, or say which cannot be restored."""
    from unshift.data.sequences import read_fasta

    records = []
    for source in sources:
        for record in read_fasta(source):
            if len(record.text) < taps:
                raise ValueError(
                    f"{source}: {record.name} has {len(record.text)} bases, fewer than the {taps} that a filter of "
                    "this restorer spans"
                )
            records.append(record)
    if double := [name for name, count in Counter(record.name for record in records).items() if count > 1]:
        raise ValueError(
            f"{len(double)} names occur more than once ({_some(double)}), and the table could not tell their "
            "sequences apart; rename them, or remove the copies"
        )
    return records


def _taps(model: Restorer | Chain) -> int:
    """Return how wide the filters are, or refuse a restorer of something else than sequences."""
    from unshift.weights import image_shape

    scorer: Any = model.stages[0].scorer
    channels = image_shape(model)[0]
    if len(model.stages) > 1 or scorer.axes != 1 or channels != 4:
        raise ValueError(
            f"this restorer is not for sequences: it takes {channels} channel(s) and {scorer.axes} axes, and a "
            "sequence has 4 channels (A C G T) and one axis"
        )
    if scorer.size is not None:
        raise ValueError(f"this restorer takes sequences of {scorer.size[0]} bases only; fit one with preset sequence")
    return int(max(layer.weight.shape[-1] for layer in scorer.local))


def _table(out: Path) -> Path:
    whole = out.with_suffix("") if out.suffix.lower() == ".gz" else out
    return whole.with_suffix(".csv")


def _check_places(sources: Sequence[Path], out: Path, table: Path, force: bool) -> None:
    from unshift.data.sequences import is_fasta

    if other := next((source for source in sources if not is_fasta(source)), None):
        raise ValueError(f"{other} is not a FASTA file (.fa, .fasta.gz); restore images and sequences separately")
    if out.is_dir():
        raise ValueError(f"--out {out} is a folder; sequences are written to one FASTA file: give its name")
    if not is_fasta(out):
        raise ValueError(f"--out {out} is not a name for a FASTA file, such as oriented.fa or oriented.fa.gz")
    if out.exists() and any(source.exists() and out.samefile(source) for source in sources):
        raise ValueError(f"--out {out} is one of the inputs; give another file")
    if existing := [path for path in (out, table) if path.exists() and not force]:
        raise ValueError(f"{existing[0]} exists; --force overwrites it")
    check_folder(out.parent)


def _some(names: Sequence[str]) -> str:
    rest = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + rest
