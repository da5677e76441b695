"""Every kind of coordinates: undo and redo are inverse, descriptions rebuild it, bad images raise a clear error."""

from __future__ import annotations

import math

import pytest
import torch
from spelt_moves import CASES, chain_for, restorer_for
from torch import nn

from unshift import Restorer
from unshift.coordinates import Centre, Padded, Polar, Ring, Scene, Shifts, Turns, from_description
from unshift.exact import Scores
from unshift.testing import verify

pytestmark = pytest.mark.filterwarnings("ignore:this restorer may be wrong")

# --- round trips -----------------------------------------------------------------------------------

EVERY = [
    (Shifts(), 2, (4, 5)),
    (Padded(2), 2, (4, 5)),
    (Padded(1), 2, (5,)),
    *((Turns(group), channels, size) for group, channels, size in CASES),
    *((Ring(axis), 1, (3, 4, 5)) for axis in (0, 1, 2, -1, -2, -3)),
    (Centre(), 1, (6, 6)),
    (Centre(), 1, (7, 7)),
    (Polar(8, angles=12, radii=2), 1, (8, 8)),
    (Polar(6, angles=8, radii=2, polar_angles=3, axis=1), 1, (6, 6, 6)),
]


@pytest.mark.parametrize(("coordinates", "channels", "size"), EVERY, ids=str)
def test_candidate_is_the_inverse_of_pose(coordinates, channels, size):
    canvases = list(coordinates.canvases(torch.rand(1, channels, *size)))
    shape = (len(canvases), *(() if coordinates.whole else canvases[0].shape[2:]))
    count = math.prod(shape)
    scores = Scores([torch.zeros(count, count, dtype=torch.int64)], shape)
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


def test_redo_is_the_inverse_of_undo_along_a_chain():
    coordinates = chain_for(8).coordinates
    moves = coordinates.moves((8, 8))
    images = torch.rand(len(moves.shift), 1, 8, 8)
    assert len(moves.shift) == 4 * 64
    assert torch.equal(coordinates.redo(coordinates.undo(images, moves), moves), images)
    assert torch.equal(coordinates.undo(coordinates.redo(images, moves), moves), images)


@pytest.mark.parametrize(("coordinates", "channels", "size"), EVERY, ids=str)
def test_restore_is_the_estimate_undone(coordinates, channels, size):
    restorer = restorer_for(coordinates, "dense", channels, size)
    images = torch.rand(3, channels, *size)
    assert torch.equal(restorer(images), restorer.undo(images, restorer.estimate(images)))
    assert torch.equal(restorer.restore(images), restorer(images))


@pytest.mark.parametrize("coordinates", [Shifts(), Turns("mirror"), Turns("flips"), Ring(0), Centre()], ids=str)
def test_a_mask_goes_back_where_the_image_was(coordinates):
    """A mask of one channel, drawn on a restored image of three, is moved onto the original image."""
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
    assert all(map(torch.equal, again.canvases(images), coordinates.canvases(images)))


@pytest.mark.parametrize(("coordinates", "channels", "size"), EVERY, ids=str)
def test_drawn_poses_are_moves_and_no_scope_is_no_move(coordinates, channels, size):
    generator = torch.Generator().manual_seed(0)
    pose = coordinates.draw(size, 50, None, generator)
    images = torch.rand(50, channels, *size)
    assert coordinates.redo(images, pose).shape == images.shape
    still = coordinates.draw(size, 50, 0, generator)
    assert torch.equal(coordinates.redo(images, still), images)
    assert not coordinates.distance(still, size).any()


