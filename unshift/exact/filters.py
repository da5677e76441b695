"""IntegerFilter: one layer in integers. What is computed from its buffers is kept until they change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from unshift.exact.direct import Direct32
from unshift.exact.kernels import prepare
from unshift.exact.task import FLOAT32, FLOAT64, Kernel, Task

__all__ = ["IntegerFilter", "Ready", "floor_divide", "marked", "unchanged"]


Marks = list[tuple[dict[str, Tensor | None], str, Tensor, Any]]


def marked(module: nn.Module, recurse: bool = True) -> Marks:
    """Remember a module's buffers: the tensors, so that no other can stand at their address, and their versions.

    Tensors made in inference mode do not count the changes made to them: of these, what they hold is remembered.
    """
    return [
        (part._buffers, name, buffer, buffer.clone() if buffer.is_inference() else buffer._version)
        for part in (module.modules() if recurse else [module])
        for name, buffer in part._buffers.items()
        if buffer is not None
    ]


def unchanged(marks: Marks) -> bool:
    """Tell whether the buffers are as they were when :func:`marked`."""
    for buffers, name, kept, mark in marks:
        if buffers.get(name) is not kept:
            return False
        if kept.is_inference():
            if not torch.equal(mark, kept):
                return False
        elif mark != kept._version:
            return False
    return True


class Ready(NamedTuple):
    """What one layer needs at one size, computed once."""

    kernel: Kernel
    bias: Tensor | None
    divisor: Tensor | None
    cost: float = 0.0


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
        self.largest, self.activation = largest, activation
        self._trials: tuple[Any, set[Any]] | None = None

    @property
    def worst(self) -> float:
        """The largest that any sum can become."""
        return float((self.largest * self.weight.double().abs().flatten(1).sum(1) + self.bias.double().abs()).max())

    def ready(self, size: Sequence[int], *, strips: bool = False, plain: bool, traced: bool = False) -> Ready:
        """Return the layer made ready for images of ``size``."""
        return self._prepare(Task(tuple(self.weight.shape), tuple(size), self.worst, strips, traced), plain)

    def _prepare(self, task: Task, plain: bool) -> Ready:
        if self._trials is None or not unchanged(self._trials[0]):
            self._trials = marked(self), set()
        kernel = prepare(self.weight, task, plain, self._trials[1])
        shape = [-1, *[1] * len(task.size)]
        bias = self.bias.to(kernel.dtype) if bool(self.bias.any()) else None
        # No sum reaches 2^24 in float32, so dividing by that or by more is the same.
        limit = FLOAT32 if kernel.dtype == torch.float32 else FLOAT64 // 2
        divisor = None if self.divisor is None else self.divisor.clamp(max=limit).to(kernel.dtype).view(shape)
        if divisor is not None and getattr(kernel, "last", False) and len(task.size) == 2:
            # A whole row of divisors, in the order of the sums: else they are divided pixel by pixel.
            divisor = divisor[None].expand(-1, -1, -1, task.size[1]).contiguous(memory_format=torch.channels_last)
        return Ready(kernel, bias, divisor, kernel.cost(task))

    def traced(self, size: Sequence[int]) -> Ready:
        """Return what a graph can be made of without preparation: a plain convolution."""
        shape = [-1, *[1] * len(size)]
        divisor = None if self.divisor is None else self.divisor.to(torch.float32).view(shape)
        kernel = Direct32(self.weight, Task(tuple(self.weight.shape), tuple(size), 0.0, traced=True))
        return Ready(kernel, self.bias.to(torch.float32), divisor)

    def sums(self, images: Tensor, made: Ready, margin: bool = False) -> Tensor:
        """Return the exact sums, in floats that hold them. With ``margin``, ``images`` is a strip with its margin."""
        return made.kernel(images.to(made.kernel.dtype), margin, made.bias)

    def forward(self, images: Tensor, made: Ready, margin: bool = False) -> Tensor:
        """Return the next layer's integers, or the scores as int64."""
        sums = self.sums(images, made, margin)
        if made.divisor is None:
            return sums.to(torch.int64)
        if self.activation == "abs":
            sums = sums.abs_()
        return floor_divide(sums, made.divisor, self.largest, 0 if self.activation == "relu" else None)


def floor_divide(sums: Tensor, divisor: Tensor, largest: int, least: int | None = None) -> Tensor:
    """Divide integers in floats, in place, and clamp them to ``largest`` either way, or to ``least`` below.

    ``least=0`` is a ReLU as well: what is negative stays so when it is divided.

    Exact: ``a / b < m`` for a whole ``m`` means ``a / b <= m - 1/b``, and ``1/b`` is more than half a unit in the last
    place of ``m`` as long as ``a`` is below 2^24 (float32) or 2^52 (float64). So no quotient is rounded up to a
    whole number.
    """
    return sums.div_(divisor).floor_().clamp_(-largest if least is None else least, largest)
