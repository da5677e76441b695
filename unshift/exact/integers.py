"""IntegerEstimator: the trained network in integers, equivariant to the last bit.

Pixels become integers one by one; every sum is exact (:mod:`unshift.exact.kernels`); between layers there is a
floor-divide and a clamp, both pointwise. State is integer buffers only, which ``.half()`` leaves alone. What can be
computed from them once (casts, spectra, matrices) is kept beside them until they change.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from unshift.estimator import ShiftEstimator, as_float, check_input
from unshift.exact.kernels import FLOAT32, FLOAT64, Direct32, Kernel, Task, float32_is_plain, is_traced, prepare

__all__ = ["LARGEST_SCALE", "IntegerEstimator", "IntegerFilter"]

BLOCK = 2**16
"""Numbers of a map to work on at a time, for each thread: what a core's cache holds. ``benchmarks/run.py blocks``."""

LARGEST_SCALE = 2.0**100
"""Pixels that ``torch.set_flush_denormal`` may take for 0, below 2^-126, are 0 as integers with any scale up to this."""

IN_PLACE = {"relu": Tensor.relu_, "abs": Tensor.abs_, "none": lambda sums: sums}


def marked(buffers: Sequence[Tensor]) -> list[tuple[Tensor, Any]]:
    """Remember buffers: the tensors themselves, so that no other can stand at their address, and their versions.

    Tensors made in inference mode do not count the changes made to them: of these, what they hold is remembered.
    """
    return [(buffer, buffer.clone() if buffer.is_inference() else buffer._version) for buffer in buffers]


def unchanged(marks: list[tuple[Tensor, Any]], buffers: Sequence[Tensor]) -> bool:
    """Tell whether ``buffers`` are as they were when :func:`marked`."""
    return all(
        kept is buffer and (torch.equal(mark, buffer) if buffer.is_inference() else mark == buffer._version)
        for (kept, mark), buffer in zip(marks, buffers, strict=True)
    )


class Ready(NamedTuple):
    """What one layer needs at one size, computed once."""

    kernel: Kernel
    bias: Tensor | None
    divisor: Tensor | None
    cost: float = 0.0


