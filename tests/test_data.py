"""unshift.data: whole downloads or none, official bytes, and every kind of user file."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import http.server
import io
import pickle
import signal
import socket
import struct
import subprocess
import sys
import tarfile
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from unshift import data
from unshift.data import arrays, catalogue, download, files, mnist, photos, pixels
from unshift.data.entry import Entry
from unshift.data.files import DataError, File

FULL = files.root()  # read before any test moves it


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch, request):
    """Keep every test but the `data` ones away from the user's own data folder, and off the network."""
    if request.node.get_closest_marker("data"):
        monkeypatch.setenv("UNSHIFT_DATA", str(FULL))
        return FULL
    real = socket.getaddrinfo

    def only_here(host, *args, **options):
        assert host == "127.0.0.1", f"a test must not ask the network for {host}"
        return real(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", only_here)
    folder = tmp_path / "unshift-data"
    monkeypatch.setenv("UNSHIFT_DATA", str(folder))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return folder


@dataclass
class Server:
    """A mirror on this machine: `content` by path; each way to misbehave is a set of paths."""

    url: str = ""
    content: dict[str, bytes] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)  # 503
    dropping: set[str] = field(default_factory=set)  # breaks off half way
    hanging: set[str] = field(default_factory=set)  # sends half, then waits
    half_sent: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def server():
    state = Server()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            state.log.append(self.path)
            body = state.content.get(self.path)
            if body is None or self.path in state.broken:
                self.send_error(503 if body else 404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            half = len(body) // 2
            self.wfile.write(body[:half])
            if self.path in state.hanging:
                self.wfile.flush()
                state.half_sent.set()
                state.go_on.wait(20)
            elif self.path not in state.dropping:
                self.wfile.write(body[half:])

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        httpd.daemon_threads = True
        httpd.block_on_close = False
        state.url = f"http://127.0.0.1:{httpd.server_port}"
        thread = threading.Thread(target=httpd.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield state
        state.go_on.set()
        httpd.shutdown()


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


NOISE = np.random.default_rng(0).bytes(500_000)
BLOB = File("set/blob.bin", len(NOISE), md5(NOISE), md5(NOISE))


def tree(folder: Path) -> set[str]:
    """Return the files in `folder`, the lock aside."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != ".download.lock")
    return {path.relative_to(folder).as_posix() for path in paths}


# --- download ---------------------------------------------------------------------------------------


def test_download_puts_the_file_in_its_place_and_nothing_else(root, server, capfd):
    server.content["/blob.bin"] = NOISE
    for _ in range(2):
        download.fetch(BLOB, [f"{server.url}/blob.bin"])
        assert (root / BLOB.path).read_bytes() == NOISE
        assert tree(root) == {BLOB.path}
    assert capfd.readouterr() == ("", "")  # quiet without a terminal
    assert len(server.log) == 1, "a file that is there is not asked for again"


def test_a_gz_stays_packed_and_its_content_is_read(root, server):
    inner = b"digits" * 1000
    packed = gzip.compress(inner, 1)
    file = File("set/a.gz", len(inner), md5(inner), md5(packed))
    server.content["/a.gz"] = packed
    download.fetch(file, [f"{server.url}/a.gz"])
    assert file.place().read_bytes() == packed
    assert files.read(file.place(), file, "") == inner
    file.place().write_bytes(gzip.compress(inner, 9))  # packed again since: the same content counts
    assert files.read(file.place(), file, "") == inner


def test_the_next_mirror_is_tried_when_one_is_dead_broken_wrong_or_breaks_off(root, server):
    with socket.socket() as unused:  # bound, not listening: a dead host
        unused.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{unused.getsockname()[1]}/blob.bin"
        paths = [f"/{name}/blob.bin" for name in ("none", "broken", "wrong", "dropping", "good", "spare")]
        server.content = dict.fromkeys(paths[1:], NOISE) | {paths[2]: NOISE[:-1] + b"!"}
        server.broken.add(paths[1])
        server.dropping.add(paths[3])
        download.fetch(BLOB, [dead, *(server.url + path for path in paths)])
    assert (root / BLOB.path).read_bytes() == NOISE
    assert server.log == paths[:-1]
    assert tree(root) == {BLOB.path}


def test_when_all_mirrors_fail_the_error_gives_the_reason_for_each_and_no_file_is_left(root, server):
    server.content |= {"/a/blob.bin": NOISE, "/b/blob.bin": b"<html>log in first</html>"}
    server.broken.add("/a/blob.bin")
    with_password = server.url.replace("http://", "http://someone:password@")
    with pytest.raises(DataError, match=r"/a/blob\.bin: 503.*/b/blob\.bin: MD5 hash of downloaded file") as caught:
        download.fetch(BLOB, [f"{with_password}/a/blob.bin", f"{server.url}/b/blob.bin"])
    assert "password" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert tree(root) == set()


def test_a_kill_in_mid_download_leaves_no_file_and_the_next_run_clears_up(root, server):
    server.content["/blob.bin"] = NOISE
    server.hanging.add("/blob.bin")
    url = f"{server.url}/blob.bin"
    code = (
        "import sys; from unshift.data.download import fetch; from unshift.data.files import File; "
        "fetch(File('set/blob.bin', 500_000, sys.argv[1], sys.argv[1]), sys.argv[2:])"
    )
    with subprocess.Popen([sys.executable, "-c", code, BLOB.md5, url], cwd=Path(__file__).parents[1]) as process:
        assert server.half_sent.wait(60)
        process.send_signal(signal.SIGKILL)
    assert not (root / BLOB.path).exists()
    server.hanging.clear()
    download.fetch(BLOB, [url])
    assert (root / BLOB.path).read_bytes() == NOISE
    assert tree(root) == {BLOB.path}, "what the killed run left behind is cleared away"


def test_many_at_once_download_once(root, server):
    server.content["/blob.bin"] = NOISE
    threads = [threading.Thread(target=download.fetch, args=(BLOB, [f"{server.url}/blob.bin"])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(server.log) == 1
    assert (root / BLOB.path).read_bytes() == NOISE


def test_a_folder_that_cannot_be_written_is_said_so(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path / "file" / "below"))
    with pytest.raises(DataError, match=r"cannot write to .*below.*set UNSHIFT_DATA"):
        download.fetch(BLOB, ["http://127.0.0.1:9/blob.bin"])


def tar_of(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def test_of_an_archive_only_what_is_wanted_and_missing_is_taken(root, server):
    members = {"batches/one.bin": b"1" * 100, "batches/two.bin": b"2" * 50}
    wanted = [File(name, len(content), md5(content)) for name, content in members.items()]
    packed = tar_of(members | {"../evil": b"", "batches/readme.html": b"hello"})
    server.content["/a.tar.gz"] = packed
    for _ in range(2):
        download.fetch_archive(wanted, [f"{server.url}/a.tar.gz"], md5(packed))
        assert tree(root) == set(members)
    assert len(server.log) == 1
    (root / "batches/two.bin").unlink()
    download.fetch_archive(wanted, [f"{server.url}/a.tar.gz"], md5(packed))
    assert (root / "batches/two.bin").read_bytes() == members["batches/two.bin"]
    (root / "batches/two.bin").unlink()
    with pytest.raises(DataError, match="could not be downloaded from any address"):
        download.fetch_archive(wanted, [f"{server.url}/a.tar.gz"], "0" * 32)
    assert tree(root) == {"batches/one.bin"}


# --- named data sets --------------------------------------------------------------------------------


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
        ValueError, match=r"^no data set named 'mnist4' \(did you mean mnist\?\); there are mnist, mnist-"
    ):
        data.dataset("mnist4")
    for name in ("imagenet", "", "a/../.."):
        with pytest.raises(ValueError, match=f"^no data set named '{name}'; there are mnist, .*, cifar10, mnist3d$"):
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


# --- image files ------------------------------------------------------------------------------------


def gradient(height: int, width: int) -> np.ndarray:
    """Return an RGB image in which every pixel differs."""
    y, x = np.mgrid[:height, :width]
    return np.stack([y * 3, x * 3, y + x], -1).astype(np.uint8)


def save(path: Path, pixels_: np.ndarray, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels_).save(path, **options)
    return path


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


# --- NumPy files ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "layout", "expected"),
    [
        ((5, 7, 8), None, (5, 1, 7, 8)),
        ((5, 2, 7, 8), None, (5, 2, 7, 8)),
        ((5, 7, 8, 3), None, (5, 3, 7, 8)),
        ((5, 7, 8, 1), None, (5, 1, 7, 8)),
        ((5, 3, 8, 3), None, (5, 3, 8, 3)),  # both could be colours: channels first
        ((5, 3, 8, 3), "nhwc", (5, 3, 3, 8)),
        ((5, 7, 8, 4), "nhwc", (5, 4, 7, 8)),
        ((5, 2, 6, 7, 8), None, (5, 2, 6, 7, 8)),
        ((5, 6, 7, 8), "ndhw", (5, 1, 6, 7, 8)),
        ((5, 6, 7, 8, 2), "ndhwc", (5, 2, 6, 7, 8)),
        ((5, 2, 8), "ncl", (5, 2, 8)),
        ((5, 8, 2), "nlc", (5, 2, 8)),
        ((5, 8), "nl", (5, 1, 8)),
    ],
)
def test_the_axes_of_an_array(tmp_path, shape, layout, expected):
    array = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    np.save(tmp_path / "a.npy", array)
    found = data.open_images(tmp_path / "a.npy", layout=layout)
    assert found.images.shape == expected
    assert found.images.dtype == torch.uint8
    assert found.images.is_contiguous()
    if expected != shape and expected[1] > 1:
        assert found.images[1, 1].flatten().tolist() == array[1, ..., 1].ravel().tolist()
    assert sorted(found.images.flatten().tolist()) == sorted(array.ravel().tolist())


@settings(max_examples=30, deadline=None)
@given(
    hnp.arrays(
        st.sampled_from([np.uint8, np.float16, np.float32, ">f4", np.float64]),
        hnp.array_shapes(min_dims=4, max_dims=4, min_side=1, max_side=4),
        elements={"min_value": 0, "max_value": 200},
    ),
    st.booleans(),
)
def test_any_pixels_come_back(tmp_path_factory, array, zipped):
    path = tmp_path_factory.mktemp("arrays") / ("a.npz" if zipped else "a.npy")
    np.savez_compressed(path, images=array) if zipped else np.save(path, np.asfortranarray(array))
    images = arrays.load_array(path, "nchw").images
    assert images.dtype == (torch.uint8 if array.dtype == np.uint8 else torch.float32)
    assert np.array_equal(images.numpy(), array.astype(images.numpy().dtype))


def test_npz_with_labels(tmp_path):
    images = np.zeros((3, 4, 4), np.uint8)
    np.savez(tmp_path / "a.npz", images=images, labels=np.array([2, 0, 1], np.uint8), other=images)
    assert data.open_images(tmp_path / "a.npz").labels.tolist() == [2, 0, 1]
    np.savez(tmp_path / "b.npz", whatever=images)
    assert data.open_images(tmp_path / "b.npz").labels is None
    np.savez(tmp_path / "c.npz", x=images, y=images)
    with pytest.raises(ValueError, match=r"c\.npz .*needs an array named 'images', or only one array; it has x, y"):
        data.open_images(tmp_path / "c.npz")
    for labels in (np.zeros(3), np.zeros(2, int), np.zeros((3, 1), int)):
        np.savez(tmp_path / "d.npz", images=images, labels=labels)
        with pytest.raises(ValueError, match=r"d\.npz: labels must be integers of shape \(3,\)"):
            data.open_images(tmp_path / "d.npz")


class Bomb:
    """What a hostile file would have unpickled."""

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
        with pytest.raises(ValueError, match=f"{name} cannot be read as NumPy arrays"):
            data.open_images(name)
    assert not Path("unpickled").exists()


def test_bad_arrays_are_refused_by_name(tmp_path):
    path = tmp_path / "a.npy"
    image = np.zeros((2, 3, 4, 4), np.float32)
    for array, problem in [
        (np.where(np.arange(4) == 2, np.nan, image), "NaN"),
        (np.full((1, 4, 4), 1e300), "infinite"),
        (np.zeros((2, 4, 4), np.int64), "uint8 or a float type, got int64"),
        (np.zeros((2, 4, 4), bool), "got bool"),
        (np.zeros((2, 4, 4), complex), "got complex128"),
        (np.full((2, 4, 4), "a"), "got <U1"),
        (np.zeros((4, 4), np.uint8), "2 axes; expected 3"),
        (np.zeros((1,) * 6, np.uint8), "6 axes"),
        (np.zeros((0, 4, 4), np.uint8), ""),
    ]:
        np.save(path, array)
        with pytest.raises(ValueError, match=rf"a\.npy.*{problem}"):
            data.open_images(path)
    np.save(path, image)
    with pytest.raises(ValueError, match=r"layout nhw has 3 axes, shape .* has 4"):
        data.open_images(path, layout="nhw")
    with pytest.raises(ValueError, match="layout must be one of"):
        data.open_images(path, layout="chwn")
    with pytest.raises(ValueError, match="one file: it has no split 'test'"):
        data.open_images(path, "test")
    whole = path.read_bytes()
    for content in (whole[:-1], whole[:20], b"", b"junk"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"a\.npy cannot be read"):
            data.open_images(path)
    np.savez(tmp_path / "b.npz", images=image)
    whole = (tmp_path / "b.npz").read_bytes()
    for content in (whole[: len(whole) // 2], b"", whole[:60] + b"\xff" * 40 + whole[100:]):
        (tmp_path / "b.npz").write_bytes(content)
        with pytest.raises(ValueError, match=r"b\.npz cannot be read"):
            data.open_images(tmp_path / "b.npz")


@settings(max_examples=60, deadline=None)
@given(st.booleans(), st.lists(st.tuples(st.floats(0, 1), st.integers(1, 255)), min_size=1, max_size=4))
def test_a_scrambled_array_loads_or_is_refused_in_words(tmp_path_factory, zipped, flips):
    path = tmp_path_factory.mktemp("scrambled") / ("a.npz" if zipped else "a.npy")
    array = np.zeros((2, 4, 4), np.uint8)
    np.savez(path, images=array) if zipped else np.save(path, array)
    content = bytearray(path.read_bytes())
    for where, flip in flips:
        content[int(where * (len(content) - 1))] ^= flip
    path.write_bytes(content)
    # Whatever is not a ValueError fails the test by itself.
    with contextlib.suppress(ValueError):
        assert data.open_images(path).images.ndim in (4, 5)


# --- one door ---------------------------------------------------------------------------------------


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
            r"no data set named 'mnits' \(did you mean mnist\?\); there are mnist, .*; and no file or folder",
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
    with pytest.raises(ValueError, match=r"neither an image, a folder of images, nor a \.npy or \.npz"):
        data.open_images(tmp_path / "a.txt")


# --- pixels -----------------------------------------------------------------------------------------


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
