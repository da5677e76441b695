"""``unshift evaluate``: rates and accuracies, with classifiers of every kind."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
import torch
from commands import bad, good, good_json, save
from safetensors.torch import save_file
from torch import nn

import unshift
from unshift import evaluation
from unshift.data import to_float
from unshift.experiments import classifiers


class Rows(nn.Module):
    """Classifies by the brightness of three bands of rows: the shift matters."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return nn.functional.adaptive_avg_pool2d(images.mean(1, keepdim=True), (3, 1)).flatten(1)


def test_evaluate_measures_the_rates(made, pixels):
    found = good_json("evaluate", "--data", made / "blobs.npy", "--restorer", made / "dense.safetensors")
    wanted = evaluation.restoration_rates(unshift.load(made / "dense.safetensors"), pixels).as_dict()
    assert found["rates"] == wanted
    assert found["scopes"] == []
    text = good("evaluate", "--data", made / "blobs.npy", "--restorer", made / "dense.safetensors").stdout
    assert f"{100 * wanted['exact']:.2f}% restored exactly" in text
    fewer = good_json("evaluate", "--data", made / "blobs.npy", "--restorer", made / "dense.safetensors", "--limit", 7)
    assert fewer["rates"]["images"] == 7


def test_evaluate_tells_what_the_confidence_is_worth_and_draws_it(made, pixels):
    command = ("evaluate", "--data", made / "blobs.npy", "--restorer", made / "dense.safetensors")
    found = good_json(*command, "--report", "report", "--min-confidence", 0.5)
    sure = unshift.load(made / "dense.safetensors").estimate(pixels).confidence
    assert found["passed"] == float((sure < 0.5).double().mean())
    assert sum(count for *_, count in found["reliability"]["bins"]) == len(pixels)
    assert found["reliability"]["risk"][-1][1] == pytest.approx(1 - found["rates"]["exact"])
    page = Path("report/index.html").read_text()
    assert page.count("data:image/png") == 2
    assert f"{found['reliability']['ece']:.4f}" in page
    assert f"off by {found['reliability']['ece']:.4f}" in good(*command).stdout


def test_evaluate_hands_doubtful_images_to_the_classifier_as_they_came(made):
    torch.jit.script(Rows()).save("net.pt")
    bare, passed = (good_json(*classify(made, "net.pt", *more))["scopes"] for more in ((), ("--min-confidence", 1)))
    assert bare[1]["without"] == passed[1]["without"] == passed[1]["restored"]


def test_calibrate_writes_a_file_that_restores_alike_with_other_confidences(made, pixels):
    command = ("calibrate", "--data", made / "blobs.npy", "--restorer", made / "paper.safetensors", "--out", "new.st")
    told = good_json(*command)
    old, new = unshift.load(made / "paper.safetensors"), unshift.load("new.st")
    assert (old.curve, new.metadata["calibration"]["images"]) == (None, 80)
    assert told["ece"] == new.metadata["calibration"]["ece"]
    assert torch.equal(new(pixels), old(pixels))
    assert torch.equal(new.estimate(pixels).confidence, new.curve(old.estimate(pixels).confidence))
    assert bad(*command) == "new.st exists; --force overwrites it"
    result = good(*command, "--force")
    assert "calibrated on 80 images" in result.stdout
    assert "training images that" in result.stderr  # and says that these were


def test_evaluate_opens_a_folder_as_the_restorer_wants_it(made, pixels):
    found = good_json("evaluate", "--data", made / "photos", "--restorer", made / "dense.safetensors")
    wanted = evaluation.restoration_rates(unshift.load(made / "dense.safetensors"), pixels[:20]).as_dict()
    assert found["rates"] == wanted  # one channel, though image files are read as RGB by default


def classify(made: Path, spec: object, *options: object) -> tuple[object, ...]:
    data, restorer = made / "labelled.npz", made / "paper.safetensors"
    return ("evaluate", "--data", data, "--restorer", restorer, "--classifier", spec, "--scopes", "0,3", *options)


def wanted_rows(made: Path, pixels: torch.Tensor, seeds: int = 1) -> list[evaluation.ScopeRow]:
    return evaluation.accuracy_over_scopes(
        Rows(),
        to_float(pixels),
        torch.arange(len(pixels)) % 3,
        unshift.load(made / "paper.safetensors"),
        scopes=[0, 3],
        seeds=range(seeds),
    )


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
        source = "from test_cli_evaluate import Rows\ndef make():\n    return Rows()\nnet = Rows()\n"
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


def test_evaluate_prints_an_aligned_table(made, pixels, monkeypatch):
    monkeypatch.setattr(classifiers, "shipped", lambda: {"rows": Rows})
    lines = good(*classify(made, "rows", "--seeds", 2)).stdout.splitlines()
    rows = wanted_rows(made, pixels, seeds=2)
    table = lines[-6:]
    assert [line[:20].strip() for line in table] == [
        "scope, pixels", "without", "with", "effect", "consistent without", "consistent with",
    ]  # fmt: skip
    assert len({len(line) for line in table}) == 1
    assert table[0].split() == ["scope,", "pixels", "0", "3"]
    assert "images moved at random by up to this many pixels:" in lines[-8]
    assert table[1].split() == ["without", *(f"{50 * sum(row.without):.2f}" for row in rows)]
    assert table[3].split() == ["effect", *(f"{100 * row.effect:+.2f}" for row in rows)]
    assert table[5].split() == ["consistent", "with", "100.00", "100.00"]
    assert "consistent" not in good(*classify(made, "rows")).stdout  # one seed: nothing to compare


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


