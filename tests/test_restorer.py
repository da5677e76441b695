"""The exactness contract: every shift of every hard image is restored to the same bits, where plain floats fail."""

from __future__ import annotations

import copy

import pytest
import torch
from samples import (
    DTYPES,
    PRESETS,
    assert_exact,
    bits,
    blobs,
    candidates,
    hard_images,
    make_estimator,
    make_restorer,
)
from torch import nn

from unshift import Restorer, ShiftEstimator, apply, quantise, undo
from unshift.circular import CircularFilter
from unshift.testing import all_shifts

TRAINED = pytest.mark.parametrize("trained", [False, True], ids=["untrained", "trained"])


class FloatRestorer(nn.Module):
    """The same estimator without this library's care: float scores, plain argmax."""

    def __init__(self, estimator):
        super().__init__()
        self.estimator = estimator

    @torch.no_grad()
    def forward(self, images):
        best = self.estimator(images).flatten(1).argmax(1)
        return undo(images, torch.stack(torch.unravel_index(best, images.shape[2:]), 1))


def wrong_shifts(restore, image):
    """How many shifts of ``image`` are restored to something else."""
    moves = all_shifts(image.shape[1:])
    restored = restore(apply(image.expand(len(moves), *image.shape), moves))
    return sum(not torch.equal(one, restored[0]) for one in restored)


# --- the contract ----------------------------------------------------------------------------------


@TRAINED
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("preset", PRESETS)
def test_exact_in_every_dtype_trained_and_untrained(preset, dtype, trained):
    restorer = make_restorer(preset, 3, (8, 8), trained)
    for image in hard_images(3, (8, 8), dtype).values():
        assert_exact(restorer, image)


@pytest.mark.parametrize("channels", [1, 3, 5])
@pytest.mark.parametrize("size", [(7,), (1, 1), (1, 7), (9, 13)], ids=str)
@pytest.mark.parametrize("preset", PRESETS)
def test_exact_at_every_size_and_number_of_channels(preset, size, channels):
    restorer = make_restorer(preset, channels, size, trained=channels == 3)
    for image in hard_images(channels, size).values():
        assert_exact(restorer, image)


@pytest.mark.parametrize(("channels", "name"), [(1, "random"), (1, "tied"), (3, "uneven"), (5, "constant")])
@pytest.mark.parametrize("preset", PRESETS)
def test_exact_in_three_dimensions(preset, channels, name):
    size = (6, 7, 8)
    assert_exact(make_restorer(preset, channels, size, trained=channels == 1), hard_images(channels, size)[name])


@pytest.mark.parametrize(
    ("preset", "names"),
    [
        ("paper", ["uneven", "tied_stripes"]),
        ("dense", ["random"]),
        ("seam", ["blob"]),
        pytest.param("paper", ["random", "blob", "constant", "stripes", "checkerboard"], marks=pytest.mark.slow),
        pytest.param("paper", ["one_pixel", "uneven"], marks=pytest.mark.slow),
        pytest.param("dense", ["constant", "uneven"], marks=pytest.mark.slow),
    ],
)
def test_exact_at_32x32(preset, names):
    for number, name in enumerate(names):
        restorer = make_restorer(preset, 1, (32, 32), trained=number % 2 == 1 or preset == "seam")
        assert_exact(restorer, hard_images(1, (32, 32))[name])


@pytest.mark.parametrize(
    ("preset", "channels", "name", "dtype"),
    [
        ("dense", 1, "random", torch.float64),
        ("seam", 1, "blob", torch.float16),
        pytest.param("paper", 1, "uneven", torch.uint8, marks=pytest.mark.slow),
        pytest.param("paper", 1, "tied_stripes", torch.float32, marks=pytest.mark.slow),
    ],
)
def test_exact_at_40x40(preset, channels, name, dtype):
    restorer = make_restorer(preset, channels, (40, 40), trained=preset != "seam")
    assert_exact(restorer, hard_images(channels, (40, 40), dtype)[name])


