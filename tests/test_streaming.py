"""Images read as they are needed: the same weights from whatever holds them, however many processes read."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
import tarfile
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from fits import assert_same, differs
from PIL import Image
from samples import blobs
from test_checkpoint import Killed, Mortal
from torch.utils.data import DataLoader, Dataset, IterableDataset

import unshift
from unshift import apply, fit, training
from unshift.data import ImageFolder, open_images, open_source
from unshift.data.reading import WINDOW, open_reader
from unshift.evaluation import accuracy_over_scopes, restoration_rates


@pytest.fixture(autouse=True)
def hush():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "after one epoch the loss", UserWarning)
        yield


@pytest.fixture(scope="module")
def pixels() -> torch.Tensor:
    return (400 * blobs(60, 1, (12, 12))).round().to(torch.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, pixels) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for i, image in enumerate(pixels):
        Image.fromarray(image[0].numpy()).save(folder / f"{i:03}.png")
    return folder


def quick(data, preset="paper", **options):
    return fit(data, preset, **{"epochs": 2, "batch_size": 16, "progress": False, **options})


class Stream(IterableDataset):
    def __init__(self, images) -> None:
        self.images = images

    def __iter__(self):
        return iter(self.images)


class Dice(Dataset):
    """A data set that draws at random, from every generator there is."""

    def __init__(self, images) -> None:
        self.images = images.float() / 255

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index] * (0.5 + torch.rand(1) * random.random()) + 0.01 * np.random.rand()


# --- the same weights ---------------------------------------------------------------------------------


def test_a_folder_gives_the_weights_of_its_tensor(folder, pixels):
    colour = pixels.expand(-1, 3, -1, -1).contiguous()
    wanted = quick(colour)
    assert_same(quick(folder), wanted)
    assert_same(quick(str(folder)), wanted)
    assert_same(quick(ImageFolder(folder, channels=1)), quick(pixels))


@pytest.mark.parametrize("workers", [1, 3])
def test_the_number_of_workers_does_not_show(folder, pixels, workers):
    assert_same(quick(ImageFolder(folder, channels=1), workers=workers), quick(pixels))
    assert_same(quick(DataLoader(Dice(pixels), num_workers=workers)), quick(Dice(pixels)))


def test_what_a_data_set_draws_follows_from_the_seed_and_is_new_in_every_epoch(pixels):
    first = quick(Dice(pixels))
    assert_same(quick(Dice(pixels)), first)
    assert differs(quick(Dice(pixels), seed=1), first)
    reader = open_reader(Dice(pixels))
    rows = [torch.arange(4)]
    one, again, other = (next(reader.read(rows, seed=seed))[0] for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_a_stream_gives_the_same_weights_in_this_process_and_beside_it(pixels):
    wanted = quick(Stream(pixels))
    assert_same(quick(DataLoader(Stream(pixels), batch_size=7, num_workers=2)), wanted)
    assert_same(quick(DataLoader(Stream(pixels.split(7)), batch_size=None)), wanted)
    # Fewer than a window: the order is as random as that of a tensor, but not the same one.
    assert wanted.metadata["train_images"] == 54
    assert differs(wanted, quick(pixels))


def test_a_stream_is_shuffled_within_windows():
    reader = open_reader(Stream(torch.zeros(0, 1, 2, 2)))
    rows = torch.randperm(3 * WINDOW)
    order = reader.shuffled(rows, torch.Generator().manual_seed(0))
    assert not torch.equal(order, order.sort().values)
    for at, part in enumerate(order.split(WINDOW)):
        assert torch.equal(part.sort().values, torch.arange(at * WINDOW, (at + 1) * WINDOW))


@pytest.mark.parametrize("kind", ["folder", "workers", "stream", "dice"])
def test_resuming_within_an_epoch_gives_the_weights_of_the_run_that_was_not_killed(
    kind, folder, pixels, tmp_path, monkeypatch
):
    data, options = {
        "folder": (ImageFolder(folder, channels=1), {}),
        "workers": (ImageFolder(folder, channels=1), {"workers": 2}),
        "stream": (Stream(pixels), {}),
        "dice": (Dice(pixels), {}),
    }[kind]
    wanted = quick(data, **options)  # 4 steps an epoch: the second save is within the first one
    for life in (2, 6):
        with monkeypatch.context() as patch:
            patch.setattr(training, "Checkpoint", Mortal)
            patch.setattr(Mortal, "life", life)
            with pytest.raises(Killed):
                quick(data, **options, checkpoint=tmp_path / "state")
        assert_same(quick(data, **options, checkpoint=tmp_path / "state", resume=True), wanted)


def test_shards_are_read_like_a_folder(folder, pixels, tmp_path):
    paths = sorted(folder.iterdir())
    for number, some in enumerate((paths[:25], paths[25:])):
        with tarfile.open(tmp_path / f"{number:04}.tar", "w") as shard:
            for path in some:
                shard.add(path, path.name)
                text = tarfile.TarInfo(f"{path.stem}.txt")
                text.size = 5
                shard.addfile(text, io.BytesIO(b"label"))
    found = open_source(tmp_path, channels=1)
    assert torch.equal(found.load().images, pixels)
    assert_same(quick(found.images, workers=1), quick(pixels))
    assert len(open_images(tmp_path / "0000.tar")) == 25
    content = (tmp_path / "0001.tar").read_bytes()
    (tmp_path / "0001.tar").write_bytes(content[:700])
    with pytest.raises(ValueError, match=r"0001\.tar cannot be read as a tar archive"):
        open_source(tmp_path)


# --- what is refused, and what is skipped ---------------------------------------------------------------


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


# --- measuring ------------------------------------------------------------------------------------------


def test_rates_and_accuracies_are_those_of_the_tensor(folder, pixels):
    restorer = quick(pixels, "dense")
    files = ImageFolder(folder, channels=1)
    assert restoration_rates(restorer, files, batch_size=7) == restoration_rates(restorer, pixels, batch_size=7)
    labels = torch.arange(60) % 5
    weights = torch.rand(144, 5, generator=torch.Generator().manual_seed(0))

    def classifier(images):
        return images.flatten(1).float() @ weights

    wanted = accuracy_over_scopes(classifier, pixels, labels, restorer, scopes=(0, 2), seeds=(0, 1), batch_size=16)
    assert (
        accuracy_over_scopes(classifier, files, labels, restorer, scopes=(0, 2), seeds=(0, 1), batch_size=9) == wanted
    )


# --- files of every kind, and very many of them -----------------------------------------------------------


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


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss counts otherwise elsewhere")
def test_memory_does_not_grow_with_the_number_of_images():
    """100 photos of 224x224, and 10,000 of them, cut out of one."""
    source = (
        "import resource, sys, torch, unshift\n"
        "torch.set_num_threads(1)\n"
        "photo = torch.randint(256, (3, 600, 600), dtype=torch.uint8)\n"
        "class Crops(torch.utils.data.Dataset):\n"
        "    def __len__(self): return int(sys.argv[1])\n"
        "    def __getitem__(self, i): return photo[:, i // 300:, i % 300:][:, :224, :224]\n"
        "net = unshift.ShiftEstimator(3, channels=(4,), kernel_size=(3, 3), bias=True, line_channels=(8, 1),\n"
        "                             line_kernel_size=(9, 9))\n"
        "unshift.fit(Crops(), net, epochs=1, batch_size=16, validation=10, progress=False)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(unshift.__file__).parents[1]), "PYTHONWARNINGS": "ignore"}
    peaks = [
        int(
            subprocess.run(
                [sys.executable, "-c", source, str(count)], env=environment, capture_output=True, text=True, check=True
            ).stdout
        )
        for count in (100, 10_000)
    ]
    assert peaks[1] < 1.1 * peaks[0], peaks
