"""Section 3 of the paper: circular filters, and the test whether an affine map is equivariant (Theorem 3.4).

``size`` is ``(n_1, ..., n_d)`` and ``N`` its product. A vector is a tensor whose last axis has length ``N``, a matrix
one whose last two axes do; leading axes are channels. Row ``delta(M)`` of a circular filter is row 0 translated by
``M``, so multiplying by it is circular cross-correlation with row 0.

Circular filters are built and tested without rounding: entries are moved and compared, never added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import torch
from torch import Tensor

from unshift.shifts import all_shifts, apply, ravel


def translate(vector: Tensor, shift: Sequence[int], size: Sequence[int]) -> Tensor:
    """Translate a vectorised tensor, ``T^M(X)``: Definition 3.1 (Translation).

    >>> translate(torch.tensor([0, 1, 2, 3]), (1,), (4,))
    tensor([3, 0, 1, 2])
    """
    _check_length(vector, size)
    return apply(vector.reshape(1, -1, *size), torch.tensor([[*shift]], dtype=torch.int64)).reshape(vector.shape)


def circular_matrix(row: Tensor, size: Sequence[int]) -> Tensor:
    """Return the circular filter ``W`` with first row ``W_0 = row``: Definition 3.5 (Circular filter).

    ``W_{δ(M)} = T^M(W_0)``; leading axes of ``row`` give one filter each.

    >>> circular_matrix(torch.tensor([1, 2, 3]), (3,))
    tensor([[1, 2, 3],
            [3, 1, 2],
            [2, 3, 1]])
    """
    _check_length(row, size)
    return row[..., _index_sums(size, -1)]


@dataclass(frozen=True)
class Witness:
    """An input ``x`` and a shift ``M`` for which shifting and mapping do not commute."""

    shift: tuple[int, ...]
    input: Tensor  # `(channel, *size)`
    index: tuple[int, ...]  # ``(channel, *I)``, where the two outputs differ
    mapped_after: Fraction | float  # ``A(T^M x)[index]``: shifted first
    mapped_before: Fraction | float  # ``(T^M A(x))[index]``: mapped first


@dataclass(frozen=True)
class Verdict:
    """The result of :func:`check_affine`; true or false in an ``if``."""

    equivariant: bool
    reason: str
    witness: Witness | None = None

    def __bool__(self) -> bool:
        return self.equivariant

    def __str__(self) -> str:
        return f"{'equivariant' if self.equivariant else 'not equivariant'}: {self.reason}"


class Nearest(NamedTuple):
    """The nearest equivariant affine map, and its distance (Frobenius norm, matrix and bias)."""

    matrix: Tensor
    bias: Tensor
    distance: float


def check_affine(matrix: Tensor, bias: Tensor | None, size: Sequence[int]) -> Verdict:
    """Decide whether ``A(X) = W X + C`` is equivariant: Theorem 3.4 and Corollary 3.6, in both directions.

    ``matrix`` is ``(N, N)`` or ``(out, in, N, N)``, ``bias`` ``(N,)``, ``(out, N)`` or None for zero. The decision is
    exact: entries are compared. If a circular diagonal is not constant, the reason names its rarest entry.

    >>> print(check_affine(torch.tensor([[1, 2], [2, 3]]), None, (2,)))
    not equivariant: matrix entry [1, 1] is 3, but [0, 0], which must equal it, is 1
    """
    filters, constants = _with_channels(matrix, bias, size)
    x = torch.zeros(filters.shape[1], math.prod(size), dtype=filters.dtype)
    for out, constant in enumerate(constants):
        rows = _rarest_and_commonest(constant)
        if rows[0] != rows[1]:
            name = [rows[0]] if matrix.ndim == 2 else [out, rows[0]]
            value, other = constant[[*rows]].tolist()
            reason = f"bias entry {name} is {value}, but entry {rows[1]} is {other}"
            return Verdict(False, reason, _affine_witness(filters, constants, size, x, out, *rows))
    # With row M moved back by M, all rows of a circular filter equal row 0: each column is constant.
    diagonals = _index_sums(size, +1)
    aligned = filters.gather(3, diagonals.expand_as(filters))
    broken = (aligned != aligned[:, :, :1]).any(dim=2).nonzero()
    if not len(broken):
        return Verdict(True, "every row is row 0 translated, and the bias is constant")
    out, channel, diagonal = broken[0].tolist()
    rows = _rarest_and_commonest(aligned[out, channel, :, diagonal])
    columns = diagonals[[*rows], diagonal].tolist()
    x[channel, columns[1]] = 1
    prefix = [] if matrix.ndim == 2 else [out, channel]
    entry, reference = ([*prefix, row, column] for row, column in zip(rows, columns, strict=True))
    value, other = filters[out, channel, [*rows], columns].tolist()
    reason = f"matrix entry {entry} is {value}, but {reference}, which must equal it, is {other}"
    return Verdict(False, reason, _affine_witness(filters, constants, size, x, out, *rows))


def nearest_equivariant(matrix: Tensor, bias: Tensor | None, size: Sequence[int]) -> Nearest:
    """Return the equivariant affine map closest to ``W X + C``: Theorem 3.4 as a projection.

    Averaging ``T^-M A T^M`` over the group averages each circular diagonal, and the bias. The group acts by
    permutations, so this is the orthogonal projection in the Frobenius norm. It is rounded to float64.
    """
    filters, constants = (values.double() for values in _with_channels(matrix, bias, size))
    aligned = filters.gather(3, _index_sums(size, +1).expand_as(filters))
    nearest = circular_matrix(aligned.mean(dim=2), size)
    level = constants.mean(dim=1, keepdim=True).expand_as(constants)
    distance = math.hypot(float((filters - nearest).norm()), float((constants - level).norm()))
    return Nearest(nearest.reshape(matrix.shape), level[0] if matrix.ndim == 2 else level, distance)


@torch.no_grad()
def affine_of(function: Callable[[Tensor], Tensor], size: Sequence[int], channels: int = 1) -> tuple[Tensor, Tensor]:
    """Return the ``(out, in, N, N)`` matrix and ``(out, N)`` bias of an affine callable, by probing it.

    ``function`` maps float64 images ``(batch, channels, *size)`` to ``(batch, out, *size)``. The bias is the output
    for the zero image, each column the output for a one-hot image (section 3.2). That it is affine is not checked.
    """
    N = math.prod(size)
    at_zero = function(torch.zeros(1, channels, *size).double())
    if tuple(at_zero.shape[2:]) != tuple(size):
        raise ValueError(f"the map must keep the size {tuple(size)}, got {tuple(at_zero.shape[2:])}")
    bias, one_hot = at_zero[0].flatten(1), torch.eye(channels * N).double().view(-1, channels, *size)
    outputs = torch.cat([function(batch) for batch in one_hot.split(256)])  # in batches, to bound the map's memory
    columns = (outputs.flatten(2) - bias).reshape(channels, N, *bias.shape)
    return columns.permute(2, 0, 3, 1).contiguous(), bias


def _index_sums(size: Sequence[int], sign: int) -> Tensor:
    """Return the ``(N, N)`` table whose entry ``[δ(M), δ(I)]`` is ``δ(I + sign·M)``."""
    grid = all_shifts(tuple(size))
    sums = grid[None] + sign * grid[:, None]
    return ravel(sums.flatten(0, 1), tuple(size)).reshape(len(grid), len(grid))


def _with_channels(matrix: Tensor, bias: Tensor | None, size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the matrix as ``(out, in, N, N)`` and the bias as ``(out, N)``, checked."""
    n = math.prod(size)
    if matrix.ndim not in (2, 4) or tuple(matrix.shape[-2:]) != (n, n):
        raise ValueError(f"matrix must be (N, N) or (out, in, N, N) with N = {n}, got shape {tuple(matrix.shape)}")
    filters = matrix if matrix.ndim == 4 else matrix[None, None]
    constants = torch.zeros(len(filters), n, dtype=filters.dtype) if bias is None else bias.reshape(-1, bias.shape[-1])
    _check_length(constants, size)
    if len(constants) != len(filters):
        raise ValueError(f"bias must have {len(filters)} output channels, got shape {tuple(constants.shape)}")
    if not (torch.isfinite(filters).all() and torch.isfinite(constants).all()):
        raise ValueError("matrix and bias must be finite to compare their entries, got NaN or infinity")
    return filters, constants


