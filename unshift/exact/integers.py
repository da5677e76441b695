"""IntegerEstimator: the trained network in integers, equivariant to the last bit.

Pixels become integers one by one; every sum is exact (:mod:`unshift.exact.kernels`); between layers there is a
floor-divide and a clamp, both pointwise. State is integer buffers only, which ``.half()`` leaves alone. What can be
computed from them once (casts, spectra, matrices) is kept beside them until they change.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from unshift.estimator import ShiftEstimator, check_input
from unshift.exact.direct import rows_between
from unshift.exact.filters import IntegerFilter, Kept, Ready, floor_divide
from unshift.exact.lines import LineRule, LineScores, score_map
from unshift.exact.pixels import PixelScale
from unshift.exact.task import float32_is_plain, is_traced

__all__ = ["LARGEST_SCALE", "IntegerEstimator"]

BLOCK = 2**22
"""Bytes of maps to work on at a time, for each thread: what a core's cache holds. ``benchmarks/run.py blocks``."""

STRIPS = 2.0
"""How many times more strips may cost than the whole image at once: they need less memory."""

LARGEST_SCALE = 2.0**100
"""Pixels that ``torch.set_flush_denormal`` may take for 0, below 2^-126, are 0 as integers at scales up to this."""


class Plan(NamedTuple):
    """What the whole network needs at one size."""

    local: list[Ready]
    strips: list[Ready] | None
    """for strips of the image; None where strips would cost more than the whole"""
    axes: list[Sequence[int]]
    """those that go together: of one length, their 1-D layers work side by side"""
    lines: list[list[Ready]]
    rules: list[LineRule]
    """for the sums along them"""
    room: int
    """numbers of a map that stay in one core's cache, with what the kernels make beside them"""


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
        self._widest = max(in_and_out for shape in shapes for in_and_out in shape[:2])
        self._before, self._after = sum(shape[2] // 2 for shape in shapes), sum((shape[2] - 1) // 2 for shape in shapes)
        self._scalars: Kept | None = None
        self._plans: dict[Any, Kept] = {}
        self._graphs: dict[tuple[int, ...], Plan] = {}

    def _numbers(self) -> tuple[PixelScale, float]:
        """Return the pixel scale and the score unit, read off their buffers when these have changed."""
        kept = self._scalars
        if kept is None or not (is_traced() or kept.holds):  # a graph being made shows no values
            buffers = (self.pixel_scale_bits, self.score_unit_bits)
            scale, unit = (float(bits.cpu().view(torch.float64)) for bits in buffers)
            kept = self._scalars = Kept(self, (PixelScale(scale, self.largest), unit), recurse=False)
        return cast("tuple[PixelScale, float]", kept.value)

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

    def line_sums(self, features: Tensor, axis: int, rule: LineRule) -> Tensor:
        """Sum over every axis of the features but the one that goes with ``axis`` of the scores, exactly."""
        others = [at for at in range(2, features.ndim) if at != 2 + len(self.across) + axis]
        if not others:
            return features.to(rule.added)
        if is_traced() or features.is_contiguous():
            return features.sum(others, dtype=rule.added)
        # In memory the channels come last (exact.direct): sums in that order are quick.
        return features.movedim(1, -1).sum([at - 1 for at in others], dtype=rule.added).movedim(-1, 1)

    def means(self, sums: Tensor, rule: LineRule) -> Tensor:
        """Divide line sums so that they fit the next layer."""
        sums = sums.to(rule.kind)
        return floor_divide(sums if rule.times == 1 else sums * rule.times, rule.divisor, self.largest)

    @property
    def along(self) -> Callable[[Tensor], tuple[Tensor, ...]] | None:
        """Of a net of lines along several axes: from images to the terms whose sums are its scores (`LineScores`)."""
        return self._along if len(self.lines) > 1 else None

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Score every position with an int64."""
        if len(self.lines):
            return score_map(LineScores(self._along(images)))
        plan = self._checked(images)
        if plan is None:
            return torch.zeros(0, *images.shape[2:], dtype=torch.int64, device=images.device)
        with _no_autocast(images.device):
            parts = self._blocks(images, plan)
            return _joined((_joined(self._features(part, plan), 2).squeeze(1) for part in parts), 0)

    @torch.no_grad()
    def _along(self, images: Tensor) -> tuple[Tensor, ...]:
        plan = self._checked(images)
        if plan is None:
            return tuple(torch.zeros(0, n, dtype=torch.int64, device=images.device) for n in images.shape[2:])
        with _no_autocast(images.device):
            return self._line_scores(self._line_totals(self.unfold(images), plan), plan)

    def _checked(self, images: Tensor) -> Plan | None:
        """Return the plan for ``images`` if they fit, or None if there are none."""
        check_input(images, self.in_channels, self.axes, self.size)
        if not is_traced() and not len(images):
            return None
        return self.plan(tuple(images.shape[2:]), images.device)

    def unfold(self, images: Tensor) -> Tensor:
        """Return what the local layers see: the axes across, which came as channels, are axes again."""
        return images.unflatten(1, (-1, *self.across)) if self.across else images

    def plan(self, size: tuple[int, ...], device: torch.device) -> Plan:
        """Return what the network needs at this size, computed again only when its integers have changed."""
        if is_traced():
            if size in self._graphs:
                return self._graphs[size]
            layers: list[Any] = list(self.local)
            local = [layer.traced([*self.across, *size]) for layer in layers]
            return Plan(local, None, *self._lines(size, "traced"), 0)
        plain = float32_is_plain(device)
        key = (size, device, plain)
        kept = self._plans.get(key)
        if kept and kept.holds:
            return cast(Plan, kept.value)
        made = self._prepared(size, plain)
        if len(self._plans) >= 8:  # a stream of images of many sizes must not fill the memory
            self._plans.clear()
        self._plans[key] = Kept(self, made)
        return made

    def prepare_graph(self, size: tuple[int, ...]) -> None:
        """Make ready for graphs of canvases of this size: what is computed inside one becomes part of it."""
        self._graphs[size] = self._prepared(size, plain=True, traced=True)

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
        room = BLOCK // max(made.kernel.bytes for made in local)
        return Plan(local, strips, *self._lines(size, "ready", not traced, plain=plain, traced=traced), room)

    def _lines(self, size: tuple[int, ...], how: str, together: bool = False, **options: Any) -> tuple[Any, Any, Any]:
        """Return which axes go together, their layers and their rules."""
        stacks: list[Any] = list(self.lines)
        groups: list[Sequence[int]] = [(axis,) for axis in range(len(stacks))]
        rules = [self.line_rule(axis, size) for axis in range(len(stacks))]
        alike = {(n, rule[:3], stack[0].weight.shape) for n, rule, stack in zip(size, rules, stacks, strict=False)}
        if together and len(alike) == 1:
            groups, stacks = [range(len(stacks))], [map(IntegerFilter.beside, zip(*stacks, strict=True))]
            rules = [rules[0]._replace(divisor=torch.cat([rule.divisor for rule in rules]))]
        found = zip(groups, stacks, strict=True)
        return groups, [[getattr(it, how)([size[axes[0]]], **options) for it in stack] for axes, stack in found], rules

    def _blocks(self, images: Tensor, plan: Plan) -> tuple[Tensor, ...]:
        """Split a batch into parts whose maps stay in the cache."""
        if is_traced():
            return (images,)
        count = max(1, plan.room * torch.get_num_threads() // (math.prod(images.shape[2:]) * self._widest))
        return (images,) if len(images) <= count else images.split(count)

    def _features(self, images: Tensor, plan: Plan) -> Iterable[Tensor]:
        """Run the local layers, in strips where the image is large; yield the features of each strip, from the top."""
        height = rows = images.shape[2]
        if not is_traced():
            row = math.prod(images.shape[3:]) * self._widest * len(images)
            height = max(2 * (self._before + self._after + 1), plan.room * torch.get_num_threads() // max(1, row))
        if 2 * height > rows or plan.strips is None:
            features = self.pixels(images)
            for layer, made in zip(self.local, plan.local, strict=True):  # a graph calls its numbers by the module
                features = layer(features, made)
            yield features
            return
        for start in range(0, rows, height):
            end = min(start + height, rows)
            features = self.pixels(rows_between(images, start - self._before, end + self._after))
            for made in plan.strips:
                features = made(features, margin=True)
            yield features

    def _line_totals(self, images: Tensor, plan: Plan) -> list[Tensor]:
        """Return the sums of the features along each axis, ``(batch, channel, n)``: small, whatever the image."""
        found: list[list[Tensor]] = [[] for _ in range(self.axes)]
        for part in self._blocks(images, plan):
            strips: list[list[Tensor]] = [[] for _ in range(self.axes)]
            for features in self._features(part, plan):
                for group, rule in zip(plan.axes, plan.rules, strict=True):
                    for axis in group:
                        strips[axis].append(self.line_sums(features, axis, rule))
            for axis, sums in enumerate(strips):  # along the axis of the strips they are joined, along all others added
                cut = axis == 0 and not self.across
                found[axis].append(_joined(sums, 2) if cut else functools.reduce(torch.add, sums))
        return [_joined(parts, 0) for parts in found]

    def _line_scores(self, sums: list[Tensor], plan: Plan) -> tuple[Tensor, ...]:
        found = []
        for group, rule, layers in zip(plan.axes, plan.rules, plan.lines, strict=True):
            values = self.means(_joined([sums[axis].mT for axis in group], 2).mT, rule)  # channels last in memory
            for layer in layers:
                values = layer(values)
            found.append(values)
        return tuple(found)


def _no_autocast(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Switch autocast off, if it is on: it would round the integers."""
    if is_traced() or torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return contextlib.nullcontext()


def _joined(parts: Iterable[Tensor], axis: int) -> Tensor:
    """Join parts along an axis; one part alone is returned as it is."""
    found = list(parts)
    return found[0] if len(found) == 1 else torch.cat(found, axis)


def bits_of(value: float) -> Tensor:
    """Return the bits of a float64 as an int64 buffer."""
    return torch.tensor([value], dtype=torch.float64).view(torch.int64)
