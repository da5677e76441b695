"""Section 4.2 and appendix B: the network of bits, and the slips of the paper, each with its mend."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from aperiodic_sets import aperiodic_dataset, quick, seeds, small_sizes
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from unshift.theory import (
    CanonicalLayer,
    ExactScorer,
    alpha,
    binary_layers,
    binary_network,
    binary_restorer,
    bit_planes,
    certify,
    check_map,
    circular_matrix,
    decompose,
    float64_limits,
    is_aperiodic,
    is_estimator,
    overlaps,
    theorem_values,
)

# --- Lemma B.1 and Lemma 4.3 -----------------------------------------------------------------------


@pytest.mark.parametrize("Q", range(10))
def test_binary_network_on_every_value(Q):
    values = list(range(2 ** (Q + 1)))
    bits = [tuple(x >> q & 1 for q in range(Q + 1)) for x in values]
    assert decompose(values, Q) == bits
    layers = binary_layers(Q)
    assert len(layers) == 2 * Q + 2
    assert max(len(bias) for _, bias in layers) == Q + 1
    network = binary_network(Q, (len(values),))
    image = torch.tensor(values).reshape(1, 1, -1)
    assert torch.equal(network(image), bit_planes(image, Q).double())
    assert bit_planes(image, Q)[0].T.tolist() == [list(b) for b in bits]
    assert network.depth == 2 * Q + 2
    assert network.width == (Q + 1) * len(values)


def test_binary_network_for_a_large_q_is_exact_in_integers_and_refused_in_float64():
    Q = 200
    values = [0, 1, 2**200 + 1, 2**201 - 1]
    assert decompose(values, Q) == [tuple(x >> q & 1 for q in range(Q + 1)) for x in values]
    with pytest.raises(ValueError, match=r"float64 is exact to 2\^53"):
        binary_network(51, (4,))
    image = torch.tensor([[[2**51 - 1, 2**51 - 2, 2**50, 1]]])
    assert torch.equal(binary_network(50, (4,))(image), bit_planes(image, 50).double())


@quick
@given(size=small_sizes, channels=st.integers(1, 3), Q=st.integers(0, 3), seed=seeds)
def test_the_lift_to_images_is_the_bits_of_each_channel(size, channels, Q, seed):
    torch.manual_seed(seed)
    images = torch.randint(2 ** (Q + 1), (2, channels, *size))
    network = binary_network(Q, size, channels)
    assert torch.equal(network(images), bit_planes(images, Q).double())
    assert check_map(network, size, channels)
    assert all(set(layer.rows.shape[2:]) == {1} for layer in network.layers)


def test_a_canonical_layer_is_its_circular_matrices():
    torch.manual_seed(0)
    for size in ((5,), (3, 4), (2, 3, 2)):
        rows, bias, x = torch.randn(3, 2, *size).double(), torch.randn(3).double(), torch.randn(4, 2, *size).double()
        blocks = circular_matrix(rows.flatten(2), size)
        expected = torch.einsum("krmi,bri->bkm", blocks, x.flatten(2)) + bias[:, None]
        torch.testing.assert_close(CanonicalLayer(rows, bias)(x).flatten(2), expected.relu())


# --- slips in the paper, each with its mend --------------------------------------------------------


def test_slip_eta_needs_q_plus_one_bits():
    """``η: [2^(Q+1)] → B^Q``, ``η(3) = (1, 0, 1)`` and ``G = PQ``: one bit short, and 5 instead of 3."""
    assert decompose([2, 3], Q=2) == [(0, 1, 0), (1, 1, 0)]
    assert sum(bit << q for q, bit in enumerate((1, 0, 1))) == 5
    assert len(set(decompose(range(8), Q=2))) == 8 > 2**2
    assert ExactScorer(torch.tensor([[[1, 2, 3]], [[0, 0, 1]]])).G == 2


def test_slip_binary_decomposition_need_not_stay_aperiodic_with_channel_shifts():
    """``z`` and ``2z``: bit planes ``(z, 0)`` and ``(0, z)`` are channel shifts of each other."""
    z = torch.tensor([[[1, 0, 1, 0, 0]]])
    dataset = torch.cat([z, 2 * z])
    planes = bit_planes(dataset, Q=1)
    assert is_aperiodic(dataset, channel_shifts=True)
    answer = is_aperiodic(planes, channel_shifts=True)
    assert not answer
    assert answer.shift == (1, 0)
    # The proofs use spatial shifts only, and for those the equivalence holds; so does the theorem.
    assert is_aperiodic(dataset)
    assert is_aperiodic(planes)
    assert certify(dataset, brute_force=2)


@quick
@given(size=small_sizes, seed=seeds)
def test_spatially_the_equivalence_holds(size, seed):
    dataset = torch.randint(4, (3, 1, *size), generator=torch.Generator().manual_seed(seed))
    assert bool(is_aperiodic(dataset)) == bool(is_aperiodic(bit_planes(dataset, Q=1)))


def test_slip_the_index_runs_over_positions_not_bits():
    """Lemma C.2 and its proof let ``i`` run to ``GN - 1``; a layer has N outputs per channel."""
    dataset = aperiodic_dataset(0, 3, 2, (2, 3), 2)
    network = binary_restorer(dataset)
    G, N = 2, 6
    assert network(dataset).flatten(1).shape == (3, N)
    assert len(theorem_values(ExactScorer(dataset), dataset[0])) == N != G * N


def test_slip_alpha_leaves_float64_after_a_handful_of_images():
    assert alpha(8, 784) == 1 + 6272 + 2 * 6272**2
    assert float64_limits(8, 784) == (3, 39)
    assert float64_limits(24, 224 * 224) == (2, 25)
    with pytest.raises(OverflowError):
        float(alpha(8, 784) ** 60_000)


def test_slip_the_gap_may_equal_the_bound():
    """Lemma C.2 b) says ``>``; with two images of one norm the second's gap is the bound itself."""
    certificate = certify(torch.tensor([[[1, 1, 0, 0, 0]], [[1, 0, 1, 0, 0]]]))
    assert certificate
    assert Fraction(certificate.gap).limit_denominator(100) == certificate.bound == Fraction(1, 11)


def test_slip_a_smaller_image_may_lie_inside_a_larger_one():
    """The proof of C.2 c) uses ``T^M(Z_s)·Z_t <= ||Z_s||^2 - 1``: false here; ``< GN`` holds all the same."""
    inside, around = torch.tensor([[[1, 0, 0, 0]]]), torch.tensor([[[1, 1, 0, 0]]])
    assert overlaps(inside, around).max() == inside.sum()
    assert certify(torch.cat([inside, around]), brute_force=2)


def test_slip_the_lift_is_p_times_as_wide():
    """Lemma 4.3 says width ``(Q+1)N``; its proof has ``K_l × P`` channels."""
    assert binary_network(3, (5, 4), channels=1).width == 4 * 20
    assert binary_network(3, (5, 4), channels=3).width == 4 * 3 * 20


def test_slip_a_constant_map_is_an_estimator_as_defined():
    """Definition 4.1 asks for a maximum at 0, not for the only one; the theorem's network has that."""

    def constant(images: Tensor) -> Tensor:
        return torch.zeros_like(images[:, 0])

    dataset = aperiodic_dataset(0, 3, 1, (2, 3), 2)
    assert is_estimator(constant, dataset, unique=False)
    assert not is_estimator(constant, dataset)
    assert is_estimator(binary_restorer(dataset), dataset)
