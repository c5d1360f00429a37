"""/metrics over HTTP, from a daemon thread: one connection at a time, and none for longer than its deadline.

Whoever reaches the pod may connect.  A thread for each connection would let them take the process' memory; here they
can at most delay a scrape.
"""

from __future__ import annotations

import logging
import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import Final

from fencepost.contract import METRICS_PORT, Variable

log = logging.getLogger(__name__)

DEADLINE: Final = 5.0
"""Seconds for one connection, from its first byte to its last one."""
ANY: Final = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104 - a pod has one address
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def port_of(variables: Mapping[str, str]) -> int:
    """Return the port that the environment asks for, 0 for none."""
    text = variables.get(Variable.METRICS_PORT, "")
    return int(text) if text.isdecimal() and int(text) <= 65535 else METRICS_PORT  # noqa: PLR2004 - TCP's bound


def address_of(variables: Mapping[str, str]) -> str:
    """Return where a driver listens: in a pod on all addresses, elsewhere on the loopback one."""
    return ANY if variables.get(Variable.POD_IP) else "127.0.0.1"


def serve(exposition: Callable[[], bytes], *, address: str, port: int) -> int | None:
    """Serve what `exposition` returns, and return the port; None, with a warning, when it cannot be had."""
    try:
        server = _Server(exposition, address, port)
    except OSError as error:
        log.warning("no metrics: port %d cannot be opened: %s", port, error)
        return None
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return int(server.server_address[1])


class _Server(socketserver.TCPServer):
    """Not `http.server.HTTPServer`, which asks DNS for the host's name."""

    allow_reuse_address = True
    request_queue_size = 16

    def __init__(self, exposition: Callable[[], bytes], address: str, port: int) -> None:
        self.exposition = exposition
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, port), _Handler)

    def server_bind(self) -> None:
        """Bind for both families where the address is of IPv6."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Answer one request, within the deadline."""
        assert isinstance(request, socket.socket)  # noqa: S101 - of TCP
        timer = threading.Timer(DEADLINE, _cut, [request])
        timer.daemon = True
        timer.start()
        try:
            super().process_request(request, client_address)
        finally:
            timer.cancel()

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - the library's signature
        """Log nothing: a client that disconnects early is expected."""
        log.debug("a scrape failed")


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    timeout = DEADLINE
    server: _Server

    def do_GET(self) -> None:
        """Answer /metrics."""
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404)
            return
        body = self.server.exposition()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Log no scrapes."""
