"""The integer network at speed: the integers of :mod:`unshift.exact.integers`, held in floats and summed by kernels.

Images are worked on in blocks, and large images in strips, so that temporaries stay small.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unshift.exact.kernels import FLOAT32, FLOAT64, Task, prepare, prepare_strided
from unshift.exact.kernels.direct import slice_around
from unshift.exact.runtime import float32_settings_are_plain, in_graphs
from unshift.network import check_input

if TYPE_CHECKING:
    from unshift.exact.integers import IntegerEstimator, IntegerFilter
    from unshift.exact.quantised import IntegerNetwork

BLOCK = 2**21  # number of values of the widest map to compute at a time. ``benchmarks/run.py blocks``.


def floor_divide(sums: Tensor, divisor: Tensor, low: int, high: int) -> Tensor:
    """Divide integers in floats, round down and clamp them, in place.

    Exact: ``a / b < m`` for a whole ``m`` means ``a / b <= m - 1/b``, and ``1/b`` is more than half a unit in the last
    place of ``m`` as long as ``a`` is below 2^24 (float32) or 2^52 (float64). So no quotient is rounded up to a whole
    number.
    """
    return sums.div_(divisor).floor_().clamp_(low, high)


class Layer:
    """One layer prepared for images of one size: its integers as floats."""

    def __init__(self, layer: IntegerFilter, size: Sequence[int], passed: set[Any]) -> None:
        if layer.stride:
            self.kernel: Any = prepare_strided(layer.weight, layer.bias, layer.stride, _worst(layer))
        else:
            task = Task(tuple(layer.weight.shape), tuple(size), _worst(layer))
            self.kernel = prepare(layer.weight, layer.bias, task, passed)
        self.activation, self.largest = layer.activation, layer.largest
        self.divisor: Tensor | None = None
        if layer.divisor is not None:
            # No sum reaches 2^24 in float32 (2^52 in float64), so dividing by that or by more is the same.
            most = FLOAT32 if self.kernel.dtype == torch.float32 else FLOAT64 // 2
            self.divisor = layer.divisor.clamp(max=most).to(self.kernel.dtype).view(-1, *[1] * len(size))

    def sums(self, values: Tensor) -> Tensor:
        """Return the exact sums of integers held in floats."""
        sums: Tensor = self.kernel(values.to(self.kernel.dtype))
        return sums

    def __call__(self, values: Tensor) -> Tensor:
        """Return the integers that :class:`IntegerFilter` defines: in floats, or the scores in int64."""
        sums = self.sums(values)
        if self.divisor is None:
            return sums.to(torch.int64)
        if self.activation == "abs":
            sums.abs_()
        # A ReLU is the lower end of the clamp: negative sums have negative quotients.
        return floor_divide(sums, self.divisor, 0 if self.activation == "relu" else -self.largest, self.largest)


@in_graphs(lambda layer: FLOAT32 - 1)
def _worst(layer: IntegerFilter) -> float:
    return layer.worst


def line_sums(features: Tensor, axes: list[int], largest_sum: int) -> Tensor:
    """Sum features over ``axes``, exactly: ``(batch, channel, n)``."""
    dtype = torch.float32 if largest_sum < FLOAT32 else torch.float64
    if not axes:
        return features.to(dtype)
    if features.is_contiguous():
        return features.sum(axes, dtype=dtype)
    # Convolutions may return channels last, which PyTorch sums fast only if the channels are its last axis.
    return features.movedim(1, -1).sum([axis - 1 for axis in axes], dtype=dtype).movedim(-1, 1)


def line_means(sums: Tensor, ratio: tuple[int, Tensor], largest: int) -> Tensor:
    """Divide line sums so that they fit the next layer (:meth:`IntegerEstimator.line_ratio`)."""
    times, divisor = ratio
    return floor_divide(sums.to(torch.float64) * times, divisor.to(torch.float64)[:, None], -largest, largest)


@in_graphs(lambda net, device: set())
def _trials(net: IntegerEstimator, device: torch.device) -> set[Any]:
    """Return the float32 trials that the filters have passed. Many image sizes share them."""
    return net.cache.get(net, ("trials", device, float32_settings_are_plain()), set)


class Plan:
    """The layers of a network, prepared once for images of one size."""

    def __init__(self, net: IntegerEstimator, size: tuple[int, ...], device: torch.device) -> None:
        passed = _trials(net, device)
        seen = (*net.across, *size)
        local: list[Any] = list(net.local)
        lines: list[Any] = list(net.lines)
        widest = max(max(layer.weight.shape[:2]) for layer in local)
        self.images = max(1, BLOCK // (widest * math.prod(seen)))  # images per block
        # A strip is processed with wrap-around, as if it were an image. That is wrong only in the rows near its ends
        # that the filters reach across, which are cut off.
        self.before = sum(layer.weight.shape[2] // 2 for layer in local)
        self.after = sum((layer.weight.shape[2] - 1) // 2 for layer in local)
        self.rows = max(BLOCK // (widest * math.prod(seen[1:])), self.before + self.after, 1)  # rows per strip
        if net.size is not None or 2 * (self.rows + self.before + self.after) > seen[0]:
            self.rows = seen[0]
        tall = seen[0] if self.rows == seen[0] else self.before + self.rows + self.after
        self.local = [Layer(layer, (tall, *seen[1:]), passed) for layer in local]
        ratios = [net.line_ratio(axis, size) for axis in range(len(lines))]
        self.ratios = [(times, divisor.to(torch.float64)) for times, divisor in ratios]
        self.lines = [[Layer(layer, (n,), passed) for layer in line] for line, n in zip(lines, size, strict=False)]
        self.over = [net.other_axes(axis) for axis in range(len(lines))]
        self.largest_sums = [net.largest * math.prod(seen) // n for n in size]

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return sum(layer.kernel.nbytes for layer in [*self.local, *(layer for line in self.lines for layer in line)])


@torch.no_grad()
def run(net: IntegerEstimator, images: Tensor) -> list[Tensor]:
    """Return the scores ``[(batch, *spatial)]``, or of a network of lines one term ``(batch, n)`` per axis: int64."""
    check_input(images, net.in_channels, net.axes, net.size)
    if _is_empty(images):  # the FFT refuses an empty batch
        return [term[:0] for term in run(net, images.new_zeros(1, *images.shape[1:]))]
    with torch.autocast(images.device.type, enabled=False):  # it would round the integers
        plan: Plan = prepared(net, Plan, tuple(images.shape[2:]), images.device)
        scored = [_run_block(net, plan, block) for block in blocks(images, plan.images)]
    return [torch.cat(parts) if len(parts) > 1 else parts[0] for parts in zip(*scored, strict=True)]


@in_graphs(lambda images: False)
def _is_empty(images: Tensor) -> bool:
    return images.shape[0] == 0


def _prepared_for_graph(net: IntegerNetwork, plan: Callable[..., Any], size: tuple[int, ...], device: Any) -> Any:
    if net.largest_sum >= FLOAT32:
        raise ValueError(
            f"this network's sums reach {net.largest_sum:.0f}; they must stay below 2^24, the most that a graph holds: "
            "quantise it with sum_bits=24"
        )
    return plan(net, size, device)


@in_graphs(_prepared_for_graph)
def prepared(net: IntegerNetwork, plan: Callable[..., Any], size: tuple[int, ...], device: torch.device) -> Any:
    """Return ``plan(net, size, device)``, kept until the network changes."""
    key = (size, device, float32_settings_are_plain())
    return net.cache.get(net, key, lambda: plan(net, size, device), lambda plan: plan.nbytes)


@in_graphs(lambda images, count: [images])
def blocks(images: Tensor, count: int) -> Sequence[Tensor]:
    """Split a batch into blocks of ``count`` images."""
    parts: Sequence[Tensor] = images.split(count)
    return parts


def _run_block(net: IntegerEstimator, plan: Plan, images: Tensor) -> list[Tensor]:
    if not plan.lines:
        return [_concatenate(_features(net, plan, images), 2)[:, 0]]
    strips = [
        [line_sums(features, over, most) for over, most in zip(plan.over, plan.largest_sums, strict=False)]
        for features in _features(net, plan, images)
    ]
    terms = []
    for sums, over, ratio, line in zip(zip(*strips, strict=True), plan.over, plan.ratios, plan.lines, strict=True):
        # Strips lie side by side along axis 2: along it concatenate their sums, along all others add them.
        values = line_means(
            functools.reduce(torch.add, sums) if 2 in over else _concatenate(sums, 2), ratio, net.largest
        )
        for layer in line:
            values = layer(values)
        terms.append(values[:, 0])
    return terms


def _features(net: IntegerEstimator, plan: Plan, images: Tensor) -> Iterator[Tensor]:
    """Yield the local features of each strip, from the top."""
    images = net.split_channels(images)
    height = images.shape[2]
    for start in range(0, height, plan.rows):
        whole = plan.rows == height
        end = start + plan.rows + plan.after
        features = without_nan(net.pixels(images if whole else slice_around(images, 2, start - plan.before, end)))
        for layer in plan.local:
            features = layer(features)
        yield features if whole else features.narrow(2, plan.before, min(plan.rows, height - start))


@in_graphs(lambda values: torch.where(values.isnan(), 0.0, values))
def without_nan(values: Tensor) -> Tensor:
    """Return ``values``; in a graph, which cannot refuse NaN, with zeros in its place."""
    return values


def _concatenate(parts: Iterable[Tensor], axis: int) -> Tensor:
    """Concatenate along an axis; a single part is returned as it is."""
    parts = list(parts)
    return parts[0] if len(parts) == 1 else torch.cat(parts, axis)
