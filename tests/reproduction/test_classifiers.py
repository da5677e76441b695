"""The classifiers of the items: networks, the training loop, and files that others trained."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from reproduction import classifiers
from reproduction.classifiers import (
    BORROWED,
    RECIPES,
    Normalise,
    Recipe,
    build,
    cut_windows,
    load,
    make,
    path_of,
    train,
)
from reproduction.networks import ARCHITECTURES
from unshift.data import DataError, ImageSet, dataset, prepare, to_float
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


def test_a_window_is_a_part_of_its_image_at_its_own_place():
    images = torch.arange(6 * 7 * 9, dtype=torch.float32).reshape(6, 1, 7, 9)
    places = set()
    for image, window in zip(images[:, 0], cut_windows(images, 4, seed=0)[:, 0], strict=True):
        row, column = divmod(int(window[0, 0] - image[0, 0]), 9)
        assert torch.equal(window, image[row : row + 4, column : column + 4])
        places.add((row, column))
    assert len(places) > 1


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


def their_names(name):
    """The names that the authors gave the tensors of a network, in order."""
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    parts, last = [("conv1", 0)], "linear" if name == RESNET else "fc"
    if name == RESNET:
        parts.append(("bn1", 1))
        for layer in range(1, 5):
            for block in range(2):
                parts += [(f"layer{layer}.{block}.{part}", "bn" in part) for part in ("conv1", "bn1", "conv2", "bn2")]
                if layer > 1 and not block:
                    parts += [(f"layer{layer}.0.shortcut.0", 0), (f"layer{layer}.0.shortcut.1", 1)]
    else:
        for block in range(1, 4):
            for layer in range(16):
                parts += [(f"block{block}.layer.{layer}.{p}", "bn" in p) for p in ("bn1", "conv1", "bn2", "conv2")]
            parts += [(f"trans{block}.bn1", 1), (f"trans{block}.conv1", 0)] if block < 3 else [("bn1", 1)]
    names = [f"{part}.{key}" for part, several in parts for key in (norm if several else norm[:1])]
    return [*names, f"{last}.weight", f"{last}.bias"]


@pytest.mark.parametrize("name", list(BORROWED))
def test_every_tensor_name_is_translated_in_order(name):
    record = BORROWED[name]
    ours = list(ARCHITECTURES[record.architecture]().state_dict())
    assert [record.rename(theirs) for theirs in their_names(name)] == ours


def test_a_borrowed_network_is_normalised_and_another_file_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path))
    model, path = ARCHITECTURES["densenet-bc100"]().eval(), path_of(DENSE)
    path.parent.mkdir()
    save_file(dict(zip(their_names(DENSE), model.state_dict().values(), strict=True)), path)
    data = bytearray(path.read_bytes())
    monkeypatch.setitem(BORROWED, DENSE, replace(BORROWED[DENSE], sha256=hashlib.sha256(data).hexdigest()))
    images, (mean, deviation) = torch.rand(2, 3, 32, 32), BORROWED[DENSE].normalised
    seen = (images - torch.tensor(mean)[:, None, None]) / torch.tensor(deviation)[:, None, None]
    with torch.no_grad():
        assert torch.equal(load(DENSE)(images), model(seen))
    assert torch.equal(Normalise(mean, deviation)(images), seen)
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="SHA-256"):
        load(DENSE)


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize(("name", "margin", "percent"), [(RESNET, 0, 94.22), (RESNET, 4, 94.49), (DENSE, 0, 94.54)])
def test_borrowed_networks_have_the_stated_accuracy(name, margin, percent):
    if not path_of(name).exists():
        pytest.skip(f"{name} is not in the data folder")
    test = dataset("cifar10", "test")
    images = to_float(prepare(test.images, {"pad": margin} if margin else {}))
    assert accuracy(load(name), images, test.labels) == pytest.approx(percent / 100)
