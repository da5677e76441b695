"""fit on every kind of coordinates, with augmentations that move images, and with averaged weights."""

from __future__ import annotations

import pytest
import torch
from fits import assert_same, differs, moved_for_real, quick
from samples import blobs

import unshift
from unshift import fit
from unshift.coordinates import Canvas, Centre, Polar, Ring, Turns

KINDS = {
    "margin": (Canvas(1, 0.25), 1, (8, 8), "paper"),
    "ring": (Ring(), 1, (3, 12), "paper"),
    "ring, local filters": (Ring(0), 2, (12, 5), "seam"),
    "mirror": (Turns("mirror"), 1, (7, 9), "seam"),
    "half": (Turns("half"), 1, (7, 9), "paper"),
    "quarter": (Turns("quarter"), 2, (9, 9), "dense"),
    "flips": (Turns("flips"), 1, (9, 9), "paper"),
    "strand": (Turns("strand"), 4, (14,), "paper"),
    "cube": (Turns("cube"), 1, (4, 4, 4), "paper"),
    "centre, corners": (Centre(), 1, (10, 10), "paper"),
    "centre, pixels": (Centre(), 1, (9, 9), "dense"),
    "polar": (Polar(12, angles=8, radii=4), 1, (12, 12), "dense"),
    "smaller canvases": (Polar(12, angles=4, radii=2), 1, (12, 12), "paper"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_coordinates_is_learnt_and_exact(kind):
    coordinates, channels, size, preset = KINDS[kind]
    images = blobs(40, channels, size) + 0.01 * torch.rand(40, channels, *size)
    restorer = quick(images, preset, coordinates=coordinates, epochs=2)
    assert restorer.trained_on["size"] == list(size)
    assert restorer.trained_on["channels"] == channels
    assert restorer.metadata["coordinates"] == coordinates.describe()
    low, high = restorer.trained_on["range"]
    assert 0 <= low < high <= 0.6
    assert unshift.verify(restorer, images[:2], brute_force=True).exact
    assert_same(quick(images, preset, coordinates=coordinates, epochs=2), restorer)


def test_turns_are_learnt():
    """Upright letters, turned at random: most are turned back, by chance a quarter were."""
    torch.manual_seed(1)
    shape = torch.zeros(10, 10)
    shape[2:8, 3], shape[2, 3:7], shape[4, 3:6] = 1, 1, 1  # an F
    letters = (shape + 0.3 * torch.rand(120, 1, 10, 10)).clamp(0, 1)
    restorer = fit(letters, "dense", coordinates=Turns("quarter"), epochs=12, batch_size=8, progress=False)
    pose = restorer.coordinates.draw((10, 10), 120, None, torch.Generator().manual_seed(0))
    found = restorer.estimate(restorer.coordinates.move(letters, pose))
    assert ((found.turn == pose.turn) & (found.shift == pose.shift % 10).all(1)).float().mean() > 0.9


# --- augmentations and averages --------------------------------------------------------------------


def brightened(images, generator):
    return images * (0.5 + torch.rand(len(images), 1, 1, 1, generator=generator))


def test_augmentations_follow_from_the_seed(images):
    first = quick(images, augment=["mirror", brightened])
    assert first.metadata["augment"] == ["mirror", "brightened"]
    assert_same(quick(images, augment=["mirror", brightened]), first)
    assert differs(quick(images, augment=["mirror", brightened], seed=1), first)
    assert differs(quick(images, augment=["mirror"]), first)
    assert differs(quick(images), first)


def test_a_move_done_for_real_is_the_same_example(images):
    """Equivariance: whether the images are moved and the target with them, or neither, the losses are the same."""
    still, moved = quick(images, "dense"), quick(images, "dense", augment=[moved_for_real])
    for one, other in zip(still.metadata["history"], moved.metadata["history"], strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-3)
    blind = quick(images, "dense", augment=[lambda images, generator: moved_for_real(images, generator)[0]])
    assert blind.metadata["history"][-1]["loss"] > still.metadata["history"][-1]["loss"]  # the pose is what tells


def test_rotations_by_any_angle_are_learnt_from(images):
    polar = Polar(12, angles=8, radii=4)

    def turned(images, generator):
        pose = polar.draw((12, 12), len(images), None, generator)
        return polar.move(images, pose), pose

    restorer = quick(images, "dense", coordinates=polar, augment=[turned])
    assert unshift.verify(restorer, images[:3], brute_force=True).exact


@pytest.mark.parametrize(
    ("augment", "message"),
    [
        (["upside-down"], "no augmentation named 'upside-down'; there are mirror, windows, colour, or give a function"),
        ([moved_for_real, lambda *args: moved_for_real(*args)], "only one augmentation may move the images"),
    ],
)
def test_augmentations_that_make_no_sense(images, augment, message):
    with pytest.raises(ValueError, match=message):
        quick(images, augment=augment)


def test_an_average_of_the_weights_is_used_and_saved(images):
    plain, averaged = quick(images, "dense", epochs=6), quick(images, "dense", epochs=6, average=0.5)
    assert averaged.metadata["average"] == 0.5
    assert plain.metadata["average"] is None
    assert differs(averaged, plain)
    # The same steps were taken: only what was kept of them differs.
    for one, other in zip(averaged.metadata["history"], plain.metadata["history"], strict=True):
        assert one["loss"] == other["loss"]
    assert averaged.metadata["history"] != plain.metadata["history"]
    assert_same(quick(images, "dense", epochs=6, average=0.5), averaged)


@pytest.mark.parametrize("average", [0.0, 1.0, -0.5, 2, float("nan")])
def test_an_average_that_is_none_is_refused(images, average):
    with pytest.raises(ValueError, match="average must lie between 0 and 1"):
        quick(images, average=average)


def test_windows_leave_room_for_the_kernel():
    restorer = unshift.fit(torch.rand(40, 1, 9, 9), augment=["windows"], epochs=2, batch_size=4, progress=False)
    assert restorer.metadata["augment"] == ["windows"]


def test_windows_are_not_for_nets_of_one_size():
    with pytest.raises(ValueError, match=r"needs a network for images of any size; this one takes \(9, 9\) only"):
        unshift.fit(torch.rand(40, 1, 9, 9), "dense", augment=["windows"])
