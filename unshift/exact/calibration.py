"""Turn a float estimator into an integer one. The scales are chosen on sample images, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from unshift.exact.inference import Layer, line_means, line_sums
from unshift.exact.integers import LARGEST_SCALE, IntegerEstimator
from unshift.exact.poses import IntegerPoseEstimator
from unshift.exact.quantised import IntegerNetwork, bits_of
from unshift.inputs import Images, batches
from unshift.network import ShiftEstimator, as_float, check_input
from unshift.pose_network import PoseEstimator

BLOCK = 2**22  # number of values of a map to calibrate on at a time


@torch.no_grad()
def quantise(
    estimator: ShiftEstimator | PoseEstimator, images: Images, *, bits: int = 10, sum_bits: int = 24
) -> IntegerNetwork:
    """Turn a float estimator into an exact integer one, calibrated on sample images.

    Args:
        estimator: The trained network.
        images: Samples that show the range of pixels and activations; a few hundred are enough. Values outside this
            range are clamped, which reduces the accuracy but not the exactness. A list may hold images of any sizes.
        bits: Width of the activations.
        sum_bits: Filters get as many bits as possible with every sum below ``2**sum_bits``. With the default, 24, all
            sums are exact in float32.

    Returns:
        The integer estimator, on the device of ``images``.

    Raises:
        ValueError: If there are no images, or images or weights are not finite.
    """
    if not len(images):
        raise ValueError("quantise needs at least one sample image to see the range of values, got none")
    parts = list(batches(images, len(images)))
    for part in parts:
        check_input(part, estimator.in_channels, estimator.axes, estimator.size)
    if not 2 <= bits < sum_bits - 2 or sum_bits > 50:
        raise ValueError(f"quantise wants 2 <= bits < sum_bits - 2 <= 48, got bits={bits}, sum_bits={sum_bits}")
    for name, parameter in estimator.named_parameters():
        if not torch.isfinite(parameter).all():
            raise ValueError(f"the estimator's {name} holds NaN or infinity: its training diverged")
    network = estimator.describe()
    net: Any
    if isinstance(estimator, PoseEstimator):
        net = IntegerPoseEstimator(network, bits=bits)
    else:
        # Line sums grow with the image. Their divisors are set at this size; `line_ratio` adapts them to others.
        if network["line_channels"] and len(sizes := {part.shape[2:] for part in parts}) > 1:
            raise ValueError(f"a net with lines is calibrated at one size, got images of {len(sizes)} sizes")
        net = IntegerEstimator(network, bits=bits, size=parts[0].shape[2:] if estimator.lines else estimator.size)
    calibrate = _Calibration(net.to(parts[0].device), parts, sum_bits)
    unit = calibrate.layers(net.local, estimator.local, calibrate.pixels(), calibrate.after_local)
    ends: list[Any] = [(net.local[-1], estimator.local[-1], unit)]
    if net.line_axes:
        float_lines: Any = estimator.lines
        lines: Any = enumerate(zip(net.lines, float_lines, strict=True))
        ends = [(line[-1], floats[-1], calibrate.line(axis, line, floats, unit)) for axis, (line, floats) in lines]
    # All axes' scores are added, so their last layers share one scale: the coarsest.
    scale = min(
        float(_fill(layer, (floating.kernel(), floating.bias), unit, sum_bits)) for layer, floating, unit in ends
    )
    for layer, floating, unit in ends:
        _fill(layer, (floating.kernel(), floating.bias), unit, sum_bits, scale)
    net.score_unit_bits.copy_(bits_of(1 / (scale * net.fraction)))
    net.read_numbers()
    quantised: IntegerNetwork = net
    return quantised


class _Calibration:
    """An integer network to be filled, and the sample images, in parts of one size each."""

    def __init__(self, net: Any, images: list[Tensor], sum_bits: int) -> None:
        self.net, self.sum_bits = net, sum_bits
        self.size = tuple(images[0].shape[2:])
        widest = math.prod(net.across) * max(max(layer.weight.shape[:2]) for layer in net.local)
        room = [max(1, BLOCK // (math.prod(part.shape[2:]) * widest)) for part in images]
        self.blocks = [block for part, count in zip(images, room, strict=True) for block in part.split(count)]

    def pixels(self) -> Tensor:
        """Set the pixel scale. Return the value of one integer step of a pixel, for each channel."""
        net = self.net
        top = max(float(as_float(part).abs().max()) for part in self.blocks)
        if not math.isfinite(top):
            raise ValueError("the sample images contain NaN or infinity (as float32)")
        scale = min(net.largest / top, LARGEST_SCALE) if top > 0 else 1.0
        net.pixel_scale_bits.copy_(bits_of(scale))
        return torch.full([net.in_channels // math.prod(net.across)], 1 / scale, dtype=torch.float64)

    def _through(self, layers: Iterable[Any], values: Tensor) -> Tensor:
        for layer in layers:
            values = Layer(layer, values.shape[2:], set())(values)
        return values

    def after_local(self, count: int) -> Iterator[Tensor]:
        """Yield the outputs of the first ``count`` local layers, part by part."""
        for part in self.blocks:
            yield self._through(list(self.net.local)[:count], self.net.inputs(part))

    def layers(self, layers: Any, floats: Any, unit: Tensor, inputs: Callable[[int], Iterable[Tensor]]) -> Tensor:
        """Fill all layers that have a divisor. Return the value of one integer step of the last layer's inputs."""
        for at, (layer, floating) in enumerate(zip(layers, floats, strict=True)):
            if layer.divisor is None:
                break
            scale = _fill(layer, (floating.kernel(), floating.bias), unit, self.sum_bits)
            sums = (Layer(layer, values.shape[2:], set()).sums(values) for values in inputs(at))
            tops = [_top(part, layer.activation) for part in sums]
            layer.divisor.copy_(_divisor(torch.stack(tops).amax(0), self.net.largest))
            unit = layer.divisor.cpu() / scale
        return unit

    def line(self, axis: int, layers: Any, floats: Any, unit: Tensor) -> Tensor:
        """Fill the 1-D layers along ``axis``. Return the value of one integer step of the last layer's inputs."""
        net, size = self.net, self.size
        count = math.prod(net.across) * math.prod(size) // size[axis]
        others = net.other_axes(axis)
        sums = torch.cat([line_sums(x, others, net.largest * count) for x in self.after_local(len(net.local))])
        divisor = _divisor(_top(sums, "none"), net.largest)
        net.get_buffer(f"mean_divisor_{axis}").copy_(divisor)
        means = line_means(sums, net.line_ratio(axis, size), net.largest)  # small: one line per image
        inputs = lambda count: [self._through(list(layers)[:count], means)]  # noqa: E731
        return self.layers(layers, floats, unit * divisor.cpu() / count, inputs)


