"""The confidence: a softmax that no order of sums shows in."""

from __future__ import annotations

import pytest
import torch
from integer_sums import integers
from samples import blobs, train

from unshift.estimator import ShiftEstimator
from unshift.exact import (
    confidence,
    quantise,
)
from unshift.shifts import apply
from unshift.testing import all_shifts

# --- the choice ------------------------------------------------------------------------------------


def test_the_confidence_of_terms_is_the_same_for_every_shift():
    lines = [integers(-(2**20), 2**20, 1, n) for n in (7, 9)]
    moved = [torch.cat([line.roll(k, 1) for k in range(line.shape[1])]) for line in lines]
    found = {confidence((row[None, None], column[None, None]), 1e-5).item() for row in moved[0] for column in moved[1]}
    assert len(found) == 1


# --- confidence ------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [1e-12, 1e-9, 1e-6, 1e-3, 0.03, 1.0, 50.0, 1e12])
def test_confidence_is_the_softmax(unit):
    logits = torch.cat([3 * torch.randn(6, 8, 9), torch.zeros(1, 8, 9), 100 * torch.randn(2, 8, 9)]).double()
    scores = (logits / unit).round().clamp(-(2**50), 2**50).to(torch.int64)
    wanted = (scores.double() * unit).flatten(1).softmax(1).amax(1)
    torch.testing.assert_close(confidence(scores, unit), wanted, rtol=3e-3, atol=0)


def test_confidence_is_the_same_for_every_shift():
    scores = integers(-(2**20), 2**20, 1, 7, 9)
    moved = apply(scores.expand(63, 1, 7, 9), all_shifts((7, 9)))[:, 0]
    assert len(confidence(moved, 1e-5).unique()) == 1


@pytest.mark.parametrize("pixels", [1, 72, 224 * 224, 2**23])
def test_confidence_of_a_flat_map_is_one_over_its_pixels(pixels):
    assert confidence(torch.zeros(1, pixels, dtype=torch.int64), 1.0).item() == pytest.approx(1 / pixels)


def test_confidence_of_a_clear_winner_is_one():
    scores = torch.zeros(1, 4, 4, dtype=torch.int64)
    scores[0, 1, 1] = 10**6
    assert confidence(scores, 1.0).item() == 1


def test_confidence_of_a_quantised_net_is_near_the_float_nets():
    size = (16, 16)
    torch.manual_seed(0)
    estimator = ShiftEstimator.preset("dense", 1, size)
    images = blobs(32, 1, size)
    train(estimator, images, steps=30)
    net = quantise(estimator, images)
    wanted = estimator(images).detach().flatten(1).softmax(1).amax(1).double()
    torch.testing.assert_close(confidence(net(images), net.score_unit), wanted, rtol=0.05, atol=0.01)
