"""Exact inference: the network in integers, and a tie rule that does not depend on the shift of the image.

Floating point cannot promise that ``restore(apply(x, M))`` equals ``restore(x)``: float sums depend on their order, and
equal scores fall to whichever index comes first. So pixels and filters are integers, sums are exact, divisions are
pointwise, and ties are broken by comparing restored arrays.
"""

from __future__ import annotations

from typing import Any

from unshift.exact.calibration import quantise
from unshift.exact.choice import choose, largest, ordered_bits, rank_restored
from unshift.exact.confidence import Curve
from unshift.exact.integers import LARGEST_SCALE, IntegerEstimator
from unshift.exact.judged import JudgedEstimator, propose, windows_at
from unshift.exact.poses import IntegerPoseEstimator
from unshift.exact.quantised import IntegerNetwork
from unshift.exact.runtime import in_graphs, is_exporting, is_traced
from unshift.exact.scores import Scorer, Scores
from unshift.exact.suppression import next_best

__all__ = ["LARGEST_SCALE", "Curve", "IntegerEstimator", "IntegerNetwork", "IntegerPoseEstimator",
           "JudgedEstimator", "Scorer", "Scores", "choose", "in_graphs", "is_exporting", "is_traced",
           "largest", "network_from", "next_best", "ordered_bits", "propose", "quantise", "rank_restored",
           "windows_at"]  # fmt: skip


def network_from(description: dict[str, Any]) -> IntegerNetwork:
    """Rebuild a network from the result of its ``describe()``. Its integers are then loaded by ``load_state_dict``."""
    if "judge" in description:
        return JudgedEstimator(**description)
    return (IntegerPoseEstimator if "stride" in description["network"] else IntegerEstimator)(**description)
