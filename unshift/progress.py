"""Progress: a bar on a terminal, a plain line now and then anywhere else. Long work is never silent."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TextIO, TypeVar

from tqdm.auto import tqdm

from unshift import ranks

__all__ = ["Progress", "duration", "never_silent", "tracked"]

Item = TypeVar("Item")
EVERY_SECONDS = 5.0
_last = [0.0]
"""When the last line was written, by whatever wrote it."""


def duration(seconds: float) -> str:
    """Write seconds as ``12 s``, ``5 min`` or ``3.5 h``."""
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:,.1f} h"


class Progress:
    """Tells on standard error how far some work is.

    Args:
        what: Its name, such as ``"fit"``.
        total: How many steps there are; None where that is not known.
        unit: What a step is.
        show: Whether to tell at all.
        done: Steps done before.
    """

    def __init__(self, what: str, total: int | None, unit: str, show: bool = True, done: int = 0) -> None:
        self.what, self.total, self.unit, self.done = what, total, unit, done
        terminal, show = sys.stderr.isatty(), show and ranks.is_first()
        self._show, self._plain = show, show and not terminal
        self._bar = tqdm(total=total, initial=done, desc=what, unit=unit, disable=not (show and terminal))
        self._begun = self._told = time.monotonic()
        self._before = done

    def update(self, steps: int = 1) -> None:
        """Count ``steps`` more as done."""
        self.done += steps
        self._bar.update(steps)
        if self._plain and time.monotonic() - self._told >= EVERY_SECONDS:
            self._line(self._where())

    def say(self, text: str) -> None:
        """Say something before or beside the work, in a line of its own, on a terminal too."""
        if self._show:
            tqdm.write(f"{self.what}: {text}", file=sys.stderr)
            sys.stderr.flush()

    def note(self, text: str) -> None:
        """Say something of the work itself: beside the bar, or as a line."""
        self._bar.set_postfix_str(text)
        if self._plain:
            self._line(f"{self._where()}; {text}")

    def _where(self) -> str:
        seconds, steps = time.monotonic() - self._begun, self.done - self._before
        text = f"{self.done:,}{f'/{self.total:,}' if self.total is not None else ''} {self.unit}, {seconds:.0f} s"
        if self.total is not None and steps and self.done < self.total:
            text += f", about {duration(seconds / steps * (self.total - self.done))} left"
        return text

    def _line(self, text: str) -> None:
        _write(f"{self.what}: {text}")
        self._told = _last[0]

    def __enter__(self) -> Progress:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """End, and leave the terminal tidy."""
        self._bar.close()


def tracked(items: Iterable[Item], what: str, unit: str, show: bool = True, total: int | None = None) -> Iterator[Item]:
    """Yield ``items``, telling how far it is."""
    count = total if total is not None else (len(items) if isinstance(items, Sized) else None)
    with Progress(what, count, unit, show) as progress:
        for item in items:
            yield item
            progress.update()


@contextlib.contextmanager
def never_silent(name: Callable[[], str | None]) -> Iterator[None]:
    """Say every few seconds that work goes on, wherever nothing else is said; on a terminal, say nothing.

    Args:
        name: What the work is called by then, or None for work that is not meant to end.
    """
    begun, over, stream = time.monotonic(), threading.Event(), sys.stderr  # exporters send it elsewhere meanwhile
    _last[0] = begun

    def tell() -> None:
        while not over.wait(1.0):
            if time.monotonic() - _last[0] >= EVERY_SECONDS + 2 and (called := name()) is not None:
                _write(f"{called}: at work, {time.monotonic() - begun:.0f} s", stream)

    if not sys.stderr.isatty():
        threading.Thread(target=tell, daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _write(line: str, stream: TextIO | None = None) -> None:
    print(line, file=stream or sys.stderr, flush=True)
    _last[0] = time.monotonic()
