"""unshift.export as it is used: classifiers behind the restorer, the command, and what is refused."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import venv

import numpy as np
import pytest
import torch
from graphs import (
    differences,
    exported,
    in_pytorch,
    kind_of,
    padded,
    run,
    session,
    turner,
)
from samples import blobs, hard_images, make_estimator, make_restorer
from torch import nn
from typer.testing import CliRunner

import unshift
from unshift import Chain, Restorer, apply, quantise
from unshift.cli import app
from unshift.data import dataset, prepare, to_float
from unshift.exporting import OPSET

# --- classifiers -----------------------------------------------------------------------------------


def traced(net):
    return torch.jit.trace(net, torch.zeros(2, 1, 8, 8))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # TorchScript's own
@pytest.mark.slow
@pytest.mark.parametrize("how", [torch.jit.script, traced])
def test_a_torchscript_classifier(how, tmp_path):
    restorer, classifier, _ = exported()
    net = copy.deepcopy(classifier).eval()
    unshift.export(restorer, tmp_path / "x.onnx", classifier=how(net), size=(8, 8), scores=True)
    images = torch.rand(5, 1, 8, 8)
    found = run(session(str(tmp_path / "x.onnx")), images)
    assert list(found) == ["restored", "shift", "confidence", "tied", "logits", "scores"]
    assert differences(found, in_pytorch(restorer, images)) == []
    with torch.no_grad():
        torch.testing.assert_close(found["logits"], net(restorer(images)))
    with pytest.raises(ValueError, match="cannot capture a TorchScript classifier"):
        unshift.export(restorer, tmp_path / "x.pt2", classifier=how(net), size=(8, 8))


class Branches(nn.Module):
    def forward(self, images):
        return images.flatten(1) if images.sum() > 0 else -images.flatten(1)


@pytest.mark.parametrize(
    ("classifier", "message"),
    [
        (nn.Linear(3, 3), r"cannot take images of shape \(3, 1, 8, 8\): mat1 and mat2"),
        (nn.Flatten(0), r"one row of logits per image, got \(192,\) for images \(3, 1, 8, 8\)"),
        (lambda images: [1], r"one row of logits per image, got list"),
        (Branches(), r"torch\.export cannot capture this classifier: "),
        (lambda images: images.reshape(3, -1), r"cannot capture this classifier: it takes one batch size only"),
    ],
)
def test_a_classifier_that_does_not_fit(classifier, message, tmp_path, capfd):
    with pytest.raises(ValueError, match=message):
        unshift.export(make_restorer("paper", 1, (8, 8)), tmp_path / "x.onnx", classifier=classifier, size=(8, 8))
    assert not any(tmp_path.iterdir())
    assert capfd.readouterr() == ("", "")  # the exporter would print all it had captured


class InPlace(nn.Module):
    def forward(self, images):
        return images.mul_(2).sub_(0.5).flatten(1)


def test_a_classifier_that_works_in_place_leaves_the_restored_images(tmp_path):
    restorer, images = make_restorer("dense", 1, (8, 8), True), torch.rand(4, 1, 8, 8)
    unshift.export(restorer, tmp_path / "x.PT2", classifier=InPlace(), size=(8, 8))  # in capitals, but no ONNX
    found = torch.export.load(tmp_path / "x.PT2").module()(images)
    assert differences(found, in_pytorch(restorer, images)) == []
    assert torch.equal(found["logits"], InPlace()(restorer(images)))


# --- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("restorer", "options", "message"),
    [
        ("nonesuch", {}, r"no restorer 'nonesuch': neither a file nor one of cifar10"),
        (make_restorer("paper", 1, (8, 8)), {}, r"takes images of any size.* say which, as size=\(32, 32\)"),
        (make_restorer("paper", 1, (8, 8)), {"size": (4, 8)}, r"kernel \(8, 8\) is larger than the image \(4, 8\)"),
        (make_restorer("paper", 1, (8, 8)), {"size": (8,)}, r"wants 2 spatial axes, got 1"),
        (make_restorer("dense", 1, (8, 8)), {"size": (9, 8)}, r"made for images of size \(8, 8\), got \(9, 8\)"),
        (padded("dense", 1, (1, 1), 2), {"size": (0, 1)}, r"must have a positive size, got \(0, 1\)"),
        (turner(True), {"size": (13, 13)}, r"made for square images of size 12, got 13"),
        (Restorer(make_estimator("paper", 1, (8, 8))), {}, r"only restorers of quantised networks.*ShiftEstimator"),
        (
            Chain(make_restorer("paper", 1, (8, 8)), turner(True)),
            {"size": (8, 8)},
            r"made for square images of size 12",
        ),
        (kind_of("ring")[0], {}, r"takes images of any size.* say which, as size=\(32, 32\)"),
        (kind_of("quarter")[0], {"size": (6, 7)}, r"turns of group 'quarter' want square images"),
        (
            Restorer(quantise(make_estimator("dense", 1, (8, 8)), blobs(4, 1, (8, 8)), sum_bits=32)),
            {},
            r"sums reach \d+; they must stay below 2\^24, the most that a graph holds: quantise it with sum_bits=24",
        ),
    ],
)
def test_bad_restorers_and_sizes(restorer, options, message, tmp_path):
    with pytest.raises(ValueError, match=message) as caught:
        unshift.export(restorer, tmp_path / "x.onnx", **options)
    assert "\n" not in str(caught.value)


def test_bad_paths(tmp_path, monkeypatch):
    restorer = make_restorer("dense", 1, (8, 8))
    with pytest.raises(ValueError, match="is a folder"):
        unshift.export(restorer, tmp_path)
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(unshift.exporting, "as_onnx", lambda *_: b"")
    with pytest.raises(ValueError, match=r"cannot write .*file/x\.onnx \((File exists|Not a directory)\)"):
        unshift.export(restorer, tmp_path / "file" / "x.onnx")


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_without_the_extra(package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=r"onnx and onnxscript, the extra 'onnx': pip install 'unshift\[onnx\]'"):
        unshift.export("mnist", tmp_path / "x.onnx")


# --- the command -----------------------------------------------------------------------------------


def command(*args):
    return CliRunner().invoke(app, ["export", *map(str, args)], prog_name="unshift")


def said(result) -> str:
    """What was said on standard error, but for signs of life on a busy machine."""
    return "".join(line for line in result.stderr.splitlines(keepends=True) if "at work" not in line)


def test_the_command_writes_once(tmp_path, monkeypatch):
    monkeypatch.setattr(unshift.exporting, "as_onnx", lambda *_: b"a model")
    out = tmp_path / "digits.onnx"
    result = command("--restorer", "mnist", "--classifier", "lenet5-mnist", "--out", out)
    assert (result.exit_code, said(result), out.read_bytes()) == (0, "", b"a model")
    assert result.stdout.endswith("; takes images of 32x32, 1 channel(s)\n")
    again = command("--restorer", "mnist", "--out", out)
    assert (again.exit_code, said(again)) == (2, f"unshift: error: {out} exists; --force overwrites it\n")


def test_the_command_names_the_size_that_it_chose(tmp_path, monkeypatch):
    monkeypatch.setattr(unshift.exporting, "export", lambda model, out, **_: out.write_bytes(b"a model"))
    make_restorer("seam", 3, (20, 24)).save(tmp_path / "seam.safetensors")
    args = ("--restorer", tmp_path / "seam.safetensors", "--force", "--out", tmp_path / "x.onnx")
    assert "; takes images of 20x24 (--size for another), 3 channel(s)\n" in command(*args).stdout
    assert "; takes images of 30x30, 3 channel(s)\n" in command(*args, "--size", 30).stdout
    assert json.loads(command(*args, "--size", "30x40", "--json").stdout)["size"] == [30, 40]


@pytest.mark.slow
def test_the_command(tmp_path):
    out = tmp_path / "digits.onnx"
    result = command("--restorer", "mnist", "--classifier", "lenet5-mnist", "--out", out, "--json")
    assert (result.exit_code, said(result)) == (0, "")
    assert json.loads(result.stdout) == {
        "file": str(out),
        "bytes": out.stat().st_size,
        "restorer": "mnist",
        "classifier": "lenet5-mnist",
        "channels": 1,
        "size": [32, 32],
        "opset": OPSET,
    }
    runtime = session(str(out))
    assert runtime.get_modelmeta().custom_metadata_map["restorer"] == "mnist"
    digits = dataset("mnist-10k", "test")
    restorer = unshift.load("mnist")
    images = to_float(prepare(digits.images[:64], restorer.trained_on["preparation"]))
    moved = apply(images, torch.randint(32, (64, 2)))
    found = run(runtime, moved)
    assert differences(found, in_pytorch(restorer, moved)) == []
    assert (found["logits"].argmax(1) == digits.labels[:64]).float().mean() > 0.95


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--restorer", "nonesuch"), "no restorer 'nonesuch'"),
        (("--restorer", "mnist", "--classifier", "nonesuch"), "no classifier 'nonesuch'"),
        (("--restorer", "cifar10", "--classifier", "lenet5-mnist"), "the classifier cannot take images of shape"),
        (("--restorer", "mnist", "--size", "40"), "made for images of size (32, 32), got (40, 40)"),
        (("--restorer", "mnist-rotation", "--pad", "4"), "pad is for circular shifts along all axes"),
    ],
)
def test_the_command_refuses(args, message, tmp_path):
    result = command(*args, "--out", tmp_path / "x.onnx")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
    assert not any(tmp_path.iterdir())


def test_the_command_refuses_what_it_cannot_write(tmp_path):
    (tmp_path / "file").write_text("")
    wrong = (
        tmp_path / "mine.txt",
        "a graph is written as .onnx or .pt2 (torch.export), by the name's ending; got mine.txt",
    )
    for out, message in (wrong, (tmp_path, "is a folder"), (tmp_path / "file" / "x.onnx", "cannot write to")):
        result = command("--restorer", "mnist", "--out", out)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert message in result.stderr


@pytest.mark.slow
def test_in_an_environment_without_torch(tmp_path):
    """A fresh environment with onnxruntime alone: the file, an image at two shifts, one answer."""
    restorer, _, data = exported()
    (tmp_path / "model.onnx").write_bytes(data)
    image = hard_images(1, (8, 8))["tied"][None]
    moved = torch.cat([image, apply(image, torch.tensor([[3, 5]]))])
    np.save(tmp_path / "moved.npy", moved.numpy())
    np.save(tmp_path / "wanted.npy", restorer(moved).numpy())
    (tmp_path / "use.py").write_text(
        "import importlib.util, numpy as np, onnxruntime\n"
        "assert importlib.util.find_spec('torch') is None and importlib.util.find_spec('unshift') is None\n"
        "session = onnxruntime.InferenceSession('model.onnx')\n"
        "restored, shift = session.run(['restored', 'shift'], {'images': np.load('moved.npy')})\n"
        "assert restored.tobytes() == np.load('wanted.npy').tobytes()\n"
        "print(shift.tolist())\n"
    )
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    quiet = {"check": True, "cwd": tmp_path, "capture_output": True, "text": True}
    subprocess.run([python, "-m", "pip", "install", "-q", "onnxruntime", "numpy"], **quiet)
    clean = {"PATH": "", "HOME": str(tmp_path)}  # in particular no PYTHONPATH
    answer = subprocess.run([python, "-I", "use.py"], env=clean, **quiet).stdout
    assert json.loads(answer) == restorer.estimate(moved).shift.tolist()
