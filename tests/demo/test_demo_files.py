"""The demo's command, its runtime's files and its samples."""

from __future__ import annotations

import hashlib
import http.server
import io
import shutil
import tarfile
import threading
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from unshift.cli import app
from unshift.data import DataError, dataset
from unshift.demo import models, runtime, samples, server, site

MNIST = samples.CHOICES[0]


# --- the command -----------------------------------------------------------------------------------


def bad(*args: object) -> str:
    result = CliRunner().invoke(app, ["demo", *map(str, args)], prog_name="unshift")
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    return result.stderr.removeprefix("unshift: error: ").strip()


def test_refuses_what_it_cannot(tmp_path, monkeypatch):
    pytest.importorskip("onnxscript")
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path / "data"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    assert bad("--static", tmp_path / "full") == f"{tmp_path / 'full'} is not empty; --force writes the page into it"
    assert "is a file; give a folder" in bad("--static", tmp_path / "full" / "mine.txt")
    assert "no file or folder" in bad("--static", tmp_path / "new", "--runtime", tmp_path / "none")
    with server.listen("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        assert bad("--port", port) == f"port {port} is in use; give another with --port, or 0 for any free one"
    assert "cannot listen on 203.0.113.1" in bad("--host", "203.0.113.1", "--port", 0)


def test_names_the_missing_extra(monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *a: None if name == "onnxscript" else find(name, *a))
    assert bad() == "the demo needs onnxscript: pip install 'unshift[demo]'"


# --- the runtime's files ---------------------------------------------------------------------------


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A runtime of a few bytes, pinned by its own hashes; a data folder of its own. Returns the archive."""
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("UNSHIFT_RUNTIME", raising=False)
    contents = {name: f"content of {name}".encode() for name in runtime.FILES}
    monkeypatch.setattr(runtime, "FILES", {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()})
    archive = tmp_path / "mirror" / "onnxruntime-web" / "-" / runtime.ARCHIVE
    archive.parent.mkdir(parents=True)
    with tarfile.open(archive, "w:gz") as tar:
        for name, data in {**contents, "other.js": b"not wanted"}.items():
            member = tarfile.TarInfo(f"package/dist/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    monkeypatch.setattr(runtime, "SHA512", hashlib.sha512(archive.read_bytes()).hexdigest())
    return archive


@pytest.fixture
def mirror(fake, monkeypatch):
    """A registry on this machine that has the fake archive; its requests are counted in ``asked``."""
    asked: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            asked.append(self.path)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=fake.parents[2])) as registry:
        threading.Thread(target=registry.serve_forever, daemon=True).start()
        monkeypatch.setenv("NPM_CONFIG_REGISTRY", f"http://127.0.0.1:{registry.server_port}")
        yield asked
        registry.shutdown()


def test_runtime_is_downloaded_once(fake, mirror, tmp_path):
    found = runtime.runtime_files()
    assert {name: path.read_bytes() for name, path in found.items()} == {
        name: f"content of {name}".encode() for name in runtime.FILES
    }
    assert len(mirror) == 1
    assert runtime.runtime_files() == found
    assert len(mirror) == 1
    kept = sorted(path.name for path in (tmp_path / "data").rglob("*") if path.is_file() and path.suffix != ".lock")
    assert kept == sorted(runtime.FILES)  # the archive and what else was in it are gone


def test_runtime_of_another_content_is_refused(fake, mirror, tmp_path, monkeypatch):
    monkeypatch.setattr(runtime, "SHA512", "0" * 128)
    with pytest.raises(DataError, match="SHA512 hash of downloaded file"):
        runtime.runtime_files()
    assert not list((tmp_path / "data").rglob("*.tgz"))
    assert not list((tmp_path / "data").rglob("*.wasm"))


def test_runtime_offline(fake, monkeypatch):
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "http://someone:password@127.0.0.1:9/")
    with pytest.raises(DataError, match=r"Connection refused.*Go online once, or give --runtime a copy") as caught:
        runtime.runtime_files()
    assert "password" not in str(caught.value)
    with pytest.raises(DataError, match=r"is not in .*npm pack"):
        runtime.runtime_files(download=False)


def test_runtime_from_an_archive_in_the_data_folder(fake, tmp_path):
    (tmp_path / "data").mkdir()
    shutil.copyfile(fake, tmp_path / "data" / runtime.ARCHIVE)
    assert set(runtime.runtime_files(download=False)) == set(runtime.FILES)


def test_runtime_from_archive_or_folder(fake, tmp_path, monkeypatch):
    assert set(runtime.runtime_files(fake)) == set(runtime.FILES)
    unpacked = tmp_path / "unpacked"
    with tarfile.open(fake) as tar:
        tar.extractall(unpacked, filter="data")
    for place in (unpacked, unpacked / "package", unpacked / "package" / "dist"):
        assert runtime.runtime_files(place)["ort-wasm-simd-threaded.wasm"].is_relative_to(unpacked)
    monkeypatch.setenv("UNSHIFT_RUNTIME", str(unpacked))
    assert runtime.runtime_files()["ort-wasm-simd-threaded.wasm"].is_relative_to(unpacked)
    (unpacked / "package" / "dist" / "ort-wasm-simd-threaded.wasm").write_bytes(b"another")
    with pytest.raises(DataError, match="is not the pinned one"):
        runtime.runtime_files()
    with pytest.raises(DataError, match="does not hold"):
        runtime.runtime_files(tmp_path)
    (tmp_path / "text.tgz").write_text("no archive")
    with pytest.raises(DataError, match="cannot be unpacked"):
        runtime.runtime_files(tmp_path / "text.tgz")


def test_registry(monkeypatch):
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "https://npm.example/path")
    assert runtime.registry() == "https://npm.example/path/"
    monkeypatch.delenv("NPM_CONFIG_REGISTRY")
    monkeypatch.setenv("PATH", "")
    assert runtime.registry() == "https://registry.npmjs.org/"


# --- samples ---------------------------------------------------------------------------------------


def test_samples_are_five_of_each_class():
    digits = samples.samples(MNIST)
    assert digits.shape == (50, 1, 28, 28)
    found = dataset("mnist-10k", "test")
    fives = found.images[found.labels == 5]
    assert torch.equal(digits[5], fives[0])
    assert torch.equal(digits[15], fives[1])
    assert samples.samples(samples.CHOICES[1]).shape == (50, 1, 28, 28)


def test_fashion_samples_are_the_official_ones(tmp_path):
    try:
        found = dataset("fashion-mnist", "test", download=False)
    except DataError:
        pytest.skip("Fashion-MNIST is not in the data folder")
    pictures = samples.samples(samples.CHOICES[1])
    for label in range(10):
        assert torch.equal(pictures[label::10], found.images[found.labels == label][:5])
    samples.sheet(pictures).save(tmp_path / "sheet.png")
    assert np.array_equal(Image.open(tmp_path / "sheet.png"), Image.open(samples.FOLDER / "fashion-mnist.png"))


def test_what_is_not_there_is_not_offered(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path))
    assert samples.samples(samples.CHOICES[2]) is None
    names = [entry.name for entry in site.offered()]
    assert names[0] == "mnist"
    assert "cifar10" not in names
    monkeypatch.setattr(site, "shipped", lambda: {"lenet5-mnist": None})
    assert [entry.name for entry in site.offered()] == ["mnist"]


def test_says_how_to_bring_what_is_not_there(tmp_path, monkeypatch):
    pytest.importorskip("onnxscript")
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path))
    monkeypatch.setattr(site, "offered", list)
    said: list[str] = []
    site.write(tmp_path / "site", {}, said.append, sequences=False)
    assert said == ["no photos on the page: `unshift data get cifar10` downloads them"]


def test_says_what_it_exports_and_does_so_once(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path))
    (tmp_path / "models").mkdir()
    said: list[str] = []
    for _ in range(2):
        models.put(tmp_path, "tiny", lambda path: path.write_bytes(b"model"), said.append)
        assert (tmp_path / "models" / "tiny.onnx").read_bytes() == b"model"
    assert said == ["exporting tiny (once, then kept)"]
