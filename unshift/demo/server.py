"""The small server of the page: one folder of files, read only, on the loopback interface unless told otherwise.

It takes no uploads: pictures that a visitor chooses stay in the browser. So every request with a body is refused
before it is read, and a connection that does not finish its request in time is closed.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["HEADERS", "application", "listen", "serve"]

REQUEST_SECONDS = 10.0  # from connecting, or from the last answer, to a whole request
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


class Guard:
    """Refuse what a page of files never needs, bound the time of an answer, and put HEADERS on every one."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request: the ASGI interface."""
        if scope["type"] != "http":
            return
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                names = {name.lower() for name, _ in message["headers"]}
                added = [
                    (k.lower().encode(), v.encode()) for k, v in HEADERS.items() if k.lower().encode() not in names
                ]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        answer = self._refusal(scope) or self.app
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await answer(scope, receive, send_with_headers)
        except TimeoutError:
            if not started:
                await PlainTextResponse("too slow\n", 503)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if self.hosts is not None and name not in self.hosts:  # a foreign name that leads here: DNS rebinding
            return _refuse(421, "this server answers to localhost only")
        if scope["method"] not in ("GET", "HEAD"):
            return _refuse(405, "there is nothing here but files to read", {"Allow": "GET, HEAD"})
        if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
            return _refuse(413, "this server takes no bodies")
        return None


def _refuse(status: int, why: str, headers: dict[str, str] | None = None) -> ASGIApp:
    # Closed: what is left of a body is not read.
    return PlainTextResponse(f"{why}\n", status, {"Connection": "close", **(headers or {})})


class Impatient(H11Protocol):
    """HTTP/1.1 that hangs up on a client that does not finish its request; uvicorn would wait for ever."""

    def connection_made(self, transport: Any) -> None:
        """Start the clock."""
        super().connection_made(transport)
        self._clock = self.loop.call_later(REQUEST_SECONDS, self._late)

    def _late(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:  # at work on an answer: look again
            self._clock = self.loop.call_later(REQUEST_SECONDS, self._late)

    def on_response_complete(self) -> None:
        """Start the clock anew, for the next request on this connection."""
        self._clock.cancel()
        self._clock = self.loop.call_later(REQUEST_SECONDS, self._late)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._clock.cancel()
        super().connection_lost(exc)


def application(folder: Path, hosts: frozenset[str] | None = None) -> ASGIApp:
    """Return the server of ``folder`` as an ASGI application; ``hosts`` are the names it answers to, None is any."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.mount("/", StaticFiles(directory=folder, html=True))
    return Guard(app, hosts)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, or raise a ValueError that says what to do; port 0 takes any free one."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen()  # at once: until then another process could still take the port
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
    """Serve ``folder`` on a bound socket until Ctrl-C or SIGTERM; ``ready`` is called once it answers."""
    name = str(bound.getsockname()[0])
    hosts = frozenset({"localhost", name, f"[{name}]", "127.0.0.1", "[::1]"}) if is_loopback(name) else None

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # answers cut off now are meant to be
            await super().shutdown(sockets)

    config = uvicorn.Config(
        application(folder, hosts),
        http=Impatient,
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=16_384,
    )
    # After its shutdown uvicorn sends itself the signal again: it must find a handler that lets us clean up.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        Server(config).run(sockets=[bound])
    except KeyboardInterrupt:
        pass  # asked to stop, and stopped
    finally:
        signal.signal(signal.SIGTERM, before)
        bound.close()
