"""Theorem 3.4 and Corollary 3.6: is this affine map equivariant, and if not, what breaks it?

A map is answered with a :class:`Verdict`, true or false, and if false with a :class:`Witness`:
a shift, an input and an output index at which ``A(T^M x)`` and ``T^M A(x)`` differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import torch
from torch import Tensor

from unshift.shifts import apply
from unshift.theory.matrices import check_length, check_square, circular_matrix, delta, pairwise, positions

__all__ = ["Verdict", "Witness", "affine_of", "check_affine", "check_map", "nearest_equivariant"]

_PROBES = 256  # probe images in one call of a user's map: bounds the memory, changes no answer


@dataclass(frozen=True)
class Witness:
    """One case in which shifting and mapping do not commute."""

    shift: tuple[int, ...]
    """``M``."""
    input: Tensor
    """``x``, of shape ``(channel, *size)``."""
    index: tuple[int, ...]
    """``(channel, *I)``, where the two outputs differ."""
    mapped_after: Fraction | float
    """``A(T^M x)[index]``: shifted first."""
    mapped_before: Fraction | float
    """``(T^M A(x))[index]``: mapped first."""


@dataclass(frozen=True)
class Verdict:
    """Whether a map is equivariant; true or false in an ``if``."""

    equivariant: bool
    reason: str
    witness: Witness | None = None

    def __bool__(self) -> bool:
        return self.equivariant

    def __str__(self) -> str:
        return f"{'equivariant' if self.equivariant else 'not equivariant'}: {self.reason}"


class Nearest(NamedTuple):
    """The nearest equivariant affine map, and how far it is (Frobenius norm, matrix and bias)."""

    matrix: Tensor
    bias: Tensor
    distance: float


def check_affine(matrix: Tensor, bias: Tensor | None, size: Sequence[int]) -> Verdict:
    """Decide whether ``A(X) = W X + C`` is equivariant: Theorem 3.4 and Corollary 3.6, both ways.

    The answer is exact: entries are compared, and the values in the witness are fractions. The entry named is the odd
    one out on its circular diagonal.

    >>> print(check_affine(torch.tensor([[1, 2], [2, 3]]), None, (2,)))
    not equivariant: matrix entry [1, 1] is 3, but [0, 0], which must equal it, is 1

    Args:
        matrix: ``(N, N)``, or ``(out, in, N, N)`` for several channels.
        bias: ``(N,)`` or ``(out, N)``; None is zero.
        size: The spatial size, whose product is ``N``.

    Returns:
        The verdict, with a witness if it is false.

    Raises:
        ValueError: If the shapes do not fit, or an entry is not finite.
    """
    filters, constants = _with_channels(matrix, bias, size)
    grid = positions(size)
    for channel, constant in enumerate(constants):
        odd, usual = _odd_one_out(constant)
        if odd != usual:
            zero = torch.zeros(filters.shape[1], *size, dtype=filters.dtype)
            name = [odd] if matrix.ndim == 2 else [channel, odd]
            reason = f"bias entry {name} is {constant[odd].item()}, but entry {usual} is {constant[usual].item()}"
            return Verdict(False, reason, _affine_witness(filters, constants, size, zero, channel, odd, usual))
    # Row M taken back by M: in a circular filter all rows are then row 0, the columns constant.
    aligned = filters.gather(3, pairwise(size, +1).expand_as(filters))
    broken = (aligned != aligned[:, :, :1]).any(dim=2).nonzero()
    if not len(broken):
        return Verdict(True, "every row is row 0 translated, and the bias is constant")
    out, channel, diagonal = (int(i) for i in broken[0])
    odd, usual = _odd_one_out(aligned[out, channel, :, diagonal])
    columns = [delta((grid[row] + grid[diagonal]).tolist(), size) for row in (odd, usual)]
    one_hot = torch.zeros(filters.shape[1], math.prod(size), dtype=filters.dtype)
    one_hot[channel, columns[1]] = 1
    names = [[odd, columns[0]], [usual, columns[1]]]
    if matrix.ndim == 4:
        names = [[out, channel, *name] for name in names]
    values = [filters[out, channel, row, column].item() for row, column in zip((odd, usual), columns, strict=True)]
    reason = f"matrix entry {names[0]} is {values[0]}, but {names[1]}, which must equal it, is {values[1]}"
    witness = _affine_witness(filters, constants, size, one_hot.reshape(-1, *size), out, odd, usual)
    return Verdict(False, reason, witness)


def nearest_equivariant(matrix: Tensor, bias: Tensor | None, size: Sequence[int]) -> Nearest:
    """Return the equivariant affine map closest to ``W X + C``: Theorem 3.4, used as a projection.

    Averaging ``T^-M A T^M`` over the group averages each circular diagonal, and the bias. The
    group acts by permutations, so this is the orthogonal projection in the Frobenius norm, hence
    the nearest. In float64, since an average has to be rounded.

    Args:
        matrix: ``(N, N)``, or ``(out, in, N, N)`` for several channels.
        bias: ``(N,)`` or ``(out, N)``; None is zero.
        size: The spatial size, whose product is ``N``.

    Returns:
        The matrix, the bias, and how far they are from those given.

    Raises:
        ValueError: If the shapes do not fit, or an entry is not finite.
    """
    filters, constants = _with_channels(matrix, bias, size)
    filters, constants = filters.double(), constants.double()
    aligned = filters.gather(3, pairwise(size, +1).expand_as(filters))
    near = circular_matrix(aligned.mean(dim=2), size)
    level = constants.mean(dim=1, keepdim=True).expand_as(constants)
    distance = math.hypot(float((filters - near).norm()), float((constants - level).norm()))
    return Nearest(near.reshape(matrix.shape), level.reshape(-1 if matrix.ndim == 2 else level.shape), distance)


def affine_of(function: Callable[[Tensor], Tensor], size: Sequence[int], channels: int = 1) -> tuple[Tensor, Tensor]:
    """Return the ``(out, in, N, N)`` matrix and ``(out, N)`` bias of an affine callable, by probing it.

    ``function`` maps float64 images ``(batch, channels, *size)`` to ``(batch, out, *size)``. The bias
    is the image of zero, each column the image of a one-hot: section 3.2 of the paper.

    Args:
        function: The map. It must be affine; this is not checked.
        size: The spatial size of an image.
        channels: Its channels.

    Returns:
        The matrix and the bias.

    Raises:
        ValueError: If the map changes the size of the images.
    """
    outputs = torch.cat([_call(function, probe) for probe in _affine_probes(size, channels)])
    if tuple(outputs.shape[2:]) != tuple(size):
        raise ValueError(f"the map must keep the size {tuple(size)}, got {tuple(outputs.shape[2:])}")
    bias = outputs[0].flatten(1)
    columns = (outputs[1:].flatten(2) - bias).reshape(channels, math.prod(size), *bias.shape)
    return columns.permute(2, 0, 3, 1).contiguous(), bias


def check_map(
    function: Callable[[Tensor], Tensor],
    size: Sequence[int],
    channels: int = 1,
    *,
    tolerance: float = 1e-9,
    seed: int = 0,
) -> Verdict:
    """Test whether any callable on images commutes with translations: Definition 3.2 (Equivariance).

    It is called with float64 images ``(batch, channels, *size)``: zero, every one-hot image and
    eight random ones, each under the unit shift of every axis. Unit shifts generate the group and
    an affine map is fixed by zero and the one-hots, so **for an affine map this decides** (Theorem
    3.4). For any other map ``False`` is a proof, ``True`` only that no counterexample was met.
    ``tolerance`` is relative to the largest output: floating-point maps round.

    Args:
        function: The map.
        size: The spatial size of an image.
        channels: Its channels.
        tolerance: How much two outputs may differ, relative to the largest.
        seed: Of the random images.

    Returns:
        The verdict, with a witness if it is false.
    """
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(8, channels, *size, generator=generator, dtype=torch.float64)
    tested = 0
    for probe in [*_affine_probes(size, channels), noise]:
        output = _call(function, probe)
        if tuple(output.shape[2:]) != tuple(size):
            became = "x".join(map(str, output.shape[2:])) or "no spatial axes"
            reason = f"size {'x'.join(map(str, size))} becomes {became}: not a map from H to H"
            return Verdict(False, reason)
        allowed = tolerance * max(1.0, float(output.abs().max()))
        tested += len(probe)
        for axis in range(len(size)):
            shift = tuple(int(axis == other) for other in range(len(size)))
            rows = torch.tensor([shift]).expand(len(probe), -1)
            after, before = _call(function, apply(probe, rows)), apply(output, rows)
            # Not "greater than": a NaN on either side is a difference too.
            differs = ~((after - before).abs() <= allowed)
            if differs.any():
                case, *index = (int(i) for i in differs.nonzero()[0])
                place = (case, *index)
                values = float(after[place]), float(before[place])
                reason = f"shift {shift} changes output {tuple(index)} from {values[1]:.6g} to {values[0]:.6g}"
                return Verdict(False, reason, Witness(shift, probe[case], tuple(index), *values))
    return Verdict(True, f"{tested} inputs under every unit shift commute (a proof if the map is affine)")


def _affine_probes(size: Sequence[int], channels: int) -> Iterator[Tensor]:
    """Yield zero and every one-hot image, in batches."""
    length = channels * math.prod(size)
    for start in range(-1, length, _PROBES):
        hot = torch.arange(start, min(start + _PROBES, length))
        probe = (hot[:, None] == torch.arange(length)).double()
        yield probe.reshape(-1, channels, *size)


def _call(function: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    with torch.no_grad():
        return function(images)


def _with_channels(matrix: Tensor, bias: Tensor | None, size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the matrix as ``(out, in, N, N)`` and the bias as ``(out, N)``, checked."""
    check_square(matrix, size)
    if matrix.ndim not in (2, 4):
        raise ValueError(f"matrix must be (N, N) or (out, in, N, N), got shape {tuple(matrix.shape)}")
    filters = matrix if matrix.ndim == 4 else matrix[None, None]
    if bias is None:
        constants = torch.zeros(filters.shape[0], filters.shape[-1], dtype=filters.dtype)
    else:
        check_length(bias, size)
        constants = bias if bias.ndim == 2 else bias[None]
    if len(constants) != len(filters):
        raise ValueError(f"bias must have {len(filters)} output channels, got shape {tuple(constants.shape)}")
    for name, values in (("matrix", filters), ("bias", constants)):
        if not torch.isfinite(values).all():
            raise ValueError(f"{name} must be finite to compare its entries, got NaN or infinity")
    return filters, constants


