"""Which layer of my network breaks equivariance, and by how much? (Corollary 3.6)

The corollary "calls for the same in-size and out-size, and circular convolutions, which are usually
violated by CNNs" (section 3.2). :func:`diagnose` finds the layers that violate it.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from unshift.shifts import apply

__all__ = ["Diagnosis", "LayerReport", "diagnose"]

_ROUNDING = 1e-9  # relative; float64 layers round at 1e-16 a sum, breaking one shows at 1e-3 and up


@dataclass(frozen=True)
class LayerReport:
    """What one layer does to a shift of its own input."""

    name: str
    kind: str
    equivariant: bool | None
    """``None`` where there is no position left to shift (after a flatten)."""
    error: float | None
    """``max |f(T^M x) - T^M f(x)| / |f(x)|`` in L2; where the size changes, after the best shift
    of the output; ``None`` where no spatial axes come out."""
    reason: str
    shift: tuple[int, ...] | None = None
    """The worst shift tested, when not equivariant."""


@dataclass(frozen=True)
class Diagnosis:
    """All layers in the order they ran, then the whole network. True if no layer breaks."""

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


def diagnose(model: nn.Module, size: Sequence[int], channels: int = 1, *, shifts: int = 16, seed: int = 0) -> Diagnosis:
    """Find the layers of ``model`` that break equivariance: Corollary 3.6, layer by layer.

    A float64 copy of the model runs once, in evaluation mode, on a random image; the input of each leaf
    layer is recorded. Each leaf is then tested on that input, and on the same pixels in random order.
    Functions called between the layers are not leaves: the last row, the network as a whole, covers them.

    Args:
        model: Any network of images ``(batch, channels, *size)``. It is not changed.
        size: The spatial size of an image.
        channels: Its channels.
        shifts: How many shifts to test. Unit shifts are always among them; small images are tested under all.
        seed: Of the random image and shifts.

    Returns:
        A table with one row per layer. It is true if no layer breaks.
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
    with torch.no_grad():
        result = net(image.clone())  # a first layer may work in place
        for handle in handles:
            handle.remove()
        if len(leaves) > 1 and isinstance(result, Tensor):
            calls.append(("(whole network)", net, image, result))
        return Diagnosis(tuple(_report(*call, len(size), shifts, generator) for call in calls))


def _report(
    name: str, module: nn.Module, x: Tensor, output: Tensor, d: int, shifts: int, generator: torch.Generator
) -> LayerReport:
    kind = type(module).__name__
    if x.ndim != d + 2:
        return LayerReport(name, kind, None, None, f"its input {tuple(x.shape[1:])} has no position left to shift")
    before, after = tuple(x.shape[2:]), tuple(output.shape[2:])
    if len(after) != d:
        reason = f"{_times(before)} becomes {tuple(output.shape[1:])}: position turns into a feature"
        return LayerReport(name, kind, False, None, reason)
    error, worst = 0.0, (0,) * d
    order = torch.randperm(math.prod(before), generator=generator)
    # The same values in random order: in the layer's domain, but without the model's structure.
    for probe in (x, x.flatten(2)[:, :, order].reshape(x.shape)):
        plain = module(probe.clone())
        for shift in _shifts(before, shifts, generator):
            row = torch.tensor([shift])
            moved = module(apply(probe, row))
            gap = moved - apply(plain, row) if before == after else _best_alignment(moved, plain)
            relative = float(gap.norm()) / max(float(plain.norm()), torch.finfo(plain.dtype).tiny)
            if math.isnan(relative):
                relative = math.inf  # whatever was to be compared is gone
            if relative > error:
                error, worst = relative, shift
    if before == after and error <= _ROUNDING:
        return LayerReport(name, kind, True, error, "circular or pointwise")
    return LayerReport(name, kind, False, error, _why(module, before, after, worst), worst)


def _shifts(size: tuple[int, ...], count: int, generator: torch.Generator) -> list[tuple[int, ...]]:
    if math.prod(size) <= count:
        return list(itertools.product(*map(range, size)))
    units = [tuple(int(axis == other) for other in range(len(size))) for axis in range(len(size))]
    draws = [torch.randint(n, (max(count - len(size), 0),), generator=generator).tolist() for n in size]
    return units + list(zip(*draws, strict=True))


def _best_alignment(moved: Tensor, plain: Tensor) -> Tensor:
    """Return ``moved - T^K plain`` for the shift ``K`` of the smaller grid that makes it least."""
    axes = tuple(range(2, plain.ndim))
    spectrum = (torch.fft.fftn(moved, dim=axes) * torch.fft.fftn(plain, dim=axes).conj()).sum((0, 1), keepdim=True)
    best = int(torch.fft.ifftn(spectrum, dim=axes).real.argmax())
    shift = torch.unravel_index(torch.tensor(best), plain.shape[2:])
    return moved - apply(plain, torch.stack(shift)[None])


def _why(module: nn.Module, before: tuple[int, ...], after: tuple[int, ...], worst: tuple[int, ...]) -> str:
    """Say in words what breaks it, as far as the layer's own settings tell."""
    d, reasons = len(before), []

    def per_axis(name: str, default: int) -> tuple[int, ...]:
        value = getattr(module, name, default)
        return value if isinstance(value, tuple) else (value,) * d if isinstance(value, int) else (default,) * d

    stride, padding, kernel = per_axis("stride", 1), per_axis("padding", 0), per_axis("kernel_size", 1)
    if max(stride) > 1:
        keeps = math.prod(stride)
        reasons.append(f"stride {_times(stride)} keeps one position in {keeps}: other shifts fall between them")
    if "Pool" in type(module).__name__:
        reasons.append("pooling windows do not wrap around")
    padded = any(padding) or (getattr(module, "padding", None) == "same" and max(kernel) > 1)
    if padded and getattr(module, "padding_mode", "zeros") == "zeros":
        reasons.append("the padding does not wrap around: a border does not see the opposite one")
    if before != after:
        reasons.append(f"{_times(before)} becomes {_times(after)}: not a map from H to H")
    return "; ".join(reasons) or f"does not commute with a shift by {worst}"


def _times(size: tuple[int, ...]) -> str:
    return "x".join(map(str, size))
