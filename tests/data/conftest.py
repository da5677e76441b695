"""A data folder of its own for every test, and a mirror on this machine."""

from __future__ import annotations

import http.server
import socket
import threading
from dataclasses import dataclass, field

import pytest

from unshift.data import files

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
