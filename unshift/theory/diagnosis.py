"""Find the layers of a network that break equivariance (Corollary 3.6)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from unshift.shifts import all_shifts, apply, format_size
from unshift.testing import both_orders

ROUNDING = 1e-9
"""Relative error below which a float64 layer counts as equivariant: a sum rounds at 1e-16, a defect is 1e-3 or more."""


@dataclass(frozen=True)
class LayerReport:
    """The effect of one layer on a shift of its own input."""

    name: str
    kind: str
    equivariant: bool | None  # None if the input has no positions to shift, e.g. after a flatten
    error: float | None  # the largest ``|f(T^M x) - T^M f(x)| / |f(x)|`` in L2. None if the layer changes the size.
    reason: str
    shift: tuple[int, ...] | None = None  # the worst shift tested, if not equivariant


@dataclass(frozen=True)
class Diagnosis:
    """All layers in the order they ran, then the whole network. True if no layer breaks equivariance."""

    layers: tuple[LayerReport, ...]

    @property
    def broken(self) -> tuple[LayerReport, ...]:
        """The layers that are not equivariant."""
        return tuple(layer for layer in self.layers if layer.equivariant is False)

    def __bool__(self) -> bool:
        return not self.broken

    def __str__(self) -> str:
        verdicts = {True: "yes", False: "NO", None: "-"}
        head = ("layer", "type", "equivariant", "error", "why")
        rows = [head] + [
            (x.name, x.kind, verdicts[x.equivariant], "-" if x.error is None else f"{x.error:.2g}", x.reason)
            for x in self.layers
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        return "\n".join("  ".join([*map(str.ljust, row[:4], widths), row[4]]) for row in rows)


@torch.no_grad()
def diagnose(model: nn.Module, size: Sequence[int], channels: int = 1, *, shifts: int = 16, seed: int = 0) -> Diagnosis:
    """Find the layers of ``model`` that break equivariance: Corollary 3.6, layer by layer.

    A float64 copy of the model runs once, in evaluation mode, on a random image ``(1, channels, *size)``. Each leaf
    layer is then tested on the input that it had, and on the same pixels in random order, under at most ``shifts``
    shifts. The last row, the network as a whole, covers functions called between the layers.
    """
    net = copy.deepcopy(model).double().eval()
    generator = torch.Generator().manual_seed(seed)
    image = torch.randn(1, channels, *size, generator=generator, dtype=torch.float64)
    calls: list[tuple[str, nn.Module, Tensor, Tensor]] = []

    def record(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if args and isinstance(args[0], Tensor) and isinstance(output, Tensor):
                again = sum(module is other for _, other, _, _ in calls)
                # Copies: the next layer may work in place.
                calls.append((f"{name} (call {again + 1})" if again else name, module, args[0].clone(), output.clone()))

        return hook

    leaves = [(name or "(itself)", module) for name, module in net.named_modules() if not list(module.children())]
    handles = [module.register_forward_hook(record(name)) for name, module in leaves]
    result = net(image.clone())  # a first layer may work in place
    for handle in handles:
        handle.remove()
    if len(leaves) > 1 and isinstance(result, Tensor):
        calls.append(("(whole network)", net, image, result))
    return Diagnosis(tuple(_report(*call, len(size), shifts, generator) for call in calls))


def _report(
    name: str, module: nn.Module, x: Tensor, output: Tensor, d: int, count: int, generator: torch.Generator
) -> LayerReport:
    kind = type(module).__name__
    if x.ndim != d + 2:
        return LayerReport(name, kind, None, None, f"its input {tuple(x.shape[1:])} has no position left to shift")
    before, after = tuple(x.shape[2:]), tuple(output.shape[2:])
    if len(after) != d:
        reason = f"{format_size(before)} becomes {tuple(output.shape[1:])}: position turns into a feature"
        return LayerReport(name, kind, False, None, reason)
    reasons = _reasons(module, d)
    if before != after:
        reasons.append(f"{format_size(before)} becomes {format_size(after)}: not a map from H to H")
        return LayerReport(name, kind, False, None, "; ".join(reasons))
    error, worst = 0.0, (0,) * d
    order = torch.randperm(math.prod(before), generator=generator)
    # The same values in random order: in the layer's domain, but without the model's structure.
    for probe in (x, x.flatten(2)[:, :, order].reshape(x.shape)):
        for _, shifts, moved, still in both_orders(module, probe, _draw_shifts(before, count, generator), batch_size=8):
            gap, norm = (moved - apply(still, shifts)).flatten(1).norm(dim=1), still.flatten(1).norm(dim=1)
            relative = (gap / norm.clamp_min(torch.finfo(norm.dtype).tiny)).nan_to_num(nan=math.inf, posinf=math.inf)
            if float(relative.max()) > error:
                error, worst = float(relative.max()), tuple(shifts[int(relative.argmax())].tolist())
    if error <= ROUNDING:
        return LayerReport(name, kind, True, error, "circular or pointwise")
    reason = "; ".join(reasons) or f"does not commute with a shift by {worst}"
    return LayerReport(name, kind, False, error, reason, worst)


def _draw_shifts(size: tuple[int, ...], count: int, generator: torch.Generator) -> Tensor:
    if math.prod(size) <= count:
        return all_shifts(size)
    draws = [torch.randint(n, (max(count - len(size), 0),), generator=generator) for n in size]
    return torch.cat([torch.eye(len(size), dtype=torch.int64), torch.stack(draws, 1)])


def _reasons(module: nn.Module, d: int) -> list[str]:
    """Return the reasons that follow from the settings of a layer that is not equivariant."""
    reasons = []

    def per_axis(name: str, default: int) -> tuple[int, ...]:
        value = getattr(module, name, default)
        return value if isinstance(value, tuple) else (value,) * d if isinstance(value, int) else (default,) * d

    stride, padding, kernel = per_axis("stride", 1), per_axis("padding", 0), per_axis("kernel_size", 1)
    if max(stride) > 1:
        every = math.prod(stride)
        reasons.append(f"stride {format_size(stride)} keeps one position in {every}: other shifts fall between them")
    if "Pool" in type(module).__name__:
        reasons.append("pooling windows do not wrap around")
    padded = any(padding) or (getattr(module, "padding", None) == "same" and max(kernel) > 1)
    if padded and getattr(module, "padding_mode", "zeros") == "zeros":
        reasons.append("the padding does not wrap around: a border does not see the opposite one")
    return reasons
