"""Section 4, appendices B and C: aperiodic datasets, the constructed restorer, its certificate, slips of the paper."""

from __future__ import annotations

import functools
import itertools
import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from unshift import Restorer
from unshift.data import DataError
from unshift.data import dataset as load_dataset
from unshift.shifts import all_shifts, apply, ravel, undo
from unshift.testing import assert_equivariant
from unshift.theory import (
    Aperiodicity,
    CanonicalLayer,
    ExactScorer,
    alpha,
    binary_layers,
    binary_network,
    binary_restorer,
    bit_planes,
    certify,
    circular_matrix,
    decompose,
    float64_limits,
    is_aperiodic,
    is_estimator,
    overlaps,
    theorem_network,
    threshold,
)

small_sizes = st.sampled_from([(4,), (7,), (3, 3), (2, 5), (2, 2, 3)])
seeds = st.integers(0, 2**31)
quick = settings(max_examples=25, deadline=None)
DIGITS = Context(prec=1000)


def aperiodic_dataset(seed: int, count: int, channels: int, size: tuple[int, ...], levels: int) -> Tensor:
    """Return random images, none a shift of another."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.zeros(0, channels, *size, dtype=torch.int64)
    for _ in range(50 * count):
        candidate = torch.cat([images, torch.randint(levels, (1, channels, *size), generator=generator)])
        result = is_aperiodic(candidate)
        images = candidate if result and not result.repeats else images
        if len(images) == count:
            break
    return images


def exact(value: Decimal | int) -> Decimal:
    """Round to 500 digits after the point: two of these sums of a few square roots are equal or differ by more."""
    return DIGITS.quantize(Decimal(value), Decimal(10) ** -500)


root = functools.cache(DIGITS.sqrt)


@functools.cache
def activation(c: int, n: int, previous: int | None, K: int) -> Decimal:
    """Return the s-th ReLU of Lemma C.2 for the overlap ``c``, as the paper writes it."""
    with localcontext(DIGITS):
        before = 1 / Decimal(K) if previous is None else root(previous)
        return exact(max(c / root(n) + 1 / Decimal(K) - before, 0))


def theorem_values(scorer: ExactScorer, image: Tensor) -> list[Decimal]:
    """Return ``F(X)[0], …, F(X)[N-1]`` of Theorem 4.5 as the paper writes it, with ``α^(s-1)`` and square roots."""
    planes, norms = bit_planes(image[None], scorer.Q), [None, *scorer.norms()]
    values = [Decimal(0)] * (scorer.GN // scorer.G)
    with localcontext(DIGITS):
        for s, (previous, n) in enumerate(itertools.pairwise(norms)):
            shared = overlaps(bit_planes(scorer.images[s : s + 1], scorer.Q), planes).flatten().tolist()
            weight = Decimal(alpha(scorer.G, len(values)) ** s) / (len(norms) - 1)
            values = [
                value + weight * activation(c, n, previous, 2 * scorer.GN + 1)
                for value, c in zip(values, shared, strict=True)
            ]
    return [DIGITS.quantize(value, Decimal(10) ** -400) for value in values]


def all_copies(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return every image under every shift, and the shifts."""
    shifts = all_shifts(tuple(images.shape[2:]))
    copies = images.repeat_interleave(len(shifts), dim=0)
    rows = shifts.repeat(len(images), 1)
    return apply(copies, rows), rows


def argmax_set(values: list) -> list[int]:
    best = max(values)
    return [i for i, value in enumerate(values) if value == best]


@pytest.fixture(scope="module")
def mnist() -> Tensor:
    """All 60,000 training images of MNIST, uint8 ``(60000, 1, 28, 28)``."""
    try:
        return load_dataset("mnist", download=False).images
    except DataError as error:
        pytest.skip(str(error))


# --- Definition 4.2 --------------------------------------------------------------------------------


def by_all_pairs(dataset: Tensor, channel_shifts: bool = False) -> bool:
    """Return whether Definition 4.2 holds, by comparing all pairs."""
    images = dataset.unsqueeze(1) if channel_shifts else dataset
    axes = tuple(range(1, images.ndim - 1))
    if any(not image.any() for image in images):
        return False
    for x, other in itertools.product(images, images):
        for shift in itertools.product(*map(range, images.shape[2:])):
            if torch.equal(x.roll(shift, axes), other) and (any(shift) or not torch.equal(x, other)):
                return False
    return True


