"""quantise: from a float network to an integer one, for any range of pixels."""

from __future__ import annotations

import pytest
import torch
from samples import CLAMPED, PRESETS, blobs, make_estimator, make_restorer

from unshift.exact import Scores, quantise
from unshift.exact.integers import IntegerFilter
from unshift.network import ShiftEstimator
from unshift.shifts import apply
from unshift.testing import assert_equivariant


def filters(net):
    return [module for module in net.modules() if isinstance(module, IntegerFilter)]


@pytest.mark.parametrize("trained", [False, True], ids=["untrained", "trained"])
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(("bits", "sum_bits"), [(10, 24), (8, 24), (4, 12), (10, 20), (16, 34), (10, 48), (3, 48)])
def test_quantise_keeps_every_sum_below_its_limit(preset, trained, bits, sum_bits):
    net = quantise(make_estimator(preset, 3, (8, 8), trained), blobs(8, 3, (8, 8)), bits=bits, sum_bits=sum_bits)
    for layer in filters(net):
        worst = (2**bits - 1) * layer.weight.double().abs().flatten(1).sum(1) + layer.bias.abs()
        assert worst.max() < 2**sum_bits
        assert worst.max() > 2 ** (sum_bits - 2) or layer.divisor is None  # and uses the room it has
        assert layer.divisor is None or (layer.divisor >= 1).all()


@pytest.mark.parametrize(("bits", "sum_bits"), [(10, 24), (10, 32), (10, 48), (16, 32), (16, 40), (16, 48)])
@pytest.mark.parametrize("preset", PRESETS)
def test_integer_scores_follow_the_float_ones(preset, bits, sum_bits):
    estimator, images = make_estimator(preset, 1, (16, 16), trained=True), blobs(16, 1, (16, 16))
    net = quantise(estimator, images, bits=bits, sum_bits=sum_bits)
    wanted = estimator(images).detach().double().flatten(1)
    found = net(images).double().flatten(1) * net.score_unit
    spread = wanted.max() - wanted.min()
    assert (found - wanted).abs().max() < (0.05 if bits == 10 else 0.01) * spread


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("size", [(7,), (8, 8), (3, 4, 5)], ids=str)
def test_integer_nets_are_equivariant_to_the_last_bit(preset, size):
    for dtype in (torch.float32, torch.float64):
        assert_equivariant(make_restorer(preset, 2, size).scorer, (2, *size), dtype=dtype, tolerance=0)


def test_pixels_are_quantised_one_by_one():
    net = make_restorer("paper", 1, (8, 8)).scorer
    image = torch.tensor([0.0, CLAMPED, -CLAMPED, CLAMPED / 2, 1.0, -7.0]).view(1, 1, 1, 6)
    assert net.pixels(image).flatten().tolist() == [0, 1023, -1023, 512, 1023, -1023]
    assert net.pixels((image.clamp(0, 1) * 255).to(torch.uint8)).max() == 1023


@pytest.mark.parametrize("value", [1e300, -1e300, 3e38, 5e-324, 1e-310])
def test_extreme_pixels_overflow_nothing(value):
    image = torch.zeros(1, 1, 8, 8, dtype=torch.float64)
    image[0, 0, 2, 3] = value
    image[0, 0, 4:, 1] = torch.tensor([1e300, -1e300, 5e-324, 0.25], dtype=torch.float64)
    for preset in PRESETS:
        net = make_restorer(preset, 1, (8, 8), trained=True).scorer
        assert net.pixels(image).abs().max() <= net.largest
        scores = net(image)
        assert scores.abs().max() < 2 * 2**24
        assert torch.equal(net(apply(image, torch.tensor([[3, 5]]))), scores.roll((3, 5), (1, 2)))


@pytest.mark.parametrize("top", [3e38, 1e20, 1e-20, 1e-36, 1e-38, 1e-44])
@pytest.mark.parametrize("preset", PRESETS)
def test_calibration_takes_any_range_of_pixels(preset, top):
    """Neither a huge nor a vanishing range may overflow, become NaN, or leave the confidence undefined."""
    images = (blobs(8, 1, (8, 8)).double() / CLAMPED * top).float()
    net = quantise(make_estimator(preset, 1, (8, 8)), images)
    assert net.pixels(images).isfinite().all()
    if top > 1e-30:
        assert net.pixels(images).abs().max() == net.largest
    scores = net(images)
    assert scores.abs().max() < 2 * 2**24
    confidence = Scores([scores.flatten(1)], (1, 8, 8)).confidence(net.score_unit)
    assert ((confidence > 0) & (confidence <= 1)).all()


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        (torch.zeros(0, 1, 8, 8), {}, "none"),
        (torch.full((1, 1, 8, 8), float("nan")), {}, r"NaN or infinity"),
        (torch.full((1, 1, 8, 8), float("-inf")), {}, r"NaN or infinity"),
        (torch.zeros(1, 1, 8), {}, "2 spatial axes, got 1"),
        (torch.zeros(1, 2, 8, 8), {}, "got 2"),
        (torch.zeros(1, 1, 8, 7), {}, r"\(8, 7\)"),
        (torch.zeros(1, 1, 8, 8), {"bits": 1}, r"bits=1, sum_bits=24"),
        (torch.zeros(1, 1, 8, 8), {"bits": 22}, r"bits=22, sum_bits=24"),
        (torch.zeros(1, 1, 8, 8), {"sum_bits": 60}, r"bits=10, sum_bits=60"),
    ],
)
def test_bad_calibration(images, options, message):
    with pytest.raises(ValueError, match=message):
        quantise(make_estimator("dense", 1, (8, 8)), images, **options)


def test_black_samples_still_make_a_net():
    net = quantise(make_estimator("dense", 1, (8, 8)), torch.zeros(1, 1, 8, 8))
    assert_equivariant(net, (1, 8, 8), tolerance=0)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_net_that_is_not_finite_is_refused(value):
    net = ShiftEstimator(1, channels=(4, 1), kernel_size=(5, 5), bias=True)
    net.local[0].weight.data[0, 0, 0, 0] = value
    with pytest.raises(ValueError, match=r"local\.0\.weight"):
        quantise(net, torch.rand(2, 1, 8, 8))


def test_line_sums_beyond_53_bits_are_refused():
    net = ShiftEstimator(1, channels=(1,), kernel_size=(1, 1), line_channels=(1,), line_kernel_size=(1, 1))
    with pytest.raises(ValueError, match=r"\(256, 256\)"):
        quantise(net, torch.rand(1, 1, 256, 256), bits=47, sum_bits=50)
