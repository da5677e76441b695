"""FASTA files: rotate circular sequences to their start, and list the starts in a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unshift.cli.outputs import check_folder, write_table
from unshift.cli.printing import named, print_json

if TYPE_CHECKING:
    from unshift.data.sequences import Record
    from unshift.restorer import Chain, Restorer


def restore_sequences(
    sources: Sequence[Path],
    model: Restorer | Chain,
    out: Path,
    min_confidence: float,
    force: bool,
    as_json: bool,
    quiet: bool = False,
) -> int:
    """Rotate the sequences of FASTA files to their start and write them to one file, in order.

    The table goes beside ``out``, as ``.csv``. Return the number of sequences whose confidence is too low, which are
    left unchanged. Raise a ``ValueError`` before anything is written if a file cannot be read or written.
    """
    from unshift.data.sequences import Record, encode, encode_letters, oriented, to_fasta
    from unshift.distributed import count
    from unshift.files import write_atomically
    from unshift.progress import tracked

    if count() > 1:
        raise ValueError("sequences are restored by one process: omit torchrun")
    table = (out.with_suffix("") if out.suffix.lower() == ".gz" else out).with_suffix(".csv")
    _check_places(sources, out, table, force)
    records = _read(sources, _filter_width(model))
    written, rows, device = [], list[dict[str, Any]](), next(model.buffers()).device
    for record in tracked(records, "restore", "sequences", not quiet):
        # The tie rule compares the letters that are written, not the bases that they stand for.
        target = encode_letters(record.text).to(device)
        estimate = model.estimate([encode(record.text).to(device)], target=[target])
        shift, turn = int(estimate.shift), 0 if estimate.turn is None else int(estimate.turn)
        accepted = float(estimate.confidence) >= min_confidence
        row = {
            "name": record.name,
            "length": len(record.text),
            "start": (shift - turn) % len(record.text) + 1,
            "strand": "+-"[turn],
            "confidence": float(estimate.confidence),
            "tied": bool(estimate.tied),
            "oriented": accepted,
        }
        rows.append(row)
        written.append(Record(record.header, oriented(record.text, shift, turn)) if accepted else record)
    write_atomically(out, to_fasta(written, out))
    write_table(table, rows)
    unchanged = [row["name"] for row in rows if not row["oriented"]]
    if as_json:
        print_json(rows)
        return len(unchanged)
    reversed_ = sum(row["strand"] == "-" and row["oriented"] for row in rows)
    print(
        f"{len(rows) - len(unchanged):,} of {len(rows):,} sequences rotated to their start, {reversed_:,} of them from "
        f"the reverse strand; the starts are in {table}"
    )
    if unchanged:
        print(f"{len(unchanged):,} of confidence below {min_confidence:g} left unchanged: {named(unchanged)}")
    return len(unchanged)


def _read(sources: Sequence[Path], width: int) -> list[Record]:
    """Read all sequences. Raise a ``ValueError`` that names those that cannot be restored."""
    from unshift.data.sequences import read_fasta

    records = []
    for source in sources:
        for record in read_fasta(source):
            if len(record.text) < width:
                raise ValueError(
                    f"{source}: {record.name} has {len(record.text)} bases, fewer than the {width} that a filter of "
                    "this restorer spans"
                )
            records.append(record)
    if double := [name for name, count in Counter(record.name for record in records).items() if count > 1]:
        raise ValueError(
            f"{len(double)} names occur more than once ({named(double)}), so the table would be ambiguous; rename the "
            "sequences, or remove the copies"
        )
    return records


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


def _check_places(sources: Sequence[Path], out: Path, table: Path, force: bool) -> None:
    from unshift.data.sequences import is_fasta

    if other := next((source for source in sources if not is_fasta(source)), None):
        raise ValueError(f"{other} is not a FASTA file (.fa, .fasta.gz); restore images and sequences separately")
    if out.is_dir():
        raise ValueError(f"--out {out} is a folder; sequences are written to one FASTA file; give its name")
    if not is_fasta(out):
        raise ValueError(f"--out {out} is not a name for a FASTA file, such as oriented.fa or oriented.fa.gz")
    if out.exists() and any(source.exists() and out.samefile(source) for source in sources):
        raise ValueError(f"--out {out} is one of the inputs; give another file")
    if existing := [path for path in (out, table) if path.exists() and not force]:
        raise ValueError(f"{existing[0]} exists; --force overwrites it")
    check_folder(out.parent)
