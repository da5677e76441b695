"""unshift.testing: the testers find what is there, and fail on what is broken."""

from __future__ import annotations

import json

import pytest
import torch
from samples import PRESETS, Positional, blobs, hard_images, make_estimator, make_restorer
from torch import nn

from unshift import Restorer, load, verification
from unshift import restorer as restorer_module
from unshift.circular import CircularFilter
from unshift.testing import Verification, all_shifts, assert_equivariant, equivariance_error, verify

SIZE = (8, 8)


# --- equivariance -------------------------------------------------------------------------------


def test_all_shifts_are_all_in_row_major_order():
    assert all_shifts((2, 3)).tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert all_shifts((6, 7, 8)).shape == (336, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", [(3,), (3, 4), (2, 3, 1)], ids=str)
def test_a_circular_filter_passes(kernel, dtype):
    assert_equivariant(CircularFilter(2, 3, kernel).to(dtype), (2, *[n + 2 for n in kernel]), dtype=dtype)


def test_any_function_of_single_pixels_passes_to_the_bit():
    assert_equivariant(torch.relu, (2, 5, 6), tolerance=0)
    assert equivariance_error(lambda x: x.sum(1), (2, 5, 6)) == 0  # the channel axis may be dropped


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
def test_what_is_not_equivariant_fails(module):
    with pytest.raises(AssertionError, match=r"not equivariant on \(1, 8, 8\): the output differs by up to .* allowed"):
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
    with pytest.raises(AssertionError, match="differs by up to inf"):
        assert_equivariant(module, (1, *SIZE), dtype=torch.float32)


def test_nan_is_an_infinite_error():
    assert equivariance_error(lambda x: x / 0 * 0, (1, *SIZE)) == float("inf")


def test_one_wrong_shift_is_found():
    """A module that is wrong for one image position in 64 only."""

    def module(images):
        corner = images[:, :, 3, 5] > 0.99
        return images + corner[:, :, None, None] * torch.arange(8.0)

    image = torch.zeros(1, 1, *SIZE)
    image[0, 0, 0, 0] = 1
    assert equivariance_error(module, (1, *SIZE), images=image) > 0
    assert equivariance_error(module, (1, *SIZE), images=image, shifts=all_shifts((3, 5))) == 0


def test_bad_images():
    with pytest.raises(ValueError, match=r"must be \(batch, 1, 8, 8\), got \(2, 1, 8, 9\)"):
        equivariance_error(torch.relu, (1, 8, 8), images=torch.zeros(2, 1, 8, 9))


# --- verify -------------------------------------------------------------------------------------


BRUTE_FORCE = pytest.mark.parametrize("brute_force", [False, True], ids=["smart", "brute force"])


@pytest.fixture
def plain_argmax():
    """A function that replaces the tie rule by the first of the highest scores, until the test is over."""

    def first(scores, *_):
        flat = scores.flatten(1)
        tied = (flat == flat.amax(1, keepdim=True)).sum(1) > 1
        return flat.argmax(1), tied

    with pytest.MonkeyPatch.context() as patch:

        def replace():
            patch.setattr(restorer_module, "choose", first)
            patch.setattr(verification, "choose", first)

        yield replace


@pytest.mark.parametrize("preset", PRESETS)
def test_both_modes_agree_that_a_restorer_is_exact(preset):
    images = torch.stack([*hard_images(1, SIZE).values()])
    restorer = make_restorer(preset, 1, SIZE, trained=True)
    smart, brute = verify(restorer, images), verify(restorer, images, brute_force=True)
    assert smart.exact
    assert brute.exact
    assert (smart.images, smart.moves) == (brute.images, brute.moves) == (len(images), len(images) * 64)
    assert smart.ties == brute.ties == int(restorer.estimate(images).tied.sum()) >= 2
    assert (smart.brute_force, brute.brute_force) == (False, True)


@BRUTE_FORCE
def test_verify_catches_a_scorer_that_is_not_equivariant(brute_force):
    restorer = Restorer(Positional(make_restorer("dense", 1, SIZE, trained=True).scorer))
    found = verify(restorer, blobs(4, 1, SIZE), brute_force=brute_force)
    assert not found.exact
    assert found.mismatches > 0


@BRUTE_FORCE
def test_verify_refuses_float_scores(brute_force):
    with pytest.raises(ValueError, match=r"int64 scores, got torch\.float32"):
        verify(Restorer(make_estimator("dense", 1, SIZE)), blobs(1, 1, SIZE), brute_force=brute_force)


@BRUTE_FORCE
@pytest.mark.parametrize("name", ["tied", "tied_stripes"])
def test_verify_catches_a_tie_rule_that_looks_at_positions(name, brute_force, plain_argmax):
    """Plain argmax on exact integers: still wrong where scores tie between different images."""
    plain_argmax()
    restorer, images = make_restorer("paper", 1, SIZE), hard_images(1, SIZE)
    assert not verify(restorer, images[name][None], brute_force=brute_force).exact
    constant = verify(restorer, images["constant"][None], brute_force=brute_force)
    assert constant.exact  # every choice is the same image
    assert constant.ties == 1


@BRUTE_FORCE
def test_verify_compares_bits(brute_force, plain_argmax):
    """0.0 and -0.0 are equal numbers and different images."""
    restorer, image = make_restorer("paper", 1, SIZE), hard_images(1, SIZE)["signed_zeros"][None]
    assert verify(restorer, image, brute_force=brute_force).exact
    plain_argmax()
    assert not verify(restorer, image, brute_force=brute_force).exact


def test_verify_counts_every_shift_on_the_padded_canvas():
    restorer = Restorer(make_restorer("dense", 1, SIZE, trained=True).scorer, pad=2)
    images = blobs(2, 1, (4, 4))
    for brute_force in (False, True):
        found = verify(restorer, images, brute_force=brute_force, batch_size=10)
        assert found.exact
        assert found.moves == 2 * 64


def test_verify_takes_uint8():
    restorer = make_restorer("paper", 3, SIZE)
    assert verify(restorer, hard_images(3, SIZE, torch.uint8)["random"][None]).exact


def test_a_verification_reads_well_and_goes_to_json():
    found = Verification(images=2, moves=2048, mismatches=0, ties=1, brute_force=True)
    assert str(found) == (
        "2 images x 1,024 moves = 2,048 checked (every moved image through the whole network): "
        "0 mismatches, 1 tied images"
    )
    assert json.loads(json.dumps(found.as_dict()))["exact"] is True
    assert not Verification(1, 64, 1, 0, False).exact


class NearlyEquivariant(torch.nn.Module):
    """Wrong at one position only, which a few probes would not meet."""

    def forward(self, images):
        scores = (images[:, 0] * 100).long()
        scores[:, 31, 31] *= 10
        return scores


def test_verify_takes_no_argument_about_integers_from_a_foreign_scorer():
    image = torch.zeros(1, 1, 32, 32)
    image[0, 0, 4, 4], image[0, 0, 4, 6] = 1, 0.9
    found = verify(Restorer(NearlyEquivariant()), image)
    assert found.brute_force
    assert found.mismatches == 1


def test_verify_turns_the_image_of_a_rotation_restorer(monkeypatch):
    restorer = load("mnist-rotation-paper")
    images = torch.rand(2, 1, *[restorer.coordinates.size] * 2)
    assert verify(restorer, images).exact
    monkeypatch.setattr(type(restorer.coordinates), "undo", lambda self, images, *_: images)
    assert verify(restorer, images).mismatches == 6


def test_nothing_to_check_is_not_a_pass():
    restorer = load("mnist-paper")
    with pytest.raises(ValueError, match="no images to verify on"):
        verify(restorer, torch.zeros(0, 1, 32, 32))
    with pytest.raises(ValueError, match="images must be finite"):
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
