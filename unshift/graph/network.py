"""The integer network of a restorer as plain tensor operations, exact in float32 and in every order.

:mod:`unshift.exact` picks the arithmetic when it sees the weights and the machine; a graph is made once and runs
anywhere. So here every sum is below 2^24, where float32 is exact in whatever order it is added up, or it is a
product of float64 matrices whose error is bounded below 1/2, and rounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unshift.circular import full_row
from unshift.estimator import ACTIVATIONS, run_network
from unshift.exact import IntegerEstimator, IntegerFilter

LIMIT = 2**24


class Network(nn.Module):
    """Canvases ``(batch, channel, *size)`` to int64 scores: the same integers as ``net(canvas)``."""

    scale: Tensor

    def __init__(self, net: IntegerEstimator, size: Sequence[int]) -> None:
        super().__init__()
        self.axes, self.largest = net.axes, net.largest
        self.register_buffer("scale", net.pixel_scale_bits.view(torch.float64).to(torch.float32))
        self.local = nn.ModuleList(_filter(layer, size) for layer in net.local)
        lines: Any = net.lines
        self.lines = nn.ModuleList(
            nn.ModuleList(_filter(layer, [size[axis]]) for layer in line) for axis, line in enumerate(lines)
        )
        for axis in range(len(net.lines)):
            divisor = net.get_buffer(f"mean_divisor_{axis}").to(torch.float64)
            self.register_buffer(f"mean_divisor_{axis}", divisor.view(-1, 1))

    def _means(self, features: Tensor, axis: int) -> Tensor:
        others = [2 + other for other in range(self.axes) if other != axis]
        sums = features.to(torch.float64)
        sums = sums.sum(others) if others else sums
        whole = torch.floor(sums / self.get_buffer(f"mean_divisor_{axis}"))
        return whole.clamp(-self.largest, self.largest).to(torch.float32)

    def forward(self, canvas: Tensor) -> Tensor:
        """Score every position with an int64. NaN and infinity count as black: PyTorch refuses them, a graph cannot."""
        pixels = (canvas * self.scale).round().clamp(-self.largest, self.largest)
        return run_network(torch.where(canvas.isfinite(), pixels, 0.0), self.local, self.lines, self._means)


def _filter(layer: nn.Module, size: Sequence[int]) -> nn.Module:
    """Return ``layer`` for maps of this size, in the form that takes less work."""
    assert isinstance(layer, IntegerFilter)
    worst = float((layer.largest_in * layer.weight.double().abs().flatten(1).sum(1) + layer.bias.abs()).max())
    if worst >= LIMIT:
        raise ValueError(
            f"this restorer's sums reach {worst:.0f}; a graph is exact below 2^24 only: quantise it with sum_bits=24"
        )
    outputs, inputs, *kernel = layer.weight.shape
    if len(size) == 2:
        direct = outputs * inputs * math.prod(kernel)
        # Four times: float64, and smaller matrices. Read off benchmarks/runtime.py.
        spectral = 4 * (2 * (inputs + outputs) * sum(size) + 4 * inputs * outputs)
        if spectral < direct and spectral_error_bound(size, inputs, worst) < 0.5:
            return SpectralFilter(layer, size)
    return DirectFilter(layer)


class _Filter(nn.Module):
    """What follows the sums: bias, activation, floor-divide and clamp, or int64 scores."""

    bias: Tensor
    divisor: Tensor | None

    def __init__(self, layer: IntegerFilter, dtype: torch.dtype) -> None:
        super().__init__()
        self.activation, self.largest = ACTIVATIONS[layer.activation], layer.largest_out
        shape = [-1, *[1] * (layer.weight.ndim - 2)]
        self.register_buffer("bias", layer.bias.to(dtype).view(shape))
        # No sum reaches 2^24, so dividing by that or by more is the same.
        divisor = None if layer.divisor is None else layer.divisor.clamp(max=LIMIT).to(dtype).view(shape)
        self.register_buffer("divisor", divisor)

    def _finish(self, sums: Tensor) -> Tensor:
        sums = sums + self.bias
        if self.divisor is None:
            return sums.to(torch.int64)
        # Also in float32 exact: a / b < m for a whole m means a / b <= m - 1/b, and 1/b is more than half a unit in
        # the last place of m as long as a is below 2^24. So no quotient is rounded up to a whole number.
        whole = torch.floor(self.activation(sums) / self.divisor)
        return whole.clamp(-self.largest, self.largest).to(torch.float32)


class DirectFilter(_Filter):
    """A circular filter as a convolution of the image on a margin of itself."""

    weight: Tensor

    def __init__(self, layer: IntegerFilter) -> None:
        super().__init__(layer, torch.float32)
        self.register_buffer("weight", layer.weight.to(torch.float32))

    def forward(self, images: Tensor) -> Tensor:
        """Return the next layer's integers as float32, or the scores as int64."""
        for axis, taps in enumerate(self.weight.shape[2:], 2):
            before, after = taps // 2, taps - 1 - taps // 2
            last = images.shape[axis] - before
            parts = [images.narrow(axis, last, before), images, images.narrow(axis, 0, after)]
            images = torch.cat([part for part in parts if part.shape[axis]], axis)
        convolve = (F.conv1d, F.conv2d, F.conv3d)[self.weight.ndim - 3]
        return self._finish(convolve(images, self.weight))


