"""IntegerEstimator: the trained network in integers, equivariant to the last bit.

State is integer buffers only, which ``.half()`` leaves alone. What can be computed from them once (casts, spectra,
matrices) is kept beside them until they change.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from unshift.estimator import ShiftEstimator, check_input
from unshift.exact.direct import between
from unshift.exact.filters import IntegerFilter, Kept, PixelScale, Ready
from unshift.exact.lines import LineRule, score_map
from unshift.exact.task import float32_is_plain, float32_is_set_plain, is_traced

__all__ = ["LARGEST_SCALE", "IntegerEstimator"]

BLOCK = 2**22
"""Bytes of maps to work on at a time, for each thread: what a core's cache holds. ``benchmarks/run.py blocks``."""

STRIPS = 2.0
"""How many times more strips may cost than the whole image at once: they need less memory."""

LARGEST_SCALE = 2.0**100
"""Pixels that ``torch.set_flush_denormal`` may take for 0, below 2^-126, are 0 as integers at scales up to this."""


class Line(NamedTuple):
    """The 1-D layers along axes of one length, side by side, and the sums that they get."""

    over: list[list[int]]
    """for each of these axes, the others of the features, which are summed over"""
    rule: LineRule
    layers: list[Ready]


class Plan(NamedTuple):
    """What the whole network needs at one size."""

    pixels: PixelScale
    local: list[Ready]
    strips: list[Ready] | None
    """for strips of the image; None where strips would cost more than the whole"""
    lines: list[Line]
    share: float | None
    """of a core's cache, what one image takes; None: of a graph, which takes all images at once"""


