"""What every kind of coordinates promises: poses there and back, and a clear word on images that do not fit."""

from __future__ import annotations

import math

import pytest
import torch
from spelt_moves import CASES, chain_for, restorer_for
from torch import nn

from unshift import Restorer
from unshift.coordinates import Canvas, Centre, Polar, Ring, Turns, from_description

# --- round trips -----------------------------------------------------------------------------------

EVERY = [
    (Canvas(), 2, (4, 5)),
    (Canvas(2), 2, (4, 5)),
    (Canvas(1), 2, (5,)),
    *((Turns(group), channels, size) for group, channels, size in CASES),
    *((Ring(axis), 1, (3, 4, 5)) for axis in (0, 1, 2, -1, -2, -3)),
    (Centre(), 1, (6, 6)),
    (Centre(), 1, (7, 7)),
    (Polar(8, angles=12, radii=2), 1, (8, 8)),
    (Polar(6, angles=8, radii=2, polar_angles=3, axis=1), 1, (6, 6, 6)),
]


@pytest.mark.parametrize(("coordinates", "channels", "size"), EVERY, ids=str)
def test_every_candidate_stands_for_one_pose(coordinates, channels, size):
    canvas = coordinates.canvas(torch.rand(1, channels, *size))
    count = canvas.shape[1] * math.prod(canvas.shape[3:])
    scores = torch.zeros(count, canvas.shape[1], *canvas.shape[3:], dtype=torch.int64)
    index = torch.arange(count)
    pose = coordinates.pose(index, scores, size)
    assert torch.equal(coordinates.candidate(pose, size), index)
    assert pose.shift.shape == (count, len(size))
    assert pose.shift.dtype == torch.int64


@pytest.mark.parametrize(
    ("coordinates", "channels", "size"), [case for case in EVERY if "pad" not in str(case[0])], ids=str
)
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float32])
def test_redo_is_the_inverse_of_undo(coordinates, channels, size, dtype):
    moves = coordinates.moves(size)
    images = (8 * torch.rand(len(moves.shift), channels, *size)).to(torch.uint8).to(dtype)
    assert torch.equal(coordinates.redo(coordinates.undo(images, moves), moves), images)
    assert torch.equal(coordinates.undo(coordinates.redo(images, moves), moves), images)
    assert torch.equal(coordinates.undo(coordinates.move(images, moves), moves), images)


def test_redo_is_the_inverse_of_undo_along_a_chain():
    coordinates = chain_for(8).coordinates
    moves = coordinates.moves((8, 8))
    images = torch.rand(len(moves.shift), 1, 8, 8)
    assert len(moves.shift) == 4 * 64
    assert torch.equal(coordinates.redo(coordinates.undo(images, moves), moves), images)
    assert torch.equal(coordinates.undo(coordinates.move(images, moves), moves), images)


@pytest.mark.parametrize(("coordinates", "channels", "size"), EVERY, ids=str)
def test_restore_is_the_estimate_undone(coordinates, channels, size):
    restorer = restorer_for(coordinates, "dense", channels, size)
    images = torch.rand(3, channels, *size)
    assert torch.equal(restorer(images), restorer.undo(images, restorer.estimate(images)))
    assert torch.equal(restorer.restore(images), restorer(images))


@pytest.mark.parametrize("coordinates", [Canvas(), Turns("mirror"), Turns("flips"), Ring(0), Centre()], ids=str)
def test_a_mask_goes_back_where_the_image_was(coordinates):
    """Images of three channels, a mask of one: drawn on the restored image, it lies on the image as it came."""
    restorer = restorer_for(coordinates, "dense", 3, (8, 8))
    images = torch.rand(5, 3, 8, 8)
    estimate = restorer.estimate(images)
    mask = restorer.undo(images, estimate).mean(1, keepdim=True) > 0.5
    assert torch.equal(restorer.redo(mask, estimate), images.mean(1, keepdim=True) > 0.5)