def spectral_error_bound(size: Sequence[int], inputs: int, worst: float) -> float:
    """Bound the error of :class:`SpectralFilter` where no sum of absolute values exceeds ``worst``.

    A dot product of length n is off by at most ``n u`` times the sum of its absolute terms in any order, u = 2^-53;
    cosines are off by 16 u. With N = H W pixels up to L and spectra up to N L, the transform (lengths W and 2 H) is off
    by ``(1.5 W + 4 H + 56) u N L``, and so is the filter's, relative to its own size. Their product, summed over 2
    inputs, is off by ``(4.3 W + 11.4 H + 2.9 inputs + 160) u N worst``; the way back doubles that and adds
    ``(2 W + 4 H + 68) u N worst``. In all less than what is returned.
    """
    return 32 * (sum(size) + inputs + 16) * 2.0**-53 * math.prod(size) * worst


class SpectralFilter(_Filter):
    """A large circular filter as a product of spectra; the Fourier transforms are products with float64 matrices.

    ONNX Runtime has a discrete Fourier transform, but not in float64 for all lengths and not in the browser.
    """

    across: Tensor
    down: Tensor
    up: Tensor
    back: Tensor
    real: Tensor
    imaginary: Tensor

    def __init__(self, layer: IntegerFilter, size: Sequence[int]) -> None:
        super().__init__(layer, torch.float64)
        height, width = size
        cos, sin = _waves(width)
        half = width // 2 + 1
        cos, sin = cos[:, :half], sin[:, :half]
        self.register_buffer("across", torch.cat([cos, -sin], 1))
        # Of a real image the other half of the spectrum is the mirror image of this one: it counts twice.
        counts = [1 if 2 * k % width == 0 else 2 for k in range(half)]
        twice = torch.tensor(counts, dtype=torch.float64) / (height * width)
        self.register_buffer("back", torch.cat([cos * twice, -sin * twice], 1).T.contiguous())
        cos, sin = _waves(height)
        self.register_buffer("down", torch.cat([torch.cat([cos, sin], 1), torch.cat([-sin, cos], 1)]))
        self.register_buffer("up", torch.cat([torch.cat([cos, -sin], 1), torch.cat([sin, cos], 1)]))
        real, imaginary = self._spectrum(full_row(layer.weight.to(torch.float64), size))
        self.register_buffer("real", real.contiguous())
        self.register_buffer("imaginary", imaginary.contiguous())

    def _spectrum(self, images: Tensor) -> tuple[Tensor, Tensor]:
        half, height = self.across.shape[1] // 2, len(self.down) // 2
        spectrum = images @ self.across
        spectrum = self.down @ torch.cat([spectrum[..., :half], spectrum[..., half:]], -2)
        return spectrum[..., :height, :], spectrum[..., height:, :]

    def forward(self, images: Tensor) -> Tensor:
        """Return the next layer's integers as float32, or the scores as int64."""
        height = self.real.shape[-2]
        real, imaginary = (part[:, None] for part in self._spectrum(images.to(torch.float64)))
        # Times the conjugate: a correlation, not a convolution.
        product = [
            (real * self.real + imaginary * self.imaginary).sum(2),
            (imaginary * self.real - real * self.imaginary).sum(2),
        ]
        waves = self.up @ torch.cat(product, -2)
        sums = torch.cat([waves[..., :height, :], waves[..., height:, :]], -1) @ self.back
        return self._finish(sums.round())


def _waves(length: int) -> tuple[Tensor, Tensor]:
    """Return cos and sin of ``2 pi j k / length``, the product reduced first: whole turns are exact."""
    turns = torch.arange(length)[:, None] * torch.arange(length) % length
    angle = turns.to(torch.float64) * (2 * math.pi / length)
    return angle.cos(), angle.sin()
