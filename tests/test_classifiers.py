"""The experiments' classifiers: what they are, that a killed training goes on to the same weights, their files."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace

import pytest
import torch

from unshift.checkpoint import Checkpoint
from unshift.data import ImageSet, dataset, prepare, to_float
from unshift.evaluation import accuracy
from unshift.experiments import classifier_training, classifiers
from unshift.experiments.architectures import ARCHITECTURES
from unshift.experiments.classifier_training import Recipe, train_classifier
from unshift.experiments.classifiers import RECIPES, load_classifier, make, obtain, save_classifier, shipped

PHOTO_NETS = [name for name in ARCHITECTURES if name not in ("lenet5", "voxels3d")]
TINY = Recipe("resnet20", epochs=2, small_epochs=1, batch_size=16, optimizer="sgd", learning_rate=0.05, flips=True)


@pytest.mark.parametrize("name", list(ARCHITECTURES))
def test_parameter_counts_are_those_stated(name):
    model = ARCHITECTURES[name]
    stated = re.search(r"([\d,]+) parameters", model.__doc__)[1].replace(",", "")
    assert sum(p.numel() for p in model().parameters()) == int(stated)


def test_the_shipped_lenet_knows_its_digits():
    test = dataset("mnist-10k", "test")
    images = prepare(to_float(test.images[:1000]), {"resize": [32, 32]})
    assert accuracy(shipped()["lenet5-mnist"](), images, test.labels[:1000]) > 0.98


@pytest.mark.parametrize("name", PHOTO_NETS)
def test_photo_nets_take_both_sizes_and_the_half_of_them(name):
    model = ARCHITECTURES[name]().eval()
    for size in (16, 20, 32, 40):
        with torch.no_grad():
            assert model(torch.rand(1, 3, size, size)).shape == (1, 10)


@pytest.mark.parametrize(
    ("name", "resolution"), [("vgg16", 2), ("resnet18", 5), ("densenet121", 5), ("mobilenet-v2", 5)]
)
def test_the_stem_has_stride_1(name, resolution):
    """At 40x40 the last maps are a sixteenth or an eighth of the image: no early loss of resolution."""
    seen = {}
    model = ARCHITECTURES[name]().eval()
    pool = next(m for m in model if isinstance(m, torch.nn.AdaptiveAvgPool2d))
    pool.register_forward_hook(lambda _, inputs, __: seen.update(shape=inputs[0].shape[-2:]))
    with torch.no_grad():
        model(torch.rand(1, 3, 40, 40))
    assert tuple(seen["shape"]) == (resolution, resolution)


@pytest.fixture
def stripes():
    """Images that even a few steps can tell apart: class 0 with a red half, class 1 with a green one."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(64) % 2
    images = torch.rand(64, 3, 16, 16, generator=generator) * 0.3
    for row, label in enumerate(labels.tolist()):
        images[row, label, :8] += 0.6
    return images, labels


def test_it_learns(stripes):
    images, labels = stripes
    model = train_classifier(replace(TINY, epochs=6), images, labels, progress=False)
    assert accuracy(model, images, labels) > 0.9


def test_training_is_repeatable_and_seeded(stripes):
    images, labels = stripes
    first, again = (train_classifier(TINY, images, labels, progress=False) for _ in range(2))
    other = train_classifier(replace(TINY, seed=1), images, labels, progress=False)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(next(first.parameters()), next(other.parameters()))


def test_augmentation_and_half_size_change_what_is_learned(stripes):
    images, labels = stripes
    plain = train_classifier(TINY, images, labels, progress=False)
    for change in (
        {"scope": 4},
        {"small_epochs": 0, "epochs": 3},
        {"flips": False},
        {"window": 12},
        {"bfloat16": True},
    ):
        other = train_classifier(replace(TINY, **change), images, labels, progress=False)
        assert not torch.equal(next(plain.parameters()), next(other.parameters())), change


def test_a_window_is_a_part_of_its_image_at_a_place_of_its_own():
    images = torch.arange(6 * 7 * 9, dtype=torch.float32).reshape(6, 1, 7, 9)
    cut = classifier_training._windows(images, 4, seed=0)
    places = []
    for image, window in zip(images[:, 0], cut[:, 0], strict=True):
        row, column = divmod(int(window[0, 0] - image[0, 0]), 9)
        assert torch.equal(window, image[row : row + 4, column : column + 4])
        places.append((row, column))
    assert cut.shape == (6, 1, 4, 4)
    assert len(set(places)) > 1


