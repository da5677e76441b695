"""Images read as they are needed: the same weights from whatever holds them, however many processes read."""

from __future__ import annotations

import io
import random
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from fits import Killed, Mortal, assert_same, differs
from memory import peak
from PIL import Image
from streams import Stream, quick
from torch.utils.data import DataLoader, Dataset

from unshift import training
from unshift.data import ImageFolder, open_images, open_source
from unshift.data.reading import WINDOW, open_reader
from unshift.evaluation import accuracy_over_scopes, restoration_rates


@pytest.fixture(scope="module")
def folder(tmp_path_factory, pixels) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for i, image in enumerate(pixels):
        Image.fromarray(image[0].numpy()).save(folder / f"{i:03}.png")
    return folder


class Dice(Dataset):
    """A data set that draws at random, from every generator there is."""

    def __init__(self, images) -> None:
        self.images = images.float() / 255

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index] * (0.5 + torch.rand(1) * random.random()) + 0.01 * np.random.rand()


# --- the same weights ------------------------------------------------------------------------------


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


# --- measuring -------------------------------------------------------------------------------------


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


# --- files of every kind, and very many of them ----------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss counts otherwise elsewhere")
def test_memory_does_not_grow_with_the_number_of_images():
    """100 photos of 224x224, and 10,000 of them, cut out of one."""
    source = (
        "import sys, torch, unshift\n"
        "torch.set_num_threads(1)\n"
        "photo = torch.randint(256, (3, 600, 600), dtype=torch.uint8)\n"
        "class Crops(torch.utils.data.Dataset):\n"
        "    def __len__(self): return int(sys.argv[1])\n"
        "    def __getitem__(self, i): return photo[:, i // 300:, i % 300:][:, :224, :224]\n"
        "net = unshift.ShiftEstimator(3, channels=(4,), kernel_size=(3, 3), bias=True, line_channels=(8, 1),\n"
        "                             line_kernel_size=(9, 9))\n"
        "unshift.fit(Crops(), net, epochs=1, batch_size=16, validation=10, progress=False)"
    )
    peaks = [peak("-c", source, count)[0] for count in (100, 10_000)]
    assert peaks[1] < 1.1 * peaks[0], peaks
