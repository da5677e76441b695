"""Restorer: every shift of every hard image is restored to the same bits, and it is an nn.Module like any other."""

from __future__ import annotations

import copy

import pytest
import torch
from samples import (
    DTYPES,
    PRESETS,
    assert_exact,
    blobs,
    candidates,
    hard_images,
    make_estimator,
    make_restorer,
)
from torch import nn

from unshift import Restorer, ShiftEstimator, apply, quantise, undo
from unshift.coordinates import Padded, Pose
from unshift.network import CircularFilter
from unshift.shifts import all_shifts

pytestmark = pytest.mark.filterwarnings("ignore:this restorer may be wrong")

TRAINED = pytest.mark.parametrize("trained", [False, True], ids=["untrained", "trained"])


class FloatRestorer(nn.Module):
    """The same estimator with float scores and a plain argmax."""

    def __init__(self, estimator):
        super().__init__()
        self.estimator = estimator

    @torch.no_grad()
    def forward(self, images):
        best = self.estimator(images).flatten(1).argmax(1)
        return undo(images, torch.stack(torch.unravel_index(best, images.shape[2:]), 1))


def wrong_shifts(restore, image):
    """Return the number of shifts of ``image`` that are restored to another image."""
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
def test_the_tied_images_tie_between_different_images(preset, name, dtype, trained):
    restorer, image = make_restorer(preset, 3, (8, 8), trained), hard_images(3, (8, 8), dtype)[name]
    assert restorer.estimate(image[None]).tied.all()
    assert len(candidates(restorer, image)) > 1


@pytest.mark.parametrize("preset", PRESETS)
def test_signed_zeros_are_distinguished_by_their_bits(preset):
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
    """Return a filter that adds a pixel and its left neighbour: constant scores on stripes and checkerboards."""
    estimator = ShiftEstimator(1, channels=(1,), kernel_size=(1, 2))
    nn.init.ones_(estimator.local[0].weight)
    return estimator


def two_equal_pixels():
    """Return an image of equal pixels, so equal scores, 3 pixels apart one way and 5 the other."""
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
    """Use an image whose noise is below the rounding error of a score: argmax follows the rounding."""
    size = (8, 8)
    image = torch.where(torch.rand(1, *size) < 0.5, 0.5, 0.5 - 2**-25)
    estimator = copy.deepcopy(make_estimator(preset, 1, size))
    for layer in estimator.modules():  # an untrained seam network ignores brightness
        if isinstance(layer, CircularFilter):
            layer.weight.data += 0.1
    assert wrong_shifts(FloatRestorer(estimator), image) > 0
    assert wrong_shifts(Restorer(quantise(estimator, blobs(4, 1, size))), image) == 0
    assert wrong_shifts(make_restorer(preset, 1, size), image) == 0


# --- an nn.Module like any other -------------------------------------------------------------------


