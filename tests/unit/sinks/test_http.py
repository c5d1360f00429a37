"""The HTTP sink against a real server that keeps keys: the suite for sinks, kills, and each kind of answer."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa
import pytest

from fencepost.context import WARM_TOKEN
from fencepost.contract import HttpSink
from fencepost.errors import BadSpec, BatchFailed, DependencyDown, DriverError, PoisonRecord
from fencepost.sinks.http import http_sink
from fencepost.sinks.http.http_sink import OutboxSink
from fencepost.testing.sinks import SinkContract, Subject, token_of, write_batch, write_task

SCHEMA = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("body", pa.string())])


class Receiver(ThreadingHTTPServer):
    """Keeps the first request of each key. `answers` are what it says next; then 200."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.kept = dict[str, tuple[str, str]]()
        self.requests = list[dict[str, str]]()
        self.answers = list[int]()
        self.pause = 0.0
        self.drips = False
        self.open = self.most_open = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/rows"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Receiver

    def log_message(self, *_: Any) -> None: ...

    def do_POST(self) -> None:
        with self.server.lock:
            self.server.open += 1
            self.server.most_open = max(self.server.open, self.server.most_open)
            status = self.server.answers.pop(0) if self.server.answers else 200
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        time.sleep(self.server.pause)
        with self.server.lock:
            self.server.open -= 1
            self.server.requests.append(dict(self.headers))
            if status == 200:
                self.server.kept.setdefault(self.headers["Idempotency-Key"], (self.path, body))
        with suppress(OSError):  # the client was killed
            self.send_response(status)
            if self.server.drips:
                self._drip()
                return
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"said")

    def _drip(self) -> None:
        """Send a byte of the body at a time until the client ends the connection."""
        self.send_header("Content-Length", str(10**9))
        self.end_headers()
        while True:
            self.wfile.write(b"x")
            time.sleep(0.02)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def row(offset: int, value: str) -> dict[str, Any]:
    return {"topic": "t", "partition": 0, "offset": offset, "body": json.dumps({"offset": offset, "value": value})}


def rows_of(*values: str, start: int = 7) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([row(start + place, value) for place, value in enumerate(values)], SCHEMA)


def opened(receiver: Receiver, patience: float = 5.0, **changes: Any) -> OutboxSink:
    sink = HttpSink(name="rows", url=receiver.url, **changes)
    return http_sink.bind(sink, {"Authorization": "Bearer x"}, pipeline="test/test/test", patience=patience)


class TestHttpSink(SinkContract):
    """The sink keeps to the contract, with a server that keeps to its own."""

    @pytest.fixture
    def subject(self, receiver: Receiver) -> Subject:
        return Subject(
            open=lambda: opened(receiver),
            rows=rows_of("a", "b", "c"),
            changed=rows_of("x", "y", "z"),
            read=lambda: [row(**{"offset": 0, "value": "", **json.loads(body)}) for _, body in receiver.kept.values()],
            misfits={"town": SCHEMA.append(pa.field("town", pa.string())), "offset": SCHEMA.remove(2)},
        )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork in a process with threads
def test_a_task_that_is_killed_leaves_each_row_once(receiver: Receiver) -> None:
    """Injected: SIGKILL of the process at several moments, and a zombie that ends beside its successor."""
    rows = rows_of(*"abcdefghijklmnopqrst")
    receiver.pause = 0.01
    for kill in range(6):
        child = os.fork()
        if child == 0:
            write_task(opened(receiver, parallelism=2), token_of(rows), [rows])
            os._exit(0)
        time.sleep(0.02 * kill)
        if kill % 2:
            os.kill(child, signal.SIGKILL)
        write_batch(opened(receiver, parallelism=2), token_of(rows, after=1), [rows])
        os.waitpid(child, 0)
        assert sorted(json.loads(body)["value"] for _, body in receiver.kept.values()) == list("abcdefghijklmnopqrst")
        receiver.kept.clear()


def test_an_outage_is_waited_for_and_the_key_stays(receiver: Receiver) -> None:
    receiver.answers = [503, 429, 409]
    assert write_batch(opened(receiver), token_of(rows_of("a")), [rows_of("a")]) == 1
    assert len({request["Idempotency-Key"] for request in receiver.requests}) == 1
    assert [request["Authorization"] for request in receiver.requests] == ["Bearer x"] * 4
    assert len(receiver.kept) == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [(500, DependencyDown), (401, DependencyDown), (302, DependencyDown), (400, PoisonRecord), (422, PoisonRecord)],
)
def test_an_answer_is_an_outage_or_a_poison_record(receiver: Receiver, status: int, error: type[DriverError]) -> None:
    receiver.answers = [status] * 20
    with pytest.raises(error, match=f"{status} said") as caught:
        write_task(opened(receiver, patience=0.6), token_of(rows_of("a")), [rows_of("a")])
    assert ("t/0/7" in caught.value.message) is (error is PoisonRecord)


