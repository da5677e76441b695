"""Pixels to integers, and one layer of integers. What is computed of its buffers is kept until they change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from unshift.estimator import as_float
from unshift.exact.direct import Direct32
from unshift.exact.kernels import prepare
from unshift.exact.task import FLOAT32, FLOAT64, Kernel, Task, is_traced

__all__ = ["IntegerFilter", "Kept", "PixelScale", "Ready", "floor_divide"]


class Kept:
    """What was computed of a module's buffers, until these change.

    An object, not a tuple: of lists, tuples and dicts on a module, torch.export leaves copies behind whose tensors hold
    nothing.

    Args:
        module: Whose buffers, and its parts', are remembered: the tensors, so that no other can stand at their address,
            and their versions. Tensors made in inference mode count no changes: of these, what they hold.
        value: What was computed.
    """

    def __init__(self, module: nn.Module, value: Any) -> None:
        self.value = value
        parts = [(part._buffers, name) for part in module.modules() for name in part._buffers]
        found = [(buffers, name, buffer) for buffers, name in parts if (buffer := buffers[name]) is not None]
        self._counted = [(*mark, mark[2]._version) for mark in found if not mark[2].is_inference()]
        self._copied = [(*mark, mark[2].clone()) for mark in found if mark[2].is_inference()]

    @property
    def holds(self) -> bool:
        """Whether the buffers are as they were."""
        for buffers, name, kept, version in self._counted:
            if buffers[name] is not kept or kept._version != version:
                return False
        return all(buffers[name] is kept and torch.equal(kept, copy) for buffers, name, kept, copy in self._copied)


class PixelScale:
    """How pixels become integers.

    Args:
        scale: What one is worth.
        largest: Where integers end, either way.
    """

    def __init__(self, scale: float, largest: int) -> None:
        self.scale, self.largest, self.of_bytes = scale, largest, None
        # Bytes are divided by 255 first. Where one multiplication gives all 256 of them the same integers, it will do.
        every = torch.arange(256, dtype=torch.uint8)
        quick = every.to(torch.float32).mul_(scale / 255).round_()
        self.of_bytes = scale / 255 if torch.equal(quick, self(every)) else None

    def __call__(self, images: Tensor) -> Tensor:
        """Return integers as float32, in the order in memory that the images have."""
        if images.dtype == torch.uint8 and self.of_bytes is not None:
            return images.to(torch.float32).mul_(self.of_bytes).round_()
        return (as_float(images) * self.scale).round_().clamp_(-self.largest, self.largest)


class Ready(NamedTuple):
    """One layer at one size: its integers as floats that hold them, computed once."""

    kernel: Kernel
    bias: Tensor | None
    divisor: Tensor | None
    """None: of the last layer, whose sums are the scores"""
    activation: str
    largest: int
    cost: float = 0.0
    row: Tensor | None = None
    """the divisor for each pixel of a row: quicker for maps whose channels are last in memory"""
    divided: bool = False
    """whether the kernel gives sums that are divided already, and no quotient is too large"""

    def sums(self, images: Tensor, margin: bool = False) -> Tensor:
        """Return the exact sums, in floats that hold them. With ``margin``, ``images`` is a strip with its margin."""
        return self.kernel(images.to(self.kernel.dtype), margin, self.bias)

    def __call__(self, images: Tensor, margin: bool = False) -> Tensor:
        """Return the next layer's integers, or the scores as int64."""
        sums = self.sums(images, margin)
        if self.divisor is None:
            return sums.to(torch.int64)
        if self.activation == "abs":
            sums = sums.abs_()
        if self.divided:
            return sums.floor_()
        divisor = self.divisor if self.row is None or sums.is_contiguous() else self.row
        return floor_divide(sums, divisor, self.largest, None if self.activation == "none" else 0)


