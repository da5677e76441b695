"""Exact sums by Fourier transform: a product of spectra in float64, rounded to the nearest integer.

**Bound.** Let ``e`` bound the relative error, in the 2-norm, of the transforms of an image and of a filter, and of the
inverse transform. Write ``x`` for one channel of an image, ``w`` for row 0 of its circular filter and ``X``, ``W`` for
their exact spectra: ``|X| = sqrt(N) |x|`` in the 2-norm. Let ``R`` be the sum over channels of ``|x| |w|_1``, and
``|x|`` be at most ``sqrt(N) L``, so that ``R <= sqrt(N) worst``.

1. The errors of ``X`` change the product ``X conj(W)`` by a vector whose 1-norm is, by Cauchy-Schwarz, at most
   ``e |X| |W| = e N |x| |w|``. The inverse divides by ``N``, and ``|w| <= |w|_1``: this moves no sum by more than
   ``e R``. The errors of ``W`` do the same.
2. Complex products and the sum over ``inputs`` channels have a relative error of at most ``(inputs + 4) u`` per entry,
   so they move no sum by more than ``(inputs + 4) u R``.
3. The inverse has an error of ``e`` relative to the 2-norm of the sums, which by Young's inequality is at most ``R``.

The total is ``(3 e + (inputs + 4) u) R``. The bound below adds 1% and ``4 u`` for products of errors, since ``e`` is
tiny. If it is below 1/2, rounding returns the exact sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from unshift.exact.kernels.interface import FLOAT32, Task
from unshift.network import full_row

U = 2.0**-53


def _error_bound(transform_error: float, task: Task) -> float:
    """Bound the error of every sum, given the relative error of one transform (the proof is at the top of the file)."""
    n, inputs = math.prod(task.size), task.shape[1]
    return 1.01 * (3 * transform_error + (inputs + 8) * U) * math.sqrt(n) * task.worst


def _rounded(sums: Tensor, bias: Tensor) -> Tensor:
    """Round ``sums`` to integers, and add the bias of each channel."""
    return sums.round_().add_(bias.view(-1, *[1] * (sums.ndim - 2)))


class Fft64:
    """A product of spectra by the FFT in float64, exact if :meth:`error_bound` is below 1/2."""

    dtype: ClassVar[torch.dtype] = torch.float64

    def __init__(self, weight: Tensor, bias: Tensor, size: Sequence[int]) -> None:
        self.size, self.axes = list(size), tuple(range(-len(size), 0))
        self.bias = bias.to(self.dtype)
        self.spectrum = torch.fft.rfftn(full_row(weight.to(self.dtype), size), dim=self.axes).conj().resolve_conj()

    def __call__(self, images: Tensor) -> Tensor:
        spectrum = torch.fft.rfftn(images, dim=self.axes)
        outputs, inputs = self.spectrum.shape[:2]
        if inputs == 1 or outputs == 1:
            product = spectrum * (self.spectrum[:, 0] if inputs == 1 else self.spectrum[0])
            product = product if inputs == 1 else product.sum(1, keepdim=True)
        else:
            product = torch.einsum("bi...,oi...->bo...", spectrum, self.spectrum)
        return _rounded(torch.fft.irfftn(product, s=self.size, dim=self.axes), self.bias)

    @property
    def nbytes(self) -> int:
        return int(self.spectrum.nbytes)

    @staticmethod
    def error_bound(task: Task) -> float:
        """Bound the error of every sum.

        Higham (Accuracy and Stability of Numerical Algorithms, Theorem 24.2) gives ``e = 7 u log2 N``; three times as
        much covers the longer transforms that are used for sizes with large prime factors.
        """
        return _error_bound(22 * (math.log2(math.prod(task.size)) + 1) * U, task)

    @staticmethod
    def is_exact(task: Task) -> bool:
        return Fft64.error_bound(task) < 0.5

    @staticmethod
    def cost(task: Task) -> float:
        """Transforms, and one complex product per frequency."""
        outputs, inputs = task.shape[:2]
        return 1 + 0.2 * math.log2(max(2, math.prod(task.size))) * (inputs + outputs) + 0.4 * inputs * outputs


class Dft64:
    """A product of spectra whose transforms are products with float64 matrices, for graphs of two axes.

    ONNX Runtime has a discrete Fourier transform, but not in float64 for all lengths, and not in the browser. Exact if
    :meth:`error_bound` is below 1/2.
    """

    dtype: ClassVar[torch.dtype] = torch.float64

    def __init__(self, weight: Tensor, bias: Tensor, size: Sequence[int]) -> None:
        height, width = size
        half = width // 2 + 1
        cos, sin = (wave[:, :half] for wave in _waves(width))
        self.across = torch.cat([cos, -sin], 1)
        # The spectrum of a real image is symmetric: all but its own mirror images count twice.
        counts = [1 if 2 * k % width == 0 else 2 for k in range(half)]
        scale = torch.tensor(counts, dtype=torch.float64) / (height * width)
        self.back = torch.cat([cos * scale, -sin * scale], 1).T.contiguous()
        cos, sin = _waves(height)
        self.down = torch.cat([torch.cat([cos, sin], 1), torch.cat([-sin, cos], 1)])
        self.up = self.down.T.contiguous()
        self.bias = bias.to(self.dtype)
        row = full_row(weight.to(self.dtype), size)
        self.real, self.imaginary = (part.contiguous() for part in self._spectrum(row))

    def _spectrum(self, images: Tensor) -> Sequence[Tensor]:
        return (self.down @ torch.cat((images @ self.across).chunk(2, -1), -2)).chunk(2, -2)

    def __call__(self, images: Tensor) -> Tensor:
        real, imaginary = (part[:, None] for part in self._spectrum(images))
        # Times the conjugate: a correlation, not a convolution.
        products = real * self.real + imaginary * self.imaginary, imaginary * self.real - real * self.imaginary
        waves = (self.up @ torch.cat([product.sum(2) for product in products], -2)).chunk(2, -2)
        return _rounded(torch.cat(waves, -1) @ self.back, self.bias)

    @property
    def nbytes(self) -> int:
        return self.real.nbytes + self.imaginary.nbytes

    @staticmethod
    def error_bound(task: Task) -> float:
        """Bound the error of every sum.

        A dot product of length ``m`` is off by at most ``m u`` times the sum of its absolute terms, in any order, and
        its cosines by ``16 u`` each. So each entry of a real transform of length ``m`` is off by ``(m + 16) u`` times
        the 1-norm of its input, which is at most ``sqrt(m)`` times the 2-norm; with real and imaginary parts, whose dot
        products have length ``2 m``, by at most ``4 (m + 16) u`` times that. The ``m`` entries together are off by
        another ``sqrt(m)``, and the exact transform multiplies the 2-norm by ``sqrt(m)``: a relative error of
        ``4 sqrt(m) (m + 16) u`` per axis. Axes add.
        """
        return _error_bound(sum(4 * math.sqrt(m) * (m + 16) * U for m in task.size), task)

    @staticmethod
    def is_exact(task: Task) -> bool:
        """Graphs hold sums below 2^24 only."""
        return len(task.size) == 2 and task.worst < FLOAT32 and Dft64.error_bound(task) < 0.5

    @staticmethod
    def cost(task: Task) -> float:
        """Four times the products of :class:`Direct32`: float64, and smaller matrices."""
        outputs, inputs = task.shape[:2]
        return 0.03 * 4 * (2 * (inputs + outputs) * sum(task.size) + 4 * inputs * outputs)


def _waves(length: int) -> tuple[Tensor, Tensor]:
    """Return cos and sin of ``2 pi j k / length``. The product is reduced first, so that whole turns are exact."""
    angles = [[j * k % length * (2 * math.pi / length) for k in range(length)] for j in range(length)]
    cos, sin = ([[wave(angle) for angle in row] for row in angles] for wave in (math.cos, math.sin))
    return torch.tensor(cos, dtype=torch.float64), torch.tensor(sin, dtype=torch.float64)
