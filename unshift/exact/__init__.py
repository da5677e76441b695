"""Exact inference: the network in integers, and a tie rule that does not depend on where the image stands.

Floating point cannot promise that ``restore(apply(x, M))`` equals ``restore(x)``: float sums depend on their order, and
equal scores fall to whichever index comes first. So:

1. Pixels and filters are quantised to integers, pointwise (:mod:`~unshift.exact.calibration`).
2. Sums are exact, so their order does not matter: :mod:`~unshift.exact.integers` is the network in integers, and each
   fast kernel of :mod:`~unshift.exact.kernels` has its proof.
3. Between layers: floor-divide and clamp, both pointwise.
4. The highest score wins; ties are broken by comparing restored arrays, never indices (:mod:`~unshift.exact.choice`).
   The confidence is a sum of integers too (:mod:`~unshift.exact.confidence`).
"""

from unshift.exact.calibration import quantise
from unshift.exact.choice import choose, largest, next_best, ordered_bits, rank_restored, restored_keys
from unshift.exact.confidence import Curve
from unshift.exact.integers import LARGEST_SCALE, IntegerEstimator
from unshift.exact.runtime import in_graphs, is_exporting, is_traced
from unshift.exact.scores import Scorer, Scores

__all__ = [
    "LARGEST_SCALE",
    "Curve",
    "IntegerEstimator",
    "Scorer",
    "Scores",
    "choose",
    "in_graphs",
    "is_exporting",
    "is_traced",
    "largest",
    "next_best",
    "ordered_bits",
    "quantise",
    "rank_restored",
    "restored_keys",
]
