"""ShiftEstimator: layers of circular filters that turn images into scores (float, trainable).

The paper's canonical architecture (eq. "network"): L layers, the last with one channel and no
activation, so that the scores are logits over all positions. Training asks one thing of it: on an
unshifted image, position 0 scores highest. Equivariance does the rest.

**Line filters.** A circular filter that is constant along all axes but one is a mean over those
axes. With ``line_channels`` the net averages its local features along all other axes, for each axis
in turn, and goes on with 1-D filters: it scores ``f(row) + g(column)``, sees a whole row or column
at once, and is equivariant as before. A circular shift of a photo shows there, as a seam.

**Axes across.** Of a ring (a panorama, say) one axis moves, and the others come as channels. With
``across`` the local filters see them as axes again; the mean over them leaves scores of the ring.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from unshift.circular import CircularFilter, circular_correlation
from unshift.shifts import check_images

__all__ = ["PRESETS", "ShiftEstimator", "add_lines", "as_float", "check_input"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": torch.relu, "abs": torch.abs, "none": lambda x: x}

PRESETS = {
    "paper": "6 layers of one channel, kernel 9, no bias: the paper's net, 486 parameters on MNIST",
    "dense": "2 layers, 8 channels, filters of the image's full size: the paper's own definition",
    "lines": "local filters, then a mean along each axis, then 1-D filters of its full length: centred objects",
    "seam": "local filters, then a mean along each axis, then 1-D filters: finds the seam of a photo",
    "sequence": "3 layers, 16 channels, kernel 33: finds a motif in sequences of any length",
    "scene": "2 layers, 24 channels, kernel 25: finds an object in scenes of any size",
}


def as_float(images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Convert pixels pointwise: uint8 goes to [0, 1] by dividing by 255, all else keeps its values."""
    return images.to(dtype) / 255 if images.dtype == torch.uint8 else images.to(dtype)


def check_input(images: Tensor, in_channels: int, axes: int, size: Sequence[int] | None) -> None:
    """Raise a ``ValueError`` unless ``images`` has these channels, axes and (if any) size."""
    found = check_images(images)
    if len(found) != axes:
        raise ValueError(f"this estimator wants {axes} spatial axes, got {len(found)}: shape {tuple(images.shape)}")
    if images.shape[1] != in_channels:
        raise ValueError(
            f"this estimator wants {in_channels} channel(s), got {images.shape[1]}: shape {tuple(images.shape)}"
        )
    if size is not None and found != tuple(size):
        raise ValueError(
            f"this estimator was made for images of size {tuple(size)}, got {found}; "
            "resize them, or fit one for your size"
        )


def add_lines(along: Sequence[Tensor]) -> Tensor:
    """Add the scores along each axis, ``(batch, 1, n)``, up to those of all positions, ``(batch, *spatial)``."""
    shaped = [
        scores.reshape(-1, *[scores.shape[-1] if a == axis else 1 for a in range(len(along))])
        for axis, scores in enumerate(along)
    ]
    return functools.reduce(torch.add, shaped)


class Layer(nn.Module):
    """A circular filter and its activation: the paper's ``F_l``. ``symmetric``: it is one with its quarter turns."""

    def __init__(self, filter: CircularFilter, activation: str, symmetric: bool = False) -> None:
        super().__init__()
        self.filter = filter
        self.activation = activation
        self.symmetric = symmetric

    def effective(self) -> tuple[Tensor, Tensor | None]:
        """Return the weight and the bias that the layer really uses."""
        weight: Tensor = self.filter.weight
        if self.symmetric:
            turned = [torch.rot90(weight, quarter, (2, 3)) for quarter in range(4)]
            # In this order the sum is the same to the last bit for all four: addition commutes, if nothing else.
            weight = ((turned[0] + turned[2]) + (turned[1] + turned[3])) / 4
        return weight, self.filter.bias

    def forward(self, images: Tensor) -> Tensor:
        """Return ``act(W x + c)``."""
        weight, bias = self.effective()
        sums = circular_correlation(images, weight)
        if bias is not None:
            sums = sums + bias.view(-1, *[1] * (sums.ndim - 2)).to(sums.dtype)
        return ACTIVATIONS[self.activation](sums)


