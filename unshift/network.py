"""The network: circular filters, and ShiftEstimator, which turns images into scores (float, trainable).

**The layer.** The paper's Theorem 3.4: ``W x + c`` is equivariant if and only if row ``M`` of ``W`` is row ``0``
translated by ``M`` and ``c`` is constant. So a layer is circular *cross-correlation* with row 0, plus one number per
output channel. It has no stride, no padding mode and no dilation, so every layer that can be written is equivariant.

**The estimator.** The paper's canonical architecture (eq. "network") has L such layers; the last has one channel and no
activation, so that its output is a map of logits over all positions. Training makes position 0 score highest on
unshifted images; equivariance extends this to all shifts.

**Line filters.** A circular filter that is constant along all axes but one is a mean over those axes. With
``line_channels`` the network averages its local features along all other axes, for each axis in turn, and continues
with 1-D filters. It scores ``f(row) + g(column)``, sees a whole row or column at once, and is equivariant as before.

**Fixed axes.** In a ring (a panorama, for example) one axis moves and the others come as channels. With ``across`` the
local filters see them as axes again; the mean over them leaves scores along the ring.

Convention
----------
``weight`` is ``(out, in, *kernel)``. Tap ``j`` of ``taps`` looks ``j - taps // 2`` pixels ahead::

    y[k, M] = bias[k] + sum_{r, j} weight[k, r, j] * x[r, M + j - taps // 2]

A kernel of 3 taps ``[a, b, c]`` on ``[1, 0, 0, 0]`` gives ``[b, a, 0, c]``. A *sparse* filter has a kernel smaller than
the image; a *dense* one has the image's size. They are the same layer, and through the FFT they cost the same.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unshift.shifts import check_images

__all__ = ["PRESETS", "CircularFilter", "ShiftEstimator", "add_lines", "as_float", "check_input",
           "circular_correlation", "full_row"]  # fmt: skip

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": torch.relu, "abs": torch.abs, "none": lambda x: x}

PRESETS = {
    "paper": "6 layers of one channel, kernel 9, no bias: the paper's network, 486 parameters on MNIST",
    "dense": "2 layers, 8 channels, filters of the image's full size: the paper's own definition",
    "lines": "local filters, a mean along each axis, 1-D filters of full length: centred objects",
    "seam": "local filters, a mean along each axis, short 1-D filters: finds the seam of a shifted photo",
    "sequence": "3 layers, 16 channels, kernel 33: finds a motif in sequences of any length",
    "scene": "2 layers, 24 channels, kernel 25: finds an object in scenes of any size",
}


def as_float(images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Convert pixels to floats: uint8 is divided by 255, all other types keep their values."""
    return images.to(dtype).div_(255) if images.dtype == torch.uint8 else images.to(dtype)


def check_input(images: Tensor, in_channels: int, axes: int, size: Sequence[int] | None) -> None:
    """Raise a ``ValueError`` unless ``images`` has these channels, this many spatial axes and, if given, this size."""
    spatial = check_images(images)
    if len(spatial) != axes:
        raise ValueError(f"this estimator wants {axes} spatial axes, got {len(spatial)}: shape {tuple(images.shape)}")
    if images.shape[1] != in_channels:
        raise ValueError(
            f"this estimator wants {in_channels} channel(s), got {images.shape[1]}: shape {tuple(images.shape)}"
        )
    if size is not None and spatial != tuple(size):
        raise ValueError(
            f"this estimator was made for images of size {tuple(size)}, got {spatial}; "
            "resize them, or fit one for your size"
        )


COLUMN_VALUES = 2**21  # values of an im2col matrix at a time: 8 MB of float32, which the allocator can reuse

LONG = 1024  # least length of a sequence whose gradients `_LongCorrelation` computes


