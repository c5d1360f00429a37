"""Uploads and reads that fail half-way: nothing is listed that is not durable, and no answer is mistaken for a file."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fakes.checkpoint_services import SECRET, Served, serving
from fencepost.fence.errors import FenceClockSkew, FenceUnavailable
from fencepost.state import directory
from fencepost.state.chunks import CHUNK, WINDOW
from fencepost.state.errors import CheckpointDamaged, CheckpointFull, LogTooLong, PathMissing
from fencepost.state.memory import MemoryChunks
from fencepost.state.tree import StoredFile
from fencepost.state.webhdfs import data_service, name_service, operator_metadata
from fencepost.state.webhdfs.authentication import TICKET_LIFE, FailedTicket, Keys, StoredTicket
from fencepost.state.webhdfs.data_service import DataService
from fencepost.state.webhdfs.data_services import DataServices
from fencepost.state.webhdfs.file_cache import FileCache
from fencepost.state.webhdfs.http_server import HttpServer

CONTENT = b"x" * (CHUNK + 1)


@pytest.fixture
def chunks() -> MemoryChunks:
    return MemoryChunks()


@pytest.fixture
def served(chunks: MemoryChunks, tmp_path: Path) -> Iterator[Served]:
    with serving(chunks, tmp_path / "cache") as made:
        yield made


@dataclass(frozen=True, slots=True)
class Answered:
    status: int
    location: str
    content: bytes


def ask(url: str, method: str, body: bytes = b"", header: str = "x-none") -> Answered:
    """Send one request, without following a redirect."""
    parts = urlsplit(url)
    with closing(http.client.HTTPConnection(parts.netloc, timeout=10)) as connection:
        connection.request(method, f"{parts.path}?{parts.query}", body=body, headers={header: ""})
        answer = connection.getresponse()
        return Answered(answer.status, answer.headers.get("Location", ""), answer.read())


def named(served: Served, method: str, query: str, path: str = "state/a") -> Answered:
    """Ask the name service."""
    url = f"http://127.0.0.1:{served.name_server.port}/webhdfs/v1/e1/{path}?{query}"
    return ask(url, method, header=served.names.header)


def upload_location(served: Served) -> str:
    return named(served, "PUT", "op=CREATE").location


def is_listed(served: Served) -> bool:
    try:
        served.checkpoint.status("state/a")
    except PathMissing:
        return False
    return True


def test_cut_upload(served: Served, tmp_path: Path) -> None:
    parts = urlsplit(upload_location(served))
    with socket.create_connection(("127.0.0.1", served.data_server.port)) as connection:
        connection.sendall(f"PUT /?{parts.query} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n".encode())
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100).startswith(b"HTTP/1.1 400 ")
    assert not is_listed(served)
    assert not [path for path in (tmp_path / "cache").glob("*/*") if path.is_file()]


def test_store_that_is_away(served: Served, chunks: MemoryChunks) -> None:
    def away(_: str) -> None:
        raise FenceUnavailable("no replica answers")

    chunks.before = away
    assert ask(upload_location(served), "PUT", CONTENT).status == 503
    assert not is_listed(served)
    assert [(type(error), str(error)) for error in served.failed] == [(FenceUnavailable, "no replica answers")]


def test_a_store_is_asked_again_for_as_long_as_the_ticket_says(chunks: MemoryChunks, tmp_path: Path) -> None:
    """The run says how long: a task that waits in two attempts ends before the operator replaces the run."""
    asked: list[str] = []

    def away(call: str) -> None:
        asked.append(call)
        if len(asked) == 1:
            raise FenceUnavailable("no replica answers")

    chunks.before = away
    with serving(chunks, tmp_path / "cache", patience=60.0) as patient:
        assert ask(upload_location(patient), "PUT", CONTENT).status == 201
        assert patient.failed == []
    assert asked[:2] == ["write", "write"]


def test_epoch_that_ends_during_the_upload(served: Served) -> None:
    location = upload_location(served)
    served.checkpoint.close()
    assert ask(location, "PUT", CONTENT).status == 403
    assert not is_listed(served)


def test_name_service_that_is_gone(served: Served) -> None:
    location = upload_location(served)
    served.name_server.stop()
    assert ask(location, "PUT", CONTENT).status == 503


def test_second_use_of_a_ticket(served: Served) -> None:
    location = upload_location(served)
    assert [ask(location, "PUT", CONTENT).status for _ in range(2)] == [201, 403]


def test_ticket_to_read_stores_nothing(served: Served) -> None:
    assert ask(upload_location(served), "PUT", CONTENT).status == 201
    location = named(served, "GET", "op=OPEN").location
    assert ask(location, "PUT", b"other").status == 403
    assert ask(location, "GET").content == CONTENT


def test_metadata_names_files_where_this_epoch_serves_them(served: Served) -> None:
    """Another epoch wrote it; other files keep what they hold."""
    older = (
        b'v2\n{"paths":["webhdfs://10.0.0.7:7078/e3/state/0/a","webhdfs://[fd00::7]:7078/e12/state/0/b"],"x":"/e3/"}'
    )
    here = served.names.location.encode()
    newer = older.replace(b"webhdfs://10.0.0.7:7078/e3", here).replace(b"webhdfs://[fd00::7]:7078/e12", here)
    for path, content in (("state/0/_metadata/v2/0", newer), ("state/0/1/1.changelog", older)):
        assert ask(named(served, "PUT", "op=CREATE", path).location, "PUT", older).status == 201
        found = named(served, "GET", "op=OPEN", path).location
        assert ask(found, "GET").content == content
        assert ask(f"{found}&offset=10&length=60", "GET").content == content[10:70]


def test_metadata_that_is_not_sparks_is_not_read_into_memory(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_metadata, "LARGEST", 40)
    path, content = "state/0/_metadata/v2/0", b'"webhdfs://10.0.0.7:7078/e3/state/0/a"    '
    assert ask(named(served, "PUT", "op=CREATE", path).location, "PUT", content).status == 201
    assert ask(named(served, "GET", "op=OPEN", path).location, "GET").content == content


def test_missing_chunk_is_an_error_and_not_a_short_file(served: Served, chunks: MemoryChunks, tmp_path: Path) -> None:
    assert ask(upload_location(served), "PUT", CONTENT).status == 201
    file = served.checkpoint.open("state/a")
    assert isinstance(file, StoredFile)
    del chunks.chunks[file.id, 1]
    for copy in (tmp_path / "cache").glob(f"*/{file.id}.*"):
        copy.unlink()
    assert ask(named(served, "GET", "op=OPEN").location, "GET").status == 500
    assert [type(error) for error in served.failed] == [CheckpointDamaged]


def test_what_fails_amid_a_file_is_reported_too(served: Served, chunks: MemoryChunks, tmp_path: Path) -> None:
    """Its first chunks are sent by then: the client only loses its connection."""
    assert ask(upload_location(served), "PUT", b"x" * (CHUNK * WINDOW + 1)).status == 201
    file = served.checkpoint.open("state/a")
    assert isinstance(file, StoredFile)
    del chunks.chunks[file.id, WINDOW]
    for copy in (tmp_path / "cache").glob(f"*/{file.id}.*"):
        copy.unlink()
    with pytest.raises(http.client.IncompleteRead):
        ask(named(served, "GET", "op=OPEN").location, "GET")
    assert [type(error) for error in served.failed] == [CheckpointDamaged]


def test_bounds_that_are_exceeded_are_reported(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the data service of a file, and by the name service of the directory."""
    location = upload_location(served)
    monkeypatch.setattr(data_service, "LARGEST_FILE", 10)
    assert ask(location, "PUT", CONTENT).status == 507
    monkeypatch.setattr(directory, "MOST_ENTRIES", 0)
    assert named(served, "PUT", "op=MKDIRS", "state/b").status == 507
    assert ask(upload_location(served), "PUT", b"small").status == 507
    assert [type(error) for error in served.failed] == [CheckpointFull] * 3


