"""The circular-filter layer: the only affine map that commutes with every shift.

The paper's Theorem 3.4: ``W x + c`` is equivariant if and only if row ``M`` of ``W`` is row ``0``
translated by ``M`` and ``c`` is constant. So a layer is circular *cross-correlation* with row 0,
plus one number per output channel. There is no stride, no padding mode and no dilation to get
wrong: the signature leaves no way to write a layer that is not equivariant.

Convention
----------
``weight`` is ``(out, in, *kernel)``. Tap ``j`` of the kernel looks ``j - k // 2`` pixels ahead::

    y[k, M] = bias[k] + sum_{r, j} weight[k, r, j] * x[r, M + j - k // 2]

A kernel of 3 taps ``[a, b, c]`` on ``[1, 0, 0, 0]`` gives ``[b, a, 0, c]``.
A *sparse* filter has a kernel smaller than the image; a *dense* one has the image's size. They are
the same layer, and through the FFT they cost the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from unshift.shifts import check_images

__all__ = ["CircularFilter", "circular_correlation", "full_row"]

Method = Literal["fft", "direct"]


def full_row(weight: Tensor, size: Sequence[int]) -> Tensor:
    """Embed kernels ``(out, in, *kernel)`` in row 0 of their circular filters: ``(out, in, *size)``.

    >>> full_row(torch.tensor([[[1, 2, 3]]]), (5,))
    tensor([[[2, 3, 0, 0, 1]]])
    """
    kernel = weight.shape[2:]
    room = [amount for k, n in zip(reversed(kernel), reversed(size), strict=True) for amount in (0, n - k)]
    axes = tuple(range(2, weight.ndim))
    return F.pad(weight, room).roll([-(k // 2) for k in kernel], axes)


def circular_correlation(images: Tensor, weight: Tensor, method: Method | None = None) -> Tensor:
    """Correlate images with filters, circularly.

    Args:
        images: ``(batch, in, *spatial)``, of a float type. Half precision is computed in float32.
        weight: ``(out, in, *kernel)``, the kernel no larger than the image.
        method: ``"fft"``, ``"direct"``, or ``None`` for the faster of the two at these sizes. They agree to
            float tolerance.

    Returns:
        ``(batch, out, *spatial)``, of the type of the images.

    Raises:
        ValueError: If the shapes, the type or the method do not fit.
    """
    size = check_images(images)
    kernel = tuple(weight.shape[2:])
    if len(kernel) != len(size):
        raise ValueError(
            f"a filter over {len(kernel)} axes wants images with {len(kernel)} spatial axes, got {len(size)}: "
            f"shape {tuple(images.shape)}"
        )
    if images.shape[1] != weight.shape[1]:
        raise ValueError(f"this filter wants {weight.shape[1]} channels, got {images.shape[1]}")
    if any(k > n for k, n in zip(kernel, size, strict=True)):
        raise ValueError(f"kernel {kernel} is larger than the image {size}")
    if not images.is_floating_point():
        raise ValueError(f"a filter wants floating-point images, got {images.dtype}")
    if method not in (None, "fft", "direct"):
        raise ValueError(f'method must be "fft", "direct" or None for the faster, got {method!r}')
    if images.shape[0] == 0:
        return images.new_zeros(0, weight.shape[0], *size)
    wide = torch.promote_types(images.dtype, torch.float32)
    run = {"fft": _by_fft, "direct": _directly}[method or faster_method(weight.shape, size)]
    return run(images.to(wide), weight.to(wide), size).to(images.dtype)


def faster_method(weight_shape: Sequence[int], size: Sequence[int]) -> Method:
    """Return the method that is faster on a CPU for these shapes, by an estimate of the work a pixel.

    Direct work grows with the kernel, FFT work does not; mixing many channels is what the direct
    kernels are best at. The constants (microseconds per 256 pixels, forward and backward) are
    read off ``benchmarks/run.py layers``, whose table shows both methods side by side.
    """
    outputs, inputs, *kernel = weight_shape
    direct = 0.02 * math.prod(kernel) * max(inputs, 8) * max(outputs, 8)
    fft = 0.12 * math.log2(max(2, math.prod(size))) * (inputs + outputs) + inputs * outputs
    return "fft" if fft < direct else "direct"


def _by_fft(images: Tensor, weight: Tensor, size: Sequence[int]) -> Tensor:
    found: Tensor = _Spectral.apply(images, full_row(weight, size))  # type: ignore[no-untyped-call]
    return found


class _Spectral(torch.autograd.Function):
    """A product of spectra. Autograd's own way back through a real FFT is a complex one, of twice the work."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, row: Tensor) -> Tensor:
        """Return ``irfft(X conj(W))``."""
        axes = tuple(range(2, images.ndim))
        spectrum, filters = torch.fft.rfftn(images, dim=axes), torch.fft.rfftn(row, dim=axes)
        ctx.save_for_backward(spectrum, filters)
        ctx.size = images.shape[2:]
        product = _summed("i", spectrum[:, None], filters.conj()[None])
        found: Tensor = torch.fft.irfftn(product, s=ctx.size, dim=axes)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return ``irfft(G W)`` and, summed over the batch, ``irfft(X conj(G))``."""
        spectrum, filters = ctx.saved_tensors
        axes = tuple(range(2, upstream.ndim))
        given = torch.fft.rfftn(upstream, dim=axes)
        to_images, to_row = ctx.needs_input_grad
        images = _summed("o", given[:, :, None], filters[None]) if to_images else None
        row = _summed("b", given.conj()[:, :, None], spectrum[:, None]) if to_row else None
        both = (None if part is None else torch.fft.irfftn(part, s=ctx.size, dim=axes) for part in (images, row))
        return next(both), next(both)


def _summed(over: str, one: Tensor, other: Tensor) -> Tensor:
    """Multiply ``(batch, out, in, *frequencies)``, any of the three of length 1, and sum over one of them."""
    if one.shape[1] * other.shape[1] == 1 or one.shape[2] * other.shape[2] == 1:
        # A plain product: einsum would first move every frequency in memory.
        product, at = one * other, "boi".index(over)
        return product.squeeze(at) if product.shape[at] == 1 else product.sum(at)
    return torch.einsum(f"boi...,boi...->{'boi'.replace(over, '')}...", one, other)


def _directly(images: Tensor, weight: Tensor, size: Sequence[int]) -> Tensor:
    margin = [side for k in reversed(weight.shape[2:]) for side in (k // 2, k - 1 - k // 2)]
    conv = (F.conv1d, F.conv2d, F.conv3d)[len(size) - 1]
    return conv(F.pad(images, margin, mode="circular"), weight)


class CircularFilter(nn.Module):
    """One layer of the paper's canonical architecture, without its activation (eq. "layer").

    Weights start Kaiming-normal: the default of ``nn.Conv2d`` is too small for a deep net of one
    channel, whose score map then starts constant for about half of all seeds.

    Args:
        in_channels: Channels of the images.
        out_channels: Channels of the result.
        kernel_size: One entry per spatial axis. The size of the image makes a dense filter.
        bias: Whether to add one number per output channel.

    Raises:
        ValueError: If a size is not positive, or there are not 1, 2 or 3 spatial axes.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Sequence[int], bias: bool = True) -> None:
        super().__init__()
        kernel = tuple(kernel_size)
        if not 1 <= len(kernel) <= 3 or min(kernel) < 1:
            raise ValueError(f"kernel_size must be 1, 2 or 3 positive sizes, one per spatial axis, got {kernel_size}")
        if in_channels < 1 or out_channels < 1:
            raise ValueError(f"channels must be positive, got {in_channels} in and {out_channels} out")
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels, *kernel))
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None
        nn.init.kaiming_normal_(self.weight, nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Filter ``(batch, in, *spatial)`` to ``(batch, out, *spatial)``: the same size, always."""
        y = circular_correlation(images, self.weight)
        return y if self.bias is None else y + self.bias.view(-1, *[1] * (y.ndim - 2)).to(y.dtype)

    def extra_repr(self) -> str:
        """Name the shape, as ``nn.Conv2d`` does."""
        outputs, inputs, *kernel = self.weight.shape
        return f"{inputs}, {outputs}, kernel_size={tuple(kernel)}, bias={self.bias is not None}"
