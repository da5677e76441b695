"""A restorer is an nn.Module like any other, on a padded canvas too, and clear about bad images."""

from __future__ import annotations

import copy

import pytest
import torch
from samples import (
    DTYPES,
    PRESETS,
    blobs,
    hard_images,
    make_estimator,
    make_restorer,
)
from torch import nn

from unshift import Restorer, ShiftEstimator, apply, quantise, undo
from unshift.coordinates import Canvas, Pose
from unshift.testing import all_shifts

# --- an nn.Module like any other -------------------------------------------------------------------


def test_the_sign_of_the_answer():
    """``estimate`` returns the shift that was applied: after one step right, one more in axis 1."""
    restorer = make_restorer("dense", 1, (8, 8), trained=True)
    image = blobs(1, 1, (8, 8))
    before = restorer.estimate(image).shift
    after = restorer.estimate(apply(image, torch.tensor([[0, 1]]))).shift
    assert ((after - before) % 8).tolist() == [[0, 1]]
    assert torch.equal(restorer(image), undo(image, before))


def test_the_brightest_pixel_goes_to_the_origin():
    """The simplest scorer there is: a pixel's own value."""
    estimator = ShiftEstimator(1, channels=(1,), kernel_size=(1, 1))
    nn.init.ones_(estimator.local[0].filter.weight)
    image = torch.zeros(1, 1, 3, 4)
    image[0, 0, 1, 2] = 1
    restorer = Restorer(quantise(estimator, image))
    assert restorer.estimate(image).shift.tolist() == [[1, 2]]
    assert restorer(image)[0, 0].tolist() == [[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]


def test_sequential_with_a_classifier():
    classifier = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).eval()
    model = nn.Sequential(make_restorer("paper", 1, (8, 8)), classifier)
    image = blobs(1, 1, (8, 8))
    moved = apply(image.expand(64, 1, 8, 8), all_shifts((8, 8)))
    assert torch.equal(model[0](moved), model[0](image).expand(64, 1, 8, 8))
    torch.testing.assert_close(model(moved), model(image).expand(64, 10))


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_images_keep_their_dtype_and_shape_and_estimates_have_theirs(preset, dtype):
    images = torch.stack([*hard_images(2, (8, 9), dtype).values()])
    restorer = make_restorer(preset, 2, (8, 9))
    assert restorer(images).dtype == dtype
    assert restorer(images).shape == images.shape
    found = restorer.estimate(images)
    shift, confidence, tied = found.shift, found.confidence, found.tied
    assert (shift.dtype, confidence.dtype, tied.dtype) == (torch.int64, torch.float64, torch.bool)
    assert (shift.shape, confidence.shape, tied.shape) == ((len(images), 2), (len(images),), (len(images),))
    assert ((confidence > 0) & (confidence <= 1)).all()


def test_nothing_is_kept_on_the_module():
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
    """The object stays in view, so a shift that fills with zeros is a circular one on the canvas."""
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


def test_padding_is_where_the_estimator_looks():
    canvas = Canvas(1, value=7.0)
    image = torch.tensor([[[1.0, 2.0]]])
    assert canvas.canvas(image).tolist() == [[[[7, 1, 2, 7]]]]  # (batch, copies, channel, pixel): one copy
    one = Pose(torch.tensor([[1]]))
    assert canvas.undo(image, one).tolist() == [[[2, 7]]]
    assert canvas.redo(image, one).tolist() == [[[7, 1]]]
    assert Canvas(0).canvas(image).data_ptr() == image.data_ptr()  # nothing is copied
    assert repr(canvas) == "Canvas(pad=1, value=7.0)"


# --- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_nan_and_infinity(bad, dtype):
    images = torch.zeros(4, 1, 8, 8, dtype=dtype)
    images[2, 0, 3, 3] = images[3, 0, 0, 0] = bad
    with pytest.raises(ValueError, match=r"must be finite: NaN or infinity in 2 of them, first at 2"):
        make_restorer("paper", 1, (8, 8))(images)


@pytest.mark.parametrize(
    ("preset", "images", "message"),
    [
        ("paper", torch.zeros(8, 8), r"1, 2 or 3 spatial axes, got 2 axes: shape \(8, 8\)"),
        ("paper", torch.zeros(1, 1, 8, 8, 8), r"wants 2 spatial axes, got 3: shape \(1, 1, 8, 8, 8\)"),
        ("paper", torch.zeros(1, 3, 8, 8), r"wants 1 channel\(s\), got 3: shape \(1, 3, 8, 8\)"),
        ("paper", torch.zeros(1, 1, 4, 8), r"kernel \(8, 8\) is larger than the image \(4, 8\)"),
        ("dense", torch.zeros(1, 1, 9, 8), r"made for images of size \(8, 8\), got \(9, 8\)"),
        ("seam", torch.zeros(1, 1, 4, 9), r"kernel \(8,\) is larger than the image \(4,\)"),
        ("seam", torch.zeros(1, 1, 9, 6), r"kernel \(8,\) is larger than the image \(6,\)"),
        ("paper", "image.png", r"must be a torch.Tensor .*got str"),
    ],
)
def test_bad_images(preset, images, message):
    with pytest.raises(ValueError, match=message):
        make_restorer(preset, 1, (8, 8))(images)


def test_float_scores_are_refused_with_the_way_out():
    with pytest.raises(ValueError, match=r"wants int64 scores, got torch.float32.*unshift.quantise"):
        Restorer(make_estimator("paper", 1, (8, 8)))(torch.rand(1, 1, 8, 8))


def test_bad_canvas():
    scorer = make_restorer("paper", 1, (8, 8)).scorer
    with pytest.raises(ValueError, match="pad must be 0 or more pixels, got -1"):
        Restorer(scorer, pad=-1)
    with pytest.raises(ValueError, match="pad or coordinates, not both"):
        Restorer(scorer, pad=1, coordinates=Canvas(1))
