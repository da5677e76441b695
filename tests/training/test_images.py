"""The images that fit takes, whatever holds them, and those that it refuses or skips."""

from __future__ import annotations

import io
import random
import tarfile
from functools import partial
from pathlib import Path

import fits
import numpy as np
import pytest
import torch
from fits import Killed, Mortal, Stream, assert_same, differs
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from samples import blobs
from torch.utils.data import DataLoader, Dataset, TensorDataset

from unshift import apply
from unshift.data import ImageFolder, open_images, open_source
from unshift.data.reading import open_reader
from unshift.training import fitting
from unshift.training.images import shifted_copies, survey

quick = partial(fits.quick, epochs=2)
once = partial(fits.quick, epochs=1)


def save_images(folder: Path, images: torch.Tensor) -> Path:
    folder.mkdir(exist_ok=True)
    for i, image in enumerate(images):
        Image.fromarray(image[0].numpy()).save(folder / f"{i:03}.png")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory, pixels) -> Path:
    return save_images(tmp_path_factory.mktemp("photos"), pixels)


class RandomItems(Dataset):
    """A data set that draws from all global generators."""

    def __init__(self, images) -> None:
        self.images = images.float() / 255

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index] * (0.5 + torch.rand(1) * random.random()) + 0.01 * np.random.rand()


# --- the same weights ------------------------------------------------------------------------------


def test_every_container_gives_the_same_weights(images):
    pixels = (255 * images).round().to(torch.uint8)
    labels = torch.arange(len(pixels))
    wanted = once(pixels)
    assert_same(once(pixels.float() / 255), wanted)
    assert_same(once(pixels.numpy()), wanted)
    assert_same(once(pixels.numpy()[:, :, ::-1][:, :, ::-1]), wanted)  # not contiguous
    assert_same(once(TensorDataset(pixels, labels)), wanted)
    assert_same(once([(image, 7) for image in pixels]), wanted)
    assert_same(once([image.numpy() for image in pixels]), wanted)
    assert_same(once(DataLoader(TensorDataset(pixels, labels), batch_size=7)), wanted)


def test_a_folder_gives_the_weights_of_its_tensor(folder, pixels):
    wanted = once(pixels.expand(-1, 3, -1, -1).contiguous())
    assert_same(once(folder), wanted)
    assert_same(once(str(folder)), wanted)
    assert_same(once(ImageFolder(folder, channels=1)), once(pixels))


@pytest.mark.parametrize("size", [(16,), (6, 7, 5)])
def test_signals_and_volumes(size):
    restorer = quick(blobs(20, 2, size), epochs=1)
    assert restorer(blobs(20, 2, size)[:3]).shape == (3, 2, *size)
    assert (restorer.trained_on["size"], restorer.trained_on["channels"]) == (list(size), 2)
    assert restorer.trained_on.keys() == {"size", "channels", "range", "background", "prints"}


def test_workers_do_not_matter(pixels):
    assert_same(once(DataLoader(RandomItems(pixels), num_workers=2)), once(RandomItems(pixels)))


def test_random_items_follow_the_seed_and_change_every_epoch(pixels):
    first = once(RandomItems(pixels))
    assert_same(once(RandomItems(pixels)), first)
    assert differs(once(RandomItems(pixels), seed=1), first)
    reader = open_reader(RandomItems(pixels))
    rows = [torch.arange(4)]
    one, again, other = (next(reader.read(rows, seed=seed))[0] for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


@pytest.mark.slow  # workers start anew for every pass
def test_a_stream_gives_the_same_weights_with_workers(pixels):
    assert_same(once(DataLoader(Stream(pixels), batch_size=7, num_workers=2)), once(Stream(pixels)))


def test_a_stream_gives_the_same_weights_in_any_batches(pixels):
    wanted = once(Stream(pixels))
    assert_same(once(DataLoader(Stream(pixels.split(7)), batch_size=None)), wanted)
    assert wanted.metadata["train_images"] == 54
    assert differs(wanted, once(pixels))  # another random order


@pytest.mark.parametrize("kind", [pytest.param("workers", marks=pytest.mark.slow), "stream", "random items"])
def test_resuming_within_an_epoch(kind, folder, pixels, tmp_path, monkeypatch):
    data, options = {
        "workers": (ImageFolder(folder, channels=1), {"workers": 2}),
        "stream": (Stream(pixels), {}),
        "random items": (RandomItems(pixels), {}),
    }[kind]
    wanted = quick(data, **options)  # 4 steps an epoch: the sixth save is within the second one
    with monkeypatch.context() as patch:
        patch.setattr(fitting, "Checkpoint", Mortal)
        patch.setattr(Mortal, "life", 6)
        with pytest.raises(Killed):
            quick(data, **options, checkpoint=tmp_path / "state")
    assert_same(quick(data, **options, checkpoint=tmp_path / "state", resume=True), wanted)


def test_shards_are_read_like_a_folder(folder, pixels, tmp_path):
    paths = sorted(folder.iterdir())
    for number, part in enumerate((paths[:25], paths[25:])):
        with tarfile.open(tmp_path / f"{number:04}.tar", "w") as shard:
            for path in part:
                shard.add(path, path.name)
                text = tarfile.TarInfo(f"{path.stem}.txt")
                text.size = 5
                shard.addfile(text, io.BytesIO(b"label"))
    source = open_source(tmp_path, channels=1)
    assert torch.equal(source.load().images, pixels)
    assert_same(quick(source.images), quick(pixels))
    assert len(open_images(tmp_path / "0000.tar")) == 25
    content = (tmp_path / "0001.tar").read_bytes()
    (tmp_path / "0001.tar").write_bytes(content[:700])
    with pytest.raises(ValueError, match=r"0001\.tar"):
        open_source(tmp_path)


# --- images without a position ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (5, "int"),
        (torch.rand(4, 4), "spatial"),
        (torch.rand(4, 1, 5, 5, dtype=torch.complex64), "real"),
        (torch.full((4, 1, 5, 5), torch.nan), "NaN"),
        ([torch.rand(1, 5, 5).numpy(), torch.rand(1, 5, 6).numpy()], "shape"),
        (torch.rand(1, 1, 5, 5), "two images, got 1"),
        (torch.rand(0, 1, 5, 5), "two images, got 0"),
        (TensorDataset(torch.rand(0, 1, 5, 5)), "two images, got 0"),
    ],
)
def test_invalid_images(data, message):
    with pytest.raises(ValueError, match=message):
        quick(data)


