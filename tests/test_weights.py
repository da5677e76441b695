"""One file a restorer: bit for bit, small, no pickle, and a clear word on every damaged file."""

from __future__ import annotations

import ast
import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save as to_bytes
from safetensors.torch import save_file
from samples import PRESETS, bits, blobs, hard_images, make_estimator, make_restorer

import unshift
from unshift import Chain, Restorer, load, quantise, weights
from unshift.coordinates import Canvas, Centre, Polar, Ring, Turns
from unshift.testing import all_shifts
from unshift.weights import FORMAT, model_card, pretrained, read_header, save, write_atomically

PACKAGE = Path(unshift.__file__).parent


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    """A restorer's file, small enough to damage every byte of."""
    restorer = make_restorer("paper", 1, (6, 6))
    restorer.metadata, restorer.trained_on = {"preset": "paper", "data": "blobs"}, {"size": [6, 6]}
    path = tmp_path_factory.mktemp("weights") / "small.safetensors"
    restorer.save(path)
    return path


def raw(path: Path) -> tuple[dict, dict[str, torch.Tensor]]:
    """Return the description and the tensors in a file."""
    with safe_open(str(path), framework="pt") as opened:
        return json.loads(opened.metadata()["unshift"]), {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118


def write(path: Path, header: dict, tensors: dict[str, torch.Tensor]) -> None:
    """Write a file whose parts agree, but may be wrong."""
    told = {key: value for key, value in header.items() if key != "sha256"}
    told["sha256"] = getattr(weights, "checksum", lambda *_: "")(told, tensors)
    path.write_bytes(to_bytes(tensors, {"unshift": json.dumps(told)}))


def changed(path: Path, out: Path, **header) -> Path:
    """Write ``path`` again with parts of its description changed."""
    before, tensors = raw(path)
    write(out, {**before, **header}, tensors)
    return out


def assert_same(one: Restorer | Chain, other: Restorer | Chain) -> None:
    assert len(one.stages) == len(other.stages)
    for stage, another in zip(one.stages, other.stages, strict=True):
        mine, theirs = stage.scorer.state_dict(), another.scorer.state_dict()
        assert mine.keys() == theirs.keys()
        for name, tensor in mine.items():
            assert tensor.dtype == theirs[name].dtype
            assert torch.equal(tensor, theirs[name])
        assert stage.coordinates.describe() == another.coordinates.describe()


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


# --- there and back -----------------------------------------------------------------------------------


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


# --- all or nothing -----------------------------------------------------------------------------------


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


# --- damaged, foreign, newer --------------------------------------------------------------------------


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


# --- files of unshift 0.1 -----------------------------------------------------------------------------


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


# --- no pickle ----------------------------------------------------------------------------------------

UNSAFE_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def dotted(node: ast.AST) -> str:
    """Return ``torch.load`` for the node that stands for it; an empty string for all but a name's attribute."""
    return (
        f"{node.value.id}.{node.attr}" if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) else ""
    )


def unsafe(source: str) -> list[str]:
    """Return what in a module's source could unpickle: imports, and calls of ``torch.load`` and the like.

    Not ``torch.load(..., weights_only=True)``: it makes tensors and nothing else, of files that others wrote.
    """
    found = []
    nodes = list(ast.walk(ast.parse(source)))
    tensors = [node.func for node in nodes if isinstance(node, ast.Call) and "weights_only=True" in
               map(ast.unparse, node.keywords)]  # fmt: skip
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names if name.name.split(".")[0] in UNSAFE_MODULES]
        elif isinstance(node, ast.ImportFrom):
            names = {name.name for name in node.names}
            if str(node.module).split(".")[0] in UNSAFE_MODULES or (
                node.module in ("torch", "numpy") and names & {"load", "save"}
            ):
                found.append(f"from {node.module}")
        elif dotted(node) in ("torch.load", "torch.save", "torch.hub") and node not in tensors:
            found.append(dotted(node))
        elif isinstance(node, ast.Call) and dotted(node.func) in ("np.load", "numpy.load"):
            options = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if options.get("allow_pickle") != "False":
                found.append(ast.unparse(node))
    return found


def test_the_search_for_pickle_finds_it():
    for source in ("import pickle", "from pickle import loads", "import torch\ntorch.load(x)", "np.load(x)",
                   "from torch import load", "f = torch.save", "np.load(x, allow_pickle=True)",
                   "torch.load(x, weights_only=False)"):  # fmt: skip
        assert unsafe(source)
    assert not unsafe("np.load(x, allow_pickle=False)\ntorch.jit.load(x)\ntorch.load(x, weights_only=True)")


def test_there_is_no_pickle_in_the_package():
    sources = sorted(PACKAGE.rglob("*.py"))
    assert len(sources) > 10
    assert {str(path.relative_to(PACKAGE)): found for path in sources if (found := unsafe(path.read_text()))} == {}


# --- shipped restorers and model cards ----------------------------------------------------------------


def test_a_model_card_says_what_the_file_says(tmp_path):
    restorer = unshift.fit(blobs(40, 1, (8, 8)), epochs=1, progress=False, data_name="dots")
    restorer.trained_on["preparation"] = {"pad": 4}
    restorer.save(tmp_path / "x.safetensors")
    card = model_card("mine", load(tmp_path / "x.safetensors"))
    assert card.startswith("# mine\n")
    for text in ("| preset | paper |", "dots, 36 images, no labels", '{"pad": 4}', "| parameters | ", "| 10 bits |"):
        assert text in card
    assert "4 images: " in card
    assert card == model_card("mine", restorer)


def test_a_model_card_needs_no_metadata():
    restorer = Restorer(make_restorer("dense", 1, (6, 6)).scorer)
    assert "| training data | unnamed, ? images, no labels |" in model_card("bare", restorer)


def shipped() -> list[str]:
    return list(pretrained()) or [pytest.param("none", marks=pytest.mark.skip(reason="no restorer is shipped yet"))]


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_restorer_loads_and_explains_itself(name):
    restorer = load(name)
    path = pretrained()[name]
    assert path.stat().st_size < 300_000
    header = read_header(path)
    assert header["metadata"] == restorer.metadata
    metadata = restorer.metadata
    parts = metadata.get("stages", [metadata])  # of a chain, each stage was chosen on images held out
    for rates in [metadata["test"], *(part["validation"] for part in parts)]:
        assert 0 < rates["exact"] <= rates["within_1"] <= 1
    assert metadata["test"]["images"] == {"mnist3d": 1_000, "mitogenomes of bony fish": 282, "wallpapers": 135}.get(
        metadata["data"], 10_000
    )
    assert metadata["preset"] in (*PRESETS, "sequence", "scene", "custom")
    assert isinstance(restorer.trained_on["preparation"], dict)
    channels, size = weights.image_shape(restorer)
    assert list(size or []) == restorer.trained_on.get("size", list(size or []))  # one for many sizes tells none
    assert channels == restorer.trained_on.get("channels", channels)
    image = blobs(1, channels, size or (500,))
    assert tuple(restorer(image).shape[2:]) == (restorer.coordinates.window or tuple(image.shape[2:]))
    assert f"# {name}\n" in model_card(name, restorer)


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
