"""Outputs: check them before the work starts, stage files, write tables, and print results."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import json
import math
import os
import shutil
import socket
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
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


FEW = 100  # below this number of images, a rate is printed with its confidence interval


def print_json(value: Any) -> None:
    """Print ``value`` as JSON."""
    print(json.dumps(value, indent=2))


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Print aligned columns; those in ``right`` flush right."""
    lines = [list(head), *rows] if head else list(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        print("  ".join(cells).rstrip())


def percent(share: float) -> str:
    """Format 0.9876 as ``98.76%``."""
    return f"{100 * share:.2f}%"


def file_size(count: int) -> str:
    """Format a number of bytes as kB or MB."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def join_names(things: Iterable[Any], most: int = 5) -> str:
    """Join the first names with commas, and count the rest."""
    names = [str(thing) for thing in things]
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def rates_line(rates: Mapping[str, Any], step: str, things: str = "images") -> str:
    """Return an :class:`unshift.evaluation.Rates` in words; ``step`` names a distance of 1, such as "pixel"."""
    count = rates["images"]
    exact, near = (f"{round(rates[key] * count):,} = {percent(rates[key])}" for key in ("exact", "within_1"))
    interval = ""
    if count < FEW:
        low, high = confidence_interval(rates["exact"], count)
        interval = f"; 95% confidence interval of the exact rate {100 * low:.0f} to {100 * high:.0f}%"
    return f"{count:,} {things}: {exact} restored exactly, {near} within 1 {step}, {rates['tied']:,} tied{interval}"


def reliability_line(reliability: Any) -> str:
    """Return in words how well the confidence predicts that a pose is exactly right."""
    errors, most_confident = (percent(reliability.risk_at(share)) for share in (1, 0.9))
    return (
        f"confidence: expected calibration error {reliability.ece:.4f}; error rate {errors}, "
        f"{most_confident} among the 90% of highest confidence"
    )


def confidence_interval(share: float, count: int) -> tuple[float, float]:
    """Return the Wilson 95% confidence interval of a rate: ``share`` of ``count`` images."""
    z = 1.96
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    reach = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return max(0.0, middle - reach), min(1.0, middle + reach)
