"""Exact sums through the spectrum: a product in float64, rounded to the integer that it must be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from unshift.circular import full_row
from unshift.exact.task import FLOAT32, Task

__all__ = ["Fft64", "Waves64", "fft_error_bound", "waves_error_bound"]


def fft_error_bound(size: Sequence[int], inputs: int, worst: float) -> float:
    """Bound the error of a float64 FFT correlation, of ``inputs`` channels each, whose sums are below ``worst``.

    Per channel, Higham (Accuracy and Stability, Theorem 24.2) gives a relative error of about ``7 u log2 N`` in
    the 2-norm for one transform; three of them and a product make 21. We take 64, which also covers the longer
    transforms used at sizes with large prime factors. By Cauchy-Schwarz the 2-norms of image and filter multiply
    to at most ``sqrt(N)`` times ``largest`` times the filter's L1 norm. Summed over channels these make
    ``sqrt(N) worst``; adding up ``inputs`` spectra adds ``inputs u`` to the relative error.
    """
    n = math.prod(size)
    return (64 * (math.log2(n) + 1) + inputs) * 2.0**-53 * math.sqrt(n) * worst


class Fft64:
    """A product of spectra in float64, rounded: exact where the error is below 1/2 (:func:`fft_error_bound`)."""

    dtype: ClassVar[torch.dtype] = torch.float64
    bytes: ClassVar[int] = 16

    def __init__(self, weight: Tensor, task: Task) -> None:
        self.size = task.size
        self.axes = tuple(range(-len(task.size), 0))
        row = full_row(weight.to(torch.float64), task.size)
        self.spectrum = torch.fft.rfftn(row, dim=self.axes).conj().resolve_conj()

    def __call__(self, images: Tensor, margin: bool, bias: Tensor | None = None) -> Tensor:
        assert not margin
        spectrum = torch.fft.rfftn(images, dim=self.axes)
        outputs, inputs = self.spectrum.shape[:2]
        if inputs == 1:
            product = spectrum * self.spectrum[:, 0]
        elif outputs == 1:
            product = (spectrum * self.spectrum[0]).sum(1, keepdim=True)
        else:
            product = torch.einsum("bi...,oi...->bo...", spectrum, self.spectrum)
        return _rounded(torch.fft.irfftn(product, s=list(self.size), dim=self.axes), bias)

    @staticmethod
    def holds(task: Task) -> bool:
        return not task.strips and fft_error_bound(task.size, task.shape[1], task.worst) < 0.5

    @staticmethod
    def cost(task: Task) -> float:
        """Transforms, and a complex product a frequency."""
        outputs, inputs = task.shape[:2]
        return 1 + 0.2 * math.log2(max(2, math.prod(task.size))) * (inputs + outputs) + 0.4 * inputs * outputs


def waves_error_bound(size: Sequence[int], inputs: int, worst: float) -> float:
    """Bound the error of :class:`Waves64` where no sum of absolute values exceeds ``worst``.

    A dot product of length n is off by at most ``n u`` times the sum of its absolute terms in any order; cosines
    are off by 16 u. With N = H W pixels up to L and spectra up to N L, the transform (lengths W and 2 H) is off
    by ``(1.5 W + 4 H + 56) u N L``, and so is the filter's, relative to its own size. Their product, summed over 2
    inputs, is off by ``(4.3 W + 11.4 H + 2.9 inputs + 160) u N worst``; the way back doubles that and adds
    ``(2 W + 4 H + 68) u N worst``. In all less than what is returned.
    """
    return 32 * (sum(size) + inputs + 16) * 2.0**-53 * math.prod(size) * worst


class Waves64:
    """A product of spectra whose Fourier transforms are products with float64 matrices, rounded: for graphs.

    ONNX Runtime has a discrete Fourier transform, but not in float64 for all lengths and not in the browser.
    Exact where the error is below 1/2 (:func:`waves_error_bound`).
    """

    dtype: ClassVar[torch.dtype] = torch.float64
    bytes: ClassVar[int] = 16

    def __init__(self, weight: Tensor, task: Task) -> None:
        height, width = task.size
        half = width // 2 + 1
        cos, sin = (wave[:, :half] for wave in _waves(width))
        self.across = torch.cat([cos, -sin], 1)
        # Of a real image the other half of the spectrum is the mirror image of this one: it counts twice.
        counts = [1 if 2 * k % width == 0 else 2 for k in range(half)]
        twice = torch.tensor(counts, dtype=torch.float64) / (height * width)
        self.back = torch.cat([cos * twice, -sin * twice], 1).T.contiguous()
        cos, sin = _waves(height)
        self.down = torch.cat([torch.cat([cos, sin], 1), torch.cat([-sin, cos], 1)])
        self.up = self.down.T.contiguous()
        row = full_row(weight.to(torch.float64), task.size)
        self.real, self.imaginary = (part.contiguous() for part in self._spectrum(row))

    def _spectrum(self, images: Tensor) -> Sequence[Tensor]:
        return (self.down @ torch.cat((images @ self.across).chunk(2, -1), -2)).chunk(2, -2)

    def __call__(self, images: Tensor, margin: bool, bias: Tensor | None = None) -> Tensor:
        assert not margin
        real, imaginary = (part[:, None] for part in self._spectrum(images))
        # Times the conjugate: a correlation, not a convolution.
        products = real * self.real + imaginary * self.imaginary, imaginary * self.real - real * self.imaginary
        waves = (self.up @ torch.cat([product.sum(2) for product in products], -2)).chunk(2, -2)
        return _rounded(torch.cat(waves, -1) @ self.back, bias)

    @staticmethod
    def holds(task: Task) -> bool:
        in_bounds = task.worst < FLOAT32 and len(task.size) == 2 and not task.strips  # as other parts of a graph hold
        return in_bounds and waves_error_bound(task.size, task.shape[1], task.worst) < 0.5

    @staticmethod
    def cost(task: Task) -> float:
        """Four times the products: float64, and smaller matrices."""
        outputs, inputs = task.shape[:2]
        return 0.03 * 4 * (2 * (inputs + outputs) * sum(task.size) + 4 * inputs * outputs)


def _rounded(sums: Tensor, bias: Tensor | None) -> Tensor:
    """Return the integers that ``sums`` must be, plus the bias of each channel."""
    sums = sums.round_()
    return sums if bias is None else sums.add_(bias.view(-1, *[1] * (sums.ndim - 2)))


def _waves(length: int) -> tuple[Tensor, Tensor]:
    """Return cos and sin of ``2 pi j k / length``, the product reduced first: whole turns are exact."""
    angles = [[j * k % length * (2 * math.pi / length) for k in range(length)] for j in range(length)]
    cos, sin = ([[wave(angle) for angle in row] for row in angles] for wave in (math.cos, math.sin))
    return torch.tensor(cos, dtype=torch.float64), torch.tensor(sin, dtype=torch.float64)