def test_constant_images_are_refused_and_counted(images):
    mixed = torch.cat([images[:10], torch.ones(2, 1, 12, 12), images[10:], torch.zeros(1, 1, 12, 12)])
    with pytest.raises(ValueError, match=r"3 of 63 .* number 10\b"):
        quick(mixed)
    colours = blobs(10, 3, (8, 8))
    colours[4] = torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1)
    with pytest.raises(ValueError, match=r"1 of 10 .* number 4\b"):
        quick(colours)


def test_shifted_copies_are_refused_and_counted(images):
    copies = apply(images[:4], torch.tensor([[0, 1], [3, 0], [-2, 5], [11, 11]]))
    with pytest.raises(ValueError, match=r"4 of 64 .* number 60\b"):
        quick(torch.cat([images, copies]))
    assert quick(torch.cat([images, images[:5]])).metadata["train_images"] == 65 - round(6.5)  # repeats are accepted


def test_unusable_images_are_dropped_on_request(images):
    copies = apply(images[:4], torch.ones(4, 2, dtype=torch.int64))
    mixed = torch.cat([images[:7], torch.ones(2, 1, 12, 12), images[7:], copies])
    assert_same(quick(mixed, drop_unusable=True), quick(images))
    nothing = torch.cat([images[:1], torch.ones(3, 1, 12, 12), apply(images[:1], torch.tensor([[1, 1]]))])
    with pytest.raises(ValueError, match="fewer than two of the 5"):
        quick(nothing, drop_unusable=True)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_shifted_copies_against_brute_force(data):
    height, width, channels = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4)), data.draw(st.integers(1, 2))
    count = data.draw(st.integers(0, 8))
    n = count * channels * height * width
    values = data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
    images = torch.tensor(values, dtype=torch.uint8).view(count, channels, height, width)
    wanted, firsts = [], []
    for j, image in enumerate(images):
        shifts = [image.roll((a, b), (1, 2)) for a in range(height) for b in range(width)]
        first = next((f for f in firsts if any(torch.equal(images[f], moved) for moved in shifts)), None)
        if first is None:
            firsts.append(j)
        elif not torch.equal(images[first], image):
            wanted.append(j)
    for pixels in (images, images.float() - 0.5):
        reader = open_reader(pixels)
        surveyed = survey(reader)
        surveyed.constant[:] = False
        assert shifted_copies(surveyed, reader) == wanted


# --- streams and files that cannot be read ---------------------------------------------------------


def test_a_stream_must_be_the_same_each_time(pixels):
    class Ending(Stream):
        passes = 0

        def __iter__(self):
            Ending.passes += 1
            return iter(self.images if Ending.passes < 3 else self.images[:40])

    class Permuted(Stream):
        def __iter__(self):
            return iter(self.images[torch.randperm(60)])

    class Rolled(Stream):
        turn = 0

        def __iter__(self):
            Rolled.turn += 1
            return iter(self.images.roll(Rolled.turn, 0))

    quick(Permuted(pixels))  # draws from PyTorch's generator, which is seeded for each pass
    with pytest.raises(ValueError, match="ended early"):
        quick(Ending(pixels))
    with pytest.raises(ValueError, match="image 0 "):
        quick(Rolled(pixels))


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_broken_file_is_named_or_skipped(pixels, tmp_path, workers):
    folder = save_images(tmp_path, pixels)
    (folder / "007.png").write_bytes((folder / "007.png").read_bytes()[:60])
    (folder / "031.png").write_text("not an image")
    files = ImageFolder(folder, channels=1)
    with pytest.raises(ValueError, match=r"^[^\n]*007\.png[^\n]*$"):
        once(files, workers=workers)
    restorer = once(files, workers=workers, skip_unreadable=True)
    assert restorer.metadata["train_images"] + restorer.metadata["validation"]["images"] == 58
    assert [Path(text.split(" cannot")[0]).name for text in restorer.metadata["unreadable"]] == ["007.png", "031.png"]
    assert_same(restorer, once(pixels[[i for i in range(60) if i not in (7, 31)]]))
    (folder / "000.png").write_text("nothing")
    assert len(once(folder, workers=workers, skip_unreadable=True).metadata["unreadable"]) == 3


def test_unusable_files_are_named(pixels, tmp_path):
    folder = save_images(tmp_path / "files", torch.cat([pixels, apply(pixels[3:4], torch.tensor([[2, 5]]))]))
    with pytest.raises(ValueError, match=r"1 of 61 .*060\.png"):
        once(folder)
    Image.new("L", (12, 12), 7).save(folder / "black.png")
    with pytest.raises(ValueError, match=r"1 of 62 .*black\.png"):
        once(folder)
    assert_same(once(ImageFolder(folder, channels=1), drop_unusable=True), once(pixels))
    Image.new("L", (12, 9), 7).save(folder / "small.png")
    with pytest.raises(ValueError, match=r"000\.png has \(3, 12, 12\), .*small\.png has \(3, 9, 12\)"):
        once(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty"):
        once(tmp_path / "empty")
