"""certify: what it proves of a data set, and what it refuses."""

from __future__ import annotations

import math
import time
from fractions import Fraction

import pytest
import torch
from aperiodic_sets import aperiodic_dataset, quick, seeds, small_sizes
from hypothesis import given
from hypothesis import strategies as st

from unshift.shifts import apply
from unshift.theory import (
    Aperiodicity,
    ExactScorer,
    Surd,
    certify,
    theorem_network,
)

# --- Lemma 4.4 and Theorem 4.5 ---------------------------------------------------------------------


@given(
    a=st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 60)), max_size=5),
    b=st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 60)), max_size=5),
)
def test_surds_order_like_the_real_numbers(a, b):
    def exact(terms):
        total = Surd()
        for q, n in terms:
            total += Surd.root(n) * q
        return total

    gap = sum(q * math.sqrt(n) for q, n in a) - sum(q * math.sqrt(n) for q, n in b)
    x, y = exact(a), exact(b)
    if abs(gap) > 1e-9:
        assert (x > y) == (gap > 0)
        assert float(x - y) == pytest.approx(gap, rel=1e-6)
    assert (x - y).sign() == (x > y) - (x < y)
    assert (x == y) == ((x - y).sign() == 0)


def test_surds_too_close_for_floats():
    assert Surd.root(12) == Surd.root(3) * 2
    assert math.sqrt(10**32 + 1) == math.sqrt(10**32)
    assert Surd.of(10**16) < Surd.of(10**16) + (Surd.root(3) * 780 - Surd.root(2) * 955 + Surd.of(0)) * Fraction(
        1, 10**40
    )


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
    assert str(certificate).startswith("certified:")


def test_certify_refuses_and_names_the_images():
    dataset = aperiodic_dataset(0, 8, 1, (4, 4), 9)
    copy = torch.cat([dataset, apply(dataset[2:3], torch.tensor([[1, 3]]))])
    certificate = certify(copy)
    assert not certificate
    assert isinstance(certificate.witness, Aperiodicity)
    assert (certificate.witness.pair, certificate.witness.shift) == ((2, 8), (1, 3))
    assert str(certificate) == "refused: the dataset is not aperiodic: image 8 is image 2 shifted by (1, 3)"
    periodic = dataset.clone()
    periodic[5, 0, :, 2:] = periodic[5, 0, :, :2]
    assert "image 5 is itself shifted by (0, 2)" in str(certify(periodic))


def test_certify_reports_a_restorer_that_fails(monkeypatch):
    """With thresholds set wrong, a filter above an image's own turns on, and the certificate says so."""
    dataset = aperiodic_dataset(0, 8, 1, (4, 4), 4)
    monkeypatch.setattr("unshift.theory.exact_scorer.threshold", lambda n, previous, GN: 1)
    certificate = certify(dataset)
    assert not certificate
    assert 0 < certificate.failures <= certificate.cases
    assert "decides instead of its own" in str(certificate)
    assert certificate.witness.image in range(8)


def test_certify_by_hand_catches_what_equivariance_would_hide(monkeypatch):
    dataset = aperiodic_dataset(0, 4, 1, (5,), 4)
    monkeypatch.setattr(ExactScorer, "forward", lambda self, images: torch.zeros(len(images), 5).long())
    certificate = certify(dataset, brute_force=4)
    assert certificate.failures == 4 * 5, "all tied"
    assert "this copy is not restored" in str(certificate)


@pytest.mark.data
@pytest.mark.slow
def test_certify_a_thousand_real_images_under_every_shift(mnist):
    start = time.perf_counter()
    certificate = certify(mnist[:1000], Q=7, brute_force=20)
    seconds = time.perf_counter() - start
    print(f"\n{certificate} ({seconds:.0f} s)")
    assert certificate
    assert certificate.cases == 1000 * 784
    assert certificate.shifted_copies == 20 * 784
    assert certificate.failures == 0
    assert certificate.bound == Fraction(1, 2 * 8 * 784 + 1)
    assert certificate.bound_holds
    assert seconds < 600


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_certify_a_thousand_real_images_without_using_equivariance(mnist):
    """Each of the 784,000 shifted copies is scored, undone and compared: two minutes of one free core."""
    start = time.perf_counter(), time.process_time()
    certificate = certify(mnist[:1000], Q=7, brute_force=1000)
    seconds, work = time.perf_counter() - start[0], time.process_time() - start[1]
    print(f"\n{certificate} ({seconds:.0f} s, of which {work:.0f} s computing)")
    assert certificate
    assert certificate.shifted_copies == certificate.cases == 1000 * 784
    assert certificate.failures == 0


@pytest.mark.data
@pytest.mark.slow
def test_the_theorems_own_layers_on_real_images_up_to_the_limit(mnist):
    images = mnist[:39]
    network, scorer = theorem_network(images, Q=7), ExactScorer(images, Q=7)
    assert (network.depth, network.width) == (18, 39 * 784)
    shifts = torch.randint(28, (39, 2), generator=torch.Generator().manual_seed(0))
    copies = apply(images, shifts)
    values = torch.cat([network(copy[None]) for copy in copies]).flatten(1)
    assert torch.isfinite(values).all()
    assert torch.equal(values.argmax(1), scorer(copies).flatten(1).argmax(1))
    assert torch.equal(values.argmax(1), shifts[:, 0] * 28 + shifts[:, 1])
    with pytest.raises(OverflowError, match="at most 39 images, got 40"):
        theorem_network(mnist[:40], Q=7)
