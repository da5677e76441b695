"""Numbers at their limits, and dtypes that few use."""

from __future__ import annotations

import copy

import pytest
import torch
from samples import assert_exact, bits, blobs, make_estimator, make_restorer
from torch import nn

import unshift
from unshift import Restorer, quantise
from unshift.exact import LARGEST_SCALE, Scores
from unshift.exact.quantised import bits_of

# --- numbers at their limits -----------------------------------------------------------------------


@pytest.mark.parametrize("top", [1e-38, 1e-40, 1e-44, 1e-30, 1e-20])
def test_pixels_that_flush_to_zero_are_zero_anyway(top):
    images = (blobs(4, 1, (8, 8)) / 0.5 * top).float()
    restorer = Restorer(quantise(make_estimator("dense", 1, (8, 8)), images))
    assert float(restorer.scorer.pixel_scale_bits.view(torch.float64)) <= LARGEST_SCALE
    wanted, still = restorer.estimate(images), restorer(images)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormal numbers")
    try:
        found, restored = restorer.estimate(images), restorer(images)
    finally:
        torch.set_flush_denormal(False)
    assert torch.equal(found.shift, wanted.shift)
    assert torch.equal(found.confidence, wanted.confidence)
    assert torch.equal(found.tied, wanted.tied)
    assert torch.equal(bits(restored), bits(still))


def test_a_file_with_a_larger_pixel_scale_is_refused(tmp_path):
    restorer = copy.deepcopy(make_restorer("dense", 1, (8, 8)))
    restorer.scorer.pixel_scale_bits.copy_(bits_of(LARGEST_SCALE))
    restorer.save(tmp_path / "largest.safetensors")
    unshift.load(tmp_path / "largest.safetensors")
    restorer.scorer.pixel_scale_bits.copy_(bits_of(2 * LARGEST_SCALE))
    restorer.save(tmp_path / "larger.safetensors")
    with pytest.raises(ValueError, match="pixel_scale_bits"):
        unshift.load(tmp_path / "larger.safetensors")


@pytest.mark.parametrize("unit", [1e-30, 1e-18, 1e-9, 1.0, 1e30])
def test_scores_that_are_2_to_the_63_apart_have_a_confidence(unit):
    scores = torch.tensor([[-(2**63), 2**63 - 1, 0], [2**63 - 1] * 3, [-(2**63)] * 3])
    found = Scores([scores], (1, 3)).confidence(unit)
    assert ((found > 0) & (found <= 1)).all()
    assert torch.equal(Scores([scores.flip(1)], (1, 3)).confidence(unit), found)
    assert found[1:].tolist() == pytest.approx([1 / 3, 1 / 3])


class Extreme(nn.Module):
    """A foreign scorer whose scores are as far apart as int64 goes."""

    def forward(self, images):
        return torch.where(images[:, 0] > 0.5, 2**63 - 1, -(2**63))


def test_a_foreign_scorer_may_use_all_of_int64():
    image = torch.rand(1, 8, 8)
    restorer = Restorer(Extreme())
    assert_exact(restorer, image)
    assert 0 < restorer.estimate(image[None]).confidence.item() <= 1
