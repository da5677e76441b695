"""Classifiers of all kinds on the command line, and their errors."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import torch
from commands import Rows, bad, classify, good, good_json
from PIL import Image
from safetensors.torch import save_file
from torch import nn

import unshift
from unshift import classifiers, evaluation
from unshift.data import dataset, prepare, to_float

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
number = 3
def text(): return 'net'
def fails(): raise KeyError('weights')
def needs(x): return x
def flat(): return nn.Flatten(0)
def pixels(): return nn.Identity()
def colour(): return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4, 3))
def two(): return nn.Sequential(nn.Flatten(), nn.Linear(144, 2))
class Pair(nn.Module):
    def forward(self, x): return x, x
"""


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("nothing.pt", "lenet5-mnist"),
        ("folder", "folder"),
        ("text.pt", "TorchScript"),
        ("text.pt2", "torch.export"),
        ("weights.safetensors", "TorchScript"),
        ("other_size.pt", "mat1 and mat2"),
        ("other_size.pt2", "(2, 1, 12, 12)"),
        ("two_inputs.pt2", "2 inputs"),
        ("no_such_module:f", "no_such_module"),
        ("nets_broken:f", "nothing_of_that_name"),
        ("nets_bad:absent", "'absent'"),
        ("nets_bad:number", "int"),
        ("nets_bad:text", "str"),
        ("nets_bad:fails", "weights"),
        ("nets_bad:needs", "required positional argument"),
        ("nets_bad:flat", "(288,)"),
        ("nets_bad:pixels", "(2, 1, 12, 12)"),
        ("nets_bad:Pair", "tuple"),
        ("nets_bad:two", "2 classes"),
        ("nets_bad:colour", "3 channels"),
    ],
)
def test_a_bad_classifier_is_refused_in_one_line(spec, words, made):
    class Sum(nn.Module):
        def forward(self, a, b):
            return a + b

    Path("folder").mkdir()
    for name in ("text.pt", "text.pt2"):
        Path(name).write_text("hello")
    save_file({"a": torch.zeros(1)}, "weights.safetensors")
    Path("nets_bad.py").write_text(BAD_NETS)
    Path("nets_broken.py").write_text("import nothing_of_that_name\n")
    if spec == "two_inputs.pt2":
        torch.export.save(torch.export.export(Sum(), (torch.rand(1, 3), torch.rand(1, 3))), spec)
    elif spec == "other_size.pt2":
        torch.export.save(torch.export.export(Rows(), (torch.rand(1, 1, 9, 9),)), spec)
    elif spec == "other_size.pt":
        torch.jit.trace(nn.Sequential(nn.Flatten(), nn.Linear(81, 3)), torch.rand(1, 1, 9, 9)).save(spec)
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
    assert "--size" in bad(*command, "--classifier", "net.pt")
    good(*command, "--classifier", "net.pt", "--size", 14)


def test_a_shipped_classifier_gets_images_of_its_size():
    command = ("evaluate", "mnist-10k", "--restorer", "mnist-rotation", "--classifier", "lenet5-mnist")
    (row,) = good_json(*command, "--limit", 12, "--scope", "90")["scopes"]
    assert row["restored"][0] > row["without"][0]


@pytest.mark.parametrize("kind", ["script", "function"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_a_classifier_gets_images_in_its_dtype(dtype, kind, made):
    spec = "net.pt" if kind == "script" else f"my_{dtype}:net"
    net = nn.Sequential(nn.Flatten(), nn.Linear(144, 3)).to(getattr(torch, dtype))
    torch.jit.script(net).save("net.pt")
    Path(f"my_{dtype}.py").write_text("import torch\nnet = torch.jit.load('net.pt')\n")
    still, moved = good_json(*classify(made, spec))["scopes"]
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


def test_the_shipped_lenet_classifies_digits():
    test = dataset("mnist-10k", "test")
    images = prepare(to_float(test.images[:1000]), {"resize": [32, 32]})
    assert evaluation.accuracy(classifiers.load("lenet5-mnist"), images, test.labels[:1000]) > 0.98
