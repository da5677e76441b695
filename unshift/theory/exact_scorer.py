"""The exact restorer of a dataset, and the certificate that it restores (Lemma 4.4, Theorem 4.5, appendix C).

``Q`` is the paper's: pixels lie in ``[2^(Q+1)] = {0, ..., 2^(Q+1) - 1}``, so they have ``Q + 1`` bits (the paper writes
``η: [2^(Q+1)] → B^Q``, one too few). Bits come least significant first: ``η(2) == (0, 1, 0)`` for ``Q = 2``. Bit ``q``
of channel ``p`` is channel ``q·P + p`` (the paper's index ``k × p``).

The lemma orders the binary images ``Z_1, …, Z_S`` by norm and correlates with each of them::

    F(Z)[δ(M)] = 1/S Σ_s α^(s-1) σ( T^M(Z_s)·Z / ||Z_s|| + 1/(2GN+1) - ||Z_(s-1)|| )

``T^M(Z_s)·Z`` counts the bits that ``T^M(Z_s)`` and ``Z`` share: an integer, the *overlap*. So the s-th ReLU is active
exactly if the overlap reaches an integer :func:`threshold`, and a dataset image activates its filter and none above it.
:class:`ExactScorer` applies this without ``α``: its scores are the overlaps with the highest active filter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from unshift.exact import Scorer, rank_restored
from unshift.shifts import all_shifts, apply, check_images, undo, unravel

LARGEST_Q = 61  # largest Q for images: values are below 2^62, and fit in int64
FILTERS = 32  # largest number of filters correlated at once, which bounds the memory


def bit_planes(images: Tensor, Q: int) -> Tensor:
    """Return ``η(X)`` as uint8, ``(batch, (Q+1)·P, *size)``, by bit shifts: the map that Lemma 4.3 realises.

    >>> bit_planes(torch.tensor([[[3, 2]]]), Q=2).tolist()
    [[[1, 0], [1, 1], [0, 0]]]
    """
    integers = to_integers(images)
    if not 0 <= Q <= LARGEST_Q:
        raise ValueError(f"Q must be in 0..{LARGEST_Q} for images held as int64, got {Q}")
    if images.numel():
        check_range(int(integers.min()), int(integers.max()), Q)
    return torch.cat([((integers >> q) & 1).to(torch.uint8) for q in range(Q + 1)], dim=1)


def to_integers(images: Tensor) -> Tensor:
    """Return ``images`` as int64. Raise a ``ValueError`` if they have fractions, NaN or infinities."""
    check_images(images)
    if images.is_floating_point() and not ((images == images.floor()) & images.isfinite()).all():
        raise ValueError(
            f"images must hold integers, got {images.dtype} with fractions, NaN or infinity: "
            "give raw pixels, not pixels scaled to [0, 1]"
        )
    return images.to(torch.int64)


def check_range(low: float, high: float, Q: int) -> None:
    """Raise a ``ValueError`` unless the range of values is within ``[2^(Q+1)]``."""
    if low < 0 or high >= 2 ** (Q + 1):
        raise ValueError(f"values must lie in [0, {2 ** (Q + 1)}) for Q = {Q}, got values from {low} to {high}")


def alpha(G: int, N: int) -> int:
    """Return the least ``α`` that the proof of Lemma 4.4 allows, ``1 + GN + 2G²N²``."""
    return 1 + G * N + 2 * (G * N) ** 2


def threshold(n: int, previous: int | None, GN: int) -> int:
    """Return the least overlap that activates a filter: the ReLU of Lemma C.2, solved for integers.

    With ``n = ||Z_s||²``, ``previous = ||Z_(s-1)||²`` (None for ``s = 1``, where the paper sets ``||Z_0|| = 1/K``) and
    ``K = 2GN+1``, the filter is active if ``c/√n + 1/K - √previous > 0``, i.e. ``c > √(n·previous) - √n/K``. Since
    ``√n < K`` only two integers can be the least.
    """
    if previous is None:
        return 1
    K, product = 2 * GN + 1, n * previous
    c = math.isqrt(product)
    # c + √n/K > √product, squared and times K²; both sides were positive.
    right = K * K * (product - c * c) - n
    active = right < 0 or 4 * c * c * K * K * n > right * right
    return c if active else c + 1


def overlaps(filters: Tensor, images: Tensor) -> Tensor:
    """Return ``T^M(Z_s)·Z`` for every ``M``: the inner products of Lemma C.1, as exact integers.

    Computed by a float64 FFT and rounded. With ``ε = 2^-53·(100·log2(2N) + G)``, well above the relative error of one
    transform or sum, the error is below ``ε(4 + √N)·GN`` (two transforms in, one out, where an L2 error bounds every
    entry): 2e-8 for 8 planes of 28x28. Sizes for which that bound is not below 1/4 are refused.

    Bits ``(k, G, *size)`` and ``(b, G, *size)`` give int64 ``(b, k, *size)``.
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
    assert float((result - rounded).abs().max()) <= bound, "this machine's FFT is less accurate than the bound assumes"
    return rounded.long()


