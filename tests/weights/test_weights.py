"""A restorer is one small file, written atomically and read back bit for bit; shipped restorers and model cards."""

from __future__ import annotations

import copy
import os
from pathlib import Path

import pytest
import torch
from restorer_files import assert_same, raw, write
from samples import KINDS, PRESETS, bits, blobs, hard_images, kind_of, make_estimator, make_restorer

import unshift
from unshift import Chain, Restorer, load
from unshift.coordinates import Padded, Scene
from unshift.files import FORMAT, model_card, pretrained, read_header, save


def assert_same_answers(one: Restorer | Chain, other: Restorer | Chain, images: torch.Tensor) -> None:
    """Assert that estimates and restored images are equal bit for bit."""
    mine, theirs = one.estimate(images), other.estimate(images)
    for name in theirs._fields:
        found, wanted = getattr(mine, name), getattr(theirs, name)
        assert (found is None) == (wanted is None)
        assert wanted is None or torch.equal(found, wanted)
    assert torch.equal(bits(one(images)), bits(other(images)))


# --- round trips -----------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(("channels", "size"), [(1, (12, 12)), (3, (7, 10)), (2, (11,)), (1, (4, 5, 6))])
def test_a_restorer_comes_back_bit_for_bit(preset, channels, size, tmp_path):
    restorer = make_restorer(preset, channels, size)
    restorer.save(tmp_path / "x.safetensors")
    back = load(tmp_path / "x.safetensors")
    assert_same(back, restorer)
    assert not back.training
    assert back.scorer.describe() == restorer.scorer.describe()
    images = blobs(4, channels, size, seed=9)
    assert_same_answers(back, restorer, images)


@pytest.mark.filterwarnings("ignore:this restorer may be wrong")
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_coordinates_comes_back(kind, tmp_path):
    restorer, channels, size = kind_of(kind)
    restorer = copy.deepcopy(restorer)
    restorer.metadata, restorer.trained_on = {"note": "naïve — 数字"}, {"size": list(size), "channels": channels}
    restorer.save(str(tmp_path / "x.safetensors"))
    back = load(str(tmp_path / "x.safetensors"))
    assert type(back) is type(restorer)
    assert not back.training
    assert_same(back, restorer)
    assert (back.metadata, back.trained_on) == (restorer.metadata, restorer.trained_on)
    assert back.image_shape() == (channels, size)
    assert_same_answers(back, restorer, torch.stack([*hard_images(channels, size).values()]))
    back.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "x.safetensors").read_bytes()
    with pytest.raises(ValueError, match="pad"):
        load(tmp_path / "x.safetensors", pad=1)


def test_the_margin_is_stored_and_can_be_changed(tmp_path):
    scorer = make_restorer("paper", 1, (12, 12)).scorer
    Restorer(scorer, pad=2).save(tmp_path / "x.safetensors")
    assert load(tmp_path / "x.safetensors").coordinates.pad == 2
    assert load(tmp_path / "x.safetensors", pad=5).coordinates.pad == 5
    assert load(tmp_path / "x.safetensors", pad=0).coordinates.describe() == {"kind": "shifts"}
    with pytest.raises(ValueError, match=r"pad.*-1"):
        load(tmp_path / "x.safetensors", pad=-1)


def test_only_integers_are_saved(tmp_path):
    with pytest.raises(ValueError, match="integer"):
        Restorer(make_estimator("paper", 1, (12, 12))).save(tmp_path / "x.safetensors")
    assert list(tmp_path.iterdir()) == []


# --- atomic writes ---------------------------------------------------------------------------------


def test_a_write_that_fails_leaves_the_old_file(file, tmp_path, monkeypatch):
    path = tmp_path / "x.safetensors"
    path.write_bytes(file.read_bytes())

    def full(*_):
        raise OSError(28, "disk full")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, full)
            with pytest.raises(OSError, match="disk full"):
                save(make_restorer("dense", 1, (6, 6)), path)
        assert path.read_bytes() == file.read_bytes()
        assert list(tmp_path.iterdir()) == [path]


# --- earlier formats -------------------------------------------------------------------------------


