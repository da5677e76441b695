"""The examples run as they are, alone, in seconds; they stay short; and what they print is what they promise."""

from __future__ import annotations

import ast
import os
import runpy
import sys
import tempfile
from pathlib import Path

import nbformat
import pytest
import torch
from nbclient import NotebookClient
from samples import bits, hard_images, make_restorer
from torch import nn

from unshift import apply
from unshift.testing import all_shifts

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
PRINTS = {
    "wrap_your_model": ["8 pixels", "unshifted digits equal: True"],
    "wrap_an_onnx_model": ["unshifted", "the logits do not depend on the shift: True"],
    "fit_on_a_folder": ["180 photos", "found where they are", "1,024 checked", "0 mismatches"],
    "segmentation": ["alone", "to the bit: False", "wrapped", "to the bit: True"],
    "in_a_dataloader": ["as it is", "restored"],
    "light_curves": ["all observations a band", "12 observations a band", "of 50 new stars"],
    "which_layer_breaks": ["MaxPool2d", "BREAKS IT", "equivariant", "position turns into a feature"],
}


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder, no data sets, no display, and this checkout for the processes that are started."""
    path = os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]).rstrip(os.pathsep)
    monkeypatch.chdir(tmp_path)
    for name, value in {"PYTHONPATH": path, "MPLBACKEND": "Agg"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("UNSHIFT_DATA", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path))


def test_these_are_the_examples() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(PRINTS)


@pytest.mark.parametrize("name", PRINTS)
def test_it_is_short_and_says_what_it_is(name: str) -> None:
    source = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) < 40
    assert f"python examples/{name}.py" in (ast.get_docstring(ast.parse(source)) or "")


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("name", PRINTS)
def test_it_runs(name: str, alone: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    if name == "wrap_an_onnx_model":
        pytest.importorskip("onnxruntime")
    monkeypatch.setattr(sys, "argv", [name])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    said, errors = capfd.readouterr()
    assert errors == ""
    for expected in PRINTS[name]:
        assert expected in said


def test_a_mask_follows_its_image_to_the_bit_at_every_shift() -> None:
    """The function of the example, for a net that cares a great deal where things are."""
    segment = runpy.run_path(str(EXAMPLES / "segmentation.py"))["segment"]
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(144, 3 * 144), nn.Unflatten(1, (3, 12, 12)))
    images, shifts = torch.stack([*hard_images(1, (12, 12)).values()]), all_shifts((12, 12))
    restorer = make_restorer("paper", 1, (12, 12), True)
    told = 0
    for image, mask in zip(images, segment(net, restorer, images), strict=True):
        moved = apply(image.expand(144, 1, 12, 12), shifts)
        assert torch.equal(restorer(moved), restorer(image[None]).expand_as(moved))
        # Of an image that some shift leaves as it is, which place is its own nobody can tell.
        if len(bits(moved).flatten(1).unique(dim=0)) == 144:
            told += 1
            wanted = apply(mask.expand(144, 1, 12, 12), shifts)
            assert torch.equal(segment(net, restorer, moved), wanted)
            assert not torch.equal(net(moved).argmax(1, keepdim=True), wanted)  # and without the restorer it does not
    assert told >= 5


@pytest.mark.slow
def test_the_tour_runs(tmp_path: Path, alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MPLBACKEND")  # the notebook's own: pictures inline
    tour = nbformat.read(EXAMPLES / "tour.ipynb", as_version=4)
    NotebookClient(tour, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in tour.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 3
    errors = [output["text"] for output in outputs if output.get("name") == "stderr"]
    assert not [text for text in errors if "TqdmWarning" not in text]  # it misses ipywidgets, for progress bars


def test_the_tour_is_kept_without_outputs() -> None:
    tour = nbformat.read(EXAMPLES / "tour.ipynb", as_version=4)
    nbformat.validate(tour)
    assert all(not cell.get("outputs") for cell in tour.cells)
    assert tour.metadata.get("kernelspec", {}).get("name") == "python3"