class IntegerFilter(nn.Module):
    """A circular filter of integers; then, but for the last layer, activate, floor-divide and clamp."""

    weight: Tensor
    bias: Tensor
    divisor: Tensor | None

    def __init__(self, shape: Sequence[int], largest: int, activation: str, last: bool) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(*shape, dtype=torch.int64))
        self.register_buffer("bias", torch.zeros(shape[0], dtype=torch.int64))
        self.register_buffer("divisor", None if last else torch.ones(shape[0], dtype=torch.int64))
        self.largest, self.activation = largest, activation
        self._ready: dict[Any, tuple[Any, Ready]] = {}

    @property
    def worst(self) -> float:
        """The largest that any sum can become."""
        return float((self.largest * self.weight.double().abs().flatten(1).sum(1) + self.bias.double().abs()).max())

    def ready(self, size: Sequence[int], *, strips: bool, plain: bool, traced: bool = False) -> Ready:
        """Return the layer made ready for images of ``size``; computed anew only when its integers have changed."""
        key = (tuple(size), strips, plain, traced, self.weight.device)
        buffers = [buffer for buffer in (self.weight, self.bias, self.divisor) if buffer is not None]
        found = self._ready.get(key)
        if found and unchanged(found[0], buffers):
            return found[1]
        made = self._prepare(Task(tuple(self.weight.shape), tuple(size), self.worst, strips, traced), plain)
        if len(self._ready) >= 16:  # a stream of images of many sizes must not fill the memory
            self._ready.clear()
        self._ready[key] = marked(buffers), made
        return made

    def _prepare(self, task: Task, plain: bool) -> Ready:
        kernel = prepare(self.weight, task, plain)
        shape = [-1, *[1] * len(task.size)]
        bias = self.bias.to(kernel.dtype).view(shape) if bool(self.bias.any()) else None
        # No sum reaches 2^24 in float32, so dividing by that or by more is the same.
        limit = FLOAT32 if kernel.dtype == torch.float32 else FLOAT64 // 2
        divisor = None if self.divisor is None else self.divisor.clamp(max=limit).to(kernel.dtype).view(shape)
        return Ready(kernel, bias, divisor, kernel.cost(task))

    def _traced(self, size: Sequence[int]) -> Ready:
        """Return what a graph is made of: what was prepared for it, or else a plain convolution."""
        for (found, _, _, traced, _), (_, made) in self._ready.items():
            if traced and found == tuple(size):
                return made
        shape = [-1, *[1] * len(size)]
        divisor = None if self.divisor is None else self.divisor.to(torch.float32).view(shape)
        kernel = Direct32(self.weight, Task(tuple(self.weight.shape), tuple(size), 0.0))
        return Ready(kernel, self.bias.to(torch.float32).view(shape), divisor)

    def sums(self, images: Tensor, plain: bool, size: Sequence[int] | None = None) -> tuple[Tensor, Ready]:
        """Return the exact sums, in floats that hold them, and what made them.

        With ``size``, ``images`` is a strip of images of that size, with its margin.
        """
        whole = tuple(images.shape[2:])
        made = self._traced(whole) if is_traced() else self.ready(size or whole, strips=size is not None, plain=plain)
        sums = made.kernel(images.to(made.kernel.dtype), margin=size is not None)
        return sums if made.bias is None else sums.add_(made.bias), made

    def forward(self, images: Tensor, plain: bool, size: Sequence[int] | None = None) -> Tensor:
        """Return the next layer's integers, or the scores as int64."""
        sums, made = self.sums(images, plain, size)
        if made.divisor is None:
            return sums.to(torch.int64)
        return floor_divide(IN_PLACE[self.activation](sums), made.divisor, self.largest)


def floor_divide(sums: Tensor, divisor: Tensor, largest: int) -> Tensor:
    """Divide integers in floats, in place, and clamp them.

    Exact: ``a / b < m`` for a whole ``m`` means ``a / b <= m - 1/b``, and ``1/b`` is more than half a unit in the last
    place of ``m`` as long as ``a`` is below 2^24 (float32) or 2^52 (float64). So no quotient is rounded up to a
    whole number.
    """
    return sums.div_(divisor).floor_().clamp_(-largest, largest)


