"""One HTTP POST by the standard library, of which the receiver decides nothing but the status.

Not by the exporter of OpenTelemetry: it reads an answer of any size into memory, and its time limit is for a piece of
the answer. A receiver that answers with 400 MB took 768 MiB of the driver's memory, and 14 s of a limit of 5 s.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from fencepost.formats.access import Access

ANSWER_WITHIN: Final = 5.0
"""Seconds for a connection, for the request, and between two pieces of the answer's first bytes."""
_PIECE: Final = 4096
_STATUS: Final = re.compile(rb"HTTP/1[.][01] ([0-9]{3})")
_LENGTH: Final = len(b"HTTP/1.1 200")

Post = Callable[[bytes], int]
"""Sends a body and returns the status. Raises OSError, http.client.HTTPException or ValueError without an answer."""


def json_post(access: Access, path: str) -> Post:
    """Return what sends JSON to a path below the address: no redirects, no proxy. Raises BadSpec for a Secret."""
    place = urlsplit(access.url)
    host, port, path = place.hostname or "", place.port, place.path + path
    context = access.context()
    headers = {"User-Agent": "fencepost", **access.headers(), "Content-Type": "application/json"}

    def post(body: bytes) -> int:
        connection = (
            http.client.HTTPConnection(host, port, timeout=ANSWER_WITHIN)
            if context is None
            else http.client.HTTPSConnection(host, port, timeout=ANSWER_WITHIN, context=context)
        )
        try:
            connection.request("POST", path, body, headers)
            return _status(connection.sock.recv)
        finally:
            connection.close()

    return post


def _status(receive: Callable[[int], bytes]) -> int:
    """Return the answer's status; nothing after its first piece is read."""
    begin = b""
    while len(begin) < _LENGTH:
        piece = receive(_PIECE)
        if not piece:
            raise http.client.RemoteDisconnected("the receiver ended the connection without an answer")
        begin += piece
    found = _STATUS.match(begin)
    if found is None:
        raise http.client.BadStatusLine("the answer is not one of HTTP/1.1")
    return int(found[1])
