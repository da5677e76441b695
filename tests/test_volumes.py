"""3D-MNIST is regenerated, and volumes are restored exactly."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from samples import blobs, make_restorer

import unshift
from unshift import apply
from unshift.data import dataset
from unshift.data.mnist3d import MNIST3D, voxelise
from unshift.shifts import all_shifts
from unshift.testing import verify

pytestmark = pytest.mark.filterwarnings("ignore:this is near guessing")


def digit(split, index=0):
    return dataset("mnist-10k", split).images[index, 0].numpy()


def point_cloud(pixels):
    """Return the points of a digit as defined: (depth, column, height), from a box of 1 x 1 x 6 for each pixel."""
    ink = np.pad(pixels > 0, 1)
    edge, deep = np.linspace(-0.5, 0.5, 5), np.linspace(-3, 3, 30)
    points = []
    for row, column in np.argwhere(ink):
        faces = [(edge, edge, (-3, 3))]
        faces += [((side,), edge, deep) for side in (-0.5, 0.5) if not ink[row + int(2 * side), column]]
        faces += [(edge, (side,), deep) for side in (-0.5, 0.5) if not ink[row, column + int(2 * side)]]
        for down, right, depth in faces:
            points += [(z, column + x, -(row + y)) for y in down for x in right for z in depth]
    return np.array(points)


# --- the data ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("split", "points"), [("train", 25_700), ("test", 19_000)])
def test_the_first_digits_have_the_published_number_of_points(split, points):
    assert voxelise(digit(split)).sum() == len(point_cloud(digit(split))) == points


def test_the_voxels_count_the_points_of_the_cloud():
    """Compare with the float cloud, away from the edges between voxels."""
    cloud = point_cloud(digit("train", 3))
    low, high = cloud.min(0), cloud.max(0)
    side = (high - low).max()
    at = (cloud - (low + high - side) / 2) / side * 16
    clear = (np.abs(at - at.round()) > 1e-6).all(1)
    expected = np.zeros((16, 16, 16), dtype=int)
    np.add.at(expected, tuple(np.floor(at[clear]).astype(int).T), 1)
    counts = voxelise(digit("train", 3))
    assert (expected <= counts).all()
    assert expected.sum() == clear.sum()
    assert counts.sum() == len(cloud)


def test_digits_are_upright():
    seven = voxelise(digit("test"))  # its bar is at the top
    front = seven.sum(0)
    assert (front[:, -3:] > 0).sum() > 2 * (front[:, :3] > 0).sum()


def test_mnist3d_is_made_of_embedded_digits(monkeypatch, tmp_path):
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path))
    monkeypatch.setitem(MNIST3D.counts, "test", 12)
    volumes = dataset("mnist3d", "test", download=False)
    assert volumes.images.shape == (12, 1, 32, 32, 32)
    assert volumes.images.dtype == torch.float32
    assert volumes.images.flatten(1).amax(1).tolist() == [1.0] * 12
    assert volumes.images.min() == 0
    assert volumes.labels.tolist() == dataset("mnist-10k", "test").labels[:12].tolist()
    assert not volumes.images[:, :, :8].any()  # the margin


def test_an_empty_digit_is_refused():
    with pytest.raises(ValueError, match="pixel"):
        voxelise(np.zeros((28, 28)))


# --- restoring them ---------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["paper", "dense"])
def test_volumes_are_restored_exactly(preset):
    size = (5, 6, 4)
    images = torch.cat([blobs(2, 1, size), torch.rand(1, 1, *size), torch.ones(1, 1, *size)])
    assert verify(make_restorer(preset, 1, size), images).exact


def test_the_shipped_weights_are_exact_on_a_sample():
    restorer = unshift.load("mnist3d")
    digits = dataset("mnist-10k", "test").images[:2, 0].numpy()
    counts = torch.from_numpy(np.stack([voxelise(d) for d in digits])).float()
    images = torch.nn.functional.pad(counts / counts.flatten(1).amax(1).view(-1, 1, 1, 1), [8] * 6)[:, None]
    generator = torch.Generator().manual_seed(0)
    shifts = all_shifts((32, 32, 32))[torch.randperm(32**3, generator=generator)[:24]]
    for image in images:
        moved = apply(image.expand(len(shifts), *image.shape), shifts)
        wanted = restorer(image[None])
        assert torch.equal(restorer(moved), wanted.expand_as(moved))


@pytest.mark.slow
def test_every_shift_of_a_real_volume_is_exact():
    assert verify(unshift.load("mnist3d"), dataset("mnist3d", "test").images[:1], batch_size=64).exact
