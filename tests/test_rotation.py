"""The shipped rotation restorers on a few digits: exact under quarter turns, and right under random angles."""

from __future__ import annotations

import pytest
import torch

import unshift
from unshift import classifiers
from unshift.coordinates import rotate
from unshift.data import dataset, resize, to_float
from unshift.evaluation import accuracy

NAMES = ("mnist-rotation", "mnist-rotation-paper")


def enlarge(digits):
    """Resize digits to the size at which they are rotated and restored."""
    return resize(to_float(digits), (224, 224))


def shrink(images):
    """Resize to the size of the classifier."""
    return resize(images, (32, 32))


@pytest.fixture(scope="module")
def digits():
    test = dataset("mnist-10k", "test")
    return test.images, test.labels


@pytest.fixture(scope="module")
def rotated(digits):
    """Return 100 enlarged digits, each rotated by its own angle, and their labels."""
    angles = 360 * torch.rand(100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return rotate(enlarge(digits[0][:100]), angles), digits[1][:100]


@pytest.mark.parametrize(("name", "lowest"), [("mnist-rotation", 0.95), ("mnist-rotation-paper", 0.86)])
def test_shipped_restorers_undo_random_rotations(rotated, name, lowest):
    images, labels = rotated
    classifier = classifiers.load("lenet5-mnist")
    assert accuracy(classifier, shrink(images), labels) < 0.6
    assert accuracy(classifier, shrink(unshift.load(name)(images)), labels) >= lowest


@pytest.mark.parametrize("count", [40, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_shipped_restorers_are_exact_under_quarter_turns(digits, name, count):
    restorer = unshift.load(name)
    for part in digits[0][:count].split(200):
        upright = enlarge(part)
        restored, still = restorer(upright), restorer.estimate(upright).angle
        for k in range(1, 4):
            turned = torch.rot90(upright, k, (2, 3))
            assert torch.equal(restorer(turned), restored)
            angle = restorer.estimate(turned).angle
            assert torch.equal(torch.remainder(angle - still, 360), torch.full_like(angle, 90.0 * k))


def test_the_angle_is_counter_clockwise(digits):
    angle = unshift.load("mnist-rotation").estimate(rotate(enlarge(digits[0][:20]), 40.0)).angle
    assert abs(float(angle.median()) - 40) < 3
