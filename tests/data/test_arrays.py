"""NumPy files: axes, labels, no pickles, and errors that name the file."""

from __future__ import annotations

import contextlib
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from unshift import data
from unshift.data import sources


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((5, 7, 8), (5, 1, 7, 8)),
        ((5, 2, 7, 8), (5, 2, 7, 8)),
        ((5, 7, 8, 3), (5, 3, 7, 8)),
        ((5, 7, 8, 1), (5, 1, 7, 8)),
        ((5, 3, 8, 3), (5, 3, 8, 3)),  # both could be colours: channels first
        ((5, 2, 6, 7, 8), (5, 2, 6, 7, 8)),
    ],
)
def test_layouts(tmp_path, shape, expected):
    array = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    np.save(tmp_path / "a.npy", array)
    images = data.open_images(tmp_path / "a.npy").images
    assert images.shape == expected
    assert images.dtype == torch.uint8
    assert images.is_contiguous()
    if expected != shape and expected[1] > 1:
        assert images[1, 1].flatten().tolist() == array[1, ..., 1].ravel().tolist()
    assert sorted(images.flatten().tolist()) == sorted(array.ravel().tolist())


@settings(max_examples=30, deadline=None)
@given(
    hnp.arrays(
        st.sampled_from([np.uint8, np.float16, np.float32, ">f4", np.float64]),
        hnp.array_shapes(min_dims=4, max_dims=4, min_side=1, max_side=4),
        elements={"min_value": 0, "max_value": 200},
    ),
    st.booleans(),
)
def test_pixels_are_read_exactly(tmp_path_factory, array, zipped):
    path = tmp_path_factory.mktemp("arrays") / ("a.npz" if zipped else "a.npy")
    np.savez_compressed(path, images=array) if zipped else np.save(path, np.asfortranarray(array))
    images = sources.load_array(path).images
    assert images.dtype == (torch.uint8 if array.dtype == np.uint8 else torch.float32)
    channels_last = array.shape[3] in (1, 3) and array.shape[1] not in (1, 3)
    wanted = np.moveaxis(array, 3, 1) if channels_last else array
    assert np.array_equal(images.numpy(), wanted.astype(images.numpy().dtype))


def test_npz_with_labels(tmp_path):
    images = np.zeros((3, 4, 4), np.uint8)
    np.savez(tmp_path / "a.npz", images=images, labels=np.array([2, 0, 1], np.uint8), other=images)
    assert data.open_images(tmp_path / "a.npz").labels.tolist() == [2, 0, 1]
    np.savez(tmp_path / "b.npz", whatever=images)
    assert data.open_images(tmp_path / "b.npz").labels is None
    np.savez(tmp_path / "c.npz", x=images, y=images)
    with pytest.raises(ValueError, match=r"c\.npz .*'images'.*x, y"):
        data.open_images(tmp_path / "c.npz")
    for labels in (np.zeros(3), np.zeros(2, int), np.zeros((3, 1), int)):
        np.savez(tmp_path / "d.npz", images=images, labels=labels)
        with pytest.raises(ValueError, match=r"d\.npz: labels .*\(3,\)"):
            data.open_images(tmp_path / "d.npz")


class Bomb:
    """An object whose unpickling leaves a trace."""

    def __reduce__(self):
        return (Path.touch, (Path("unpickled"),))


def test_pickles_are_never_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    objects = np.array([[[Bomb()]]], dtype=object)
    np.save("a.npy", objects, allow_pickle=True)
    np.savez("b.npz", images=objects)
    np.savez("l.npz", images=np.zeros((1, 2, 2), np.uint8), labels=objects)
    for name in ("c.npy", "d.npz"):
        Path(name).write_bytes(pickle.dumps(Bomb()))
    for name in ("a.npy", "b.npz", "l.npz", "c.npy", "d.npz"):
        with pytest.raises(ValueError, match=name):
            data.open_images(name)
    assert not Path("unpickled").exists()


def test_bad_arrays_are_refused_by_name(tmp_path):
    path = tmp_path / "a.npy"
    image = np.zeros((2, 3, 4, 4), np.float32)
    for array, problem in [
        (np.where(np.arange(4) == 2, np.nan, image), "NaN"),
        (np.full((1, 4, 4), 1e300), "infinite"),
        (np.zeros((2, 4, 4), np.int64), "got int64"),
        (np.zeros((2, 4, 4), bool), "got bool"),
        (np.zeros((2, 4, 4), complex), "got complex128"),
        (np.full((2, 4, 4), "a"), "got <U1"),
        (np.zeros((4, 4), np.uint8), "2 axes"),
        (np.zeros((1,) * 6, np.uint8), "6 axes"),
        (np.zeros((0, 4, 4), np.uint8), ""),
    ]:
        np.save(path, array)
        with pytest.raises(ValueError, match=rf"a\.npy.*{problem}"):
            data.open_images(path)
    np.save(path, image)
    with pytest.raises(ValueError, match="split 'test'"):
        data.open_images(path, "test")


@settings(max_examples=60, deadline=None)
@given(st.booleans(), st.lists(st.tuples(st.floats(0, 1), st.integers(1, 255)), min_size=1, max_size=4))
def test_a_scrambled_array_loads_or_raises_a_value_error(tmp_path_factory, zipped, flips):
    path = tmp_path_factory.mktemp("scrambled") / ("a.npz" if zipped else "a.npy")
    array = np.zeros((2, 4, 4), np.uint8)
    np.savez(path, images=array) if zipped else np.save(path, array)
    content = bytearray(path.read_bytes())
    for where, flip in flips:
        content[int(where * (len(content) - 1))] ^= flip
    path.write_bytes(content)
    # Any other exception than ValueError fails the test.
    with contextlib.suppress(ValueError):
        assert data.open_images(path).images.ndim in (4, 5)
