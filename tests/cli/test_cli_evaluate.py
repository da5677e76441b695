"""``unshift evaluate`` and ``unshift calibrate``: rates, confidences, accuracies, the report."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
import torch
from commands import Rows, bad, classify, good, good_json, run, save
from PIL import Image
from samples import make_restorer

import unshift
from unshift import evaluation
from unshift.cli import report

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
needs_matplotlib = pytest.mark.skipif(not report.can_draw(), reason="needs the extra plots")


@pytest.fixture
def rows_file() -> str:
    torch.jit.script(Rows()).save("net.pt")
    return "net.pt"


# --- rates and confidences -------------------------------------------------------------------------


def test_evaluate_measures_the_rates(made, pixels):
    command = ("evaluate", made / "blobs.npy", "--restorer", made / "dense.safetensors")
    found = good_json(*command)
    wanted = evaluation.restoration_rates(unshift.load(made / "dense.safetensors"), pixels).as_dict()
    assert found["rates"] == wanted
    assert found["scopes"] == []
    text = good(*command).stdout
    assert f"{100 * wanted['exact']:.2f}%" in text
    assert f"{found['reliability']['ece']:.4f}" in text
    assert good_json(*command, "-n", 7)["rates"]["images"] == 7
    assert re.search(r"\d+ to \d+%", good(*command, "-n", 4).stdout)  # the interval of a rate of few images


def test_the_bound_of_the_file_is_the_default(made, pixels, rows_file):
    restorer = unshift.load(made / "dense.safetensors")
    confidence, rates = restorer.estimate(pixels).confidence, evaluation.restoration_rates(restorer, pixels)
    restorer.min_confidence = 0.5
    restorer.save("bounded.st")
    command = ("evaluate", made / "labelled.npz", "-r", "bounded.st", "-c", rows_file, "--scope", 3)
    found = good_json(*command)
    assert found["passed"] == float((confidence < 0.5).double().mean())
    assert found["rates"] == rates.as_dict()  # of all images
    (row,) = good_json(*command, "--min-confidence", 1)["scopes"]
    assert row["without"] == row["restored"]


def test_calibrate_changes_confidences_only(made, pixels):
    command = ("calibrate", made / "blobs.npy", "--restorer", made / "paper.safetensors", "--out", "new.st")
    found = good_json(*command)
    old, new = unshift.load(made / "paper.safetensors"), unshift.load("new.st")
    assert (old.curve, new.metadata["calibration"]["images"]) == (None, 80)
    assert found["ece"] == new.metadata["calibration"]["ece"]
    assert torch.equal(new(pixels), old(pixels))
    assert torch.equal(new.estimate(pixels).confidence, new.curve(old.estimate(pixels).confidence))
    assert "--force" in bad(*command)
    result = good(*command, "--force")
    assert "80 images" in result.stdout
    assert "training images" in result.stderr


def test_evaluate_and_calibrate_print_one_calibration_error(made):
    """Compare the calibration errors that both commands print for the same file and data set."""
    data, name = made / "blobs.npy", made / "dense.safetensors"
    before = good_json("evaluate", data, "-r", name)["reliability"]["ece"]
    calibrated = good_json("calibrate", data, "-r", name, "-o", "new.st")
    assert calibrated["ece_before"] == before
    assert good_json("evaluate", data, "-r", "new.st")["reliability"]["ece"] == calibrated["ece"]
    again = good_json("calibrate", data, "-r", "new.st", "-o", "again.st")
    assert again["ece_before"] == calibrated["ece"]


def test_evaluate_detects_training_images(made, pixels):
    good("fit", made / "blobs.npy", "--out", "x.safetensors", "--epochs", 1)
    command = ("evaluate", "-r", "x.safetensors")
    assert "64 of the 64 training images" in good(*command, made / "blobs.npy").stderr
    assert "training images" in good(*command, save("some.npy", pixels[:40])).stderr
    assert "training images" not in good(*command, save("others.npy", pixels.flip(-1))).stderr


# --- how images are opened -------------------------------------------------------------------------


def test_evaluate_measures_at_the_size_at_which_restore_works(made):
    """Image files keep their size in both commands if the restorer takes any size."""
    restorer = make_restorer("seam", 3, (12, 12))
    restorer.trained_on = {"size": [12, 12], "channels": 3, "preparation": {"resize": [12, 12]}}
    restorer.save("seam.safetensors")
    Path("photos").mkdir()
    for i in range(3):
        pixels = torch.randint(0, 256, (20 + i, 24, 3), dtype=torch.uint8)
        Image.fromarray(pixels.numpy()).save(f"photos/{i}.png")
    poses = good_json("restore", "photos", "-r", "seam.safetensors", "-o", "out")
    exact = sum((row["down"], row["right"]) == (0, 0) for row in poses)
    found = good_json("evaluate", "photos", "-r", "seam.safetensors")
    assert round(found["rates"]["exact"] * 3) == exact
    confidence = sum(row["confidence"] for row in poses) / 3
    assert found["rates"]["confidence"] == pytest.approx(confidence, abs=1e-12)
    assert good_json("verify", "photos", "-r", "seam.safetensors", "--all")["moves"] == 24 * (20 + 21 + 22)
    assert good_json("verify", "photos", "-r", "seam.safetensors", "--all", "--size", 9)["moves"] == 3 * 81


def test_arrays_and_restorers_of_one_size_are_prepared_like_the_training_images(made, pixels):
    found = good_json("evaluate", made / "photos", "--restorer", made / "dense.safetensors")
    wanted = evaluation.restoration_rates(unshift.load(made / "dense.safetensors"), pixels[:20]).as_dict()
    assert found["rates"] == wanted  # one channel, though image files are read as RGB by default
    steps = ("--size", "14x12", "--crop", "--pad", 2, "--channels", 1)
    good("fit", made / "photos", "--out", "x.safetensors", "--epochs", 1, "--preset", "dense", *steps)
    restorer = unshift.load("x.safetensors")
    assert restorer.trained_on["preparation"] == {"crop": [14, 12], "pad": 2, "channels": 1}
    rates = good_json("evaluate", made / "photos", "--restorer", "x.safetensors")["rates"]
    restorer.trained_on["preparation"] = {}
    restorer.save("bare.safetensors")
    assert good_json("evaluate", made / "photos", "--restorer", "bare.safetensors", *steps)["rates"] == rates


@pytest.mark.parametrize("command", ["evaluate", "verify"])
def test_a_restorer_that_does_not_fit(command, made, pixels):
    def refused(data: object, restorer: object) -> str:
        return bad(command, data, "--restorer", restorer)

    small = save("small.npy", pixels[:, :, 1:, 1:])
    assert "(11, 11)" in refused(small, made / "dense.safetensors")
    colour = save("colour.npy", pixels.repeat(1, 3, 1, 1))
    assert "--channels 1" in refused(colour, made / "paper.safetensors")
    good(command, colour, "--restorer", made / "paper.safetensors", "--channels", 1, "--limit", 3)
    assert "'nothing'" in refused(small, "nothing")
    assert "folder" in refused(small, made)
    Path("cut.safetensors").write_bytes((made / "paper.safetensors").read_bytes()[:-7])
    assert "cut.safetensors" in refused(small, "cut.safetensors")
    assert "'nothing'" in refused("nothing", made / "paper.safetensors")


def test_evaluate_refuses_restorers_of_scenes(made):
    assert "mnist-scene" in bad("evaluate", made / "blobs.npy", "--restorer", "mnist-scene")


# --- accuracies ------------------------------------------------------------------------------------


def test_a_scope_beyond_the_largest_move_is_refused(made, posed):
    command = ("evaluate", made / "blobs.npy", "--restorer", made / "paper.safetensors", "--scope")
    assert "11" in bad(*command, "0-99")
    command = ("evaluate", posed / "labelled.npz", "--restorer", posed / "rotation.safetensors", "--scope")
    assert "181 degrees" in bad(*command, 181)
    good(*command, "180,any")


@pytest.mark.parametrize(
    ("kind", "words", "scopes"),
    [
        ("turns", "any turn", list(range(9))),
        ("rotation", "degrees", [0, 10, 20, 45, 90, 180]),
        ("chain", "any angle", list(range(9))),
    ],
)
def test_evaluate_moves_images_as_the_restorer_undoes(kind, words, scopes, posed, rows_file):
    restorer = posed / f"{kind}.safetensors"
    command = ("evaluate", posed / "labelled.npz", "--restorer", restorer, "--classifier", rows_file)
    text = good(*command).stdout
    assert words in text
    assert f"1 {unshift.load(restorer).coordinates.labels.step}," in text
    found = good_json(*command)
    assert [row["scope"] for row in found["scopes"]] == scopes
    assert found["unit"] == ("degrees" if kind == "rotation" else "pixels")
    still, *_, anything = good_json(*command, "--scope", "0,any")["scopes"]
    assert anything["scope"] is None
    if kind == "turns":  # exact for every move
        assert anything["restored"] == still["restored"]


# --- the report ------------------------------------------------------------------------------------


@needs_matplotlib
def test_the_report_holds_tables_and_figures(made, rows_file):
    found = good_json(*classify(made, rows_file, "--report", "report"))
    page = Path(found["report"]).read_text()
    assert [path.name for path in Path("report").iterdir()] == ["index.html"]
    assert page.count("data:image/png") == 4
    assert "http" not in page
    assert f"{found['reliability']['ece']:.4f}" in page
    for row in found["scopes"]:
        assert f"<td>{100 * row['without'][0]:.2f}</td>" in page
    restored = found["map"]["lost_restored"]
    assert [len(restored), len(restored[0])] == [7, 7]
    assert {value for line in restored for value in line} == {0.0}  # exact: no shift changes a prediction
    assert max(map(max, found["map"]["lost_without"])) > 0
    assert found["map"]["lost_without"][3][3] == 0.0


@needs_matplotlib
def test_a_report_without_a_classifier_or_shifts(posed):
    good("evaluate", posed / "labelled.npz", "--restorer", posed / "rotation.safetensors", "--report", "report")
    assert Path("report/index.html").read_text().count("data:image/png") == 2


@needs_matplotlib
def test_without_arguments_the_digits_of_the_package_are_measured():
    started = time.monotonic()
    text = good("evaluate", "--limit", 200, "--scope", "0,8").stdout
    assert "mnist-10k" in text
    assert "lenet5-mnist" in text
    without, restored = (line.split()[1:] for line in text.splitlines() if line.startswith("with"))
    assert restored[0] == restored[1]
    assert float(without[1]) < 50 < float(restored[1])
    assert Path("report/index.html").exists()
    assert time.monotonic() - started < 60


def test_without_matplotlib_the_table_is_printed_and_the_extra_is_named(made, rows_file, monkeypatch):
    monkeypatch.setattr(report, "can_draw", lambda: False)
    result = good("evaluate", "--limit", 20, "--scope", "0")
    assert "effect" in result.stdout
    assert "unshift[plots]" in result.stderr
    assert not Path("report").exists()
    assert "unshift[plots]" in bad(*classify(made, rows_file, "--report", "report"))
    assert run(*classify(made, rows_file)).exit_code == 0
