"""``unshift evaluate`` and ``unshift calibrate``: rates, confidences, accuracies."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from commands import bad, good, good_json, save
from PIL import Image
from row_classifier import Rows, classify, wanted_rows

import unshift
from unshift import evaluation
from unshift.experiments import classifiers


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
    wrong = f"wrong are {100 - 100 * found['rates']['exact']:.2f}% of all images"
    assert f"on average {found['reliability']['ece']:.4f} away from the share that is restored exactly; {wrong}" in (
        good(*command).stdout
    )


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


def test_evaluate_says_that_a_net_of_greys_sees_no_colours(made, pixels):
    Path("grey").mkdir()
    for name in ("a", "b"):
        Image.fromarray(pixels[0, 0].numpy()).convert("RGB").save(f"grey/{name}.png")
    command = ("evaluate", "--restorer", made / "paper.safetensors", "--data")
    assert "colours" not in good(*command, "grey").stderr
    Image.new("RGB", (12, 12), "red").save("grey/b.png")
    told = "warning: this restorer was trained on grey images, and grey/b.png has colours: it sees its grey"
    assert good(*command, "grey").stderr.count(f"{told}\n") == 1
    assert f"{told}, scaled from 12x12 to 20x20\n" in good(*command, "grey", "--size", 20).stderr
    assert "colours" not in good(*command, "grey", "--channels", 1).stderr  # asked for


@pytest.mark.parametrize("command", ["evaluate", "verify"])
def test_channels_that_differ_name_the_option(command, made, pixels):
    colour = save("colour.npy", pixels.repeat(1, 3, 1, 1))
    args = (command, "--data", colour, "--restorer", made / "paper.safetensors")
    assert bad(*args) == "this restorer wants 1 channel(s), got 3 in colour.npy; --channels 1 makes them so"
    good(*args, "--channels", 1)


def test_evaluate_names_the_classes_of_a_folder(made, pixels, monkeypatch):
    monkeypatch.setattr(classifiers, "shipped", lambda: {"rows": Rows})
    for number, name in enumerate(("dog", "cat", "emu")):
        Path("animals", name).mkdir(parents=True)
        Image.fromarray(pixels[number, 0].numpy()).save(f"animals/{name}/1.png")
    command = ("evaluate", "--data", "animals", "--restorer", made / "paper.safetensors", "--classifier", "rows")
    assert good(*command, "--scopes", 0).stdout.endswith("\nclasses: 0 cat, 1 dog, 2 emu\n")
    found = good_json(*command, "--scopes", 0)
    assert found["classes"] == ["cat", "dog", "emu"]
    still = Rows()(pixels[[1, 0, 2]] / 255).argmax(1)
    assert found["scopes"][0]["without"] == [float((still == torch.arange(3)).double().mean())]


def test_a_scope_beyond_the_largest_move_is_refused(made, posed):
    message = bad(
        "evaluate", "--data", made / "blobs.npy", "--restorer", made / "paper.safetensors", "--scopes", "0-99"
    )
    assert message == "--scopes goes up to 99 pixels, and images of 12x12 move by 11 at most; any is any move"
    command = ("evaluate", "--data", posed / "labelled.npz", "--restorer", posed / "rotation.safetensors", "--scopes")
    assert bad(*command, 181).startswith("--scopes goes up to 181 degrees, and rotations move by 180 at most")
    good(*command, "180,any")


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


def test_evaluate_and_verify_prepare_images_as_fit_does(made):
    """They once advised a --size that only fit had."""
    Path("mixed").mkdir()
    for i, path in enumerate(sorted((made / "photos").iterdir())):
        Image.open(path).resize((12 + i % 3, 14)).save(f"mixed/{path.name}")
    restorer = ("--restorer", made / "paper.safetensors")
    assert "20 images" in good("evaluate", "--data", "mixed", *restorer).stdout  # each at its own size
    message = bad("verify", "--data", "mixed", "--restorer", made / "dense.safetensors")
    assert message.endswith("give a size for all, such as --size 14x12")
    each = good_json("verify", "--data", "mixed", *restorer)["every_image"]  # each at its own size as well
    assert (each["images"], each["moves"]) == (20, 14 * (12 * 7 + 13 * 7 + 14 * 6))
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


def test_evaluate_refuses_restorers_of_scenes(made):
    message = bad("evaluate", "--data", made / "blobs.npy", "--restorer", "mnist-scene")
    assert "mnist-scene finds a window of 32x32 in a scene, and no image here says where" in message
    assert "`unshift reproduce scenes`" in message
