"""The names of a checkpoint directory over WebHDFS: what files there are, and every change of that.

Bytes do not pass here: CREATE and OPEN are answered with a redirect to a data service.  The exceptions are the files
that become columns of the fence row; those are redirected to this service, which keeps them.

  CREATE   307 to a data service, which stores the chunks, and then reports here; only then the file is listed.
           A data service also reports what it cannot store or read.
  OPEN     307 with the file's id and length, so that a data service needs no names.
  RENAME   one step of the checkpoint: to offsets/N it is the plan, to commits/N the commit.

A service whose epoch is over answers 403 to everything that changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import quote
from uuid import UUID

from fencepost.state.checkpoint import LARGEST_LOG, Checkpoint
from fencepost.state.errors import LogTooLong, PathInvalid
from fencepost.state.tree import StoredFile
from fencepost.state.webhdfs import answers, failure_reports, operator_metadata
from fencepost.state.webhdfs.authentication import FailedTicket, Keys, ReadTicket, StoredTicket, UploadTicket
from fencepost.state.webhdfs.http_server import Answer, BodyTooLong, Request

PREFIX: Final = "/webhdfs/v1"
STORED: Final = "STORED"
"""The operation with which a data service reports a file: ours, not WebHDFS'."""
FAILED: Final = "FAILED"
"""The operation with which a data service reports why a request failed: ours too."""
HERE: Final = "data"
"""The parameter of a redirect to this service; HttpFS' name for it."""


class NameService:
    """Serves the checkpoint of one epoch, below `/e<epoch>`.

    `address` is this service's 'host:port' for executors, and `data_service` returns that of the data service for a
    client at an address.  `scope` says whose requests the header authenticates: a pipeline's.  `failed` is called with
    each error of `failure_reports.REPORTED`, from any thread, before the client has its answer.  `patience` is for how
    many seconds a data service repeats a request to the database.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        keys: Keys,
        scope: str,
        epoch: int,
        address: str,
        data_service: Callable[[str], str],
        failed: Callable[[Exception], object],
        patience: float,
    ) -> None:
        self._checkpoint = checkpoint
        self._keys = keys
        self._scope = scope_of(scope, epoch)
        self._root = f"/e{epoch}"
        self._address = address
        self._data_service = data_service
        self._failed = failed
        self._patience = patience
        self._operations: Final[Mapping[tuple[str, str], Callable[[str, Request], Answer]]] = {
            ("DELETE", "DELETE"): self._delete,
            ("GET", "GETFILESTATUS"): self._status,
            ("GET", "LISTSTATUS"): self._list,
            ("GET", "OPEN"): self._open,
            ("PUT", "CREATE"): self._create,
            ("PUT", "MKDIRS"): self._make,
            ("PUT", "RENAME"): self._rename,
        }

    @property
    def location(self) -> str:
        """The checkpoint's location for Spark."""
        return f"webhdfs://{self._address}{self._root}"

    @property
    def header(self) -> str:
        """The name of the header that a client sends; it is a secret."""
        return self._keys.header(self._scope)

    def handle(self, request: Request) -> Answer:
        """Answer one request."""
        try:
            return self._authentic(request)
        except answers.FAILURES as error:
            if isinstance(error, failure_reports.REPORTED):
                self._failed(error)
            return answers.failure(error)

    def _authentic(self, request: Request) -> Answer:
        name = request.parameters.get("op", "").upper()
        if name == STORED:
            ticket = self._keys.opened(request.parameters.get("ticket", ""), StoredTicket)
            self._checkpoint.complete(UUID(ticket.file), ticket.length)
            return answers.done()
        if name == FAILED:
            found = self._keys.opened(request.parameters.get("ticket", ""), FailedTicket)
            self._failed(failure_reports.error_of(found))
            return answers.done()
        self._keys.check_header(request.headers, self._scope)
        operation = self._operations.get((request.method, name))
        if operation is None:
            raise answers.Unsupported(f"{request.method} {name}")
        return operation(self._relative(request.path.removeprefix(PREFIX)), request)

    def _relative(self, path: str) -> str:
        """Return a path below this epoch's root; raises PathInvalid for any other."""
        parts = [part for part in path.split("/") if part]
        if not parts or f"/{parts[0]}" != self._root:
            raise PathInvalid(f"this service has {self._root} alone")
        return "/".join(parts[1:])

    def _status(self, path: str, _: Request) -> Answer:
        return answers.file_status(self._checkpoint.status(path))

    def _list(self, path: str, _: Request) -> Answer:
        return answers.listing(self._checkpoint.entries(path))

    def _make(self, path: str, _: Request) -> Answer:
        self._checkpoint.make_directory(path)
        return answers.boolean(True)

    def _create(self, path: str, request: Request) -> Answer:
        overwrite = request.parameters.get("overwrite", "").lower() == "true"
        if not self._checkpoint.is_log(path):
            file = self._checkpoint.create(path, overwrite=overwrite)
            allowed = UploadTicket(file=str(file), report_to=self._address, patience=self._patience)
            ticket = self._keys.ticket(allowed)
            return answers.redirect(f"http://{self._data_service(request.sender)}/?ticket={ticket}")
        if HERE not in request.parameters:
            return self._redirect_here(path, f"op=CREATE&overwrite={str(overwrite).lower()}")
        try:
            content = request.body.whole(most=LARGEST_LOG)
        except BodyTooLong as error:
            raise LogTooLong(f"log file {path} of the checkpoint: {error}") from error
        self._checkpoint.keep(path, content, overwrite=overwrite)
        return Answer.of(HTTPStatus.CREATED)

    def _open(self, path: str, request: Request) -> Answer:
        file = self._checkpoint.open(path)
        if isinstance(file, StoredFile):
            allowed = ReadTicket(
                file=str(file.id),
                length=file.length,
                report_to=self._address,
                patience=self._patience,
                location=self.location if operator_metadata.is_metadata(path, file.length) else "",
            )
            ticket = self._keys.ticket(allowed)
            return answers.redirect(f"http://{self._data_service(request.sender)}/?ticket={ticket}")
        if HERE not in request.parameters:
            return self._redirect_here(path, "op=OPEN")
        start, stop = asked_range(request.parameters, file.length)
        return Answer.of(HTTPStatus.OK, file.content[start:stop])

    def _redirect_here(self, path: str, query: str) -> Answer:
        return answers.redirect(f"http://{self._address}{PREFIX}{self._root}/{quote(path)}?{query}&{HERE}=true")

    def _rename(self, path: str, request: Request) -> Answer:
        self._checkpoint.rename(path, self._relative(request.parameters.get("destination", "")))
        return answers.boolean(True)

    def _delete(self, path: str, request: Request) -> Answer:
        recursive = request.parameters.get("recursive", "").lower() == "true"
        return answers.boolean(self._checkpoint.delete(path, recursive=recursive))


def scope_of(pipeline: str, epoch: int) -> str:
    """Return the scope of the key that authenticates the requests of this epoch's clients."""
    return f"{pipeline}/{epoch}"


def asked_range(parameters: Mapping[str, str], length: int) -> tuple[int, int]:
    """Return from where and up to where a client reads a file of this length, in bytes."""
    start = min(_number(parameters.get("offset"), 0), length)
    return start, min(start + _number(parameters.get("length"), length), length)


def _number(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isdecimal() else default
