"""``unshift fit``: training, its output, refused images, and runs that are resumed."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import QUICK, SETTINGS, bad, good, good_json, run, save
from PIL import Image

import unshift
from unshift import apply
from unshift.cli import fit
from unshift.coordinates import GROUPS
from unshift.data import pad, resize, sources, to_float
from unshift.data.sequences import Record, to_fasta
from unshift.training import fitting as training

pytestmark = pytest.mark.filterwarnings("ignore:this is near guessing:UserWarning")


def test_fit_writes_a_restorer_with_its_preparation(made, pixels):
    result = good(
        "fit", made / "blobs.npy", "--size", 14, "--pad", 2, "--preset", "dense", "--out", "x.safetensors", *QUICK
    )
    restorer = unshift.load("x.safetensors")
    about = restorer.trained_on
    assert about["preparation"] == {"resize": [14, 14], "pad": 2}
    assert (about["size"], about["channels"], about["background"][0]) == ([18, 18], 1, 0)
    assert len(about["prints"]) == 64
    assert restorer.metadata["data"] == "blobs.npy"
    assert "test" not in restorer.metadata  # a file has no test split
    assert "fit dense: 18/18 batches, " in result.stderr  # plain lines without a terminal
    head, undoes, trained, *_, validation = result.stdout.splitlines()
    assert head.startswith("x.safetensors ")
    assert "18x18" in head
    assert restorer.coordinates.labels.undoes in undoes
    assert "72 images of blobs.npy" in trained
    assert "8 images: " in validation
    assert sorted(os.listdir()) == ["x.safetensors"]  # the checkpoint is gone
    again = unshift.fit(pad(resize(to_float(pixels), (14, 14)), 2), "dense", **SETTINGS)
    for name, tensor in again.scorer.state_dict().items():
        assert torch.equal(tensor, restorer.scorer.state_dict()[name])


def test_fit_as_json_and_quiet(made):
    command = ("fit", made / "blobs.npy", "--preset", "dense", "-o", "deep/x.safetensors", "--augment", "mirror")
    found = good_json(*command, "--average", 0.9, *QUICK)
    assert (found["preset"], found["augment"], found["average"]) == ("dense", ["mirror"], 0.9)
    assert found["bytes"] == Path("deep/x.safetensors").stat().st_size
    assert set(found["validation"]) == {"images", "exact", "within_1", "confidence", "tied"}
    assert found["epochs_run"] == 2
    assert "fit" not in good(*command, *QUICK, "--force", "--quiet").stderr.replace("unshift fit", "")


@pytest.mark.parametrize(
    ("flags", "coordinates", "step"),
    [
        (("--turns", "quarter"), {"kind": "turns", "group": "quarter"}, "1 pixel,"),
        (("--ring", -1), {"kind": "ring", "axis": -1}, "1 pixel,"),
        (("--rotation",), {"kind": "polar", "size": 12, "angles": 36}, "1 step of 10 degrees,"),
        (("--window", 10, "--scene", "20x24", "--background", "noise"), {"window": [10, 10]}, "1 pixel,"),
    ],
)
def test_fit_every_kind_of_pose(flags, coordinates, step, made):
    command = ("fit", made / "blobs.npy", "--out", "x.safetensors", *flags, *QUICK)
    assert step in good(*command).stdout
    restorer = unshift.load("x.safetensors")
    assert coordinates.items() <= restorer.coordinates.describe().items()
    assert "x.safetensors" in good(*command, "--resume").stderr
    assert "coordinates" in bad(*command[:4], *QUICK, "--resume")
    assert good_json("verify", made / "blobs.npy", "--restorer", "x.safetensors", "--limit", 2)["exact"]
    evaluate = ("evaluate", made / "blobs.npy", "--restorer", "x.safetensors", "--limit", 9)
    if "--window" in flags:
        assert "10x10" in unshift.load("x.safetensors").coordinates.labels.undoes
        bad(*evaluate)
    else:
        good(*evaluate)
    rows = good_json("restore", made / "photos", "--restorer", "x.safetensors", "--out", "out")
    assert rows[3]["confidence"] > 0


def test_fit_takes_a_group_added_to_the_library(made, monkeypatch):
    """The command must not refuse groups that are not in its own list."""
    monkeypatch.setitem(GROUPS, "upside-down", GROUPS["half"])
    good("fit", made / "blobs.npy", "--out", "x.safetensors", "--turns", "upside-down", *QUICK)
    assert unshift.load("x.safetensors").coordinates.group == "upside-down"
    assert "upside-down" in bad("fit", made / "blobs.npy", "--out", "y.safetensors", "--turns", "wheel")


def test_fit_counts_genomes_and_bases(tmp_path):
    generator = np.random.default_rng(0)
    texts = ["".join(generator.choice([*"ACGT"], 120 + n)) for n in range(12)]
    path = tmp_path / "genomes.fa"
    path.write_bytes(to_fasta([Record(f"g{n}", text) for n, text in enumerate(texts)], path))
    command = ("fit", path, "--preset", "sequence", "--turns", "strand", "--validation", 4, "--out", "x.safetensors")
    text = good(*command, *QUICK).stdout
    assert "8 genomes" in text
    assert f"{sum(map(len, texts)):,} bases" in text
    assert "4 genomes: " in text
    assert "1 base" in text
    assert "image" not in text
    assert "12 genomes: " in good("evaluate", path, "--restorer", "x.safetensors").stdout


def test_fit_prints_when_it_stopped_and_which_epoch_is_used(made, monkeypatch):
    real = training.fit

    def stopping(*arguments, **options):
        restorer = real(*arguments, **options)
        restorer.metadata |= {"epochs_run": 9, "epochs": 30, "stopped_early": True, "best_epoch": 4}
        return restorer

    monkeypatch.setattr(training, "fit", stopping)
    text = good("fit", made / "blobs.npy", "--out", "x.safetensors", *QUICK).stdout
    assert "9 of 30 epochs" in text
    assert "epoch 4" in text


def test_fit_measures_the_test_split(made, pixels, monkeypatch):
    for split, images in (("train", pixels[:30]), ("test", pixels[30:50])):
        Path("set", split).mkdir(parents=True)
        for i, image in enumerate(images):
            Image.fromarray(image[0].numpy()).resize((16, 12)).save(Path("set", split, f"{i}.png"))
    good("fit", "set", "--size", "10x12", "--crop", "--channels", 1, "--out", "x.safetensors", *QUICK)
    restorer = unshift.load("x.safetensors")
    metadata = restorer.metadata
    assert restorer.trained_on["preparation"] == {"channels": 1, "crop": [10, 12]}
    assert metadata["train_images"] + metadata["validation"]["images"] == 30
    assert metadata["test"]["images"] == 20
    size = ("--size", "10x12", "--crop")
    assert good_json("evaluate", "set", "--restorer", "x.safetensors", *size)["rates"] == metadata["test"]
    good("fit", "set", "--size", 12, "--no-test", "--out", "y.safetensors", *QUICK)
    assert "test" not in unshift.load("y.safetensors").metadata
    real = sources.dataset

    def few(name, split):
        found = real(name, split)
        return replace(found, images=found.images[:60], labels=found.labels[:60])

    monkeypatch.setattr(sources, "dataset", few)
    assert "test " in good("fit", "mnist-10k", "--out", "z.safetensors", *QUICK).stdout
    assert unshift.load("z.safetensors").metadata["test"]["images"] == 60


def test_fit_refuses_bad_images_and_settings(pixels):
    def refused(source: str, *options: object) -> str:
        message = bad("fit", source, "--out", "x.safetensors", *QUICK, *options)
        assert not Path("x.safetensors").exists()
        return message

    assert "'mnits'" in refused("mnits")
    copies = torch.cat([pixels, apply(pixels[:5], torch.tensor([[1, 2]]).expand(5, 2))])
    assert "5 of 85" in refused(save("copies.npy", copies))
    Path("empty").mkdir()
    assert "empty" in refused("empty")
    fine = save("fine.npy", pixels)
    assert "'train'" in refused(fine, "--split", "train")
    assert "--size" in refused(fine, "--crop")
    assert "--rotation" in refused(fine, "--turns", "half", "--rotation")
    assert "--ring" in refused(fine, "--turns", "half", "--ring", 0)
    assert "'seam'" in refused(fine, "--rotation", "--preset", "seam")
    assert "classifier" in refused(fine, "--classifier", "lenet5-mnist")
    assert "--window" in refused(fine, "--scene", 32)
    assert "empty" in refused(fine, "--window", 12, "--background", "empty")


def test_fit_skips_files_that_cannot_be_read_and_names_them(made):
    Path("in").mkdir()
    for path in (made / "photos").iterdir():
        Path("in", path.name).write_bytes(path.read_bytes())
    Path("in/broken.png").write_text("hello")
    assert "--skip-unreadable" in bad("fit", "in", "--out", "x.safetensors", *QUICK)
    text = good("fit", "in", "--out", "x.safetensors", "--skip-unreadable", *QUICK).stdout
    assert "in/broken.png" in text
    assert unshift.load("x.safetensors").metadata["train_images"] == 18


def test_fit_on_images_that_lose_pixels_and_are_not_aligned(made):
    command = ("fit", made / "blobs.npy", *QUICK, "--border", "crop", "--scope", 2, "--unaligned", "--out", "real.st")
    found = good_json(*command)
    assert found["moves"] == {"kind": "crop", "scope": 2}
    assert found["size"] == [8, 8]
    assert 2 <= found["alignment"]["rounds"] <= 6
    evaluate = ("evaluate", made / "blobs.npy", "--restorer", "real.st")
    assert good_json(*evaluate, "--border", "crop", "--scope", 2)["rates"]["images"] == 80
    assert "scope" in bad(*evaluate, "--border", "zeros", "--scope", "any")


# --- no file is overwritten, and no run lost -------------------------------------------------------


def test_fit_does_not_overwrite(made):
    out, again = "x.safetensors", ("fit", made / "blobs.npy", "--out", "x.safetensors", *QUICK)
    good(*again)
    first = Path(out).read_bytes()
    assert "--force" in bad(*again)
    assert "x.safetensors" in good(*again, "--resume").stderr
    assert "preparation, seed" in bad(*again, "--resume", "--seed", 1, "--pad", 1)
    assert Path(out).read_bytes() == first
    good(*again, "--force", "--seed", 1)
    assert Path(out).read_bytes() != first


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        ((), ("--border", "zeros"), "moves"),
        (("--border", "zeros", "--scope", 2), ("--border", "zeros", "--scope", 3), "scope"),
        ((), ("--unaligned",), "aligned"),
        (("--window", 8, "--preset", "scene"), ("--window", 8, "--preset", "scene", "--scene", 20), "scene"),
    ],
    ids=["border", "scope", "aligned", "scene"],
)
def test_a_finished_run_is_not_resumed_with_other_moves(made, one, other, differ):
    np.save("some.npy", np.load(made / "blobs.npy")[:20])
    again = ("fit", "some.npy", "--out", "x.safetensors", *QUICK)
    good(*again, *one)
    assert f": {differ})" in bad(*again, *other, "--resume")
    good(*again, *one, "--resume")


def interrupted_fit(made, monkeypatch, out: str = "x.safetensors") -> None:
    """Leave a checkpoint behind, as a kill after the first epoch would."""
    real = training.Checkpoint.save

    def stop(self, state):
        real(self, state)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training.Checkpoint, "save", stop)
        result = run("fit", made / "blobs.npy", "--out", out, *QUICK)
    assert result.exit_code == 130
    assert f"{out}.checkpoint" in result.stderr
    assert "--resume" in result.stderr


def test_an_interrupted_run_is_resumed_and_never_lost_by_mistake(made, monkeypatch):
    interrupted_fit(made, monkeypatch)
    again = ("fit", made / "blobs.npy", "--out", "x.safetensors", *QUICK)
    assert "--resume" in bad(*again)
    assert "seed" in bad(*again, "--resume", "--seed", 1)
    good(*again, "--resume")
    good(*again[:3], "y.safetensors", *QUICK)
    resumed, whole = unshift.load("x.safetensors"), unshift.load("y.safetensors")
    for name, tensor in whole.scorer.state_dict().items():
        assert torch.equal(tensor, resumed.scorer.state_dict()[name])
    assert whole.metadata["history"] == resumed.metadata["history"]
    interrupted_fit(made, monkeypatch, "z.safetensors")
    good(*again[:3], "z.safetensors", *QUICK, "--force")
    assert not Path("z.safetensors.checkpoint").exists()


def test_fit_checks_its_output_before_it_trains(made, monkeypatch):
    Path("file").write_text("")
    Path("x.safetensors.checkpoint").write_bytes(b"nonsense")
    assert "x.safetensors.checkpoint" in bad("fit", made / "blobs.npy", "--out", "x.safetensors", "--resume")
    monkeypatch.setattr(fit, "_train", lambda *args, **options: pytest.fail("it trained"))
    assert "--out ." in bad("fit", made / "blobs.npy", "--out", ".")
    assert "file" in bad("fit", made / "blobs.npy", "--out", "file/x.safetensors")
    assert "file" in bad("fit", made / "blobs.npy", "--out", "x", "--checkpoint", "file/c")
    assert "/proc/nothing" in bad("fit", made / "blobs.npy", "--out", "/proc/nothing/x")
