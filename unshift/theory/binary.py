"""Binary decomposition by a ReLU network (Lemmas 4.3 and B.1).

``Q`` is the paper's: values lie in ``[2^(Q+1)] = {0, ..., 2^(Q+1) - 1}``, so they have ``Q + 1``
bits (the paper writes ``η: [2^(Q+1)] → B^Q``, one too few). Bits come least significant first::

    η(2) == (0, 1, 0)        η(3) == (1, 1, 0)        for Q = 2

For images, bit ``q`` of channel ``p`` is channel ``q·P + p`` (the paper's index ``k × p``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from unshift.shifts import check_images
from unshift.theory.canonical import CanonicalLayer, CanonicalNetwork

__all__ = ["binary_layers", "binary_network", "bit_planes", "check_integers", "decompose", "least_Q"]

_MOST_Q_INT64 = 61  # values below 2^62
_MOST_Q_FLOAT64 = 50  # partial sums below 2^(Q+3) = 2^53, where float64 still counts by ones


def binary_layers(Q: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return ``(w_l, b_l)`` of the ``2Q+2`` layers ``σ(w z + b)``: Lemma B.1.

    From the top bit down, ``x_q = σ(1 - σ(2^q + 2^(q+1) x_(q+1) + … + 2^Q x_Q - x))``: two layers a
    bit. The state is ``(x, x_Q, …)``, then the last bit takes the place of ``x``, so no layer is wider
    than ``Q + 1``. Python integers in object arrays: exact for any ``Q``. The last layer's rows are
    ordered so that ``x_0, …, x_Q`` come out in that order (the paper leaves ``x_0, x_Q, …, x_1``).

    Args:
        Q: Values have ``Q + 1`` bits.

    Returns:
        Weights ``(out, in)`` and bias ``(out,)`` of each layer.

    Raises:
        ValueError: If ``Q`` is negative.
    """
    if Q < 0:
        raise ValueError(f"Q must be 0 or more (values have Q + 1 bits), got {Q}")
    layers = []
    for q in range(Q, -1, -1):
        state = Q - q + 1  # x and the bits above q
        known = [2**k for k in range(Q, q, -1)]
        keep = np.eye(state, dtype=int).astype(object)
        # σ(2^q + … - x) is 0 where bit q is set and at least 1 elsewhere …
        test = np.array([[-1, *known]], dtype=object)
        first = np.concatenate([keep, test]) if q else np.concatenate([test, keep[1:]])
        bias = np.array([0] * (len(first) - 1) + [2**q] if q else [1] + [0] * Q, dtype=object)
        layers.append((first, bias))
        # … so σ(1 - that) is the bit.
        flip = np.eye(len(first), dtype=int).astype(object)
        where = len(first) - 1 if q else 0
        flip[where, where] = -1
        bias = np.array([int(i == where) for i in range(len(first))], dtype=object)
        layers.append((flip, bias))
    order = [0, *range(Q, 0, -1)]
    weights, bias = layers[-1]
    layers[-1] = (weights[order], bias[order])
    return layers


def decompose(values: Sequence[int], Q: int) -> list[tuple[int, ...]]:
    """Run the network of :func:`binary_layers` on integers, exactly: Lemma B.1.

    >>> decompose([2, 3], Q=2)
    [(0, 1, 0), (1, 1, 0)]

    Args:
        values: Integers in ``[0, 2^(Q+1))``.
        Q: Values have ``Q + 1`` bits.

    Returns:
        The bits of each value, least significant first.

    Raises:
        ValueError: If a value is out of range.
    """
    _check_range(min(values, default=0), max(values, default=0), Q)
    state = np.array([list(values)], dtype=object)
    for weights, bias in binary_layers(Q):
        state = np.maximum(weights @ state + bias[:, None], 0)
    return [tuple(int(bit) for bit in column) for column in state.T]


def binary_network(Q: int, size: Sequence[int], channels: int = 1) -> CanonicalNetwork:
    """Lift the network to images, as layers with 1x1 circular filters: Lemma 4.3.

    Depth ``2Q+2``; width ``(Q+1)·P·N``. (The lemma says ``(Q+1)N``, which is this for ``P = 1``; its
    proof has ``n_l = K_l × P`` channels.) Float64, exact while ``Q ≤ 50``.

    Args:
        Q: Pixels have ``Q + 1`` bits.
        size: The spatial size of an image.
        channels: Its channels ``P``.

    Returns:
        A network from images ``(batch, P, *size)`` to bits ``(batch, (Q+1)·P, *size)``.

    Raises:
        ValueError: If float64 cannot hold the numbers of this ``Q``.
    """
    if Q > _MOST_Q_FLOAT64:
        raise ValueError(
            f"Q = {Q} needs integers up to 2^{Q + 3}, float64 is exact to 2^53 (Q <= {_MOST_Q_FLOAT64}): "
            "use decompose or bit_planes"
        )
    layers = []
    for weights, bias in binary_layers(Q):
        per_channel = torch.kron(torch.tensor(weights.astype(float)), torch.eye(channels, dtype=torch.float64))
        rows = per_channel.reshape(*per_channel.shape, *[1] * len(size))
        layers.append(CanonicalLayer(rows, torch.tensor(bias.astype(float)).repeat_interleave(channels)))
    return CanonicalNetwork(layers, tuple(size))


def bit_planes(images: Tensor, Q: int) -> Tensor:
    """Return ``η(X)`` as uint8, ``(batch, (Q+1)·P, *size)``, by shifting bits: what Lemma 4.3 computes.

    >>> bit_planes(torch.tensor([[[3, 2]]]), Q=2).tolist()
    [[[1, 0], [1, 1], [0, 0]]]

    Args:
        images: ``(batch, P, *size)``, of any real type.
        Q: Pixels have ``Q + 1`` bits.

    Returns:
        The bits of all pixels.

    Raises:
        ValueError: If a pixel is not an integer in ``[0, 2^(Q+1))``.
    """
    integers = check_integers(images, Q)
    planes = [((integers >> q) & 1).to(torch.uint8) for q in range(Q + 1)]
    return torch.cat(planes, dim=1)


def check_integers(images: Tensor, Q: int) -> Tensor:
    """Return ``images`` as int64, or raise a ``ValueError`` unless they are integers in ``[2^(Q+1)]``."""
    check_images(images)
    if not 0 <= Q <= _MOST_Q_INT64:
        raise ValueError(f"Q must be in 0..{_MOST_Q_INT64} for images held as int64, got {Q}")
    if not images.is_floating_point():
        images = images.to(torch.int64)  # the narrow unsigned types cannot be compared on every build
    elif not (images == images.floor()).all():
        raise ValueError(
            f"images must hold integers in [0, {2 ** (Q + 1)}), got {images.dtype} with fractions or NaN: "
            "give raw pixels, not pixels scaled to [0, 1]"
        )
    if images.numel():
        _check_range(images.min().item(), images.max().item(), Q)
    return images.to(torch.int64)


def least_Q(images: Tensor) -> int:
    """Return the least ``Q`` whose ``Q + 1`` bits hold the largest pixel."""
    largest = images.max().item() if images.is_floating_point() else images.to(torch.int64).max().item()
    if not math.isfinite(largest):
        raise ValueError(f"images must hold integers, got a largest pixel of {largest}")
    return max(int(largest).bit_length() - 1, 0)


def _check_range(low: float, high: float, Q: int) -> None:
    if low < 0 or high >= 2 ** (Q + 1):
        raise ValueError(f"values must lie in [0, {2 ** (Q + 1)}) for Q = {Q}, got values from {low} to {high}")
