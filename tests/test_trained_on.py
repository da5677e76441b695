"""A restorer says, once, when it is shown what it was not trained on; and nothing where it does not know."""

from __future__ import annotations

import warnings

import pytest
import torch
from samples import blobs

import unshift
from unshift.data import dataset, pad, resize, to_float
from unshift.trained_on import background
from unshift.weights import image_shape, pretrained


@pytest.fixture(scope="module")
def digits() -> torch.Tensor:
    return resize(to_float(dataset("mnist-10k", "test").images[:20]), (32, 32))


def told(restorer, images) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        restorer.estimate(images)
    return [str(one.message) for one in caught]


@pytest.mark.parametrize("name", pretrained())
def test_a_shipped_restorer_is_silent_on_its_own_kind(name):
    restorer = unshift.load(name)
    channels, size = image_shape(restorer)
    images = 0.5 * torch.rand(2, channels, *(size or [500]))
    if ground := restorer.trained_on.get("background"):
        images[torch.rand_like(images) < ground[1]] = ground[0]
    assert told(restorer, images) == []


def test_floats_up_to_255_are_told_once(digits):
    restorer = unshift.load("mnist-paper")
    assert told(restorer, digits) == []
    assert told(restorer, (255 * digits).byte()) == []
    (message,) = told(restorer, 255 * digits)
    assert "their pixels run from 0 to 255, and it was trained on values up to 1; divide by 255, or give u" in message
    assert told(restorer, 255 * digits) == []  # once
    assert len(told(unshift.load("mnist-paper"), (255 * digits).long())) == 1
    (message,) = told(unshift.load("mnist-turns"), digits * 4 - 2)  # normalised; this file tells its range
    assert "and it was trained on 0 to 1" in message


def test_another_size_is_told(digits):
    (message,) = told(unshift.load("mnist-paper"), resize(digits, (64, 64)))
    assert "it was trained on images of 32x32, and one of these is 64x64: it looks for objects as large" in message
    assert told(unshift.load("mnist-paper"), resize(digits, (34, 34))) == []
    assert told(unshift.load("cifar10", pad=4), torch.rand(1, 3, 32, 32)) == []  # on its margin it has the size
    assert len(told(unshift.load("cifar10"), pad(torch.rand(1, 3, 400, 400), 56))) == 1
    for other in ((48, 60), (16, 128)):  # lines take other sizes, from half to four times their own
        assert told(unshift.load("cifar10-seam"), torch.rand(1, 3, *other)) == []
    for other in ((15, 32), (32, 129)):
        (message,) = told(unshift.load("cifar10-seam"), torch.rand(1, 3, *other))
        assert f"and one of these is {other[0]}x{other[1]}: it looks for the seam" in message
    mixed = [torch.rand(3, 40, 40), torch.rand(3, 140, 140)]
    (message,) = told(unshift.load("cifar10-seam"), mixed)
    assert "one of these is 140x140" in message
    assert told(unshift.load("mnist-scene"), pad(digits, 30)) == []  # scenes are of any size


def test_another_background_is_told(digits):
    restorer = unshift.load("mnist-paper")
    restorer.trained_on["background"] = background(digits)
    assert restorer.trained_on["background"][0] == 0
    assert restorer.trained_on["background"][1] > 0.5
    assert told(restorer, digits) == []
    (message,) = told(restorer, 1 - 0.9 * digits)
    assert "of the pixels that it was trained on were background (0), here 0% are" in message
    assert background(torch.rand(4, 3, 9, 9)) is None


def test_what_is_not_known_is_not_told(digits):
    restorer = unshift.load("mnist-paper")
    restorer.trained_on = {}
    assert told(restorer, resize(digits, (64, 64))) == []
    assert told(restorer, torch.zeros(0, 1, 32, 32)) == []
    own = unshift.Restorer(lambda images: images[:, 0].long())
    assert told(own, 255 * blobs(2, 1, (8, 8))) == []