def _top(sums: Tensor, activation: str) -> Tensor:
    """Return the largest absolute value of each channel once it is activated, float64."""
    return (sums.relu() if activation == "relu" else sums.abs()).transpose(0, 1).flatten(1).amax(1).double()


def _divisor(top: Tensor, largest: int) -> Tensor:
    """Return, for each channel, the smallest divisor that brings the largest observed sum into the range."""
    return (torch.floor(top / (largest + 1)) + 1).to(torch.int64)


def _fill(
    layer: Any, filter: tuple[Tensor, Tensor | None], unit: Tensor, sum_bits: int, scale: float | None = None
) -> Tensor:
    """Round a float filter into ``layer`` at the finest scale whose sums stay below ``2**sum_bits``."""
    weight, offset = filter
    effective = weight.double().cpu() * unit.cpu().view(1, -1, *[1] * (weight.ndim - 2))
    bias = torch.zeros(len(effective), dtype=torch.float64) if offset is None else offset.double().cpu()
    room = 2**sum_bits - 1
    need = layer.largest * effective.abs().flatten(1).sum(1) + bias.abs()
    scales = torch.where(need > 0, room / need, 1.0) if scale is None else torch.full_like(need, scale)
    if not (torch.isfinite(need).all() and torch.isfinite(scales).all() and (scales > 0).all()):
        raise ValueError("the estimator's filters are too large or too small to be turned into integers")
    if layer.divisor is None:
        scales[:] = scales.min()
    while True:
        rounded = (effective * scales.view(-1, *[1] * (effective.ndim - 1))).round()
        offset = (bias * scales).round()
        over = layer.largest * rounded.abs().flatten(1).sum(1) + offset.abs() > room
        if not over.any():
            break
        scales = torch.where(over, scales * 0.98, scales)  # rounding up may exceed the limit slightly
    layer.weight.copy_(rounded)
    layer.bias.copy_(offset)
    return scales if layer.divisor is not None else scales.min()
