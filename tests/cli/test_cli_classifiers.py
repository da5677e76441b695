"""Classifiers of all kinds on the command line, and what is wrong with some."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import torch
from commands import bad, good, good_json
from row_classifier import Rows, classify, wanted_rows
from safetensors.torch import save_file
from torch import nn

from unshift import evaluation
from unshift.experiments import classifiers


def as_json(rows: list[evaluation.ScopeRow]) -> list[dict]:
    return json.loads(json.dumps([{**row.as_dict(), "effect": row.effect} for row in rows]))


@pytest.mark.parametrize("kind", ["script", "export", "fixed batch", "function", "module", "shipped"])
def test_evaluate_with_a_classifier_of_any_kind(kind, made, pixels, monkeypatch):
    spec, sample = "net.pt", torch.rand(5, 1, 12, 12)
    if kind == "script":
        torch.jit.trace(Rows(), sample).save(spec)
    elif kind in ("export", "fixed batch"):
        spec = "net.pt2"
        dynamic = ({0: torch.export.Dim("batch")},) if kind == "export" else None
        torch.export.save(torch.export.export(Rows(), (sample,), dynamic_shapes=dynamic), spec)
    elif kind in ("function", "module"):
        module = f"my_nets_{kind}"
        source = "from row_classifier import Rows\ndef make():\n    return Rows()\nnet = Rows()\n"
        Path(f"{module}.py").write_text(source)
        spec = f"{module}:{'make' if kind == 'function' else 'net'}"
    else:
        spec = "rows"
        monkeypatch.setattr(classifiers, "shipped", lambda: {"rows": Rows})
    found = good_json(*classify(made, spec))
    rows = wanted_rows(made, pixels)
    assert found["scopes"] == as_json(rows)
    assert found["scopes"][0]["restored"] == found["scopes"][1]["restored"]  # the flat line
    assert os.getcwd() not in sys.path


def test_evaluate_names_what_is_wrong_with_a_classifier(made, monkeypatch):
    def refused(spec: object) -> str:
        return bad(*classify(made, spec))

    monkeypatch.setattr(classifiers, "shipped", lambda: {"rows": Rows})
    assert refused("nothing.pt") == ("no classifier 'nothing.pt': neither a file, nor module:function, nor one of rows")
    Path("folder").mkdir()
    assert refused("folder") == "classifier folder is a folder; give a file"
    Path("text.pt").write_text("hello")
    assert refused("text.pt").startswith(
        "classifier text.pt is not a TorchScript model; write one with torch.jit.script"
    )
    Path("text.pt2").write_text("hello")
    assert refused("text.pt2").startswith("classifier text.pt2 is not a torch.export program (")
    save_file({"a": torch.zeros(1)}, "weights.safetensors")
    assert "is not a TorchScript model" in refused("weights.safetensors")
    assert refused("no_such_module:f").startswith("classifier no_such_module:f: cannot import no_such_module (")
    Path("nets_bad.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "number = 3\n"
        "def text(): return 'net'\n"
        "def fails(): raise KeyError('weights')\n"
        "def needs(x): return x\n"
        "def flat(): return nn.Flatten(0)\n"
        "def pixels(): return nn.Identity()\n"
        "def colour(): return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4, 3))\n"
        "def two(): return nn.Sequential(nn.Flatten(), nn.Linear(144, 2))\n"
        "class Pair(nn.Module):\n"
        "    def forward(self, x): return x, x\n"
    )
    Path("nets_broken.py").write_text("import nothing_of_that_name\n")
    assert "cannot import nets_broken (No module named 'nothing_of_that_name')" in refused("nets_broken:f")
    assert refused("nets_bad:absent") == "classifier nets_bad:absent: module 'nets_bad' has no attribute 'absent'"
    assert refused("nets_bad:number") == "classifier nets_bad:number is a int, not a function"
    assert refused("nets_bad:text") == "classifier nets_bad:text() returned a str; it must return an nn.Module"
    assert refused("nets_bad:fails") == "classifier nets_bad:fails() failed ('weights')"
    assert "missing 1 required positional argument" in refused("nets_bad:needs")
    assert "must return logits (batch, classes), got shape (288,)" in refused("nets_bad:flat")
    assert "must return logits (batch, classes), got shape (2, 1, 12, 12)" in refused("nets_bad:pixels")
    assert "must return logits (batch, classes), got a tuple" in refused("nets_bad:Pair")
    assert refused("nets_bad:two") == "classifier nets_bad:two tells 2 classes apart, the data has 3"
    message = refused("nets_bad:colour")
    assert "cannot take these images, (batch, channel, height, width) = (2, 1, 12, 12): " in message
    assert "3 channels" in message


def test_an_exported_classifier_for_another_size_is_refused(made):
    torch.export.save(torch.export.export(Rows(), (torch.rand(1, 1, 9, 9),)), "net.pt2")
    assert "cannot take these images" in bad(*classify(made, "net.pt2"))


def test_a_scripted_classifier_for_another_size_is_refused_in_one_line(made):
    torch.jit.trace(nn.Sequential(nn.Flatten(), nn.Linear(81, 3)), torch.rand(1, 1, 9, 9)).save("net.pt")
    message = bad(*classify(made, "net.pt"))
    assert "mat1 and mat2 shapes cannot be multiplied" in message
    assert "Traceback" not in message


def test_an_exported_program_of_two_inputs_is_refused(made):
    class Sum(nn.Module):
        def forward(self, a, b):
            return a + b

    torch.export.save(torch.export.export(Sum(), (torch.rand(1, 3), torch.rand(1, 3))), "net.pt2")
    assert "takes 2 inputs" in bad(*classify(made, "net.pt2"))


def test_evaluate_needs_labels_for_a_classifier(made, monkeypatch):
    monkeypatch.setattr(classifiers, "shipped", lambda: {"rows": Rows})
    command = ("evaluate", "--data", made / "blobs.npy", "--restorer", made / "paper.safetensors")
    assert "has no labels, and accuracy needs them" in bad(*command, "--classifier", "rows")


@pytest.mark.parametrize("widths", [(12, 13, 13), (12, 12, 13)])  # seen in the first two, or on the way
def test_a_classifier_gets_images_of_one_size(widths, made):
    from PIL import Image

    torch.jit.script(Rows()).save("net.pt")
    for number, width in enumerate(widths):
        Path(f"labelled/{number}").mkdir(parents=True)
        Image.effect_noise((width, 14), 50).save(f"labelled/{number}/a.png")
    command = ("evaluate", "--data", "labelled", "--restorer", made / "paper.safetensors")
    good(*command)
    message = bad(*command, "--classifier", "net.pt")
    assert message.startswith(
        "classifier net.pt is shown images of one size, and these are of several, 14x12 and 14x13"
    )
    good(*command, "--classifier", "net.pt", "--size", 14)


def test_a_shipped_classifier_gets_images_of_its_size(monkeypatch):
    command = ("evaluate", "--data", "mnist-10k", "--restorer", "mnist-rotation", "--classifier", "lenet5-mnist")
    (row,) = good_json(*command, "--limit", 12, "--scopes", "90")["scopes"]
    assert row["restored"][0] > row["without"][0]


@pytest.mark.parametrize("kind", ["script", "function"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_a_classifier_of_another_precision_gets_images_of_its_own(dtype, kind, made):
    """It was once refused with the raw words of PyTorch."""
    spec = f"my_{kind}_{dtype}:make"
    source = f"def make(): return nn.Sequential(nn.Flatten(), nn.Linear(144, 3)).to(torch.{dtype})"
    Path(f"my_{kind}_{dtype}.py").write_text(f"import torch\nfrom torch import nn\ntorch.manual_seed(0)\n{source}\n")
    if kind == "script":
        net = nn.Sequential(nn.Flatten(), nn.Linear(144, 3)).to(getattr(torch, dtype))
        torch.jit.script(net).save("net.pt")
        spec = "net.pt"
    still, moved = good_json(*classify(made, spec))["scopes"]
    assert still["restored"] == moved["restored"]
