"""What is written: refused before the work if it could not or should not be, and tables."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def check_output(out: Path, state: Path, resume: bool, force: bool) -> None:
    """Refuse, before an hour of training, what could not or should not be written after it."""
    if out.is_dir():
        raise ValueError(f"--out {out} is a folder; give the name of a file in it")
    if out.exists() and not (force or resume):
        raise ValueError(f"{out} exists; --force overwrites it, --resume goes on with it")
    if state.exists() and not (force or resume):
        raise ValueError(f"{state} is left from a run that did not finish; --resume goes on, --force starts over")
    for file in (out, state):
        check_folder(file.parent)


def check_folder(folder: Path) -> None:
    """Make ``folder`` if need be, and see that files can be written there."""
    import tempfile

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"cannot write to {folder} ({error.strerror or error})") from error


def write_table(table: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as CSV, with truth as JSON spells it."""
    from unshift.weights import write_atomically

    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows({k: json.dumps(v) if isinstance(v, bool) else v for k, v in row.items()} for row in rows)
    # Names that are not valid UTF-8 are kept as they are on disk.
    write_atomically(table, text.getvalue().encode("utf-8", "surrogateescape"))
