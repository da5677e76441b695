"""Image files restored as fast as they can be read and written: in parts, several at a time.

Whoever has a part reads files until a batch is full, restores those of one size together, and writes them. Many files
are shared by processes, PyTorch's ``DataLoader`` among them, as threads would wait for the interpreter: 400 photos of
500x375 a second by two threads, 550 by two processes. Few are not worth starting any.
"""

from __future__ import annotations

import itertools
import math
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from unshift.cli.image_files import Picture, Unreadable, write
from unshift.cli.processes import cores

if TYPE_CHECKING:
    from unshift.restorer import Chain, Estimate, Restorer

BATCH = 2**24
"""Pixels that a part holds at a time, or one image."""
FILES = 16
"""Files of a part at most."""
MANY = 64
"""Files from which on processes share them."""

Part = Sequence[tuple[Path, Path]]
"""Targets and their sources."""


@dataclass
class Outcome:
    """What became of the files."""

    found: dict[Path, Estimate] = field(default_factory=dict)
    """the estimate of each image, by where it goes"""
    doubtful: set[Path] = field(default_factory=set)
    """those that were left as they are"""
    unreadable: dict[Path, str] = field(default_factory=dict)
    """files that were skipped, as they cannot be read or do not fit, and why"""

    def add(self, other: Outcome) -> None:
        """Add what became of other files."""
        self.found |= other.found
        self.doubtful |= other.doubtful
        self.unreadable |= other.unreadable


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

        from unshift import ranks

        outcome, threads = Outcome(), torch.get_num_threads()
        workers = max(2, cores())
        # The first file is done alone: what it warns of, the others know. Of the others all get as many.
        first, *rest = targets.items()
        count = min(len(rest), workers * max(4, math.ceil(len(rest) / (workers * FILES))))
        ends = [len(rest) * number // max(1, count) for number in range(count + 1)]
        parts = [[first], *(rest[start:end] for start, end in itertools.pairwise(ends))]
        # A forked process has all that is loaded; elsewhere each would load it again. Ranks are processes already.
        forked = sys.platform == "linux" and len(targets) >= MANY and ranks.count() == 1
        each = _by_processes if forked else _by_threads
        try:
            for part, done in zip(parts, each(parts, lambda part: self._files(part, place), workers), strict=True):
                outcome.add(done)
                told(len(part))
        except Unreadable as error:
            hint = "; --skip-unreadable skips such files" if len(targets) > 1 else ""
            raise ValueError(f"{error}{hint}") from error
        finally:
            torch.set_num_threads(threads)
        return outcome

    def _files(self, part: Part, place: Callable[[Path], Path]) -> Outcome:
        """Restore the files of a part, a batch at a time."""
        outcome, waiting, pixels = Outcome(), list[Picture](), 0
        for target, source in part:
            try:
                picture = self.read(source)
            except Unreadable as error:
                if not self.skip_unreadable:
                    raise
                outcome.unreadable[source] = str(error)
                continue
            picture.target = target
            self.see(picture)
            waiting.append(picture)
            pixels += picture.seen.numel()
            if pixels >= BATCH:
                self._restore(waiting, place, outcome)
                waiting, pixels = [], 0
        self._restore(waiting, place, outcome)
        return outcome

    def _restore(self, pictures: list[Picture], place: Callable[[Path], Path], outcome: Outcome) -> None:
        """Restore images, those of one kind together, and write them."""
        for _, alike in itertools.groupby(sorted(pictures, key=lambda one: str(one.kind)), key=lambda one: one.kind):
            self._restore_batch(list(alike), place, outcome)
        done = [one.target for one in pictures if one.target in outcome.found]
        outcome.found |= {target: outcome.found.pop(target) for target in done}  # in their order again

    def _restore_batch(self, batch: list[Picture], place: Callable[[Path], Path], outcome: Outcome) -> None:
        import torch

        from unshift.coordinates import rows
        from unshift.pictures import with_values

        seen = torch.cat([one.seen for one in batch])
        values = seen if batch[0].values is batch[0].seen else torch.cat([one.values for one in batch])
        try:
            # The tie rule compares what is written, not what the network sees of it: two colours may have one grey.
            estimate = self.model.estimate(seen, of=values)
        except ValueError as error:
            misfits = {one.source: f"{one.source}: {error}{self.hint}" for one in batch}
            if not self.skip_unreadable:
                raise Unreadable(misfits[batch[0].source]) from error
            outcome.unreadable |= misfits
            return
        for at, picture in enumerate(batch):
            own = rows(estimate, slice(at, at + 1))
            file = place(picture.target)
            file.parent.mkdir(parents=True, exist_ok=True)
            if float(own.confidence) < self.min_confidence:
                shutil.copyfile(picture.source, file)
                outcome.doubtful.add(picture.target)
            else:
                write(with_values(picture.image, self.model.undo(values[at : at + 1], own)), file, picture.source)
            outcome.found[picture.target] = own


def _by_threads(parts: Sequence[Part], act: Callable[[Part], Outcome], workers: int) -> Iterator[Outcome]:
    """Yield what becomes of each part, in order."""
    import torch

    # The images are in parallel, not what is done to one.
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield from pool.map(act, parts)
    finally:
        pool.shutdown(cancel_futures=True)


class _Told(NamedTuple):
    """What a process tells of a part: its estimates as arrays, since each tensor takes a file to hand over."""

    outcome: Outcome
    targets: list[Path]
    estimate: list[Any]
    warned: list[str]
    error: Exception | None = None


def _by_processes(parts: Sequence[Part], act: Callable[[Part], Outcome], workers: int) -> Iterator[Outcome]:
    """Yield what becomes of each part, in order. The first is done here, before there are others."""
    import torch
    from torch.utils.data import DataLoader

    from unshift.undoing import Estimate, joined

    torch.set_num_threads(1)  # as the others will have it: what is made ready now, they need not make again
    yield act(parts[0])

    def done(part: Part) -> _Told:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                outcome = act(part)
            except (ValueError, OSError) as error:
                return _Told(Outcome(), [], [], [], error)
        found, outcome.found = outcome.found, {}
        estimate = [None if part is None else part.numpy() for part in joined([*found.values()])] if found else []
        return _Told(outcome, [*found], estimate, [str(each.message) for each in warned])

    rest: Any = list(parts[1:])  # a list is a data set
    loader: DataLoader[Any] = DataLoader(
        rest, batch_size=None, num_workers=workers, collate_fn=done, multiprocessing_context="fork"
    )
    said: set[str] = set()
    for outcome, targets, estimate, warned, error in loader:
        for message in warned:
            if message[:50] not in said:  # two processes may warn of the same thing, each naming another file
                warnings.warn(message, stacklevel=2)
            said.add(message[:50])
        if error is not None:
            raise error
        columns = [[None] * len(targets) if part is None else torch.from_numpy(part).split(1) for part in estimate]
        outcome.found = {target: Estimate(*own) for target, *own in zip(targets, *columns, strict=True)}
        yield outcome
