"""The demo's server against bad clients, its command, its runtime's files and its samples; no browser."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import inspect
import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import unshift
from unshift.cli import app
from unshift.cli.demo import demo
from unshift.data import DataError, dataset
from unshift.demo import models, runtime, samples, server, site

ROOT = Path(unshift.__file__).parents[1]
MNIST = samples.CHOICES[0]


# --- the server ------------------------------------------------------------------------------------


@contextlib.contextmanager
def running(folder: Path, seconds: float = 10.0, **options):
    """Run the server in a process of its own; yields the process and its port."""
    code = (
        "import sys; from pathlib import Path; from unshift.demo import server\n"
        "server.REQUEST_SECONDS = float(sys.argv[2])\n"
        "bound = server.listen('127.0.0.1', 0)\n"
        "server.serve(Path(sys.argv[1]), bound, lambda: print(bound.getsockname()[1], flush=True))\n"
        "print('stopped')"
    )
    command = [sys.executable, "-c", code, str(folder), str(seconds)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    options.setdefault("stderr", subprocess.PIPE)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env, **options)
    try:
        assert process.stdout
        port = process.stdout.readline()
        assert port, "the server did not start"
        yield process, int(port)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A folder to serve, with a secret beside it and a link that leads out."""
    top = tmp_path_factory.mktemp("server")
    (top / "secret.txt").write_text("secret")
    folder = top / "site"
    (folder / "models").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>page</title>")
    (folder / "page.js").write_text("export {};")
    (folder / "models" / "a.onnx").write_bytes(b"model")
    (folder / "link.txt").symlink_to(top / "secret.txt")
    return folder


@pytest.fixture(scope="module")
def port(small):
    with running(small, stderr=subprocess.DEVNULL) as (_, found):
        yield found


