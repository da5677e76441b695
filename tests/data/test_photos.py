"""Folders and single image files."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mirrors import gradient, save
from PIL import Image

from unshift import data


def test_a_folder_is_read_in_order_and_at_any_depth(tmp_path):
    for i, name in enumerate(["b.png", "a/z.bmp", "a.png", "c/d/e.PNG", ".hidden/x.png", ".y.png"]):
        save(tmp_path / name, np.full((4, 5, 3), i, np.uint8))
    (tmp_path / "notes.txt").write_text("not an image")
    (tmp_path / "model.h5").write_text("neither")
    (tmp_path / "folder.png").mkdir()
    found = data.open_images(str(tmp_path))
    assert found.images.shape == (4, 3, 4, 5)
    assert found.images[:, 0, 0, 0].tolist() == [2, 1, 0, 3]  # a.png, a/z.bmp, b.png, c/d/e.PNG
    assert found.labels is None
    assert found.name == tmp_path.name


def test_subfolders_are_classes_and_splits(tmp_path):
    for i, name in enumerate(["train/dog/1.png", "train/cat/1.png", "train/cat/2.png", "test/cat/1.png"]):
        save(tmp_path / name, np.full((2, 2, 3), i, np.uint8))
    found = data.open_images(tmp_path, "train", channels=1)
    assert found.images.shape == (3, 1, 2, 2)
    assert found.classes == ("cat", "dog")
    assert found.labels.tolist() == [0, 0, 1]
    assert len(data.open_images(tmp_path, "test")) == 1
    with pytest.raises(ValueError, match="no split 'val'"):
        data.open_images(tmp_path, "val")


def test_sizes_that_differ_need_a_size(tmp_path):
    save(tmp_path / "a.png", gradient(20, 30))
    save(tmp_path / "b.png", gradient(30, 20))
    with pytest.raises(ValueError, match=r"a\.png is 20x30, .*b\.png is 30x20 .*20x30"):
        data.open_images(tmp_path)
    assert data.open_images(tmp_path, size=(10, 16)).images.shape == (2, 3, 10, 16)
    crop = data.open_images(tmp_path, size=(20, 20), fit="crop").images
    assert torch.equal(crop[0], torch.from_numpy(gradient(20, 30)).permute(2, 0, 1)[:, :, 5:25])
    assert torch.equal(crop[1], torch.from_numpy(gradient(30, 20)).permute(2, 0, 1)[:, 5:25])
    for wrong in [{"size": (0, 4)}, {"fit": "squeeze"}, {"channels": 2}, {"layout": "nhw"}]:
        with pytest.raises(ValueError, match=f"{next(iter(wrong))}.*"):
            data.open_images(tmp_path, **{"size": (4, 4)} | wrong)


def test_an_unreadable_image_is_named(tmp_path):
    good = save(tmp_path / "good.png", gradient(30, 30))
    for name, content, problem in [
        ("text.jpg", b"no image", "cannot identify"),
        ("cut.png", good.read_bytes()[:60], "truncated"),
        ("empty.gif", b"", "cannot identify"),
        # A PostScript file would be handed to another program, whatever it is called.
        ("ps.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n", "cannot identify"),
    ]:
        bad = tmp_path / name
        bad.write_bytes(content)
        with pytest.raises(ValueError, match=rf"{name} cannot be read as an image .*{problem}"):
            data.open_images(tmp_path)
        bad.unlink()
    assert len(data.open_images(tmp_path)) == 1


def test_an_image_too_large_to_be_honest_is_refused(tmp_path, monkeypatch):
    save(tmp_path / "bomb.png", gradient(30, 30))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(ValueError, match=r"bomb\.png .*decompression bomb"):
        data.open_images(tmp_path)


def test_exif_orientation_is_undone(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # shown turned by 90 degrees clockwise
    save(tmp_path / "turned.png", gradient(4, 6), exif=exif)
    found = data.open_images(tmp_path).images[0]
    assert torch.equal(found, torch.from_numpy(np.rot90(gradient(4, 6), -1).copy()).permute(2, 0, 1))


def test_odd_pixel_formats(tmp_path):
    red = np.zeros((2, 2, 3), np.uint8)
    red[..., 0] = 255

    def read(name: str, image: Image.Image, **options) -> list[int]:
        image.save(tmp_path / name, **options)
        found = data.open_images(tmp_path / name).images
        assert found.shape[:2] == (1, 3)
        return found[0, :, 0, 0].tolist()

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
        ("f.tif", Image.new("F", (2, 2), 0.5), "floats of unknown scale"),
        ("i.tif", Image.new("I", (2, 2), 70_000), "beyond 16 bits"),
    ]:
        with pytest.raises(ValueError, match=f"{name}.*{problem}"):
            read(name, image)


def test_an_empty_folder_says_so(tmp_path):
    with pytest.raises(ValueError, match="holds no image files"):
        data.open_images(tmp_path)
