"""unshift.export in use: classifiers behind the restorer, the command, and its errors."""

from __future__ import annotations

import json
import sys

import pytest
import torch
from graphs import (
    differences,
    exported,
    in_pytorch,
    padded,
    run,
    session,
    turner,
)
from samples import blobs, hard_images, kind_of, make_estimator, make_restorer
from torch import nn
from typer.testing import CliRunner

import unshift
from unshift import Chain, Restorer, apply, quantise
from unshift.cli import app
from unshift.coordinates import Shifts
from unshift.data import dataset, prepare, to_float
from unshift.exact import Scorer
from unshift.exporting import OPSET

pytestmark = pytest.mark.filterwarnings("ignore:this restorer may be wrong")

# --- classifiers -----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # TorchScript's own
def test_a_torchscript_classifier_is_refused(tmp_path):
    restorer, classifier, _ = exported()
    with pytest.raises(ValueError, match="TorchScript"):
        unshift.export(restorer, tmp_path / "x.onnx", classifier=torch.jit.script(classifier), size=(8, 8))


class Branches(nn.Module):
    def forward(self, images):
        return images.flatten(1) if images.sum() > 0 else -images.flatten(1)


@pytest.mark.parametrize(
    ("classifier", "message"),
    [
        (nn.Linear(3, 3), r"\(3, 1, 8, 8\)"),
        (nn.Flatten(0), r"\(192,\)"),
        (lambda images: [1], "list"),
        (Branches(), "classifier"),
        (lambda images: images.reshape(3, -1), "one batch size"),
    ],
)
def test_a_classifier_that_does_not_fit(classifier, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        unshift.export(make_restorer("paper", 1, (8, 8)), tmp_path / "x.onnx", classifier=classifier, size=(8, 8))
    assert not any(tmp_path.iterdir())


class Branching(Shifts):
    """A user's own kind of coordinates, whose canvas depends on values."""

    def canvases(self, images):
        return super().canvases(images if images.sum() > 0 else -images)


def test_coordinates_that_cannot_be_captured_are_one_clear_error(tmp_path):
    restorer = Restorer(make_restorer("paper", 1, (8, 8)).scorer, coordinates=Branching())
    for ending in ("onnx", "pt2"):
        with pytest.raises(ValueError, match="Branching") as caught:
            unshift.export(restorer, tmp_path / f"x.{ending}", size=(8, 8))
        assert "\n" not in str(caught.value)
    assert not any(tmp_path.iterdir())


def test_a_scorer_that_cannot_be_captured_is_one_clear_error(tmp_path):
    class Mine(Scorer):
        def forward(self, images):
            return images[:, 0].long()

    with pytest.raises(ValueError, match="Mine"):
        unshift.export(Restorer(Mine()), tmp_path / "x.onnx", size=(8, 8))


class InPlace(nn.Module):
    def forward(self, images):
        return images.mul_(2).sub_(0.5).flatten(1)


def test_a_classifier_that_works_in_place_leaves_the_restored_images(tmp_path):
    restorer, images = make_restorer("dense", 1, (8, 8), True), torch.stack([*hard_images(1, (8, 8)).values()])
    unshift.export(restorer, tmp_path / "x.PT2", classifier=InPlace(), size=(8, 8))  # in capitals, but no ONNX
    found = torch.export.load(tmp_path / "x.PT2").module()(images)
    assert differences(found, in_pytorch(restorer, images)) == []
    assert torch.equal(found["logits"], InPlace()(restorer(images)))


# --- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("restorer", "options", "message"),
    [
        ("nonesuch", {}, "nonesuch"),
        (make_restorer("paper", 1, (8, 8)), {}, "size="),
        (make_restorer("paper", 1, (8, 8)), {"size": (4, 8)}, r"\(4, 8\)"),
        (make_restorer("paper", 1, (8, 8)), {"size": (8,)}, r"wants 2 spatial axes, got 1"),
        (make_restorer("dense", 1, (8, 8)), {"size": (9, 8)}, r"\(9, 8\)"),
        (padded("dense", 1, (1, 1), 2), {"size": (0, 1)}, r"\(0, 1\)"),
        (turner(True), {"size": (13, 13)}, "12.*13"),
        (Restorer(make_estimator("paper", 1, (8, 8))), {}, "ShiftEstimator"),
        (
            Chain(make_restorer("paper", 1, (8, 8)), turner(True)),
            {"size": (8, 8)},
            "12",
        ),
        (kind_of("ring")[0], {}, "size="),
        (kind_of("quarter")[0], {"size": (6, 7)}, "quarter"),
        (
            Restorer(quantise(make_estimator("dense", 1, (8, 8)), blobs(4, 1, (8, 8)), sum_bits=32)),
            {},
            "sum_bits=24",
        ),
    ],
)
def test_bad_restorers_and_sizes(restorer, options, message, tmp_path):
    with pytest.raises(ValueError, match=message) as caught:
        unshift.export(restorer, tmp_path / "x.onnx", **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_without_the_extra(package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=r"unshift\[onnx\]"):
        unshift.export("mnist", tmp_path / "x.onnx")


# --- the command -----------------------------------------------------------------------------------


def command(*args):
    return CliRunner().invoke(app, ["export", *map(str, args)], prog_name="unshift")


def test_the_command_names_its_size_and_overwrites_only_with_force(tmp_path, monkeypatch):
    monkeypatch.setattr(unshift.exporting, "_as_onnx", lambda *_: b"a model")
    restorer = make_restorer("seam", 3, (20, 24))
    restorer.trained_on["size"] = [20, 24]
    restorer.save(tmp_path / "seam.safetensors")
    args = ("--restorer", tmp_path / "seam.safetensors", "--out", tmp_path / "x.onnx")
    first = command(*args)
    assert (first.exit_code, (tmp_path / "x.onnx").read_bytes()) == (0, b"a model")
    assert "20x24" in first.stdout
    again = command(*args)
    assert again.exit_code == 2
    assert "--force" in again.stderr
    assert json.loads(command(*args, "--force", "--image-size", "30x40", "--json").stdout)["size"] == [30, 40]


@pytest.mark.slow
def test_the_command(tmp_path):
    out = tmp_path / "digits.onnx"
    result = command("--restorer", "mnist", "--classifier", "lenet5-mnist", "--out", out, "--json")
    assert result.exit_code == 0
    assert all("at work" in line for line in result.stderr.splitlines())  # progress on a busy machine
    about = json.loads(result.stdout)
    assert (about["bytes"], about["size"], about["opset"]) == (out.stat().st_size, [32, 32], OPSET)
    runtime = session(str(out))
    assert runtime.get_modelmeta().custom_metadata_map["restorer"] == "mnist"
    digits = dataset("mnist-10k", "test")
    restorer = unshift.load("mnist")
    images = to_float(prepare(digits.images[:64], restorer.trained_on["preparation"]))
    moved = apply(images, torch.randint(32, (64, 2)))
    outputs = run(runtime, moved)
    assert differences(outputs, in_pytorch(restorer, moved)) == []
    assert (outputs["logits"].argmax(1) == digits.labels[:64]).float().mean() > 0.95


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--restorer", "nonesuch"), "nonesuch"),
        (("--restorer", "mnist", "--classifier", "nonesuch"), "nonesuch"),
        (("--restorer", "cifar10", "--classifier", "lenet5-mnist"), "(3, 3, 40, 40)"),
        (("--restorer", "mnist", "--image-size", "40"), "(40, 40)"),
        (("--restorer", "mnist-rotation", "--pad", "4"), "pad"),
        (("--restorer", "mnist", "--out", "mine.txt"), "mine.txt"),
        (("--restorer", "mnist", "--out", "."), "folder"),
    ],
)
def test_the_command_refuses_with_one_line(args, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = command("--out", "x.onnx", *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert len([line for line in result.stderr.splitlines() if "at work" not in line]) == 1
    assert message in result.stderr
    assert not any(tmp_path.iterdir())
