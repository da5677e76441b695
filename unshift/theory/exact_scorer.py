"""The network that the theorem constructs, evaluated exactly (Lemma 4.4, Theorem 4.5, appendix C).

The lemma orders the binary images ``Z_1, …, Z_S`` by norm and correlates with each of them::

    F(Z)[δ(M)] = 1/S Σ_s α^(s-1) σ( T^M(Z_s)·Z / ||Z_s|| + 1/(2GN+1) - ||Z_(s-1)|| )

``T^M(Z_s)·Z`` counts the bits that ``T^M(Z_s)`` and ``Z`` share: an integer, the *overlap*. So the
s-th ReLU is on exactly where the overlap reaches an integer :func:`threshold`, and a dataset image
turns on its own filter and none above it. That leaves a rule without ``α``: **the highest filter
that is on anywhere decides, by its overlap**. :class:`ExactScorer` is that rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import torch
from torch import Tensor, nn

from unshift.shifts import check_images
from unshift.theory.aperiodic import is_aperiodic
from unshift.theory.binary import bit_planes, check_integers, least_Q
from unshift.theory.surds import Surd

__all__ = ["ExactScorer", "alpha", "offset", "overlaps", "theorem_values", "threshold"]

_FILTERS = 32  # correlated at once, at most: bounds the memory


def alpha(G: int, N: int) -> int:
    """Return the least ``α`` that the proof of Lemma 4.4 allows, ``1 + GN + 2G²N²``."""
    return 1 + G * N + 2 * (G * N) ** 2


def offset(previous: int | None, K: int) -> Surd:
    """Return ``1/K - ||Z_(s-1)||``, the bias in Lemma C.2 (0 for the first image, as ``||Z_0|| = 1/K``)."""
    return Surd() if previous is None else Surd.of(Fraction(1, K)) - Surd.root(previous)


def threshold(n: int, previous: int | None, GN: int) -> int:
    """Return the least overlap that turns a filter on: the ReLU of Lemma C.2, solved for integers.

    ``n = ||Z_s||²`` and ``previous = ||Z_(s-1)||²``, ``None`` for ``s = 1`` where the paper sets
    ``||Z_0|| = 1/(2GN+1)``. The filter is on where ``c/√n + 1/K - √previous > 0``, ``K = 2GN+1``, i.e.
    ``c > √(n·previous) - √n/K``. Since ``√n < K`` only two integers can be the least.
    """
    if previous is None:
        return 1
    K, product = 2 * GN + 1, n * previous
    c = math.isqrt(product)
    # c + √n/K > √product, squared and times K²; both sides were positive.
    right = K * K * (product - c * c) - n
    on = right < 0 or 4 * c * c * K * K * n > right * right
    return c if on else c + 1


def overlaps(filters: Tensor, images: Tensor) -> Tensor:
    """Return ``T^M(Z_s)·Z`` for every ``M``: the inner products of Lemma C.1, as exact integers.

    Computed by a float64 FFT and rounded. With ``ε = 2^-53·(100·log2(2N) + G)``, well above the relative error of one
    transform or sum, the error is below ``ε(4 + √N)·GN`` (two transforms in, one out, where an L2 error bounds every
    entry): 2e-8 for 8 planes of 28x28. A size for which that bound is not below 1/4 is refused.

    Args:
        filters: Bits ``(k, G, *size)``.
        images: Bits ``(b, G, *size)``.

    Returns:
        int64 ``(b, k, *size)``.

    Raises:
        ValueError: If the images are too large for the bound.
    """
    size = tuple(images.shape[2:])
    G, N = images.shape[1], math.prod(size)
    bound = 2**-53 * (100 * math.log2(2 * N) + G) * (4 + math.sqrt(N)) * G * N
    if bound >= 0.25:
        raise ValueError(f"images of {G * N} bits are too large for an exact float64 correlation (error {bound:.2g})")
    axes = tuple(range(1, len(size) + 1))
    product = torch.zeros((), dtype=torch.complex128)
    for image, filter in zip(images.unbind(1), filters.unbind(1), strict=True):  # a plane at a time stays in cache
        spectra = [torch.fft.rfftn(plane.double(), dim=axes) for plane in (image, filter)]
        product = product + spectra[0][:, None] * spectra[1].conj()
    result: Tensor = torch.fft.irfftn(product, s=size, dim=tuple(range(2, len(size) + 2)))
    rounded = result.round()
    # A guard on the FFT at hand, not the proof: the bound above is.
    assert float((result - rounded).abs().max()) <= bound, "the FFT is less accurate than its bound"
    return rounded.long()


class ExactScorer(nn.Module):
    """The restorer of Lemma 4.4 and Theorem 4.5 for ``dataset``, as a scorer for ``Restorer``.

    Maps integer images ``(batch, channel, *size)`` to int64 scores ``(batch, *size)``: the overlap with
    the highest filter that is on, where it is on, and 0 elsewhere. Exact for any number of images.

    - *Equivariant for every image*: counts of bits do not change under a shift, so neither does
      the filter that decides, and integer correlations shift with the image.
    - *The theorem's answer for dataset images*: by Lemma C.2 the network and this rule both have
      their only maximum at the shift that was applied; :func:`unshift.theory.certify` computes it.
      (For other images the network may let lower filters break ties; both rules are equivariant.)

    Args:
        dataset: Integer images ``(image, channel, *size)``. Those that occur twice count once.
        Q: Pixels have ``Q + 1`` bits. Default: as many as the largest pixel needs.

    Raises:
        ValueError: If the dataset is empty or not aperiodic (the message names the images), or a pixel is not
            an integer in range.
    """

    order: Tensor
    images: Tensor
    counts: Tensor
    thresholds: Tensor

    def __init__(self, dataset: Tensor, Q: int | None = None) -> None:
        super().__init__()
        check_images(dataset)
        if not len(dataset):
            raise ValueError("dataset must hold at least one image, got none")
        self.Q = least_Q(dataset) if Q is None else Q
        integers = check_integers(dataset, self.Q)
        answer = is_aperiodic(dataset)
        if not answer:
            raise ValueError(f"no restorer exists for this dataset, it is {answer}")
        self.score_unit = 1.0
        """The value of one step of the score in nats, for the confidence: one shared bit."""
        kept = torch.ones(len(dataset), dtype=torch.bool)
        kept[list(answer.repeats)] = False
        kept_images = (integers if dataset.is_floating_point() else dataset)[kept]
        counts = torch.cat([_counts(bit_planes(part, self.Q)) for part in kept_images.split(1024)])
        order = counts.sum(1).argsort(stable=True)
        # Which dataset image each filter is: filters are ordered by norm, as the lemma wants.
        self.register_buffer("order", kept.nonzero().flatten()[order])
        self.register_buffer("images", kept_images[order])
        self.register_buffer("counts", counts[order])
        norms = self.norms()
        limits = [threshold(n, norms[s - 1] if s else None, self.GN) for s, n in enumerate(norms)]
        self.register_buffer("thresholds", torch.tensor(limits))

    @property
    def G(self) -> int:
        """Bit planes of an image: ``P·(Q+1)`` (the paper's ``G = PQ`` is one bit short)."""
        return self.images.shape[1] * (self.Q + 1)

    @property
    def GN(self) -> int:
        """Bits of an image."""
        return self.images[0].numel() * (self.Q + 1)

    def norms(self) -> list[int]:
        """Return ``||Z_s||²`` in the filters' order, which is increasing."""
        return [int(n) for n in self.counts.sum(1)]

    def forward(self, images: Tensor) -> Tensor:
        """Return int64 scores ``(batch, *size)`` whose argmax is the shift."""
        return self.match(images)[0]

    def match(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores, and for each image which filter decided (-1: none is on)."""
        if check_images(images) != tuple(self.images.shape[2:]) or images.shape[1] != self.images.shape[1]:
            wanted = tuple(self.images.shape[1:])
            raise ValueError(f"images must be (batch, *{wanted}) like the dataset, got {tuple(images.shape)}")
        planes = bit_planes(images, self.Q)
        scores = torch.zeros_like(planes[:, 0], dtype=torch.int64)
        decided = torch.full((len(images),), -1, device=images.device)
        # All shifts of an image have the same counts, hence the same candidates: one search for them.
        kinds, kind = _counts(planes).unique(dim=0, return_inverse=True)
        for k, count in enumerate(kinds):
            # In a plane, no shift can share more bits than the fewer of the two has.
            most = torch.minimum(self.counts, count).sum(1)
            candidates = (most >= self.thresholds).nonzero().flatten().flip(0)
            left = (kind == k).nonzero().flatten()
            for chosen in _growing(candidates):
                shared = overlaps(bit_planes(self.images[chosen], self.Q), planes[left])
                limit = self.thresholds[chosen].reshape(-1, *[1] * (images.ndim - 2))
                shared = shared * (shared >= limit)
                on = shared.flatten(2).any(2)
                found, first = on.any(1), on.int().argmax(1)
                scores[left[found]] = shared[found, first[found]]
                decided[left[found]] = chosen[first[found]]
                left = left[~found]
                if not len(left):
                    break
        return scores, decided


def _growing(candidates: Tensor) -> Iterator[Tensor]:
    """Yield the candidates in order: one, two, four … For a dataset image the first is mostly the one."""
    start, step = 0, 1
    while start < len(candidates):
        yield candidates[start : start + step]
        start, step = start + step, min(2 * step, _FILTERS)


def _counts(planes: Tensor) -> Tensor:
    return planes.flatten(2).sum(2)


def theorem_values(scorer: ExactScorer, image: Tensor) -> list[Surd]:
    """Return ``F(X)[0], …, F(X)[N-1]`` exactly, ``α^(s-1)`` and square roots and all: Theorem 4.5.

    For any number of dataset images and any integer image ``(channel, *size)``; slow (Python
    integers), and the yardstick for the two fast ways: :class:`ExactScorer` and the float64 layers.
    """
    planes = bit_planes(image[None], scorer.Q)
    norms, thresholds = scorer.norms(), scorer.thresholds.tolist()
    S, K, base = len(norms), 2 * scorer.GN + 1, alpha(scorer.G, scorer.GN // scorer.G)
    values = [Surd()] * (scorer.GN // scorer.G)
    for s, n in enumerate(norms):
        shared = overlaps(bit_planes(scorer.images[s : s + 1], scorer.Q), planes).flatten().tolist()
        weight = Fraction(base**s, S)
        root, constant = Surd.root(n), offset(norms[s - 1] if s else None, K)
        for i, c in enumerate(shared):
            if c >= thresholds[s]:
                values[i] += (root * Fraction(c, n) + constant) * weight
    return values
