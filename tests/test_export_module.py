"""The module that is exported, not yet a file: every kind of coordinates, preset, size and margin, to the last bit."""

from __future__ import annotations

import math

import pytest
import torch
from graphs import (
    KINDS,
    differences,
    enormous,
    in_graph,
    in_pytorch,
    kind_of,
    moved_images,
    overflowing,
    padded,
    turned,
    turner,
)
from samples import PRESETS, bits, blobs, hard_images, make_estimator, make_restorer

import unshift
from unshift import Restorer, ShiftEstimator, quantise
from unshift.coordinates.rotation import GRAIN, QUARTER, rotate, rotate_grains
from unshift.exact import IntegerEstimator
from unshift.exact.direct import Direct64
from unshift.exact.filters import floor_divide
from unshift.exact.fourier import Waves64, waves_error_bound
from unshift.exact.task import Task
from unshift.weights import image_shape


@pytest.mark.parametrize("pad", [0, 2])
@pytest.mark.parametrize("size", [(7,), (1, 1), (1, 7), (9, 13), (8, 8), (24, 16), (3, 4, 5)], ids=str)
@pytest.mark.parametrize("preset", PRESETS)
def test_the_module_says_what_the_restorer_says(preset, size, pad):
    for channels in (1, 3):
        restorer = padded(preset, channels, size, pad, trained=channels == 3)
        images = torch.stack([*hard_images(channels, size).values()])
        assert differences(in_graph(restorer, images), in_pytorch(restorer, images)) == []


@pytest.mark.parametrize("name", KINDS)
def test_the_module_knows_every_kind_of_coordinates(name):
    restorer, channels, size = kind_of(name)
    images = moved_images(restorer, channels, size)
    wanted = in_pytorch(restorer, images)
    for count, end in ((1, 14), (7, 14), (len(images), len(images))):  # alone, in a few, all at once
        for at in range(0, end, count):
            own = {key: value[at : at + count] for key, value in wanted.items()}
            assert differences(in_graph(restorer, images[at : at + count]), own) == []


@pytest.mark.parametrize("refine", [False, True])
@pytest.mark.parametrize(("size", "angles", "polar_angles"), [(12, 8, None), (9, 12, None), (6, 4, 3)])
def test_the_module_rotates_as_the_restorer_does(refine, size, angles, polar_angles):
    restorer = turner(refine, size, angles, polar_angles)
    axes = restorer.coordinates.spatial_axes
    images = torch.cat([turned(1, (size,) * axes), torch.rand(8, 1, *[size] * axes)])
    assert differences(in_graph(restorer, images), in_pytorch(restorer, images)) == []


@pytest.mark.parametrize("largest", [2.0**-149, 1e-40, 3e38, torch.finfo(torch.float32).max])
def test_extreme_pixels(largest):
    for preset in PRESETS:
        restorer = make_restorer(preset, 1, (8, 8), True)
        images = largest * torch.tensor([-1.0, -0.0, 0.0, 1.0])[torch.randint(4, (6, 1, 8, 8))]
        assert differences(in_graph(restorer, images), in_pytorch(restorer, images)) == []


@pytest.mark.parametrize("refine", [False, True])
def test_rotations_of_the_largest_numbers_by_the_module(refine):
    restorer, images = overflowing(refine), enormous(12)
    assert restorer.coordinates.canvas(images).isinf().any()
    assert differences(in_graph(restorer, images), in_pytorch(restorer, images)) == []


@pytest.mark.parametrize("name", unshift.weights.pretrained())
def test_shipped_restorers_can_be_exported(name):
    """Their sums are below 2^24, so that a graph holds them."""
    restorer = unshift.load(name)
    channels, size = image_shape(restorer)
    images = torch.rand(2, channels, *(size or (120,)))
    images[1] = 0.5
    assert differences(in_graph(restorer, images), in_pytorch(restorer, images)) == []


# 1 / (30 * 34) is as far from a float32 as a number can be: in float32 the sums would be one off.
@pytest.mark.parametrize("size", [(31, 37), (30, 34), (32, 32), (64, 64)], ids=str)
def test_spectra_are_exact_just_below_the_limit(size):
    """All pixels and taps of one sign, and of random ones: rounded sums are those of int64."""
    estimator = ShiftEstimator(1, channels=(1,), kernel_size=size, size=size)
    layer = IntegerEstimator(estimator.describe(), size=size).local[0]
    room = (2**24 - 3) // 1023
    for weight in (torch.full(size, room // math.prod(size)), torch.randint(-2, 3, size)):
        if weight.abs().sum() * 1023 >= 2**24 - 1:
            weight = weight.sign() * (torch.rand(size) < 0.2)
        layer.weight.copy_(weight)
        assert waves_error_bound(size, 1, 2.0**24) < 0.5
        images = torch.stack([torch.full(size, 1023.0), torch.randint(-1023, 1024, size).float()])[:, None]
        task = Task(tuple(layer.weight.shape), size, layer.worst, traced=True)
        assert Waves64.holds(task)
        found = Waves64(layer.weight, task)(images.double(), margin=False)
        assert torch.equal(found, Direct64(layer.weight, task)(images.double(), margin=False))
        assert torch.equal(found.long(), layer.ready(size, plain=True)(images))


def test_sums_may_reach_the_limit():
    """At 8 bits ``quantise`` fills its 24 bits to the last: 255 divides 2^24 - 1. Divisors may be larger still."""
    net = quantise(make_estimator("dense", 1, (6, 5)), blobs(16, 1, (6, 5)), bits=8)
    first = net.local[0]
    first.weight[:], first.bias[:] = 0, 0
    first.weight[:, 0, 0, 0] = torch.tensor([1, -1]).repeat(4) * ((2**24 - 1) // 255)
    restorer = Restorer(net)
    images = torch.stack([*hard_images(1, (6, 5)).values(), *torch.randn(5, 1, 6, 5)])
    for divisor in (1, 2**24 - 1, 2**24, 2**30):
        first.divisor[:] = divisor
        assert differences(in_graph(restorer, images), in_pytorch(restorer, images)) == []


def test_no_quotient_is_rounded_up():
    """Division in float32 and floor, against integers, where it is closest: sums just below a multiple."""
    powers = 2 ** torch.arange(25)
    divisors = torch.cat([torch.arange(1, 200), torch.randint(200, 2**24, (200,)), powers, powers[1:] - 1])
    multiples = (2**24 - 1) // divisors * divisors
    for sums in (multiples, multiples - 1, (multiples + 1).clamp(max=2**24 - 1), torch.tensor(2**24 - 1)):
        for sign in (1, -1):
            whole = floor_divide((sign * sums).float().expand(len(divisors)).clone(), divisors.float(), 2**24)
            assert torch.equal(whole.long(), torch.div(sign * sums, divisors, rounding_mode="floor"))


def test_a_graph_rotates_by_every_grain_as_python_does(monkeypatch):
    """Cosines out of a table against Python's own, for every 1/1024 of a degree all the way round."""
    grains = torch.arange(-2 * QUARTER, 2 * QUARTER + 1)
    images = torch.tensor([[[[1.0, 0.1], [0.3, 0.7]]]]).expand(len(grains), 1, 2, 2)
    wanted = rotate(images, grains.double() / GRAIN)
    monkeypatch.setattr("unshift.coordinates.rotation.is_traced", lambda: True)
    assert torch.equal(bits(rotate_grains(images, grains)), bits(wanted))
