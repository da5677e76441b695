"""Image files restored as fast as they can be read and written: several at a time, in batches of one size.

Threads read; what they read waits, in bounded number, for others of its size; a batch is then restored, encoded and
written by one thread. Pillow and PyTorch leave the interpreter free meanwhile.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unshift.cli.image_files import Picture, Unreadable, encoded

if TYPE_CHECKING:
    from unshift.restorer import Chain, Estimate, Restorer

BATCH = 2**20
"""Pixels that are restored at a time, or one image."""
WAITING = 2**23
"""Pixels that may wait for others of their size."""


@dataclass
class Outcome:
    """What became of the files."""

    found: dict[Path, Estimate] = field(default_factory=dict)
    """the estimate of each image, by where it goes"""
    doubtful: set[Path] = field(default_factory=set)
    """those that were left as they are"""
    unreadable: dict[Path, str] = field(default_factory=dict)
    """files that were skipped, and why"""


@dataclass(frozen=True)
class Restoring:
    """How files are restored: by which model, from how sure an answer on, and what to do on the way."""

    model: Restorer | Chain
    read: Callable[[Path], Picture]
    min_confidence: float = 0.0
    skip_unreadable: bool = False
    see: Callable[[Picture], None] = lambda picture: None
    """shown each image that was read"""
    hint: str = ""
    """what to say to an image that does not fit"""

    def run(self, targets: Mapping[Path, Path], place: Callable[[Path], Path], told: Callable[[int], None]) -> Outcome:
        """Restore the sources of ``targets``, and write each to the ``place`` of its target; tell how many were."""
        import torch

        outcome, threads = Outcome(), torch.get_num_threads()
        workers = max(2, os.cpu_count() or 1)
        pool = ThreadPoolExecutor(
            workers, initializer=torch.set_num_threads, initargs=(1,)
        )  # the images are in parallel
        working: deque[Future[list[tuple[Path, Estimate, bool]]]] = deque()

        def collect(most: int) -> None:
            while len(working) > most:
                done = working.popleft().result()
                outcome.found |= {target: estimate for target, estimate, _ in done}
                outcome.doubtful |= {target for target, _, doubtful in done if doubtful}
                told(len(done))

        try:
            for batch in _batches(self._read_ahead(pool, targets, workers + 2, outcome)):
                working.append(pool.submit(self._restore, batch, place))
                collect(workers)
            collect(0)
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(threads)
        outcome.found = {target: outcome.found[target] for target in targets if target in outcome.found}
        return outcome

    def _read_ahead(
        self, pool: ThreadPoolExecutor, targets: Mapping[Path, Path], ahead: int, outcome: Outcome
    ) -> Iterator[Picture]:
        """Yield the files in order, with some being read meanwhile."""
        reading: deque[tuple[Path, Future[Picture]]] = deque()
        todo = iter(targets.items())
        while True:
            for target, source in itertools.islice(todo, ahead - len(reading)):
                reading.append((target, pool.submit(self.read, source)))
            if not reading:
                return
            target, future = reading.popleft()
            try:
                picture = future.result()
            except Unreadable as error:
                if not self.skip_unreadable:
                    hint = "; --skip-unreadable passes over such files" if len(targets) > 1 else ""
                    raise ValueError(f"{error}{hint}") from error
                outcome.unreadable[targets[target]] = str(error)
                continue
            picture.target = target
            self.see(picture)
            yield picture

    def _restore(self, batch: list[Picture], place: Callable[[Path], Path]) -> list[tuple[Path, Estimate, bool]]:
        """Restore a batch and write it; return the estimate of each, and whether it was left as it is."""
        import torch

        from unshift.coordinates import rows
        from unshift.pictures import with_values

        seen, values = torch.cat([one.seen for one in batch]), torch.cat([one.values for one in batch])
        try:
            # The tie rule compares what is written, not what the network sees of it: two colours may have one grey.
            estimate = self.model.estimate(seen, of=values)
        except ValueError as error:
            raise ValueError(f"{batch[0].source}: {error}{self.hint}") from error
        done = []
        for at, picture in enumerate(batch):
            own = rows(estimate, slice(at, at + 1))
            doubtful = float(own.confidence) < self.min_confidence
            file = place(picture.target)
            file.parent.mkdir(parents=True, exist_ok=True)
            if doubtful:
                shutil.copyfile(picture.source, file)
            else:
                moved = self.model.undo(values[at : at + 1], own)
                file.write_bytes(encoded(with_values(picture.image, moved), picture.source))
            done.append((picture.target, own, doubtful))
        return done


def _batches(pictures: Iterator[Picture]) -> Iterator[list[Picture]]:
    """Put together images of one kind; few wait for others."""
    waiting: dict[Any, list[Picture]] = {}
    pixels: Counter[Any] = Counter()
    for picture in pictures:
        waiting.setdefault(picture.kind, []).append(picture)
        pixels[picture.kind] += picture.seen.numel()
        if pixels[picture.kind] >= BATCH or pixels.total() > WAITING:
            largest = pixels.most_common(1)[0][0]
            del pixels[largest]
            yield waiting.pop(largest)
    yield from waiting.values()
