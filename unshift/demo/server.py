"""The small server of the page: one folder of files, read only, on the loopback interface unless told otherwise.

Python's own ``http.server``, with what it lacks to be safe: it takes no request with a body, answers to local
names only, sends nothing from outside its folder, and closes connections that take too long. Pictures that a
visitor chooses stay in the browser.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import shutil
import signal
import socket
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

__all__ = ["HEADERS", "is_loopback", "listen", "serve"]

REQUEST_SECONDS = 10.0  # from connecting to a whole request
ANSWER_SECONDS = 120.0
CONNECTIONS = 256

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data: blob:; "
        "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-cache",
}

# Not mimetypes: a system's own table may call .js plain text, which a browser then refuses to run.
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".css": "text/css",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
}


class Handler(BaseHTTPRequestHandler):
    """Answer one request with a file, or refuse it. HTTP/1.0: the connection closes after the answer."""

    server: Server
    server_version, sys_version = "unshift", ""
    error_message_format, error_content_type = "%(message)s\n", "text/plain"

    def parse_request(self) -> bool:
        """Read the request; refuse what a page of files never needs, before any of its body is read."""
        if not super().parse_request():
            return False
        self.server.deadlines[self.connection] = time.monotonic() + ANSWER_SECONDS
        host = self.headers.get("Host", "").lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if self.server.hosts is not None and name not in self.server.hosts:  # DNS rebinding: a foreign name led here
            self.send_error(421, "this server answers to localhost only")
        elif self.command not in ("GET", "HEAD"):
            self.send_error(405, "there is nothing here but files to read")
        elif self.headers.get_all("Content-Length", ["0"]) != ["0"] or "Transfer-Encoding" in self.headers:
            self.send_error(413, "this server takes no bodies")
        else:
            return True
        return False

    def do_GET(self) -> None:
        """Send a file."""
        path = self._file()
        if path is None:
            self.send_error(404, "no such file")
            return
        with path.open("rb") as file:
            self.send_response(200)
            self.send_header("Content-Type", TYPES.get(path.suffix, "application/octet-stream"))
            self.send_header("Content-Length", str(path.stat().st_size))
            self.end_headers()
            if self.command == "GET":
                shutil.copyfileobj(file, self.wfile)

    do_HEAD = do_GET

    def end_headers(self) -> None:
        """Add HEADERS to every answer, errors too."""
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing about requests."""

    def _file(self) -> Path | None:
        """Return the file that the address names, if it is one inside the folder, links followed."""
        name = unquote(self.path.partition("?")[0]).lstrip("/") or "index.html"
        try:
            path = (self.server.folder / name).resolve()
            return path if path.is_relative_to(self.server.folder) and path.is_file() else None
        except (OSError, ValueError):  # a name too long, or with a null byte
            return None


class Server(ThreadingHTTPServer):
    """A thread for each connection, not too many of them, and none for long."""

    def __init__(self, bound: socket.socket, folder: Path) -> None:
        super().__init__(bound.getsockname()[:2], Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = bound
        self.folder = folder.resolve()
        name = str(bound.getsockname()[0])
        local = frozenset({"localhost", name, f"[{name}]", "127.0.0.1", "[::1]"})
        self.hosts = local if is_loopback(name) else None
        self.deadlines: dict[socket.socket, float] = {}

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection, if there are not too many."""
        if len(self.deadlines) >= CONNECTIONS:
            self.shutdown_request(request)
            return
        self.deadlines[request] = time.monotonic() + REQUEST_SECONDS
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Hang up on connections past their deadline; ``serve_forever`` calls this twice a second."""
        now = time.monotonic()
        for connection, deadline in list(self.deadlines.items()):
            if now > deadline:
                self._hang_up(connection)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self.deadlines.pop(request, None)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Close everything: an answer that is under way is cut off."""
        super().server_close()
        for connection in list(self.deadlines):
            self._hang_up(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a visitor that is gone or was hung up on is not an error of ours."""

    @staticmethod
    def _hang_up(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):  # gone already
            connection.shutdown(socket.SHUT_RDWR)  # its thread is woken, and closes it


def listen(host: str, port: int) -> socket.socket:
    """Take a port.

    Args:
        host: The address to listen on.
        port: The port, or 0 for any free one.

    Returns:
        A listening socket.

    Raises:
        ValueError: If the port is in use, or the address cannot be listened on.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(CONNECTIONS)  # at once: until then another process could still take the port
        except OSError:
            bound.close()
            raise
        return bound
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ValueError(f"port {port} is in use; give another with --port, or 0 for any free one") from error
        raise ValueError(f"cannot listen on {host} port {port} ({error.strerror or error})") from error


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(folder: Path, bound: socket.socket, ready: Callable[[], None] = lambda: None) -> None:
    """Serve a folder until Ctrl-C or SIGTERM.

    Args:
        folder: What to serve.
        bound: A socket from :func:`listen`. It is closed at the end.
        ready: Called once, when requests are answered.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    server = Server(bound, folder)
    try:
        ready()
        server.serve_forever()
    except KeyboardInterrupt:
        pass  # asked to stop
    finally:
        server.server_close()
        signal.signal(signal.SIGTERM, before)
