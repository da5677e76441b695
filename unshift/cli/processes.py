"""Commands that several processes run together, as ``torchrun`` starts them. Only the first logs and writes."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator

COMMANDS = ("fit", "evaluate", "restore", "verify")


@contextlib.contextmanager
def joined_ranks() -> Iterator[None]:
    """Join the other processes of the run, if any; all but the first print nothing on stdout."""
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:  # avoids importing PyTorch
        yield
        return
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    if command not in COMMANDS:
        words = ", ".join(COMMANDS)
        raise ValueError(f"only {words} can run as several processes; run `unshift {command}` without torchrun")
    from unshift.distributed import is_first, process_group

    # The second context is evaluated inside the first, where the rank is known.
    with (
        process_group(sys.argv[1:]),
        contextlib.nullcontext() if is_first() else contextlib.redirect_stdout(io.StringIO()),
    ):
        yield


def rank_prefix() -> str:
    """Return the prefix of this process's messages: its rank, or nothing for the first."""
    number = os.environ.get("RANK", "0") if int(os.environ.get("WORLD_SIZE", 1)) > 1 else "0"
    return "" if number == "0" else f"rank {number}: "


def restarted() -> bool:
    """Return whether ``torchrun`` restarted this process after a failure, so that it should resume."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0


def cores() -> int:
    """Return the number of cores for this process: its share of those of the machine."""
    here = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, here // int(os.environ.get("LOCAL_WORLD_SIZE", 1)))