@pytest.mark.parametrize("command", ["evaluate", "verify"])
def test_a_restorer_that_does_not_fit(command, made, pixels):
    def refused(data: object, restorer: object) -> str:
        return bad(command, "--data", data, "--restorer", restorer)

    small = save("small.npy", pixels[:, :, 1:, 1:])
    assert "was made for images of size (12, 12), got (11, 11)" in refused(small, made / "dense.safetensors")
    colour = save("colour.npy", pixels.repeat(1, 3, 1, 1))
    assert "wants 1 channel(s), got 3" in refused(colour, made / "paper.safetensors")
    assert "no restorer 'nothing': neither a file nor one of" in refused(small, "nothing")
    assert "is a folder; a restorer is one .safetensors file" in refused(small, made)
    Path("cut.safetensors").write_bytes((made / "paper.safetensors").read_bytes()[:-7])
    assert "not a readable safetensors file, or a truncated one" in refused(small, "cut.safetensors")
    assert "no data set named 'nothing'" in refused("nothing", made / "paper.safetensors")


@pytest.mark.parametrize(
    ("kind", "words", "scopes"),
    [
        ("turns", "by up to this many pixels, with any turn (none at 0):", list(range(9))),
        ("rotation", "by up to this many degrees:", [0, 10, 20, 45, 90, 180]),
        ("chain", "by up to this many pixels, with any angle (none at 0):", list(range(9))),
    ],
)
def test_evaluate_moves_images_as_the_restorer_undoes(kind, words, scopes, posed, monkeypatch):
    monkeypatch.setattr(classifiers, "shipped", lambda: {"rows": Rows})
    data, restorer = posed / "labelled.npz", posed / f"{kind}.safetensors"
    command = ("evaluate", "--data", data, "--restorer", restorer, "--classifier", "rows")
    text = good(*command).stdout
    assert words in text
    assert f"within 1 {unshift.load(restorer).coordinates.step}, " in text
    found = good_json(*command)
    assert [row["scope"] for row in found["scopes"]] == scopes
    assert found["unit"] == ("degrees" if kind == "rotation" else "pixels")
    still, *_, anything = good_json(*command, "--scopes", "0,any")["scopes"]
    assert anything["scope"] is None
    assert good(*command, "--scopes", "any").stdout.splitlines()[-4].split()[-1] == "any"
    if kind == "turns":  # exact for every move
        assert anything["restored"] == still["restored"]


def test_a_shipped_classifier_gets_images_of_its_size(monkeypatch):
    command = ("evaluate", "--data", "mnist-10k", "--restorer", "mnist-rotation", "--classifier", "lenet5-mnist")
    (row,) = good_json(*command, "--limit", 12, "--scopes", "90")["scopes"]
    assert row["restored"][0] > row["without"][0]


def test_evaluate_and_verify_prepare_images_as_fit_does(made):
    """They once advised a --size that only fit had."""
    from PIL import Image

    Path("mixed").mkdir()
    for i, path in enumerate(sorted((made / "photos").iterdir())):
        Image.open(path).resize((12 + i % 3, 14)).save(f"mixed/{path.name}")
    restorer = ("--restorer", made / "paper.safetensors")
    assert "20 images" in good("evaluate", "--data", "mixed", *restorer).stdout  # each at its own size
    message = bad("verify", "--data", "mixed", *restorer)
    assert message.endswith("give a size for all, such as --size 14x12")
    options = ("--size", "14x12", "--crop", "--pad", 2, "--channels", 1)
    good("fit", "mixed", "--out", "x.safetensors", "--epochs", 1, *options)
    steps = {"crop": [14, 12], "pad": 2, "channels": 1}
    assert unshift.load("x.safetensors").trained_on["preparation"] == steps
    own = good_json("evaluate", "--data", "mixed", "--restorer", "x.safetensors")["rates"]
    restorer_file = unshift.load("x.safetensors")
    restorer_file.trained_on["preparation"] = {}
    restorer_file.save("bare.safetensors")
    assert good_json("evaluate", "--data", "mixed", "--restorer", "bare.safetensors", *options)["rates"] == own
    found = good_json("verify", "--data", "mixed", "--restorer", "bare.safetensors", *options, "--no-brute-force")
    assert found["every_image"]["possible"] == 20 * 18 * 16
    other = good_json("verify", "--data", "mixed", "--restorer", "x.safetensors", "--size", 9, "--no-brute-force")
    assert other["every_image"]["possible"] == 20 * 13 * 13  # another size, its own margin


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


def test_evaluate_says_that_the_images_are_those_trained_on(made, pixels):
    good("fit", made / "blobs.npy", "--out", "x.safetensors", "--epochs", 1)
    command = ("evaluate", "--restorer", "x.safetensors")
    told = good(*command, "--data", made / "blobs.npy").stderr
    assert "warning: 64 of the 64 training images that x.safetensors remembers are among these" in told
    assert "warning" in good(*command, "--data", save("some.npy", pixels[:40])).stderr  # a part of them, too
    others = save("others.npy", pixels.flip(-1))
    assert "training images" not in good(*command, "--data", others).stderr
    assert "training images" not in good("evaluate", "--restorer", made / "dense.safetensors", "--data", others).stderr


def test_few_images_are_told_to_be_few(made):
    command = ("evaluate", "--data", made / "blobs.npy", "--restorer", made / "dense.safetensors", "--limit")
    text = good(*command, 4).stdout
    assert re.search(
        r"4 images: (\d) = \d+\.00% restored exactly, (\d) = .*; too few to tell: all in all, \d+% to ", text
    )
