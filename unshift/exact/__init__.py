"""Exact inference: the network in integers, and a tie rule that does not depend on the shift of the image.

Floating point cannot promise that ``restore(apply(x, M))`` equals ``restore(x)``: float sums depend on their order, and
among equal scores argmax picks the first index. So:

1. Pixels and filters are quantised to integers, pointwise (:mod:`~unshift.exact.calibration`).
2. Sums are exact, so their order does not matter: :mod:`~unshift.exact.integers` is the network in integers, and each
   fast kernel of :mod:`~unshift.exact.kernels` has its proof.
3. Between layers: floor-divide and clamp, both pointwise.
4. The highest score wins; ties are broken by comparing restored arrays, never indices (:mod:`~unshift.exact.choice`).
   The confidence is a sum of integers too (:mod:`~unshift.exact.confidence`).
"""

from __future__ import annotations

from typing import Any

from unshift.exact.calibration import quantise
from unshift.exact.choice import choose, ordered_bits, rank_restored
from unshift.exact.comparison import largest
from unshift.exact.confidence import Curve
from unshift.exact.integers import LARGEST_SCALE, IntegerEstimator
from unshift.exact.judged import JudgedEstimator
from unshift.exact.poses import IntegerPoseEstimator
from unshift.exact.quantised import IntegerNetwork
from unshift.exact.runtime import in_graphs, is_exporting, is_traced
from unshift.exact.scores import Scorer, Scores
from unshift.exact.suppression import next_best

__all__ = [
    "LARGEST_SCALE",
    "Curve",
    "IntegerEstimator",
    "IntegerNetwork",
    "IntegerPoseEstimator",
    "JudgedEstimator",
    "Scorer",
    "Scores",
    "choose",
    "in_graphs",
    "is_exporting",
    "is_traced",
    "largest",
    "network_from",
    "next_best",
    "ordered_bits",
    "quantise",
    "rank_restored",
]


def network_from(description: dict[str, Any]) -> IntegerNetwork:
    """Rebuild a network from the result of its ``describe()``. Its integers are then loaded by ``load_state_dict``."""
    if "judge" in description:
        return JudgedEstimator(**description)
    return (IntegerPoseEstimator if "stride" in description["network"] else IntegerEstimator)(**description)
