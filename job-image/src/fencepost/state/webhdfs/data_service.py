"""The bytes of a checkpoint's files over WebHDFS: a process beside each worker, and one beside the driver.

It knows no names: tickets of the name service say what may be stored or read.  A file is acknowledged when all its
chunks are durable and the name service has listed it.  What cannot be stored or read is reported to the name service.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http import HTTPStatus
from itertools import chain
from typing import Final
from uuid import UUID

from fencepost.fence.patience import Patience
from fencepost.state.chunks import LARGEST_FILE, ChunkStore, PatientChunks, read_file, write_file
from fencepost.state.errors import NameServiceUnavailable
from fencepost.state.webhdfs import answers, failure_reports, operator_metadata
from fencepost.state.webhdfs.authentication import Keys, ReadTicket, StoredTicket, Ticket, TicketExpired, UploadTicket
from fencepost.state.webhdfs.file_cache import Copy, FileCache
from fencepost.state.webhdfs.http_server import Answer, Body, Request
from fencepost.state.webhdfs.name_service import FAILED, STORED, asked_range

REPORT_TIMEOUT: Final = 30.0
"""Seconds for the name service to list a file that is stored."""


class DataService:
    """Stores and reads files for holders of tickets."""

    def __init__(self, store: ChunkStore, cache: FileCache, keys: Keys) -> None:
        self._store = store
        self._cache = cache
        self._keys = keys

    def handle(self, request: Request) -> Answer:
        """Answer one request."""
        ticket = request.parameters.get("ticket", "")
        try:
            if request.method == "PUT":
                return self._store_file(self._keys.opened(ticket, UploadTicket), request.body)
            return self._read_file(self._keys.opened(ticket, ReadTicket), request)
        except TicketExpired as error:
            if isinstance(error.ticket, UploadTicket | ReadTicket):
                self._report_failure(error.ticket.report_to, error)
            return answers.failure(error)
        except answers.FAILURES as error:
            return answers.failure(error)

    def _store_file(self, ticket: UploadTicket, body: Body) -> Answer:
        file = UUID(ticket.file)
        with self._reported(ticket.report_to), self._cache.writing(file) as copy:
            length = write_file(self._patient(ticket), file, Copied(body, copy), limit=LARGEST_FILE)
        status, content = self._report(ticket.report_to, STORED, StoredTicket(file=ticket.file, length=length))
        return Answer.of(HTTPStatus.CREATED if status == HTTPStatus.OK else status, content)

    def _report(self, address: str, operation: str, ticket: Ticket) -> tuple[int, bytes]:
        """Return what the name service answers, its status and content. Raises NameServiceUnavailable."""
        try:
            with closing(http.client.HTTPConnection(address, timeout=REPORT_TIMEOUT)) as connection:
                connection.request("POST", f"/?op={operation}&ticket={self._keys.ticket(ticket)}")
                answer = connection.getresponse()
                return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise NameServiceUnavailable(f"the name service does not answer: {error}") from error

    @contextmanager
    def _reported(self, address: str) -> Iterator[None]:
        """Report why the block fails."""
        try:
            yield
        except failure_reports.REPORTED as error:
            self._report_failure(address, error)
            raise

    def _report_failure(self, address: str, error: Exception) -> None:
        with suppress(NameServiceUnavailable):
            self._report(address, FAILED, failure_reports.ticket_of(error))

    def _read_file(self, ticket: ReadTicket, request: Request) -> Answer:
        if ticket.location:
            return self._read_metadata(ticket, request)
        start, stop = asked_range(request.parameters, ticket.length)
        cached = self._cache.open(UUID(ticket.file), ticket.length)
        if cached is not None:
            cached.seek(start)
            return Answer(status=HTTPStatus.OK, file=cached, length=stop - start)
        blocks = self._reported_blocks(ticket, start, stop)
        first = next(blocks, b"")  # a missing chunk is an answer here, and an end of the connection later
        return Answer(status=HTTPStatus.OK, blocks=chain((first,), blocks), length=stop - start)

    def _read_metadata(self, ticket: ReadTicket, request: Request) -> Answer:
        stored = b"".join(self._reported_blocks(ticket, 0, ticket.length))
        content = operator_metadata.relocated(stored, ticket.location)
        start, stop = asked_range(request.parameters, len(content))
        return Answer.of(HTTPStatus.OK, content[start:stop])

    def _reported_blocks(self, ticket: ReadTicket, start: int, stop: int) -> Iterator[bytes]:
        with self._reported(ticket.report_to):
            yield from self._blocks(self._patient(ticket), UUID(ticket.file), ticket.length, start, stop)

    def _patient(self, ticket: UploadTicket | ReadTicket) -> ChunkStore:
        return PatientChunks(self._store, Patience(ticket.patience))

    def _blocks(self, store: ChunkStore, file: UUID, length: int, start: int, stop: int) -> Iterator[bytes]:
        if stop - start == length:
            with self._cache.writing(file) as copy:
                for block in read_file(store, file, length):
                    copy.write(block)
                    yield block
        else:
            yield from read_file(store, file, length, start=start, stop=stop)


class Copied:
    """A body that is also written to a file as it is read."""

    def __init__(self, body: Body, copy: Copy) -> None:
        self._body = body
        self._copy = copy

    def read(self, size: int) -> bytes:
        """Return at most `size` of the next bytes, and none at the end."""
        piece = self._body.read(size)
        self._copy.write(piece)
        return piece