@settings(max_examples=150, deadline=None)
@given(
    size=st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple),
    channels=st.integers(1, 3),
    count=st.integers(1, 4),
    levels=st.integers(2, 5),
    channel_shifts=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_agrees_with_all_pairs_and_the_answer_is_true(size, channels, count, levels, channel_shifts, seed):
    generator = torch.Generator().manual_seed(seed)
    dataset = torch.randint(levels, (count, channels, *size), generator=generator)
    answer = is_aperiodic(dataset, channel_shifts=channel_shifts)
    assert bool(answer) == by_all_pairs(dataset, channel_shifts)
    if not answer:
        i, j = answer.pair
        if answer.shift is None:
            assert not dataset[i].any()
        else:
            axes = range(0 if channel_shifts else 1, dataset.ndim - 1)
            assert torch.equal(dataset[i].roll(answer.shift, tuple(axes)), dataset[j])
            assert any(answer.shift)


def test_repeated_images_are_allowed():
    answer = is_aperiodic(torch.tensor([[[1, 2, 3]], [[4, 2, 3]], [[1, 2, 3]]]))
    assert answer
    assert answer.repeats == (2,)


def test_real_values_compare_as_numbers():
    assert not is_aperiodic(torch.tensor([[[0.0, 1.5, 2.0]], [[2.0, -0.0, 1.5]]]))
    assert is_aperiodic(torch.tensor([[[0.25, 1.5, 2.0]], [[2.0, 0.5, 1.5]]]))
    assert is_aperiodic(torch.tensor([[[True, False, False]]]))
    with pytest.raises(ValueError, match="NaN"):
        is_aperiodic(torch.tensor([[[float("nan"), 1.0]]]))


@pytest.mark.data
@pytest.mark.slow
def test_all_of_mnist_is_aperiodic(mnist):
    answer = is_aperiodic(mnist)
    assert answer
    assert not answer.repeats
    mnist[59_999] = apply(mnist[5:6], torch.tensor([[3, 27]]))[0]
    answer = is_aperiodic(mnist)
    assert (answer.pair, answer.shift) == ((5, 59_999), (3, 27))


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
    with pytest.raises(ValueError, match="Q = 51"):
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
    assert_equivariant(network, (channels, *size))
    assert all(set(layer.rows.shape[2:]) == {1} for layer in network.layers)


def test_a_canonical_layer_is_its_circular_matrices():
    torch.manual_seed(0)
    for size in ((5,), (3, 4), (2, 3, 2)):
        rows, bias, x = torch.randn(3, 2, *size).double(), torch.randn(3).double(), torch.randn(4, 2, *size).double()
        blocks = circular_matrix(rows.flatten(2), size)
        expected = torch.einsum("krmi,bri->bkm", blocks, x.flatten(2)) + bias[:, None]
        torch.testing.assert_close(CanonicalLayer(rows, bias)(x).flatten(2), expected.relu())


@quick
@given(size=small_sizes, channels=st.integers(1, 3), seed=seeds)
def test_lemma_c1_overlaps(size, channels, seed):
    dataset = aperiodic_dataset(seed, 4, channels, size, 2)
    GN = dataset[0].numel()
    norms = dataset.flatten(1).sum(1).tolist()
    shared = overlaps(dataset, dataset)
    for (t, z), (s, filter) in itertools.product(enumerate(dataset), enumerate(dataset)):
        for shift in itertools.product(*map(range, size)):
            c = int(shared[(t, s, *shift)])
            assert c == int((apply(filter[None], torch.tensor([shift]))[0] * z).sum())
            assert c <= norms[s] <= GN  # 2)
            if s == t:
                assert c == norms[s] if not any(shift) else c <= norms[s] - 1  # 1) and 3)
            elif norms[s] == norms[t]:
                assert c <= norms[t] - 1  # 4)
        if norms[s] > norms[t]:
            assert root(norms[s]) >= DIGITS.add(root(norms[t]), DIGITS.divide(1, 2 * GN))  # 5)


@pytest.mark.parametrize("GN", [1, 2, 7, 30])
def test_the_threshold_is_where_the_relu_turns_on(GN):
    for n in range(1, GN + 1):
        for previous in [None, *range(1, n + 1)]:
            on = [activation(c, n, previous, 2 * GN + 1) > 0 for c in range(n + 1)]
            limit = threshold(n, previous, GN)
            assert on == [c >= limit for c in range(n + 1)]


@quick
@given(size=small_sizes, channels=st.integers(1, 2), seed=seeds)
def test_lemma_c2(size, channels, seed):
    dataset = aperiodic_dataset(seed, 5, channels, size, 2)
    dataset = dataset[dataset.flatten(1).sum(1).argsort(stable=True)]
    GN = dataset[0].numel()
    norms, K = dataset.flatten(1).sum(1).tolist(), 2 * GN + 1
    shared = overlaps(dataset, dataset).flatten(2)
    for s, n in enumerate(norms):
        for t in range(len(norms)):
            values = [activation(int(c), n, norms[s - 1] if s else None, K) for c in shared[t, s]]
            if t < s:
                assert not any(values)  # a)
            elif t == s:
                bound = exact(DIGITS.divide(1, K))
                assert all(DIGITS.subtract(values[0], value) >= bound for value in values[1:])  # b)
            else:
                assert all(value < GN for value in values)  # c)


