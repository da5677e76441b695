"""Restore many image files: read them, estimate poses in batches, move and write each file by itself.

Images of one shape share a batch of the network. Many files are shared by processes, since threads would wait for the
interpreter: 400 photos of 500x375 a second by two threads, 550 by two processes.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import multiprocessing
import os
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unshift.cli.document_files import is_document, pages_of, turn_document
from unshift.cli.image_files import QUARTERS, Picture, Reader, Refused, write_moved
from unshift.cli.processes import cores

if TYPE_CHECKING:
    from unshift.restorer import Chain, Estimate, Restorer

BATCH = 2**24
"""Number of values at which a batch is complete."""
PART = 16
"""Largest number of files that a process takes at a time."""
MANY = 64
"""Smallest number of files that are shared by processes."""
PR_SET_PDEATHSIG = 1  # linux/prctl.h

Files = Sequence[tuple[Path, Path]]
"""Sources, and the files to write."""


@dataclass
class Result:
    """The result of one file, as plain data that processes exchange."""

    source: str
    rows: list[dict[str, Any]] = field(default_factory=list)  # of the table: one, one for each page, or none if refused
    written: str = ""  # "copied", "rejected" (copied for a low confidence), or a result of `image_files.write_moved`
    problem: str = ""  # the reason why the file was refused
    grey: bool = True


def turns_pages(model: Restorer | Chain) -> bool:
    """Return whether a restorer undoes quarter turns and nothing else, as the rotation entry of a PDF does."""
    labels = model.coordinates.labels
    return bool(labels.reads == {"turn"} and labels.turns == tuple(QUARTERS))


@dataclass(frozen=True)
class Restoring:
    """Restore image files."""

    model: Restorer | Chain
    reader: Reader
    min_confidence: float = 0.0
    skip: bool = False  # whether to skip files that cannot be restored
    hint: str = ""  # added to the message about an image that does not fit the network
    device: str = "cpu"
    workers: int | None = None  # number of processes; by default one for each core

    def run(self, files: Files, progress: Callable[[int], object] = lambda count: None) -> list[Result]:
        """Restore files and return their results, in order; call ``progress`` with the number of files done since.

        Raise a ``ValueError`` if a file cannot be restored and is not to be skipped.
        """
        import torch

        threads, results, warned = torch.get_num_threads(), list[Result](), set[str]()
        try:
            for done, texts in self._results(files):
                for text in texts:
                    if text[:50] not in warned:  # processes may warn of the same thing, with other numbers
                        warnings.warn(text, stacklevel=2)
                    warned.add(text[:50])
                results += done
                progress(len(done))
        except Refused as error:
            hint = "; --skip-unreadable skips such files" if len(files) > 1 else ""
            raise ValueError(f"{error}{hint}") from error
        except BrokenProcessPool as error:
            raise ValueError("a process ended early, probably for lack of memory; try fewer --workers") from error
        finally:
            torch.set_num_threads(threads)
        return results

    def _results(self, files: Files) -> Iterator[tuple[list[Result], list[str]]]:
        """Yield the results, a few files at a time, each with the texts of warnings in other processes."""
        import torch

        from unshift import distributed as ranks

        torch.set_num_threads(1)  # files are restored in parallel, and each by one thread
        # Restore the first file in this process: forked processes inherit what was loaded and compiled for it.
        yield self._restore(files[:1])
        workers = cores() if self.workers is None else max(1, self.workers)
        size = max(1, min(PART, math.ceil(len(files) / (4 * workers))))
        parts = [files[at : at + size] for at in range(1, len(files), size)]
        if workers == 1 or not parts:
            yield from map(self._restore, parts)
            return
        pool: Executor
        # Fork on Linux only, and not in a process that uses a GPU or is one of several ranks.
        if len(files) >= MANY and sys.platform == "linux" and self.device == "cpu" and ranks.count() == 1:
            fork, arguments = multiprocessing.get_context("fork"), (self, os.getpid())
            pool, restore = ProcessPoolExecutor(workers, fork, _start_worker, arguments), _restore_in_worker
        else:
            pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
            restore = self._restore
        try:
            yield from pool.map(restore, parts)
        finally:
            pool.shutdown(cancel_futures=True)

    def _restore(self, files: Files) -> tuple[list[Result], list[str]]:
        """Restore files, a batch at a time."""
        results: dict[Path, Result] = {}
        waiting: list[Picture] = []
        for source, destination in files:
            try:
                if turns_pages(self.model) and is_document(source):
                    results[destination] = self._restore_document(source, destination)
                else:
                    waiting.append(self.reader(source, destination))
            except Refused as error:
                results[destination] = self._refuse(source, error)
            if sum(picture.seen.numel() for picture in waiting) >= BATCH:
                results |= self._restore_pictures(waiting)
                waiting = []
        results |= self._restore_pictures(waiting)
        return [results[destination] for _, destination in files], []

    def _restore_document(self, source: Path, destination: Path) -> Result:
        """Judge each page by itself; turn those that are not upright and not rejected."""
        import torch

        poses, rows = [], []
        for page in pages_of(source, destination, self.reader):
            pose = self.model.estimate(page.to(self.device))
            assert pose.turn is not None
            rejected = float(pose.confidence) < self.min_confidence
            poses.append(pose._replace(turn=torch.zeros_like(pose.turn)) if rejected else pose)
            written = "rejected" if rejected else "lossless" if bool(pose.turn.any()) else "copied"
            rows.append({"page": len(poses), **self._columns(pose), "written": written})
        destination.parent.mkdir(parents=True, exist_ok=True)
        moved = turn_document(self.reader, source, destination, self.model, poses)
        kinds = {row["written"] for row in rows}
        written = "rejected" if kinds == {"rejected"} else moved
        return Result(str(source), rows, written)

    def _refuse(self, source: Path, error: Refused) -> Result:
        if not self.skip:
            raise error
        return Result(str(source), problem=str(error))

    def _restore_pictures(self, pictures: list[Picture]) -> dict[Path, Result]:
        """Estimate images of one shape together; move and write each by itself, in its own mode."""
        import torch

        from unshift.coordinates import rows

        results = {}
        alike = sorted(pictures, key=lambda picture: str(picture.kind))
        for _, group in itertools.groupby(alike, key=lambda picture: picture.kind):
            batch = list(group)
            seen = torch.cat([picture.seen for picture in batch]).to(self.device)
            plain = all(picture.values is picture.seen for picture in batch)
            values = seen if plain else torch.cat([picture.values for picture in batch]).to(self.device)
            try:
                estimate = self.model.estimate(seen, target=values)
            except ValueError as error:
                for picture in batch:
                    refused = Refused(f"{picture.source}: {error}{self.hint}")
                    results[picture.destination] = self._refuse(picture.source, refused)
                continue
            estimate = type(estimate)(*(None if part is None else part.cpu() for part in estimate))  # type: ignore[arg-type]
            for at, picture in enumerate(batch):
                try:
                    results[picture.destination] = self._write(picture, rows(estimate, slice(at, at + 1)))
                except Refused as error:
                    results[picture.destination] = self._refuse(picture.source, error)
        return results

    def _write(self, picture: Picture, pose: Estimate) -> Result:
        """Write one image: moved, or copied byte for byte if no pixel of it changes."""
        from unshift.inputs import is_grey

        picture.destination.parent.mkdir(parents=True, exist_ok=True)
        moved = any(part is not None and bool(part.any()) for part in pose[:3])
        written = "rejected" if float(pose.confidence) < self.min_confidence else "copied"
        if written == "rejected" or not (moved or picture.scaled or self.model.coordinates.labels.scenes):
            shutil.copyfile(picture.source, picture.destination)
        else:
            written = write_moved(picture, self.model, pose)
        row = self._columns(pose) | {"written": written}
        return Result(str(picture.source), [row], written, grey=is_grey(picture.image))

    def _columns(self, pose: Estimate) -> dict[str, Any]:
        """Return the columns of the table for one image."""
        labels, columns = self.model.coordinates.labels, dict[str, Any]()
        if "shift" in labels.reads:
            columns |= {"down": int(pose.shift[0, 0]), "right": int(pose.shift[0, 1])}
        if pose.turn is not None:
            columns["turn"] = labels.turns[int(pose.turn)]
        if pose.angle is not None:
            columns["angle"] = float(pose.angle)
        return columns | {"confidence": float(pose.confidence), "tied": bool(pose.tied)}


_restoring: Restoring
"""The work of this process, if it is a worker: inherited, not sent."""


def _start_worker(restoring: Restoring, parent: int) -> None:
    """Prepare a forked process. It ends when its parent ends, even if the parent is killed."""
    import torch

    global _restoring
    _restoring = restoring
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call of prctl
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C also reaches the parent, which stops the workers
    torch.set_num_threads(1)


def _restore_in_worker(files: Files) -> tuple[list[Result], list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        results, _ = _restoring._restore(files)
    return results, [str(warning.message) for warning in caught]
