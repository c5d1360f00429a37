"""A web server of this machine that answers by a handler, for as long as a block lasts."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseRequestHandler
from typing import Any, Final, Protocol

POLL: Final = 0.05
"""Seconds in which the server sees that it is to end."""


class Handling(Protocol):
    """A class of handlers, or what makes one."""

    def __call__(self, *args: Any, **kwargs: Any) -> BaseRequestHandler:
        """Handle a connection."""
        ...


class Quiet(BaseHTTPRequestHandler):
    """Logs no request."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Say nothing."""

    def acknowledge(self, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Answer without a body."""
        self.send_response(status)
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextmanager
def serving(handler: Handling, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Serve on a free port of an address of this machine, each connection in a thread; yield the port.

    With `tls` it serves HTTPS.  Requests that are not answered at the end do not keep it from ending.
    """
    server = ThreadingHTTPServer((host, 0), handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=partial(server.serve_forever, POLL), name="web server")
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
