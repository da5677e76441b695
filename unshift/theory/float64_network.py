"""The canonical architecture and the networks that the paper constructs, in integers and as float64 layers.

Equations (network) and (layer) of section 3.3, Definition 4.1, Lemmas 4.3, 4.4 and B.1, Theorem 4.5. To restore images
use :class:`unshift.theory.ExactScorer`, which needs no powers of alpha.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unshift.shifts import check_images
from unshift.theory.exact_scorer import ExactScorer, alpha, bit_planes, check_range

LARGEST_Q = 50
"""The partial sums of the binary decomposition are below 2^(Q+3) = 2^53, where float64 is still exact on integers."""


def binary_layers(Q: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return ``(w_l, b_l)`` of the ``2Q+2`` layers ``σ(w z + b)``: Lemma B.1.

    From the top bit down, ``x_q = σ(1 - σ(2^q + 2^(q+1) x_(q+1) + … + 2^Q x_Q - x))``: two layers per bit. The state is
    ``(x, x_Q, …)``; the last bit replaces ``x``, so no layer is wider than ``Q + 1``. The entries are Python integers
    in object arrays: exact for any ``Q``. The rows of the last layer are ordered so that the outputs are
    ``x_0, …, x_Q`` (the paper leaves ``x_0, x_Q, …, x_1``).
    """
    if Q < 0:
        raise ValueError(f"Q must be 0 or more (values have Q + 1 bits), got {Q}")
    layers = []
    for q in range(Q, -1, -1):
        state = Q - q + 1  # x and the bits above q
        width, row = (state + 1, state) if q else (state, 0)  # the row of bit q
        # σ(2^q + … - x) is 0 if bit q is set, and at least 1 otherwise …
        test = np.eye(width, state, dtype=int).astype(object)
        test[row] = [-1, *(2**k for k in range(Q, q, -1))]
        is_row = np.arange(width) == row
        layers.append((test, is_row.astype(object) * 2**q))
        # … so σ(1 - that) is the bit.
        layers.append((np.diag(1 - 2 * is_row).astype(object), is_row.astype(int).astype(object)))
    order = [0, *range(Q, 0, -1)]
    weights, bias = layers[-1]
    return [*layers[:-1], (weights[order], bias[order])]


def decompose(values: Sequence[int], Q: int) -> list[tuple[int, ...]]:
    """Return the bits of each value, least significant first: run :func:`binary_layers` on integers, exactly.

    >>> decompose([2, 3], Q=2)
    [(0, 1, 0), (1, 1, 0)]
    """
    check_range(min(values, default=0), max(values, default=0), Q)
    state = np.array([list(values)], dtype=object)
    for weights, bias in binary_layers(Q):
        state = np.maximum(weights @ state + bias[:, None], 0)
    return [tuple(int(bit) for bit in column) for column in state.T]


