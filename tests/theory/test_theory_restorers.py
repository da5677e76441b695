"""Section 4.2 and appendix C: the restorer that the theorem constructs."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
import torch
from aperiodic_sets import aperiodic_dataset, quick, seeds, small_sizes
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from unshift.shifts import apply, undo
from unshift.theory import (
    CanonicalLayer,
    ExactScorer,
    Surd,
    alpha,
    binary_layers,
    binary_restorer,
    bit_planes,
    check_map,
    decompose,
    float64_limits,
    is_estimator,
    overlaps,
    theorem_network,
    theorem_values,
    threshold,
)


def all_copies(images: Tensor) -> tuple[Tensor, Tensor]:
    """Every image under every shift, and the shifts."""
    shifts = torch.tensor(list(itertools.product(*map(range, images.shape[2:]))))
    copies = images.repeat_interleave(len(shifts), dim=0)
    rows = shifts.repeat(len(images), 1)
    return apply(copies, rows), rows


def argmax_set(values: list) -> list[int]:
    best = max(values)
    return [i for i, value in enumerate(values) if value == best]


# --- Lemmas C.1 and C.2 ----------------------------------------------------------------------------


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
            assert Surd.root(norms[s]) >= Surd.root(norms[t]) + Surd.of(Fraction(1, 2 * GN))  # 5)


def activation(c: int, n: int, previous: int | None, K: int) -> Surd:
    """The s-th ReLU of Lemma C.2, as the paper writes it."""
    before = Surd.of(Fraction(1, K)) if previous is None else Surd.root(previous)
    value = Surd.root(n) * Fraction(c, n) + Surd.of(Fraction(1, K)) - before
    return value if value.sign() > 0 else Surd()


@pytest.mark.parametrize("GN", [1, 2, 7, 30])
def test_the_threshold_is_where_the_relu_turns_on(GN):
    for n in range(1, GN + 1):
        for previous in [None, *range(1, n + 1)]:
            on = [bool(activation(c, n, previous, 2 * GN + 1).sign()) for c in range(n + 1)]
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
                assert set(values) == {Surd()}  # a)
            elif t == s:
                assert all(values[0] - value >= Surd.of(Fraction(1, K)) for value in values[1:])  # b)
            else:
                assert all(value < Surd.of(GN) for value in values)  # c)


# --- Lemma 4.4 and Theorem 4.5 ---------------------------------------------------------------------


@quick
@given(size=small_sizes, channels=st.integers(1, 2), Q=st.integers(0, 2), seed=seeds)
def test_three_evaluations_of_the_theorem_agree(size, channels, Q, seed):
    """The float64 layers, the exact values with alpha^(s-1), and the rule: one argmax, the shift."""
    dataset = aperiodic_dataset(seed, 4, channels, size, 2 ** (Q + 1))
    scorer = ExactScorer(dataset, Q)
    network = theorem_network(dataset, Q)
    assert network.depth == 2 * Q + 4
    assert network.width == max(len(dataset), (Q + 1) * channels) * math.prod(size)
    assert is_estimator(network, dataset)
    assert is_estimator(scorer, dataset)
    copies, shifts = all_copies(dataset)
    scores, values = scorer(copies), network(copies)[:, 0]
    assert torch.equal(undo(scores[:, None], shifts)[:, 0], scorer(dataset).repeat_interleave(math.prod(size), 0))
    for case in range(0, len(copies), 3):
        exact = theorem_values(scorer, copies[case])
        place = argmax_set(exact)
        assert argmax_set(scores[case].flatten().tolist()) == place
        assert argmax_set(values[case].flatten().tolist()) == place
        assert torch.unravel_index(torch.tensor(place[0]), size) == tuple(shifts[case])
        expected = torch.tensor([float(v) for v in exact], dtype=torch.float64)
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
    assert check_map(network, (3, 3), channels=2)


def test_float64_agrees_up_to_its_limit_and_says_so_beyond():
    size = (2, 4)
    limit = float64_limits(3, 8)
    dataset = aperiodic_dataset(0, limit.overflow + 1, 1, size, 8)
    assert limit == (6, 101)
    assert len(dataset) == limit.overflow + 1
    most = int(torch.finfo(torch.float64).max)
    assert alpha(3, 8) ** limit.overflow * 2 * 5 > most, "the limit is not lower than it need be"
    fits = dataset[:-1]
    network, scorer = theorem_network(fits, Q=2), ExactScorer(fits, Q=2)
    copies, _ = all_copies(fits)
    values, scores = network(copies).flatten(1), scorer(copies).flatten(1)
    assert torch.isfinite(values).all()
    assert torch.isfinite(network(torch.full((1, 1, *size), 7))).all(), "whatever the image"
    assert torch.equal(values.argmax(1), scores.argmax(1))
    with pytest.raises(OverflowError, match="at most 101 images, got 102"):
        theorem_network(dataset, Q=2)
    copies, shifts = all_copies(dataset)
    best = torch.stack(torch.unravel_index(ExactScorer(dataset, Q=2)(copies).flatten(1).argmax(1), size), 1)
    assert torch.equal(best, shifts)


def test_the_exact_values_do_not_overflow():
    """101 images are the limit of float64 above; with 110 the exact values are past 1e308 and right."""
    dataset = aperiodic_dataset(0, 110, 1, (2, 4), 8)
    scorer = ExactScorer(dataset, Q=2)
    densest = scorer.images[-1:]
    shift = torch.tensor([[1, 3]])
    exact = theorem_values(scorer, apply(densest, shift)[0])
    assert argmax_set(exact) == [1 * 4 + 3]
    with pytest.raises(OverflowError):
        float(max(exact))


def test_the_scorer_plugs_into_restorer():
    restorer_module = pytest.importorskip("unshift.restorer")
    dataset = aperiodic_dataset(3, 12, 2, (4, 5), 16)
    restorer = restorer_module.Restorer(ExactScorer(dataset))
    for images in (dataset, dataset.to(torch.uint8), dataset.float()):
        copies, shifts = all_copies(images)
        assert torch.equal(restorer(copies), images.repeat_interleave(20, 0))
        estimate = restorer.estimate(copies)
        assert torch.equal(estimate.shift, shifts)
        assert not estimate.tied.any()
    assert not restorer(torch.zeros(1, 2, 4, 5)).any()


def test_the_scorer_has_no_state_but_buffers():
    dataset = aperiodic_dataset(3, 5, 1, (4, 5), 16)
    scorer = ExactScorer(dataset.double())
    assert not list(scorer.parameters())
    before = {name: value.clone() for name, value in scorer.state_dict().items()}
    assert scorer(dataset).dtype == torch.int64
    assert all(torch.equal(before[name], value) for name, value in scorer.state_dict().items())
    assert scorer(dataset[:0]).shape == (0, 4, 5)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.rand(1, 1, 3, 3), "give raw pixels"),
        (torch.full((1, 1, 3, 3), float("nan")), "fractions or NaN"),
        (torch.full((1, 1, 3, 3), 4), r"\[0, 4\) for Q = 1, got values from 4 to 4"),
        (torch.full((1, 1, 3, 3), -1.0), "got values from -1"),
        (torch.zeros(1, 2, 3, 3), r"like the dataset, got \(1, 2, 3, 3\)"),
        (torch.zeros(1, 1, 3, 4), r"like the dataset, got \(1, 1, 3, 4\)"),
        (torch.zeros(3, 3), "2 axes"),
    ],
)
def test_errors_say_what_came_and_what_was_wanted(images, message):
    dataset = aperiodic_dataset(0, 3, 1, (3, 3), 4)
    dataset[0, 0, 0, 0] = 3
    scorer = ExactScorer(dataset, Q=1)
    with pytest.raises(ValueError, match=message):
        scorer(images)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ExactScorer(torch.zeros(0, 1, 3)), "at least one image"),
        (lambda: ExactScorer(torch.tensor([[[1, 2, 3]], [[2, 3, 1]]])), r"image 1 is image 0 shifted by \(2,\)"),
        (lambda: ExactScorer(torch.tensor([[[float("inf"), 1.0]]])), "largest pixel of inf"),
        (lambda: bit_planes(torch.zeros(1, 1, 3), Q=62), r"Q must be in 0\.\.61"),
        (lambda: binary_layers(-1), "Q must be 0 or more"),
        (lambda: decompose([4], Q=1), r"\[0, 4\)"),
        (lambda: CanonicalLayer(torch.zeros(2, 1, 3), torch.zeros(3)), r"bias \(out,\)"),
        (lambda: theorem_network(torch.tensor([[[1, 2, 3]]]))(torch.zeros(1, 1, 4)), r"size \(3,\), got \(4,\)"),
        (lambda: CanonicalLayer(torch.zeros(1, 1, 3), torch.zeros(1))(torch.zeros(1, 1, 4)), r"size \(3,\)"),
        (lambda: overlaps(torch.zeros(1, 1), torch.zeros(1, 500, 3000, 3000, device="meta")), "too large"),
        (lambda: Surd.root(-1), "negative"),
    ],
)
def test_construction_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
