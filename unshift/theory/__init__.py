"""The paper's theory as code: sections 3 and 4 and the appendices, runnable and exact.

======================== ====================================================================
:mod:`.matrices`         vectorisation, translation, circular filters (section 3.1 and 3.2)
:mod:`.equivariance`     Theorem 3.4: is this map equivariant, what breaks it, the nearest that is
:mod:`.diagnosis`        the same for every layer of a network
:mod:`.canonical`        the canonical architecture in float64 (section 3.3)
:mod:`.aperiodic`        aperiodic datasets (section 4.2)
:mod:`.binary`           Lemma 4.3: bits by a ReLU network
:mod:`.surds`            exact sums of square roots, the theorem's numbers
:mod:`.exact_scorer`     Lemma 4.4, Theorem 4.5: the exact restorer of a dataset
:mod:`.float64_network`  the same as float64 layers, while they hold its numbers
:mod:`.certificate`      the proof, by running it, that a dataset is restored
======================== ====================================================================

``docs/theory.md`` maps every item of the paper to its function and its test.
"""

from unshift.theory.aperiodic import Aperiodicity, is_aperiodic
from unshift.theory.binary import binary_layers, binary_network, bit_planes, decompose
from unshift.theory.canonical import CanonicalLayer, CanonicalNetwork, is_estimator
from unshift.theory.certificate import Certificate, certify
from unshift.theory.diagnosis import Diagnosis, diagnose
from unshift.theory.equivariance import Verdict, Witness, affine_of, check_affine, check_map, nearest_equivariant
from unshift.theory.exact_scorer import ExactScorer, alpha, overlaps, theorem_values, threshold
from unshift.theory.float64_network import Float64Limits, binary_restorer, float64_limits, theorem_network
from unshift.theory.matrices import circular_matrix, delta, is_circular, translate, vectorize
from unshift.theory.surds import Surd

__all__ = [
    "Aperiodicity",
    "CanonicalLayer",
    "CanonicalNetwork",
    "Certificate",
    "Diagnosis",
    "ExactScorer",
    "Float64Limits",
    "Surd",
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
    "check_map",
    "circular_matrix",
    "decompose",
    "delta",
    "diagnose",
    "float64_limits",
    "is_aperiodic",
    "is_circular",
    "is_estimator",
    "nearest_equivariant",
    "overlaps",
    "theorem_network",
    "theorem_values",
    "threshold",
    "translate",
    "vectorize",
]