def test_the_brightest_pixel_goes_to_the_origin():
    """Use the simplest scorer: the value of a pixel."""
    estimator = ShiftEstimator(1, channels=(1,), kernel_size=(1, 1))
    nn.init.ones_(estimator.local[0].weight)
    image = torch.zeros(1, 1, 3, 4)
    image[0, 0, 1, 2] = 1
    restorer = Restorer(quantise(estimator, image))
    assert restorer.estimate(image).shift.tolist() == [[1, 2]]
    assert restorer(image)[0, 0].tolist() == [[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]


def test_a_call_leaves_no_state_on_the_module():
    restorer = make_restorer("paper", 1, (8, 8))
    before = {key: id(value) for key, value in vars(restorer).items()}
    buffers = copy.deepcopy(restorer.state_dict())
    restorer(torch.rand(2, 1, 8, 8))
    assert {key: id(value) for key, value in vars(restorer).items()} == before
    assert all(torch.equal(buffers[key], value) for key, value in restorer.state_dict().items())


@pytest.mark.parametrize("pad", [0, 2])
def test_gradients_pass_through_the_undo(pad):
    size = (5, 6)
    canvas = tuple(n + 2 * pad for n in size)
    scorer = make_restorer("paper", 1, canvas).scorer
    restorer = Restorer(scorer, pad=pad)
    images = torch.rand(2, 1, *size, dtype=torch.float64, requires_grad=True)
    restored = restorer(images)
    weight = torch.rand_like(restored)
    (restored * weight).sum().backward()
    estimate = restorer.estimate(images)
    wanted = nn.functional.pad(weight, [pad] * 4)
    wanted = apply(wanted, estimate.shift)[(..., *[slice(pad, pad + n) for n in size])]
    assert torch.equal(images.grad, wanted)
    assert torch.autograd.gradcheck(lambda x: restorer.undo(x, estimate), images)


# --- the padded canvas -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_a_zero_filled_shift_is_undone_on_the_padded_canvas(dtype):
    """While the object stays in view, a zero-filled shift is a circular shift of the padded image."""
    pad, inner = 2, torch.rand(1, 1, 4, 4)
    image = nn.functional.pad(inner, [2] * 4)
    image = (255 * image).to(dtype) if dtype == torch.uint8 else image
    restorer = Restorer(make_restorer("dense", 1, (12, 12), trained=True).scorer, pad=pad)
    wanted = restorer(image)
    assert wanted.shape == image.shape
    for shift in all_shifts((5, 5)) - 2:
        canvas = apply(nn.functional.pad(image, [pad] * 4), shift[None])
        moved = canvas[..., pad:-pad, pad:-pad]
        assert torch.equal(restorer(moved), wanted)


def test_the_canvas_has_the_margin():
    canvas = Padded(1, value=7.0)
    image = torch.tensor([[[1.0, 2.0]]])
    assert canvas.canvases(image)[0].tolist() == [[[7, 1, 2, 7]]]
    one = Pose(torch.tensor([[1]]))
    assert canvas.undo(image, one).tolist() == [[[2, 7]]]
    assert canvas.redo(image, one).tolist() == [[[7, 1]]]
    assert Padded(0).canvases(image)[0].data_ptr() == image.data_ptr()  # nothing is copied
    assert repr(canvas) == "Padded(pad=1, value=7.0)"


# --- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_nan_and_infinity(bad, dtype):
    images = torch.zeros(4, 1, 8, 8, dtype=dtype)
    images[2, 0, 3, 3] = images[3, 0, 0, 0] = bad
    with pytest.raises(ValueError, match=r"finite.* in 2 of them, first at 2"):
        make_restorer("paper", 1, (8, 8))(images)


@pytest.mark.parametrize(
    ("preset", "images", "message"),
    [
        ("paper", torch.zeros(8, 8), r"\(8, 8\)"),
        ("paper", torch.zeros(1, 1, 8, 8, 8), r"\(1, 1, 8, 8, 8\)"),
        ("paper", torch.zeros(1, 3, 8, 8), r"got 3.*\(1, 3, 8, 8\)"),
        ("paper", torch.zeros(1, 1, 4, 8), r"kernel \(8, 8\).*\(4, 8\)"),
        ("dense", torch.zeros(1, 1, 9, 8), r"\(8, 8\).*\(9, 8\)"),
        ("seam", torch.zeros(1, 1, 4, 9), r"kernel \(8,\).*\(4,\)"),
        ("seam", torch.zeros(1, 1, 9, 6), r"kernel \(8,\).*\(6,\)"),
        ("paper", "image.png", "got str"),
    ],
)
def test_bad_images(preset, images, message):
    with pytest.raises(ValueError, match=message):
        make_restorer(preset, 1, (8, 8))(images)


def test_float_scores_are_refused():
    with pytest.raises(ValueError, match=r"torch.float32.*unshift.quantise"):
        Restorer(make_estimator("paper", 1, (8, 8)))(torch.rand(1, 1, 8, 8))