class IntegerEstimator(nn.Module):
    """A :class:`ShiftEstimator` in integers: images in, int64 scores out.

    Made by :func:`unshift.quantise`; rebuilt from ``IntegerEstimator(**net.describe())`` and a ``state_dict``.

    Args:
        network: The float estimator's :meth:`~ShiftEstimator.describe`.
        bits: Width of the activations.
        size: The size of features whose line sums were calibrated. Nets of dense filters take their own size only,
            all others any.
    """

    pixel_scale_bits: Tensor
    score_unit_bits: Tensor

    def __init__(self, network: dict[str, Any], *, bits: int = 10, size: Sequence[int] | None = None) -> None:
        super().__init__()
        if type(bits) is not int or not 2 <= bits <= 47:
            raise ValueError(f"bits must be a whole number from 2 to 47, got {bits!r}")
        with torch.device("meta"):  # only its shapes are wanted: no memory, and no random numbers drawn
            floating = ShiftEstimator(**network)
        self.in_channels, self.axes, self.size = floating.in_channels, floating.axes, floating.size
        self.across = floating.across
        self.calibrated = tuple(size) if size is not None else None
        self.largest = 2**bits - 1
        self._description = {"network": network, "bits": bits, "size": list(size) if size is not None else None}

        def stack(layers: Any, scores: bool) -> nn.ModuleList:
            last = len(layers) - 1 if scores else None
            return nn.ModuleList(
                IntegerFilter(layer.filter.weight.shape, self.largest, network["activation"], last=k == last)
                for k, layer in enumerate(layers)
            )

        self.local = stack(floating.local, scores=not len(floating.lines))
        self.lines = nn.ModuleList(stack(line, scores=True) for line in floating.lines)
        for axis in range(len(self.lines)):
            ones = torch.ones(network["channels"][-1], dtype=torch.int64)
            self.register_buffer(f"mean_divisor_{axis}", ones)
        # The two real numbers of the net, kept as the bits of a float64: integers again.
        self.register_buffer("pixel_scale_bits", bits_of(1.0))
        self.register_buffer("score_unit_bits", bits_of(1.0))
        shapes = [tuple(layer.weight.shape) for layer in self.local]  # type: ignore[arg-type]
        self.widest, self.line_axes = max(max(shape[:2]) for shape in shapes), len(self.lines)
        self._before, self._after = sum(shape[2] // 2 for shape in shapes), sum((shape[2] - 1) // 2 for shape in shapes)
        self._scalars: Kept | None = None
        self._plans: dict[Any, Kept] = {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Come back from a copy, whose buffers count their changes anew: with nothing kept."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._plans = {}
        self._read_numbers()

    def _load_from_state_dict(self, *args: Any, **options: Any) -> None:
        """Take the buffers of a file; its two real numbers are read now, since a graph made of this module cannot."""
        super()._load_from_state_dict(*args, **options)
        self._read_numbers()

    def _read_numbers(self) -> None:
        self._scalars = None
        if not self.pixel_scale_bits.is_meta:
            self._numbers()

    def _numbers(self) -> tuple[PixelScale, float]:
        """Return the pixel scale and the score unit, read off their buffers when these have changed."""
        kept = self._scalars
        if kept is None or not (is_traced() or kept.holds):  # a graph being made shows no values
            buffers = (self.pixel_scale_bits, self.score_unit_bits)
            scale, unit = (float(bits.cpu().view(torch.float64)) for bits in buffers)
            kept = self._scalars = Kept(self, (PixelScale(scale, self.largest), unit))
        found: tuple[PixelScale, float] = kept.value
        return found

    @property
    def pixel_scale(self) -> float:
        """What pixels are multiplied by before they are rounded."""
        return self._numbers()[0].scale

    @property
    def score_unit(self) -> float:
        """How much one integer step of the scores is worth as a logit (nats)."""
        return self._numbers()[1]

    def describe(self) -> dict[str, Any]:
        """Return the network as plain data: ``IntegerEstimator(**net.describe())`` rebuilds it."""
        return copy.deepcopy(self._description)

    def pixels(self, images: Tensor) -> Tensor:
        """Quantise pixels to integers, each by itself."""
        return self._numbers()[0](images)

    def line_rule(self, axis: int, size: Sequence[int]) -> LineRule:
        """Say how sums along ``axis`` of images of ``size`` are added up and divided."""
        divisor = self.get_buffer(f"mean_divisor_{axis}")
        return LineRule.at(axis, tuple(size), self.calibrated, divisor, self.largest * math.prod(self.across))

    def others(self, axis: int) -> list[int]:
        """Return all axes of the features but the one that goes with ``axis`` of the scores."""
        first = 2 + len(self.across)
        return [at for at in range(2, first + self.axes) if at != first + axis]

    @property
    def along(self) -> Callable[[Tensor], tuple[Tensor, ...]] | None:
        """Of a net of lines along several axes: from images to the terms whose sums are its scores."""
        return self._run if self.line_axes > 1 else None

    def forward(self, images: Tensor) -> Tensor:
        """Score every position with an int64."""
        found = self._run(images)
        return score_map(found) if self.line_axes else found[0]

    def _run(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return the scores, or of a net of lines the terms along its axes."""
        check_input(images, self.in_channels, self.axes, self.size)
        traced, device = is_traced(), images.device
        if not traced and not images.shape[0]:
            shapes: Any = [[1, n] for n in images.shape[2:]] if len(self.lines) else [images.shape[2:]]
            return tuple(torch.zeros(0, *shape, dtype=torch.int64, device=device) for shape in shapes)
        plan = self.plan(tuple(images.shape[2:]), device, traced)
        images = images.detach() if images.requires_grad else images
        if traced or torch.is_autocast_enabled(device.type):  # it would round the integers
            with torch.autocast(device.type, enabled=False):
                return self._scores(images, plan)
        return self._scores(images, plan)

    def _scores(self, images: Tensor, plan: Plan) -> tuple[Tensor, ...]:
        if not plan.lines:
            blocks = [_joined([*self._features(part, plan)], 2) for part in self._blocks(images, plan)]
            return (_joined(blocks, 0).squeeze(1),)
        parts = [self._line_sums(part, plan) for part in self._blocks(self.unfold(images), plan)]
        found = []
        for line, sums in zip(plan.lines, [_joined(each, 0) for each in zip(*parts, strict=True)], strict=True):
            values = line.rule.means(sums, self.largest)
            for layer in line.layers:
                values = layer(values)
            found.append(values)
        return tuple(found)

    def unfold(self, images: Tensor) -> Tensor:
        """Return what the local layers see: the axes across, which came as channels, are axes again."""
        return images.unflatten(1, (-1, *self.across)) if self.across else images

    def plan(self, size: tuple[int, ...], device: torch.device, traced: bool = False) -> Plan:
        """Return what the network needs at this size, computed again only when its integers have changed."""
        if traced:
            return self._prepared(size, plain=True, traced=True)
        key = (size, device, float32_is_set_plain())
        kept = self._plans.get(key)
        if kept is None or not kept.holds:
            if len(self._plans) >= 8:  # a stream of images of many sizes must not fill the memory
                self._plans.clear()
            kept = self._plans[key] = Kept(self, self._prepared(size, float32_is_plain(device)))
        found: Plan = kept.value
        return found

    def _prepared(self, size: tuple[int, ...], plain: bool, traced: bool = False) -> Plan:
        layers: list[Any] = list(self.local)
        seen = (*self.across, *size)
        local = [layer.ready(seen, plain=plain, traced=traced) for layer in layers]
        strips = None
        if self.size is None and not traced:
            with contextlib.suppress(ValueError):  # no kernel that works in strips is exact for such sums
                found = [layer.ready(seen, strips=True, plain=plain) for layer in layers]
                dear = sum(made.cost for made in found) > STRIPS * sum(made.cost for made in local)
                strips = None if dear else found  # only an FFT is cheap there
        bytes = max(made.kernel.bytes for made in local) * self.widest * math.prod(seen)
        lines = self._lines(size, plain, traced)
        return Plan(self._numbers()[0], local, strips, lines, None if traced else bytes / BLOCK)

    def _lines(self, size: tuple[int, ...], plain: bool, traced: bool) -> list[Line]:
        """Return the layers of each axis, or of all together where these are alike."""
        stacks: list[Any] = list(self.lines)
        rules = [self.line_rule(axis, size) for axis in range(len(stacks))]
        over = [self.others(axis) for axis in range(len(stacks))]
        groups = [[each] for each in over]
        alike = {(n, rule[:3], stack[0].weight.shape) for n, rule, stack in zip(size, rules, stacks, strict=False)}
        if not traced and len(alike) == 1:
            groups, stacks = [over], [map(IntegerFilter.beside, zip(*stacks, strict=True))]
            rules = [rules[0]._replace(divisor=torch.cat([rule.divisor for rule in rules]))]
        sized = zip(size, stacks, strict=False)
        layers = [[layer.ready([n], plain=plain, traced=traced) for layer in stack] for n, stack in sized]
        return [Line(*found) for found in zip(groups, rules, layers, strict=True)]

    def _blocks(self, images: Tensor, plan: Plan) -> Sequence[Tensor]:
        """Split a batch into parts whose maps stay in the cache."""
        count = None if plan.share is None else max(1, int(torch.get_num_threads() / plan.share))
        return [images] if count is None or images.shape[0] <= count else images.split(count)

    def _features(self, images: Tensor, plan: Plan) -> Iterable[Tensor]:
        """Run the local layers, in strips where the image is large; yield the features of each strip, from the top."""
        height = rows = images.shape[2]
        if plan.share is not None and plan.strips is not None:
            fits = rows * torch.get_num_threads() / (plan.share * images.shape[0])
            height = max(2 * (self._before + self._after + 1), int(fits))
        if 2 * height > rows or plan.strips is None:
            features = plan.pixels(images)
            if plan.share is None:  # a graph cannot refuse NaN
                features = torch.where(features.isnan(), 0.0, features)
            for made in plan.local:
                features = made(features)
            yield features
            return
        for start in range(0, rows, height):
            end = min(start + height, rows)
            features = plan.pixels(between(images, 2, start - self._before, end + self._after))
            for made in plan.strips:
                features = made(features, margin=True)
            yield features

    def _line_sums(self, images: Tensor, plan: Plan) -> list[Tensor]:
        """Return the sums of the features for each line, ``(batch, channel, n)``: small, whatever the image."""
        axes = [(line.rule, over) for line in plan.lines for over in line.over]
        strips = [[rule.sums(features, over) for rule, over in axes] for features in self._features(images, plan)]
        # Along the axis of the strips their sums are joined, along all others added.
        found = [
            functools.reduce(torch.add, sums) if 2 in over else _joined(sums, 2)
            for (_, over), sums in zip(axes, zip(*strips, strict=True), strict=True)
        ]
        return [_joined(found, 1)] if len(plan.lines) == 1 else found


def _joined(parts: Sequence[Tensor], axis: int) -> Tensor:
    """Join parts along an axis; one part alone is returned as it is."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, axis)  # type: ignore[arg-type]


def bits_of(value: float) -> Tensor:
    """Return the bits of a float64 as an int64 buffer."""
    return torch.tensor([value], dtype=torch.float64).view(torch.int64)