def ask(port: int, request: bytes, seconds: float = 8.0) -> bytes:
    """Send bytes, and return all that comes back until the server closes or falls silent."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        answer = b""
        with contextlib.suppress(OSError):
            connection.sendall(request)
            while part := connection.recv(65536):
                answer += part
        return answer


def get(
    port: int, path: str, headers: str = "", method: str = "GET", host: str = "localhost"
) -> tuple[int, str, bytes]:
    answer = ask(port, f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode().lower(), body


def test_serves_its_folder_and_lets_nothing_else_into_the_page(port):
    for path, status, kind, body in (
        ("/", 200, "text/html", b"<!doctype html><title>page</title>"),
        ("/page.js?x=1", 200, "text/javascript", b"export {};"),
        ("/models/a.onnx", 200, "application/octet-stream", b"model"),
        ("/none", 404, "text/plain", b"no such file\n"),
    ):
        found, head, content = get(port, path)
        assert (found, content) == (status, body)
        assert f"content-type: {kind}" in head
        assert "content-security-policy: default-src 'none';" in head
        assert "cross-origin-embedder-policy: require-corp" in head
    assert get(port, "/", method="HEAD")[2] == b""


def test_binds_to_loopback():
    bound = server.listen("127.0.0.1", 0)
    with bound:
        assert bound.getsockname()[0] == "127.0.0.1"
        with pytest.raises(ValueError, match="is in use"):  # taken from here on, not only once the models are there
            server.listen("127.0.0.1", bound.getsockname()[1])
    assert server.is_loopback("127.0.0.1")
    assert server.is_loopback("::1")
    assert not server.is_loopback("0.0.0.0")
    assert inspect.signature(demo).parameters["host"].default == "127.0.0.1"


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/../../../../../../etc/passwd",
        "/..%2fsecret.txt",
        "/%2e%2e%2fsecret.txt",
        "/models/../../secret.txt",
        "/..%5csecret.txt",
        "/..\\secret.txt",
        "//etc/passwd",
        "/%2fetc%2fpasswd",
        "/link.txt",
        "/index.html%00.txt",
        "/" + "a" * 5000,
        "/models",
        "/models/",
    ],
)
def test_nothing_outside_its_folder(port, path):
    status, _, body = get(port, path)
    assert status == 404
    assert b"secret" not in body
    assert b"root:" not in body


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("POST", "Content-Length: 5\r\n", 405),
        ("DELETE", "", 405),
        ("GET", "Content-Length: 1000000000\r\n", 413),
        ("GET", "Transfer-Encoding: chunked\r\n", 413),
    ],
)
def test_takes_nothing(port, method, headers, status):
    assert get(port, "/", headers, method)[0] == status


def test_answers_to_local_names_only(port):
    for host, status in (("localhost", 200), (f"127.0.0.1:{port}", 200), ("evil.example", 421), ("", 421)):
        assert get(port, "/", host=host)[0] == status


MALFORMED = [
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n" + b"x" * 70_000,
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n{",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nContent-Length: 6\r\n\r\nhello!",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\nnot a length",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc" + bytes(range(256)),
    b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 500 + b"\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET /\r\n\r\n",
    b"\r\n" * 50 + b"\x00" * 500,
]


def malformed(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=15) as connection, contextlib.suppress(OSError):
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return connection.recv(4096)
    return b""


@pytest.mark.parametrize("request_", MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_requests_are_refused_and_it_goes_on(port, request_):
    answer = malformed(port, request_)
    assert b" 200 " not in answer[:20]
    assert b"<title>page" not in answer
    assert get(port, "/")[0] == 200


@pytest.mark.slow
def test_hundreds_of_malformed_at_once(port):
    with ThreadPoolExecutor(200) as pool:
        answers = list(pool.map(partial(malformed, port), MALFORMED * 20))
    assert not [answer for answer in answers if b" 200 " in answer[:20]]
    assert get(port, "/")[0] == 200


def test_hangs_up_on_slow_clients(small):
    """On one that says nothing, one that stops, and one that goes on and on."""
    with running(small, seconds=0.6) as (_, port):
        for request in (b"", b"GET / HTTP/1.1\r\nHost: loc"):
            started = time.monotonic()
            assert ask(port, request, seconds=8) == b""
            assert time.monotonic() - started < 6
        with socket.create_connection(("127.0.0.1", port)) as slow, contextlib.suppress(OSError):
            for _ in range(100):
                slow.sendall(b"X")
                time.sleep(0.1)
            pytest.fail("it listened for 10 seconds")
        assert get(port, "/")[0] == 200


def test_refuses_connections_beyond_its_limit(small):
    with running(small) as (_, port), contextlib.ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(server.CONNECTIONS)]
        assert ask(port, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""
        idle[0].close()
        time.sleep(0.5)
        assert get(port, "/")[0] == 200


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_it(small, sign):
    """At once and without a word, an idle connection and an answer under way or not."""
    with (small / "large.bin").open("wb") as file:
        file.truncate(50_000_000)
    with running(small, start_new_session=True) as (process, port):
        with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)) as slow:
            slow.sendall(b"GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert slow.recv(12) == b"HTTP/1.0 200"
            started = time.monotonic()
            process.send_signal(sign)
            out, err = process.communicate(timeout=10)
        assert time.monotonic() - started < 6
        assert (process.returncode, out, err) == (0, "stopped\n", "")
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)  # no child is left


@pytest.mark.slow
def test_command_serves_and_stops():
    try:
        runtime.runtime_files(download=False)
    except DataError as error:
        pytest.skip(f"no onnxruntime-web: {error}")
    pytest.importorskip("onnxscript")
    command = [sys.executable, "-m", "unshift.cli", "demo", "--no-browser", "--port", "0"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True
    )
    assert process.stdout
    line = process.stdout.readline()
    assert line.startswith("http://127.0.0.1:"), process.communicate()
    port = int(line.split("/")[2].split(":")[1])
    assert get(port, "/manifest.json")[0] == 200
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=15)
    assert process.returncode == 0
    assert out == "stopped\n"
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


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
    site.write(tmp_path / "site", {}, said.append)
    assert said == ["no photos on the page: `unshift data get cifar10` downloads them"]


def test_says_what_it_exports_and_does_so_once(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path))
    (tmp_path / "models").mkdir()
    said: list[str] = []
    for _ in range(2):
        models._put(tmp_path, "tiny", lambda path: path.write_bytes(b"model"), said.append)
        assert (tmp_path / "models" / "tiny.onnx").read_bytes() == b"model"
    assert said == ["exporting tiny (once, then kept)"]
