"""Cache: results computed from a module's buffers, kept until the buffers change."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from torch import nn

Value = TypeVar("Value")

LIMIT = 2**27
"""Bytes that a cache may hold. An entry of a few kilobytes counts as :data:`SMALLEST`."""
SMALLEST = 2**12


class Cache:
    """Results computed from one module's buffers: least recently used first out, and never part of a copy or pickle.

    Threads may share a cache. It has no lock, which a forked process could inherit locked: if two threads miss the
    same entry at once, both compute it.
    """

    def __init__(self) -> None:
        self._entries: dict[Hashable, tuple[_Snapshot, Any, int]] = {}  # in the order of their last use

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle as an empty cache, because the version counters of copied buffers start again."""
        return Cache, ()

    def __len__(self) -> int:
        return len(self._entries)

    def get(
        self,
        module: nn.Module,
        key: Hashable,
        compute: Callable[[], Value],
        nbytes: Callable[[Value], int] = lambda _: 0,
    ) -> Value:
        """Return the value of ``key``; compute it if it is missing, or if a buffer has changed since.

        Args:
            module: Its buffers are those that ``compute`` reads.
            key: Distinguishes the values computed from these buffers.
            compute: Computes the value.
            nbytes: Returns the memory that a value takes, if it is large.
        """
        entry = self._entries.get(key)
        fresh = entry is None or not entry[0].is_current
        if entry is None or fresh:
            snapshot = _Snapshot(module)  # taken first: a change during the computation must not be missed
            value = compute()
            entry = snapshot, value, SMALLEST + nbytes(value)
        self._entries.pop(key, None)
        self._entries[key] = entry
        if fresh:
            self._evict()
        result: Value = entry[1]
        return result

    def _evict(self) -> None:
        entries = list(self._entries.items())  # one step, which other threads cannot interrupt
        total = sum(size for _, (_, _, size) in entries)
        for key, (_, _, size) in entries[:-1]:
            if total <= LIMIT:
                return
            self._entries.pop(key, None)
            total -= size


class _Snapshot:
    """The buffers of a module and its parts, as they were.

    It holds the tensors, so that no other tensor can take their address, and their version counters. Tensors made in
    inference mode have no counter: of these it holds a copy.
    """

    def __init__(self, module: nn.Module) -> None:
        owners = [(part._buffers, name) for part in module.modules() for name in part._buffers]
        marks = [(buffers, name, buffer) for buffers, name in owners if (buffer := buffers[name]) is not None]
        self._counted = [(*mark, mark[2]._version) for mark in marks if not mark[2].is_inference()]
        self._copied = [(*mark, mark[2].clone()) for mark in marks if mark[2].is_inference()]

    @property
    def is_current(self) -> bool:
        """True if the buffers are unchanged."""
        for buffers, name, buffer, version in self._counted:
            if buffers[name] is not buffer or buffer._version != version:
                return False
        return all(buffers[name] is buffer and buffer.equal(copy) for buffers, name, buffer, copy in self._copied)
