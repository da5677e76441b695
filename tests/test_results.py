"""The results in results/ hold what the project claims: they are read here, `unshift reproduce` measures them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "results"
STORED = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")}


OVER_SCOPES = [
    (name, item, case)
    for name, items in STORED.items()
    if not name.startswith("benchmark")
    for item, cases in items.items()
    for case, result in cases.items()
    if "restored" in result
]


@pytest.mark.parametrize(("name", "item", "case"), OVER_SCOPES)
def test_one_accuracy_at_every_scope(name, item, case):
    result = STORED[name][item][case]
    assert name == "main" or len(result["seeds"]) >= 5
    assert {"torch", "python", "unshift", "commit", "threads"} <= set(result["provenance"])
    for entry in result["restored"].values():
        assert entry["same_at_every_scope"]
        assert len(set(entry["accuracy"])) == 1
        assert set(entry["consistent"]) == {100.0}
        assert len(set(entry.get("all", entry)["accuracy"])) == 1


@pytest.mark.parametrize(("name", "item", "case"), OVER_SCOPES)
def test_a_gain_wherever_the_bare_classifier_drops(name, item, case):
    result = STORED[name][item][case]
    worst = 0.3  # points: what the restorers' own misses cost at most, see below
    for entry in result["restored"].values():
        for bare, effect in zip(result["without"], entry["effect"], strict=True):
            assert effect > 0 or result["without"][0] - bare <= worst


@pytest.mark.parametrize(("restorer", "least"), [("mnist", -0.05), ("mnist-paper", -0.20)])
def test_unshifted_digits_lose_nearly_nothing(restorer, least):
    assert STORED["mnist"]["table1"]["mnist"]["restored"][restorer]["effect"][0] >= least


def test_unshifted_photos_lose_no_more_than_in_the_paper():
    cases = STORED["cifar10"]["table2"]
    assert set(cases) == {"cifar10-vgg16", "cifar10-resnet18", "cifar10-densenet121", "cifar10-mobilenet-v2"}
    for result in cases.values():
        every = result["restored"]["cifar10"]["all"]
        assert every["images"] == 10_000
        assert round(every["effect"], 2) >= -0.04


def test_without_a_margin():
    (result,) = STORED["seam"]["seam"].values()
    assert result["restored"]["cifar10-seam"]["all"]["effect"] >= -0.30
    epochs = [entry["epochs"] for entry in result["budget"]]
    rates = [entry["test"]["exact"] for entry in result["budget"]]
    assert epochs == [1, 3, 20]
    assert rates == sorted(rates)
