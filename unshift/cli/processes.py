"""A command done by several processes together, as ``torchrun`` starts them: one of them tells and writes."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator

__all__ = ["COMMANDS", "cores", "label", "restarted", "together"]

COMMANDS = ("fit", "evaluate", "restore", "verify")


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Join the other processes of the run, if there are any; all but the first print nothing on stdout.

    Raises:
        ValueError: If several processes cannot share the command, or do not have the same one.
    """
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:  # PyTorch is not imported for that
        yield
        return
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    if command not in COMMANDS:
        words = ", ".join(COMMANDS)
        raise ValueError(f"only {words} can run as several processes; run `unshift {command}` without torchrun")
    from unshift.ranks import is_first, joined

    with joined(sys.argv[1:]), contextlib.nullcontext() if is_first() else contextlib.redirect_stdout(io.StringIO()):
        yield


def label() -> str:
    """Return what to put before the messages of this process: nothing, but of all processes but the first."""
    number = os.environ.get("RANK", "0") if int(os.environ.get("WORLD_SIZE", 1)) > 1 else "0"
    return "" if number == "0" else f"rank {number}: "


def restarted() -> bool:
    """Tell whether ``torchrun`` started this process again after a failure: the work then goes on where it was."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0


def cores() -> int:
    """Return how many cores there are for this process, which shares them with the others of the run."""
    here = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, here // int(os.environ.get("LOCAL_WORLD_SIZE", 1)))