# --- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("coordinates", "shape", "message"),
    [
        (Turns("quarter"), (1, 1, 4, 5), r"'quarter'.*\(1, 1, 4, 5\)"),
        (Turns("flips"), (1, 1, 4, 5), r"'flips'.*\(1, 1, 4, 5\)"),
        (Turns("quarter"), (1, 1, 4), r"\(1, 1, 4\)"),
        (Turns("half"), (1, 1, 4), r"'half'.*\(1, 1, 4\)"),
        (Turns("cube"), (1, 1, 4, 4, 5), r"\(1, 1, 4, 4, 5\)"),
        (Turns("strand"), (1, 3, 8), r"got 3: shape \(1, 3, 8\)"),
        (Turns("strand"), (1, 4, 8, 8), r"\(1, 4, 8, 8\)"),
        (Ring(1), (1, 1, 8), "axis 1"),
        (Ring(-3), (1, 1, 8, 8), "axis -3"),
        (Centre(), (1, 1, 4, 5), r"\(1, 1, 4, 5\)"),
        (Polar(8), (1, 1, 8, 9), r"\(1, 1, 8, 9\)"),
        (Polar(28), (1, 1, 32, 32), "size 28, got 32"),
        (Polar(28), (1, 1, 28), r"1, 28"),
        (Polar(28), (1, 1, 28, 28, 28), r"\(1, 1, 28, 28, 28\)"),
        (Scene((8, 9)), (1, 1, 7, 22), "8x9.*7x22"),
    ],
    ids=str,
)
def test_images_that_do_not_fit(coordinates, shape, message):
    images = torch.zeros(shape)
    with pytest.raises(ValueError, match=message):
        list(coordinates.canvases(images))
    with pytest.raises(ValueError, match=message):
        Restorer(nn.Identity(), coordinates=coordinates)(images)


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (Turns, {"group": "octagon"}, "octagon"),
        *((Ring, {"axis": axis}, "axis") for axis in (3, -4, 0.5, None)),
        *((Padded, {"pad": pad}, "pad") for pad in (-1, 0.5, 10**9, math.nan)),
        (Padded, {"pad": 2, "value": math.nan}, "value"),
        *((Scene, {"window": window}, "window") for window in ((0, 8), (8.5, 8), (1, 1, 1, 1), ())),
        *((Polar, {"size": size}, "size") for size in (1, 28.5, math.nan)),
        *((Polar, {"size": 28, "angles": angles}, "angles.*multiple of 4|angles must") for angles in (0, 1, 30)),
        *((Polar, {"size": 28, "radius": radius}, "radius") for radius in (15.0, 0.0, math.nan)),
        (Polar, {"size": 28, "ratio": 1.0}, "ratio"),
        (Polar, {"size": 28, "radii": 0}, "radii"),
        (Polar, {"size": 28, "radii": 30_000, "angles": 30_000}, "30000"),
        (Polar, {"size": 28, "polar_angles": 1}, "polar_angles"),
        (Polar, {"size": 28, "axis": 3}, "axis"),
    ],
)
def test_bad_arguments_are_named(kind, arguments, message):
    with pytest.raises(ValueError, match=message):
        kind(**arguments)


def test_bad_descriptions_are_named():
    with pytest.raises(ValueError, match="hyperbolic"):
        from_description({"kind": "hyperbolic"})
    with pytest.raises(ValueError, match=r"pad.*turns"):
        from_description({"kind": "turns", "group": "half"}, pad=2)


# --- any dtype and memory format -------------------------------------------------------------------

SHIFTING = [
    (Shifts(), 3, (6, 6)),
    (Padded(1), 3, (4, 4)),
    (Turns("quarter"), 3, (6, 6)),
    (Turns("strand"), 4, (9,)),
    (Ring(0), 3, (6, 5)),
    (Centre(), 3, (6, 6)),
    (Polar(8, angles=8, radii=3), 3, (8, 8)),
]
RARE = [torch.bool, torch.int8, torch.int16, torch.uint16, torch.uint32, torch.uint64, torch.bfloat16]
RARE += [getattr(torch, name) for name in dir(torch) if name.startswith("float8_")]


@pytest.mark.parametrize("dtype", RARE, ids=str)
@pytest.mark.parametrize(("coordinates", "channels", "size"), SHIFTING, ids=str)
def test_every_dtype_is_restored_exactly(coordinates, channels, size, dtype):
    restorer = restorer_for(coordinates, "dense", channels, size)
    images = 3 * torch.rand(2, channels, *size)
    images = images > 1 if dtype == torch.bool else images.to(dtype)  # few different values, so scores tie
    if dtype == torch.float8_e8m0fnu and isinstance(coordinates, Padded):
        with pytest.raises(ValueError, match="float8_e8m0fnu"):  # which has no 0
            restorer(images)
        return
    assert restorer(images).dtype == dtype
    for image in images:
        assert verify(restorer, image[None]).exact


def test_a_dtype_without_an_order_is_refused():
    packed = torch.zeros(2, 1, 8, 8, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    with pytest.raises(ValueError, match="float4_e2m1fn_x2"):
        restorer_for(Turns("quarter"), "dense", 1, (8, 8))(packed)


@pytest.mark.parametrize(
    ("coordinates", "channels", "size"), [case for case in SHIFTING if len(case[2]) == 2] + [(Scene((5, 5)), 3, (9, 9))]
)
def test_channels_last_images_come_back_channels_last(coordinates, channels, size):
    restorer = restorer_for(coordinates, "paper", channels, size)
    images = torch.rand(2, channels, *size)
    last = images.to(memory_format=torch.channels_last)
    restored, estimate = restorer(last), restorer.estimate(last)
    assert restored.is_contiguous(memory_format=torch.channels_last)
    assert restorer.redo(restored, estimate, size=size).is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(restored, restorer(images))
    assert restorer(images).is_contiguous()
    assert chain_for(8)(torch.rand(2, 1, 8, 8)).is_contiguous()