@quick
@given(size=small_sizes, channels=st.integers(1, 2), Q=st.integers(0, 2), seed=seeds)
def test_three_evaluations_of_the_theorem_agree(size, channels, Q, seed):
    """The float64 layers, the exact values with alpha^(s-1) and the rule have one argmax, the shift."""
    dataset = aperiodic_dataset(seed, 4, channels, size, 2 ** (Q + 1))
    scorer = ExactScorer(dataset, Q)
    network = theorem_network(dataset, Q)
    assert network.depth == 2 * Q + 4
    assert network.width == max(len(dataset), (Q + 1) * channels) * math.prod(size)
    assert is_estimator(network, dataset)
    assert is_estimator(scorer, dataset)
    copies, shifts = all_copies(dataset)
    scores, values, places = scorer(copies), network(copies)[:, 0], ravel(shifts, size).tolist()
    assert torch.equal(undo(scores[:, None], shifts)[:, 0], scorer(dataset).repeat_interleave(math.prod(size), 0))
    for case in range(0, len(copies), 3):
        reference = theorem_values(scorer, copies[case])
        for values_of_one in (reference, scores[case].flatten().tolist(), values[case].flatten().tolist()):
            assert argmax_set(values_of_one) == [places[case]]
        expected = torch.tensor([float(v) for v in reference], dtype=torch.float64)
        torch.testing.assert_close(values[case].flatten(), expected, rtol=1e-9, atol=1e-9)


@quick
@given(size=small_sizes, seed=seeds)
def test_images_outside_the_dataset_are_scored_equivariantly(size, seed):
    dataset = aperiodic_dataset(seed, 6, 1, size, 4)
    scorer = ExactScorer(dataset, Q=1)
    images = torch.randint(4, (3, 1, *size), generator=torch.Generator().manual_seed(seed))
    copies, shifts = all_copies(images)
    expected = scorer(images).repeat_interleave(math.prod(size), 0)
    assert torch.equal(undo(scorer(copies)[:, None], shifts)[:, 0], expected)


def test_the_binary_restorer_has_two_layers_and_width_sn():
    dataset = aperiodic_dataset(1, 5, 2, (3, 3), 2)
    network = binary_restorer(dataset)
    assert (network.depth, network.width) == (2, 5 * 9)
    assert is_estimator(network, dataset)
    assert_equivariant(network, (2, 3, 3), tolerance=1e-9 * alpha(2, 9) ** 4)  # relative to the largest weight


def test_float64_agrees_up_to_its_limit_and_is_refused_beyond():
    size = (2, 4)
    limit = float64_limits(3, 8)
    dataset = aperiodic_dataset(0, limit.overflow + 1, 1, size, 8)
    assert limit == (6, 101)
    assert len(dataset) == limit.overflow + 1
    most = int(torch.finfo(torch.float64).max)
    assert alpha(3, 8) ** limit.overflow * 2 * 5 > most, "the limit is not too low"
    fits = dataset[:-1]
    network, scorer = theorem_network(fits, Q=2), ExactScorer(fits, Q=2)
    copies, _ = all_copies(fits)
    values, scores = network(copies).flatten(1), scorer(copies).flatten(1)
    assert torch.isfinite(values).all()
    assert torch.isfinite(network(torch.full((1, 1, *size), 7))).all(), "for any image"
    assert torch.equal(values.argmax(1), scores.argmax(1))
    with pytest.raises(OverflowError, match="102"):
        theorem_network(dataset, Q=2)
    copies, shifts = all_copies(dataset)
    assert torch.equal(ExactScorer(dataset, Q=2)(copies).flatten(1).argmax(1), ravel(shifts, size))


def test_the_scorer_plugs_into_restorer():
    dataset = aperiodic_dataset(3, 12, 2, (4, 5), 16)
    restorer = Restorer(ExactScorer(dataset))
    for images in (dataset, dataset.to(torch.uint8), dataset.float()):
        copies, shifts = all_copies(images)
        assert torch.equal(restorer(copies), images.repeat_interleave(20, 0))
        estimate = restorer.estimate(copies)
        assert torch.equal(estimate.shift, shifts)
        assert not estimate.tied.any()
    assert not restorer(torch.zeros(1, 2, 4, 5)).any()
    assert restorer.scorer(dataset[:0]).shape == (0, 4, 5)


