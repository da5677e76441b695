"""Photos that were turned and shifted: what the table of poses says of them, and of equiadapt beside them."""

from __future__ import annotations

import sys

import pytest
import torch

from unshift.experiments import equiadapt_rival, find
from unshift.experiments.record import Options
from unshift.experiments.renderers import terminal


@pytest.fixture(scope="module")
def photos():
    poses = find("poses")
    case = next(case for case in poses.cases if case.name == "photo-turns")
    return poses.measure(case.load(Options(quick=True, progress=False)))


def shown(result):
    return terminal(find("poses").show("photo-turns", {"photo-turns": result}))


def test_turned_and_shifted_photos_are_restored_to_one_each(photos):
    for checked in (photos["verified"], photos["forced"]):
        assert checked["mismatches"] == 0
        assert checked["moves"] >= 20
    assert photos["forced"]["brute_force"]
    assert photos["consistent"] == 100.0
    assert photos["exact"] <= photos["turn_right"]  # a photo may stand upright in the wrong place
    assert "turn right" in shown(photos)


def test_what_is_measured_of_equiadapt_stands_in_the_table_under_its_version(photos):
    assert "equiadapt" not in shown(photos)
    theirs = {"turned": [61.0, 63.0], "moved": [41.0], "versions": {"equiadapt": "9.8.7", "torchvision": "6.5.4"}}
    text = shown({**photos, "equiadapt": {**equiadapt_rival.RECIPE, **theirs}})
    turned = next(line for line in text.splitlines() if line.startswith("turned only, with equiadapt 9.8.7"))
    assert turned.endswith("62.00")
    assert "torchvision 6.5.4" in text


def test_equiadapt_is_imported_beside_a_torchvision_whose_operators_are_not_there(tmp_path, monkeypatch):
    for package, text in {
        "equiadapt": "import torchvision",
        "torchvision": "import torch\ntorch.library.register_fake('torchvision::nms')(lambda *boxes: None)",
    }.items():
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(text)
        monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(equiadapt_rival, "_KEPT", [])
    assert equiadapt_rival.is_installed()
    equiadapt_rival._import("equiadapt")
    assert hasattr(torch.ops.torchvision, "nms")
    for package in ("equiadapt", "torchvision"):
        monkeypatch.delitem(sys.modules, package)