def test_a_server_that_is_not_there_or_does_not_answer_is_down(receiver: Receiver) -> None:
    gone = HttpSink(name="rows", url="http://127.0.0.1:1/rows")
    with pytest.raises(DependencyDown, match="ConnectionRefusedError"):
        write_task(http_sink.bind(gone, {}, pipeline="p", patience=0.3), token_of(rows_of("a")), [rows_of("a")])
    receiver.pause = 1.0
    with pytest.raises(DependencyDown, match="TimeoutError"):
        write_task(opened(receiver, patience=0.1, timeout=0.2), token_of(rows_of("a")), [rows_of("a")])


def test_no_more_requests_are_open_than_the_spec_allows(receiver: Receiver) -> None:
    receiver.pause = 0.02
    rows = rows_of(*map(str, range(40)))
    write_task(opened(receiver, parallelism=3), token_of(rows), [rows])
    assert (receiver.most_open <= 3, len(receiver.kept)) == (True, 40)


GOOD = "/7;v=1/a..b/...?x=%5C/../y"
LEAVING = (
    "/%2e%2e/admin",
    "/.%2E",
    "/..%2fadmin",
    "/..;/admin",
    "/a/..%3Bx",
    "/\\..\\admin",
    "/%5cx",
    "/%252e%252e/x",
    "/..%00",
)


def test_a_path_goes_below_the_address_and_nowhere_else(receiver: Receiver) -> None:
    schema = SCHEMA.append(pa.field("path", pa.string()))
    write_task(opened(receiver), token_of(rows_of("a")), [rows_of("a").append_column("path", pa.array([GOOD]))])
    assert [path for path, _ in receiver.kept.values()] == [f"/rows{GOOD}"]
    rehearsal = replace(token_of(rows_of("a")), token=WARM_TOKEN)
    for path in ("x", "@evil", "/../x", "/a/..", "/\r\nHost: x", "/a b", "/\u00e9", "/x#y", *LEAVING):
        rows = pa.RecordBatch.from_pylist([{**row(7, "a"), "path": path}], schema)
        with pytest.raises(PoisonRecord, match="the path of the row of t/0/7"):
            write_task(opened(receiver), rehearsal, [rows])
    assert len(receiver.requests) == 1


def test_rows_with_one_key_are_refused_before_one_is_lost(receiver: Receiver) -> None:
    twice = pa.RecordBatch.from_pylist([row(7, "a"), row(7, "b")], SCHEMA)
    with pytest.raises(BatchFailed, match="two rows of t/0/7 would have one idempotency key"):
        write_task(opened(receiver), token_of(twice), [twice])
    numbered = twice.append_column("i", pa.array([0, 1], pa.int32()))
    write_task(opened(receiver), token_of(twice), [numbered])
    assert len(receiver.kept) == 2


def test_a_header_that_the_sink_sets_itself_is_refused(receiver: Receiver) -> None:
    with pytest.raises(BadSpec, match="has Host, which the sink sets itself"):
        http_sink.bind(HttpSink(name="rows", url=receiver.url), {"Host": "x"}, pipeline="p", patience=1.0)


def test_the_value_of_a_header_is_refused_by_its_name_alone(receiver: Receiver) -> None:
    sink = HttpSink(name="rows", url=receiver.url)
    for value in ("hun\nter2", "hunter2\r", "hunter\u00e9", "hun\0ter"):
        with pytest.raises(BadSpec, match=r"the value of X-Key has") as caught:
            http_sink.bind(sink, {"X-Key": value, "Accept": "a/b"}, pipeline="p", patience=1.0)
        assert "hun" not in f"{caught.value.message}{caught.value.remedy}"


def test_a_body_that_does_not_end_is_not_waited_for(receiver: Receiver) -> None:
    """Injected: a byte of the body every 20 ms, for hours; each is within the timeout of a read."""
    receiver.drips = True
    rows = rows_of("a", "b")
    write_task(opened(receiver, timeout=1.0, parallelism=1), token_of(rows), [rows])
    assert (len(receiver.requests), len(receiver.kept)) == (2, 2)
