"""The demo's server against bad clients."""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from page import ROOT, running

from unshift.cli.demo import demo
from unshift.data import DataError
from unshift.demo import runtime, samples, server

MNIST = samples.CHOICES[0]


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
