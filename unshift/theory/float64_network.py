"""The theorem's network as real layers, for as long as float64 holds its numbers (Lemma 4.4, Theorem 4.5).

Layers of :mod:`unshift.theory.canonical`: a demonstration that the construction is what it says. To
restore images use :class:`unshift.theory.ExactScorer`, which needs no powers of alpha.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from unshift.theory.binary import binary_network, bit_planes
from unshift.theory.canonical import CanonicalLayer, CanonicalNetwork
from unshift.theory.exact_scorer import ExactScorer, alpha, offset

__all__ = ["Float64Limits", "binary_restorer", "float64_limits", "theorem_network"]


class Float64Limits(NamedTuple):
    """How many dataset images the theorem's network bears in float64."""

    exact: int
    """Every power of alpha is below 2^53, so an exact integer in float64."""
    overflow: int
    """No number in the network exceeds 1.8e308, whatever the image."""


def float64_limits(G: int, N: int) -> Float64Limits:
    """Return the most images for which Lemma 4.4's ``α^(s-1)`` is exact, and fits, in float64.

    Nothing in the network exceeds ``2·α^(S-1)·√(GN)``: an activation is below ``α^(s-1)·||Z_s||``, and
    their sum is a geometric series. For MNIST, 8 bits of 28x28, that is 3 and 39 images.

    >>> float64_limits(8, 28 * 28)
    Float64Limits(exact=3, overflow=39)
    """
    base, most = alpha(G, N), int(torch.finfo(torch.float64).max)
    exact = overflow = 1
    while base**exact <= 2**53:
        exact += 1
    while 2 * base**overflow * (math.isqrt(G * N) + 1) <= most:
        overflow += 1
    return Float64Limits(exact, overflow)


def binary_restorer(dataset: Tensor) -> CanonicalNetwork:
    """Return the 2-layer network of Lemma 4.4 for a *binary* aperiodic dataset, as float64 layers.

    Width ``SN``.

    Args:
        dataset: Images ``(image, channel, *size)`` of zeros and ones.

    Returns:
        The network, from images ``(batch, channel, *size)`` to scores.

    Raises:
        ValueError: If the dataset is not binary, or not aperiodic.
        OverflowError: If ``α^(S-1)`` does not fit in float64. The message gives the limit.
    """
    scorer = ExactScorer(dataset, Q=0)
    return CanonicalNetwork(_restoring_layers(scorer), tuple(dataset.shape[2:]))


def theorem_network(dataset: Tensor, Q: int | None = None) -> CanonicalNetwork:
    """Return the network of Theorem 4.5, Lemma 4.3 followed by Lemma 4.4, as float64 layers.

    Depth ``2Q+4``, width ``max(S, (Q+1)·P)·N``. :class:`ExactScorer` does the same for any number of images.

    Args:
        dataset: Integer images ``(image, channel, *size)``.
        Q: Pixels have ``Q + 1`` bits. Default: as many as the largest pixel needs.

    Returns:
        The network, from images ``(batch, channel, *size)`` to scores.

    Raises:
        ValueError: If the dataset is not aperiodic, or a pixel is out of range.
        OverflowError: If ``α^(S-1)`` does not fit in float64. The message gives the limit.
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
        raise ValueError(
            f"images of {scorer.GN} bits are too large for float64 to tell the theorem's gap: use ExactScorer"
        )
    norms = scorer.norms()
    weights = torch.tensor([float(alpha(G, N) ** s) for s in range(S)], dtype=torch.float64)
    offsets = [float(offset(norms[s - 1] if s else None, K)) for s in range(S)]
    scale = weights / torch.tensor(norms, dtype=torch.float64).sqrt()
    planes = bit_planes(scorer.images, scorer.Q).double()
    rows = planes * scale.reshape(-1, *[1] * (planes.ndim - 1))
    mean = torch.full((1, S, *[1] * (planes.ndim - 2)), 1 / S, dtype=torch.float64)
    bias = weights * torch.tensor(offsets, dtype=torch.float64)
    return [CanonicalLayer(rows, bias), CanonicalLayer(mean, torch.zeros(1))]