class CanonicalLayer(nn.Module):
    """One layer ``σ(W·X + C)`` of the canonical architecture: equation (layer), σ the ReLU.

    ``rows[k, r]`` is row 0 of the circular filter ``W^{k,r}``, of the image's size, or of size 1 in every axis for a
    multiple of the identity; ``bias[k]`` is the constant ``Σ_r C^{k,r}``.
    """

    rows: Tensor
    bias: Tensor

    def __init__(self, rows: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.register_buffer("rows", rows.double())
        self.register_buffer("bias", bias.double())

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(batch, in, *size)`` to ``(batch, out, *size)``, both float64."""
        kernel = self.rows.shape[2:]
        # With circular padding of one size less one, an ordinary cross-correlation is the circular one.
        padding = [side for k in reversed(kernel) for side in (0, k - 1)]
        convolve = (F.conv1d, F.conv2d, F.conv3d)[len(kernel) - 1]
        return F.relu(convolve(F.pad(x, padding, mode="circular"), self.rows, self.bias))


class CanonicalNetwork(nn.Sequential):
    """A sequence of layers: equation (network), with the paper's depth and width."""

    def __init__(self, layers: Sequence[CanonicalLayer], size: Sequence[int]) -> None:
        super().__init__(*layers)
        self.layers, self.size, self.depth = tuple(layers), tuple(size), len(layers)

    @property
    def width(self) -> int:
        """The largest number of neurons in a layer: its channels times the ``N`` positions."""
        return max(len(layer.bias) for layer in self.layers) * math.prod(self.size)

    def forward(self, images: Tensor) -> Tensor:
        """Map images ``(batch, channel, *size)`` of any real type through all layers, in float64."""
        if check_images(images) != self.size:
            raise ValueError(f"this network is for images of size {self.size}, got {tuple(images.shape[2:])}")
        features = images.double()
        for layer in self.layers:
            features = layer(features)
        return features


def is_estimator(network: Callable[[Tensor], Tensor], dataset: Tensor, *, unique: bool = True) -> bool:
    """Return whether ``network`` has its maximum at position 0 for all of ``dataset``: Definition 4.1.

    As the paper words it (``unique=False``) a constant map is an estimator too; to determine a shift, position 0 must
    be the *only* maximum.
    """
    values = network(dataset).flatten(1)
    highest = values == values.amax(dim=1, keepdim=True)
    return bool((highest[:, 0] & ((highest.sum(dim=1) == 1) | (not unique))).all())


def binary_network(Q: int, size: Sequence[int], channels: int = 1) -> CanonicalNetwork:
    """Return the network of :func:`binary_layers` for images, with 1x1 circular filters: Lemma 4.3.

    Depth ``2Q+2``; width ``(Q+1)·P·N``. (The lemma says ``(Q+1)N``, which is this for ``P = 1``; its
    proof has ``n_l = K_l × P`` channels.) Maps images ``(batch, P, *size)`` to bits ``(batch, (Q+1)·P, *size)``.
    """
    if Q > LARGEST_Q:
        raise ValueError(
            f"Q = {Q} needs integers up to 2^{Q + 3}, float64 is exact to 2^53 (Q <= {LARGEST_Q}): "
            "use decompose or bit_planes"
        )
    layers = []
    for weights, bias in binary_layers(Q):
        per_channel = torch.kron(torch.tensor(weights.astype(float)), torch.eye(channels, dtype=torch.float64))
        rows = per_channel.reshape(*per_channel.shape, *[1] * len(size))
        layers.append(CanonicalLayer(rows, torch.tensor(bias.astype(float)).repeat_interleave(channels)))
    return CanonicalNetwork(layers, size)


def binary_restorer(dataset: Tensor) -> CanonicalNetwork:
    """Return the 2-layer network of Lemma 4.4, of width ``SN``, for a *binary* aperiodic dataset."""
    return CanonicalNetwork(_restoring_layers(ExactScorer(dataset, Q=0)), tuple(dataset.shape[2:]))


def theorem_network(dataset: Tensor, Q: int | None = None) -> CanonicalNetwork:
    """Return the network of Theorem 4.5, Lemma 4.3 followed by Lemma 4.4.

    Depth ``2Q+4``, width ``max(S, (Q+1)·P)·N``. :class:`ExactScorer` takes the same arguments, and does the same for
    any number of images: where ``α^(S-1)`` does not fit in float64, an ``OverflowError`` names the limit.
    """
    scorer = ExactScorer(dataset, Q)
    size = tuple(dataset.shape[2:])
    binary = binary_network(scorer.Q, size, dataset.shape[1])
    return CanonicalNetwork([*binary.layers, *_restoring_layers(scorer)], size)


def _restoring_layers(scorer: ExactScorer) -> list[CanonicalLayer]:
    """Return ``F_1`` (the matched filters, weighted) and ``F_2`` (their mean) of appendix C."""
    S, K, G = len(scorer.images), 2 * scorer.GN + 1, scorer.G
    N = scorer.GN // G
    limit = float64_limits(G, N).overflow
    if limit < S:
        raise OverflowError(
            f"alpha^{S - 1} with alpha = {alpha(G, N)} leaves float64: for {G} bit planes of {N} pixels the network "
            f"holds at most {limit} images, got {S}; ExactScorer holds any number"
        )
    if scorer.GN**5 >= 2**100:
        # The gap, 1/K of activations up to √GN, must stay above the rounding of GN-term sums.
        raise ValueError(f"images of {scorer.GN} bits are too large: float64 rounds away the gap; use ExactScorer")
    norms = torch.tensor(scorer.norms(), dtype=torch.float64).sqrt()
    weights = torch.tensor([float(alpha(G, N) ** s) for s in range(S)], dtype=torch.float64)
    offsets = torch.cat([torch.zeros(1), 1 / K - norms[:-1]])  # 0 for the first image, as ||Z_0|| = 1/K
    planes = bit_planes(scorer.images, scorer.Q).double()
    rows = planes * (weights / norms).reshape(-1, *[1] * (planes.ndim - 1))
    mean = torch.full((1, S, *[1] * (planes.ndim - 2)), 1 / S, dtype=torch.float64)
    return [CanonicalLayer(rows, weights * offsets), CanonicalLayer(mean, torch.zeros(1))]


class Float64Limits(NamedTuple):
    """The largest datasets whose theorem network float64 can hold."""

    exact: int  # number of images up to which every power of alpha is at most 2^53, so an exact integer
    overflow: int  # number of images up to which no number in the network exceeds 1.8e308, for any input


def float64_limits(G: int, N: int) -> Float64Limits:
    """Return how many images with ``G`` bit planes of ``N`` pixels float64 allows in Lemma 4.4.

    Nothing in the network exceeds ``2·α^(S-1)·√(GN)``: an activation is below ``α^(s-1)·||Z_s||``, and
    their sum is a geometric series. For MNIST, 8 bits of 28x28, that is 3 and 39 images.

    >>> float64_limits(8, 28 * 28)
    Float64Limits(exact=3, overflow=39)
    """
    base, largest = alpha(G, N), int(torch.finfo(torch.float64).max)
    exact = overflow = 1
    while base**exact <= 2**53:
        exact += 1
    while 2 * base**overflow * (math.isqrt(G * N) + 1) <= largest:
        overflow += 1
    return Float64Limits(exact, overflow)
