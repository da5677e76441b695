"""Exact inference: integer arithmetic, and a tie rule that cannot see where the image came from.

Floating point cannot promise that ``restore(apply(x, M))`` equals ``restore(x)``: sums depend on their order, and equal
scores fall to whichever index comes first. So, in operations that PyTorch and exported graphs run alike:

1. Pixels and filters are quantised to integers, pointwise (:mod:`~unshift.exact.calibration`).
2. Sums are exact, each kernel with its proof (:mod:`~unshift.exact.kernels`).
3. Between layers: floor-divide and clamp, both pointwise (:mod:`~unshift.exact.integers`).
4. The highest score wins; where several tie, the *arrays* they restore to are compared, never their indices
   (:mod:`~unshift.exact.ties`). The confidence is a sum of integers too (:mod:`~unshift.exact.softmax`).
"""

from unshift.exact.calibration import quantise
from unshift.exact.integers import LARGEST_SCALE, IntegerEstimator
from unshift.exact.lines import Scores, score_map
from unshift.exact.softmax import Curve, confidence
from unshift.exact.task import is_traced
from unshift.exact.ties import choose, largest_of, ordered_bits, rank_restored, restored_keys

__all__ = [
    "LARGEST_SCALE",
    "Curve",
    "IntegerEstimator",
    "Scores",
    "choose",
    "confidence",
    "is_traced",
    "largest_of",
    "ordered_bits",
    "quantise",
    "rank_restored",
    "restored_keys",
    "score_map",
]
