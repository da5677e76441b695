"""Check outputs before the work starts, stage files, and write tables."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

STAGING = ".restoring-"


def check_output(out: Path, force: bool, state: Path | None = None, resume: bool = False) -> None:
    """Raise a ``ValueError`` if a file, or the checkpoint ``state``, cannot or should not be written after the work."""
    if out.is_dir():
        raise ValueError(f"--out {out} is a folder; give the name of a file in it")
    hint = ", --resume continues with it" if state else ""
    if out.exists() and not (force or resume):
        raise ValueError(f"{out} exists; --force overwrites it{hint}")
    if state and state.exists() and not (force or resume):
        raise ValueError(f"{state} is left from a run that did not finish; --resume continues, --force starts over")
    for file in (out, state or out):
        check_folder(file.parent)


def check_folder(folder: Path) -> None:
    """Create ``folder`` if needed. Raise a ``ValueError`` if no file can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"cannot write to {folder} ({error.strerror or error})") from error


@contextlib.contextmanager
def staged(out: Path) -> Iterator[Path]:
    """Yield a new folder in ``out`` to write to, and remove it; after an error, also the folders created for it."""
    created = [folder for folder in (out, *out.parents) if not folder.exists()]
    check_folder(out)
    # The name lets the next run recognise the folder of a process that was killed.
    prefix = f"{STAGING}{os.getpid()}@{socket.gethostname()}-"
    try:
        with tempfile.TemporaryDirectory(prefix=prefix, dir=out, ignore_cleanup_errors=True) as folder:
            yield Path(folder)
    except BaseException as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            error.filename = out  # instead of a temporary file that no longer exists
        with contextlib.suppress(OSError):  # another run has written there meanwhile
            for empty in created:
                empty.rmdir()
        raise


def remove_stale(out: Path) -> None:
    """Remove the folders of :func:`staged` whose process was killed."""
    from unshift.files import is_alive

    for folder in out.glob(f"{STAGING}*"):
        process, _, place = folder.name.removeprefix(STAGING).partition("@")
        elsewhere = place and place.rpartition("-")[0] != socket.gethostname()
        alive = process.isdigit() and int(process) != os.getpid() and is_alive(int(process))
        if not elsewhere and not alive:
            shutil.rmtree(folder, ignore_errors=True)


def write_table(table: Path, rows: Sequence[Mapping[str, Any]], force: bool = True, delimiter: str = ",") -> None:
    """Write rows as CSV, with booleans as in JSON. Without ``force``, raise a ``ValueError`` if the file exists."""
    from unshift.files import write_atomically

    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows({k: json.dumps(v) if isinstance(v, bool) else v for k, v in row.items()} for row in rows)
    # surrogateescape: file names that are not valid UTF-8 stay as they are on disk.
    try:
        write_atomically(table, text.getvalue().encode("utf-8", "surrogateescape"), exclusive=not force)
    except FileExistsError as error:
        raise ValueError(f"{table} exists: another run wrote it meanwhile; --force overwrites it") from error
