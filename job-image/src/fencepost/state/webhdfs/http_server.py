"""HTTP/1.1 for a few trusted clients: a thread per connection, bodies as streams, and bounds on everything else.

`http.server` has neither bodies in chunks nor these bounds, and parses the head of a request with the parser of
e-mails: a small request takes 36 to 50 µs of CPU time with it, and 17 here.

A connection whose first request is refused ends.  So only authenticated clients keep connections, and whoever merely
reaches the port holds one for HEAD_DEADLINE at most.
"""

from __future__ import annotations

import logging
import re
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from io import BufferedIOBase
from typing import IO, Final, TypeAlias
from urllib.parse import parse_qsl, unquote

log = logging.getLogger(__name__)

MOST_CONNECTIONS: Final = 512
LONGEST_LINE: Final = 16 * 1024
"""Bytes of a request line or a header."""
MOST_HEADERS: Final = 64
LONGEST_PATH: Final = 4096
"""Characters of a decoded path."""
HEAD_DEADLINE: Final = 10.0
"""Seconds until the head of a connection's first request is there."""
IDLE_DEADLINE: Final = 60.0
"""Seconds until the head of a later one is. Java's client drops idle connections after 5: the server never does it
first, since a streamed upload on a connection that just ended is not repeated."""
SWEEP: Final = 0.2
"""Seconds between two looks at these deadlines."""
STALL_DEADLINE: Final = 60.0
"""Seconds for which an answer, and a body that no handler reads, may stand still."""
PROBES: Final = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 6))
"""After a minute of silence, in seconds: the operating system ends the connection of a host that is gone."""
DISCARDED: Final = 64 * 1024
"""Bytes of an unread body that are discarded, so that the connection stays open for the next request."""


class BadRequest(Exception):
    """The request is not HTTP as WebHDFS clients speak it, or exceeds a bound."""


class BodyTooLong(BadRequest):
    """The body has more bytes than are read."""


class Body:
    """The body of a request, which is read once.  A body that ends early raises BadRequest."""

    def __init__(self, stream: BufferedIOBase, headers: Mapping[str, str]) -> None:
        self._stream = stream
        self._chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        length = headers.get("content-length", "0")
        if not length.isdecimal() or (self._chunked and "content-length" in headers):
            raise BadRequest("the length of the body is not clear")
        self._left = int(length)
        self.is_read = not self._chunked and self._left == 0

    def read(self, size: int) -> bytes:
        """Return at most `size` of the next bytes, and none at the end."""
        if self.is_read:
            return b""
        if self._left == 0:
            self._left = self._chunk_size()
            if self._left == 0:
                self._end_of_chunks()
                self.is_read = True
                return b""
        piece = self._stream.read(min(self._left, size))
        if not piece:
            raise BadRequest("the body ends early")
        self._left -= len(piece)
        if self._left == 0 and not self._chunked:
            self.is_read = True
        elif self._left == 0 and self._stream.read(2) != b"\r\n":
            raise BadRequest("a chunk does not end where it should")
        return piece

    def whole(self, *, most: int) -> bytes:
        """Return all of it; raises BodyTooLong beyond `most` bytes."""
        found = bytearray()
        while piece := self.read(most + 1):
            found += piece
            if len(found) > most:
                raise BodyTooLong(f"the body has more than {most} bytes")
        return bytes(found)

    def discard(self) -> bool:
        """Read what is left where it is little; return whether the connection is at the next request."""
        with suppress(BadRequest):
            self.whole(most=DISCARDED)
        return self.is_read

    def _chunk_size(self) -> int:
        size = _CHUNK_SIZE.match(self._stream.readline(LONGEST_LINE))
        if size is None:
            raise BadRequest("the body ends early, or a chunk has no size")
        return int(size[1], 16)

    def _end_of_chunks(self) -> None:
        while (line := self._stream.readline(LONGEST_LINE)) not in {b"\r\n", b"\n"}:
            if not line:
                raise BadRequest("the body ends early")


