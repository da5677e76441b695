"""PoseEstimator: a network that maps an image to one number, how upright it looks (float, trainable).

If the moves are a few poses without shifts, each copy of the image, turned back by one of the poses, gets its own
score, and the highest wins. A move of the image only permutes the copies, so the network need not be equivariant. To be
exact, it must be computed in integers (:mod:`unshift.exact.poses`).

The layers are strided convolutions without padding. Kernels and strides are the same along all axes, so an image and
its quarter turn have equally many positions. There are two kinds of heads:

- *Local evidence* (``size=None``): the score is the mean over all positions, of images of any size; smaller ones than
  the network's field of view are extended by zeros.
- *Whole image* (``size=(h, w)``): one more layer sees the whole map at once. For centred objects in images of one size.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unshift.network import ACTIVATIONS, as_float, check_input

__all__ = ["POSE_PRESETS", "PoseEstimator", "StridedFilter", "extend", "map_shapes", "strided_correlation"]

POSE_PRESETS = {
    "look": "4 strided layers, the last of the image's size: which way up is a centred object",
    "evidence": "4 strided layers, averaged over all positions: which way up is an image of any size",
}


def strided_correlation(images: Tensor, weight: Tensor, bias: Tensor | None, stride: int) -> Tensor:
    """Correlate images with filters ``(out, in, *kernel)`` at every ``stride``-th position, without padding."""
    return (F.conv1d, F.conv2d, F.conv3d)[images.ndim - 3](images, weight, bias, stride)


def extend(images: Tensor, least: int) -> Tensor:
    """Extend axes that are shorter than ``least`` by zeros at their end."""
    margin = [side for n in reversed(images.shape[2:]) for side in (0, max(0, least - n))]
    return F.pad(images, margin) if any(margin) else images


def map_shapes(layers: Any, size: Sequence[int]) -> list[list[int]]:
    """Return the shape of each layer's map, channels first, for an image of ``size``."""
    shapes = []
    for layer in layers:
        outputs, _, *kernel = layer.weight.shape
        size = [(n - k) // layer.stride + 1 for n, k in zip(size, kernel, strict=True)]
        shapes.append([outputs, *size])
    return shapes


class StridedFilter(nn.Module):
    """One layer: ``act(W x + c)`` at every ``stride``-th position, without padding."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Sequence[int], stride: int, activation: str
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels, *kernel_size))
        self.bias = nn.Parameter(torch.zeros(out_channels))
        self.stride, self.activation = stride, activation
        nn.init.kaiming_normal_(self.weight, nonlinearity="relu")

    def kernel(self) -> Tensor:
        """Return the weight that the layer applies."""
        return self.weight

    def forward(self, images: Tensor) -> Tensor:
        """Filter ``(batch, in, *spatial)`` to ``(batch, out, *fewer)``."""
        return ACTIVATIONS[self.activation](strided_correlation(images, self.weight, self.bias, self.stride))


class PoseEstimator(nn.Module):
    """Map images ``(batch, channel, *spatial)`` to one number each, ``(batch,)``: the higher, the more upright.

    Args:
        in_channels: Channels of the images.
        channels: Output channels of the strided layers.
        kernel_size: Width of their kernels along every axis: one for all layers, or one for each.
        stride: Their strides, likewise.
        hidden: Output channels of one more layer before the last: of the whole map where ``size`` is given, else of
            single positions. 0 for none.
        size: The one image size that the network looks at as a whole; None to average over all positions, of images of
            any size.
        axes: Number of spatial axes.
        activation: ``"relu"`` or ``"abs"``. The last layer has none.

    Raises:
        ValueError: If a number is not positive, or the layers do not fit the size.
    """

    whole = True
    """Scores an image as a whole, not its positions."""
    across: tuple[int, ...] = ()

    def __init__(
        self,
        in_channels: int,
        *,
        channels: Sequence[int] = (16, 32, 64),
        kernel_size: int | Sequence[int] = 5,
        stride: int | Sequence[int] = 2,
        hidden: int = 0,
        size: Sequence[int] | None = None,
        axes: int = 2,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        depth = len(channels)
        kernels = [kernel_size] * depth if isinstance(kernel_size, int) else list(kernel_size)
        strides = [stride] * depth if isinstance(stride, int) else list(stride)
        if not depth or len(kernels) != depth or len(strides) != depth:
            raise ValueError(
                f"a PoseEstimator wants one kernel and one stride for each of its {depth} layers (at least 1), got "
                f"kernel_size={kernel_size} and stride={stride}"
            )
        if min(in_channels, *channels, *kernels, *strides) < 1 or hidden < 0:
            raise ValueError(
                f"channels, kernels and strides must be positive, got {in_channels} in, {tuple(channels)}, {kernels}, "
                f"{strides}, hidden={hidden}"
            )
        if activation not in ("relu", "abs"):
            raise ValueError(f'activation must be "relu" or "abs", got {activation!r}')
        if not 1 <= axes <= 3 or (size is not None and len(size) != axes):
            raise ValueError(f"axes must be 1, 2 or 3, and size have one entry for each, got {axes} and size={size}")
        self.in_channels, self.axes = in_channels, axes
        self.size = tuple(size) if size is not None else None
        self.least = 1  # the size of an image that has one position: the field of view
        for kernel, step in zip(reversed(kernels), reversed(strides), strict=True):
            self.least = (self.least - 1) * step + kernel
        seen = list(self.size or [self.least] * axes)
        for kernel, step in zip(kernels, strides, strict=True):
            seen = [(n - kernel) // step + 1 for n in seen]
        if min(seen) < 1:
            raise ValueError(f"images of size {self.size} are smaller than the layers' field of view, {self.least}")
        self._description = {
            "in_channels": in_channels,
            "channels": list(channels),
            "kernel_size": kernels,
            "stride": strides,
            "hidden": hidden,
            "size": list(size) if size is not None else None,
            "axes": axes,
            "activation": activation,
        }
        widths = [in_channels, *channels, *([hidden] if hidden else []), 1]
        shapes = [[k] * axes for k in kernels] + [seen] + ([[1] * axes] if hidden else [])
        steps = [*strides, 1, *([1] if hidden else [])]
        names = [activation] * (len(widths) - 2) + ["none"]
        layers = zip(itertools.pairwise(widths), shapes, steps, names, strict=True)
        self.local = nn.ModuleList(StridedFilter(*pair, shape, step, name) for pair, shape, step, name in layers)

    @classmethod
    def preset(cls, name: str, in_channels: int, size: Sequence[int]) -> PoseEstimator:
        """Build a preset for images of one size (``"look"``), or for images like these of any size (``"evidence"``)."""
        if name not in POSE_PRESETS:
            raise ValueError(f"no preset {name!r} for poses without positions; there are {', '.join(POSE_PRESETS)}")
        kernels: list[int] = []  # as many layers of kernel 5 and stride 2, at most 3, as fit
        left = min(size)
        while len(kernels) < 3 and (left >= 8 or not kernels):
            kernels.append(min(5, left))
            left = (left - kernels[-1]) // 2 + 1
        widths, seen = (16, 32, 64)[: len(kernels)], size if name == "look" else None
        return cls(in_channels, channels=widths, kernel_size=kernels, hidden=64, size=seen, axes=len(size))

    def describe(self) -> dict[str, Any]:
        """Return the network as plain data: ``PoseEstimator(**estimator.describe())`` rebuilds it."""
        return copy.deepcopy(self._description)

    def values(self, size: Sequence[int]) -> int:
        """Return the number of values of the largest map for one image of ``size``."""
        return max(math.prod(shape) for shape in map_shapes(self.local, [max(n, self.least) for n in size]))

    def forward(self, images: Tensor) -> Tensor:
        """Score every image. The training target is the upright copy."""
        check_input(images, self.in_channels, self.axes, self.size)
        features = extend(as_float(images, next(self.parameters()).dtype), self.least)
        for layer in self.local:
            features = layer(features)
        return features.flatten(1).mean(1)