class ShiftEstimator(nn.Module):
    """Images ``(batch, channel, *spatial)`` to scores ``(batch, *spatial)``; their argmax is the shift.

    The last layer has one channel and no activation.

    Args:
        in_channels: Channels of the images.
        channels: Output channels of the local layers.
        kernel_size: Of the local layers, one entry per axis they see.
        bias: Whether layers have a bias.
        activation: ``"relu"``, ``"abs"`` or ``"none"``.
        line_channels: Output channels of the 1-D layers along each axis. Empty for no such layers.
        line_kernel_size: Of the 1-D layers, one entry per spatial axis.
        size: The one image size that the network fits (dense filters), or None for any.
        across: Extents of axes that do not move and come as channels, after the channels proper. The local filters
            see them as their first axes. Only for nets with lines.
        symmetric: Make every filter equal to its quarter turns, so that scores turn with square images.
        corners: For a symmetric net, score the corners between pixels: position ``M`` is then the corner before pixel
            ``M`` along each axis. For that the first kernel is made even; all others of a symmetric net are odd.

    Raises:
        ValueError: If the last layer does not have one channel, or the sizes do not fit.
    """

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
                f"axes across {tuple(across)} need lines along another axis and a multiple of {math.prod(across)} "
                f"channels, got kernel {tuple(kernel_size)}, {len(line_channels)} line layers, {in_channels} channels"
            )
        if size is not None and (len(size) != axes or any(k > n for k, n in zip(kernel_size, size, strict=True))):
            raise ValueError(f"kernel {tuple(kernel_size)} does not fit images of size {tuple(size)}")
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
        if symmetric:  # written where it matters only: files of 0.1 know neither word
            self._description |= {"symmetric": True, "corners": corners}
        if across:
            self._description["across"] = list(across)
        widths[0] //= math.prod(across)

        depth = len(channels) + 1
        stack = functools.partial(_stack, bias=bias, activation=activation, symmetric=symmetric, corners=corners)
        self.local = stack(widths[:depth], kernel_size, scores=not line_channels)
        self.lines = nn.ModuleList(
            stack(widths[depth - 1 :], [k], scores=True) for k in (line_kernel_size if line_channels else ())
        )

    @classmethod
    def preset(cls, name: str, in_channels: int, size: Sequence[int], across: Sequence[int] = ()) -> ShiftEstimator:
        """Build a preset for images of one size; kernels are clipped to it.

        Args:
            name: One of :data:`PRESETS`; ``"sequence"`` is for one axis.
            in_channels: Channels of the images.
            size: Their spatial size.
            across: Extents of axes that do not move and come as channels. To ``"seam"`` they are axes of its local
                filters, to the others channels like any.

        Returns:
            The network, with random weights.

        Raises:
            ValueError: If there is no such preset.
        """

        def clipped(kernel: int) -> list[int]:
            return [min(kernel, n) for n in size]

        if name == "paper":
            return cls(in_channels, kernel_size=clipped(9))
        if name == "dense":
            return cls(in_channels, channels=(8, 1), kernel_size=list(size), bias=True, size=size)
        if name == "lines":
            return cls(
                in_channels,
                channels=(8,),
                kernel_size=clipped(3),
                bias=True,
                line_channels=(16, 1),
                line_kernel_size=list(size),
                size=size,
            )
        if name == "seam":
            seam = cls(
                in_channels,
                channels=(24,),
                kernel_size=[*(min(3, n) for n in across), *clipped(3)],
                bias=True,
                activation="abs",  # an edge is one whichever side is brighter
                line_channels=(32, 32, 1),
                line_kernel_size=clipped(9),
                across=across,
            )
            # A seam is a contrast: filters that start blind to brightness find it in fewer epochs.
            for layer in seam.modules():
                if isinstance(layer, CircularFilter) and layer.weight[0, 0].numel() > 1:
                    layer.weight.data -= layer.weight.data.mean(tuple(range(2, layer.weight.ndim)), keepdim=True)
            return seam
        if name == "sequence":
            if len(size) != 1:
                raise ValueError(f"preset sequence is for arrays of one axis, got {len(size)}: size {tuple(size)}")
            return cls(in_channels, channels=(16, 16, 1), kernel_size=clipped(33), bias=True)
        if name == "scene":
            return cls(in_channels, channels=(24, 1), kernel_size=clipped(25), bias=True)
        raise ValueError(f"no preset {name!r}; there are {', '.join(PRESETS)}")

    def describe(self) -> dict[str, Any]:
        """Return the network as plain data: ``ShiftEstimator(**estimator.describe())`` rebuilds it.

        The one description that training, exact inference and the weights file share.
        """
        return copy.deepcopy(self._description)

    def forward(self, images: Tensor) -> Tensor:
        """Score every position; the training target is always position 0 of an unshifted image."""
        check_input(images, self.in_channels, self.axes, self.size)
        weight = next(self.parameters())
        features = as_float(images, weight.dtype)
        if self.across:
            features = features.unflatten(1, (-1, *self.across))
        for layer in self.local:
            features = layer(features)
        if not len(self.lines):
            return features.squeeze(1)
        stacks: Any = self.lines
        along = [mean_along(features, len(self.across) + axis) for axis in range(self.axes)]
        return add_lines(
            [functools.reduce(lambda x, layer: layer(x), stack, along[a]) for a, stack in enumerate(stacks)]
        )


def _stack(
    widths: Sequence[int],
    kernel: Sequence[int],
    scores: bool,
    bias: bool,
    activation: str,
    symmetric: bool,
    corners: bool,
) -> nn.ModuleList:
    """Build the layers between ``widths``; ``scores``: the last one has no activation."""
    last = len(widths) - 2 if scores else None
    layers = []
    for k, (i, o) in enumerate(itertools.pairwise(widths)):
        taps = [_parity(n, even=corners and k == 0) for n in kernel] if symmetric else kernel
        layers.append(Layer(CircularFilter(i, o, taps, bias), "none" if k == last else activation, symmetric))
    return nn.ModuleList(layers)


def _parity(taps: int, even: bool) -> int:
    """Return ``taps``, or one less to make it even or odd; one tap becomes two where it must be even."""
    return max(taps - (taps % 2 == (1 if even else 0)), 2 if even else 1)


def mean_along(features: Tensor, axis: int) -> Tensor:
    """Average ``(batch, channel, *spatial)`` over every spatial axis but ``axis``."""
    others = [2 + other for other in range(features.ndim - 2) if other != axis]
    return features.mean(others) if others else features
