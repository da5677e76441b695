"""The testers pass on modules that are equivariant or exact, and fail on modules that are not."""

from __future__ import annotations

import pytest
import torch
from samples import PRESETS, Positional, blobs, hard_images, make_restorer
from torch import nn

from unshift import Restorer, load
from unshift import restorer as restorer_module
from unshift.network import CircularFilter
from unshift.shifts import all_shifts
from unshift.testing import assert_equivariant, equivariance_error, verify

SIZE = (8, 8)


# --- equivariance -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "module",
    [
        nn.Conv2d(1, 1, 3, padding=1),
        nn.Sequential(CircularFilter(1, 2, (3, 3)), nn.ReLU(), nn.Conv2d(2, 1, 3, padding=1)),
        lambda images: images * torch.arange(8.0),
        lambda images: images.flip(-1),
    ],
    ids=["zero padding", "zero padding in the last layer", "weight per column", "mirror"],
)
def test_a_module_that_is_not_equivariant_fails(module):
    with pytest.raises(AssertionError, match=r"\(1, 8, 8\)"):
        assert_equivariant(module, (1, *SIZE), dtype=torch.float32)


@pytest.mark.parametrize(
    "module",
    [
        nn.Conv2d(1, 1, 3, stride=2, padding=1, padding_mode="circular"),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1),
        nn.Conv2d(1, 1, 3),
    ],
    ids=["stride", "pooling", "global pooling", "no padding"],
)
def test_a_module_that_changes_the_size_has_infinite_error(module):
    assert equivariance_error(module, (1, *SIZE), dtype=torch.float32) == float("inf")
    with pytest.raises(AssertionError, match="inf"):
        assert_equivariant(module, (1, *SIZE), dtype=torch.float32)


def test_a_single_wrong_shift_is_found():
    """Use a module that is wrong for one of 64 positions."""

    def module(images):
        corner = images[:, :, 3, 5] > 0.99
        return images + corner[:, :, None, None] * torch.arange(8.0)

    image = torch.zeros(1, 1, *SIZE)
    image[0, 0, 0, 0] = 1
    assert equivariance_error(module, (1, *SIZE), images=image) > 0
    assert equivariance_error(module, (1, *SIZE), images=image, shifts=all_shifts((3, 5))) == 0


def test_bad_images():
    with pytest.raises(ValueError, match=r"\(2, 1, 8, 9\)"):
        equivariance_error(torch.relu, (1, 8, 8), images=torch.zeros(2, 1, 8, 9))


# --- verify -------------------------------------------------------------------------------------


@pytest.fixture
def plain_argmax(monkeypatch):
    """Return a function that replaces the tie rule by the first of the highest scores."""
    return lambda: monkeypatch.setattr(restorer_module, "choose", lambda scores, order: scores.best())


@pytest.mark.parametrize("preset", PRESETS)
def test_verify_checks_every_move_of_every_image(preset):
    images = torch.stack([*hard_images(1, SIZE).values()])
    restorer = make_restorer(preset, 1, SIZE, trained=True)
    result = verify(restorer, images)
    assert result.exact
    assert result.complete
    assert (result.images, result.moves) == (len(images), len(images) * 64)
    assert result.ties == int(restorer.estimate(images).tied.sum()) >= 2
    assert verify(make_restorer("paper", 3, SIZE), hard_images(3, SIZE, torch.uint8)["random"][None]).exact


def test_verify_catches_a_scorer_that_is_not_equivariant():
    restorer = Restorer(Positional(make_restorer("dense", 1, SIZE, trained=True).scorer))
    assert verify(restorer, blobs(4, 1, SIZE)).mismatches > 0


@pytest.mark.parametrize("name", ["tied", "tied_stripes"])
def test_verify_catches_a_tie_rule_that_depends_on_positions(name, plain_argmax):
    """Plain argmax on exact integers is wrong where scores tie between different images."""
    plain_argmax()
    restorer, images = make_restorer("paper", 1, SIZE), hard_images(1, SIZE)
    assert not verify(restorer, images[name][None]).exact
    constant = verify(restorer, images["constant"][None])
    assert constant.exact  # every choice is the same image
    assert constant.ties == 1


def test_verify_compares_bits(plain_argmax):
    """0.0 and -0.0 are equal numbers and different images."""
    restorer, image = make_restorer("paper", 1, SIZE), hard_images(1, SIZE)["signed_zeros"][None]
    assert verify(restorer, image).exact
    plain_argmax()
    assert not verify(restorer, image).exact


def test_verify_checks_every_shift_on_the_padded_canvas():
    restorer = Restorer(make_restorer("dense", 1, SIZE, trained=True).scorer, pad=2)
    result = verify(restorer, blobs(2, 1, (4, 4)), batch_size=10)
    assert result.exact
    assert result.moves == 2 * 64


@pytest.mark.parametrize("pad", [0, 2])
def test_verify_checks_the_restorer_with_its_min_confidence(pad):
    """A rejected image passes as it is, so its moves come out differently."""
    restorer = Restorer(make_restorer("dense", 1, SIZE, trained=True).scorer, pad=pad)
    images = blobs(3, 1, tuple(n - 2 * pad for n in SIZE))
    assert verify(restorer, images, moves=20).exact
    restorer.min_confidence = 1.0
    assert verify(restorer, images, moves=20).mismatches > 0
    assert verify(load("mnist", min_confidence=1.0), torch.rand(1, 1, 32, 32), moves=5).mismatches > 0


class NearlyEquivariant(torch.nn.Module):
    """A scorer that is wrong at one position only."""

    def forward(self, images):
        scores = (images[:, 0] * 100).long()
        scores[:, 31, 31] *= 10
        return scores


def test_verify_finds_a_single_wrong_shift():
    image = torch.zeros(1, 1, 32, 32)
    image[0, 0, 4, 4], image[0, 0, 4, 6] = 1, 0.9
    assert verify(Restorer(NearlyEquivariant()), image).mismatches == 1


def test_verify_turns_the_image_of_a_rotation_restorer(monkeypatch):
    restorer = load("mnist-rotation-paper")
    images = torch.rand(2, 1, *[restorer.coordinates.size] * 2)
    assert verify(restorer, images).exact
    monkeypatch.setattr(type(restorer.coordinates), "undo", lambda self, images, *_: images)
    assert verify(restorer, images).mismatches == 6


def test_a_test_of_nothing_does_not_pass():
    restorer = load("mnist-paper")
    with pytest.raises(ValueError, match="no images"):
        verify(restorer, torch.zeros(0, 1, 32, 32))
    with pytest.raises(ValueError, match="finite"):
        verify(restorer, torch.full((1, 1, 32, 32), float("nan")))
    with pytest.raises(ValueError, match="0 images"):
        equivariance_error(torch.nn.Identity(), (1, 4, 4), images=torch.zeros(0, 1, 4, 4))


@pytest.mark.parametrize(
    "module",
    [
        lambda x: torch.where(torch.arange(x.shape[-1]) == 0, -0.0, 0.0).expand_as(x),
        lambda x: torch.full_like(x, 2**60, dtype=torch.int64) + (torch.arange(x.shape[-1]) == 0),
        lambda x: x.sum(0, keepdim=True) * 0,
    ],
    ids=["signed-zero", "large-integers", "wrong-batch"],
)
def test_zero_tolerance_means_the_bits(module):
    with pytest.raises(AssertionError, match="not equivariant"):
        assert_equivariant(module, (1, 6), tolerance=0)
