"""The main job at small scale: what `unshift reproduce` prints, writes and claims."""

from __future__ import annotations

import base64
import json
import re

import pytest
import torch

import unshift
from unshift.evaluation import accuracy
from unshift.experiments import ITEMS, MAIN, reproduce, table1
from unshift.experiments.classifiers import LeNet5, load_classifier, save_classifier, shipped, train_classifier
from unshift.experiments.setting import mnist_setting


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    return folder, reproduce(out=folder, quick=True, progress=False)


def test_the_accuracy_is_one_number_at_every_scope(made):
    _, results = made
    assert results["table1"]["scopes"] == list(range(9))
    for entry in results["table1"]["restored"].values():
        assert len(set(entry["accuracy"])) == 1
        assert entry["same_at_every_scope"]
        assert set(entry["consistent"]) == {100.0}


def test_the_bare_classifier_falls(made):
    bare = made[1]["table1"]["without"]
    assert bare[0] > 98
    assert bare[8] < 50


def test_no_shift_in_the_heat_map_costs_the_restored_anything(made):
    fig1 = made[1]["fig1"]
    assert {value for row in fig1["lost_restored"] for value in row} == {0.0}
    assert max(max(row) for row in fig1["lost_without"]) > 10
    assert fig1["lost_without"][3][3] == 0.0  # no shift, no loss


def test_the_pictures_show_what_was_done(made):
    fig3 = made[1]["fig3"]
    original, shifted, restored = (torch.tensor(fig3["pictures"][k]) for k in ("original", "shifted", "restored"))
    assert torch.equal(shifted, unshift.apply(original, torch.tensor(fig3["applied"])))
    assert torch.equal(restored, unshift.undo(shifted, torch.tensor(fig3["estimated"])))


def test_the_page_is_whole_and_needs_nothing_else(made):
    folder, results = made
    page = (folder / "index.html").read_text(encoding="utf-8")
    pictures = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert len(pictures) == 3
    assert all(base64.b64decode(picture).startswith(b"\x89PNG") for picture in pictures)
    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    assert "$" not in page
    for value in results["table1"]["without"]:
        assert f"<td>{value:.2f}</td>" in page
    stored = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert stored["table1"]["without"] == results["table1"]["without"]
    assert {"torch", "python", "unshift", "seconds"} <= set(stored["provenance"])
    assert "pictures" not in stored["fig3"]


def test_the_table_stands_beside_the_papers(made):
    text = table1.text(made[1]["table1"])
    assert "98.89" in text
    assert "35.70" in text
    assert "n = 500" in text


def test_one_item_alone(tmp_path):
    results = reproduce(["fig3"], tmp_path / "new" / "folder", quick=True, progress=False)
    assert set(results) == {"fig3", "provenance"}
    assert set(MAIN) < set(ITEMS)


def test_unknown_item(tmp_path):
    with pytest.raises(ValueError, match="no experiment 'fig99'; there are table1"):
        reproduce(["fig99"], tmp_path)


def test_training_from_scratch(tmp_path):
    results = reproduce(["table1"], tmp_path, train=True, quick=True, progress=False)
    assert set(results["table1"]["restored"]) == {"dense", "paper"}
    assert all(entry["same_at_every_scope"] for entry in results["table1"]["restored"].values())
    assert "trained here on 2000 digits" in results["table1"]["classifier"]


def test_shipped_lenet():
    setting = mnist_setting(progress=False)
    assert accuracy(setting.classifier, setting.images, setting.labels) > 0.99
    assert sum(p.numel() for p in LeNet5().parameters()) == 61_706
    assert "lenet5-mnist" in shipped()


def test_classifier_round_trip(tmp_path):
    images, labels = torch.rand(40, 1, 32, 32), torch.arange(40) % 10
    model = train_classifier("lenet5", images, labels, epochs=1, progress=False)
    save_classifier(model, tmp_path / "c.safetensors", {"architecture": "lenet5"})
    again = load_classifier(tmp_path / "c.safetensors")
    assert torch.equal(model(images), again(images))
    save_classifier(model, tmp_path / "d.safetensors", {"architecture": "other"})
    with pytest.raises(ValueError, match=r"d\.safetensors: not a classifier of the experiments"):
        load_classifier(tmp_path / "d.safetensors")


@pytest.mark.slow
def test_the_headline_on_all_test_digits(tmp_path):
    """The issue's own line: with `mnist` no lower than bare minus 0.05 points, with `mnist-paper` minus 0.20."""
    result = reproduce(["table1"], tmp_path, progress=False)["table1"]
    assert result["images"] == 10_000
    assert result["restored"]["mnist"]["effect"][0] >= -0.05
    assert result["restored"]["mnist-paper"]["effect"][0] >= -0.20
    assert all(entry["same_at_every_scope"] for entry in result["restored"].values())
