"""Turns: every turn and shift, written here with torch alone, is undone bit for bit."""

from __future__ import annotations

import math

import pytest
import torch
from samples import blobs
from spelt_moves import CASES, DTYPES, KINDS, SPELT, assert_all_exact, mismatches, moved_by_all, restorer_for
from torch import nn

from unshift import Restorer, ShiftEstimator, apply, quantise
from unshift.coordinates import GROUPS, Pose, Turns


@pytest.mark.parametrize(("group", "channels", "size"), [*CASES, ("flips", 1, (4, 4)), ("cube", 1, (2, 2, 2))], ids=str)
def test_every_turn_and_shift_is_undone_in_every_dtype(group, channels, size):
    few = len(SPELT[group]) * math.prod(size) < 200
    restorer = restorer_for(Turns(group), "paper", channels, size)
    assert_all_exact(restorer, SPELT[group], channels, size, DTYPES if few else DTYPES[2:3], None if few else KINDS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("group", "channels", "size"),
    [("quarter", 1, (8, 8)), ("flips", 1, (5, 5)), ("flips", 1, (8, 8)), ("cube", 1, (3, 3, 3))],
    ids=str,
)
def test_every_turn_and_shift_of_a_large_group_is_undone_in_every_dtype(group, channels, size):
    assert_all_exact(restorer_for(Turns(group), "paper", channels, size), SPELT[group], channels, size, DTYPES)


@pytest.mark.parametrize("trained", [False, True], ids=["untrained", "trained"])
@pytest.mark.parametrize("preset", ["dense", "seam"])
@pytest.mark.parametrize(
    ("group", "channels", "size"),
    [("mirror", 1, (5, 7)), ("half", 1, (5, 6)), ("quarter", 1, (6, 6)), ("flips", 1, (5, 5)), ("strand", 4, (16,))],
)
def test_every_turn_and_shift_is_undone_by_every_preset(group, channels, size, preset, trained):
    restorer = restorer_for(Turns(group), preset, channels, size, trained)
    assert_all_exact(restorer, SPELT[group], channels, size, kinds=KINDS)


def test_all_24_turns_and_216_shifts_of_a_cube():
    size = (6, 6, 6)
    net = ShiftEstimator(1, channels=(2, 1), kernel_size=(2, 2, 2), bias=True)
    restorer = Restorer(quantise(net, blobs(8, 1, size)), coordinates=Turns("cube"))
    image = torch.rand(1, *size)
    moved = moved_by_all(image, SPELT["cube"])
    assert len(moved) == 24 * 216
    assert mismatches(restorer, image, moved) == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["constant", "uneven", "one_pixel", "tied", "symmetric", "faint", "signed_zeros"])
def test_hard_volumes_under_all_turns_and_shifts(kind):
    restorer = restorer_for(Turns("cube"), "paper", 1, (6, 6, 6))
    assert_all_exact(restorer, SPELT["cube"], 1, (6, 6, 6), kinds=[kind])


@pytest.mark.parametrize(("group", "channels", "size"), CASES, ids=str)
def test_the_elements_are_the_group_and_map_shifts_to_shifts(group, channels, size):
    turns, count = Turns(group), len(SPELT[group])
    image = torch.arange(channels * math.prod(size)).view(1, channels, *size)
    still = torch.zeros(count, len(size), dtype=torch.int64)
    ours = turns.redo(image.expand(count, *image.shape[1:]), Pose(still, torch.arange(count)))
    spelt = [turn(image)[0] for turn in SPELT[group]]
    if group == "cube":
        assert {tuple(x.flatten().tolist()) for x in ours} == {tuple(x.flatten().tolist()) for x in spelt}
        assert torch.equal(ours[0], image[0])
    else:
        assert torch.equal(ours, torch.stack(spelt))
    assert len(turns.labels.turns) == count
    shift = torch.randint(9, (count, len(size)))
    for g, element in enumerate(turns.elements(len(size))):
        assert torch.equal(
            element(apply(image, shift[g : g + 1])), apply(element(image), element.turn_shift(shift[g : g + 1]))
        )


# --- literals that pin the conventions -------------------------------------------------------------


def turned(group, images, g, shift=None):
    images = torch.tensor(images)
    shift = torch.tensor([shift or [0] * (images.ndim - 2)])
    return Turns(group).redo(images, Pose(shift, torch.tensor([g]))).tolist()


@pytest.mark.parametrize(
    ("group", "g", "wanted"),
    [
        ("mirror", 1, [[2, 1], [4, 3]]),
        ("half", 1, [[4, 3], [2, 1]]),
        ("quarter", 1, [[2, 4], [1, 3]]),  # counter-clockwise
        ("quarter", 2, [[4, 3], [2, 1]]),
        ("quarter", 3, [[3, 1], [4, 2]]),
        ("flips", 1, [[2, 4], [1, 3]]),
        ("flips", 4, [[2, 1], [4, 3]]),
        ("flips", 5, [[1, 3], [2, 4]]),  # mirrored, then turned
    ],
)
def test_the_direction_of_turns(group, g, wanted):
    assert turned(group, [[[[1, 2], [3, 4]]]], g) == [[wanted]]


def test_an_array_is_turned_first_and_shifted_then():
    assert turned("quarter", [[[[1, 2], [3, 4]]]], 1, [0, 1]) == [[[[4, 2], [3, 1]]]]
    image = torch.tensor([[[[1, 2, 3], [4, 5, 6], [7, 8, 9]]]])
    pose = Pose(torch.tensor([[1, 0]]), torch.tensor([1]))
    assert Turns("quarter").redo(image, pose).tolist() == [[[[1, 4, 7], [3, 6, 9], [2, 5, 8]]]]
    assert torch.equal(Turns("quarter").undo(Turns("quarter").redo(image, pose), pose), image)


def one_hot(bases):
    return nn.functional.one_hot(torch.tensor(["ACGT".index(b) for b in bases]), 4).T[None].tolist()


def test_the_other_strand_is_the_reverse_complement():
    assert turned("strand", one_hot("AACG"), 1) == one_hot("CGTT")
    assert turned("strand", one_hot("ACGGT"), 1, [1]) == one_hot("TACCG")  # ACCGT, one base further


def test_every_group_is_tested():
    assert {group: len(SPELT[group]) for group in GROUPS} == dict(zip(GROUPS, (2, 2, 4, 8, 2, 24), strict=True))
    assert {group for group, _, _ in CASES} == set(GROUPS)