def _odd_one_out(values: Tensor) -> tuple[int, int]:
    """Return where the rarest and the most common entry sit; the same place if all are equal."""
    _, kind, count = values.unique(return_inverse=True, return_counts=True)
    if len(count) == 1:
        return 0, 0
    usual = int(count.argmax())
    # With as many of each, any other value is as odd: exclude only the one called usual.
    count[usual] = len(values) + 1
    return int((kind == count.argmin()).nonzero()[0]), int((kind == usual).nonzero()[0])


def _affine_witness(
    filters: Tensor, constants: Tensor, size: Sequence[int], x: Tensor, out: int, odd: int, usual: int
) -> Witness:
    """Evaluate both sides, exactly, at output ``odd`` for the shift that takes ``usual`` there."""
    grid = positions(size)
    shift = [(int(a) - int(b)) % n for a, b, n in zip(grid[odd], grid[usual], size, strict=True)]
    moved = apply(x[None], torch.tensor([shift]))[0]

    def value(image: Tensor, row: int) -> Fraction:
        total = Fraction(constants[out, row].item())
        for channel, place in image.flatten(1).nonzero().tolist():
            total += Fraction(filters[out, channel, row, place].item())  # the pixels are 0 or 1
        return total

    index = (out, *(int(i) for i in grid[odd]))
    return Witness(tuple(shift), x, index, value(moved, odd), value(x, usual))
