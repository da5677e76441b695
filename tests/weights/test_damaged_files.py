"""Damaged, foreign and newer files: each is refused with a clear word."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from restorer_files import assert_same, raw, write
from safetensors.torch import save_file
from samples import make_restorer

from unshift import load
from unshift.weights import FORMAT


def changed(path: Path, out: Path, **header) -> Path:
    """Write ``path`` again with parts of its description changed."""
    before, tensors = raw(path)
    write(out, {**before, **header}, tensors)
    return out


# --- damaged, foreign, newer -----------------------------------------------------------------------


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bytes_are_noticed_or_change_nothing(file, tmp_path, data):
    whole = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    path = tmp_path / "flipped.safetensors"
    path.write_bytes(whole)
    try:
        found = load(path)
    except ValueError as error:
        message = str(error)
    else:
        message = f"{path}: the same"
        assert_same(found, load(file))
    assert message.startswith(f"{path}: ")
    assert "\n" not in message


def test_every_byte_of_the_tensors_counts(file, tmp_path):
    whole = file.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    path, missed = tmp_path / "flipped.safetensors", []
    for i in range(start, len(whole)):
        path.write_bytes(whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :])
        try:
            load(path)
            missed.append(i)
        except ValueError:
            pass
    assert missed == []


def test_a_file_cut_at_any_length_is_refused(file, tmp_path):
    whole = file.read_bytes()
    path = tmp_path / "cut.safetensors"
    for length in sorted({*range(40), *range(0, len(whole), 7), *range(len(whole) - 40, len(whole))}):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"cut\.safetensors: not a readable safetensors file, or a truncated one"):
            load(path)


def test_a_file_that_is_too_long_is_refused(file, tmp_path):
    path = tmp_path / "long.safetensors"
    path.write_bytes(file.read_bytes() + b"more")
    with pytest.raises(ValueError, match="not a readable safetensors file"):
        load(path)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04" + bytes(50), bytes(100), b"\x80\x04K\x01."])
def test_what_is_no_safetensors_file_is_refused(content, tmp_path):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match="not a readable safetensors file"):
        load(tmp_path / "x")


def test_foreign_safetensors_are_refused(tmp_path):
    path = tmp_path / "foreign.safetensors"
    save_file({"weight": torch.zeros(3)}, path)
    with pytest.raises(ValueError, match="a safetensors file, but not of an unshift restorer"):
        load(path)
    save_file({"weight": torch.zeros(3)}, path, {"format": "pt"})
    with pytest.raises(ValueError, match="a safetensors file, but not of an unshift restorer"):
        load(path)


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "3", "null", "{}", '"text"'])
def test_a_damaged_description_is_refused(text, tmp_path):
    path = tmp_path / "x.safetensors"
    save_file({"weight": torch.zeros(3)}, path, {"unshift": text})
    with pytest.raises(ValueError, match=r"x\.safetensors: the description in this file is damaged"):
        load(path)


@pytest.mark.parametrize("version", [FORMAT + 1, 99])
def test_a_newer_format_asks_for_an_upgrade(version, file, tmp_path):
    path = changed(file, tmp_path / "x.safetensors", format=version)
    with pytest.raises(ValueError, match=rf"format {version} by a newer unshift; this one reads up to {FORMAT}: upgr"):
        load(path)


@pytest.mark.parametrize(
    "stage",
    [
        {"estimator": {}},
        {"estimator": None},
        {"estimator": {"network": {}, "bits": 10}},
        {"estimator": {"network": {"in_channels": 1}, "bits": "ten"}},
        {"coordinates": {}},
        {"coordinates": {"kind": "spiral"}},
        {"coordinates": {"kind": "canvas", "pad": -1}},
        {"coordinates": {"kind": "canvas", "colour": 1}},
        {"coordinates": {"kind": "turns", "group": "icosahedron"}},
        {"coordinates": {"kind": "chained", "stages": []}},
        {"coordinates": 7},
    ],
)
def test_a_wrong_stage_is_refused(stage, file, tmp_path):
    (before,) = raw(file)[0]["stages"]
    path = changed(file, tmp_path / "x.safetensors", stages=[{**before, **stage}])
    with pytest.raises(ValueError, match=r"x\.safetensors: not a valid unshift restorer: ") as error:
        load(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "header",
    [{"metadata": 7}, {"stages": 7}, {"stages": []}, {"stages": [7]}, {"trained_on": 7}, {"format": "2"}],
)
def test_a_wrong_description_is_refused(header, file, tmp_path):
    path = changed(file, tmp_path / "x.safetensors", **header)
    with pytest.raises(ValueError, match=r"x\.safetensors: "):
        load(path)


def test_two_stages_that_read_the_same_are_refused(file, tmp_path):
    header, tensors = raw(file)
    twice = {**tensors, **{f"1.{name.removeprefix('0.')}": tensor.clone() for name, tensor in tensors.items()}}
    write(tmp_path / "x.safetensors", {**header, "stages": header["stages"] * 2}, twice)
    with pytest.raises(ValueError, match=r"x\.safetensors: .*no two may read the same part of the pose"):
        load(tmp_path / "x.safetensors")


# --- files of unshift 0.1 --------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["missing", "more", "shape", "kind"])
def test_tensors_that_do_not_fit_are_refused(what, file, tmp_path):
    header, tensors = raw(file)
    name = next(name for name in tensors if name.endswith("weight"))
    if what == "missing":
        del tensors[name]
    elif what == "more":
        tensors["more"] = torch.zeros(2)
    else:
        tensors[name] = torch.zeros(2, 2) if what == "shape" else tensors[name].float() + 0.5
    write(tmp_path / "x.safetensors", header, tensors)
    with pytest.raises(ValueError, match=r"x\.safetensors: ") as error:
        load(tmp_path / "x.safetensors")
    assert "\n" not in str(error.value)


def test_what_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="no restorer 'mnits': neither a file nor one of"):
        load("mnits")
    with pytest.raises(ValueError, match=r"no restorer 'deep/x\.safetensors': neither a file nor one of"):
        load(Path("deep/x.safetensors"))
    with pytest.raises(ValueError, match=r"is a folder; a restorer is one \.safetensors file"):
        load(tmp_path)


# --- shipped restorers and model cards -------------------------------------------------------------


@pytest.mark.parametrize(
    "lie",
    [
        {"bits": 10**12},
        {"bits": 1.5},
        {"network": {"channels": [1] * 30_000}},
        {"network": {"channels": [1500, 1500, 1]}},
    ],
    ids=["many-bits", "half-a-bit", "many-layers", "wide-layers"],
)
def test_a_header_that_lies_is_refused_at_once(lie, tmp_path):
    """With a checksum that is right: the sender can compute one too."""
    restorer = copy.deepcopy(make_restorer("dense", 1, (6, 6)))
    described = restorer.scorer.describe()
    network = {**described["network"], **lie.get("network", {})}
    restorer.scorer._description = {**described, **lie, "network": network}
    restorer.save(tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match="not a valid unshift restorer"):
        load(tmp_path / "x.safetensors")