class IntegerEstimator(nn.Module):
    """A :class:`ShiftEstimator` in integers: images in, int64 scores out.

    Made by :func:`unshift.quantise`; rebuilt from ``IntegerEstimator(**net.describe())`` and a ``state_dict``.

    Args:
        network: The float estimator's :meth:`~ShiftEstimator.describe`.
        bits: Width of the activations.
        size: The image size whose line sums were calibrated. Nets of dense filters take their own size only,
            all others any.
    """

    pixel_scale_bits: Tensor
    score_unit_bits: Tensor

    def __init__(self, network: dict[str, Any], *, bits: int = 10, size: Sequence[int] | None = None) -> None:
        super().__init__()
        if type(bits) is not int or not 2 <= bits <= 47:
            raise ValueError(f"bits must be a whole number from 2 to 47, got {bits!r}")
        with torch.device("meta"):  # only its shapes are wanted: no memory, and no random numbers drawn
            floating = ShiftEstimator(**network)
        self.in_channels, self.axes, self.size = floating.in_channels, floating.axes, floating.size
        self.calibrated = tuple(size) if size is not None else None
        self.largest = 2**bits - 1
        self._description = {"network": network, "bits": bits, "size": list(size) if size is not None else None}

        def stack(layers: Any, scores: bool) -> nn.ModuleList:
            last = len(layers) - 1 if scores else None
            return nn.ModuleList(
                IntegerFilter(layer.filter.weight.shape, self.largest, network["activation"], last=k == last)
                for k, layer in enumerate(layers)
            )

        self.local = stack(floating.local, scores=not len(floating.lines))
        self.lines = nn.ModuleList(stack(line, scores=True) for line in floating.lines)
        for axis in range(len(self.lines)):
            ones = torch.ones(network["channels"][-1], dtype=torch.int64)
            self.register_buffer(f"mean_divisor_{axis}", ones)
        # The two real numbers of the net, kept as the bits of a float64: integers again.
        self.register_buffer("pixel_scale_bits", bits_of(1.0))
        self.register_buffer("score_unit_bits", bits_of(1.0))
        self._widest = max(in_and_out for layer in floating.local for in_and_out in layer.filter.weight.shape[:2])
        self._margins = [[(k // 2, k - 1 - k // 2) for k in layer.filter.weight.shape[2:]] for layer in floating.local]
        self._scalars: tuple[Any, float, float] | None = None

    def _numbers(self) -> tuple[float, float]:
        """Return the pixel scale and the score unit, read off their buffers when these have changed."""
        buffers = (self.pixel_scale_bits, self.score_unit_bits)
        kept = self._scalars
        if kept is not None and is_traced():  # a graph being made shows no values
            return kept[1:]
        if kept is None or not unchanged(kept[0], buffers):
            scale, unit = (float(bits.cpu().view(torch.float64)) for bits in buffers)
            kept = self._scalars = marked(buffers), scale, unit
        return kept[1:]

    @property
    def score_unit(self) -> float:
        """How much one integer step of the scores is worth as a logit (nats)."""
        return self._numbers()[1]

    def describe(self) -> dict[str, Any]:
        """Return the network as plain data: ``IntegerEstimator(**net.describe())`` rebuilds it."""
        return copy.deepcopy(self._description)

    def pixels(self, images: Tensor) -> Tensor:
        """Quantise pixels to integers, each by itself: one multiplication, one rounding, one clamp."""
        scaled = as_float(images) * torch.tensor(self._numbers()[0], dtype=torch.float32, device=images.device)
        pixels = scaled.round_().clamp_(-self.largest, self.largest)
        return torch.where(pixels.isnan(), 0.0, pixels) if is_traced() else pixels  # a graph cannot refuse NaN

    def line_sums(self, features: Tensor, axis: int) -> Tensor:
        """Sum over every spatial axis but ``axis``, exactly."""
        others = [2 + other for other in range(self.axes) if other != axis]
        count = math.prod(features.shape[other] for other in others)
        if self.largest * count >= FLOAT64:
            raise ValueError(f"sums of {self.largest} over images of size {tuple(features.shape[2:])} exceed 53 bits")
        kind = features.dtype if self.largest * count < FLOAT32 else torch.float64
        return features.sum(others, dtype=kind).to(torch.float64) if others else features.to(torch.float64)

    def means(self, sums: Tensor, axis: int, size: Sequence[int]) -> Tensor:
        """Divide line sums so that they fit the next layer, by a rule that holds at any size.

        At the calibrated size that is the divisor itself. Where a line has ``c`` pixels instead of ``c0``, its sums are
        ``c / c0`` times as large: multiplied by ``c0`` and divided by ``c`` times the divisor they are means alike.
        """
        divisor = self.get_buffer(f"mean_divisor_{axis}").to(torch.float64).view(-1, 1)
        if self.calibrated is not None and tuple(size) != self.calibrated:
            wanted, found = (math.prod(n) // n[axis] for n in (self.calibrated, tuple(size)))
            common = math.gcd(wanted, found)
            wanted, found = wanted // common, found // common
            if self.largest * math.prod(size) // size[axis] * wanted >= FLOAT64 // 2:
                raise ValueError(
                    f"images of size {tuple(size)} are too large for a net calibrated at {self.calibrated}"
                )
            sums, divisor = sums * wanted, divisor * found
        return floor_divide(sums.clone(), divisor, self.largest)

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Score every position with an int64."""
        check_input(images, self.in_channels, self.axes, self.size)
        size = tuple(images.shape[2:])
        with torch.autocast(images.device.type, enabled=False):  # autocast would round the integers
            if is_traced():
                return self._score(images, size, plain=True)
            plain = float32_is_plain(images.device)
            if not len(images):
                return torch.zeros(0, *size, dtype=torch.int64, device=images.device)
            room = BLOCK * torch.get_num_threads()
            count = max(1, room // (math.prod(size) * self._widest))
            if count >= len(images):
                return self._score(images, size, plain)
            # Filled block by block: a list of parts, joined at the end, would hold everything twice.
            scores = torch.empty(len(images), *size, dtype=torch.int64, device=images.device)
            for at in range(0, len(images), count):
                scores[at : at + count] = self._score(images[at : at + count], size, plain)
            return scores

    def prepare_graph(self, size: Sequence[int]) -> None:
        """Make every layer ready for graphs of canvases of this ``size``: what is made while one is traced is part of it."""
        parts: list[tuple[Any, Sequence[int]]] = [(self.local, size)]
        parts += [(line, [size[axis]]) for axis, line in enumerate(self.lines)]
        for layers, extent in parts:
            for layer in layers:
                layer.ready(extent, strips=False, plain=True, traced=True)

    def _score(self, images: Tensor, size: tuple[int, ...], plain: bool) -> Tensor:
        if len(self.lines):
            return self._line_scores(images, size, plain)
        parts = [features for _, features in self._features(images, size, plain)]
        scores = parts[0] if len(parts) == 1 else torch.cat(parts, 2)
        return scores.squeeze(1)

    def _features(self, images: Tensor, size: tuple[int, ...], plain: bool) -> Iterable[tuple[int, Tensor]]:
        """Run the local layers, in strips where the image is large; yield where each strip begins, and its features."""
        before, after = (sum(layer[0][side] for layer in self._margins) for side in (0, 1))
        height = size[0]
        if not is_traced():
            row = math.prod(size[1:]) * self._widest * len(images)
            height = max(2 * (before + after + 1), BLOCK * torch.get_num_threads() // row)
        if 2 * height > size[0] or self.size is not None or not self._strips(size, plain):
            features = self.pixels(images)
            for layer in self.local:
                features = layer(features, plain)
            yield 0, features
            return
        for start in range(0, size[0], height):
            end = min(start + height, size[0])
            rows = torch.arange(start - before, end + after, device=images.device) % size[0]
            features = self.pixels(images.index_select(2, rows))
            for layer in self.local:
                features = layer(features, plain, size)
            yield start, features

    def _strips(self, size: tuple[int, ...], plain: bool) -> bool:
        """Tell whether strips cost less than the whole: not where only an FFT is cheap."""
        layers: list[Any] = list(self.local)
        cost = {s: sum(layer.ready(size, strips=s, plain=plain).cost for layer in layers) for s in (True, False)}
        return cost[True] <= 2 * cost[False]

    def _line_scores(self, images: Tensor, size: tuple[int, ...], plain: bool) -> Tensor:
        sums: list[Any] = [0.0] * self.axes
        first = []
        for _, features in self._features(images, size, plain):
            first.append(self.line_sums(features, 0))
            for axis in range(1, self.axes):
                sums[axis] = sums[axis] + self.line_sums(features, axis)
        sums[0] = torch.cat(first, 2) if len(first) > 1 else first[0]
        total: Tensor | None = None
        stack: Any
        for axis, stack in enumerate(self.lines):
            along = self.means(sums[axis], axis, size)
            for layer in stack:
                along = layer(along, plain)
            score = along.squeeze(1).reshape(-1, *[along.shape[-1] if a == axis else 1 for a in range(self.axes)])
            total = score if total is None else total + score
        assert total is not None
        return total


def bits_of(value: float) -> Tensor:
    """Return the bits of a float64 as an int64 buffer."""
    return torch.tensor([value], dtype=torch.float64).view(torch.int64)
