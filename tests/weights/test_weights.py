"""One file a restorer: bit for bit, small, and written whole or not at all."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from restorer_files import assert_same, raw, write
from samples import PRESETS, bits, blobs, hard_images, make_estimator, make_restorer

import unshift
from unshift import Chain, Restorer, load, quantise, weights
from unshift.coordinates import Canvas, Centre, Polar, Ring, Turns
from unshift.testing import all_shifts
from unshift.weights import FORMAT, save, write_atomically


def assert_same_answers(one: Restorer | Chain, other: Restorer | Chain, images: torch.Tensor) -> None:
    """All that an estimate says, and what is restored, bit for bit."""
    mine, theirs = one.estimate(images), other.estimate(images)
    for name in theirs._fields:
        found, wanted = getattr(mine, name), getattr(theirs, name)
        assert (found is None) == (wanted is None)
        assert wanted is None or torch.equal(found, wanted)
    assert torch.equal(bits(one(images)), bits(other(images)))


def made_for(coordinates: Any, channels: int, size: tuple[int, ...], preset: str = "paper") -> Restorer:
    """A restorer of random weights."""
    images = coordinates.canvas(blobs(8, channels, size)).flatten(0, 1)
    return Restorer(quantise(coordinates.network(preset, channels, size), images), coordinates=coordinates)


# --- there and back --------------------------------------------------------------------------------


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


KINDS = {
    "canvas": (Canvas(2, 0.25), 1, (5, 6)),
    "ring": (Ring(0), 2, (9, 3)),
    "mirror": (Turns("mirror"), 1, (5, 6)),
    "quarter": (Turns("quarter"), 1, (6, 6)),
    "strand": (Turns("strand"), 4, (11,)),
    "cube": (Turns("cube"), 1, (4, 4, 4)),
    "centre": (Centre(), 1, (6, 6)),
    "polar": (Polar(8, angles=8, radii=3, refine=True), 1, (8, 8)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_coordinates_comes_back(kind, tmp_path):
    restorer = made_for(*KINDS[kind])
    restorer.trained_on = {"size": list(KINDS[kind][2]), "channels": KINDS[kind][1], "preparation": {"pad": 1}}
    restorer.save(tmp_path / "x.safetensors")
    back = load(tmp_path / "x.safetensors")
    assert_same(back, restorer)
    assert back.trained_on == restorer.trained_on
    assert weights.image_shape(back) == (KINDS[kind][1], KINDS[kind][2])
    assert_same_answers(back, restorer, torch.stack([*hard_images(*KINDS[kind][1:]).values()]))
    if kind != "canvas":
        with pytest.raises(ValueError, match=r"have no margin"):
            load(tmp_path / "x.safetensors", pad=1)


def test_local_filters_over_the_axes_of_a_ring_come_back(tmp_path):
    restorer = made_for(Ring(0), 2, (9, 5), "seam")
    restorer.save(tmp_path / "x.safetensors")
    back = load(tmp_path / "x.safetensors")
    assert back.scorer.across == (5,)
    assert_same_answers(back, restorer, torch.stack([*hard_images(2, (9, 5)).values()]))


def test_a_chain_comes_back(tmp_path):
    chain = Chain(made_for(*KINDS["centre"]), made_for(Polar(6, angles=8, radii=3), 1, (6, 6)))
    chain.metadata, chain.trained_on = {"data": "dots"}, {"size": [6, 6]}
    chain.save(tmp_path / "x.safetensors")
    header, _ = raw(tmp_path / "x.safetensors")
    assert [stage["coordinates"]["kind"] for stage in header["stages"]] == ["centre", "polar"]
    back = load(tmp_path / "x.safetensors")
    assert isinstance(back, Chain)
    assert not back.training
    assert_same(back, chain)
    assert (back.metadata, back.trained_on) == (chain.metadata, chain.trained_on)
    assert_same_answers(back, chain, torch.stack([*hard_images(1, (6, 6)).values()]))
    back.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "x.safetensors").read_bytes()


def test_a_fitted_restorer_comes_back_with_what_is_known_of_it(tmp_path):
    restorer = unshift.fit(blobs(20, 1, (8, 8)), "seam", epochs=1, progress=False, data_name="dots")
    restorer.metadata["note"] = "naïve — 数字"
    restorer.save(str(tmp_path / "x.safetensors"))
    back = load(str(tmp_path / "x.safetensors"))
    assert (back.metadata, back.trained_on) == (restorer.metadata, restorer.trained_on)
    assert restorer.trained_on["size"] == [8, 8]
    assert_same(back, restorer)


def test_the_margin_is_kept_and_can_be_changed(tmp_path):
    scorer = make_restorer("paper", 1, (12, 12)).scorer
    Restorer(scorer, pad=2).save(tmp_path / "x.safetensors")
    assert load(tmp_path / "x.safetensors").coordinates.pad == 2
    assert load(tmp_path / "x.safetensors", pad=5).coordinates.pad == 5
    assert load(tmp_path / "x.safetensors", pad=0).coordinates.pad == 0
    with pytest.raises(ValueError, match="pad must be 0 or more pixels, got -1"):
        load(tmp_path / "x.safetensors", pad=-1)


def test_saved_twice_is_the_same_file(file, tmp_path):
    load(file).save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == file.read_bytes()


def test_loading_and_saving_leave_the_callers_random_state_alone(file, tmp_path):
    state = torch.get_rng_state()
    load(file).save(tmp_path / "x.safetensors")
    assert torch.equal(torch.get_rng_state(), state)


def test_a_loaded_restorer_is_exact(file):
    restorer, image = load(file), blobs(1, 1, (6, 6), seed=3)
    shifts = all_shifts((6, 6))
    restored = restorer(unshift.apply(image.expand(36, 1, 6, 6), shifts))
    assert torch.equal(restored, restorer(image).expand(36, 1, 6, 6))


@pytest.mark.parametrize(("preset", "most"), [("paper", 6_000), ("dense", 45_000), ("seam", 220_000)])
def test_the_files_are_small(preset, most, tmp_path):
    make_restorer(preset, 1, (32, 32)).save(tmp_path / "x.safetensors")
    assert (tmp_path / "x.safetensors").stat().st_size < most


def test_only_integers_are_saved(tmp_path):
    with pytest.raises(ValueError, match="only integer estimators can be saved, got ShiftEstimator"):
        Restorer(make_estimator("paper", 1, (12, 12))).save(tmp_path / "x.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_nothing_in_a_file_is_a_float(file):
    _, tensors = raw(file)
    assert not any(tensor.is_floating_point() for tensor in tensors.values())


# --- all or nothing --------------------------------------------------------------------------------


def test_a_write_that_fails_leaves_the_old_file(file, tmp_path, monkeypatch):
    path = tmp_path / "x.safetensors"
    path.write_bytes(file.read_bytes())

    def full(*_):
        raise OSError("disk full")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, full)
            with pytest.raises(OSError, match="disk full"):
                save(make_restorer("dense", 1, (6, 6)), path)
        assert path.read_bytes() == file.read_bytes()
        assert list(tmp_path.iterdir()) == [path]


def test_folders_are_made_and_a_file_is_replaced_whole(file, tmp_path):
    path = tmp_path / "deep" / "er" / "x"
    write_atomically(path, b"long" * 100)
    write_atomically(path, b"short")
    assert path.read_bytes() == b"short"
    assert list(path.parent.iterdir()) == [path]


# --- files of unshift 0.1 --------------------------------------------------------------------------


def test_a_file_of_the_first_format_says_the_same(file, tmp_path):
    """Format 1 had one stage at the top, and what acts among the metadata."""
    header, tensors = raw(file)
    (stage,) = header["stages"]
    metadata = {"preset": "paper", "data": "blobs", "size": [6, 6], "preparation": {"pad": 1}}
    old = {"format": 1, "estimator": stage["estimator"], "coordinates": stage["coordinates"], "metadata": metadata}
    write(tmp_path / "old.safetensors", old, {name.removeprefix("0."): tensor for name, tensor in tensors.items()})
    found = load(tmp_path / "old.safetensors")
    assert_same(found, load(file))
    assert_same_answers(found, load(file), torch.stack([*hard_images(1, (6, 6)).values()]))
    assert found.trained_on == {"size": [6, 6], "preparation": {"pad": 1}}
    assert found.metadata == metadata
    found.save(tmp_path / "new.safetensors")
    assert raw(tmp_path / "new.safetensors")[0]["format"] == FORMAT
    again = load(tmp_path / "new.safetensors")
    assert_same(again, found)
    assert (again.metadata, again.trained_on) == (found.metadata, found.trained_on)


# --- shipped restorers and model cards -------------------------------------------------------------


def test_a_shipped_name_wins_over_a_file_of_that_name_and_a_path_does_not(tmp_path, monkeypatch, file):
    monkeypatch.setattr("unshift.weights.pretrained", lambda: {"mine": file})
    monkeypatch.chdir(tmp_path)
    Path("mine").write_text("nonsense")
    assert_same(load("mine"), load(file))
    with pytest.raises(ValueError, match="not a readable safetensors file"):
        load("./mine")


def test_metadata_is_plain_data(tmp_path):
    restorer = copy.deepcopy(make_restorer("dense", 1, (6, 6)))
    restorer.metadata = {10: 1, 9: 2}
    restorer.save(tmp_path / "x.safetensors")
    assert load(tmp_path / "x.safetensors").metadata == {"10": 1, "9": 2}
    restorer.metadata = {"weights": torch.ones(1)}
    with pytest.raises(ValueError, match="metadata must be plain JSON data"):
        restorer.save(tmp_path / "y.safetensors")
