"""Damaged, foreign, newer and nonsensical files raise one clear ValueError."""

from __future__ import annotations

import copy
import functools
import math
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from restorer_files import assert_same, raw, write
from safetensors.torch import save_file
from samples import make_restorer

from unshift import load
from unshift.files import FORMAT, model_card, pretrained


def changed(path: Path, out: Path, **header) -> Path:
    """Write ``path`` with parts of its description changed."""
    before, tensors = raw(path)
    write(out, {**before, **header}, tensors)
    return out


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bytes_are_detected_or_change_nothing(file, tmp_path, data):
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


def test_every_flipped_byte_of_the_tensors_is_detected(file, tmp_path):
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
        with pytest.raises(ValueError, match=r"cut\.safetensors"):
            load(path)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04" + bytes(50), bytes(100), b"\x80\x04K\x01.", None])
def test_other_files_are_refused(content, file, tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(file.read_bytes() + b"more" if content is None else content)
    with pytest.raises(ValueError, match=r"x\.safetensors"):
        load(path)


@pytest.mark.parametrize("text", [None, "", "nonsense", "[]", "3", "null", "{}", '"text"'])
def test_other_safetensors_are_refused(text, tmp_path):
    path = tmp_path / "x.safetensors"
    save_file({"weight": torch.zeros(3)}, path, {"format": "pt"} if text is None else {"unshift": text})
    with pytest.raises(ValueError, match=r"x\.safetensors"):
        load(path)


@pytest.mark.parametrize("version", [FORMAT + 1, 99])
def test_a_newer_format_is_refused(version, file, tmp_path):
    path = changed(file, tmp_path / "x.safetensors", format=version)
    with pytest.raises(ValueError, match=rf"{version}.*{FORMAT}"):
        load(path)


def test_two_stages_that_read_the_same_are_refused(file, tmp_path):
    header, tensors = raw(file)
    twice = {**tensors, **{f"1.{name.removeprefix('0.')}": tensor.clone() for name, tensor in tensors.items()}}
    write(tmp_path / "x.safetensors", {**header, "stages": header["stages"] * 2}, twice)
    with pytest.raises(ValueError, match=r"x\.safetensors: .*shift, shift"):
        load(tmp_path / "x.safetensors")


@pytest.mark.parametrize("change", ["missing", "more", "shape", "dtype"])
def test_tensors_that_do_not_fit_are_refused(change, file, tmp_path):
    header, tensors = raw(file)
    name = next(name for name in tensors if name.endswith("weight"))
    if change == "missing":
        del tensors[name]
    elif change == "more":
        tensors["more"] = torch.zeros(2)
    else:
        tensors[name] = torch.zeros(2, 2) if change == "shape" else tensors[name].float() + 0.5
    write(tmp_path / "x.safetensors", header, tensors)
    with pytest.raises(ValueError, match=r"x\.safetensors: ") as error:
        load(tmp_path / "x.safetensors")
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("mnits", Path("deep/x.safetensors")):
        with pytest.raises(ValueError, match=str(name)):
            load(name)
    with pytest.raises(ValueError, match="folder"):
        load(tmp_path)


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
def test_a_false_description_is_refused_before_it_takes_memory(lie, tmp_path):
    restorer = copy.deepcopy(make_restorer("dense", 1, (6, 6)))
    described = restorer.scorer.describe()
    network = {**described["network"], **lie.get("network", {})}
    restorer.scorer._description = {**described, **lie, "network": network}
    restorer.save(tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match=r"x\.safetensors: "):
        load(tmp_path / "x.safetensors")


# --- nonsense with a valid checksum ----------------------------------------------------------------

NONSENSE = (math.nan, 1e9, -1, 10**9, "x", None, [], {}, True, [math.nan, 2], 0, [[1]])


def paths(value, path=()):
    """Yield the path of every part of plain data, but of lists only the first two items."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, part in items:
        yield from paths(part, (*path, key))


def replaced(value, path, new):
    changed = copy.deepcopy(value)
    parent = functools.reduce(lambda part, key: part[key], path[:-1], changed)
    parent[path[-1]] = new
    return changed


@pytest.mark.filterwarnings("ignore:this restorer may be wrong")
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("mnist", (1, 1, 32, 32)),
        pytest.param("mnist-pose", (1, 1, 32, 32), marks=pytest.mark.slow),
        pytest.param("mnist-turns", (1, 1, 32, 32), marks=pytest.mark.slow),
        pytest.param("mnist-scene", (1, 1, 48, 48), marks=pytest.mark.slow),
    ],
)
def test_a_file_with_any_part_replaced_is_refused_or_works(name, shape, tmp_path):
    """Replace each part of the description by nonsense: no other error than a ValueError that names the file."""
    header, tensors = raw(pretrained()[name])
    header["metadata"].pop("history", None)
    path, images = tmp_path / "x.safetensors", torch.rand(shape)
    refused = 0
    for part in list(paths(header))[1:]:
        for new in NONSENSE:
            write(path, replaced(header, part, new), tensors)
            try:
                restorer = load(path)
            except ValueError as error:
                assert str(error).startswith(str(path)), (part, new)  # noqa: PT017
                refused += 1
            else:
                restorer(images)
                model_card("x", restorer)
    assert refused > 100


@pytest.mark.parametrize(
    ("part", "new", "field"),
    [
        (("coordinates", "pad"), 10**9, "pad"),
        (("coordinates", "value"), math.nan, "value"),
        (("estimator", "size"), [math.nan, 6], "size"),
        (("estimator", "network", "kernel_size"), [9.5, 9], "kernel_size"),
        (("curve",), [[3, "x"]], "curve"),
    ],
)
def test_the_error_names_the_field(part, new, field, file, tmp_path):
    header, tensors = raw(file)
    header["stages"][0]["coordinates"] = {"kind": "padded", "pad": 1, "value": 0.0}
    write(tmp_path / "x.safetensors", replaced(header, ("stages", 0, *part), new), tensors)
    with pytest.raises(ValueError, match=rf"x\.safetensors.*{field}"):
        load(tmp_path / "x.safetensors")