class IntegerFilter(nn.Module):
    """A circular filter of integers; then, but for the last layer, activate, floor-divide and clamp."""

    weight: Tensor
    bias: Tensor
    divisor: Tensor | None

    def __init__(self, shape: Sequence[int], largest: int, activation: str, last: bool) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(*shape, dtype=torch.int64))
        self.register_buffer("bias", torch.zeros(shape[0], dtype=torch.int64))
        self.register_buffer("divisor", None if last else torch.ones(shape[0], dtype=torch.int64))
        self.largest, self.activation, self.groups = largest, activation, 1
        self._trials = Kept(self, set())

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Come back from a copy, whose buffers count their changes anew: with nothing kept."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._trials = Kept(self, set())

    @property
    def worst(self) -> float:
        """The largest that any sum can become."""
        return float((self.largest * self.weight.double().abs().flatten(1).sum(1) + self.bias.double().abs()).max())

    @classmethod
    def beside(cls, layers: Sequence[IntegerFilter]) -> IntegerFilter:
        """Return one layer that does what these of one shape do, each on channels of its own."""
        first, count = layers[0], len(layers)
        if count == 1:
            return first
        outputs, inputs, *kernel = first.weight.shape
        made = cls((count * outputs, count * inputs, *kernel), first.largest, first.activation, first.divisor is None)
        made.to(first.weight.device).groups = count
        for name, buffer in made.named_buffers():
            for at, part in enumerate(buffer.chunk(count)):
                own = part.narrow(1, at * inputs, inputs) if name == "weight" else part
                own.copy_(layers[at].get_buffer(name))
        return made

    def ready(self, size: Sequence[int], *, strips: bool = False, plain: bool, traced: bool = False) -> Ready:
        """Return the layer made ready for images of ``size``; in a graph, whose numbers are not known, for any sums."""
        worst = FLOAT32 - 1 if traced else self.worst
        task = Task(tuple(self.weight.shape), tuple(size), worst, strips, traced, self.groups)
        if not (traced or self._trials.holds):
            self._trials = Kept(self, set())
        kernel = prepare(self.weight, task, plain, self._trials.value)
        bias = self.bias.to(kernel.dtype) if traced or bool(self.bias.any()) else None
        made = Ready(kernel, bias, None, self.activation, self.largest, kernel.cost(task))
        if self.divisor is None:
            return made
        power = 0 if traced else int(self.divisor[0])
        bounded = power.bit_count() == 1 and self.worst < power * (self.largest + 1) and self.activation == "abs"
        if bounded and isinstance(kernel, Direct32) and bool((self.divisor == power).all()):
            kernel.divide(power)
            made = made._replace(bias=None if made.bias is None else made.bias / power, divided=True)
        # No sum reaches 2^24 in float32, so dividing by that or by more is the same.
        divisor = self.divisor.clamp(max=FLOAT32 if kernel.dtype == torch.float32 else FLOAT64 // 2).to(kernel.dtype)
        around, width = [1] * (len(size) - 1), size[-1]
        row = divisor.repeat(width, 1).T.reshape(-1, *around, width) if around and not traced else None
        return made._replace(divisor=divisor.view(-1, *around, 1), row=row)


def floor_divide(sums: Tensor, divisor: Tensor, largest: int, least: int | None = None) -> Tensor:
    """Divide integers in floats, in place, and clamp them to ``largest`` either way, or to ``least`` below.

    ``least=0`` is a ReLU as well: what is negative stays so when it is divided. Rounded towards 0, which PyTorch does
    while it divides, it ends at 0 all the same.

    Exact: ``a / b < m`` for a whole ``m`` means ``a / b <= m - 1/b``, and ``1/b`` is more than half a unit in the last
    place of ``m`` as long as ``a`` is below 2^24 (float32) or 2^52 (float64). So no quotient is rounded up to a
    whole number.
    """
    if least == 0 and not is_traced():
        return sums.div_(divisor, rounding_mode="trunc").clamp_(0, largest)
    return sums.div_(divisor).floor_().clamp_(-largest if least is None else least, largest)
