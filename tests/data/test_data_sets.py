"""Named data sets: official bytes, embedded, downloaded or refused by name."""

from __future__ import annotations

import gzip
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from mirrors import md5, tar_of, tree

from unshift import data
from unshift.data import catalogue, files, mnist
from unshift.data.entry import Entry
from unshift.data.files import DataError, File


def small_mnist(url: str) -> Entry:
    """Return MNIST with the embedded 10,000 as its training split and a test split to download, at a mirror of ours."""

    def moved(file: File) -> File:
        return replace(file, path=f"mnist/{file.name}", download_md5=md5(file.shipped.read_bytes()), shipped=None)

    kept = mnist.MNIST_10K
    files = {split: tuple(map(moved, kept.files[split])) for split in ("train", "test")}
    return replace(mnist.MNIST, counts=kept.counts, files=files, mirrors=(f"{url}/dead/", f"{url}/mnist/"))


@pytest.fixture
def mirrored(server, monkeypatch):
    """A mirror that has the small MNIST, in the catalogue as `mnist`."""
    monkeypatch.setitem(catalogue.DATASETS, "mnist", small_mnist(server.url))
    for file in mnist.MNIST_10K.all_files():
        server.content[f"/mnist/{file.name}"] = file.shipped.read_bytes()
    return server


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_embedded_mnist_is_there(root, split):
    digits = data.dataset("mnist-10k", split)
    assert digits.images.shape == (10_000, 1, 28, 28)
    assert digits.images.dtype == torch.uint8
    assert digits.labels.dtype == torch.int64
    assert digits.labels[:6].tolist() == {"train": [5, 0, 4, 1, 9, 2], "test": [7, 2, 1, 0, 4, 1]}[split]
    assert digits.name == f"mnist-10k/{split}"
    assert not root.exists()


def test_mnist_test_needs_no_download(root):
    full, part = data.dataset("mnist", "test", download=False), data.dataset("mnist-10k", "test")
    assert torch.equal(full.images, part.images)
    assert torch.equal(full.labels, part.labels)
    assert full.name == "mnist/test"
    assert not root.exists()


def test_get_downloads_verifies_and_then_needs_no_network(root, mirrored):
    rows = {row.name: row for row in data.status()}
    assert not rows["mnist"].present
    assert rows["mnist"].size == 9_941_303
    assert rows["mnist-10k"].present
    with pytest.raises(DataError, match=r"mnist is not in .*unshift data get mnist"):
        data.dataset("mnist", "train", download=False)
    assert data.get("mnist") == root / "mnist"
    asked = len(mirrored.log)
    assert asked == 8  # four files, the dead mirror first
    assert torch.equal(data.dataset("mnist").images, data.dataset("mnist-10k").images)
    assert len(mirrored.log) == asked
    row = next(row for row in data.status() if row.name == "mnist")
    assert (row.present, row.where, row.licence) == (True, root / "mnist", "CC BY-SA 3.0")
    assert 3_000_000 < row.size < 4_000_000


def test_a_failed_download_names_the_data_set_and_the_place(server, monkeypatch):
    monkeypatch.setitem(catalogue.DATASETS, "mnist", small_mnist(server.url))
    with pytest.raises(DataError, match=r"cannot download mnist to .*mnist: .*404") as caught:
        data.dataset("mnist", "train")
    assert "\n" not in str(caught.value)


def test_cifar_from_its_archive(root, server, monkeypatch):
    rng = np.random.default_rng(1)
    labels, pixels_ = rng.integers(0, 10, (6, 4)), rng.integers(0, 256, (6, 4, 3, 32, 32))
    cifar10 = catalogue.DATASETS["cifar10"]
    names = [file.path for file in cifar10.all_files()]
    contents = {
        name: np.concatenate([label[:, None], planes.reshape(4, -1)], 1).astype(np.uint8).tobytes()
        for name, label, planes in zip(names, labels, pixels_, strict=True)
    }
    made = tuple(File(name, len(content), md5(content)) for name, content in contents.items())
    packed = tar_of(contents | {"cifar-10-batches-bin/readme.html": b""})
    server.content["/c.tar.gz"] = packed
    small = replace(
        cifar10,
        counts={"train": 20, "test": 4},
        files={"train": made[:5], "test": made[5:]},
        mirrors=(f"{server.url}/c.tar.gz",),
        archive_md5=md5(packed),
    )
    monkeypatch.setitem(catalogue.DATASETS, "cifar10", small)
    test, train = data.dataset("cifar10", "test"), data.dataset("cifar10", "train")
    assert tree(root) == set(names)
    assert np.array_equal(train.images, pixels_[:5].reshape(20, 3, 32, 32))
    assert train.labels.tolist() == labels[:5].ravel().tolist()
    assert np.array_equal(test.images, pixels_[5])
    assert len(server.log) == 1