@TRAINED
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["tied", "tied_stripes"])
@pytest.mark.parametrize("preset", PRESETS)
def test_the_tied_images_do_tie_between_different_images(preset, name, dtype, trained):
    restorer, image = make_restorer(preset, 3, (8, 8), trained), hard_images(3, (8, 8), dtype)[name]
    assert restorer.estimate(image[None]).tied.all()
    assert len(candidates(restorer, image)) > 1


@pytest.mark.parametrize("preset", PRESETS)
def test_signed_zeros_are_told_apart_by_their_bits(preset):
    restorer, image = make_restorer(preset, 1, (8, 8)), hard_images(1, (8, 8))["signed_zeros"]
    assert restorer.estimate(image[None]).tied.all()
    assert len(candidates(restorer, image)) > 1  # all of them equal to torch.equal, none to the bit
    assert_exact(restorer, image)


@pytest.mark.parametrize("preset", PRESETS)
def test_extreme_pixels_are_restored_exactly(preset):
    image = torch.zeros(1, 8, 8, dtype=torch.float64)
    image[0, 2, 3:7] = torch.tensor([1e300, -1e300, 5e-324, 1e-310], dtype=torch.float64)
    assert_exact(make_restorer(preset, 1, (8, 8), trained=True), image)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_net_of_few_bits_ties_often_and_stays_exact(preset):
    size = (8, 8)
    restorer = Restorer(quantise(make_estimator(preset, 1, size), blobs(8, 1, size), bits=2, sum_bits=8))
    images = torch.stack([*hard_images(1, size).values()])
    assert restorer.estimate(images).tied.sum() > len(images) // 2
    for image in images:
        assert_exact(restorer, image)


# --- plain float arithmetic fails the same test ----------------------------------------------------


def neighbour_sum():
    """One filter that adds a pixel and its left neighbour: flat scores on stripes and checkerboards."""
    estimator = ShiftEstimator(1, channels=(1,), kernel_size=(1, 2))
    nn.init.ones_(estimator.local[0].filter.weight)
    return estimator


def two_equal_pixels():
    """Equal neighbourhoods, so equal scores, but 3 pixels apart one way and 5 the other."""
    image = torch.zeros(1, 8, 8)
    image[0, 4, 1] = image[0, 4, 4] = 0.5
    return image


@pytest.mark.parametrize("name", ["stripes", "checkerboard", "two_equal_pixels"])
def test_plain_float_fails_where_integers_and_the_tie_rule_do_not(name):
    estimator = neighbour_sum()
    image = two_equal_pixels() if name == "two_equal_pixels" else hard_images(1, (8, 8))[name]
    restorer = Restorer(quantise(estimator, blobs(4, 1, (8, 8))))
    assert restorer.estimate(image[None]).tied.all()
    assert wrong_shifts(restorer, image) == 0
    assert wrong_shifts(FloatRestorer(estimator), image) > 0


@pytest.mark.parametrize("preset", PRESETS)
def test_plain_float_fails_for_every_preset(preset):
    """Constant but for noise below float32's last bit of a score: argmax follows the rounding."""
    size = (8, 8)
    image = torch.where(torch.rand(1, *size) < 0.5, 0.5, 0.5 - 2**-25)
    estimator = copy.deepcopy(make_estimator(preset, 1, size))
    for layer in estimator.modules():  # a fresh seam net is blind to brightness, and to rounding with it
        if isinstance(layer, CircularFilter):
            layer.weight.data += 0.1
    assert wrong_shifts(FloatRestorer(estimator), image) > 0
    assert wrong_shifts(Restorer(quantise(estimator, blobs(4, 1, size))), image) == 0
    assert wrong_shifts(make_restorer(preset, 1, size), image) == 0


# --- what is refused -------------------------------------------------------------------------------


def test_bits_of_the_checker_see_the_sign_of_zero():
    assert not torch.equal(bits(torch.tensor([0.0])), bits(torch.tensor([-0.0])))
