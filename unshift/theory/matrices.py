"""Section 3 of the paper as matrices: vectorisation, translation and circular filters.

Convention
----------
``size`` is ``(n_1, ..., n_d)`` and ``N`` its product. A vector is a tensor whose last axis has
length ``N``, a matrix one whose last two do; leading axes (channels) are carried along. Row
``delta(M)`` of a circular filter is row 0 translated by ``M``, so that multiplying by it is
circular cross-correlation with row 0::

    circular_matrix([a, b, c], (3,)) == [[a, b, c],
                                         [c, a, b],
                                         [b, c, a]]

Nothing here rounds: entries are moved and compared, never added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from unshift.shifts import apply

__all__ = [
    "check_length",
    "check_square",
    "circular_matrix",
    "delta",
    "is_circular",
    "pairwise",
    "positions",
    "translate",
    "vectorize",
]


def delta(index: Sequence[int], size: Sequence[int]) -> int:
    """Return the place of tensor index ``I`` in the vector: δ of Definition 3.3 (Vectorization).

    Indices are taken modulo the size, as the paper extends them to all of Z^d.

    >>> delta((1, 2), (3, 4)), delta((-1, -1), (3, 4))
    (6, 11)
    """
    if len(index) != len(size):
        raise ValueError(f"index must have one entry per axis of size {tuple(size)}, got {tuple(index)}")
    place = 0
    for i, n in zip(index, size, strict=True):
        place = place * n + i % n
    return place


def vectorize(x: Tensor, size: Sequence[int]) -> Tensor:
    """Flatten the spatial axes, which must be the last ones: Definition 3.3 (Vectorization).

    >>> vectorize(torch.tensor([[1, 2], [3, 4]]), (2, 2))
    tensor([1, 2, 3, 4])
    """
    d = len(size)
    if x.ndim < d or tuple(x.shape[x.ndim - d :]) != tuple(size):
        raise ValueError(f"x must end in the spatial size {tuple(size)}, got shape {tuple(x.shape)}")
    return x.reshape(*x.shape[: x.ndim - d], math.prod(size))


def translate(vector: Tensor, shift: Sequence[int], size: Sequence[int]) -> Tensor:
    """Translate a vectorised tensor, ``T^M(X)``: Definitions 3.1 (Translation) and 3.3.

    >>> translate(torch.tensor([0, 1, 2, 3]), (1,), (4,))
    tensor([3, 0, 1, 2])
    """
    check_length(vector, size)
    moved = apply(vector.reshape(1, -1, *size), torch.tensor([list(shift)], dtype=torch.int64))
    return moved.reshape(vector.shape)


def circular_matrix(row: Tensor, size: Sequence[int]) -> Tensor:
    """Return the circular filter ``W`` with first row ``W_0 = row``: Definition 3.5 (Circular filter).

    ``W_{δ(M)} = T^M(W_0)``; leading axes of ``row`` give one filter each.

    >>> circular_matrix(torch.tensor([1, 2, 3]), (3,))
    tensor([[1, 2, 3],
            [3, 1, 2],
            [2, 3, 1]])
    """
    check_length(row, size)
    return row[..., pairwise(size, -1)]


def is_circular(matrix: Tensor, size: Sequence[int]) -> bool:
    """Tell whether ``matrix`` is a circular filter, entry for entry: Definition 3.5 (Circular filter)."""
    check_square(matrix, size)
    return torch.equal(matrix, circular_matrix(matrix[..., 0, :], size))


def positions(size: Sequence[int]) -> Tensor:
    """Return every index of the grid, ``(N, d)``, in the order of :func:`delta`."""
    axes = torch.meshgrid(*(torch.arange(n) for n in size), indexing="ij")
    return torch.stack([axis.flatten() for axis in axes], dim=1)


def pairwise(size: Sequence[int], sign: int) -> Tensor:
    """Return the ``(N, N)`` table whose entry ``[δ(M), δ(I)]`` is ``δ(I + sign·M)``."""
    grid = positions(size)
    table = torch.zeros(len(grid), len(grid), dtype=torch.int64)
    for axis, n in enumerate(size):
        table = table * n + (grid[None, :, axis] + sign * grid[:, None, axis]) % n
    return table


def check_length(vector: Tensor, size: Sequence[int]) -> None:
    """Raise a ``ValueError`` unless the last axis holds one entry per position of ``size``."""
    n = math.prod(size)
    if vector.ndim == 0 or vector.shape[-1] != n:
        raise ValueError(f"a vector of size {tuple(size)} ends in {n} entries, got shape {tuple(vector.shape)}")


def check_square(matrix: Tensor, size: Sequence[int]) -> None:
    """Raise a ``ValueError`` unless the last two axes are ``N x N``."""
    n = math.prod(size)
    if matrix.ndim < 2 or tuple(matrix.shape[-2:]) != (n, n):
        raise ValueError(f"a matrix of size {tuple(size)} ends in ({n}, {n}), got shape {tuple(matrix.shape)}")
