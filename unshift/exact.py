"""Exact inference: integer arithmetic, and a tie rule that cannot see where the image came from.

Floating point cannot promise that ``restore(apply(x, M))`` equals ``restore(x)``: the sums of an FFT
differ in the last bit with the shift, and equal scores fall to whichever index comes first. So:

1. Pixels and filters are quantised to integers, pointwise (:func:`quantise`).
2. Sums are exact. Every partial sum stays below 2^24 (float32) or 2^53 (float64), or the result of a
   float64 FFT is rounded to the nearest integer with its error bounded below 1/2. A sum of integers
   does not care about its order: not about threads, batch, device or algorithm.
3. Between layers: floor-divide and clamp, both pointwise.
4. :func:`choose` takes the argmax; where several positions tie, it compares the *images* they
   restore to, never their indices.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from unshift.circular import circular_correlation, faster_method
from unshift.estimator import ACTIVATIONS, ShiftEstimator, as_float, check_input, run_network

__all__ = ["IntegerEstimator", "choose", "confidence", "quantise"]


# --- exact sums ---------------------------------------------------------------------------------


def fft_error_bound(size: Sequence[int], largest: float, l1: float) -> float:
    """Bound the error of a float64 FFT correlation of integers below ``largest`` with L1 norm ``l1``.

    Higham (Accuracy and Stability, Theorem 24.2) gives a relative error of about ``7 u log2 N`` in the
    2-norm for one transform, ``u = 2^-53``; three of them and a product make 21. We take 64, which
    also covers the longer transforms used at sizes with large prime factors. By Cauchy-Schwarz no
    output exceeds ``||x||_2 ||w||_2 <= largest sqrt(N) l1``.
    """
    n = math.prod(size)
    return 64 * 2.0**-53 * (math.log2(n) + 1) * largest * math.sqrt(n) * l1


def _float32_is_exact(kernel: Sequence[int], device: torch.device) -> bool:
    """Tell whether a float32 convolution here adds up plain products, so that sums below 2^24 are exact.

    Not where TF32 or bfloat16 may stand in for float32 (GPUs, or a user's own setting), nor where a
    Winograd or FFT kernel in float32 may be picked (kernels up to 3, or builds without oneDNN).
    """
    backend = torch.backends.mkldnn
    settings = (getattr(module, "fp32_precision", "none") for module in (backend, getattr(backend, "conv", None)))
    plain = all(setting in ("none", "ieee") for setting in settings)
    on = backend.is_available() and getattr(torch._C, "_get_mkldnn_enabled", lambda: False)()  # in the build, and now
    return device.type == "cpu" and on and max(kernel) > 3 and plain


def integer_correlation(images: Tensor, weight: Tensor, largest: int) -> Tensor:
    """Correlate integers circularly and exactly. ``images`` are floats that hold integers up to ``largest``."""
    size = tuple(images.shape[2:])
    l1 = float(weight.double().abs().flatten(1).sum(1).max())  # as doubles: integers could wrap around
    if largest * l1 >= 2**53:
        raise ValueError(f"sums of up to {largest} x {l1:.0f} do not fit in 53 bits")
    if images.shape[0] == 0:
        return images.new_zeros(0, weight.shape[0], *size)
    narrow = largest * l1 < 2**24 and _float32_is_exact(weight.shape[2:], images.device)
    dtype = torch.float32 if narrow else torch.float64
    if faster_method(weight.shape, size) == "direct" or fft_error_bound(size, largest, l1) >= 0.5:
        return circular_correlation(images.to(dtype), weight.to(dtype), "direct").round()
    return circular_correlation(images.to(torch.float64), weight.to(torch.float64), "fft").round()


class IntegerFilter(nn.Module):
    """A circular filter of integers; then, but for the last layer, floor-divide, activate and clamp."""

    weight: Tensor
    bias: Tensor
    divisor: Tensor | None

    def __init__(self, shape: Sequence[int], largest_in: int, largest_out: int, activation: str, last: bool) -> None:
        super().__init__()
        # Integer buffers: Module.to(dtype) leaves them alone, so .half() cannot spoil an exact net.
        self.register_buffer("weight", torch.zeros(*shape, dtype=torch.int64))
        self.register_buffer("bias", torch.zeros(shape[0], dtype=torch.int64))
        self.register_buffer("divisor", None if last else torch.ones(shape[0], dtype=torch.int64))
        self.largest_in = largest_in
        self.largest_out = largest_out
        self.activation = activation

    def sums(self, images: Tensor) -> Tensor:
        """Return the exact sums, before dividing, as float64."""
        sums = integer_correlation(images, self.weight, self.largest_in).to(torch.float64)
        return sums + _per_channel(self.bias, sums)

    def forward(self, images: Tensor) -> Tensor:
        """Return the next layer's integers, or the scores as int64."""
        sums = self.sums(images)
        if self.divisor is None:
            return sums.to(torch.int64)
        return _requantise(ACTIVATIONS[self.activation](sums), self.divisor, self.largest_out)


def _per_channel(values: Tensor, like: Tensor) -> Tensor:
    return values.to(like.dtype).view(-1, *[1] * (like.ndim - 2))


def _requantise(sums: Tensor, divisor: Tensor, largest: int) -> Tensor:
    # float64 division of integers below 2^52 and floor are exact: the quotient is at least 1/divisor
    # away from any integer it is not equal to, which is more than half a unit in the last place.
    return torch.floor(sums / _per_channel(divisor, sums)).clamp(-largest, largest)


class IntegerEstimator(nn.Module):
    """A :class:`ShiftEstimator` in integers: images in, int64 scores out, equivariant to the last bit.

    Made by :func:`quantise`; rebuilt from ``IntegerEstimator(**net.describe())`` and a ``state_dict``.
    ``bits`` is the width of the activations, ``size`` the only image size it takes (``None``: any).
    """

    pixel_scale_bits: Tensor
    score_unit_bits: Tensor

    def __init__(self, network: dict[str, Any], *, bits: int = 10, size: Sequence[int] | None = None) -> None:
        super().__init__()
        if type(bits) is not int or not 2 <= bits <= 47:
            raise ValueError(f"bits must be a whole number from 2 to 47, got {bits!r}")
        with torch.device("meta"):  # only its shapes are wanted: no memory, and no random numbers drawn
            floating = ShiftEstimator(**network)
        self.in_channels, self.axes = floating.in_channels, floating.axes
        self.size = tuple(size) if size is not None else None
        self._description = {
            "network": network,
            "bits": bits,
            "size": list(size) if size is not None else None,
        }
        largest = 2**bits - 1
        self.largest = largest

        def stack(layers: Any, scores: bool) -> nn.ModuleList:
            return nn.ModuleList(
                IntegerFilter(
                    layer.filter.weight.shape,
                    largest,
                    largest,
                    network["activation"],
                    last=scores and k == len(layers) - 1,
                )
                for k, layer in enumerate(layers)
            )

        self.local = stack(floating.local, scores=not len(floating.lines))
        self.lines = nn.ModuleList(stack(line, scores=True) for line in floating.lines)
        for axis in range(len(self.lines)):
            ones = torch.ones(network["channels"][-1], dtype=torch.int64)
            self.register_buffer(f"mean_divisor_{axis}", ones)
        # The two real numbers of the net, kept as the bits of a float64 for the reason given above.
        self.register_buffer("pixel_scale_bits", _bits(1.0))
        self.register_buffer("score_unit_bits", _bits(1.0))

    @property
    def score_unit(self) -> float:
        """How much one integer step of the scores is worth as a logit (nats)."""
        return float(self.score_unit_bits.view(torch.float64))

    def describe(self) -> dict[str, Any]:
        """Return the network as plain data: ``IntegerEstimator(**net.describe())`` rebuilds it."""
        return copy.deepcopy(self._description)

    def pixels(self, images: Tensor) -> Tensor:
        """Quantise pixels to integers, each by itself: one multiplication, one rounding, one clamp."""
        scale = self.pixel_scale_bits.view(torch.float64).to(torch.float32)
        return (as_float(images) * scale).round().clamp(-self.largest, self.largest)

    def line_sums(self, features: Tensor, axis: int) -> Tensor:
        """Sum over every spatial axis but ``axis``, exactly."""
        others = [2 + other for other in range(self.axes) if other != axis]
        if self.largest * math.prod(features.shape[other] for other in others) >= 2**53:
            raise ValueError(f"sums of {self.largest} over images of size {tuple(features.shape[2:])} exceed 53 bits")
        return features.to(torch.float64).sum(others) if others else features.to(torch.float64)

    def _means(self, features: Tensor, axis: int) -> Tensor:
        return _requantise(self.line_sums(features, axis), self.get_buffer(f"mean_divisor_{axis}"), self.largest)

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Score every position with an int64."""
        check_input(images, self.in_channels, self.axes, self.size)
        with torch.autocast(images.device.type, enabled=False):  # autocast would round the integers
            return run_network(self.pixels(images), self.local, self.lines, self._means)


def _bits(value: float) -> Tensor:
    return torch.tensor([value], dtype=torch.float64).view(torch.int64)


# --- from float to integer ----------------------------------------------------------------------


@torch.no_grad()
def quantise(estimator: ShiftEstimator, images: Tensor, *, bits: int = 10, sum_bits: int = 24) -> IntegerEstimator:
    """Turn a float estimator into an exact integer one, calibrated on sample images.

    ``images`` show the range of pixels and activations; a few hundred are enough. Values beyond it
    are clamped, which costs accuracy and never exactness. Activations get ``bits`` bits; filters as
    many as keep every sum below ``2**sum_bits``: 24, the default, is exact in float32 everywhere.
    """
    check_input(images, estimator.in_channels, estimator.axes, estimator.size)
    if images.shape[0] == 0:
        raise ValueError("quantise needs at least one sample image to see the range of values, got none")
    if not 2 <= bits < sum_bits - 2 or sum_bits > 50:
        raise ValueError(f"quantise wants 2 <= bits < sum_bits - 2 <= 48, got bits={bits}, sum_bits={sum_bits}")
    for name, parameter in estimator.named_parameters():
        if not torch.isfinite(parameter).all():
            raise ValueError(f"the estimator's {name} holds NaN or infinity: its training went wrong")
    network = estimator.describe()
    # Sums along an axis grow with the image, and a dense filter fits one size: both are tied to it.
    size = images.shape[2:] if network["line_channels"] else estimator.size
    net = IntegerEstimator(network, bits=bits, size=size).to(images.device)
    top = float(as_float(images).abs().max())
    if not math.isfinite(top):
        raise ValueError("the sample images contain NaN or infinity (as float32)")
    scale = min(net.largest / top, torch.finfo(torch.float32).max) if top > 0 else 1.0
    net.pixel_scale_bits.copy_(_bits(scale))
    unit = torch.full([estimator.in_channels], 1 / scale, dtype=torch.float64)

    def calibrate(layers: Any, floats: Any, values: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
        """Fill all layers that have a divisor; return the values and units that reach what follows."""
        for layer, floating in zip(layers, floats, strict=True):
            if layer.divisor is None:
                break
            scale = _fill(layer, floating.filter, unit, sum_bits)
            sums = ACTIVATIONS[layer.activation](layer.sums(values))
            layer.divisor.copy_(_divisor(sums, net.largest))
            unit = layer.divisor / scale
            values = layer(values)
        return values, unit

    values, unit = calibrate(net.local, estimator.local, net.pixels(images), unit)
    ends = [(net.local[-1], estimator.local[-1], unit)]
    if len(net.lines):
        ends = []
        line: Any
        floats: Any
        for axis, (line, floats) in enumerate(zip(net.lines, estimator.lines, strict=True)):
            sums = net.line_sums(values, axis)
            divisor = _divisor(sums, net.largest)
            net.get_buffer(f"mean_divisor_{axis}").copy_(divisor)
            count = math.prod(images.shape[2:]) / images.shape[2 + axis]
            along = _requantise(sums, divisor, net.largest)
            _, line_unit = calibrate(line, floats, along, unit * divisor / count)
            ends.append((line[-1], floats[-1], line_unit))
    # All axes' scores are added, so their last layers share one scale: the coarsest.
    scale = min(float(_fill(layer, floating.filter, unit, sum_bits)) for layer, floating, unit in ends)
    for layer, floating, unit in ends:
        _fill(layer, floating.filter, unit, sum_bits, scale)
    net.score_unit_bits.copy_(_bits(1 / scale))
    return net


def _fill(layer: Any, filter: Any, unit: Tensor, sum_bits: int, scale: float | None = None) -> Tensor:
    """Round a float filter into ``layer`` at the finest scale whose sums stay below ``2**sum_bits``."""
    effective = filter.weight.double().cpu() * unit.cpu().view(1, -1, *[1] * (filter.weight.ndim - 2))
    bias = torch.zeros(len(effective), dtype=torch.float64) if filter.bias is None else filter.bias.double().cpu()
    room = 2**sum_bits - 1
    need = layer.largest_in * effective.abs().flatten(1).sum(1) + bias.abs()
    scales = torch.where(need > 0, room / need, 1.0) if scale is None else torch.full_like(need, scale)
    if not (torch.isfinite(need).all() and torch.isfinite(scales).all() and (scales > 0).all()):
        raise ValueError("the estimator's filters are too large or too small to be turned into integers")
    if layer.divisor is None:
        scales[:] = scales.min()
    while True:
        weight = (effective * scales.view(-1, *[1] * (effective.ndim - 1))).round()
        offset = (bias * scales).round()
        over = layer.largest_in * weight.abs().flatten(1).sum(1) + offset.abs() > room
        if not over.any():
            break
        scales = torch.where(over, scales * 0.98, scales)  # rounding up may overshoot by a tap or two
    layer.weight.copy_(weight)
    layer.bias.copy_(offset)
    return scales if layer.divisor is not None else scales.min()


def _divisor(sums: Tensor, largest: int) -> Tensor:
    """Per channel, the smallest integer that brings the largest sum seen into the range."""
    top = sums.abs().transpose(0, 1).flatten(1).amax(1)
    return (torch.floor(top / (largest + 1)) + 1).to(torch.int64)


# --- the choice ---------------------------------------------------------------------------------


def choose(scores: Tensor, images: Tensor, prefer: Callable[[int, Tensor], int] | None = None) -> tuple[Tensor, Tensor]:
    """Return the shift ``(batch, d)`` of the highest score, and whether several positions had it.

    Among tied positions the one whose *restored image* is the largest wins, compared pixel by pixel
    in a fixed order. This depends on the set of candidates alone, so it is the same for every shift
    of the input. Candidates that are the same image to the last bit (a periodic input) are one answer;
    where ``images`` do not show all there is (see ``unshift.polar``), ``prefer(row, candidates)`` tells
    which of those positions it is.
    """
    size = tuple(scores.shape[1:])
    flat = scores.flatten(1)
    best = flat == flat.amax(1, keepdim=True) if flat.shape[0] else flat.bool()
    index = best.to(torch.uint8).argmax(1)
    tied = best.sum(1) > 1
    for row in tied.nonzero().flatten().tolist():
        order = rank_restored(images[row])
        order = torch.where(best[row], order, -1)
        index[row] = order.argmax()
        same = (order == order[index[row]]).nonzero().flatten()
        if prefer is not None and len(same) > 1:
            index[row] = same[prefer(row, same)]
    return torch.stack(torch.unravel_index(index, size), 1), tied


def rank_restored(image: Tensor) -> Tensor:
    """Rank all ``undo(image, s)`` of one ``(channel, *spatial)`` image; equal images share a rank.

    Returns int64 ``(N,)``: position ``s`` (row-major) holds the rank of the image undone by ``s``.
    Prefix doubling, as for suffix arrays: ranks of blocks of length 2L are ranks of pairs of blocks
    of length L. That is ``O(N log N)`` even when all N positions tie.
    """
    keys = ordered_bits(image)
    ranks = _rank(keys[0])
    for channel in keys[1:]:
        ranks = _rank_pairs(ranks, _rank(channel))
    for axis in reversed(range(ranks.ndim)):
        n, length = ranks.shape[axis], 1
        while length < n:
            step = min(length, n - length)  # the last step may overlap: equal overlaps change nothing
            ranks = _rank_pairs(ranks, ranks.roll(-step, axis))
            length += step
    return ranks.flatten()


def ordered_bits(image: Tensor) -> Tensor:
    """Map pixels to int64 keys that order as the values do and tell all bit patterns apart (-0.0 < 0.0)."""
    if not image.is_floating_point():
        return image.to(torch.int64)
    kind = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[image.element_size()]
    bits = image.contiguous().view(kind)
    return torch.where(bits < 0, bits ^ torch.iinfo(kind).max, bits).to(torch.int64)


def _rank(keys: Tensor) -> Tensor:
    return torch.unique(keys, return_inverse=True)[1]


def _rank_pairs(first: Tensor, second: Tensor) -> Tensor:
    if int(first.max()) == 0 and int(second.max()) == 0:
        return first  # constant so far: nothing to sort
    return _rank(first * (int(second.max()) + 1) + second)


# --- confidence ---------------------------------------------------------------------------------

FRACTION = 1024  # steps of the exponential's table per factor of two
TABLE = torch.exp2(40 - torch.arange(41 * FRACTION, dtype=torch.float64) / FRACTION).round().to(torch.int64)


def confidence(scores: Tensor, score_unit: float) -> Tensor:
    """Return the softmax probability of the highest score, as float64, the same for every shift.

    A float softmax would add up its terms in the order the input came in. Here each term is an
    integer from a table of ``2^(40 - t)``, whose exact sum has no order.
    """
    flat = scores.flatten(1)
    if not flat.shape[0]:
        return flat.new_zeros(0, dtype=torch.float64)
    below = flat.amax(1, keepdim=True) - flat
    bits_per_step = score_unit / math.log(2)
    # One multiplication and one cut, both pointwise; anything past 2^-41 counts as nothing.
    index = (below.to(torch.float64) * (bits_per_step * FRACTION)).clamp(max=len(TABLE)).to(torch.int64)
    # N terms of up to 2^40 must fit in 63 bits: large maps give up low bits of each.
    table = TABLE.to(scores.device) >> max(0, (flat.shape[1] - 1).bit_length() - 22)
    terms = torch.where(index < len(table), table[index.clamp(max=len(table) - 1)], 0)
    return table[0].to(torch.float64) / terms.sum(1).to(torch.float64)
