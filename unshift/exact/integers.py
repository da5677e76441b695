"""The network in integers: the reference implementation, which defines every score.

1. Quantise pixels, each by itself: ``values = clamp(round(scale * pixels), -L, L)``.
2. Correlate circularly: ``sums[k, M] = bias[k] + sum_{r, j} weight[k, r, j] * values[r, M + j - taps // 2]``.
3. Activate, divide, round down and clamp, each by itself: ``values = clamp(act(sums) // divisor[k], -L, L)``.
4. A network of lines sums its local features over all axes but one, divides likewise, and repeats 2 and 3 along that
   axis. The scores of a position are the sum of one term per axis.
5. The last layer has no step 3: its sums are the scores.

Steps 1 and 3 treat every pixel alike: IEEE multiplication, division and rounding do not depend on the position in
memory. Steps 2 and 4 sum integers over positions relative to ``M``, or over whole axes, and a sum of integers does not
depend on its order. So a circular shift of the image shifts every intermediate result, and the scores, by the same
amount, to the last bit. ``bits`` and ``sum_bits`` of :func:`unshift.quantise` keep all sums far below 2^63.

:meth:`IntegerEstimator.reference` implements these steps in int64. :meth:`IntegerEstimator.forward` returns the same
integers, computed faster by :mod:`unshift.exact.inference`; each kernel contains the proof that they are equal.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from unshift.exact import inference
from unshift.exact.quantised import IntegerNetwork
from unshift.exact.scores import Scores
from unshift.network import ACTIVATIONS, ShiftEstimator, add_lines, check_input

LARGEST_SCALE = 2.0**100
"""Largest pixel scale of :func:`unshift.quantise`. At scales up to this one, pixels below 2^-126 become 0, whether or
not ``torch.set_flush_denormal`` replaces them by 0 first."""


def correlate(values: Tensor, weight: Tensor) -> Tensor:
    """Correlate int64 images ``(batch, in, *spatial)`` with int64 filters ``(out, in, *kernel)``, circularly.

    >>> correlate(torch.tensor([[[1, 0, 0, 0]]]), torch.tensor([[[2, 3, 5]]])).tolist()
    [[[3, 2, 0, 5]]]
    """
    kernel, axes = weight.shape[2:], tuple(range(2, values.ndim))
    sums = torch.zeros(len(values), len(weight), *values.shape[2:], dtype=torch.int64, device=values.device)
    taps = itertools.product(*[range(k) for k in kernel])
    for tap, row in zip(taps, weight.flatten(2).unbind(2), strict=True):
        ahead = values.roll([k // 2 - j for j, k in zip(tap, kernel, strict=True)], axes)  # values[M + j - k // 2]
        sums += torch.einsum("bi...,oi->bo...", ahead, row)
    return sums


class IntegerFilter(nn.Module):
    """One layer: a circular filter of integers of ``shape`` ``(out, in, *kernel)``.

    All but the last layer then activate, divide and clamp to ``largest``, the ``L`` above.
    """

    weight: Tensor
    bias: Tensor
    divisor: Tensor | None
    stride: int = 0  # 0: circular, at every position

    def __init__(self, shape: Sequence[int], largest: int, activation: str, last: bool) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(*shape, dtype=torch.int64))
        self.register_buffer("bias", torch.zeros(shape[0], dtype=torch.int64))
        self.register_buffer("divisor", None if last else torch.ones(shape[0], dtype=torch.int64))
        self.largest, self.activation = largest, activation

    @property
    def worst(self) -> float:
        """The largest absolute value that any sum can reach."""
        return float((self.largest * self.weight.double().abs().flatten(1).sum(1) + self.bias.double().abs()).max())

    def correlate(self, values: Tensor) -> Tensor:
        """Return the sums of products, without the bias."""
        return correlate(values, self.weight)

    def forward(self, values: Tensor) -> Tensor:
        """Map int64 ``(batch, in, *spatial)`` to int64 ``(batch, out, *spatial)``, by the definition."""
        per_channel = (-1, *[1] * (values.ndim - 2))
        sums = self.correlate(values) + self.bias.view(per_channel)
        if self.divisor is None:
            return sums
        return (ACTIVATIONS[self.activation](sums) // self.divisor.view(per_channel)).clamp(-self.largest, self.largest)


class IntegerEstimator(IntegerNetwork):
    """A :class:`ShiftEstimator` in integers: images in, int64 scores of all positions out.

    ``network`` is the float estimator's description. ``size`` is that of the images on which line sums were calibrated.
    (A network of dense filters accepts only its own size; all others accept any.)
    """

    def __init__(self, network: dict[str, Any], *, bits: int = 10, size: Sequence[int] | None = None) -> None:
        floating = self.on_meta(ShiftEstimator, network, bits)
        description = {"network": network, "bits": bits, "size": list(size) if size is not None else None}
        super().__init__(floating, bits, description)
        self.calibrated = tuple(size) if size is not None else None

        def stack(layers: Any, scores: bool) -> nn.ModuleList:
            last = len(layers) - 1 if scores else None
            return nn.ModuleList(
                IntegerFilter(layer.weight.shape, self.largest, network["activation"], last=k == last)
                for k, layer in enumerate(layers)
            )

        self.local = stack(floating.local, scores=not len(floating.lines))
        self.lines = nn.ModuleList(stack(line, scores=True) for line in floating.lines)
        self.line_axes = len(self.lines)
        for axis in range(self.line_axes):
            ones = torch.ones(network["channels"][-1], dtype=torch.int64)
            self.register_buffer(f"mean_divisor_{axis}", ones)

    # --- the definition -------------------------------------------------------------------------------------------

    @torch.no_grad()
    def reference(self, images: Tensor) -> Tensor:
        """Return the scores ``(batch, *spatial)`` by the definition, in int64 and slowly."""
        check_input(images, self.in_channels, self.axes, self.size)
        values = self.inputs(images).to(torch.int64)
        for layer in self.local:
            values = layer(values)
        if not self.line_axes:
            return values[:, 0]
        terms = []
        for axis, line in enumerate(self.lines):
            times, divisor = self.line_ratio(axis, tuple(images.shape[2:]))
            others = self.other_axes(axis)
            sums = values.sum(others) if others else values
            term = (sums * times // divisor[:, None]).clamp(-self.largest, self.largest)
            for layer in line:  # type: ignore[attr-defined]
                term = layer(term)
            terms.append(term[:, 0])
        return add_lines(terms)

    def split_channels(self, images: Tensor) -> Tensor:
        """Turn the ``across`` axes, which came as channels, into the first spatial axes of the local layers."""
        return images.unflatten(1, (-1, *self.across)) if self.across else images

    def filters(self) -> list[Any]:
        """See :class:`IntegerNetwork`."""
        lines: Any = self.lines
        return [*self.local, *(layer for line in lines for layer in line)]

    def inputs(self, images: Tensor) -> Tensor:
        """See :class:`IntegerNetwork`."""
        return self.split_channels(self.pixels(images))

    def other_axes(self, axis: int) -> list[int]:
        """Return all axes of the features but the one that belongs to ``axis`` of the scores."""
        first = 2 + len(self.across)
        return [other for other in range(2, first + self.axes) if other != first + axis]

    def line_ratio(self, axis: int, size: tuple[int, ...]) -> tuple[int, Tensor]:
        """Return the factor and the divisor of the line sums of ``axis`` for images of ``size``.

        At the calibrated size, divide by the buffer ``mean_divisor``. Where a line sums ``c`` pixels instead of the
        calibrated ``c0``, its sums are ``c / c0`` times as large, so they are multiplied by ``c0`` and divided by ``c``
        times that divisor.
        """
        divisor, times = self.get_buffer(f"mean_divisor_{axis}"), 1
        count = math.prod(size) // size[axis]
        if self.calibrated is not None and size != self.calibrated:
            wanted = math.prod(self.calibrated) // self.calibrated[axis]
            common = math.gcd(wanted, count)
            times, divisor = wanted // common, divisor * (count // common)
        if self.largest * math.prod(self.across) * count * times >= 2**52:
            raise ValueError(f"images of size {size} are too large for a network calibrated at {self.calibrated}")
        return times, divisor

    # --- the interface of a scorer --------------------------------------------------------------------------------

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores ``(batch, *spatial)``, int64: those of :meth:`reference`."""
        terms = inference.run(self, images)
        return add_lines(terms) if self.line_axes else terms[0]

    @torch.no_grad()
    def scores(self, canvases: Iterable[Tensor]) -> Scores:
        """See :class:`Scorer`. The scores of a network with lines along several axes are separable."""
        canvases = list(canvases)
        if self.line_axes < 2 or len(canvases) > 1:
            return super().scores(canvases)
        return Scores(inference.run(self, canvases[0]), (1, *canvases[0].shape[2:]))
