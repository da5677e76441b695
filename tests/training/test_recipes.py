"""Recipes: how the presets are trained, as data that `fit` takes as flat keyword arguments."""

from __future__ import annotations

import pytest
import torch

from unshift import ShiftEstimator, fit
from unshift.estimator import PRESETS
from unshift.recipes import RECIPES, Recipe, complete

IMAGES = torch.rand(20, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def test_every_preset_has_a_recipe():
    assert list(RECIPES) == [*PRESETS, "custom"]
    for name in RECIPES:
        assert complete(name, {}).keys() == Recipe.__annotations__.keys()


def test_what_is_given_changes_the_recipe_and_none_does_not():
    assert complete("seam", {"epochs": 3, "batch_size": None}) == {**complete("seam", {}), "epochs": 3}


def test_a_recipe_can_be_taken_whole_for_a_network_of_ones_own():
    net = ShiftEstimator(3, channels=(4, 1), kernel_size=(3, 3), bias=True)
    made = fit(IMAGES, net, progress=False, **{**RECIPES["seam"], "epochs": 1})
    wanted = {"optimizer": "muon", "standardise": True, "batch_size": 64, "epochs": 1, "preset": "custom"}
    assert {key: made.metadata[key] for key in wanted} == wanted
    assert torch.equal(made(IMAGES.roll((2, 5), (2, 3))), made(IMAGES))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"epoch": 3}, TypeError, r"fit\(\) got an unexpected keyword argument 'epoch'"),
        ({"optimizer": "sgd"}, ValueError, "optimizer must be adam or muon, got 'sgd'"),
        ({"average": 1.5}, ValueError, "average must lie between 0 and 1, such as 0.999, got 1.5"),
        (
            {"standardise": True},
            ValueError,
            "standardise folds the mean into the first bias",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_before_training(changes, error, message):
    with pytest.raises(error, match=message):
        fit(IMAGES, progress=False, **changes)
