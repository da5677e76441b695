"""What a ``DataLoader`` reads for us: each item under seeds of its own, the caller's random states left alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

__all__ = ["SeededItems", "SeededStream", "Unbatched", "left_alone"]


class SeededItems(Dataset[Any]):
    """Items one by one, each under seeds that follow from ``seed`` and its row; of one that cannot be read, why."""

    def __init__(self, items: Any, image: Callable[[Any], Tensor], seed: int) -> None:
        self.items, self.image, self.seed = items, image, seed

    def __getitem__(self, row: int) -> tuple[int, Tensor | str]:
        _seed(self.seed, row)
        try:
            return row, self.image(self.items[row])
        except ValueError as error:  # as a value: an exception of a worker comes back with its traceback as its message
            return row, str(error)


class SeededStream(IterableDataset[Tensor]):
    """The images of a stream, under seeds that are always the same."""

    def __init__(self, items: Any, image: Callable[[Any], Tensor]) -> None:
        self.items, self.image = items, image

    def __iter__(self) -> Iterator[Tensor]:
        _seed(0, 0)
        return map(self.image, iter(self.items))


class Unbatched(IterableDataset[Any]):
    """The images of a data set of batches, one by one."""

    def __init__(self, batches: Any, images: Callable[[Any], Iterable[Tensor]]) -> None:
        self.batches, self.images = batches, images

    def __iter__(self) -> Iterator[Tensor]:
        known = not isinstance(self.batches, IterableDataset)
        batches = (self.batches[row] for row in range(len(self.batches))) if known else iter(self.batches)
        return (image for batch in batches for image in self.images(batch))


def left_alone(items: Iterable[Any]) -> Iterator[Any]:
    """Yield from ``items``; whatever that does to random states, the caller sees nothing of it."""
    randomness = _Randomness()
    with randomness:
        reading = iter(items)
    while True:
        with randomness:
            try:
                item = next(reading)
            except StopIteration:
                return
        yield item


def _seed(seed: int, row: int) -> None:
    mixed = (seed * 1_000_003 + row * 2_654_435_761 + 12_345) % 2**63
    torch.default_generator.manual_seed(mixed)
    random.seed(mixed)
    np.random.seed(mixed % 2**32)


class _Randomness:
    """Random states of its own inside the ``with``, the caller's outside."""

    def __init__(self) -> None:
        self.own = _states()

    def __enter__(self) -> None:
        self.callers = _states()
        _set(self.own)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.own = _states()
        _set(self.callers)


def _states() -> tuple[Any, Any, Any]:
    return torch.get_rng_state(), random.getstate(), np.random.get_state()


def _set(states: tuple[Any, Any, Any]) -> None:
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    np.random.set_state(states[2])