@pytest.mark.parametrize(("coordinates", "channels", "size"), EVERY, ids=str)
def test_empty_batches_stay_empty(coordinates, channels, size):
    restorer, images = restorer_for(coordinates, "dense", channels, size), torch.zeros(0, channels, *size)
    estimate = restorer.estimate(images)
    assert restorer(images).shape == restorer.redo(images, estimate).shape == images.shape
    assert estimate.shift.shape == (0, len(size))
    assert estimate.confidence.shape == estimate.tied.shape == (0,)


@pytest.mark.parametrize(("coordinates", "channels", "size"), EVERY, ids=str)
def test_a_description_rebuilds_the_coordinates(coordinates, channels, size):
    again = from_description(coordinates.describe())
    assert again.describe() == coordinates.describe()
    images = torch.rand(2, channels, *size)
    assert torch.equal(again.canvas(images), coordinates.canvas(images))


@pytest.mark.parametrize(("coordinates", "channels", "size"), EVERY, ids=str)
def test_drawn_poses_are_moves_and_no_scope_is_no_move(coordinates, channels, size):
    generator = torch.Generator().manual_seed(0)
    pose = coordinates.draw(size, 50, None, generator)
    images = torch.rand(50, channels, *size)
    assert coordinates.move(images, pose).shape == images.shape
    still = coordinates.draw(size, 50, 0, generator)
    assert torch.equal(coordinates.move(images, still), images)
    assert not coordinates.distance(still, size).any()


# --- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("coordinates", "shape", "message"),
    [
        (Turns("quarter"), (1, 1, 4, 5), r"group 'quarter' want square images, got shape \(1, 1, 4, 5\)"),
        (Turns("flips"), (1, 1, 4, 5), r"group 'flips' want square images, got shape \(1, 1, 4, 5\)"),
        (Turns("quarter"), (1, 1, 4), r"want square images, got shape \(1, 1, 4\)"),
        (Turns("half"), (1, 1, 4), r"group 'half' want images, got shape \(1, 1, 4\)"),
        (Turns("cube"), (1, 1, 4, 4, 5), r"want cubic volumes, got shape \(1, 1, 4, 4, 5\)"),
        (Turns("strand"), (1, 3, 8), r"want an even number of channels.*got 3: shape \(1, 3, 8\)"),
        (Turns("strand"), (1, 4, 8, 8), r"want sequences, got shape \(1, 4, 8, 8\)"),
        (Ring(1), (1, 1, 8), r"along spatial axis 1, but these arrays have 1: 0 to 0"),
        (Ring(-3), (1, 1, 8, 8), r"along spatial axis -3, but these arrays have 2: 0 to 1"),
        (Centre(), (1, 1, 4, 5), r"want square images, got shape \(1, 1, 4, 5\)"),
        (Polar(8), (1, 1, 8, 9), r"want square images.*got shape \(1, 1, 8, 9\)"),
    ],
    ids=str,
)
def test_images_that_do_not_fit(coordinates, shape, message):
    images = torch.zeros(shape)
    with pytest.raises(ValueError, match=message):
        coordinates.canvas(images)
    with pytest.raises(ValueError, match=message):
        Restorer(nn.Identity(), coordinates=coordinates)(images)


def test_coordinates_that_there_are_none_of():
    with pytest.raises(ValueError, match=r"no group of turns named 'octagon'; there are mirror, half, quarter"):
        Turns("octagon")
    for axis in (3, -4, 0.5, None):
        with pytest.raises(ValueError, match=r"axis must be a spatial axis, 0 to 2.*got"):
            Ring(axis)
    with pytest.raises(ValueError, match=r"no coordinates of kind 'hyperbolic'; there are canvas, ring, turns"):
        from_description({"kind": "hyperbolic"})
    with pytest.raises(ValueError, match="turns coordinates have no margin"):
        from_description({"kind": "turns", "group": "half"}, pad=2)
