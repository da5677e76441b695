"""The server of the page: one folder of files, read-only, on the loopback interface by default."""

from __future__ import annotations

import errno
import ipaddress
import shutil
import signal
import socket
import socketserver
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

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

# Not mimetypes: a system's table may call .js plain text, which browsers refuse to run.
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".css": "text/css",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
}


class Handler(BaseHTTPRequestHandler):
    """Answer one request with a file or an error. HTTP/1.0: the connection closes after the answer."""

    server: Server
    timeout = 10.0  # seconds without a byte, then the connection is closed
    server_version, sys_version = "unshift", ""
    error_message_format, error_content_type = "%(message)s\n", "text/plain"

    def parse_request(self) -> bool:
        """Read the request. Refuse methods and bodies that static files never need, before reading any body."""
        if not super().parse_request():
            return False
        host = self.headers.get("Host", "").lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if self.server.hosts is not None and name not in self.server.hosts:  # DNS rebinding
            self.send_error(421, "this server answers to localhost only")
        elif self.command not in ("GET", "HEAD"):
            self.send_error(405, "this server only serves files")
        elif self.headers.get_all("Content-Length", ["0"]) != ["0"] or "Transfer-Encoding" in self.headers:
            self.send_error(413, "this server accepts no request body")
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
        """Add HEADERS to every answer, including errors."""
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def _file(self) -> Path | None:
        """Return the requested file, if it is inside the folder after following links."""
        name = unquote(self.path.partition("?")[0]).lstrip("/") or "index.html"
        try:
            path = (self.server.folder / name).resolve()
            return path if path.is_relative_to(self.server.folder) and path.is_file() else None
        except (OSError, ValueError):  # a name too long, or with a null byte
            return None


class Server(ThreadingHTTPServer):
    """Serve a folder, one thread per connection. Port 0 takes any free port.

    The port is bound on construction, so that a conflict is reported before the page is written, which takes minutes.
    """

    request_queue_size = 128

    def __init__(self, folder: Path, host: str = "127.0.0.1", port: int = 0) -> None:
        self.folder = folder.resolve()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), Handler)
        except OSError as error:
            hint = "; --port 0 takes any free port" if error.errno == errno.EADDRINUSE else ""
            raise ValueError(f"cannot listen on {host} port {port} ({error.strerror or error}){hint}") from error
        name = str(self.server_address[0])
        self.is_local = ipaddress.ip_address(name.partition("%")[0]).is_loopback
        self.hosts = {"localhost", name, f"[{name}]", "127.0.0.1", "[::1]"} if self.is_local else None

    def server_bind(self) -> None:
        """Bind without the name lookup of ``HTTPServer``, which may take seconds when offline."""
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of a connection: the visitor closed it, or it timed out."""

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until Ctrl-C or SIGTERM. Call ``ready`` once, before the first request is answered."""
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            ready()
            self.serve_forever()
        except KeyboardInterrupt:
            pass  # the normal way to stop
        finally:
            signal.signal(signal.SIGTERM, before)
