"""unshift.network: one layer, two methods that agree, equivariant by its signature."""

from __future__ import annotations

import inspect
import itertools

import pytest
import torch

from unshift.network import CircularFilter, circular_correlation, full_row
from unshift.testing import assert_equivariant

METHODS = ("fft", "direct")
SHAPES = [  # (spatial size, kernel): odd, even, 1, and the image's own size, over 1, 2 and 3 axes
    ((7,), (3,)),
    ((8,), (4,)),
    ((5,), (5,)),
    ((1, 7), (1, 3)),
    ((6, 9), (3, 2)),
    ((5, 4), (5, 4)),
    ((9, 13), (9, 9)),
    ((3, 4, 5), (2, 3, 1)),
    ((4, 3, 2), (4, 3, 2)),
]


def by_definition(images, weight):
    """``sum_{r, j} weight[k, r, j] * x[r, M + j - k // 2]``, one tap at a time."""
    kernel = weight.shape[2:]
    axes = tuple(range(2, images.ndim))
    total = torch.zeros(len(images), len(weight), *images.shape[2:], dtype=images.dtype)
    for tap in itertools.product(*map(range, kernel)):
        ahead = images.roll([k // 2 - j for j, k in zip(tap, kernel, strict=True)], axes)
        total += torch.einsum("bi...,oi->bo...", ahead, weight[(..., *tap)])
    return total


# --- signs and axes, as literals ----------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("image", "taps", "wanted"),
    [
        ([1, 0, 0, 0], [2, 3, 5], [3, 2, 0, 5]),  # [a, b, c] gives [b, a, 0, c]: correlation, not convolution
        ([1, 0, 0, 0], [2, 3], [3, 2, 0, 0]),  # an even kernel looks back first
        ([0, 1, 2, 3], [1, 0, 0], [3, 0, 1, 2]),  # the first tap of three looks one pixel back: a shift by 1
        ([1, 0, 0, 0], [2, 3, 5, 7], [5, 3, 2, 7]),  # dense
    ],
)
def test_which_way_taps_look(method, image, taps, wanted):
    y = circular_correlation(torch.tensor([[image]]).double(), torch.tensor([[taps]]).double(), method)
    torch.testing.assert_close(y, torch.tensor([[wanted]]).double())


def test_axes_of_the_kernel_are_those_of_the_image():
    image = torch.zeros(1, 1, 3, 4, dtype=torch.float64)
    image[0, 0, 0, 0] = 1
    taps = torch.tensor([[[[0.0, 0, 0], [0, 0, 0], [0, 9, 0]]]], dtype=torch.float64)  # looks one pixel down
    assert circular_correlation(image, taps, "direct")[0, 0].tolist() == [[0] * 4, [0] * 4, [9, 0, 0, 0]]


def test_full_row_is_row_zero_of_the_filter():
    assert full_row(torch.tensor([[[1, 2, 3]]]), (5,)).tolist() == [[[2, 3, 0, 0, 1]]]
    assert full_row(torch.tensor([[[1, 2, 3, 4]]]), (4,)).tolist() == [[[3, 4, 1, 2]]]


# --- the two methods ----------------------------------------------------------------------------


@pytest.mark.parametrize("method", [*METHODS, None])
@pytest.mark.parametrize(("size", "kernel"), SHAPES, ids=str)
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (3, 1), (1, 4), (3, 2)])
def test_both_methods_are_the_definition(method, size, kernel, inputs, outputs):
    images = torch.randn(2, inputs, *size, dtype=torch.float64)
    weight = torch.randn(outputs, inputs, *kernel, dtype=torch.float64)
    torch.testing.assert_close(circular_correlation(images, weight, method), by_definition(images, weight))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_methods_agree_in_every_float_dtype(dtype):
    images, weight = torch.randn(2, 2, 8, 9).to(dtype), torch.randn(3, 2, 3, 4)
    fft, direct = (circular_correlation(images, weight, method) for method in METHODS)
    assert fft.dtype == direct.dtype == dtype
    torch.testing.assert_close(fft, direct, rtol=2 * torch.finfo(dtype).eps, atol=1e-2 if dtype.itemsize == 2 else 1e-5)


# --- the layer ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("size", "kernel"), SHAPES, ids=str)
def test_layer_is_equivariant_at_random_weights(dtype, size, kernel):
    layer = CircularFilter(2, 3, kernel).to(dtype)
    torch.nn.init.normal_(layer.bias)
    assert_equivariant(layer, (2, *size), dtype=dtype)


def test_signature_leaves_no_way_to_break_equivariance():
    assert [*inspect.signature(CircularFilter).parameters][:4] == ["in_channels", "out_channels", "kernel_size", "bias"]
    assert not {"stride", "padding", "padding_mode", "dilation"} & {*inspect.signature(CircularFilter).parameters}


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(1, 2, 8), r"wants images with 2 spatial axes, got 1: shape \(1, 2, 8\)"),
        (torch.zeros(1, 3, 8, 8), r"wants 2 channels, got 3"),
        (torch.zeros(1, 2, 8, 4), r"kernel \(5, 5\) is larger than the image \(8, 4\)"),
        (torch.zeros(1, 2, 8, 8, dtype=torch.uint8), r"wants floating-point images, got torch.uint8"),
        (torch.zeros(2, 8), r"got 2 axes"),
    ],
)
def test_bad_images(images, message):
    with pytest.raises(ValueError, match=message):
        CircularFilter(2, 1, (5, 5))(images)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, 1, ()), r"1, 2 or 3 positive sizes.*got \(\)"),
        ((1, 1, (3, 3, 3, 3)), r"1, 2 or 3 positive sizes.*got \(3, 3, 3, 3\)"),
        ((1, 1, (3, 0)), r"positive sizes.*got \(3, 0\)"),
        ((0, 1, (3,)), r"channels must be positive, got 0 in and 1 out"),
        ((1, 0, (3,)), r"channels must be positive, got 1 in and 0 out"),
    ],
)
def test_bad_layer(arguments, message):
    with pytest.raises(ValueError, match=message):
        CircularFilter(*arguments)