class Killed(BaseException):
    """Stands for a kill: nothing may catch it."""


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_killed_training_goes_on_to_the_same_weights(stripes, tmp_path, monkeypatch, optimizer):
    images, labels = stripes
    recipe = replace(TINY, optimizer=optimizer, scope=2)
    whole = train_classifier(recipe, images, labels, progress=False)
    path = tmp_path / "run.checkpoint"
    saves = Checkpoint.save_sometimes
    for die_at in (2, 5, 9):  # in the half-size part, at its end, and near the end

        def save_and_die(self, run, die_at=die_at):
            self.every_seconds = 0
            saves(self, run)
            if run.step == die_at:
                raise Killed

        monkeypatch.setattr(Checkpoint, "save_sometimes", save_and_die)
        with pytest.raises(Killed):
            train_classifier(recipe, images, labels, checkpoint=path, progress=False)
        assert path.exists()
    monkeypatch.setattr(Checkpoint, "save_sometimes", saves)
    resumed = train_classifier(recipe, images, labels, checkpoint=path, progress=False)
    assert all(
        torch.equal(a, b) for a, b in zip(whole.state_dict().values(), resumed.state_dict().values(), strict=True)
    )
    assert path.exists()  # until the weights are written: see make


def test_a_checkpoint_of_another_recipe_is_refused(stripes, tmp_path, monkeypatch):
    images, labels = stripes
    path = tmp_path / "run.checkpoint"

    def die(self, run):
        self.save(run)
        raise Killed

    monkeypatch.setattr(Checkpoint, "save_sometimes", die)
    with pytest.raises(Killed):
        train_classifier(TINY, images, labels, checkpoint=path, progress=False)
    with pytest.raises(ValueError, match=r"another run \(other settings: epochs\)"):
        train_classifier(replace(TINY, epochs=3), images, labels, checkpoint=path, progress=False)


def test_a_loss_that_is_no_number_stops_the_training(stripes):
    images, labels = stripes
    with pytest.raises(ValueError, match="lower the learning rate"):
        train_classifier(replace(TINY, learning_rate=1e30), images, labels, progress=False)


def test_round_trip(tmp_path):
    images, labels = torch.rand(40, 1, 32, 32), torch.arange(40) % 10
    model = train_classifier(Recipe("lenet5", epochs=1), images, labels, progress=False)
    save_classifier(model, tmp_path / "c.safetensors", {"architecture": "lenet5", "seed": 3})
    again = load_classifier(tmp_path / "c.safetensors")
    assert torch.equal(model(images), again(images))
    assert again.about["seed"] == 3
    save_classifier(model, tmp_path / "d.safetensors", {"architecture": "other"})
    with pytest.raises(ValueError, match=r"d\.safetensors: not a classifier of the experiments"):
        load_classifier(tmp_path / "d.safetensors")


@pytest.fixture
def little_cifar(monkeypatch, tmp_path, stripes):
    """Stand in for CIFAR-10, and for the data folder."""
    images, labels = stripes
    monkeypatch.setattr(
        classifiers, "dataset", lambda name, split: ImageSet((images * 255).to(torch.uint8), labels, name)
    )
    monkeypatch.setitem(classifiers._HELD_OUT, "cifar10", 16)
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path))
    monkeypatch.setitem(RECIPES, "tiny", replace(TINY, data="cifar10", preparation=(("pad", 4),)))
    return tmp_path


def test_make_holds_images_out_and_writes_down_what_it_did(little_cifar):
    about = make("tiny", little_cifar, budget=0.5, progress=False).about
    assert (about["train_images"], about["validation_images"]) == (48, 16)
    assert (about["epochs"], about["small_epochs"], about["budget"]) == (1.0, 0.5, 0.5)
    assert 0 <= about["validation_accuracy"] <= 1
    assert [path.name for path in little_cifar.iterdir()] == ["tiny.safetensors"]  # no checkpoint is left


def test_weights_of_another_recipe_are_refused(little_cifar, monkeypatch):
    make("tiny", little_cifar / "classifiers", budget=0.5, progress=False)
    obtain("tiny", progress=False)  # a budget is not another recipe
    monkeypatch.setitem(RECIPES, "tiny", replace(RECIPES["tiny"], learning_rate=0.01))
    with pytest.raises(ValueError, match="trained by another recipe"):
        obtain("tiny", progress=False)


def test_obtain_trains_once_and_then_reads(little_cifar, monkeypatch):
    first = obtain("tiny", progress=False)
    monkeypatch.setattr(classifiers, "train_classifier", lambda *_, **__: pytest.fail("trained twice"))
    again = obtain("tiny", progress=False)
    assert torch.equal(next(first.parameters()), next(again.parameters()))


@pytest.mark.parametrize("name", sorted(set(shipped()) & set(RECIPES) - {"lenet5-mnist", "voxels3d-mnist3d"}))
def test_shipped_ones_were_made_by_the_recipe(name):
    about, recipe = shipped()[name]().about, json.loads(json.dumps(asdict(RECIPES[name])))
    assert {key: about.get(key, getattr(Recipe, key, None)) for key in recipe} == recipe