def test_a_file_of_format_1_loads(file, tmp_path):
    """Format 1 had one stage at the top, and the properties of the training images among the metadata."""
    header, tensors = raw(file)
    (stage,) = header["stages"]
    metadata = {"preset": "paper", "data": "blobs", "size": [6, 6], "preparation": {"pad": 1}}
    old = {"format": 1, "estimator": stage["estimator"], "coordinates": stage["coordinates"], "metadata": metadata}
    write(tmp_path / "old.safetensors", old, {name.removeprefix("0."): tensor for name, tensor in tensors.items()})
    restorer = load(tmp_path / "old.safetensors")
    assert_same(restorer, load(file))
    assert_same_answers(restorer, load(file), torch.stack([*hard_images(1, (6, 6)).values()]))
    assert restorer.trained_on == {"size": [6, 6], "preparation": {"pad": 1}}
    assert restorer.metadata == metadata
    restorer.save(tmp_path / "new.safetensors")
    assert raw(tmp_path / "new.safetensors")[0]["format"] == FORMAT
    assert_same(load(tmp_path / "new.safetensors"), restorer)


def test_a_file_of_format_2_loads(file, tmp_path):
    """Format 2 had one kind of coordinates for shifts, margins and scenes."""
    header, tensors = raw(file)
    for former, kind in (({"pad": 2, "value": 0.5}, Padded), ({"pad": 0, "value": 0.0, "window": [3, 4]}, Scene)):
        stage = {**header["stages"][0], "coordinates": {"kind": "canvas", **former}}
        write(tmp_path / "old.safetensors", {**header, "format": 2, "stages": [stage]}, tensors)
        assert type(load(tmp_path / "old.safetensors").coordinates) is kind


# --- shipped restorers and model cards -------------------------------------------------------------


def test_a_shipped_name_wins_over_a_file_of_that_name_and_a_path_does_not(tmp_path, monkeypatch, file):
    monkeypatch.setattr("unshift.files.pretrained", lambda: {"mine": file})
    monkeypatch.chdir(tmp_path)
    Path("mine").write_text("nonsense")
    assert_same(load("mine"), load(file))
    with pytest.raises(ValueError, match="mine"):
        load("./mine")


def test_metadata_is_plain_data(tmp_path):
    restorer = copy.deepcopy(make_restorer("dense", 1, (6, 6)))
    restorer.metadata = {10: 1, 9: 2}
    restorer.save(tmp_path / "x.safetensors")
    assert load(tmp_path / "x.safetensors").metadata == {"10": 1, "9": 2}
    restorer.metadata = {"weights": torch.ones(1)}
    with pytest.raises(ValueError, match="JSON"):
        restorer.save(tmp_path / "y.safetensors")


@pytest.mark.filterwarnings("ignore:this")
def test_a_model_card_shows_the_metadata(tmp_path):
    restorer = unshift.fit(blobs(40, 1, (8, 8)), epochs=1, progress=False, data_name="dots")
    restorer.trained_on["preparation"] = {"pad": 4}
    restorer.save(tmp_path / "x.safetensors")
    card = model_card("mine", load(tmp_path / "x.safetensors"))
    assert card == model_card("mine", restorer)
    for text in ("# mine\n", "paper", "dots", "36 images", '{"pad": 4}', "10 bits", "4 images"):
        assert text in card
    assert "unnamed" in model_card("bare", Restorer(make_restorer("dense", 1, (6, 6)).scorer))


@pytest.mark.filterwarnings("ignore:this restorer may be wrong")
@pytest.mark.parametrize("name", pretrained())
def test_a_shipped_restorer_loads_and_is_calibrated(name):
    restorer, path = load(name), pretrained()[name]
    assert path.stat().st_size < 400_000
    header, metadata = read_header(path), restorer.metadata
    assert header["format"] == FORMAT
    assert header["metadata"] == metadata
    assert all(stage.curve is not None for stage in restorer.stages)
    assert metadata["calibration"]["ece"] < 0.05
    for rates in (metadata["test"], metadata["validation"]):
        assert 0 < rates["exact"] <= rates["within_1"] <= 1
    channels, size = restorer.image_shape()
    images = blobs(1, channels, size or (500, 500)[: restorer.stages[0].scorer.axes])
    assert restorer(images).shape[:2] == images.shape[:2]
    assert f"# {name}\n" in model_card(name, restorer)
