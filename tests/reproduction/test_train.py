"""The training scripts of the shipped restorers: their recipes, a trial of each kind, and photographs for `photos`."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import import_module

import pytest
import torch

import unshift
from reproduction import mitogenomes, photographs
from reproduction.mitogenomes import Mitogenome
from reproduction.train import common
from unshift.data import DataError, dataset
from unshift.files import pretrained

SCRIPTS = sorted(pretrained())


@pytest.fixture
def few(monkeypatch):
    """Stand in for the data sets: 150 images of the right shape each."""
    digits = dataset("mnist-10k", "test")
    images = {1: digits.images, 3: torch.randint(0, 255, (200, 3, 32, 32)).byte()}

    def load(name, split):
        channels = 3 if name == "cifar10" else 1
        return replace(digits, images=images[channels][:150], labels=digits.labels[:150])

    for name in SCRIPTS:
        module = import_module(f"reproduction.train.{name.replace('-', '_')}")
        if hasattr(module, "dataset"):
            monkeypatch.setattr(module, "dataset", load)
    monkeypatch.setattr(common, "dataset", load)
    genome = torch.eye(4)[torch.randint(4, (300,))].T
    monkeypatch.setattr(mitogenomes, "examples", lambda split: [genome.roll(n, 1) for n in range(20)])
    texts = ["".join("ACGT"[base] for base in genome.roll(n, 1).argmax(0)) for n in range(20)]
    made = [Mitogenome(str(n), text, "C", "O", "G", "train", False) for n, text in enumerate(texts)]
    monkeypatch.setattr(mitogenomes, "genomes", lambda: made)
    return images


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name not in ("photos", "pages")])  # loops of their own
def test_a_script_calls_fit_with_the_recipe_of_the_shipped_file(name, few, monkeypatch):
    calls = []

    class Stop(Exception):
        pass

    def fit(images, preset="paper", **options):
        calls.append((preset, options))
        raise Stop

    monkeypatch.setattr(unshift, "fit", fit)
    script = import_module(f"reproduction.train.{name.replace('-', '_')}")
    with pytest.raises(Stop):
        script.train()
    ((preset, options),) = calls
    shipped = unshift.load(name)
    stored = shipped.metadata.get("stages", [shipped.metadata])[0]
    assert options["data_name"] == stored["data"]
    for key in ("epochs", "batch_size", "learning_rate", "average", "optimizer", "standardise"):
        if key in options and key in stored:
            assert options[key] == stored[key], key
    if isinstance(preset, str):
        assert preset == stored["preset"]
    else:
        assert preset.describe() == unshift.load(name).stages[0].scorer.describe()["network"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["mnist_paper", "mnist_pose", "mnist_scene"])
def test_a_trial_writes_only_where_it_is_told_and_leaves_the_test_set_alone(name, few, monkeypatch, tmp_path):
    script = import_module(f"reproduction.train.{name}")
    monkeypatch.setattr(script, "HELD_OUT", 50)
    if hasattr(script, "FIT"):
        monkeypatch.setattr(script, "train", replace(script.FIT, HELD_OUT=50).train)
    monkeypatch.setattr(common, "test_rates", lambda *_: pytest.fail("measured on the test set"))
    path = tmp_path / "tried.safetensors"
    common.main(script, ["--out", str(path), "--epochs", "1"])
    tried = unshift.load(path)
    assert "test" not in tried.metadata
    assert tried.metadata.get("validation", {"images": 50})["images"] == 50
    with pytest.raises(SystemExit):
        common.main(script, [])  # --out is required: nothing is written into the package


def test_a_restorer_is_calibrated_on_the_images_held_out_and_measured(few, monkeypatch, tmp_path):
    script = import_module("reproduction.train.mnist")
    monkeypatch.setattr(script, "HELD_OUT", 50)
    path = tmp_path / "calibrated.safetensors"
    common.main(script, ["--out", str(path), "--calibrate", "mnist"])
    facts = unshift.load(path).metadata
    assert facts["calibration"]["images"] == facts["validation"]["images"] == 50
    assert facts["test"]["images"] == 150


# --- photographs


def test_no_package_is_in_two_splits():
    packages = [(registry, name) for _, registry, name in photographs.packages()]
    assert len({*packages}) == len(packages)
    assert {split for split, *_ in photographs.packages()} == {"train", "held-out", "test"}


def test_a_missing_photograph_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path))
    with pytest.raises(DataError, match=re.escape(str(tmp_path))):
        photographs.photographs("train")
