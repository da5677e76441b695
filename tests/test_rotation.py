"""The shipped rotation restorers on a few digits: exact under quarter turns, and right under random angles."""

from __future__ import annotations

import pytest
import torch

import unshift
from unshift.data import dataset, resize, to_float

NAMES = ("mnist-rotation", "mnist-rotation-paper")


def enlarge(digits):
    """Resize digits to the size at which they are rotated and restored."""
    return resize(to_float(digits), (224, 224))


@pytest.fixture(scope="module")
def digits():
    test = dataset("mnist-10k", "test")
    return test.images, test.labels


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