def test_a_log_that_is_too_long_is_reported(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name says which partitions it names; without the report the run would end as a batch that failed."""
    monkeypatch.setattr(name_service, "LARGEST_LOG", 10)
    location = named(served, "PUT", "op=CREATE", "offsets/.7.tmp").location
    assert ask(location, "PUT", b"x" * 11, header=served.names.header).status == 507
    assert [(type(error), "offsets/.7.tmp" in str(error)) for error in served.failed] == [(LogTooLong, True)]


@pytest.mark.parametrize("ahead", [2 * TICKET_LIFE, -2 * TICKET_LIFE])
def test_clocks_that_are_hours_apart_are_named(
    served: Served, chunks: MemoryChunks, tmp_path: Path, ahead: float
) -> None:
    """A node that is ahead refuses the driver's tickets, and the driver those of a node that is behind."""
    keys = Keys(SECRET, now=lambda: time.time() + ahead)
    service = DataService(chunks, FileCache(tmp_path / "other", most=0), keys)
    server = HttpServer(service.handle, address="127.0.0.1", port=0)
    server.start("data service of another node")
    try:
        location = upload_location(served).replace(f":{served.data_server.port}/", f":{server.port}/")
        assert ask(location, "PUT", CONTENT).status == 503
    finally:
        server.stop()
    assert not is_listed(served)
    (failure,) = served.failed
    assert isinstance(failure, FenceClockSkew)
    assert "an hour apart" in str(failure)
    assert "clocks of the nodes" in failure.remedy


def test_a_failure_that_no_data_service_reports_is_not_believed(served: Served) -> None:
    forged = Keys("another").ticket(FailedTicket(error="FenceUnavailable", message="m"))
    for ticket in (forged, "", Keys(SECRET).ticket(StoredTicket(file="f", length=1))):
        assert ask(f"http://127.0.0.1:{served.name_server.port}/?op=FAILED&ticket={ticket}", "POST").status == 403
    assert served.failed == []


def test_operation_that_a_checkpoint_does_not_need(served: Served) -> None:
    for method, query in (("POST", "op=APPEND"), ("PUT", "op=SETXATTR"), ("GET", "op=DELETE"), ("GET", "")):
        assert named(served, method, query).status == 400


@pytest.mark.parametrize(
    "path", ["../e2/state/a", "state/../../e2/a", "state/%2e%2e/a", "state/a%00", "state/" + "x" * 2000]
)
def test_path_that_no_checkpoint_has(served: Served, path: str) -> None:
    for method, query in (("PUT", "op=CREATE"), ("PUT", "op=MKDIRS"), ("DELETE", "op=DELETE&recursive=true")):
        assert named(served, method, query, path).status == 403
    named(served, "PUT", "op=CREATE", "state/a")
    assert named(served, "PUT", "op=RENAME&destination=/e2/a").status == 403


def test_data_service_of_the_clients_node() -> None:
    """The one that answers there; a node without one uses the driver's."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        port = listening.getsockname()[1]
        assert DataServices(own="driver:1", port=port).near("127.0.0.1") == f"127.0.0.1:{port}"
    assert DataServices(own="driver:1", port=port).near("127.0.0.1") == "driver:1"
    assert DataServices(own="driver:1").near("127.0.0.1") == "driver:1"
