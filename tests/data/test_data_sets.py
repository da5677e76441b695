"""Named data sets: embedded, downloaded and checked, or refused by name. Downloads leave a whole file or none."""

from __future__ import annotations

import gzip
import hashlib
import io
import signal
import socket
import struct
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from unshift import data
from unshift.data import catalogue, files, mnist
from unshift.data.files import DataError, Entry, File


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


NOISE = np.random.default_rng(0).bytes(500_000)
BLOB = File("set/blob.bin", len(NOISE), md5(NOISE), md5(NOISE))


def tree(folder: Path) -> set[str]:
    """Return the files in `folder`, the lock aside."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != ".download.lock")
    return {path.relative_to(folder).as_posix() for path in paths}


def tar_of(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def small_mnist(url: str) -> Entry:
    """Return MNIST with the embedded 10,000 as its training split, to download from a local mirror."""

    def moved(file: File) -> File:
        path = f"mnist/{Path(file.path).name}"
        return replace(file, path=path, download_md5=md5(file.shipped.read_bytes()), shipped=None)

    embedded = mnist.MNIST_10K
    files = {split: tuple(map(moved, embedded.files[split])) for split in ("train", "test")}
    return replace(mnist.MNIST, counts=embedded.counts, files=files, mirrors=(f"{url}/dead/", f"{url}/mnist/"))


@pytest.fixture
def mirrored(server, monkeypatch):
    """Serve the small MNIST, as `mnist` in the catalogue."""
    monkeypatch.setitem(catalogue.DATASETS, "mnist", small_mnist(server.url))
    for file in mnist.MNIST_10K.all_files():
        server.content[f"/mnist/{Path(file.path).name}"] = file.shipped.read_bytes()
    return server


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_embedded_mnist_loads_without_a_data_folder(root, split):
    digits = data.dataset("mnist-10k", split)
    assert digits.images.shape == (10_000, 1, 28, 28)
    assert digits.images.dtype == torch.uint8
    assert digits.labels.dtype == torch.int64
    assert digits.labels[:6].tolist() == {"train": [5, 0, 4, 1, 9, 2], "test": [7, 2, 1, 0, 4, 1]}[split]
    assert digits.name == f"mnist-10k/{split}"
    full = data.dataset("mnist", "test", download=False)  # its official files are embedded, too
    assert split == "train" or (torch.equal(full.images, digits.images) and torch.equal(full.labels, digits.labels))
    assert not root.exists()


def test_get_downloads_verifies_and_then_needs_no_network(root, mirrored):
    entry = catalogue.find("mnist")
    assert not entry.present()
    assert entry.size() == 9_941_303
    with pytest.raises(DataError, match="unshift data get mnist"):
        data.dataset("mnist", "train", download=False)
    mirrored.failures["/mnist/train-labels-idx1-ubyte.gz"] = "503"
    with pytest.raises(DataError, match=r"mnist to .*mnist: .*503") as caught:
        data.get("mnist")
    assert "\n" not in str(caught.value)
    mirrored.failures.clear()
    mirrored.log.clear()
    assert data.get("mnist") == root / "mnist"
    assert len(mirrored.log) == 6  # three files are missing; the dead mirror is tried first
    assert torch.equal(data.dataset("mnist").images, data.dataset("mnist-10k").images)
    assert len(mirrored.log) == 6
    assert entry.present()
    assert entry.folder() == root / "mnist"
    assert 3_000_000 < entry.size() < 4_000_000


def test_cifar_batches_hold_a_label_and_three_planes_per_image():
    rng = np.random.default_rng(1)
    labels, images = rng.integers(0, 10, (2, 4)), rng.integers(0, 256, (2, 4, 3, 32, 32))
    contents = [
        np.concatenate([label[:, None], planes.reshape(4, -1)], 1).astype(np.uint8).tobytes()
        for label, planes in zip(labels, images, strict=True)
    ]
    read_images, read_labels = catalogue.find("cifar10").read("train", contents)
    assert np.array_equal(read_images, images.reshape(8, 3, 32, 32))
    assert read_labels.tolist() == labels.ravel().tolist()


@pytest.mark.parametrize("damage", ["cut", "flip", "longer", "empty", "not gzip"])
def test_a_damaged_file_is_named_with_the_command_that_replaces_it(root, damage):
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
    with pytest.raises(DataError, match=f"{path} is damaged.*unshift data get mnist"):
        data.dataset("mnist", "test")


def test_the_data_folder_is_the_variable_or_the_cache(monkeypatch):
    monkeypatch.setenv("UNSHIFT_DATA", "~/somewhere")
    assert files.root() == Path.home() / "somewhere"
    monkeypatch.setenv("UNSHIFT_DATA", "")
    assert files.root() == Path.home() / ".cache" / "unshift"
    monkeypatch.delenv("UNSHIFT_DATA")
    assert files.root() == Path.home() / ".cache" / "unshift"


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"'mnist4' \(did you mean mnist\?\).*mnist, mnist-"):
        data.dataset("mnist4")
    for name in ("imagenet", "", "a/../.."):
        with pytest.raises(ValueError, match=f"'{name}'.*mnist, .*cifar10"):
            data.dataset(name)
    with pytest.raises(ValueError, match=r"'val'.*train and test"):
        data.dataset("mnist", "val")


def test_idx_files_are_parsed_or_refused():
    assert mnist.read_idx(struct.pack(">4B3I6B", 0, 0, 8, 3, 1, 2, 3, *range(6))).shape == (1, 2, 3)
    with pytest.raises(DataError, match="00 00 08"):
        mnist.read_idx(b"\0\0\x0d\x01")


# --- downloads --------------------------------------------------------------------------------


def test_download_puts_the_file_in_its_place_and_nothing_else(root, server, capfd):
    server.content["/blob.bin"] = NOISE
    for _ in range(2):
        files.fetch([BLOB], [f"{server.url}/"])
        assert (root / BLOB.path).read_bytes() == NOISE
        assert tree(root) == {BLOB.path}
    assert capfd.readouterr() == ("", "")  # quiet without a terminal
    assert len(server.log) == 1, "a file that is present is not requested again"


def test_the_next_mirror_is_tried_after_each_kind_of_failure(root, server):
    with socket.socket() as unused:  # bound, not listening: a dead host
        unused.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        paths = [f"/{name}/blob.bin" for name in ("none", "broken", "wrong", "dropping", "good", "spare")]
        server.content = dict.fromkeys(paths[1:], NOISE) | {paths[2]: NOISE[:-1] + b"!"}
        server.failures = {paths[1]: "503", paths[3]: "drops"}
        files.fetch([BLOB], [dead, *(server.url + path.removesuffix("blob.bin") for path in paths)])
    assert (root / BLOB.path).read_bytes() == NOISE
    assert server.log == paths[:-1]
    assert tree(root) == {BLOB.path}


def test_if_all_mirrors_fail_the_error_names_each_and_no_file_is_left(root, server):
    server.content |= {"/a/blob.bin": NOISE, "/b/blob.bin": b"<html>log in first</html>"}
    server.failures["/a/blob.bin"] = "503"
    with_password = server.url.replace("http://", "http://someone:password@")
    with pytest.raises(DataError, match=r"/a/blob\.bin: 503.*/b/blob\.bin: MD5") as caught:
        files.fetch([BLOB], [f"{with_password}/a/", f"{server.url}/b/"])
    assert "password" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert tree(root) == set()


def test_a_kill_during_a_download_leaves_no_file_and_the_next_run_cleans_up(root, server):
    server.content["/blob.bin"] = NOISE
    server.failures["/blob.bin"] = "hangs"
    url = f"{server.url}/"
    code = (
        "import sys; from unshift.data.files import File, fetch; "
        "fetch([File('set/blob.bin', 500_000, sys.argv[1], sys.argv[1])], sys.argv[2:])"
    )
    with subprocess.Popen([sys.executable, "-c", code, BLOB.md5, url], cwd=Path(__file__).parents[1]) as process:
        assert server.half_sent.wait(60)
        process.send_signal(signal.SIGKILL)
    assert not (root / BLOB.path).exists()
    server.failures.clear()
    files.fetch([BLOB], [url])
    assert (root / BLOB.path).read_bytes() == NOISE
    assert tree(root) == {BLOB.path}


def test_a_folder_that_is_not_writable_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path / "file" / "below"))
    with pytest.raises(DataError, match=r"below.*UNSHIFT_DATA"):
        files.fetch([BLOB], ["http://127.0.0.1:9/"])


def test_only_missing_files_are_extracted_from_an_archive(root, server):
    members = {"batches/one.bin": b"1" * 100, "batches/two.bin": b"2" * 50}
    wanted = [File(name, len(content), md5(content)) for name, content in members.items()]
    packed = tar_of(members | {"../evil": b"", "batches/readme.html": b"hello"})
    server.content["/a.tar.gz"] = packed
    for _ in range(2):
        files.fetch(wanted, [f"{server.url}/a.tar.gz"], md5(packed))
        assert tree(root) == set(members)
    assert len(server.log) == 1
    (root / "batches/two.bin").unlink()
    files.fetch(wanted, [f"{server.url}/a.tar.gz"], md5(packed))
    assert (root / "batches/two.bin").read_bytes() == members["batches/two.bin"]
    (root / "batches/two.bin").unlink()
    with pytest.raises(DataError, match="MD5"):
        files.fetch(wanted, [f"{server.url}/a.tar.gz"], "0" * 32)
    assert tree(root) == {"batches/one.bin"}


@pytest.mark.parametrize("module", ["pooch", "filelock"])
def test_a_download_without_the_extra_names_it(root, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DataError, match=rf"{module}: pip install 'unshift\[data\]'"):
        files.fetch([BLOB], ["http://127.0.0.1:9/"])
    assert len(data.dataset("mnist-10k", "test")) == 10_000  # the embedded digits need neither


# --- the full data sets ----------------------------------------------------------------------
