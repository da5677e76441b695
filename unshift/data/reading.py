"""Readers: batches of images on request, in any order, from any container.

``reader.read([rows, rows, ...])`` yields one :data:`Batch` for each tensor of rows, and holds few batches in memory. A
tensor is indexed. A ``Dataset`` is read by the workers of a ``DataLoader``; the random seeds of each item follow from
the pass and its row, whatever the number of workers. An ``IterableDataset`` is read from its beginning in each pass.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import itertools
import random
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

Batch = list[Tensor]
Reasons = dict[int, str]  # for each unreadable row, the reason

WINDOW = 1024  # number of images of a stream within which the order is shuffled


class UnreadableImage(ValueError):
    """An image cannot be read and may not be skipped."""


class Reader(ABC):
    """Base class of readers, which read images by their rows."""

    function: Callable[[Tensor], Tensor] | None = None

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of images. That of a stream is known after the first complete pass."""

    @abstractmethod
    def batches(self, requests: Iterable[Tensor], seed: int, unreadable: Reasons | None) -> Iterator[Batch]:
        """See :meth:`read`."""

    def read(self, requests: Iterable[Tensor], seed: int = 0, unreadable: Reasons | None = None) -> Iterator[Batch]:
        """Yield one batch for each tensor of rows; stop at the end of a stream of unknown length.

        Unreadable rows are added to ``unreadable``, if given, and left out; otherwise they raise a ``ValueError``.
        """
        for batch in self.batches(requests, seed, unreadable):
            yield batch if self.function is None else [self.function(images) for images in batch]

    def mapped(self, function: Callable[[Tensor], Tensor]) -> Reader:
        """Return a reader that applies ``function`` to batches of these images when they are read."""
        reader = copy.copy(self)
        reader.function = function
        return reader

    def rows(self, size: int) -> Iterator[Tensor]:
        """Yield the rows of all images in order, ``size`` at a time; endless for a stream."""
        return (rows for rows in torch.arange(len(self)).split(size) if len(rows))

    def shuffled(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        """Return ``rows`` in a random order in which they can be read."""
        return rows[torch.randperm(len(rows), generator=generator)]

    def name(self, row: int) -> str:
        """Return the name of an image for messages."""
        return f"number {row}"


def open_reader(images: Any, workers: int = 0) -> Reader:
    """Return a reader of ``images``, with ``workers`` processes in the background. Labels are ignored.

    Of a ``DataLoader``, the data set, the number of workers and ``collate_fn`` are used, not its order.
    """
    if isinstance(images, Reader):
        return images
    if isinstance(images, np.ndarray):
        images = torch.from_numpy(np.ascontiguousarray(images))
    if isinstance(images, Tensor):
        return _Memory(images.detach())
    if isinstance(images, DataLoader):
        return _open_loader(images, workers or images.num_workers)
    if isinstance(images, IterableDataset):
        return _Stream(images.__iter__, _images_of, workers)
    if isinstance(images, Dataset) or (hasattr(images, "__getitem__") and hasattr(images, "__len__")):
        return _Items(images, _image_of, workers)
    raise ValueError(
        f"images must be a tensor, an array, a Dataset, a DataLoader or a folder's path, got {type(images).__name__}"
    )


def _open_loader(loader: DataLoader[Any], workers: int) -> Reader:
    items: Any = loader.dataset
    collate: Callable[[Any], Any] = loader.collate_fn
    if loader.batch_size is None:  # the items of its data set are batches already
        one_by_one = (
            items.__iter__ if isinstance(items, IterableDataset) else lambda: map(items.__getitem__, range(len(items)))
        )
        return _Stream(one_by_one, lambda batch: _image_of(collate(batch)), workers)
    if isinstance(items, IterableDataset):
        return _Stream(items.__iter__, lambda item: _image_of(collate([item])), workers)
    return _Items(items, lambda item: _image_of(collate([item]))[0], workers, loader.worker_init_fn)


class _Memory(Reader):
    def __init__(self, images: Tensor) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def batches(self, requests: Iterable[Tensor], seed: int, unreadable: Reasons | None) -> Iterator[Batch]:
        return ([self.images[rows]] for rows in requests)

    def mapped(self, function: Callable[[Tensor], Tensor]) -> Reader:  # once, not in every pass
        return _Memory(torch.cat([function(part) for part in self.images.split(256)]))


class _Items(Reader):
    """Reader of a data set of known length with random access; ``image`` extracts the image of an item."""

    def __init__(
        self,
        items: Any,
        image: Callable[[Any], Tensor],
        workers: int,
        worker_init_fn: Callable[[int], None] | None = None,
    ) -> None:
        self.items, self.image, self.workers, self.worker_init_fn = items, image, workers, worker_init_fn

    def __len__(self) -> int:
        return len(self.items)

    def batches(self, requests: Iterable[Tensor], seed: int, unreadable: Reasons | None) -> Iterator[Batch]:
        loader: DataLoader[Any] = DataLoader(
            _SeededItems(self.items, self.image, seed),
            batch_sampler=(rows.tolist() for rows in requests),
            num_workers=self.workers,
            collate_fn=_collate,
            worker_init_fn=self.worker_init_fn,
            generator=torch.Generator(),  # leaves the caller's random state alone
        )
        for batch, errors in loader:
            if errors and unreadable is None:
                raise UnreadableImage(next(iter(errors.values())))
            if unreadable is not None:
                unreadable.update(errors)
            yield batch

    def name(self, row: int) -> str:
        return str(self.items.name(row)) if hasattr(self.items, "name") else super().name(row)


class _Stream(Reader):
    """Reader of an iterable that yields the same images in the same order each time."""

    def __init__(
        self, start: Callable[[], Iterator[Any]], images: Callable[[Any], Iterable[Tensor]], workers: int
    ) -> None:
        # At most one other process: several would each read the whole stream.
        self.start, self.images, self.workers = start, images, min(1, workers)
        self._fingerprints = array("q")
        self._complete = False

    def __len__(self) -> int:
        return len(self._fingerprints)

    def rows(self, size: int) -> Iterator[Tensor]:
        return (torch.arange(at, at + size) for at in itertools.count(0, size))

    def batches(self, requests: Iterable[Tensor], seed: int, unreadable: Reasons | None) -> Iterator[Batch]:
        # The items do not depend on the seed: another seed might change their order.
        stream: Any = _SeededStream(self.start, self.images)
        images = enumerate(DataLoader(stream, None, num_workers=self.workers, generator=torch.Generator()))
        requested = (rows.tolist() for rows in requests)
        needed = None
        if self._complete:
            requested = [*requested]  # type: ignore[assignment]
            needed = {*itertools.chain.from_iterable(requested)}
        waiting: dict[int, Tensor] = {}
        for rows in requested:
            while not all(row in waiting for row in rows):
                row, image = next(images, (-1, None))
                if image is None:
                    break
                self._check(row, image)
                if row in (rows if needed is None else needed):
                    waiting[row] = image
            found = [waiting.pop(row) for row in rows if row in waiting]
            if found:
                yield _stack_runs(found)
            if len(found) < len(rows):
                if self._complete:
                    raise ValueError(f"a stream of {len(self):,} images ended early; it must be the same each time")
                self._complete = True
                return

    def shuffled(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        # Within windows, so that no more than a window waits in memory.
        return torch.cat([super(_Stream, self).shuffled(part, generator) for part in rows.sort().values.split(WINDOW)])

    def _check(self, row: int, image: Tensor) -> None:
        """Store the image's fingerprint in the first pass; raise a ``ValueError`` if it differs in a later pass."""
        value = fingerprint(image)
        if row == len(self._fingerprints) and not self._complete:
            self._fingerprints.append(value)
        elif row >= len(self._fingerprints) or self._fingerprints[row] != value:
            raise ValueError(
                f"image {row} of the stream differs from the previous pass; it must yield the same images in the same "
                "order each time: leave shuffling and augmentations to fit"
            )


def one_tensor(batch: Batch) -> Tensor:
    """Return the images of a batch as one tensor. Raise a ``ValueError`` if they differ in shape."""
    if len(batch) > 1:
        shapes = sorted({tuple(part.shape[1:]) for part in batch})
        raise ValueError(f"the images differ in shape: {', '.join(map(str, shapes))}; give a size for all, --size HxW")
    return batch[0]


def fingerprint(image: Tensor) -> int:
    """Return a 63-bit hash of an image's shape, type and values."""
    digest = hashlib.blake2b(f"{image.dtype} {tuple(image.shape)}".encode(), digest_size=8)
    digest.update(image.contiguous().flatten().view(torch.uint8).numpy().data)
    return int.from_bytes(digest.digest(), "big") >> 1


def _image_of(item: Any) -> Tensor:
    """Return the image of an ``(image, label, ...)`` item."""
    while isinstance(item, list | tuple):
        item = item[0]
    return torch.as_tensor(item)


def _images_of(item: Any) -> list[Tensor]:
    return [_image_of(item)]


def _stack_runs(images: list[Tensor]) -> Batch:
    return [torch.stack([*run]) for _, run in itertools.groupby(images, lambda image: (image.shape, image.dtype))]


def _collate(items: list[tuple[int, Tensor | str]]) -> tuple[Batch, Reasons]:
    errors = {row: item for row, item in items if isinstance(item, str)}
    return _stack_runs([item for _, item in items if isinstance(item, Tensor)]), errors


class _SeededItems(Dataset[Any]):
    """Return ``(row, image)``, or ``(row, error message)``. The random seeds follow from ``seed`` and the row."""

    def __init__(self, items: Any, image: Callable[[Any], Tensor], seed: int) -> None:
        self.items, self.image, self.seed = items, image, seed

    def __getitem__(self, row: int) -> tuple[int, Tensor | str]:
        try:
            with _seeded(self.seed, row):
                return row, self.image(self.items[row])
        except ValueError as error:  # returned, not raised: a worker's exception arrives with its traceback as message
            return row, str(error)


class _SeededStream(IterableDataset[Tensor]):
    """Yield the images of a stream. The random seeds of an item follow from its number."""

    def __init__(self, start: Callable[[], Iterator[Any]], images: Callable[[Any], Iterable[Tensor]]) -> None:
        self.start, self.images = start, images

    def __iter__(self) -> Iterator[Tensor]:
        with _seeded(0, 0):
            items = self.start()
        for number in itertools.count():
            with _seeded(0, number):
                for item in items:
                    images = [*self.images(item)]
                    break
                else:
                    return
            yield from images


@contextlib.contextmanager
def _seeded(seed: int, row: int) -> Iterator[None]:
    """Seed all global generators, and restore their states afterwards."""
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()
    mixed = (seed * 1_000_003 + row * 2_654_435_761 + 12_345) % 2**63
    torch.default_generator.manual_seed(mixed)
    random.seed(mixed)
    np.random.seed(mixed % 2**32)
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])
