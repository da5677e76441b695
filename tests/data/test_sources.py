"""One door for names, folders and files; what is done to pixels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mirrors import gradient, save
from PIL import Image

from unshift import data
from unshift.data import photos, pixels

# --- one door --------------------------------------------------------------------------------------


def test_open_images_by_name_with_size_and_channels():
    found = data.open_images("mnist", "test", size=(32, 32), channels=3)
    assert found.images.shape == (10_000, 3, 32, 32)
    assert found.labels[:3].tolist() == [7, 2, 1]
    crop = data.open_images("mnist-10k", "test", size=(20, 28), fit="crop").images
    assert torch.equal(crop, data.dataset("mnist-10k", "test").images[:, :, 4:24])


def test_a_name_comes_before_a_folder_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "mnist-10k" / "a.png", gradient(2, 2))
    assert len(data.open_images("mnist-10k", "test")) == 10_000
    assert len(data.open_images("./mnist-10k")) == 1


def test_what_cannot_be_opened_says_so_in_one_line(tmp_path):
    for source, problem in [
        (
            "mnits",
            r"no data set named 'mnits' \(did you mean mnist\?\); there are .*mnist, .*; and no file or folder",
        ),
        (str(tmp_path / "none.npy"), "no file or folder"),
        ("", "no data set named ''"),
        ("x" * 5000, "no data set named 'xxx"),
        ("~nobody-of-that-name/x\0", "no data set named"),
    ]:
        with pytest.raises(ValueError, match=problem) as caught:
            data.open_images(source)
        assert "\n" not in str(caught.value)
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(
        ValueError, match=r"neither an image, a folder of images, a \.tar of them, a \.npy .*, nor FASTA"
    ):
        data.open_images(tmp_path / "a.txt")


# --- pixels ----------------------------------------------------------------------------------------


def test_to_float():
    ramp = torch.arange(256).to(torch.uint8)
    assert torch.equal(data.to_float(ramp), torch.arange(256) / 255)
    assert data.to_float(ramp).dtype == torch.float32
    assert data.to_float(torch.ones(2, dtype=torch.float64) * 7).tolist() == [7, 7]
    assert data.to_float(torch.ones(2, dtype=torch.float64)).dtype == torch.float32
    with pytest.raises(ValueError, match="int64"):
        data.to_float(torch.arange(3))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.tuples(st.integers(1, 12), st.integers(1, 12)))
def test_resize_is_the_float_resize_rounded_whatever_the_batch(seed, size):
    images = torch.randint(0, 256, (3, 2, 7, 5), generator=torch.Generator().manual_seed(seed)).to(torch.uint8)
    small = data.resize(images, size)
    exact = data.resize(images.float(), size)
    assert small.dtype == torch.uint8
    assert small.shape == (3, 2, *size)
    assert torch.equal(small.float(), exact.round())
    assert torch.equal(small[1:2], data.resize(images[1:2], size))


def test_resize_literals():
    row = torch.tensor([[[[0.0, 1.0]]]])
    assert data.resize(row, (1, 4)).flatten().tolist() == [0, 0.25, 0.75, 1]  # align_corners=False
    assert data.resize(torch.arange(8.0).reshape(1, 1, 1, 8), (1, 2)).flatten().tolist() == [
        1.5,
        5.5,
    ]  # no antialias
    for images, size in [
        (torch.zeros(2, 3, 4), (2, 2)),
        (torch.zeros(1, 1, 2, 2), (0, 2)),
        (torch.ones(1, 1, 2, 2).int(), (4, 4)),
    ]:
        with pytest.raises(ValueError, match=r"resize takes|size must be"):
            data.resize(images, size)


def test_pad_reaches_every_spatial_axis():
    for axes in (1, 2, 3):
        padded = data.pad(torch.ones(2, 3, *[4] * axes, dtype=torch.uint8), 2)
        assert padded.shape == (2, 3, *[8] * axes)
        assert padded.dtype == torch.uint8
        assert padded.sum() == 6 * 4**axes
        assert padded[(0, 0, *[slice(2, 6)] * axes)].all()
    assert data.pad(torch.ones(1, 1, 3), 0).shape == (1, 1, 3)
    with pytest.raises(ValueError, match="p >= 0"):
        data.pad(torch.ones(1, 1, 3), -1)


def test_grey_is_pillows_grey():
    rgb = torch.randint(0, 256, (1, 3, 64, 64), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    pillow = np.array(Image.fromarray(rgb[0].permute(1, 2, 0).numpy()).convert("L"))
    assert np.array_equal(pixels.to_channels(rgb, 1)[0, 0], pillow)
    assert torch.allclose(pixels.to_channels(rgb.float(), 1), torch.from_numpy(pillow).float(), atol=0.51)
    assert torch.equal(pixels.to_channels(rgb[:, :1], 3)[:, 2], rgb[:, 0])
    with pytest.raises(ValueError, match="2 channels, which cannot become 3"):
        pixels.to_channels(rgb[:, :2], 3)


@settings(max_examples=50, deadline=None)
@given(*[st.integers(1, 40)] * 4)
def test_crop_always_gives_the_size(h, w, height, width):
    assert pixels.fit_to(torch.zeros(1, 1, h, w), (height, width), "crop").shape == (1, 1, height, width)


def test_prepare_does_its_steps_in_order():
    images = torch.randint(0, 256, (5, 1, 12, 12), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    assert data.prepare(images, {}) is images
    assert torch.equal(data.prepare(images, {"resize": [12, 12], "pad": 2}), data.pad(images, 2))  # stays uint8
    ready = data.prepare(images, {"pad": 1, "resize": [16, 14], "channels": 3})
    assert ready.shape == (5, 3, 18, 16)
    assert torch.equal(ready[:, 1:2], data.pad(data.resize(data.to_float(images), (16, 14)), 1))
    assert torch.equal(data.prepare(images, {"crop": [6, 12]}), data.to_float(images)[:, :, 3:9])
    volumes = torch.ones(2, 1, 3, 3, 3)
    assert data.prepare(volumes, {"pad": 1}).shape == (2, 1, 5, 5, 5)
    with pytest.raises(ValueError, match="preparation: polish; upgrade unshift"):
        data.prepare(images, {"polish": True})


def test_files_that_are_no_images_or_need_another_program_are_not_read():
    assert ".png" in photos.suffixes()
    assert not {".eps", ".h5", ".mpg", ".wmf", ".pdf"} & photos.suffixes()
