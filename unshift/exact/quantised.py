"""The base class of networks in integers. Their state is integer buffers only, which ``.half()`` does not change."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from unshift.exact.runtime import in_graphs
from unshift.exact.scores import Scorer
from unshift.network import as_float


class IntegerNetwork(Scorer):
    """Base class of networks in integers. :func:`unshift.quantise` makes one from a float network.

    It is rebuilt by :func:`unshift.exact.network_from` from its description, which is plain data, and a ``state_dict``.
    Of the float network, on the meta device, only the shapes are used.
    """

    in_channels: int
    axes: int
    largest: int  # the largest absolute value of pixels and activations, ``L``
    local: nn.ModuleList
    pixel_scale_bits: Tensor
    score_unit_bits: Tensor
    fraction = 1  # steps of a score per integer step of the last layer

    def __init__(self, floating: Any, bits: int, description: dict[str, Any]) -> None:
        super().__init__()
        self.in_channels, self.axes, self.size = floating.in_channels, floating.axes, floating.size
        self.across: tuple[int, ...] = floating.across
        self.largest, self._description = 2**bits - 1, description
        # The two real numbers of the network, stored as the bits of a float64: integers again.
        self.register_buffer("pixel_scale_bits", bits_of(1.0))
        self.register_buffer("score_unit_bits", bits_of(1.0))
        self._last_numbers = 1.0, 1.0, 0.0
        self.cache = Cache()
        self.register_load_state_dict_post_hook(_read_numbers)  # type: ignore[no-untyped-call]

    @staticmethod
    def on_meta(kind: Callable[..., nn.Module], network: dict[str, Any], bits: int) -> Any:
        """Build a float network without memory or random numbers. Raise a ``ValueError`` unless ``bits`` fit."""
        if type(bits) is not int or not 2 <= bits <= 47:
            raise ValueError(f"bits must be a whole number from 2 to 47, got {bits!r}")
        with torch.device("meta"):
            return kind(**network)

    def pixels(self, images: Tensor) -> Tensor:
        """Quantise pixels, each by itself. Return integers in float32."""
        values = as_float(images)
        # A page is large: its first copy is scaled in place.
        scaled = values.mul_(self.pixel_scale) if images.dtype == torch.uint8 else values * self.pixel_scale
        return scaled.round_().clamp_(-self.largest, self.largest)

    def inputs(self, images: Tensor) -> Tensor:
        """Return quantised pixels as the first layer sees them."""
        return self.pixels(images)

    def filters(self) -> list[Any]:
        """Return all layers."""
        return list(self.local)

    @property
    def pixel_scale(self) -> float:
        """The factor that pixels are multiplied by before they are rounded."""
        return self.read_numbers()[0]

    @property
    def largest_pixel(self) -> float:  # type: ignore[override]
        """The largest absolute pixel value that the network distinguishes; larger ones are clamped."""
        return self.largest / self.pixel_scale

    @property
    def score_unit(self) -> float:  # type: ignore[override]
        """The value of one integer step of the scores as a logit (nats)."""
        return self.read_numbers()[1]

    @property
    def largest_sum(self) -> float:
        """The largest absolute value that any sum in any layer can reach."""
        return self.read_numbers()[2]

    @in_graphs(lambda self: self._last_numbers)
    def read_numbers(self) -> tuple[float, float, float]:
        """Return pixel scale, score unit and largest sum; in a graph, which has no values, those last read."""

        def read() -> tuple[float, float, float]:
            reals = torch.cat([self.pixel_scale_bits, self.score_unit_bits]).cpu().view(torch.float64).tolist()
            return reals[0], reals[1], max(layer.worst for layer in self.filters())

        self._last_numbers = self.cache.get(self, "numbers", read)
        return self._last_numbers

    def describe(self) -> dict[str, Any]:
        """Return the network as plain data: ``IntegerEstimator(**net.describe())`` rebuilds it."""
        return copy.deepcopy(self._description)


def _read_numbers(net: IntegerNetwork, _: Any) -> None:
    """Read the numbers of a network that has just been loaded: a graph of it cannot."""
    if not net.pixel_scale_bits.is_meta:
        net.read_numbers()


def bits_of(value: float) -> Tensor:
    """Return the bits of a float64 as an int64 buffer."""
    return torch.tensor([value], dtype=torch.float64).view(torch.int64)


Value = TypeVar("Value")

LIMIT = 2**27  # bytes that a cache may hold. An entry of a few kilobytes counts as `SMALLEST`.
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
        """Return the value of ``key``; compute it if it is missing, or if a buffer of ``module`` has changed since.

        ``nbytes`` returns the memory that a value takes, if it is large.
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
