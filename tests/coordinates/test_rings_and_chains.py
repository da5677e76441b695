"""Rings, centres and chains: every move of each is undone bit for bit."""

from __future__ import annotations

import pytest
import torch
from samples import PRESETS
from spelt_moves import (
    DTYPES,
    KINDS,
    QUARTERS,
    assert_all_exact,
    chain_for,
    images_for,
    mismatches,
    moved_by_all,
    restorer_for,
)
from torch import nn

from unshift import Chain, Restorer, ShiftEstimator, quantise
from unshift.coordinates import Centre, Pose, Ring, Shifts

# --- literals that pin the conventions -------------------------------------------------------------


def test_a_ring_moves_along_its_axis_only():
    image = torch.tensor([[[[1, 2, 3], [4, 5, 6]]]])
    assert Ring(-1).pose(torch.tensor([2]), None, (2, 3)).shift.tolist() == [[0, 2]]
    assert Ring(0).pose(torch.tensor([1]), None, (2, 3)).shift.tolist() == [[1, 0]]
    assert Ring(1).redo(image, Pose(torch.tensor([[0, 1]]))).tolist() == [[[[3, 1, 2], [6, 4, 5]]]]
    assert Ring(1).canvases(image)[0].tolist() == [[[1, 2, 3], [4, 5, 6]]]  # the rows are channels
    assert Ring(0).canvases(image)[0].tolist() == [[[1, 4], [2, 5], [3, 6]]]
    assert Ring(0).moves((2, 3)).shift.tolist() == [[0, 0], [1, 0]]


def centring(size):
    """Return the simplest restorer of a centre: it scores a pixel, or the four pixels around a corner."""
    net = ShiftEstimator(
        1, channels=(1,), kernel_size=(2, 2) if size % 2 == 0 else (1, 1), symmetric=True, corners=size % 2 == 0
    )
    nn.init.ones_(net.local[0].weight)
    return Restorer(quantise(net, torch.ones(1, 1, size, size)), coordinates=Centre())


def test_the_centre_is_a_pixel_of_odd_sizes_and_a_corner_of_even_ones():
    image = torch.zeros(1, 1, 5, 5)
    image[0, 0, 1, 2] = 1
    assert centring(5).estimate(image).shift.tolist() == [[4, 0]]  # one row above the middle
    assert centring(5)(image)[0, 0, 2, 2] == 1
    image = torch.zeros(1, 1, 4, 4)
    image[0, 0, 0:2, 1:3] = 1
    assert centring(4).estimate(image).shift.tolist() == [[3, 0]]
    assert centring(4)(image)[0, 0, 1:3, 1:3].tolist() == [[1, 1], [1, 1]]


# --- rings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    ("size", "axis"),
    [((8,), 0), ((5, 8), 1), ((8, 5), 0), ((8, 8), -1), ((3, 4, 7), 0), ((2, 8, 3), -2)],
)
def test_every_shift_along_a_ring_is_undone(size, axis, preset):
    for trained in (False, True):
        restorer = restorer_for(Ring(axis), preset, 2, size, trained)
        along = lambda image, _: torch.stack([image.roll(k, axis % len(size) + 1) for k in range(size[axis])])  # noqa: E731
        assert_all_exact(restorer, [lambda x: x], 2, size, DTYPES, move=along)


def test_a_ring_ignores_shifts_along_other_axes():
    restorer = restorer_for(Ring(1), "dense", 1, (5, 8), trained=True)
    image = torch.rand(1, 5, 8)
    assert mismatches(restorer, image, torch.stack([image.roll(k, 1) for k in range(5)])) == 4


# --- centres and chains ----------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "preset"), [(8, "dense"), (7, "dense"), (8, "paper"), (7, "paper")])
def test_a_centre_undoes_every_shift_and_keeps_quarter_turns(size, preset):
    restorer = restorer_for(Centre(), preset, 1, (size, size), trained=preset == "dense")
    shifted = lambda image, _: moved_by_all(image, QUARTERS[:1])  # noqa: E731
    assert_all_exact(restorer, QUARTERS, 1, (size, size), DTYPES, move=shifted)
    for dtype in DTYPES:
        images = images_for(QUARTERS, 1, (size, size), dtype)
        plain = torch.stack([images["random"], images["blob"]])
        for turn in QUARTERS:
            assert torch.equal(restorer(turn(plain)), turn(restorer(plain)))


@pytest.mark.parametrize(
    ("size", "trained", "refine"),
    [
        (4, False, False),
        (5, True, True),
        *(pytest.param(4, trained, True, marks=pytest.mark.slow) for trained in (False, True)),
        *(pytest.param(5, trained, False, marks=pytest.mark.slow) for trained in (False, True)),
    ],
)
def test_a_chain_undoes_every_quarter_turn_and_shift(size, trained, refine):
    chain = chain_for(size, trained=trained, refine=refine)
    assert_all_exact(chain, QUARTERS, 1, (size, size), kinds=KINDS)


@pytest.mark.parametrize("size", [4, pytest.param(5, marks=pytest.mark.slow)])
def test_a_chain_is_exact_in_every_dtype(size):
    kinds = ("random", "symmetric", "tied", "signed_zeros")
    assert_all_exact(chain_for(size, refine=True), QUARTERS, 1, (size, size), DTYPES, kinds)


@pytest.mark.parametrize(("size", "preset"), [(8, "dense"), (7, "paper")])
def test_a_chain_at_larger_sizes(size, preset):
    assert_all_exact(chain_for(size, preset=preset), QUARTERS, 1, (size, size), kinds=("random", "blob", "one_pixel"))


@pytest.mark.slow
@pytest.mark.parametrize("refine", [False, True], ids=["on the grid", "refined"])
@pytest.mark.parametrize("size", [8, 7])
def test_a_chain_at_larger_sizes_on_all_hard_images(size, refine):
    assert_all_exact(chain_for(size, refine=refine), QUARTERS, 1, (size, size), DTYPES)


def test_a_chain_merges_the_estimates_of_its_stages():
    chain = chain_for(8)
    images = torch.rand(3, 1, 8, 8)
    found, first = chain.estimate(images), chain.stages[0].estimate(images)
    second = chain.stages[1].estimate(chain.stages[0].undo(images, first))
    assert torch.equal(found.shift, first.shift)
    assert torch.equal(found.angle, second.angle)
    assert found.turn is None
    assert torch.equal(found.confidence, first.confidence * second.confidence)


def test_the_stages_of_a_chain_must_read_different_parts():
    shifts = restorer_for(Shifts(), "dense", 1, (8, 8))
    with pytest.raises(ValueError, match="shift, shift"):
        Chain(shifts, shifts)
    with pytest.raises(ValueError, match="got 1"):
        Chain(shifts)
