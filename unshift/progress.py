"""Progress: a bar on a terminal, a plain line now and then anywhere else. Long work is never silent."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

from tqdm.auto import tqdm

__all__ = ["Progress", "duration", "still_working", "tracked"]

Item = TypeVar("Item")
EVERY_SECONDS = 5.0


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
        terminal = sys.stderr.isatty()
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
        print(f"{self.what}: {text}", file=sys.stderr, flush=True)
        self._told = time.monotonic()

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
def still_working(what: str, doing: str) -> Iterator[None]:
    """Say what is being done, and every few seconds that it still is: for work that cannot tell how far it is."""
    begun, over = time.monotonic(), threading.Event()

    def tell() -> None:
        while not over.wait(EVERY_SECONDS):
            print(f"{what}: {doing}, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