def scores(images: Tensor) -> Tensor:
    return ExactScorer(torch.tensor([[[[3, 1], [0, 1]]], [[[1, 2], [2, 0]]]]), Q=1)(images)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: scores(torch.rand(1, 1, 2, 2)), "fractions"),
        (lambda: scores(torch.full((1, 1, 2, 2), float("nan"))), "NaN"),
        (lambda: scores(torch.full((1, 1, 2, 2), 4)), r"\[0, 4\) for Q = 1, got values from 4 to 4"),
        (lambda: scores(torch.zeros(1, 2, 2, 2)), r"got \(1, 2, 2, 2\)"),
        (lambda: scores(torch.zeros(1, 1, 2, 4)), r"got \(1, 1, 2, 4\)"),
        (lambda: scores(torch.zeros(2, 2)), "2 axes"),
        (lambda: ExactScorer(torch.zeros(0, 1, 3)), "at least one image"),
        (lambda: ExactScorer(torch.tensor([[[1, 2, 3]], [[2, 3, 1]]])), r"image 1 is image 0 shifted by \(2,\)"),
        (lambda: ExactScorer(torch.tensor([[[float("inf"), 1.0]]])), "inf"),
        (lambda: bit_planes(torch.zeros(1, 1, 3), Q=62), "got 62"),
        (lambda: binary_layers(-1), "got -1"),
        (lambda: decompose([4], Q=1), r"\[0, 4\)"),
        (lambda: theorem_network(torch.tensor([[[1, 2, 3]]]))(torch.zeros(1, 1, 4)), r"size \(3,\), got \(4,\)"),
        (lambda: overlaps(torch.zeros(1, 1), torch.zeros(1, 500, 3000, 3000, device="meta")), "too large"),
    ],
)
def test_errors_name_the_value(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- the certificate -------------------------------------------------------------------------------


@quick
@given(size=small_sizes, channels=st.integers(1, 2), levels=st.integers(2, 9), seed=seeds)
def test_certify_small_datasets(size, channels, levels, seed):
    dataset = aperiodic_dataset(seed, 6, channels, size, levels)
    certificate = certify(dataset, brute_force=len(dataset) + 1)
    assert certificate, str(certificate)
    assert certificate.failures == 0
    assert certificate.cases == certificate.shifted_copies == len(dataset) * math.prod(size)
    G = channels * (ExactScorer(dataset).Q + 1)
    assert certificate.bound == Fraction(1, 2 * G * math.prod(size) + 1)
    assert certificate.bound_holds
    assert certificate.gap >= float(certificate.bound)


def test_certify_refuses_and_names_the_images():
    dataset = aperiodic_dataset(0, 8, 1, (4, 4), 9)
    copy = torch.cat([dataset, apply(dataset[2:3], torch.tensor([[1, 3]]))])
    certificate = certify(copy)
    assert not certificate
    assert isinstance(certificate.witness, Aperiodicity)
    assert (certificate.witness.pair, certificate.witness.shift) == ((2, 8), (1, 3))
    assert "image 8 is image 2 shifted by (1, 3)" in str(certificate)
    periodic = dataset.clone()
    periodic[5, 0, :, 2:] = periodic[5, 0, :, :2]
    assert "image 5 is itself shifted by (0, 2)" in str(certify(periodic))


def test_certify_reports_a_restorer_that_fails(monkeypatch):
    """With wrong thresholds a filter above an image's own is active, and the certificate reports it."""
    dataset = aperiodic_dataset(0, 8, 1, (4, 4), 4)
    monkeypatch.setattr("unshift.theory.exact_scorer.threshold", lambda n, previous, GN: 1)
    certificate = certify(dataset)
    assert not certificate
    assert 0 < certificate.failures <= certificate.cases
    assert certificate.witness.image in range(8)


def test_brute_force_catches_a_scorer_that_is_not_equivariant(monkeypatch):
    dataset = aperiodic_dataset(0, 4, 1, (5,), 4)
    monkeypatch.setattr(ExactScorer, "forward", lambda self, images: torch.zeros(len(images), 5).long())
    certificate = certify(dataset, brute_force=4)
    assert certificate.failures == 4 * 5, "all tied"


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("brute_force", [20, 1000])
def test_certify_a_thousand_real_images_under_every_shift(mnist, brute_force):
    """With 1,000, all of the 784,000 shifted copies are scored, undone and compared: two minutes of one free core."""
    certificate = certify(mnist[:1000], Q=7, brute_force=brute_force)
    assert certificate
    assert certificate.cases == 1000 * 784
    assert certificate.shifted_copies == brute_force * 784
    assert certificate.failures == 0
    assert certificate.bound == Fraction(1, 2 * 8 * 784 + 1)
    assert certificate.bound_holds


# --- slips in the paper, each with its correction --------------------------------------------------


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
