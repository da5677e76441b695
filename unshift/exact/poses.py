"""The pose network in integers: the reference, and the same sums in strips.

The steps are those of :mod:`unshift.exact.integers`, with strided correlation without padding. The last layer's sums
are added over all positions, multiplied by 256 and divided by the number of positions, rounding down. The score depends
on its own copy of the image only, and a move of the image permutes the copies: no property of the network is needed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from unshift.exact.inference import Layer, blocks, prepared, without_nan
from unshift.exact.integers import IntegerFilter
from unshift.exact.quantised import IntegerNetwork
from unshift.exact.runtime import in_graphs, is_traced
from unshift.exact.scores import Scores
from unshift.network import check_input
from unshift.pose_network import PoseEstimator, extend, map_shapes

FRACTION = 256
"""Steps of a score per integer step of the last layer. With sums below 2^24, 2^31 positions fit in an int64."""

BLOCK = 2**20
"""Number of values of the widest map to compute at a time, so that the allocator can reuse temporaries."""


def strided_correlate(values: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Correlate int64 images with int64 filters ``(out, in, *kernel)`` at every ``stride``-th position, unpadded.

    >>> strided_correlate(torch.tensor([[[1, 2, 3, 4]]]), torch.tensor([[[10, 1]]]), 2).tolist()
    [[[12, 34]]]
    """
    kernel = weight.shape[2:]
    size = [(n - k) // stride + 1 for n, k in zip(values.shape[2:], kernel, strict=True)]
    sums = torch.zeros(len(values), len(weight), *size, dtype=torch.int64, device=values.device)
    taps = itertools.product(*[range(k) for k in kernel])
    for tap, row in zip(taps, weight.flatten(2).unbind(2), strict=True):
        seen = values
        for axis, (first, n) in enumerate(zip(tap, size, strict=True), 2):
            seen = seen.narrow(axis, first, stride * (n - 1) + 1)
            seen = seen[(slice(None),) * axis + (slice(None, None, stride),)]
        sums += torch.einsum("bi...,oi->bo...", seen, row)
    return sums


class StridedIntegerFilter(IntegerFilter):
    """One layer: a strided filter of integers."""

    def __init__(self, shape: Sequence[int], largest: int, activation: str, last: bool, stride: int) -> None:
        super().__init__(shape, largest, activation, last)
        self.stride = stride

    def correlate(self, values: Tensor) -> Tensor:
        """Return the sums of products, without the bias."""
        return strided_correlate(values, self.weight, self.stride)


class IntegerPoseEstimator(IntegerNetwork):
    """A :class:`PoseEstimator` in integers, from its description: images in, one int64 score each out."""

    whole = True
    fraction = FRACTION

    def __init__(self, network: dict[str, Any], *, bits: int = 10) -> None:
        floating = self.on_meta(PoseEstimator, network, bits)
        super().__init__(floating, bits, {"network": network, "bits": bits})
        self.least: int = floating.least
        layers = [(layer.weight.shape, layer.activation, layer.stride) for layer in floating.local]
        self.local = nn.ModuleList(
            StridedIntegerFilter(shape, self.largest, activation, k == len(layers) - 1, stride)
            for k, (shape, activation, stride) in enumerate(layers)
        )

    def inputs(self, images: Tensor) -> Tensor:
        """See :class:`IntegerNetwork`. Images that are too small are extended by zeros."""
        return extend(self.pixels(images), self.least if self.size is None else 0)

    @torch.no_grad()
    def reference(self, images: Tensor) -> Tensor:
        """Return the scores ``(batch,)`` by the definition, in int64 and slowly."""
        check_input(images, self.in_channels, self.axes, self.size)
        values = self.inputs(images).to(torch.int64)
        for layer in self.local:
            values = layer(values)
        return values.flatten(1).sum(1) * FRACTION // values[0, 0].numel()

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Return the scores ``(batch,)``, int64: those of :meth:`reference`."""
        check_input(images, self.in_channels, self.axes, self.size)
        with torch.autocast(images.device.type, enabled=False):  # it would round the integers
            plan: StripPlan = prepared(self, StripPlan, tuple(images.shape[2:]), images.device)
            parts = [plan.score(self, block) for block in blocks(images, plan.images)]
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    @torch.no_grad()
    def scores(self, canvases: Iterable[Tensor]) -> Scores:
        """See :class:`Scorer`. Canvases may differ in size. Large ones are scored before the next one is made."""
        parts: list[Tensor] = []
        for group in _batches(canvases):
            batch = group[0] if len(group) == 1 else torch.cat(group)
            parts += self(batch).unflatten(0, (len(group), -1)).unbind(0)
        return Scores([torch.stack(parts, 1)], (len(parts),))


@in_graphs(lambda canvases: [list(canvases)])
def _batches(canvases: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Yield consecutive canvases of one shape together, as long as they are small."""
    batch: list[Tensor] = []
    for canvas in canvases:
        if batch and (canvas.shape != batch[0].shape or (len(batch) + 1) * canvas.numel() > BLOCK):
            yield batch
            batch = []
        batch.append(canvas)
    if batch:
        yield batch


class StripPlan:
    """The layers of a pose network, prepared once for images of one size, which are processed in strips."""

    def __init__(self, net: IntegerPoseEstimator, size: tuple[int, ...], device: torch.device) -> None:
        local: list[Any] = list(net.local)
        least = net.least if net.size is None else 0
        size = tuple(max(n, least) for n in size)
        self.layers = [Layer(layer, size, set()) for layer in local]
        # A network with a fixed size sees the whole map at once, so its map is one strip.
        self.step = math.prod(layer.stride for layer in local)
        maps = [[net.in_channels, *size], *map_shapes(local, size)]
        values, counts = max(map(math.prod, maps)), maps[-1][1:]
        self.height, self.positions = counts[0], math.prod(counts)
        self.images = max(1, BLOCK // values)  # images per block
        self.rows = self.height if is_traced() or values <= BLOCK else max(1, self.height * BLOCK // values)
        """Rows of the last map per strip."""
        self.reach = net.least if net.size is None else size[0]  # rows of the image that one row of the last map sees

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return sum(layer.kernel.nbytes for layer in self.layers)

    def score(self, net: IntegerPoseEstimator, images: Tensor) -> Tensor:
        """Return the scores of one block of images."""
        sums = [self._sum(net, strip) for strip in self._strips(images)]
        total = sums[0] if len(sums) == 1 else torch.stack(sums).sum(0)
        return torch.div(total * FRACTION, self.positions, rounding_mode="floor")

    def _strips(self, images: Tensor) -> Iterator[Tensor]:
        if self.rows == self.height:
            yield images
            return
        for start in range(0, self.height, self.rows):
            count = min(self.rows, self.height - start)
            yield images.narrow(2, start * self.step, (count - 1) * self.step + self.reach)

    def _sum(self, net: IntegerPoseEstimator, strip: Tensor) -> Tensor:
        values = without_nan(net.inputs(strip))
        for layer in self.layers:
            values = layer(values)
        return values.flatten(1).sum(1)