_CHUNK_SIZE: Final = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;[^\n]*)?\r?\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request: names of headers and parameters in lower case, the path decoded, the sender's address."""

    method: str
    path: str
    parameters: Mapping[str, str]
    headers: Mapping[str, str]
    sender: str
    body: Body


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is answered.  `length` is that of all blocks, in bytes; `ends` closes the connection.

    A `file` is sent in place of blocks, from its position on, by the operating system: for a gigabyte that takes half
    of the CPU time.
    """

    status: int
    blocks: Iterable[bytes] = ()
    file: IO[bytes] | None = None
    length: int = 0
    location: str | None = None
    ends: bool = False

    @classmethod
    def of(cls, status: int, content: bytes = b"", *, ends: bool = False) -> Answer:
        """Return an answer that is already there."""
        return cls(status=status, blocks=(content,), length=len(content), ends=ends)


Handle: TypeAlias = Callable[[Request], Answer]
"""Answers a request; what it raises ends the connection, and is logged."""


class HttpServer(socketserver.ThreadingTCPServer):
    """Serves `handle` on an address and port, from daemon threads; port 0 takes any."""

    allow_reuse_address = True
    request_queue_size = 128
    daemon_threads = True
    block_on_close = False

    def __init__(self, handle: Handle, *, address: str, port: int) -> None:
        self.handle = handle
        self._slots = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._deadlines: dict[socket.socket, float] = {}
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, port), _Connection)

    @property
    def port(self) -> int:
        """The port, also where any was asked for."""
        return int(self.server_address[1])

    def start(self, name: str) -> None:
        """Serve from a thread of this name."""
        threading.Thread(target=self.serve_forever, args=(SWEEP,), name=name, daemon=True).start()

    def stop(self) -> None:
        """Accept no more connections."""
        self.shutdown()
        self.server_close()

    def server_bind(self) -> None:
        """Bind for both families where the address is of IPv6."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def verify_request(self, request: object, client_address: object) -> bool:  # noqa: ARG002 - the library's signature
        """Refuse a connection beyond the bound."""
        return self._slots.acquire(blocking=False)

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Serve one connection from a thread, which the operating system may refuse."""
        try:
            super().process_request(request, client_address)
        except RuntimeError:
            self._slots.release()
            raise

    def process_request_thread(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        """Serve one connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def expect_head(self, connection: socket.socket, seconds: float | None) -> None:
        """End a connection that sends no whole head within so many seconds; None: it has."""
        if seconds is None:
            self._deadlines.pop(connection, None)
        else:
            self._deadlines[connection] = time.monotonic() + seconds

    def service_actions(self) -> None:
        """End the connections whose deadline has passed; each SWEEP."""
        now = time.monotonic()
        for connection, deadline in list(self._deadlines.items()):
            if now > deadline:
                self._deadlines.pop(connection, None)
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - the library's signature
        """Log what went wrong, which a client that leaves early is not."""
        log.warning("a request failed", exc_info=sys.exc_info())


class _Connection(socketserver.StreamRequestHandler):
    server: HttpServer
    disable_nagle_algorithm = True
    rbufsize = 64 * 1024

    def setup(self) -> None:
        """Have the operating system look whether the client's host is still there."""
        super().setup()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in PROBES:
            self.connection.setsockopt(socket.IPPROTO_TCP, option, value)

    def handle(self) -> None:
        """Answer requests until either side ends the connection."""
        sender, seconds = str(self.client_address[0]).removeprefix("::ffff:"), HEAD_DEADLINE
        with suppress(ConnectionError, TimeoutError):
            while True:
                self.server.expect_head(self.connection, seconds)
                try:
                    if not self._answer_one(sender):
                        return
                except BadRequest as error:
                    self._send(Answer.of(HTTPStatus.BAD_REQUEST, str(error).encode(), ends=True))
                    return
                seconds = IDLE_DEADLINE

    def finish(self) -> None:
        """Forget the connection."""
        self.server.expect_head(self.connection, None)
        with suppress(OSError):
            super().finish()

    def _answer_one(self, sender: str) -> bool:
        """return whether the connection stays open."""
        line = self.rfile.readline(LONGEST_LINE)
        if not line:
            return False
        request = _parsed(line, self.rfile, sender)
        self.server.expect_head(self.connection, None)
        # A body that is stored may stand still: Spark opens the file of a partition's changes when a task begins, and
        # writes it when the task ends.
        answer = self.server.handle(request)
        self.connection.settimeout(STALL_DEADLINE)
        with answer.file or nullcontext():
            lives = not answer.ends and request.body.discard() and request.headers.get("connection", "") != "close"
            self._send(answer if lives else replace(answer, ends=True))
        self.connection.settimeout(None)
        return lives

    def _send(self, answer: Answer) -> None:
        head = f"HTTP/1.1 {answer.status} {_PHRASES[answer.status]}\r\nContent-Length: {answer.length}\r\n"
        if answer.location is not None:
            head += f"Location: {answer.location}\r\n"
        if answer.ends:
            head += "Connection: close\r\n"
        # No Content-Type: Hadoop's client checks one with a class that Spark does not ship.
        first = f"{head}\r\n".encode()
        for block in answer.blocks:
            self.connection.sendall(first + block)
            first = b""
        if first:
            self.connection.sendall(first)
        if (file := answer.file) is not None and answer.length:
            sent = self.connection.sendfile(file, file.tell(), answer.length)
            if sent < answer.length:
                raise ConnectionError("the file ends early")


_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus}


def _parsed(line: bytes, stream: BufferedIOBase, sender: str) -> Request:
    """Return the request that begins with this line; raises BadRequest."""
    try:
        method, target, version = line.decode().rstrip("\r\n").split(" ")
    except ValueError:
        raise BadRequest("not a request line") from None
    if version != "HTTP/1.1":
        raise BadRequest("not HTTP/1.1")
    headers = _headers(stream)
    path, _, query = target.partition("?")
    if len(decoded := unquote(path)) > LONGEST_PATH:
        raise BadRequest(f"the path has more than {LONGEST_PATH} characters")
    return Request(
        method=method,
        path=decoded,
        parameters={name.lower(): value for name, value in parse_qsl(query, keep_blank_values=True)},
        headers=headers,
        sender=sender,
        body=Body(stream, headers),
    )


def _headers(stream: BufferedIOBase) -> dict[str, str]:
    found: dict[str, str] = {}
    for _ in range(MOST_HEADERS):
        line = stream.readline(LONGEST_LINE)
        if line in {b"\r\n", b"\n"}:
            return found
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or not line.endswith(b"\n"):
            raise BadRequest("not a header")
        found[name.lower()] = value.strip()
    raise BadRequest(f"more than {MOST_HEADERS} headers")