class ExactScorer(Scorer):
    """The restorer of Lemma 4.4 and Theorem 4.5 for ``dataset``, as a scorer for ``Restorer``.

    Maps integer images ``(batch, channel, *size)`` to int64 scores ``(batch, *size)``: the overlap with the highest
    active filter at positions where it is active, and 0 elsewhere. Exact for any number of images.

    - *Equivariant for every image*: bit counts do not change under a shift, so neither does the highest active filter,
      and integer correlations shift with the image.
    - *Same argmax as the theorem's network for dataset images*: by Lemma C.2 both have their only maximum at the shift;
      :func:`certify` computes it. (For other images lower filters may break ties in the network.)

    ``dataset`` holds integer images ``(image, channel, *size)``, each counted once, of ``Q + 1`` bits (default: as many
    as the largest pixel needs). A dataset that is not aperiodic is refused, with the images that make it so.
    """

    order: Tensor  # index in the dataset of each filter. Filters are sorted by norm, as the lemma requires.
    images: Tensor
    counts: Tensor
    thresholds: Tensor

    def __init__(self, dataset: Tensor, Q: int | None = None) -> None:
        super().__init__()
        self.size = check_images(dataset)
        if not len(dataset):
            raise ValueError("dataset must hold at least one image, got none")
        self.in_channels, self.axes = dataset.shape[1], len(self.size)
        integers = to_integers(dataset) if dataset.is_floating_point() else dataset
        self.Q = max(int(to_integers(dataset).max()).bit_length() - 1, 0) if Q is None else Q
        result = is_aperiodic(dataset)
        if not result:
            raise ValueError(f"no restorer exists for this dataset, it is {result}")
        distinct = torch.ones(len(dataset), dtype=torch.bool)
        distinct[list(result.repeats)] = False
        images = integers[distinct]
        counts = torch.cat([bit_planes(part, self.Q).flatten(2).sum(2) for part in images.split(1024)])
        order = counts.sum(1).argsort(stable=True)
        self.register_buffer("order", distinct.nonzero().flatten()[order])
        self.register_buffer("images", images[order])
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
        """Return the scores, and for each image its highest active filter (-1 if none is active)."""
        if check_images(images) != tuple(self.images.shape[2:]) or images.shape[1] != self.images.shape[1]:
            wanted = tuple(self.images.shape[1:])
            raise ValueError(f"images must be (batch, *{wanted}) like the dataset, got {tuple(images.shape)}")
        planes = bit_planes(images, self.Q)
        scores = torch.zeros_like(planes[:, 0], dtype=torch.int64)
        decided = torch.full((len(images),), -1, device=images.device)
        # All shifts of an image have the same bit counts, hence the same candidates: search once per group.
        group_counts, group = planes.flatten(2).sum(2).unique(dim=0, return_inverse=True)
        for g, count in enumerate(group_counts):
            # In each plane, no shift can share more bits than the smaller of the two counts.
            highest = torch.minimum(self.counts, count).sum(1)
            candidates = (highest >= self.thresholds).nonzero().flatten().flip(0)
            left = (group == g).nonzero().flatten()
            for chunk in _growing(candidates):
                shared = overlaps(bit_planes(self.images[chunk], self.Q), planes[left])
                shared = shared * (shared >= self.thresholds[chunk].reshape(-1, *[1] * (images.ndim - 2)))
                active = shared.flatten(2).any(2)
                done, first = active.any(1), active.int().argmax(1)
                scores[left[done]] = shared[done, first[done]]
                decided[left[done]] = chunk[first[done]]
                left = left[~done]
                if not len(left):
                    break
        return scores, decided


