"""The paper's theory as code: sections 3 and 4 and the appendices, runnable and exact.

Section 3: :mod:`.equivariance` (circular filters, Theorem 3.4) and :mod:`.diagnosis` (Corollary 3.6 for the layers of a
network). Section 4: :mod:`.aperiodic`, :mod:`.exact_scorer` (the exact restorer of a dataset, and its
certificate) and :mod:`.float64_network` (the paper's networks as layers).
``docs/theory.md`` maps every item of the paper to its function and its test.
"""

from unshift.theory.aperiodic import Aperiodicity, is_aperiodic
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
from unshift.theory.exact_scorer import Certificate, ExactScorer, alpha, bit_planes, certify, overlaps, threshold
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

__all__ = [
    "Aperiodicity",
    "CanonicalLayer",
    "CanonicalNetwork",
    "Certificate",
    "Diagnosis",
    "ExactScorer",
    "Float64Limits",
    "Verdict",
    "Witness",
    "affine_of",
    "alpha",
    "binary_layers",
    "binary_network",
    "binary_restorer",
    "bit_planes",
    "certify",
    "check_affine",
    "circular_matrix",
    "decompose",
    "diagnose",
    "float64_limits",
    "is_aperiodic",
    "is_estimator",
    "nearest_equivariant",
    "overlaps",
    "theorem_network",
    "threshold",
    "translate",
]
