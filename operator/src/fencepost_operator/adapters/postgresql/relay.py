"""A way to a server that may send anything: tenants choose which servers the operator dials.

libpq reads whatever size a message announces, and waits while bytes arrive.  So it connects to a port of this process,
from where a thread passes on what comes, up to a bound for each request in bytes and in time.  TLS is between libpq and
the server: the relay sees what is encrypted.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Final

LARGEST_ANSWER: Final = 4 * 1024 * 1024
"""Bytes of one answer.

The largest is a fence row: six maps of 6,000 partitions, with names of 100 characters, have 4 MB.
"""
LONGEST_ANSWER: Final = 30.0
"""Seconds from a request's last byte to the last one of its answer."""
_CONNECT_WITHIN: Final = 5.0
_ATTEMPTS: Final = 2
"""Connections that libpq makes for one login: with sslmode=prefer it tries again without TLS where that failed."""
_READ: Final = 64 * 1024


def relayed(
    address: str,
    port: int,
    *,
    most: int = LARGEST_ANSWER,
    longest: float = LONGEST_ANSWER,
    too_large: Callable[[], object] = lambda: None,
) -> tuple[str, int]:
    """Connect to a server, and return the local address at which a client is connected with it. Raises OSError.

    A second connection is accepted shortly after the first one.  `too_large` is called, in another thread, before a
    connection is closed for an answer of more than `most` bytes.
    """

    def dial() -> socket.socket:
        server = socket.create_connection((address, port), timeout=_CONNECT_WITHIN)
        server.settimeout(longest)  # of one that takes nothing more
        server.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return server

    def carry(client: socket.socket, server: socket.socket) -> None:
        with client, server, suppress(OSError):
            client.settimeout(longest)
            if _pump(client, server, most, longest):
                too_large()

    with ExitStack() as held:
        first = held.enter_context(dial())
        listener = held.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1))
        place: tuple[str, int] = listener.getsockname()
        _in_thread(_serve, listener, first, dial, carry)
        held.pop_all()  # they are the thread's now
    return place


def _serve(
    listener: socket.socket,
    first: socket.socket,
    dial: Callable[[], socket.socket],
    carry: Callable[[socket.socket, socket.socket], None],
) -> None:
    """Accept the connections of one login, each with a connection to the server."""
    with listener, suppress(OSError):
        listener.settimeout(_CONNECT_WITHIN)
        with ExitStack() as unused:
            unused.callback(first.close)
            client, _ = listener.accept()
            unused.pop_all()
        _in_thread(carry, client, first)
        for _ in range(_ATTEMPTS - 1):
            client, _ = listener.accept()
            with ExitStack() as unused:
                unused.callback(client.close)
                server = dial()
                unused.pop_all()
            _in_thread(carry, client, server)


def _in_thread(target: Callable[..., None], *given: object) -> None:
    threading.Thread(target=target, args=given, name="fence-relay", daemon=True).start()


def _pump(client: socket.socket, server: socket.socket, most: int, longest: float) -> bool:
    """Pass on both directions until one side ends, or an answer is too late or too large: then return True.

    Raises OSError.
    """
    with selectors.DefaultSelector() as ready:
        ready.register(client, selectors.EVENT_READ)
        ready.register(server, selectors.EVENT_READ)
        answered, until = 0, time.monotonic() + longest
        while True:
            for key, _ in ready.select():
                source = client if key.fileobj is client else server
                data = source.recv(_READ)
                if not data:
                    return False
                if source is client:
                    answered, until = 0, time.monotonic() + longest
                    server.sendall(data)
                    continue
                answered += len(data)
                if answered > most or time.monotonic() > until:
                    return answered > most
                client.sendall(data)
