"""Opening names, folders and image files; preparing pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from unshift import data
from unshift.data import photos, pixels


def gradient(height: int, width: int) -> np.ndarray:
    """Return an RGB image in which every pixel differs."""
    y, x = np.mgrid[:height, :width]
    return np.stack([y * 3, x * 3, y + x], -1).astype(np.uint8)


def save(path: Path, pixels_: np.ndarray, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels_).save(path, **options)
    return path


def test_open_images_by_name_with_size_and_channels():
    opened = data.open_images("mnist", "test", size=(32, 32), channels=3)
    assert opened.images.shape == (10_000, 3, 32, 32)
    assert opened.labels[:3].tolist() == [7, 2, 1]
    crop = data.open_images("mnist-10k", "test", size=(20, 28), fit="crop").images
    assert torch.equal(crop, data.dataset("mnist-10k", "test").images[:, :, 4:24])


def test_an_unknown_source_is_named_in_one_line(tmp_path):
    for source, problem in [
        ("mnits", r"'mnits' \(did you mean mnist\?\).*file or folder"),
        (str(tmp_path / "none.npy"), "no file or folder"),
        ("", "no data set named ''"),
        ("x" * 5000, "no data set named 'xxx"),
        ("~nobody-of-that-name/x\0", "no data set named"),
    ]:
        with pytest.raises(ValueError, match=problem) as caught:
            data.open_images(source)
        assert "\n" not in str(caught.value)
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(ValueError, match=r"a\.txt .*image.*\.tar.*\.npy.*FASTA"):
        data.open_images(tmp_path / "a.txt")


def test_a_folder_is_read_in_order_and_at_any_depth(tmp_path):
    with pytest.raises(ValueError, match=f"{tmp_path}"):
        data.open_images(tmp_path)
    for i, name in enumerate(["b.png", "a/z.bmp", "a.png", "c/d/e.PNG", ".hidden/x.png", ".y.png"]):
        save(tmp_path / name, np.full((4, 5, 3), i, np.uint8))
    (tmp_path / "notes.txt").write_text("not an image")
    (tmp_path / "model.h5").write_text("neither")
    (tmp_path / "folder.png").mkdir()
    assert not {".eps", ".h5", ".mpg", ".wmf", ".pdf"} & photos.suffixes()
    opened = data.open_images(str(tmp_path))
    assert opened.images.shape == (4, 3, 4, 5)
    assert opened.images[:, 0, 0, 0].tolist() == [2, 1, 0, 3]  # a.png, a/z.bmp, b.png, c/d/e.PNG
    assert opened.labels is None
    assert opened.name == tmp_path.name


def test_subfolders_are_classes_and_splits(tmp_path):
    for i, name in enumerate(["train/dog/1.png", "train/cat/1.png", "train/cat/2.png", "test/cat/1.png"]):
        save(tmp_path / name, np.full((2, 2, 3), i, np.uint8))
    opened = data.open_images(tmp_path, "train", channels=1)
    assert opened.images.shape == (3, 1, 2, 2)
    assert opened.classes == ("cat", "dog")
    assert opened.labels.tolist() == [0, 0, 1]
    assert len(data.open_images(tmp_path, "test")) == 1
    with pytest.raises(ValueError, match="'val'"):
        data.open_images(tmp_path, "val")


def test_images_of_several_sizes_need_a_size(tmp_path):
    save(tmp_path / "a.png", gradient(20, 30))
    save(tmp_path / "b.png", gradient(30, 20))
    with pytest.raises(ValueError, match=r"a\.png is 20x30, .*b\.png is 30x20 .*20x30"):
        data.open_images(tmp_path)
    assert data.open_images(tmp_path, size=(10, 16)).images.shape == (2, 3, 10, 16)
    crop = data.open_images(tmp_path, size=(20, 20), fit="crop").images
    assert torch.equal(crop[0], torch.from_numpy(gradient(20, 30)).permute(2, 0, 1)[:, :, 5:25])
    assert torch.equal(crop[1], torch.from_numpy(gradient(30, 20)).permute(2, 0, 1)[:, 5:25])
    for wrong in [{"size": (0, 4)}, {"fit": "squeeze"}, {"channels": 2}]:
        with pytest.raises(ValueError, match=f"{next(iter(wrong))}.*"):
            data.open_images(tmp_path, **{"size": (4, 4)} | wrong)


def test_an_unreadable_image_is_named(tmp_path, monkeypatch):
    good = save(tmp_path / "good.png", gradient(30, 30))
    for name, content, problem in [
        ("text.jpg", b"no image", "cannot identify"),
        ("cut.png", good.read_bytes()[:60], "truncated"),
        ("empty.gif", b"", "cannot identify"),
        # Pillow would hand a PostScript file to another program, whatever its suffix.
        ("ps.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n", "cannot identify"),
    ]:
        bad = tmp_path / name
        bad.write_bytes(content)
        with pytest.raises(ValueError, match=rf"{name} .*{problem}"):
            data.open_images(tmp_path)
        bad.unlink()
    assert len(data.open_images(tmp_path)) == 1
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(ValueError, match=r"good\.png .*bomb"):
        data.open_images(tmp_path)


def test_exif_orientation_is_applied(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # displayed turned by 90 degrees clockwise
    save(tmp_path / "turned.png", gradient(4, 6), exif=exif)
    opened = data.open_images(tmp_path).images[0]
    assert torch.equal(opened, torch.from_numpy(np.rot90(gradient(4, 6), -1).copy()).permute(2, 0, 1))


def test_pixel_formats(tmp_path):
    red = np.zeros((2, 2, 3), np.uint8)
    red[..., 0] = 255

    def read(name: str, image: Image.Image, **options) -> list[int]:
        image.save(tmp_path / name, **options)
        opened = data.open_images(tmp_path / name).images
        assert opened.shape[:2] == (1, 3)
        return opened[0, :, 0, 0].tolist()

    assert read("p.png", Image.fromarray(red).convert("P", palette=Image.Palette.ADAPTIVE)) == [255, 0, 0]
    assert read("bit.png", Image.new("1", (2, 2), 1)) == [255] * 3
    assert read("cmyk.tif", Image.new("CMYK", (2, 2), (0, 255, 255, 0))) == [255, 0, 0]
    assert read("rgba.png", Image.new("RGBA", (2, 2), (255, 0, 0, 0))) == [255] * 3  # white shows
    assert read("half.png", Image.new("RGBA", (2, 2), (0, 0, 0, 51))) == [204] * 3
    assert read("la.png", Image.new("LA", (2, 2), (0, 0))) == [255] * 3
    clear = Image.new("P", (2, 2), 0)
    clear.putpalette([9, 9, 9, 1, 2, 3])
    assert read("clear.png", clear, transparency=0) == [255] * 3
    for value, expected in [(0, 0), (65535, 255), (32896, 128), (257, 1), (128, 0)]:
        sixteen = Image.fromarray(np.full((2, 2), value, np.uint16))
        assert read("i16.png", sixteen) == [expected] * 3
        assert read("i16.tif", sixteen) == [expected] * 3
    frames = [Image.new("RGB", (2, 2), color) for color in ("red", "blue")]
    assert read("moving.gif", frames[0], save_all=True, append_images=frames[1:]) == [255, 0, 0]
    for name, image, problem in [
        ("f.tif", Image.new("F", (2, 2), 0.5), "float"),
        ("i.tif", Image.new("I", (2, 2), 70_000), "16 bits"),
    ]:
        with pytest.raises(ValueError, match=f"{name}.*{problem}"):
            read(name, image)


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


def test_grey_equals_pillows():
    rgb = torch.randint(0, 256, (1, 3, 64, 64), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    pillow = np.array(Image.fromarray(rgb[0].permute(1, 2, 0).numpy()).convert("L"))
    assert np.array_equal(pixels.to_channels(rgb, 1)[0, 0], pillow)
    assert torch.allclose(pixels.to_channels(rgb.float(), 1), torch.from_numpy(pillow).float(), atol=0.51)
    assert torch.equal(pixels.to_channels(rgb[:, :1], 3)[:, 2], rgb[:, 0])
    with pytest.raises(ValueError, match=r"2 channels.* 3"):
        pixels.to_channels(rgb[:, :2], 3)


def test_prepare_applies_its_steps_in_order():
    images = torch.randint(0, 256, (5, 1, 12, 12), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    assert data.prepare(images, {}) is images
    assert torch.equal(data.prepare(images, {"resize": [12, 12], "pad": 2}), data.pad(images, 2))  # stays uint8
    ready = data.prepare(images, {"pad": 1, "resize": [16, 14], "channels": 3})
    assert ready.shape == (5, 3, 18, 16)
    assert torch.equal(ready[:, 1:2], data.pad(data.resize(data.to_float(images), (16, 14)), 1))
    assert torch.equal(data.prepare(images, {"crop": [6, 12]}), data.to_float(images)[:, :, 3:9])
    volumes = torch.ones(2, 1, 3, 3, 3)
    assert data.prepare(volumes, {"pad": 1}).shape == (2, 1, 5, 5, 5)
    with pytest.raises(ValueError, match="polish"):
        data.prepare(images, {"polish": True})
