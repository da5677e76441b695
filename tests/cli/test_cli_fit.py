"""``unshift fit``: what it trains and tells, and which images it refuses."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from commands import QUICK, SETTINGS, bad, good, good_json, save
from PIL import Image

import unshift
from unshift import apply, training
from unshift.cli import allocator
from unshift.data import pad, resize, sources, to_float


def test_fit_writes_a_restorer_that_knows_its_preparation(made, pixels):
    result = good(
        "fit", made / "blobs.npy", "--size", 14, "--pad", 2, "--preset", "dense", "--out", "x.safetensors", *QUICK
    )
    restorer = unshift.load("x.safetensors")
    assert restorer.trained_on["preparation"] == {"resize": [14, 14], "pad": 2}
    assert restorer.trained_on["size"] == [18, 18]
    assert restorer.metadata["data"] == "blobs.npy"
    assert "test" not in restorer.metadata  # a file has no test split
    told = result.stderr.splitlines()  # plain lines without a terminal
    assert told[1].startswith("fit dense: 18/18 batches, ")
    assert all(line.startswith("fit") for line in told)
    head, undoes, trained, validation = result.stdout.splitlines()
    assert undoes == "undoes circular shifts, exactly"
    assert head.startswith("x.safetensors  ")
    assert head.endswith(" kB, preset dense for 18x18")
    assert trained.startswith("trained on 72 images of blobs.npy, ")
    assert "8 images: " in validation
    assert "within 1 pixel" in validation
    assert sorted(os.listdir()) == ["x.safetensors"]  # the checkpoint is gone
    again = unshift.fit(pad(resize(to_float(pixels), (14, 14)), 2), "dense", **SETTINGS)
    for name, tensor in again.scorer.state_dict().items():
        assert torch.equal(tensor, restorer.scorer.state_dict()[name])


def test_fit_as_json(made):
    found = good_json("fit", made / "blobs.npy", "--preset", "dense", "--out", "deep/x.safetensors", *QUICK)
    assert found["preset"] == "dense"
    assert found["bytes"] == Path("deep/x.safetensors").stat().st_size
    assert set(found["validation"]) == {"images", "exact", "within_1", "confidence", "tied"}
    assert found["epochs_run"] == 2


def test_fit_passes_its_options_on(made, monkeypatch):
    seen = {}

    def fit(images, preset, **options):
        seen.update(options, shape=tuple(images.shape), preset=preset)
        raise ValueError("enough")

    monkeypatch.setattr(training, "fit", fit)
    before = torch.get_num_threads()
    bad(
        *("fit", made / "blobs.npy", "--out", "x", "--preset", "seam", "--epochs", 7, "--batch-size", 9),
        *("--learning-rate", 0.5, "--validation", 12, "--patience", 3, "--seed", 4, "--checkpoint", "c", "--resume"),
        *("--drop-unusable", "--threads", 1, "--channels", 3, "--mirror", "--windows", "--average", 0.9),
        *("--moves", "edge", "--scope", 3, "--unaligned"),
    )
    assert seen.pop("coordinates").describe() == {"kind": "canvas", "pad": 0, "value": 0.0}
    torch.set_num_threads(before)
    assert seen == {
        **{"shape": (80, 3, 12, 12), "preset": "seam", "epochs": 7, "batch_size": 9, "learning_rate": 0.5},
        **{"validation": 12, "patience": 3, "seed": 4, "device": "cpu", "checkpoint": Path("c"), "resume": True},
        **{"skip_unreadable": False},
        **{
            "drop_unusable": True,
            "skip_unreadable": False,
            "data_name": "blobs.npy",
            "augment": ["mirror", "windows"],
            "average": 0.9,
        },
        **{"moves": "edge", "scope": 3, "aligned": False, "classifier": None},
        "workers": 0,
    }
    bad("fit", made / "blobs.npy", "--out", "x", "--validation", "0.25")
    assert seen["validation"] == 0.25
    assert seen["checkpoint"] == Path("x.checkpoint")
    assert seen["learning_rate"] is seen["epochs"] is None


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
    assert "finished already" in good(*command, "--resume").stderr
    assert "(other settings: coordinates)" in bad(*command[:4], *QUICK, "--resume")
    found = good_json("verify", "--data", made / "blobs.npy", "--restorer", "x.safetensors", "--limit", 2)
    assert found["exact"]
    evaluate = ("evaluate", "--data", made / "blobs.npy", "--restorer", "x.safetensors", "--limit", 9)
    if "--window" in flags:
        assert "finds a window of 10x10 in a scene" in bad(*evaluate)
    else:
        good(*evaluate)
    rows = good_json("restore", made / "photos", "--restorer", "x.safetensors", "--out", "out")
    assert rows[3]["confidence"] > 0


def test_fit_with_augmentations_and_an_average(made):
    good("fit", made / "blobs.npy", "--out", "x.safetensors", "--mirror", "--average", 0.9, *QUICK)
    metadata = unshift.load("x.safetensors").metadata
    assert (metadata["augment"], metadata["average"]) == (["mirror"], 0.9)


def test_fit_refuses_scenes_that_cannot_be(made):
    Path("empty").mkdir()
    start = ("fit", made / "blobs.npy", "--out", "x.safetensors")
    assert bad(*start, "--scene", 32).startswith("--scene and --background need a --window")
    assert bad(*start, "--window", 13) == "a window of 13x13 is larger than the object images, 12x12"
    assert bad(*start, "--window", 12, "--background", "empty").startswith("empty holds no image files")
    assert "--window takes one number (32)" in bad(*start, "--window", "wide")


def test_the_allocator_keeps_memory(monkeypatch):
    seen = []

    def mallopt(name, value):
        seen.append((name, value))
        return 1

    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda _: SimpleNamespace(mallopt=mallopt))
    assert allocator.keep_freed_memory()
    assert seen == [(-3, 2**25), (-1, 2**31 - 1), (-2, 2**26)]


def test_another_allocator_is_left_alone(made, monkeypatch):
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda _: SimpleNamespace())
    assert not allocator.keep_freed_memory()
    good("fit", made / "blobs.npy", "--out", "x.safetensors", *QUICK)


def test_fit_on_a_folder_with_a_test_split(made, pixels):
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
    assert good_json("evaluate", "--data", "set", "--restorer", "x.safetensors")["rates"] == metadata["test"]
    good("fit", "set", "--size", 12, "--no-test", "--out", "y.safetensors", *QUICK)
    assert "test" not in unshift.load("y.safetensors").metadata


def test_fit_on_a_named_dataset_measures_its_test_split(monkeypatch):
    real = sources.dataset

    def few(name, split):
        found = real(name, split)
        return replace(found, images=found.images[:60], labels=found.labels[:60])

    monkeypatch.setattr(sources, "dataset", few)
    result = good("fit", "mnist-10k", "--out", "x.safetensors", *QUICK)
    assert "of mnist-10k/train" in result.stdout
    assert unshift.load("x.safetensors").metadata["test"]["images"] == 60
    assert result.stdout.splitlines()[-1].startswith("test       60 images: ")


def test_fit_refuses_bad_images(pixels):
    def refused(source: str, *options: object) -> str:
        message = bad("fit", source, "--out", "x.safetensors", *QUICK, *options)
        assert not Path("x.safetensors").exists()
        return message

    assert "no data set named 'mnits' (did you mean mnist?)" in refused("mnits")
    assert "fit needs at least two images, got 1" in refused(save("one.npy", pixels[:1]))
    grey = torch.cat([pixels, torch.full((3, 1, 12, 12), 7, dtype=torch.uint8)])
    message = refused(save("constant.npy", grey))
    assert message.startswith("3 of 83 images are constant (the first is number 80)")
    assert message.endswith("remove them, or drop them with drop_unusable")
    copies = torch.cat([pixels, apply(pixels[:5], torch.tensor([[1, 2]]).expand(5, 2))])
    assert refused(save("copies.npy", copies)).startswith("5 of 85 images are shifted copies of others (the first is")
    Path("text.npy").write_text("hello")
    assert "text.npy cannot be read as NumPy arrays" in refused("text.npy")
    Path("text.txt").write_text("hello")
    assert "neither an image" in refused("text.txt")
    Path("empty").mkdir()
    assert refused("empty").startswith("empty holds no image files")
    assert "channels must be 1 (grey) or 3 (RGB), got 2" in refused(save("fine.npy", pixels), "--channels", 2)
    assert refused("fine.npy", "--split", "train") == "fine.npy is one file: it has no split 'train'"
    assert refused("fine.npy", "--crop") == "--crop needs the --size to cut to"
    assert refused("mnist-10k", "--split", "dev") == "no split named 'dev'; there are train and test"
    positive = "epochs, batch size, patience and learning rate must be positive, got "
    assert positive in refused("fine.npy", "--patience", 0)
    assert positive in refused("fine.npy", "--learning-rate", "nan")
    several = "give one of --turns, --strand, --ring, --rotation and --window, not several"
    assert refused("fine.npy", "--turns", "half", "--rotation") == several
    assert refused("fine.npy", "--turns", "half", "--ring", 0) == several
    assert "no preset 'seam' for rotations" in refused("fine.npy", "--rotation", "--preset", "seam")
    assert "want cubic volumes" in refused("fine.npy", "--turns", "cube")
    assert "spatial axis 2, but these arrays have 2" in refused("fine.npy", "--ring", 2)
    assert "average must lie between 0 and 1" in refused("fine.npy", "--average", 1)
    assert "validation must leave images to train on" in refused("fine.npy", "--validation", 80)
    assert refused("fine.npy", "--device", "toaster").startswith("--device toaster cannot be used here (")
    assert refused("fine.npy", "--device", "cuda:77").startswith("--device cuda:77 cannot be used here (")
    np.save("nan.npy", np.full((4, 1, 5, 5), np.nan, dtype=np.float32))
    assert "must be finite" in refused("nan.npy")
    Path("mixed").mkdir()
    for n in (8, 9):
        Image.new("L", (n, n)).save(f"mixed/{n}.png")
    assert refused("mixed").endswith("give a size for all, such as --size 8x8")


def test_fit_drops_unusable_images_when_told(pixels):
    grey = torch.full((2, 1, 12, 12), 7, dtype=torch.uint8)
    source = save("x.npy", torch.cat([pixels, grey, apply(pixels[:3], torch.ones(3, 2, dtype=torch.int64))]))
    good("fit", source, "--out", "x.safetensors", "--drop-unusable", *QUICK)
    metadata = unshift.load("x.safetensors").metadata
    assert metadata["train_images"] + metadata["validation"]["images"] == 80


def test_fit_says_when_it_ends_near_guessing(pixels):
    noise = save("noise.npy", torch.randint(0, 256, (40, 1, 12, 12), dtype=torch.uint8))
    told = good("fit", noise, "--out", "x.safetensors", *QUICK).stderr
    assert "warning: this is near guessing: the loss on the images held out is " in told
    assert "is that of one guess in 144" in told


def test_fit_skips_what_cannot_be_read_and_names_it(made):
    Path("in").mkdir()
    for path in (made / "photos").iterdir():
        Path("in", path.name).write_bytes(path.read_bytes())
    Path("in/broken.png").write_text("hello")
    message = bad("fit", "in", "--out", "x.safetensors", *QUICK)
    assert "in/broken.png cannot be read as an image (" in message
    assert "--skip-unreadable skips such files" in message
    text = good("fit", "in", "--out", "x.safetensors", "--skip-unreadable", *QUICK).stdout
    assert "skipped 1 files: in/broken.png cannot be read as an image (" in text
    assert unshift.load("x.safetensors").metadata["train_images"] == 18


def test_fit_remembers_what_its_images_were_like(made):
    good("fit", made / "blobs.npy", "--out", "x.safetensors", *QUICK)
    about = unshift.load("x.safetensors").trained_on
    assert (about["size"], about["channels"]) == ([12, 12], 1)
    assert about["background"][0] == 0
    assert len(about["prints"]) == 64


def test_fit_on_images_that_move_for_real_and_are_not_aligned(made):
    told = good_json(
        "fit", made / "blobs.npy", *QUICK, "--moves", "crop", "--scope", 2, "--unaligned", "--out", "real.st"
    )
    assert told["moves"] == {"kind": "crop", "scope": 2}
    assert told["size"] == [8, 8]
    assert 2 <= told["alignment"]["rounds"] <= 6
    found = good_json(
        "evaluate", "--data", made / "blobs.npy", "--restorer", "real.st", "--moves", "crop", "--scopes", 2
    )
    assert found["rates"]["images"] == 80
    message = bad(
        "evaluate", "--data", made / "blobs.npy", "--restorer", "real.st", "--moves", "zeros", "--scopes", "any"
    )
    assert message == "moves that lose pixels need a scope of 0 or more pixels, got None"
    message = bad("fit", made / "blobs.npy", "--classifier", "lenet5-mnist", "--out", "other.st")
    assert message.startswith("a classifier is for images that are not aligned")
