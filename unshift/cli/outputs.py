"""Refuse, before the work, what could not or should not be written after it."""

from __future__ import annotations

from pathlib import Path


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
