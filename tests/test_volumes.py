"""3D-MNIST made again, its file read, and volumes restored exactly."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
import torch
from samples import blobs, make_restorer

import unshift
from unshift import apply
from unshift.data import DataError, dataset, mnist3d, status
from unshift.data.mnist3d import MNIST3D, load_h5, point_cloud, voxelise
from unshift.evaluation import restoration_rates
from unshift.testing import all_shifts, verify


@pytest.fixture
def few(monkeypatch, tmp_path):
    """Only the first 12 digits, and a data folder of our own."""
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path))
    for split in ("train", "test"):
        monkeypatch.setitem(MNIST3D.counts, split, 12)
    return tmp_path


def digit(split, index=0):
    return dataset("mnist-10k", split).images[index, 0].numpy()


# --- the data ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("split", "points"), [("train", 25_700), ("test", 19_000)])
def test_the_first_clouds_have_as_many_points_as_the_published_ones(split, points):
    cloud = point_cloud(digit(split))
    assert cloud.shape == (points, 3)
    assert np.ptp(cloud, axis=0).max() == pytest.approx(1)
    assert np.allclose(cloud.mean(0), 0, atol=1e-12)
    assert voxelise(digit(split)).sum() == points


def test_one_pixel_is_a_box():
    one = np.zeros((28, 28), dtype=np.uint8)
    one[3, 20] = 1
    cloud = point_cloud(one)
    assert len(cloud) == 2 * 25 + 4 * 150
    assert np.ptp(cloud, axis=0).tolist() == pytest.approx([1, 1 / 6, 1 / 6])  # depth first: turned about y
    one[3, 21] = 200  # a neighbour covers one side of each
    assert len(point_cloud(one)) == 2 * (2 * 25 + 3 * 150)


def test_digits_stand_upright():
    seven = voxelise(digit("test"))  # a 7: its bar is at the top, its foot at the bottom left
    front = seven.sum(0)
    assert (front[:, -3:] > 0).sum() > 2 * (front[:, :3] > 0).sum()


def test_voxels_are_those_of_the_cloud():
    """The same counts from the float cloud, by the plain definition, away from the voxels' edges."""
    cloud = point_cloud(digit("train", 3))
    low, high = cloud.min(0), cloud.max(0)
    side = (high - low).max()
    at = (cloud - (low + high - side) / 2) / side * 16
    clear = (np.abs(at - at.round()) > 1e-6).all(1)
    wanted = np.zeros((16, 16, 16), dtype=int)
    np.add.at(wanted, tuple(np.floor(at[clear]).astype(int).T), 1)
    counts = voxelise(digit("train", 3))
    assert (wanted <= counts).all()
    assert wanted.sum() == clear.sum()
    assert counts.sum() == len(cloud)


def test_mnist3d_is_made_once_and_kept(few, monkeypatch):
    assert [row.present for row in status() if row.name == "mnist3d"] == [True]  # what it is made from comes with us
    made = dataset("mnist3d", "test", download=False)
    assert made.name == "mnist3d/test"
    assert made.images.shape == (12, 1, 32, 32, 32)
    assert made.images.dtype == torch.float32
    assert made.images.flatten(1).amax(1).tolist() == [1.0] * 12
    assert made.images.min() == 0
    assert made.labels.tolist() == dataset("mnist-10k", "test").labels[:12].tolist()
    assert not made.images[:, :, :8].any()  # the margin
    monkeypatch.setattr(mnist3d, "voxelise", None)  # not needed a second time
    assert torch.equal(dataset("mnist3d", "test").images, made.images)


def test_a_damaged_copy_is_made_again(few):
    wanted = dataset("mnist3d", "train").images
    (kept,) = (few / "mnist3d").iterdir()
    kept.write_bytes(kept.read_bytes()[:100])
    assert torch.equal(dataset("mnist3d", "train").images, wanted)


def test_an_empty_digit_gets_a_clear_error():
    with pytest.raises(ValueError, match="a pixel above 0"):
        voxelise(np.zeros((28, 28)))


# --- the published file -----------------------------------------------------------------------------


def fake_h5py(monkeypatch, content):
    """Stand in for h5py, which is optional: a file is a dictionary of arrays."""

    class File(dict):
        def __init__(self, path, mode):
            assert mode == "r"
            if isinstance(content, Exception):
                raise content
            super().__init__(content)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

    module = types.ModuleType("h5py")
    module.File = File
    monkeypatch.setitem(sys.modules, "h5py", module)


def test_the_published_file_is_read(monkeypatch, tmp_path):
    path = tmp_path / "full_dataset_vectors.h5"
    path.touch()
    vectors = np.random.default_rng(0).random((3, 4096))
    fake_h5py(monkeypatch, {"X_train": vectors, "y_train": np.array([5, 0, 4])})
    found = load_h5(path, "train")
    assert found.images.shape == (3, 1, 32, 32, 32)
    assert torch.equal(found.images[1, 0, 8:24, 8:24, 8:24], torch.from_numpy(vectors[1].reshape(16, 16, 16)).float())
    assert found.labels.tolist() == [5, 0, 4]
    with pytest.raises(DataError, match=r"not the full_dataset_vectors\.h5"):
        load_h5(path, "test")
    fake_h5py(monkeypatch, {"X_train": vectors[:, :10], "y_train": np.array([5, 0, 4])})
    with pytest.raises(DataError, match=r"expected vectors \(n, 4096\)"):
        load_h5(path, "train")
    fake_h5py(monkeypatch, OSError("no signature"))
    with pytest.raises(DataError, match="no signature"):
        load_h5(path, "train")
    with pytest.raises(DataError, match="no file "):
        load_h5(tmp_path / "absent.h5", "train")


def test_a_real_h5_file_is_read(tmp_path):
    h5py = pytest.importorskip("h5py", reason="h5py is optional")
    path = tmp_path / "full_dataset_vectors.h5"
    with h5py.File(path, "w") as file:
        file["X_test"], file["y_test"] = np.ones((2, 4096)), np.array([1, 2])
    assert load_h5(path, "test").labels.tolist() == [1, 2]


def test_without_h5py_the_error_says_so(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ValueError, match="needs h5py: pip install h5py"):
        load_h5(tmp_path / "x.h5")


# --- restoring them ---------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["paper", "dense"])
def test_volumes_are_exact_by_brute_force(preset):
    size = (5, 6, 4)
    images = torch.cat([blobs(2, 1, size), torch.rand(1, 1, *size), torch.ones(1, 1, *size)])
    assert verify(make_restorer(preset, 1, size), images, brute_force=True).exact


def test_fit_on_volumes():
    torch.manual_seed(0)
    images = blobs(60, 1, (8, 8, 8)) + 1e-3 * torch.rand(60, 1, 8, 8, 8)
    restorer = unshift.fit(images, "paper", epochs=2, batch_size=16, progress=False)
    assert restorer.trained_on["size"] == [8, 8, 8]
    moved = apply(images[:6], torch.randint(0, 8, (6, 3)))
    assert torch.equal(restorer(moved), restorer(images[:6]))


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


@pytest.mark.data
@pytest.mark.slow
def test_the_shipped_weights_restore_95_percent_within_a_voxel():
    rates = restoration_rates(unshift.load("mnist3d"), dataset("mnist3d", "test").images, batch_size=50)
    assert rates.within_1 >= 0.95


@pytest.mark.slow
def test_every_shift_of_a_real_volume_is_exact_by_brute_force():
    assert verify(unshift.load("mnist3d"), dataset("mnist3d", "test").images[:1], brute_force=True, batch_size=64).exact
