"""Moves that lose pixels: what is seen, what is learnt from them, what is refused."""

from __future__ import annotations

import pytest
import torch
from samples import blobs

import unshift
from unshift.coordinates import Canvas, Polar, Pose, Ring, Turns
from unshift.evaluation import accuracy_over_scopes, judged_on
from unshift.moves import MOVES, Moves

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
def test_what_is_seen_of_a_moved_image(kind, shift, seen, dtype):
    moved = Moves(kind, Canvas(), 2).move(ROW.to(dtype), Pose(torch.tensor([[shift]])))
    assert moved.dtype == dtype
    assert moved.flatten().tolist() == seen


@pytest.mark.parametrize("kind", LOSSY)
def test_two_axes_move_by_themselves(kind):
    photo = torch.rand(1, 3, 9, 10)
    moved = Moves(kind, Canvas(), 2).move(photo, Pose(torch.tensor([[1, -2]])))
    inside = photo[..., 2:7, 2:8] if kind == "crop" else photo
    assert torch.equal(moved[..., 1:, :-2], inside[..., :-1, 2:])
    assert moved.shape == inside.shape


def test_zeros_are_what_a_padded_canvas_undoes():
    images, pose = torch.rand(4, 1, 6, 6), Pose(torch.tensor([[1, 2], [-2, 0], [0, 0], [2, -1]]))
    assert torch.equal(Moves("zeros", Canvas(), 2).move(images, pose), Canvas(2).move(images, pose))


def test_what_is_left_stands_where_the_image_stood():
    images = torch.rand(50, 1, 8, 8) + 1
    left = Moves("zeros", Canvas(), 2).left(images, torch.Generator().manual_seed(0))
    assert torch.equal(left[left > 0], images[left > 0])
    assert 0 < int((left == 0).sum()) < left.numel() // 2


def test_turns_lose_nothing_and_a_ring_moves_along_its_axis():
    images = torch.rand(40, 1, 8, 8) + 1
    moved, pose = Moves("zeros", Turns("quarter"), 2)(images, torch.Generator().manual_seed(0))
    assert set(pose.turn.tolist()) == {0, 1, 2, 3}
    for one, before, turn, shift in zip(moved, images, pose.turn, pose.shift, strict=True):
        wanted = Canvas(2).move(torch.rot90(before, int(turn), (1, 2))[None], Pose(shift[None]))[0]
        assert torch.equal(one, wanted)
    along = Moves("edge", Ring(-1), 2)(images, torch.Generator().manual_seed(0))[1].shift
    assert along[:, 0].eq(0).all()
    assert along[:, 1].ne(0).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("wrap", Canvas(), 2), "no kind of moves named 'wrap'; there are circular, zeros, edge, crop"),
        (("zeros", Canvas()), "need a scope of 0 or more pixels, got None"),
        (("zeros", Polar(8, angles=8, radii=4), 2), "shifts of whole images; this undoes rotations"),
        (("crop", Canvas(window=(4, 4)), 2), "shifts of whole images; this undoes circular shifts of scenes"),
    ],
)
def test_moves_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Moves(*arguments)


def test_images_too_small_and_shifts_too_large_are_refused():
    with pytest.raises(ValueError, match="too small for windows that move by up to 3"):
        Moves("crop", Canvas(), 3).move(ROW, Pose(torch.tensor([[0]])))
    with pytest.raises(ValueError, match="4 pixels is beyond the scope of 3"):
        Moves("edge", Canvas(), 3).move(ROW, Pose(torch.tensor([[-4]])))
    with pytest.raises(ValueError, match="scope is for moves that lose pixels"):
        unshift.fit(torch.rand(9, 1, 8, 8), scope=2, progress=False)


@pytest.mark.filterwarnings("ignore:this is near guessing")
@pytest.mark.parametrize("kind", LOSSY)
def test_fit_learns_from_what_is_seen_and_says_so(kind):
    restorer = unshift.fit(blobs(40, 1, (12, 12)), "dense", moves=kind, scope=2, epochs=1, progress=False)
    size = [8, 8] if kind == "crop" else [12, 12]
    assert restorer.metadata["moves"] == {"kind": kind, "scope": 2}
    assert restorer.metadata["size"] == restorer.trained_on["size"] == size
    assert restorer(torch.rand(2, 1, *size)).shape == (2, 1, *size)


@pytest.mark.filterwarnings("ignore:this restorer may be wrong")
def test_a_net_that_saw_zeros_enter_finds_such_moves_more_often():
    """On a bright ground zeros show where it was moved; a net of circular moves never saw any."""
    images = 1.5 - blobs(300, 1, (8, 8)) + 0.05 * torch.rand(300, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    settings = {"epochs": 3, "batch_size": 20, "learning_rate": 0.01, "progress": False}
    left = Moves("zeros", Canvas(), 2).left(images[250:], torch.Generator().manual_seed(1))
    plain, real = (
        float(judged_on(unshift.fit(images[:250], "dense", **settings, **moves), left).right.double().mean())
        for moves in ({}, {"moves": "zeros", "scope": 2})
    )
    assert real > plain + 0.1, (real, plain)


@pytest.mark.filterwarnings("ignore:this")
def test_accuracies_are_of_images_that_really_lost_pixels():
    """A classifier that counts zeros sees how many entered."""
    zeros = lambda images: torch.nn.functional.one_hot((images == 0).flatten(1).any(1).long(), 2).float()  # noqa: E731
    images = torch.rand(30, 1, 8, 8) + 1
    restorer = unshift.fit(images, epochs=1, progress=False, validation=2)
    rows = accuracy_over_scopes(zeros, images, torch.ones(30), restorer, scopes=[0, 2], moves="zeros")
    assert rows[0].without == (0.0,)
    assert rows[1].without[0] > 0.8
    assert accuracy_over_scopes(zeros, images, torch.ones(30), restorer, scopes=[2], moves="edge")[0].without == (0.0,)
