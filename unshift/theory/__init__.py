"""The paper's theory as code: sections 3 and 4 and the appendices, exact. ``docs/theory.md`` maps it item by item."""

from unshift.theory.diagnosis import Diagnosis, diagnose
from unshift.theory.equivariance import (
    Verdict,
    Witness,
    affine_of,
    check_affine,
    circular_matrix,
    nearest_equivariant,
    translate,
)
from unshift.theory.exact_scorer import (
    Aperiodicity,
    Certificate,
    ExactScorer,
    alpha,
    bit_planes,
    certify,
    is_aperiodic,
    overlaps,
    threshold,
)
from unshift.theory.float64_network import (
    CanonicalLayer,
    CanonicalNetwork,
    Float64Limits,
    binary_layers,
    binary_network,
    binary_restorer,
    decompose,
    float64_limits,
    is_estimator,
    theorem_network,
)

__all__ = ["Aperiodicity", "CanonicalLayer", "CanonicalNetwork", "Certificate", "Diagnosis",
           "ExactScorer", "Float64Limits", "Verdict", "Witness", "affine_of", "alpha", "binary_layers",
           "binary_network", "binary_restorer", "bit_planes", "certify", "check_affine",
           "circular_matrix", "decompose", "diagnose", "float64_limits", "is_aperiodic", "is_estimator",
           "nearest_equivariant", "overlaps", "theorem_network", "threshold", "translate"]  # fmt: skip
