"""The demo's command, the files of its runtime, its samples and its cache of models."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
import threading

import pytest
from typer.testing import CliRunner

from unshift.cli import app
from unshift.data import DataError
from unshift.demo import runtime, server, site

MNIST = site.CHOICES[0]


# --- the command -----------------------------------------------------------------------------------


def refused(*args: object) -> str:
    """Run a command that fails; return its one line on stderr."""
    result = CliRunner().invoke(app, ["demo", *map(str, args)], prog_name="unshift")
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    return result.stderr.removeprefix("unshift: error: ").strip()


def test_invalid_options_are_one_line(tmp_path, monkeypatch):
    pytest.importorskip("onnxscript")
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path / "data"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    assert str(tmp_path / "full") in refused("--static", tmp_path / "full")
    assert "mine.txt" in refused("--static", tmp_path / "full" / "mine.txt")
    assert str(tmp_path / "none") in refused("--static", tmp_path / "new", "--runtime", tmp_path / "none")
    with server.Server(tmp_path) as taken:
        port = taken.server_address[1]
        assert str(port) in refused("--port", port)
    assert "203.0.113.1" in refused("--host", "203.0.113.1", "--port", 0)


def test_names_the_missing_extra(monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *a: None if name == "onnxscript" else find(name, *a))
    message = refused()
    assert "onnxscript" in message
    assert "unshift[demo]" in message


def test_opens_the_browser_without_a_thread(monkeypatch):
    commands: list[list[str]] = []
    monkeypatch.setattr(site, "write", lambda *_: None)
    monkeypatch.setattr(runtime, "runtime_files", lambda *_: {})
    monkeypatch.setattr(server.Server, "run", lambda _, ready: ready())
    monkeypatch.setattr("subprocess.Popen", lambda command, **_: commands.append(command))
    before = threading.enumerate()
    result = CliRunner().invoke(app, ["demo", "--port", "0"], prog_name="unshift")
    assert result.exit_code == 0, result.output
    assert threading.enumerate() == before
    assert [command[-2] for command in commands] == ["webbrowser"]
    assert commands[0][-1] in result.stdout


# --- the runtime's files ---------------------------------------------------------------------------


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """Pin a runtime of a few bytes, in an empty data folder; return its archive."""
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path / "data"))
    contents = {name: f"content of {name}".encode() for name in runtime.FILES}
    monkeypatch.setattr(runtime, "FILES", {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()})
    path = tmp_path / "copy" / runtime.ARCHIVE
    path.parent.mkdir()
    with tarfile.open(path, "w:gz") as tar:
        for name, data in {**contents, "other.js": b"not wanted"}.items():
            member = tarfile.TarInfo(f"package/dist/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def test_runtime_is_downloaded_once(archive, tmp_path, monkeypatch):
    assert runtime.PACK[:2] == ("npm", "pack")
    monkeypatch.setattr(runtime, "PACK", ("cp", archive, "."))
    files = runtime.runtime_files()
    assert {name: path.read_text() for name, path in files.items()} == {n: f"content of {n}" for n in runtime.FILES}
    monkeypatch.setattr(runtime, "PACK", ("false",))
    assert runtime.runtime_files() == files
    left = sorted(path.name for path in (tmp_path / "data").rglob("*") if path.is_file() and path.suffix != ".lock")
    assert left == sorted(runtime.FILES)  # neither the archive nor its other members


def test_runtime_offline(archive, tmp_path, monkeypatch):
    for command in ("false", "no-such-program"):
        monkeypatch.setattr(runtime, "PACK", (command,))
        with pytest.raises(DataError, match="--runtime"):
            runtime.runtime_files()
    with pytest.raises(DataError, match=runtime.ARCHIVE):
        runtime.runtime_files(download=False)
    shutil.copy(archive, tmp_path / "data")
    assert set(runtime.runtime_files(download=False)) == set(runtime.FILES)


def test_runtime_from_archive_or_folder(archive, tmp_path):
    assert set(runtime.runtime_files(archive)) == set(runtime.FILES)
    unpacked = tmp_path / "unpacked"
    with tarfile.open(archive) as tar:
        tar.extractall(unpacked, filter="data")
    for place in (unpacked, unpacked / "package", unpacked / "package" / "dist"):
        assert runtime.runtime_files(place)["ort-wasm-simd-threaded.wasm"].is_relative_to(unpacked)
    (unpacked / "package" / "dist" / "ort-wasm-simd-threaded.wasm").write_bytes(b"another")
    (tmp_path / "text.tgz").write_text("no archive")
    for place, value in ((unpacked, "sha256"), (tmp_path, str(tmp_path)), (tmp_path / "text.tgz", "text.tgz")):
        with pytest.raises(DataError, match=value):
            runtime.runtime_files(place)


# --- samples ---------------------------------------------------------------------------------------


def test_absent_images_are_not_offered(tmp_path, monkeypatch):
    """The page leaves out CIFAR-10 and names the command that downloads it."""
    pytest.importorskip("onnxscript")
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path))
    monkeypatch.setattr(site, "_entry", lambda choice, *_: {"name": choice.name})
    assert site.samples(site.CHOICES[2]) is None
    lines: list[str] = []
    site.write(tmp_path / "site", {}, lines.append, others=False)
    entries = json.loads((tmp_path / "site" / "manifest.json").read_text())["entries"]
    assert [entry["name"] for entry in entries] == ["mnist", "fashion-mnist"]
    assert len(lines) == 1
    assert "unshift data get cifar10" in lines[0]


def test_models_are_exported_once(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path))
    (tmp_path / "models").mkdir()
    lines: list[str] = []
    for _ in range(2):
        site.write_cached(tmp_path, "tiny", lambda path: path.write_bytes(b"model"), lines.append)
        assert (tmp_path / "models" / "tiny.onnx").read_bytes() == b"model"
    assert len(lines) == 1
    assert "tiny" in lines[0]
