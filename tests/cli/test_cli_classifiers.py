"""Classifiers of all kinds on the command line, and their errors."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import torch
from commands import Rows, bad, classify, good, good_json, run
from PIL import Image
from torch import nn

import unshift
from unshift import classifiers, evaluation
from unshift.data import to_float

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


@pytest.mark.parametrize("kind", ["script", "export", "fixed batch", "function", "module"])
def test_evaluate_with_a_classifier_of_any_kind(kind, made, pixels):
    spec, sample = "net.pt", torch.rand(5, 1, 12, 12)
    if kind == "script":
        torch.jit.trace(Rows(), sample).save(spec)
    elif kind in ("export", "fixed batch"):
        spec = "net.pt2"
        dynamic = ({0: torch.export.Dim("batch")},) if kind == "export" else None
        torch.export.save(torch.export.export(Rows(), (sample,), dynamic_shapes=dynamic), spec)
    else:
        module = f"my_nets_{kind}"
        Path(f"{module}.py").write_text("from commands import Rows\ndef make():\n    return Rows()\nnet = Rows()\n")
        spec = f"{module}:{'make' if kind == 'function' else 'net'}"
    restorer, labels = unshift.load(made / "paper.safetensors"), torch.arange(len(pixels)) % 3
    rows = evaluation.accuracy_over_scopes(Rows(), to_float(pixels), labels, restorer, scopes=[0, 3])
    scopes = good_json(*classify(made, spec))["scopes"]
    assert scopes == json.loads(json.dumps([{**row.as_dict(), "effect": row.effect} for row in rows]))
    assert scopes[0]["restored"] == scopes[1]["restored"]
    assert os.getcwd() not in sys.path


BAD_NETS = """
import torch
from torch import nn
def text(): return 'net'
def fails(): raise KeyError('weights')
def pixels(): return nn.Identity()
def two(): return nn.Sequential(nn.Flatten(), nn.Linear(144, 2))
"""


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("nothing.pt", "lenet5-mnist"),
        ("folder", "folder"),
        ("text.pt", "TorchScript"),
        ("text.pt2", "torch.export"),
        ("other_size.pt2", "(2, 1, 12, 12)"),
        ("two_inputs.pt2", "2 inputs"),
        ("no_such_module:f", "no_such_module"),
        ("nets_bad:absent", "'absent'"),
        ("nets_bad:text", "str"),
        ("nets_bad:fails", "weights"),
        ("nets_bad:pixels", "(2, 1, 12, 12)"),
        ("nets_bad:two", "2 classes"),
    ],
)
def test_a_bad_classifier_is_refused_in_one_line(spec, words, made):
    class Sum(nn.Module):
        def forward(self, a, b):
            return a + b

    Path("folder").mkdir()
    for name in ("text.pt", "text.pt2"):
        Path(name).write_text("hello")
    Path("nets_bad.py").write_text(BAD_NETS)
    if spec == "two_inputs.pt2":
        torch.export.save(torch.export.export(Sum(), (torch.rand(1, 3), torch.rand(1, 3))), spec)
    elif spec == "other_size.pt2":
        torch.export.save(torch.export.export(Rows(), (torch.rand(1, 1, 9, 9),)), spec)
    message = bad(*classify(made, spec))
    assert spec in message
    assert words in message


def test_accuracy_needs_labels(made):
    command = ("evaluate", made / "blobs.npy", "--restorer", made / "paper.safetensors")
    assert "labels" in bad(*command, "--classifier", "lenet5-mnist")


def test_a_classifier_gets_images_of_one_size(made):
    torch.jit.script(Rows()).save("net.pt")
    for number, width in enumerate((12, 13, 13)):
        Path(f"labelled/{number}").mkdir(parents=True)
        Image.effect_noise((width, 14), 50).save(f"labelled/{number}/a.png")
    command = ("evaluate", "labelled", "--restorer", made / "paper.safetensors")
    good(*command)
    result = run(*command, "--classifier", "net.pt")
    assert result.exit_code == 2
    assert "--size" in result.stderr
    good(*command, "--classifier", "net.pt", "--size", 14)


def test_a_shipped_classifier_gets_images_of_its_size():
    command = ("evaluate", "mnist-10k", "--restorer", "mnist-rotation", "--classifier", "lenet5-mnist")
    (row,) = good_json(*command, "--limit", 12, "--scope", "90")["scopes"]
    assert row["restored"][0] > row["without"][0]


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_a_classifier_gets_images_in_its_dtype(dtype, made):
    torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(144, 3)).to(getattr(torch, dtype))).save("net.pt")
    still, moved = good_json(*classify(made, "net.pt"))["scopes"]
    assert still["restored"] == moved["restored"]


def test_the_classifiers_of_the_package():
    assert "lenet5-mnist" in classifiers.names()
    for name in classifiers.names():
        model = classifiers.load(name)
        channels, size = (1, (32, 32)) if name.startswith("lenet5") else (3, (20, 24))
        assert model(torch.rand(2, channels, *size)).shape == (2, 10)
        assert getattr(model, "image_size", size) == size
        assert not model.training
    with pytest.raises(ValueError, match="lenet5-mnits"):
        classifiers.load("lenet5-mnits")
