"""Progress: a bar on a terminal, a plain line every few seconds anywhere else."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TextIO, TypeVar

from tqdm.auto import tqdm

from unshift import distributed as ranks

__all__ = ["Progress", "duration", "heartbeat", "tracked"]

Item = TypeVar("Item")
EVERY_SECONDS = 5.0
_last_line = [0.0]  # time of the last line that any function of this module wrote


class _Bar(tqdm):  # type: ignore[misc]
    monitor_interval = 0  # no monitor thread: the library starts no threads of its own


def duration(seconds: float) -> str:
    """Format seconds as ``12 s``, ``5 min`` or ``3.5 h``."""
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:,.1f} h"


class Progress:
    """Report on standard error how many of ``total`` steps (None if unknown) are done. A context manager."""

    def __init__(self, name: str, total: int | None, unit: str, show: bool = True, done: int = 0) -> None:
        self.name, self.total, self.unit, self.done = name, total, unit, done
        terminal, self._show = sys.stderr.isatty(), show and ranks.is_first()
        self._plain = self._show and not terminal
        self._bar = _Bar(total=total, initial=done, desc=name, unit=unit, disable=not self._show or self._plain)
        self._started = self._reported = time.monotonic()
        self._done_before = done

    def update(self, steps: int = 1) -> None:
        """Add ``steps`` to those done."""
        self.done += steps
        self._bar.update(steps)
        if self._plain and time.monotonic() - self._reported >= EVERY_SECONDS:
            self._line(self._position())

    def write(self, text: str) -> None:
        """Print a separate line; on a terminal, above the bar."""
        if self._show:
            tqdm.write(f"{self.name}: {text}", file=sys.stderr)
            sys.stderr.flush()

    def note(self, text: str) -> None:
        """Report a detail of the present step: beside the bar, or as a line."""
        self._bar.set_postfix_str(text)
        if self._plain:
            self._line(f"{self._position()}; {text}")

    def _position(self) -> str:
        seconds, steps = time.monotonic() - self._started, self.done - self._done_before
        text = f"{self.done:,}{f'/{self.total:,}' if self.total is not None else ''} {self.unit}, {seconds:.0f} s"
        if self.total is not None and steps and self.done < self.total:
            text += f", about {duration(seconds / steps * (self.total - self.done))} left"
        return text

    def _line(self, text: str) -> None:
        _write(f"{self.name}: {text}")
        self._reported = _last_line[0]

    def __enter__(self) -> Progress:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the bar."""
        self._bar.close()


def tracked(items: Iterable[Item], name: str, unit: str, show: bool = True, total: int | None = None) -> Iterator[Item]:
    """Yield ``items`` and report progress."""
    count = total if total is not None else (len(items) if isinstance(items, Sized) else None)
    with Progress(name, count, unit, show) as progress:
        for item in items:
            yield item
            progress.update()


@contextlib.contextmanager
def heartbeat(task: str) -> Iterator[None]:
    """Print a line with the name of the task every few seconds without any other; none on a terminal.

    For the command line only: it starts a thread.
    """
    started, over, stream = time.monotonic(), threading.Event(), sys.stderr  # exporters replace sys.stderr
    _last_line[0] = started

    def beat() -> None:
        while not over.wait(1.0):
            if time.monotonic() - _last_line[0] >= EVERY_SECONDS + 2:
                _write(f"{task}: at work, {time.monotonic() - started:.0f} s", stream)

    if not sys.stderr.isatty():
        threading.Thread(target=beat, daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _write(line: str, stream: TextIO | None = None) -> None:
    print(line, file=stream or sys.stderr, flush=True)
    _last_line[0] = time.monotonic()
