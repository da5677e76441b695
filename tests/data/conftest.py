"""An empty data folder for each test, and a mirror on this machine."""

from __future__ import annotations

import http.server
import socket
import threading
from dataclasses import dataclass, field

import pytest


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """Keep tests away from the user's data folder and the network."""
    real = socket.getaddrinfo

    def refuse_other_hosts(host, *args, **options):
        assert host == "127.0.0.1", f"a test must not connect to {host}"
        return real(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", refuse_other_hosts)
    folder = tmp_path / "unshift-data"
    monkeypatch.setenv("UNSHIFT_DATA", str(folder))
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    return folder


@dataclass
class Server:
    """A local mirror: `content` by path."""

    url: str = ""
    content: dict[str, bytes] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    """By path: "503"; "drops" closes the connection after half of the content; "hangs" then waits."""
    half_sent: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def server():
    state = Server()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            state.log.append(self.path)
            body, failure = state.content.get(self.path), state.failures.get(self.path)
            if body is None or failure == "503":
                self.send_error(503 if body else 404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            half = len(body) // 2
            self.wfile.write(body[:half])
            if failure == "hangs":
                self.wfile.flush()
                state.half_sent.set()
                state.go_on.wait(20)
            elif failure != "drops":
                self.wfile.write(body[half:])

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        httpd.daemon_threads, httpd.block_on_close = True, False
        state.url = f"http://127.0.0.1:{httpd.server_port}"
        threading.Thread(target=httpd.serve_forever, args=(0.05,), daemon=True).start()
        yield state
        state.go_on.set()
        httpd.shutdown()
