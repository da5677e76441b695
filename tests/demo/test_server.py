"""The demo's server: its folder, hostile clients, and how it stops."""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import socket
import subprocess
import time

import pytest
from page import running

from unshift.cli.demo import demo
from unshift.demo import server


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A folder to serve, with a secret beside it and a link to the secret."""
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
    with running(small, stderr=subprocess.DEVNULL) as (_, number):
        yield number


def ask(port: int, request: bytes, seconds: float = 8.0, end: bool = True) -> bytes:
    """Send bytes; return the answer up to the end of the connection or the timeout."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        answer = b""
        with contextlib.suppress(OSError):
            connection.sendall(request)
            if end:
                connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                answer += part
        return answer


def get(
    port: int, path: str, headers: str = "", method: str = "GET", host: str = "localhost"
) -> tuple[int, str, bytes]:
    answer = ask(port, f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode().lower(), body


def test_serves_its_folder_with_strict_headers(port):
    for path, status, kind, body in (
        ("/", 200, "text/html", b"<!doctype html><title>page</title>"),
        ("/page.js?x=1", 200, "text/javascript", b"export {};"),
        ("/models/a.onnx", 200, "application/octet-stream", b"model"),
        ("/none", 404, "text/plain", None),
    ):
        code, head, content = get(port, path)
        assert code == status
        assert body in (content, None)
        assert f"content-type: {kind}" in head
        assert "content-security-policy: default-src 'none';" in head
        assert "cross-origin-embedder-policy: require-corp" in head
    assert get(port, "/", method="HEAD")[2] == b""


def test_listens_on_loopback_from_the_start(tmp_path):
    with server.Server(tmp_path) as first:
        host, port = first.server_address
        assert host == "127.0.0.1"
        assert first.is_local
        with pytest.raises(ValueError, match=str(port)):
            server.Server(tmp_path, port=port)
    with server.Server(tmp_path, "0.0.0.0") as public:
        assert not public.is_local
    assert inspect.signature(demo).parameters["host"].default == "127.0.0.1"


OUTSIDE = r"""
/../secret.txt /../../../../../../etc/passwd /..%2fsecret.txt /%2e%2e%2fsecret.txt /models/../../secret.txt
/..%5csecret.txt /..\secret.txt //etc/passwd /%2fetc%2fpasswd /link.txt /index.html%00.txt /models /models/
"""


@pytest.mark.parametrize("path", [*OUTSIDE.split(), "/" + "a" * 5000])
def test_nothing_outside_its_folder(port, path):
    status, _, body = get(port, path)
    assert status == 404
    assert b"secret" not in body
    assert b"root:" not in body


@pytest.mark.parametrize(
    ("method", "headers", "host", "status"),
    [
        ("POST", "Content-Length: 5\r\n", "localhost", 405),
        ("DELETE", "", "localhost", 405),
        ("GET", "Content-Length: 1000000000\r\n", "localhost", 413),
        ("GET", "Transfer-Encoding: chunked\r\n", "localhost", 413),
        ("GET", "", "127.0.0.1", 200),
        ("GET", "", "evil.example", 421),
        ("GET", "", "", 421),
    ],
)
def test_accepts_only_local_requests_without_a_body(port, method, headers, host, status):
    assert get(port, "/", headers, method, host)[0] == status


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


@pytest.mark.parametrize("request_", MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_requests_are_refused(port, request_):
    answer = ask(port, request_)
    assert b" 200 " not in answer[:20]
    assert b"<title>page" not in answer
    assert get(port, "/")[0] == 200


def test_idle_connections_are_closed(small):
    with running(small, seconds=0.6) as (_, port):
        for request in (b"", b"GET / HTTP/1.1\r\nHost: loc"):
            started = time.monotonic()
            assert ask(port, request, end=False) == b""
            assert time.monotonic() - started < 6
        assert get(port, "/")[0] == 200


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_it(small, sign):
    """It exits at once with code 0, even with an idle connection and during an answer."""
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
            os.killpg(process.pid, 0)  # no child process is left
