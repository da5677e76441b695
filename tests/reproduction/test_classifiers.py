"""The classifiers of the items: networks, the training loop, and files that others trained."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from reproduction import classifiers
from reproduction.classifiers import (
    BORROWED,
    RECIPES,
    Recipe,
    build,
    load,
    make,
    path_of,
    train,
)
from reproduction.networks import ARCHITECTURES
from unshift.data import DataError, ImageSet
from unshift.evaluation import accuracy

TINY = Recipe("resnet20", epochs=2, small_epochs=1, batch_size=16, optimizer="sgd", learning_rate=0.05, flips=True)
RESNET, DENSE = BORROWED


@pytest.mark.parametrize("name", list(ARCHITECTURES))
def test_networks_have_the_stated_parameters_and_take_photos_of_several_sizes(name):
    model = ARCHITECTURES[name]().eval()
    stated = re.search(r"([\d,]+) parameters", ARCHITECTURES[name].__doc__)[1].replace(",", "")
    assert sum(p.numel() for p in model.parameters()) == int(stated)
    for size in (16, 20, 32, 40) if name not in ("lenet5", "voxels3d") else ():
        with torch.no_grad():
            assert model(torch.rand(1, 3, size, size)).shape == (1, 10)


@pytest.fixture
def stripes():
    """Images that a few steps can separate: class 0 with a red half, class 1 with a green one."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(64) % 2
    images = torch.rand(64, 3, 16, 16, generator=generator) * 0.3
    for row, label in enumerate(labels.tolist()):
        images[row, label, :8] += 0.6
    return images, labels


def trained(recipe, images, labels, **options):
    network = build(recipe).train()
    train(network, images, labels, recipe, progress=False, **options)
    return network.eval()


def test_training_learns_and_follows_from_the_seed_and_the_recipe(stripes):
    assert accuracy(trained(replace(TINY, epochs=6), *stripes), *stripes) > 0.9
    first, again = (trained(TINY, *stripes) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    changes = [{"seed": 1}, {"scope": 4}, {"scope": None}, {"small_epochs": 0, "epochs": 3}, {"flips": False}]
    for change in (*changes, {"window": 12}, {"bfloat16": True}):
        other = trained(replace(TINY, **change), *stripes)
        assert not torch.equal(next(first.parameters()), next(other.parameters())), change


def test_a_loss_that_is_not_finite_stops_the_training(stripes):
    with pytest.raises(ValueError, match="learning rate"):
        trained(replace(TINY, learning_rate=1e30), *stripes)


def test_making_holds_images_out_records_the_recipe_and_is_refused_for_another(monkeypatch, tmp_path, stripes):
    images, labels = stripes
    tiny = ImageSet((images * 255).to(torch.uint8), labels, "cifar10")
    monkeypatch.setattr(classifiers, "dataset", lambda name, split: tiny)
    monkeypatch.setitem(classifiers.HELD_OUT, "cifar10", 16)
    monkeypatch.setitem(RECIPES, "tiny", replace(TINY, data="cifar10", preparation=(("pad", 4),)))
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path))
    with pytest.raises(DataError, match="fetch tiny"):
        load("tiny")
    about = make("tiny", progress=False).about
    assert (about["train_images"], about["validation_images"], about["epochs"]) == (48, 16, 2)
    assert 0 <= about["validation_accuracy"] <= 1
    assert [path.name for path in path_of("tiny").parent.iterdir()] == ["tiny.safetensors"]
    assert load("tiny").about == about
    monkeypatch.setitem(RECIPES, "tiny", replace(RECIPES["tiny"], learning_rate=0.01))
    with pytest.raises(ValueError, match="learning_rate"):
        load("tiny")


# --- classifiers that others trained


def test_another_file_than_the_borrowed_one_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path))
    for name in BORROWED:
        path_of(name).parent.mkdir(exist_ok=True)
        path_of(name).write_bytes(b"other")
        with pytest.raises(ValueError, match="SHA-256"):
            load(name)
