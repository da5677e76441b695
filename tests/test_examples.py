"""The examples and the notebook run on their own, in seconds, and print their results."""

from __future__ import annotations

import os
import runpy
import shutil
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
from unshift.files import pretrained
from unshift.shifts import all_shifts

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
PRINTS = {
    "wrap_your_model": ["8 pixels", "equal: True"],
    "wrap_an_onnx_model": ["unshifted", "shift: True"],
    "scans_before_ocr": ["270 degrees", "same pixels: True"],
    "fit_on_a_folder": ["180 photos", "1,024 moves", "0 mismatches"],
    "segmentation": ["alone", "False", "wrapped", "True"],
    "in_a_dataloader": ["not restored", "restored"],
    "which_layer_breaks": ["MaxPool2d", "BREAKS IT", "equivariant"],
}
SLOW = ("scans_before_ocr",)
"""Tesseract reads eight pages."""


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in an empty folder without data sets or a display; child processes import this checkout."""
    path = os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]).rstrip(os.pathsep)
    monkeypatch.chdir(tmp_path)
    for name, value in {"PYTHONPATH": path, "MPLBACKEND": "Agg"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("UNSHIFT_DATA", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path))


def test_each_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(PRINTS)


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in PRINTS])
def test_an_example_runs(
    name: str, alone: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if name == "wrap_an_onnx_model":
        pytest.importorskip("onnxruntime")
    if name == "scans_before_ocr" and not (shutil.which("tesseract") and "pages" in pretrained()):
        pytest.skip("needs tesseract-ocr")
    monkeypatch.setattr(sys, "argv", [name])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    output, errors = capfd.readouterr()
    assert errors == ""
    for expected in PRINTS[name]:
        assert expected in output


def test_a_mask_is_equivariant_bit_for_bit_under_every_shift() -> None:
    """Run the example's function on a network that depends strongly on position."""
    segment = runpy.run_path(str(EXAMPLES / "segmentation.py"))["segment"]
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(144, 3 * 144), nn.Unflatten(1, (3, 12, 12)))
    images, shifts = torch.stack([*hard_images(1, (12, 12)).values()]), all_shifts((12, 12))
    restorer = make_restorer("paper", 1, (12, 12), True)
    aperiodic = 0
    for image, mask in zip(images, segment(net, restorer, images), strict=True):
        moved = apply(image.expand(144, 1, 12, 12), shifts)
        assert torch.equal(restorer(moved), restorer(image[None]).expand_as(moved))
        # An image that some shift leaves unchanged has no unique position.
        if len(bits(moved).flatten(1).unique(dim=0)) == 144:
            aperiodic += 1
            wanted = apply(mask.expand(144, 1, 12, 12), shifts)
            assert torch.equal(segment(net, restorer, moved), wanted)
            assert not torch.equal(net(moved).argmax(1, keepdim=True), wanted)  # not so without the restorer
    assert aperiodic >= 5


@pytest.mark.slow
def test_the_tour_runs(tmp_path: Path, alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MPLBACKEND")  # the notebook's default: inline pictures
    tour = nbformat.read(EXAMPLES / "tour.ipynb", as_version=4)
    NotebookClient(tour, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in tour.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 3
    errors = [output["text"] for output in outputs if output.get("name") == "stderr"]
    assert not [text for text in errors if "TqdmWarning" not in text]  # tqdm asks for ipywidgets


def test_the_tour_is_stored_without_outputs() -> None:
    tour = nbformat.read(EXAMPLES / "tour.ipynb", as_version=4)
    nbformat.validate(tour)
    assert all(not cell.get("outputs") for cell in tour.cells)
    assert tour.metadata.get("kernelspec", {}).get("name") == "python3"