def _growing(candidates: Tensor) -> Iterator[Tensor]:
    """Split the candidates into 1, 2, 4, … For a dataset image the first one usually decides."""
    start, step = 0, 1
    while start < len(candidates):
        yield candidates[start : start + step]
        start, step = start + step, min(2 * step, FILTERS)


@dataclass(frozen=True)
class Failure:
    """An image and a shift after which it is not restored."""

    image: int
    shift: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class Certificate:
    """The result of :func:`certify`. True if every image is restored under every shift."""

    images: int  # number of different images; the theorem's ``S``
    shifts: int
    """Shifts per image; ``N``."""
    failures: int  # number of pairs of image and shift that are not restored
    shifted_copies: int
    """Number of pairs checked by scoring and restoring the shifted image. Integer equivariance implies the others."""
    bound: Fraction  # the margin of Lemma C.2 b), ``1/(2GN+1)``
    gap: float  # the smallest margin observed of position 0 over the next, in the filter of an image
    bound_holds: bool  # ``gap ≥ bound``, decided exactly
    witness: Aperiodicity | Failure | None = None
    """If false, the images that make the dataset periodic, or the first pair that failed."""

    @property
    def cases(self) -> int:
        """Images times shifts."""
        return self.images * self.shifts

    def __bool__(self) -> bool:
        return self.witness is None

    def __str__(self) -> str:
        if isinstance(self.witness, Aperiodicity):
            return f"refused: the dataset is {self.witness}"
        if self.witness is not None:
            first = f"image {self.witness.image}, shift {self.witness.shift}: {self.witness.reason}"
            return f"failed in {self.failures} of {self.cases} cases, first {first}"
        return (
            f"certified: {self.images} images x {self.shifts} shifts = {self.cases} cases, 0 failures "
            f"({self.shifted_copies} of them run as shifted copies); smallest gap {self.gap:.3g}, "
            f"theorem's bound {float(self.bound):.3g}"
        )


