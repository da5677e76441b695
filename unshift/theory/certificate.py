"""A certificate that a dataset can be restored exactly, by building its restorer and running it."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from unshift.shifts import apply, undo
from unshift.theory.aperiodic import Aperiodicity, is_aperiodic
from unshift.theory.exact_scorer import ExactScorer
from unshift.theory.surds import Surd

__all__ = ["Certificate", "certify"]


@dataclass(frozen=True)
class Failure:
    """An image and a shift after which it is not restored."""

    image: int
    shift: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class Certificate:
    """What :func:`certify` computed; true if every image is restored under every shift."""

    images: int
    """Different images; the theorem's ``S``."""
    shifts: int
    """Shifts per image; ``N``."""
    failures: int
    """Cases, of ``images · shifts``, not restored."""
    shifted_copies: int
    """Cases in which the shifted image itself went through the scorer and was restored by hand. The
    others follow from the unshifted image's scores by equivariance, which integers have exactly."""
    bound: Fraction
    """The margin of Lemma C.2 b), ``1/(2GN+1)``."""
    gap: float
    """The smallest margin seen: of position 0 over the next, in an image's own filter."""
    bound_holds: bool
    """``gap ≥ bound``, decided exactly."""
    witness: Aperiodicity | Failure | None = None
    """Why not: what makes the dataset periodic, or the first case that failed."""

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

    *Computed*, for every image: that the dataset is aperiodic; all ``N`` scores; that the filter
    which decides is the image's own; that position 0 is the only maximum; the gap to the next.
    *Proven once*: integer correlations commute with shifts (see :class:`ExactScorer`), so the scores
    of ``T^M(X)`` are those of ``X`` moved by ``M``, and undoing their argmax gives ``X``.
    *Not taken on trust either*, for ``brute_force`` images from the sparsest to the densest: each of
    the ``N`` shifted copies is scored, undone and compared with the image, pixel by pixel. With
    ``brute_force=len(dataset)`` that is all of them, and equivariance is not used at all.

    Args:
        dataset: Integer images ``(image, channel, *spatial)``.
        Q: Pixels have ``Q + 1`` bits. Default: as many as the largest pixel needs.
        brute_force: How many images to check under every shift without using equivariance.

    Returns:
        The certificate. It is true if every image is restored under every shift. If the dataset is not
        aperiodic it is false, and its witness names the images.

    Raises:
        ValueError: If the images are not of that shape, or their pixels not in range.
    """
    answer = is_aperiodic(dataset)
    N = math.prod(dataset.shape[2:])
    if not answer:
        return Certificate(len(dataset), N, 0, 0, Fraction(0), 0.0, False, answer)
    scorer = ExactScorer(dataset, Q)
    norms, K = scorer.norms(), 2 * scorer.GN + 1
    S, count = len(norms), min(brute_force, len(norms))
    by_hand = {i * (S - 1) // max(count - 1, 1) for i in range(count)}
    failures: list[Failure] = []
    gaps: list[Surd] = []
    copies = 0
    for s, n in enumerate(norms):
        image, name = scorer.images[s : s + 1], int(scorer.order[s])
        scores, decided = scorer.match(image)
        first, *rest = scores.flatten().tolist()
        second = max(rest, default=0)
        if int(decided) != s:
            failures += _every_shift(name, dataset, f"filter {int(decided)} decides instead of its own, {s}")
        elif second >= first:
            failures += _every_shift(name, dataset, "position 0 is not the only maximum")
        else:
            gaps.append(_gap(n, second, norms[s - 1] if s else None, K))
            if s in by_hand:
                wrong = _not_restored(scorer, image)
                failures += [Failure(name, shift, "this copy is not restored") for shift in wrong]
                copies += N
    smallest, bound = min(gaps, default=Surd()), Fraction(1, K)
    return Certificate(
        images=S,
        shifts=N,
        failures=len(failures),
        shifted_copies=copies,
        bound=bound,
        gap=float(smallest),
        bound_holds=smallest >= Surd.of(bound),
        witness=failures[0] if failures else None,
    )


def _every_shift(image: int, dataset: Tensor, reason: str) -> list[Failure]:
    """Return the failure at shift 0 for all shifts: by equivariance it is one at each."""
    return [Failure(image, shift, reason) for shift in itertools.product(*map(range, dataset.shape[2:]))]


def _gap(n: int, second: int, previous: int | None, K: int) -> Surd:
    """Return ``σ(position 0) - σ(the next)`` in an image's own filter: Lemma C.2 b), exactly.

    ``second`` is the next position's overlap, 0 where the ReLU is off.
    """
    if second:
        return Surd.root(n) * Fraction(n - second, n)
    return Surd.root(n) if previous is None else Surd.root(n) - Surd.root(previous) + Surd.of(Fraction(1, K))


def _not_restored(scorer: ExactScorer, image: Tensor) -> list[tuple[int, ...]]:
    """Shift, score, undo, compare: every shift of one image. Return those not restored."""
    size = tuple(image.shape[2:])
    shifts = torch.tensor(list(itertools.product(*map(range, size))))
    copies = apply(image.expand(len(shifts), *image.shape[1:]), shifts)
    best = scorer(copies).flatten(1)
    found = torch.stack(torch.unravel_index(best.argmax(1), size), dim=1)
    tied = (best == best.amax(1, keepdim=True)).sum(1) > 1
    wrong = (undo(copies, found) != image).flatten(1).any(1) | tied
    return [tuple(row) for row in shifts[wrong].tolist()]
