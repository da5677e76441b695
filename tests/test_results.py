"""The bars that what was measured must clear: a new measurement that does not is not published unnoticed."""

import json
from pathlib import Path

import pytest

import unshift
from unshift.data import dataset
from unshift.experiments import shipped_restorers

RESULTS = Path(__file__).parent.parent / "results"
BARE = {"cifar10-vgg16": 85, "cifar10-resnet18": 94, "cifar10-densenet-bc100": 94, "cifar10-mobilenet-v2": 85}


def measured(file, experiment, case):
    return json.loads((RESULTS / f"{file}.json").read_text())[experiment][case]


def unshifted(result):
    """Return the bare accuracy, and what each restorer changes, where nothing moved, on as many images as there are."""
    bare, effects = result["without"][0], []
    for entry in result["restored"].values():
        every = entry.get("all", {"without": bare, "effect": entry["effect"][0], "same_at_every_scope": True})
        assert entry["same_at_every_scope"]
        assert every["same_at_every_scope"]
        bare = every["without"]
        effects.append(every["effect"])
    return bare, effects


@pytest.mark.parametrize(
    ("file", "experiment", "case", "least_bare", "least_effect"),
    [
        *(("cifar10", "table2", case, least, -0.02) for case, least in BARE.items()),
        ("cifar10", "table1", "cifar10-resnet18", 94, -0.02),
        ("mnist", "table1", "mnist", 99, -0.05),
        ("fashion-mnist", "table1", "fashion-mnist", 90, -0.10),
        ("seam", "seam", "cifar10-resnet18-plain", 94, -0.15),
    ],
)
def test_a_restorer_costs_nearly_nothing_where_nothing_moved(file, experiment, case, least_bare, least_effect):
    bare, effects = unshifted(measured(file, experiment, case))
    assert bare >= least_bare
    assert min(effects) >= least_effect - 1e-9


@pytest.mark.parametrize(("name", "least"), [("cifar10", 0.998), ("cifar10-seam", 0.97), ("fashion-mnist", 0.99)])
def test_shipped_restorers_find_nearly_all_test_images_to_the_pixel(name, least):
    test = unshift.load(name).metadata["test"]
    assert test["images"] == 10_000
    assert test["exact"] >= least


@pytest.mark.filterwarnings("ignore:.*near guessing")
def test_a_trial_of_another_recipe_leaves_the_test_set_alone(monkeypatch, tmp_path):
    asked, digits = [], dataset("mnist-10k", "train").images[:150]
    monkeypatch.setattr(shipped_restorers, "_images", lambda _, split: asked.append(split) or digits)
    tried = shipped_restorers.make("mnist-paper", tmp_path, progress=False, epochs=1, validation=50)
    assert asked == ["train"]
    assert "test" not in tried.metadata
    assert tried.metadata["validation"]["images"] == 50
