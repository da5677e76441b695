"""Images read as they are needed, in the order asked for, whatever holds them.

A :class:`Reader` is asked for batches by their rows, ``reader.read([rows, rows, ...])``, and yields them one after
another. It never holds more than a few batches:

- :class:`Memory`: a tensor, whose rows are taken as they are;
- :class:`Items`: a ``Dataset`` of any kind, such as the files of a folder, read by the workers of a ``DataLoader``
  beside the training. Each item is read under random seeds that follow from the pass and its row, so a data set that
  crops or recolours at random gives the same images however many workers there are;
- :class:`Stream`: an ``IterableDataset``, read from its beginning for each pass. Its order is its own, so its rows are
  shuffled only within windows of :data:`WINDOW` images.

A batch is what :mod:`unshift.data.batches` says.
"""

from __future__ import annotations

import functools
import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from unshift.data.batches import Batch, fingerprint, image_of, runs
from unshift.data.seeded import SeededItems, SeededStream, Unbatched, left_alone

__all__ = ["Items", "Memory", "Reader", "Stream", "UnreadableImage", "open_reader"]

WINDOW = 1024
"""Images of a stream among which the order is shuffled."""


class UnreadableImage(ValueError):
    """An image that cannot be read, where none may be left out."""


class Reader(Protocol):
    """Images by their rows."""

    def __len__(self) -> int:
        """Return how many images there are. For a stream, that is known once it has been read to its end."""

    def rows(self, size: int) -> Iterator[Tensor]:
        """Yield the rows of all images in their order, ``size`` at a time; of a stream without end, if need be."""

    def read(
        self, batches: Iterable[Tensor], seed: int = 0, unreadable: dict[int, str] | None = None
    ) -> Iterator[Batch]:
        """Yield one batch for each tensor of rows; stop where a stream ends that was never read to its end before.

        Args:
            batches: The rows of each batch.
            seed: For data sets that draw at random: the same seed gives the same images again.
            unreadable: Where rows that cannot be read are put, with the reason, and left out of their batch. By
                default such a row is an error.

        Raises:
            ValueError: If an image cannot be read. The message names it.
        """

    def shuffled(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        """Return ``rows`` in a random order in which they can be read."""

    def through(self, function: Callable[[Tensor], Tensor]) -> Reader:
        """Return a reader of what ``function`` makes of batches of these images."""

    def name(self, row: int) -> str:
        """Return what to call an image in a message."""


def open_reader(images: Any, workers: int = 0) -> Reader:
    """Return what reads ``images``.

    Args:
        images: A tensor or array ``(n, channel, *spatial)``, a ``Dataset`` or sequence of images, an
            ``IterableDataset`` of them, a ``DataLoader`` (of which its data set, its number of workers and its way to
            make a batch are taken, but not its order), or a reader already. Labels, if any, are ignored.
        workers: Processes that read a data set meanwhile.

    Raises:
        ValueError: If it is none of these.
    """
    if isinstance(images, Memory | Items | Stream):
        return images
    if isinstance(images, np.ndarray):
        images = torch.from_numpy(np.ascontiguousarray(images))
    if isinstance(images, Tensor):
        return Memory(images.detach())
    if isinstance(images, DataLoader):
        return _of_loader(images, workers or images.num_workers)
    if isinstance(images, IterableDataset):
        return Stream(images, image_of, workers)
    if isinstance(images, Dataset) or (hasattr(images, "__getitem__") and hasattr(images, "__len__")):
        return Items(images, image_of, workers)
    raise ValueError(
        f"images must be a tensor, an array, a Dataset, a DataLoader or a folder's path, got {type(images).__name__}"
    )


def _of_loader(loader: DataLoader[Any], workers: int) -> Reader:
    collate: Callable[[Any], Any] = loader.collate_fn
    if loader.batch_size is None:  # what its data set holds are batches already
        return Stream(Unbatched(loader.dataset, lambda batch: image_of(collate(batch))), image_of, workers)

    def image(item: Any) -> Tensor:
        return image_of(collate([item]))[0]

    if isinstance(loader.dataset, IterableDataset):
        return Stream(loader.dataset, image, workers)
    return Items(loader.dataset, image, workers, loader.worker_init_fn)


class Memory:
    """A tensor ``(n, channel, *spatial)``."""

    def __init__(self, images: Tensor) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def rows(self, size: int) -> Iterator[Tensor]:
        """See :class:`Reader`."""
        return (rows for rows in torch.arange(len(self)).split(size) if len(rows))

    def read(
        self, batches: Iterable[Tensor], seed: int = 0, unreadable: dict[int, str] | None = None
    ) -> Iterator[Batch]:
        """See :class:`Reader`."""
        return ([self.images[rows]] for rows in batches)

    def shuffled(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        """See :class:`Reader`."""
        return rows[torch.randperm(len(rows), generator=generator)]

    def through(self, function: Callable[[Tensor], Tensor]) -> Reader:
        """See :class:`Reader`. All at once."""
        return Memory(torch.cat([function(part) for part in self.images.split(256)]))

    def name(self, row: int) -> str:
        """See :class:`Reader`."""
        return f"number {row}"


class Items:
    """A data set of known length, whose items can be asked for in any order.

    Args:
        items: The data set. If it has a method ``name``, that names an item in messages.
        image: What takes the image out of an item.
        workers: Processes that read.
        begin: What each of them does first, given its number.
    """

    def __init__(
        self, items: Any, image: Callable[[Any], Tensor], workers: int, begin: Callable[[int], None] | None = None
    ) -> None:
        self.items, self.image, self.workers, self.begin = items, image, workers, begin

    def __len__(self) -> int:
        return len(self.items)

    def read(
        self, batches: Iterable[Tensor], seed: int = 0, unreadable: dict[int, str] | None = None
    ) -> Iterator[Batch]:
        """See :class:`Reader`."""
        loader: DataLoader[Any] = DataLoader(
            SeededItems(self.items, self.image, seed),
            batch_sampler=_Lists(batches),
            num_workers=self.workers,
            collate_fn=_collated,
            worker_init_fn=self.begin,
        )
        for batch, broken in left_alone(loader):
            if broken and unreadable is None:
                raise UnreadableImage(next(iter(broken.values())))
            if unreadable is not None:
                unreadable.update(broken)
            yield batch

    rows = Memory.rows
    shuffled = Memory.shuffled

    def through(self, function: Callable[[Tensor], Tensor]) -> Reader:
        """See :class:`Reader`. Done each time an item is read."""
        return Items(self.items, _followed_by(self.image, function), self.workers, self.begin)

    def name(self, row: int) -> str:
        """See :class:`Reader`."""
        return str(self.items.name(row)) if hasattr(self.items, "name") else f"number {row}"


class Stream:
    """Images that come one after another, the same ones in the same order each time.

    Args:
        items: What can be iterated over again and again.
        image: What takes the image out of an item.
        workers: Whether another process reads. Several would read all of it several times.
    """

    def __init__(self, items: Any, image: Callable[[Any], Tensor], workers: int) -> None:
        self.items, self.image, self.workers = items, image, min(1, workers)
        self._known = array("q")  # the fingerprint of each image
        self._complete = False

    def __len__(self) -> int:
        return len(self._known)

    def rows(self, size: int) -> Iterator[Tensor]:
        """See :class:`Reader`."""
        return (torch.arange(at, at + size) for at in itertools.count(0, size))

    def read(
        self, batches: Iterable[Tensor], seed: int = 0, unreadable: dict[int, str] | None = None
    ) -> Iterator[Batch]:
        """See :class:`Reader`. Every pass has the same seed: else the order might be another one."""
        loader: DataLoader[Any] = DataLoader(SeededStream(self.items, self.image), None, num_workers=self.workers)
        stream = enumerate(left_alone(loader))
        todo = [rows.tolist() for rows in batches] if self._complete else (rows.tolist() for rows in batches)
        later = {*itertools.chain.from_iterable(todo)} if isinstance(todo, list) else None
        waiting: dict[int, Tensor] = {}
        for rows in todo:
            while not all(row in waiting for row in rows):
                row, image = next(stream, (-1, None))
                if image is None:
                    break
                self._check(row, image)
                if row in (rows if later is None else later):
                    waiting[row] = image
            found = [waiting.pop(row) for row in rows if row in waiting]
            if found:
                yield runs(found)
            if len(found) < len(rows):
                if self._complete:
                    raise ValueError(f"a stream of {len(self):,} images ended early; it must be the same each time")
                self._complete = True
                return

    def shuffled(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        """See :class:`Reader`. Within windows of the stream, so that no more than that waits in memory."""
        return torch.cat(
            [window[torch.randperm(len(window), generator=generator)] for window in rows.sort().values.split(WINDOW)]
        )

    def through(self, function: Callable[[Tensor], Tensor]) -> Reader:
        """See :class:`Reader`. Done each time an item is read."""
        return Stream(self.items, _followed_by(self.image, function), self.workers)

    name = Memory.name

    def _check(self, row: int, image: Tensor) -> None:
        """Remember each image the first time; another one in its place is an error."""
        found = fingerprint(image)
        if row == len(self._known) and not self._complete:
            self._known.append(found)
        elif row >= len(self._known) or self._known[row] != found:
            raise ValueError(
                f"image {row} of the stream is not the one it was before; it must yield the same images in the same "
                "order each time: leave shuffling and augmentations to fit"
            )


def _collated(items: list[tuple[int, Tensor | str]]) -> tuple[Batch, dict[int, str]]:
    broken = {row: found for row, found in items if isinstance(found, str)}
    return runs([found for _, found in items if isinstance(found, Tensor)]), broken


def _followed_by(image: Callable[[Any], Tensor], function: Callable[[Tensor], Tensor]) -> Callable[[Any], Tensor]:
    return functools.partial(_follow, image, function)


def _follow(image: Callable[[Any], Tensor], function: Callable[[Tensor], Tensor], item: Any) -> Tensor:
    return function(image(item)[None])[0]


class _Lists:
    """Tensors of rows as the lists that a ``DataLoader`` wants."""

    def __init__(self, batches: Iterable[Tensor]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[list[int]]:
        return (rows.tolist() for rows in self.batches)