def _rarest_and_commonest(values: Tensor) -> tuple[int, int]:
    """Return an index of the rarest and of the most common value; 0 and 0 if all values are equal."""
    _, group, count = values.unique(return_inverse=True, return_counts=True)
    if len(count) == 1:
        return 0, 0
    common = int(count.argmax())
    count[common] = len(values) + 1  # if all values are equally common, the rarest must still be another value
    return int((group == count.argmin()).nonzero()[0]), int((group == common).nonzero()[0])


def _affine_witness(
    filters: Tensor, constants: Tensor, size: Sequence[int], x: Tensor, out: int, row: int, source: int
) -> Witness:
    """Evaluate both sides exactly at output ``row``, for the shift that moves position ``source`` there."""
    grid = all_shifts(tuple(size))
    shift = ((grid[row] - grid[source]) % torch.tensor(size)).tolist()

    def value(x: Tensor, position: int) -> Fraction:
        weights = filters[out, :, position][x != 0].tolist()  # the pixels are 0 or 1
        return sum(map(Fraction, weights), Fraction(constants[out, position].item()))

    values = value(translate(x, shift, size), row), value(x, source)
    return Witness(tuple(shift), x.view(-1, *size), (out, *grid[row].tolist()), *values)


def _check_length(vector: Tensor, size: Sequence[int]) -> None:
    if vector.ndim == 0 or vector.shape[-1] != math.prod(size):
        raise ValueError(
            f"a vector of size {tuple(size)} ends in {math.prod(size)} entries, got shape {tuple(vector.shape)}"
        )