def certify(dataset: Tensor, Q: int | None = None, *, brute_force: int = 1) -> Certificate:
    """Prove by computing that the restorer of Theorem 4.5 restores ``dataset`` under every shift.

    - *Computed for every image*: that the dataset is aperiodic; all ``N`` scores; that the highest active
      filter is the image's; that position 0 is the only maximum; the gap to the next score.
    - *Proven*: integer correlations commute with shifts (see :class:`ExactScorer`), so the scores of ``T^M(X)`` are
      those of ``X`` moved by ``M``, and undoing their argmax gives ``X``.
    - *Checked without that proof*, for ``brute_force`` images from the sparsest to the densest: each of the ``N``
      shifted copies is scored, undone and compared with the image, pixel by pixel.

    The arguments are those of :class:`ExactScorer`. For a dataset that is not aperiodic the certificate is false.
    """
    result = is_aperiodic(dataset)
    shifts = all_shifts(tuple(dataset.shape[2:]))
    if not result:
        return Certificate(len(dataset), len(shifts), 0, 0, Fraction(0), 0.0, False, result)
    scorer = ExactScorer(dataset, Q)
    norms, K = scorer.norms(), 2 * scorer.GN + 1
    S, count = len(norms), min(brute_force, len(norms))
    brute_forced = {i * (S - 1) // max(count - 1, 1) for i in range(count)}
    failures, copies, witness, gap, bound_holds = 0, 0, None, math.inf, True
    for s, n in enumerate(norms):
        image = scorer.images[s : s + 1]
        scores, decided = scorer.match(image)
        first, *rest = scores.flatten().tolist()
        second = max(rest, default=0)
        wrong, reason = shifts, f"filter {int(decided)} decides, expected {s}, with its only maximum at position 0"
        if int(decided) == s and second < first:
            # Lemma C.2 b). Two active positions differ by (n - second)/√n. If only the first is active, the gap is its
            # activation √n - ||Z_(s-1)|| + 1/K, which is at least the bound because norms increase.
            if second:
                bound_holds &= (K * (n - second)) ** 2 >= n
                gap = min(gap, (n - second) / math.sqrt(n))
            else:
                gap = min(gap, math.sqrt(n) - math.sqrt(norms[s - 1]) + 1 / K if s else math.sqrt(n))
            wrong, reason = wrong[:0], "this copy is not restored"
            if s in brute_forced:
                copies += len(shifts)
                wrong = _not_restored(scorer, image, shifts)
        if len(wrong):
            failures += len(wrong)
            witness = witness or Failure(int(scorer.order[s]), tuple(wrong[0].tolist()), reason)
    return Certificate(S, len(shifts), failures, copies, Fraction(1, K), gap, bound_holds, witness)


def _not_restored(scorer: ExactScorer, image: Tensor, shifts: Tensor) -> Tensor:
    """Shift, score, undo and compare one image. Return the shifts after which it is not restored."""
    copies = apply(image.expand(len(shifts), *image.shape[1:]), shifts)
    scores = scorer(copies).flatten(1)
    estimated = unravel(scores.argmax(1), tuple(image.shape[2:]))
    tied = (scores == scores.amax(1, keepdim=True)).sum(1) > 1
    return shifts[(undo(copies, estimated) != image).flatten(1).any(1) | tied]


BATCH = 4096  # images ranked at a time, which bounds the memory


@dataclass(frozen=True)
class Aperiodicity:
    """The result of :func:`is_aperiodic`; true or false in an ``if``."""

    aperiodic: bool
    reason: str
    pair: tuple[int, int] | None = None  # the offending images ``(i, j)``; ``i == j`` for a zero or periodic image
    shift: tuple[int, ...] | None = None  # ``M`` with ``T^M(X_i) = X_j`` (the channel shift first, if those count)
    repeats: tuple[int, ...] = ()  # images equal to an earlier one. They are allowed: a dataset is a set.

    def __bool__(self) -> bool:
        return self.aperiodic

    def __str__(self) -> str:
        return f"{'aperiodic' if self.aperiodic else 'not aperiodic'}: {self.reason}"


def is_aperiodic(dataset: Tensor, *, channel_shifts: bool = False) -> Aperiodicity:
    """Decide whether ``dataset`` is aperiodic: Definition 4.2 (Aperiodic dataset).

    It must not contain the zero image, an image that a shift leaves unchanged, or two images that are shifts of each
    other. By default only spatial shifts count, which is what the proofs use; with ``channel_shifts=True`` the shift
    ``M`` may also rotate the channels, as the paper writes it.

    Two images are shifts of each other if and only if their lexicographically largest circular shifts are equal, and an
    image is periodic if and only if two positions yield that shift. So a dictionary replaces comparing all pairs.

    >>> print(is_aperiodic(torch.tensor([[[1, 2, 3]], [[3, 1, 2]]])))
    not aperiodic: image 1 is image 0 shifted by (1,)
    """
    check_images(dataset)
    if dataset.is_floating_point() and dataset.isnan().any():
        raise ValueError("dataset must not contain NaN, which does not equal itself")
    images = dataset.detach().cpu()
    if images.is_floating_point():
        images = images.double() + 0.0  # turns -0.0 into 0.0: equal values have equal bits
    elif images.dtype != torch.uint8:
        images = images.to(torch.int64)
    if channel_shifts:
        images = images.unsqueeze(1)
    size = torch.tensor(images.shape[2:])
    seen: dict[bytes, tuple[int, Tensor]] = {}
    repeats: list[int] = []
    ranked = (rank for part in images.split(BATCH) for rank in rank_restored([part], torch.ones(len(part)).bool()))
    for index, (image, rank) in enumerate(zip(images, ranked, strict=True)):
        if not image.any():
            return Aperiodicity(False, f"image {index} is the zero image", (index, index))
        place, *others = unravel((rank == rank.max()).nonzero().flatten(), tuple(size.tolist()))
        for other in others:
            shift = tuple(((other - place) % size).tolist())
            return Aperiodicity(False, f"image {index} is itself shifted by {shift}", (index, index), shift)
        canonical = image.roll((-place).tolist(), list(range(1, image.ndim)))
        first, its_place = seen.setdefault(canonical.numpy().tobytes(), (index, place))
        shift = tuple(((place - its_place) % size).tolist())
        if any(shift):
            return Aperiodicity(False, f"image {index} is image {first} shifted by {shift}", (first, index), shift)
        repeats += [index] if first != index else []
    reason = f"{len(seen)} images, no two of them shifts of each other"
    return Aperiodicity(True, reason, repeats=tuple(repeats))
