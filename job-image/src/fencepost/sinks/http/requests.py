"""The task's half of the HTTP sink: a request per row, several at once, each repeated until the server has taken it.

The key of a request follows from the place of its record, so a batch that is written again sends the same keys, and a
server that knows a key does nothing more.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from itertools import islice
from socket import socket as Socket  # noqa: N812 - its variable has the name
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from fencepost.contract import Reason
from fencepost.errors import BatchFailed, DependencyDown, PoisonRecord
from fencepost.sinks.interface import BatchToken
from fencepost.sinks.retries import retried

if TYPE_CHECKING:
    import pyarrow as pa

FIRST_PAUSE: Final = 0.25
"""Seconds between the first two attempts; the pause doubles up to LONGEST_PAUSE."""
LONGEST_PAUSE: Final = 5.0
SHOWN: Final = 200
"""Characters of an answer that a message shows."""
_REFUSED: Final = frozenset({401, 403, 407})
"""The credentials are wrong: no record is."""
_REPEATED: Final = frozenset({408, 409, 425, 429})
"""Too early, too many, or a request with this key is in progress."""
_PATH: Final = re.compile(r"/[!-\"$-~]*")
"""Printable ASCII without a fragment."""
_LEAVING: Final = re.compile(r"[\\\x00-\x1f]|/\.\.?([/?;]|$)")
"""What leads out of the address of the spec, as some server reads it: a backslash is a slash to some, and what follows
a semicolon is not part of the name."""
MOST_READ: Final = 64 * 1024
"""Bytes of an answer after which its connection is given up: a server may answer without end."""
_PIECE: Final = 4096


@dataclass(frozen=True, slots=True)
class Request:
    """A row: where it goes, and its key."""

    key: str
    place: str
    path: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTask:
    """Sends requests. Headers with credentials travel in the task's closure, over Spark's encrypted RPC."""

    sink: str
    url: str
    method: str
    headers: Mapping[str, str] = field(repr=False)
    parallelism: int
    timeout: float
    """Seconds for an answer; what its body lacks then is not waited for."""
    owner: str
    """`<pipeline>/<sink>`, of which each key is."""
    patience: float
    """Seconds for which a request is repeated."""

    def write(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> Iterator[int]:
        """Send all rows. Raises PoisonRecord for one that the server refuses, DependencyDown, BatchFailed."""
        seen = set[str]()
        if batch.is_warm_up:
            for rows in batches:
                if batch.is_rehearsal:
                    for _ in self.requests(rows, seen):
                        pass
            return
        sender = _Sender(self, batch)
        pool = ThreadPoolExecutor(self.parallelism)
        try:
            for rows in batches:
                waiting = self.requests(rows, seen)
                while some := list(islice(waiting, self.parallelism)):
                    for repeated in pool.map(sender.send, some):
                        for _ in range(repeated):
                            retried()
                    yield len(some)
        finally:
            sender.ended.set()
            pool.shutdown(cancel_futures=True)
            sender.close()

    def requests(self, rows: pa.RecordBatch, seen: set[str]) -> Iterator[Request]:
        """Yield the request of each row. Raises PoisonRecord, BatchFailed for two rows with one key."""
        columns = {name: rows.column(name).to_pylist() for name in rows.schema.names}
        absent = [""] * rows.num_rows
        places = [columns[name] for name in ("topic", "partition", "offset", "i") if name in columns]
        for path, body, place in zip(
            columns.get("path", absent), columns["body"], zip(*places, strict=True), strict=True
        ):
            name = "/".join(map(str, place))
            if None in place or body is None:
                raise PoisonRecord(f"a coordinate or the body is null in the row of {name}")
            if path and not _is_below(path):
                raise PoisonRecord(
                    f"the path of the row of {name} is not printable ASCII after a slash, or leads out of the address:"
                    f" {path!r:.{SHOWN}}"
                )
            if name in seen:
                raise BatchFailed(
                    f"sink {self.sink!r}: two rows of {name} would have one idempotency key",
                    reason=Reason.SINK_FAILED,
                    remedy="Number the rows of a record in a column i, int or bigint.",
                )
            seen.add(name)
            key = hashlib.sha256(f"{self.owner}/{name}".encode()).hexdigest()
            yield Request(key, name, path or "", body.encode() if isinstance(body, str) else body)


def _is_below(path: str) -> bool:
    """Return whether a path stays below the address, also where a proxy and the server behind it decode it."""
    return _PATH.fullmatch(path) is not None and not _LEAVING.search(unquote(unquote(path.partition("?")[0])))


class _Sender:
    """Connections, one for each thread."""

    def __init__(self, task: RequestTask, batch: BatchToken) -> None:
        self._task, self._token = task, batch.token
        self._address = urlsplit(task.url)
        self._local = threading.local()
        self._open = list[HTTPConnection]()
        self.ended = threading.Event()
        """Whether another request has failed, and the task with it."""

    def send(self, request: Request) -> int:
        """Send until it is taken; return how often it was repeated. Raises PoisonRecord, DependencyDown."""
        deadline, pause, repeated = time.monotonic() + self._task.patience, FIRST_PAUSE, 0
        while True:
            try:
                status, answer = self._once(request)
            except (OSError, HTTPException) as error:
                trouble = f"{type(error).__name__}: {error}"
                self._drop()
            else:
                trouble = f"{status} {answer}"
                if 200 <= status < 300:  # noqa: PLR2004 - a range of status codes
                    return repeated
                self._raise_refused(request, status, trouble)
            if self.ended.is_set() or time.monotonic() + pause > deadline:
                raise DependencyDown(
                    f"HTTP sink {self._task.sink!r}: {self._task.url} answered {trouble}",
                    reason=Reason.SINK_UNREACHABLE,
                )
            self.ended.wait(pause)
            pause, repeated = min(2 * pause, LONGEST_PAUSE), repeated + 1

    def close(self) -> None:
        """Close all connections."""
        for connection in self._open:
            connection.close()

    def _raise_refused(self, request: Request, status: int, answer: str) -> None:
        """Return for an answer after which the request is repeated."""
        place = f"HTTP sink {self._task.sink!r}: {self._task.url}"
        if status in _REFUSED or 300 <= status < 400:  # noqa: PLR2004
            raise DependencyDown(
                f"{place} answered {answer}",
                reason=Reason.SINK_UNREACHABLE,
                remedy="Correct the headers in the Secret of headersFrom, or the address: redirects are not followed.",
            )
        if 400 <= status < 500 and status not in _REPEATED:  # noqa: PLR2004
            raise PoisonRecord(f"{place} refused the row of {request.place}: {answer}")

    def _once(self, request: Request) -> tuple[int, str]:
        connection: HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connect: Any = HTTPSConnection if self._address.scheme == "https" else HTTPConnection
            connection = connect(self._address.hostname, self._address.port, timeout=self._task.timeout)
            self._local.connection = connection
            self._open.append(connection)
        headers = {**self._task.headers, "Idempotency-Key": request.key, "Fencepost-Token": str(self._token)}
        ends = time.monotonic() + self._task.timeout
        connection.request(self._task.method, (self._address.path + request.path) or "/", request.body, headers)
        socket = connection.sock
        socket.settimeout(self._task.timeout)
        answer = connection.getresponse()
        return answer.status, self._said(answer, socket, ends)[:SHOWN].decode(errors="replace")

    def _said(self, answer: HTTPResponse, socket: Socket, ends: float) -> bytes:
        """Return the body as far as it has arrived in time. Where it is slow or long, the connection is dropped."""
        said = b""
        while len(said) <= MOST_READ and (left := ends - time.monotonic()) > 0:
            socket.settimeout(left)
            try:
                piece = answer.read1(_PIECE)
            except TimeoutError:
                break
            if not piece:
                if not answer.length:  # nothing is missing
                    answer.close()
                    return said
                break
            said += piece
        self._drop()
        return said

    def _drop(self) -> None:
        connection: HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None