class _LongCorrelation(torch.autograd.Function):
    """``conv1d`` of long sequences, with gradients that are correlations too: a quarter of the time of PyTorch's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return F.conv1d(x, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor]:
        (x, weight), to_x = ctx.saved_tensors, None
        if ctx.needs_input_grad[0]:
            to_x = F.conv1d(F.pad(grad, [weight.shape[2] - 1] * 2), weight.flip(2).transpose(0, 1))
        return to_x, F.conv1d(x.transpose(0, 1), grad.transpose(0, 1)).transpose(0, 1)


# --- the layer --------------------------------------------------------------------------------------------------


def full_row(weight: Tensor, size: Sequence[int]) -> Tensor:
    """Embed kernels ``(out, in, *kernel)`` in row 0 of their circular filters: ``(out, in, *size)``.

    >>> full_row(torch.tensor([[[1, 2, 3]]]), (5,))
    tensor([[[2, 3, 0, 0, 1]]])
    """
    kernel = weight.shape[2:]
    margin = [side for k, n in zip(reversed(kernel), reversed(size), strict=True) for side in (0, n - k)]
    return F.pad(weight, margin).roll([-(k // 2) for k in kernel], tuple(range(2, weight.ndim)))


def circular_correlation(images: Tensor, weight: Tensor, method: Literal["fft", "direct"] | None = None) -> Tensor:
    """Correlate images with filters ``(out, in, *kernel)``, circularly; the kernel is no larger than the image.

    Half precision is computed in float32. The method is ``"fft"``, ``"direct"``, or None for the faster of the two.
    They agree to float tolerance.
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
        raise ValueError(f'method must be "fft", "direct" or None, got {method!r}')
    if images.shape[0] == 0:
        return images.new_zeros(0, weight.shape[0], *size)
    wide = torch.promote_types(images.dtype, torch.float32)
    x, w = images.to(wide), weight.to(wide)
    if (method or _faster_method(weight.shape, size)) == "direct":
        margin = [side for k in reversed(kernel) for side in (k // 2, k - 1 - k // 2)]
        conv = (F.conv1d, F.conv2d, F.conv3d)[len(size) - 1]
        if len(size) == 1 and size[0] >= LONG and x.device.type == "cpu" and torch.is_grad_enabled():
            conv = _LongCorrelation.apply
        x = F.pad(x, margin, mode="circular")
        # PyTorch may copy the input once per tap (im2col). In strips, these copies are small enough to be reused.
        strip = max(kernel[0], COLUMN_VALUES // (math.prod(weight.shape[1:]) * math.prod(size[1:])))
        sums = [conv(x[:, :, at : at + strip + kernel[0] - 1], w) for at in range(0, size[0], strip)]
        return (sums[0] if len(sums) == 1 else torch.cat(sums, 2)).to(images.dtype)
    axes = tuple(range(2, images.ndim))
    spectrum, filters = torch.fft.rfftn(x, dim=axes), torch.fft.rfftn(full_row(w, size), dim=axes).conj()
    product = torch.einsum("bi...,oi...->bo...", spectrum, filters)
    correlated: Tensor = torch.fft.irfftn(product, s=size, dim=axes)
    return correlated.to(images.dtype)


def _faster_method(weight_shape: Sequence[int], size: Sequence[int]) -> str:
    """Return the method with the lower estimated cost on a CPU.

    Direct work grows with the kernel, FFT work does not. The constants are microseconds per 256 pixels, forward and
    backward, measured by ``benchmarks/run.py layers``.
    """
    outputs, inputs, *kernel = weight_shape
    direct = 0.02 * math.prod(kernel) * max(inputs, 8) * max(outputs, 8)
    fft = 0.12 * math.log2(max(2, math.prod(size))) * (inputs + outputs) + inputs * outputs
    return "fft" if fft < direct else "direct"


class CircularFilter(nn.Module):
    """One layer of the paper's canonical architecture (eq. "layer"): ``act(W x + c)``.

    Weights start Kaiming-normal. With the default of ``nn.Conv2d`` the score map of a deep one-channel network starts
    constant for about half of all seeds. A ``symmetric`` kernel is the average of its four quarter turns.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sequence[int],
        bias: bool = True,
        activation: str = "none",
        symmetric: bool = False,
    ) -> None:
        super().__init__()
        kernel = tuple(kernel_size)
        if not 1 <= len(kernel) <= 3 or min(kernel) < 1:
            raise ValueError(f"kernel_size must be 1, 2 or 3 positive sizes, one per spatial axis, got {kernel_size}")
        if in_channels < 1 or out_channels < 1:
            raise ValueError(f"channels must be positive, got {in_channels} in and {out_channels} out")
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels, *kernel))
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None
        self.activation, self.symmetric = activation, symmetric
        nn.init.kaiming_normal_(self.weight, nonlinearity="relu")

    def kernel(self) -> Tensor:
        """Return the weight that the layer applies."""
        if not self.symmetric:
            return self.weight
        turned = [torch.rot90(self.weight, quarter, (2, 3)) for quarter in range(4)]
        # Addition commutes, so in this order all four turns of the result are equal to the last bit.
        return ((turned[0] + turned[2]) + (turned[1] + turned[3])) / 4

    def forward(self, images: Tensor) -> Tensor:
        """Filter ``(batch, in, *spatial)`` to ``(batch, out, *spatial)``. The spatial size never changes."""
        y = circular_correlation(images, self.kernel())
        if self.bias is not None:
            y = y + self.bias.view(-1, *[1] * (y.ndim - 2)).to(y.dtype)
        return ACTIVATIONS[self.activation](y)

    def extra_repr(self) -> str:
        """Show the shape and the activation, as ``nn.Conv2d`` does."""
        outputs, inputs, *kernel = self.weight.shape
        bias = self.bias is not None
        return f"{inputs}, {outputs}, kernel_size={tuple(kernel)}, bias={bias}, activation={self.activation!r}"


# --- the estimator ----------------------------------------------------------------------------------------------


def add_lines(terms: Sequence[Tensor]) -> Tensor:
    """Add one term per axis, each ``(batch, n)``, to the scores of all positions, ``(batch, *spatial)``.

    >>> add_lines([torch.tensor([[0, 10]]), torch.tensor([[1, 2, 3]])]).tolist()
    [[[1, 2, 3], [11, 12, 13]]]
    """
    axes = len(terms)
    shaped = [t.reshape(-1, *[t.shape[-1] if a == axis else 1 for a in range(axes)]) for axis, t in enumerate(terms)]
    return functools.reduce(torch.add, shaped)


def _mean_along(features: Tensor, axis: int) -> Tensor:
    """Average ``(batch, channel, *spatial)`` over every spatial axis but ``axis``."""
    others = [2 + other for other in range(features.ndim - 2) if other != axis]
    return features.mean(others) if others else features


class ShiftEstimator(nn.Module):
    """Map images ``(batch, channel, *spatial)`` to scores ``(batch, *spatial)``, whose argmax is the shift.

    Args:
        in_channels: Channels of the images.
        channels: Output channels of the local layers.
        kernel_size: Kernel of the local layers, one entry per axis they see.
        bias: Whether layers have a bias.
        activation: ``"relu"``, ``"abs"`` or ``"none"``. The last layer has none.
        line_channels: Output channels of the 1-D layers along each axis. Empty for no such layers.
        line_kernel_size: Kernel of the 1-D layers, one entry per spatial axis.
        size: The one image size that the network fits (dense filters), or None for any.
        across: Sizes of axes that do not move and come as channels, after the channels proper. The local filters see
            them as their first axes. Only for networks with line layers.
        symmetric: Make every filter equal to its quarter turns, so that scores turn with square images.
        corners: For a symmetric network, score the corners between pixels: position ``M`` is then the corner before
            pixel ``M`` along each axis. This makes the first kernel even; all others of a symmetric network are odd.

    Raises:
        ValueError: If the last layer does not have one channel, or the sizes do not fit.
    """

    whole = False
    """Scores positions, not the image as a whole."""

    def __init__(
        self,
        in_channels: int,
        *,
        channels: Sequence[int] = (1, 1, 1, 1, 1, 1),
        kernel_size: Sequence[int] = (9, 9),
        bias: bool = False,
        activation: str = "relu",
        line_channels: Sequence[int] = (),
        line_kernel_size: Sequence[int] = (),
        size: Sequence[int] | None = None,
        across: Sequence[int] = (),
        symmetric: bool = False,
        corners: bool = False,
    ) -> None:
        super().__init__()
        widths = [in_channels, *channels, *line_channels]
        axes = len(kernel_size) - len(across)
        if not channels or widths[-1] != 1:
            raise ValueError(f"the last layer must have one channel, its scores; got channels {widths[1:]}")
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
        if line_channels and len(line_kernel_size) != axes:
            raise ValueError(
                f"line_kernel_size needs one entry per spatial axis ({axes}), got {tuple(line_kernel_size)}"
            )
        if across and (axes < 1 or not line_channels or in_channels % math.prod(across)):
            raise ValueError(
                f"across={tuple(across)} needs line layers along another axis and a multiple of {math.prod(across)} "
                f"channels, got kernel {tuple(kernel_size)}, {len(line_channels)} line layers, {in_channels} channels"
            )
        sizes = None if size is None else (*across, *size)
        if sizes and (len(sizes) != len(kernel_size) or any(k > n for k, n in zip(kernel_size, sizes, strict=True))):
            raise ValueError(f"kernel {tuple(kernel_size)} does not fit images of size {sizes}")
        if symmetric and (axes != 2 or len(set(kernel_size)) > 1 or line_channels):
            raise ValueError(f"symmetric filters are square and have no lines, got kernel {tuple(kernel_size)}")
        self.in_channels = in_channels
        self.axes, self.across = axes, tuple(across)
        self.size = tuple(size) if size is not None else None
        self._description: dict[str, Any] = {
            "in_channels": in_channels,
            "channels": list(channels),
            "kernel_size": list(kernel_size),
            "bias": bias,
            "activation": activation,
            "line_channels": list(line_channels),
            "line_kernel_size": list(line_kernel_size),
            "size": list(size) if size is not None else None,
        }
        if symmetric:  # only if set: files of 0.1 do not have these keys
            self._description |= {"symmetric": True, "corners": corners}
        if across:
            self._description["across"] = list(across)
        widths[0] //= math.prod(across)

        def stack(widths: Sequence[int], kernel: Sequence[int], last: bool) -> nn.ModuleList:
            layers = []
            for k, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
                taps = [_with_parity(n, even=corners and k == 0) for n in kernel] if symmetric else kernel
                act = "none" if last and k == len(widths) - 2 else activation
                layers.append(CircularFilter(inputs, outputs, taps, bias, act, symmetric))
            return nn.ModuleList(layers)

        depth = len(channels) + 1
        self.local = stack(widths[:depth], kernel_size, last=not line_channels)
        self.lines = nn.ModuleList(
            stack(widths[depth - 1 :], [k], last=True) for k in (line_kernel_size if line_channels else ())
        )

    @classmethod
    def preset(cls, name: str, in_channels: int, size: Sequence[int], across: Sequence[int] = ()) -> ShiftEstimator:
        """Build one of :data:`PRESETS` for images of one size, with random weights. Kernels are clipped to the size.

        ``across`` are the sizes of axes that do not move and come as channels. ``"seam"`` sees them as axes of its
        local filters, the other presets as ordinary channels.
        """
        if name not in PRESETS:
            raise ValueError(f"no preset {name!r}; there are {', '.join(PRESETS)}")
        if name == "sequence" and len(size) != 1:
            raise ValueError(f"preset sequence is for arrays of one axis, got {len(size)}: size {tuple(size)}")
        whole = list(size)
        clipped = {kernel: [min(kernel, n) for n in size] for kernel in (3, 9, 25, 33)}
        table: dict[str, dict[str, Any]] = {
            "paper": {"kernel_size": clipped[9]},
            "dense": {"channels": (8, 1), "kernel_size": whole, "bias": True, "size": size},
            "lines": {
                **{"channels": (8,), "kernel_size": clipped[3], "bias": True, "size": size},
                **{"line_channels": (16, 1), "line_kernel_size": whole},
            },
            "seam": {  # abs: an edge counts, whichever side is brighter
                **{"channels": (24,), "kernel_size": [*(min(3, n) for n in across), *clipped[3]], "bias": True},
                **{"activation": "abs", "line_channels": (32, 32, 1), "line_kernel_size": clipped[9], "across": across},
            },
            "sequence": {"channels": (16, 16, 1), "kernel_size": clipped[33], "bias": True},
            "scene": {"channels": (24, 1), "kernel_size": clipped[25], "bias": True},
        }
        network = cls(in_channels, **table[name])
        if name == "seam":  # a seam is a contrast: filters that start with zero mean find it in fewer epochs
            for layer in network.modules():
                if isinstance(layer, CircularFilter) and layer.weight[0, 0].numel() > 1:
                    layer.weight.data -= layer.weight.data.mean(tuple(range(2, layer.weight.ndim)), keepdim=True)
        return network

    def describe(self) -> dict[str, Any]:
        """Return the network as plain data: ``ShiftEstimator(**estimator.describe())`` rebuilds it."""
        return copy.deepcopy(self._description)

    def values(self, size: Sequence[int]) -> int:
        """Return the number of values of the largest map for one image of ``size``."""
        local: Any = self.local
        channels: int = max(layer.weight.shape[0] for layer in local)
        return math.prod((*self.across, *size)) * channels

    def forward(self, images: Tensor) -> Tensor:
        """Score every position. The training target is always position 0 of an unshifted image."""
        check_input(images, self.in_channels, self.axes, self.size)
        features = as_float(images, next(self.parameters()).dtype)
        if self.across:
            features = features.unflatten(1, (-1, *self.across))
        for layer in self.local:
            features = layer(features)
        if not len(self.lines):
            return features.squeeze(1)
        terms = []
        lines: Any = self.lines
        for axis, line in enumerate(lines):
            values = _mean_along(features, len(self.across) + axis)
            for layer in line:
                values = layer(values)
            terms.append(values)
        return add_lines(terms)


def _with_parity(taps: int, even: bool) -> int:
    """Return ``taps``, or one less to make it even or odd; a single tap becomes two where it must be even."""
    wrong = taps % 2 == (1 if even else 0)
    return max(taps - wrong, 2 if even else 1)