@pytest.mark.parametrize("damage", ["cut", "flip", "longer", "empty", "not gzip"])
def test_a_damaged_file_is_named_with_what_to_do(root, damage):
    path = root / "mnist" / "t10k-images-idx3-ubyte.gz"
    path.parent.mkdir(parents=True)
    packed = mnist.MNIST.files["test"][0].shipped.read_bytes()
    content = gzip.decompress(packed)
    path.write_bytes(
        {
            "cut": packed[:-1000],
            "flip": gzip.compress(content[:5000] + b"\x01" + content[5001:], 1),
            "longer": gzip.compress(content + b"\0", 1),
            "empty": b"",
            "not gzip": b"hello",
        }[damage]
    )
    with pytest.raises(DataError) as caught:
        data.dataset("mnist", "test")
    assert f"{path} is damaged" in str(caught.value)
    assert f"delete {path} and run `unshift data get mnist`" in str(caught.value)


def test_a_damaged_embedded_file_says_reinstall(tmp_path, monkeypatch):
    broken = tmp_path / "images.gz"
    broken.write_bytes(gzip.compress(b"?"))
    files = {"train": (replace(mnist.MNIST_10K.files["train"][0], shipped=broken),)}
    monkeypatch.setitem(catalogue.DATASETS, "mnist-10k", replace(mnist.MNIST_10K, files=files))
    with pytest.raises(DataError, match="reinstall unshift"):
        data.dataset("mnist-10k", "train")


def test_the_data_folder_is_the_variable_or_the_cache(monkeypatch):
    monkeypatch.setenv("UNSHIFT_DATA", "~/somewhere")
    assert files.root() == Path.home() / "somewhere"
    for unset in ("", None):
        monkeypatch.setenv("UNSHIFT_DATA", unset) if unset == "" else monkeypatch.delenv("UNSHIFT_DATA")
        assert files.root() == Path.home() / ".cache" / "unshift"


def test_an_unknown_name_lists_those_there_are():
    with pytest.raises(
        ValueError, match=r"^no data set named 'mnist4' \(did you mean mnist\?\); there are .*mnist, mnist-"
    ):
        data.dataset("mnist4")
    for name in ("imagenet", "", "a/../.."):
        with pytest.raises(ValueError, match=f"^no data set named '{name}'; there are .*mnist, .*cifar10.*$"):
            data.dataset(name)
    with pytest.raises(ValueError, match="no split named 'val'; there are train and test"):
        data.dataset("mnist", "val")


def test_idx_says_what_is_wrong():
    assert mnist.read_idx(struct.pack(">4B3I6B", 0, 0, 8, 3, 1, 2, 3, *range(6))).shape == (1, 2, 3)
    with pytest.raises(DataError, match="00 00 08"):
        mnist.read_idx(b"\0\0\x0d\x01")


def test_a_new_data_set_is_one_entry(monkeypatch):
    """What a file of its own would hold, and the one line that puts it into the catalogue."""

    def read(split, contents):
        count = {"train": 6, "test": 2}[split]
        return torch.arange(count * 16).reshape(count, 1, 4, 4).to(torch.uint8), torch.arange(count) % 2

    toy = Entry(
        name="toy",
        about="ramps",
        licence="CC0",
        classes=("even", "odd"),
        shape=(1, 4, 4),
        counts={"train": 6, "test": 2},
        read=read,
    )
    monkeypatch.setitem(catalogue.DATASETS, "toy", toy)
    assert data.dataset("toy", "test").images.shape == (2, 1, 4, 4)
    assert data.open_images("toy", size=(8, 8)).images.shape == (6, 1, 8, 8)
    row = data.status()[-1]
    assert (row.name, row.present, row.about) == ("toy", True, "ramps, 4x4 grey, 6 + 2")
    wrong = replace(toy, counts={"train": 7, "test": 2})
    monkeypatch.setitem(catalogue.DATASETS, "toy", wrong)
    with pytest.raises(AssertionError, match=r"promises images \(7, 1, 4, 4\), read \(6, 1, 4, 4\)"):
        data.dataset("toy")


def need(name: str) -> None:
    """Skip unless the full data set is on this machine."""
    if not next(row for row in data.status() if row.name == name).present:
        pytest.skip(f"the full {name} is not in {files.root()}; download it with `unshift data get {name}`")


@pytest.mark.slow
@pytest.mark.data
def test_the_embedded_mnist_is_the_official_one_bit_for_bit(tmp_path):
    need("mnist")
    for split in ("train", "test"):
        full, part = data.dataset("mnist", split), data.dataset("mnist-10k", split)
        assert torch.equal(full.images[:10_000], part.images)
        assert torch.equal(full.labels[:10_000], part.labels)
    mnist.make_embedded(files.root() / "mnist", tmp_path)  # checks every md5 itself


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "train", "size", "first"),
    [
        ("mnist", 60_000, (1, 28, 28), [5, 0, 4, 1, 9]),
        ("fashion-mnist", 60_000, (1, 28, 28), [9, 0, 0, 3, 0]),
        ("cifar10", 50_000, (3, 32, 32), [6, 9, 9, 4, 1]),
    ],
)
def test_the_full_datasets_load(name, train, size, first):
    need(name)
    for split, count in (("train", train), ("test", 10_000)):
        found = data.dataset(name, split, download=False)
        assert found.images.shape == (count, *size)
        assert found.images.dtype == torch.uint8
        assert found.labels.shape == (count,)
        assert found.labels.unique().tolist() == list(range(len(found.classes)))
        if split == "train":
            assert found.labels[:5].tolist() == first
            assert found.labels.bincount().unique().numel() == (10 if name == "mnist" else 1)
