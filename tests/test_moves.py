"""Moves that lose pixels: what remains visible, training with them, and errors."""

from __future__ import annotations

import pytest
import torch
from samples import blobs

import unshift
from unshift.coordinates import Padded, Polar, Pose, Ring, Scene, Shifts, Turns
from unshift.coordinates.lossy import MOVES, Moves
from unshift.evaluation import accuracy_over_scopes

LOSSY = [kind for kind in MOVES if kind != "circular"]
ROW = torch.arange(1, 6)[None, None]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize(
    ("kind", "shift", "seen"),
    [
        ("circular", 2, [4, 5, 1, 2, 3]),
        ("zeros", 2, [0, 0, 1, 2, 3]),
        ("zeros", -1, [2, 3, 4, 5, 0]),
        ("edge", 2, [1, 1, 1, 2, 3]),
        ("edge", -1, [2, 3, 4, 5, 5]),
        ("crop", 2, [1]),
        ("crop", -1, [4]),
    ],
)
def test_the_visible_part_of_a_moved_image(kind, shift, seen, dtype):
    moved = Moves(kind, Shifts(), 2).move(ROW.to(dtype), Pose(torch.tensor([[shift]])))
    assert moved.dtype == dtype
    assert moved.flatten().tolist() == seen


def test_zero_filled_shifts_are_those_of_padded_coordinates():
    images, pose = torch.rand(4, 1, 6, 6), Pose(torch.tensor([[1, 2], [-2, 0], [0, 0], [2, -1]]))
    assert torch.equal(Moves("zeros", Shifts(), 2).move(images, pose), Padded(2).redo(images, pose))


def test_left_returns_the_image_in_place_without_the_lost_pixels():
    images = torch.rand(50, 1, 8, 8) + 1
    left = Moves("zeros", Shifts(), 2).lose_pixels(images, torch.Generator().manual_seed(0))
    assert torch.equal(left[left > 0], images[left > 0])
    assert 0 < int((left == 0).sum()) < left.numel() // 2


def test_turns_lose_nothing_and_a_ring_moves_along_its_axis():
    images = torch.rand(40, 1, 8, 8) + 1
    moved, pose = Moves("zeros", Turns("quarter"), 2)(images, torch.Generator().manual_seed(0))
    assert set(pose.turn.tolist()) == {0, 1, 2, 3}
    for one, before, turn, shift in zip(moved, images, pose.turn, pose.shift, strict=True):
        wanted = Padded(2).redo(torch.rot90(before, int(turn), (1, 2))[None], Pose(shift[None]))[0]
        assert torch.equal(one, wanted)
    along = Moves("edge", Ring(-1), 2)(images, torch.Generator().manual_seed(0))[1].shift
    assert along[:, 0].eq(0).all()
    assert along[:, 1].ne(0).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("wrap", Shifts(), 2), "wrap"),
        (("zeros", Shifts()), "scope.*None"),
        (("zeros", Polar(8, angles=8, radii=4), 2), "rotations"),
        (("crop", Scene((4, 4)), 2), "scenes"),
    ],
)
def test_moves_that_do_not_suit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Moves(*arguments)


def test_images_too_small_and_shifts_too_large_are_refused():
    with pytest.raises(ValueError, match="too small"):
        Moves("crop", Shifts(), 3).move(ROW, Pose(torch.tensor([[0]])))
    with pytest.raises(ValueError, match=r"4 pixels.*scope of 3"):
        Moves("edge", Shifts(), 3).move(ROW, Pose(torch.tensor([[-4]])))
    with pytest.raises(ValueError, match="scope"):
        unshift.fit(torch.rand(9, 1, 8, 8), scope=2, progress=False)


@pytest.mark.filterwarnings("ignore:this")
@pytest.mark.parametrize("kind", LOSSY)
def test_fit_trains_on_the_visible_part(kind):
    restorer = unshift.fit(blobs(40, 1, (12, 12)), "dense", moves=kind, scope=2, epochs=1, progress=False)
    size = [8, 8] if kind == "crop" else [12, 12]
    assert restorer.metadata["moves"] == {"kind": kind, "scope": 2}
    assert restorer.metadata["size"] == restorer.trained_on["size"] == size
    assert restorer(torch.rand(2, 1, *size)).shape == (2, 1, *size)


@pytest.mark.filterwarnings("ignore:this")
def test_accuracies_are_measured_on_images_that_lost_pixels():
    """Use a classifier that detects zeros."""
    zeros = lambda images: torch.nn.functional.one_hot((images == 0).flatten(1).any(1).long(), 2).float()  # noqa: E731
    images = torch.rand(30, 1, 8, 8) + 1
    restorer = unshift.fit(images, epochs=1, progress=False, validation=2)
    rows = accuracy_over_scopes(zeros, images, torch.ones(30), restorer, scopes=[0, 2], moves="zeros")
    assert rows[0].without == (0.0,)
    assert rows[1].without[0] > 0.8
    assert accuracy_over_scopes(zeros, images, torch.ones(30), restorer, scopes=[2], moves="edge")[0].without == (0.0,)
