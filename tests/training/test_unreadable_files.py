"""Files and streams that cannot be learnt from: named, or skipped when told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from fits import assert_same
from PIL import Image
from streams import Stream, quick

from unshift import apply
from unshift.data import ImageFolder

# --- what is refused, and what is skipped ----------------------------------------------------------


def test_a_stream_that_is_another_one_each_time_is_refused(pixels):
    class Ending(Stream):
        passes = 0

        def __iter__(self):
            Ending.passes += 1
            return iter(self.images if Ending.passes < 3 else self.images[:40])

    seeded = Stream(pixels)
    seeded.__class__ = type("Seeded", (Stream,), {"__iter__": lambda self: iter(self.images[torch.randperm(60)])})
    quick(seeded)  # it draws from PyTorch's generator, which is seeded for each pass
    with pytest.raises(ValueError, match="ended early; it must be the same each time"):
        quick(Ending(pixels))
    counter = iter(range(99))

    class Rolled(Stream):
        def __iter__(self):
            return iter(self.images.roll(next(counter), 0))

    with pytest.raises(ValueError, match="image 0 of the stream is not the one it was before"):
        quick(Rolled(pixels))


def broken(tmp_path: Path, pixels: torch.Tensor) -> Path:
    folder = tmp_path / "broken"
    folder.mkdir()
    for i, image in enumerate(pixels):
        Image.fromarray(image[0].numpy()).save(folder / f"{i:03}.png")
    (folder / "007.png").write_bytes((folder / "007.png").read_bytes()[:60])
    (folder / "031.png").write_text("not an image")
    return folder


@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_file_is_named_or_skipped_when_told(pixels, tmp_path, workers):
    files = ImageFolder(broken(tmp_path, pixels), channels=1)
    with pytest.raises(ValueError, match=r"^[^\n]*007\.png cannot be read as an image[^\n]*$"):
        quick(files, workers=workers)
    found = quick(files, workers=workers, skip_unreadable=True)
    kept = [i for i in range(60) if i not in (7, 31)]
    assert found.metadata["train_images"] + found.metadata["validation"]["images"] == 58
    assert [Path(text.split(" cannot")[0]).name for text in found.metadata["unreadable"]] == ["007.png", "031.png"]
    assert_same(found, quick(pixels[kept]))


def test_the_first_file_may_be_the_broken_one(pixels, tmp_path):
    folder = broken(tmp_path, pixels)
    (folder / "000.png").write_text("nothing")
    assert len(quick(folder, skip_unreadable=True).metadata["unreadable"]) == 3


def test_unusable_files_are_named(pixels, tmp_path):
    folder = tmp_path / "dull"
    folder.mkdir()
    moved = apply(pixels[3:4], torch.tensor([[2, 5]]))
    for i, image in enumerate(torch.cat([pixels, moved])):
        Image.fromarray(image[0].numpy()).save(folder / f"{i:03}.png")
    with pytest.raises(ValueError, match=r"1 of 61 images are shifted copies of others \(the first is .*060\.png\)"):
        quick(folder)
    Image.new("L", (12, 12), 7).save(folder / "black.png")
    with pytest.raises(ValueError, match=r"1 of 62 images are constant \(the first is .*black\.png\)"):
        quick(folder)
    assert_same(quick(ImageFolder(folder, channels=1), drop_unusable=True), quick(pixels))
    Image.new("L", (12, 9), 7).save(folder / "small.png")
    with pytest.raises(ValueError, match=r"000\.png has \(3, 12, 12\), .*small\.png has \(3, 9, 12\)"):
        quick(folder)


def test_a_folder_without_images_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no image files"):
        quick(tmp_path)


# --- files of every kind, and very many of them ----------------------------------------------------


def test_files_of_every_kind(pixels, tmp_path, monkeypatch):
    """What shows an image is read as it would be shown; what does not is named, and skipped when told."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    photos = [Image.fromarray(image[0].numpy()) for image in pixels[:20]]
    for i, photo in enumerate(photos):
        photo.save(folder / f"{i:02}.png")
    photos[0].transpose(Image.Transpose.ROTATE_90).convert("CMYK").save(folder / "cmyk.tif")
    Image.fromarray(pixels[1, 0].numpy().astype(np.uint16)[::-1] * 257).save(folder / "sixteen.png")
    photos[2].transpose(Image.Transpose.FLIP_LEFT_RIGHT).convert("P").save(folder / "palette.png")
    photos[3].rotate(180).convert("RGB").save(folder / "moving.gif", save_all=True, append_images=[photos[5]])
    exif = Image.Exif()
    exif[0x0112] = 6
    photos[4].convert("RGB").save(folder / "turned.jpg", exif=exif)
    readable = 25
    content = (folder / "00.png").read_bytes()
    (folder / "truncated.png").write_bytes(content[:70])
    (folder / "corrupt.jpg").write_bytes(b"\xff\xd8\xff\xe0" + bytes(200))
    (folder / "empty.png").write_bytes(b"")
    (folder / "text.jpg").write_text("no image")
    Image.new("L", (400, 300)).save(folder / "huge.png")
    (folder / "notes.txt").write_text("not even called one")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10_000)  # Pillow refuses twice as many
    files = ImageFolder(folder, size=(12, 12))
    with pytest.raises(ValueError, match=r"(corrupt|empty|huge|text|truncated)\.\w+ cannot be read as an image"):
        quick(files)
    found = quick(files, skip_unreadable=True, drop_unusable=True).metadata
    names = [Path(text.split(" cannot")[0]).name for text in found["unreadable"]]
    assert names == ["corrupt.jpg", "empty.png", "huge.png", "text.jpg", "truncated.png"]
    assert found["train_images"] + found["validation"]["images"] == readable
