"""Traces of batches: OTLP as its own library reads it from a real server, and receivers that cost a run nothing."""

from __future__ import annotations

import base64
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from fakes.driver_configs import USUAL
from fencepost.batch import Batch, Range, SinkWork
from fencepost.contract import DriverConfig, KafkaSource, Observability, OpenTelemetryEndpoint, Reason, Verdict
from fencepost.driver.loop import InProgress
from fencepost.driver.reporting.commit_report import Report
from fencepost.driver.reporting.telemetry import traces
from fencepost.driver.reporting.telemetry.outbox import Outbox, Sent
from fencepost.driver.reporting.telemetry.post import json_post
from fencepost.driver.reporting.telemetry.run_telemetry import RunTelemetry
from fencepost.driver.reporting.telemetry.traces import CommittedBatch, FailedBatch, Place
from fencepost.fence import FenceRow
from fencepost.formats.access import Access
from harness.waiting import eventually
from harness.web_server import Quiet, serving
from unit.driver.loop_world import FakeLog, World

PLACE = Place(
    pipeline="s/shop/orders", epoch=7, driver="pod-uid",
    source=KafkaSource(bootstrap_servers="kafka:9092", topics=("t",)),
)  # fmt: skip
REPORT = Report(
    epoch=7, version=12, records=60, size=20_000, limit=5000, lag=3,
    work={
        "orders": SinkWork(rows=50, size=7_000, reading=0.5, writing=1.5, retries=3, read_until=9.5, wrote_from=9.2),
        "totals": SinkWork(rows=1, size=70, reading=0.1, writing=0.2, read_until=9.4, wrote_from=2.0),
        "idle": SinkWork(),
    },
    phases={"plan": 200, "record": 100, "write": 1400, "transform": 100, "job": 1200, "commit": 100, "total": 2000},
    starts={"plan": 0, "record": 200, "write": 400, "commit": 1850},
    ranges=(Range("t", 0, 100, 150), Range("t", 1, 7, 17)), seconds=2.0, committed_at=10.0,
)  # fmt: skip
FAILED = FailedBatch(
    ranges=(Range("t", 0, 100, 150),), partitions=1, records=50, version=12, since=9.0, until=10.5,
    reason="RunFailed", message="ValueError: no number",
)  # fmt: skip


@dataclass
class Receiver:
    """Keeps what is posted; answers with each of `statuses` in turn, and the last one from then on."""

    statuses: list[int] = field(default_factory=lambda: [200])
    bodies: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    @contextmanager
    def serve(self) -> Iterator[str]:
        receiver = self

        class Handler(Quiet):
            def do_POST(self) -> None:  # noqa: N802 - the base class names it so
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.bodies.append((self.path, dict(self.headers), body))
                more = {"Location": "/elsewhere"} if receiver.statuses[0] == 302 else None
                self.acknowledge(receiver.statuses[0], more)
                receiver.statuses = receiver.statuses[1:] or receiver.statuses

        with serving(Handler) as port:
            yield f"http://127.0.0.1:{port}"


@contextmanager
def hostile(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """A server that does this to each connection after a request has begun."""

    def work(server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=one, args=[connection], daemon=True).start()

    def one(connection: socket.socket) -> None:
        with closing(connection):
            connection.recv(65536)
            with suppress(OSError):
                answer(connection)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=work, args=[server], daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def traced(url: str) -> DriverConfig:
    return replace(USUAL, observability=Observability(open_telemetry=OpenTelemetryEndpoint(endpoint=url)))


def outbox(post: Callable[[bytes], int], **more: Any) -> Outbox[int]:
    def encode(items: Sequence[int]) -> bytes:
        return json.dumps(items).encode()

    return Outbox("openTelemetry", encode, post, **{"gather": 0.0, "pauses": (0.0, 0.0), **more})


def request_of(body: bytes) -> Any:
    """The request as OpenTelemetry's own definitions read its JSON; a field that they do not know is an error."""
    service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    json_format = pytest.importorskip("google.protobuf.json_format")
    # OTLP differs from Protobuf's JSON in these alone: they are hexadecimal there.
    found = json.loads(body)
    for span in found["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for name in ("traceId", "spanId", "parentSpanId"):
            if name in span:
                span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    return json_format.ParseDict(found, service.ExportTraceServiceRequest())


def plain(attributes: Any) -> dict[str, Any]:
    found = {}
    for one in attributes:
        kind = one.value.WhichOneof("value")
        value = getattr(one.value, kind)
        found[one.key] = [each.string_value for each in value.values] if kind == "array_value" else value
    return found


def test_a_collector_gets_one_trace_of_each_batch(tmp_path: Path) -> None:
    receiver = Receiver()
    folder = tmp_path / "openTelemetry"
    folder.mkdir()
    (folder / "headers").write_text("api-key: secret=1\n")
    with receiver.serve() as url:
        telemetry = RunTelemetry(traced(f"{url}/base/"), "pod-uid", tmp_path)
        telemetry.committed(REPORT)
        telemetry.committed(replace(REPORT, version=13))
        telemetry.ended(Verdict(exit_code=0, reason=Reason.STOPPED, message="", remedy=""), None)
        telemetry.wait()
        assert telemetry.sent() == {"openTelemetry": Sent(delivered=2)}
    ((path, headers, body),) = receiver.bodies
    assert (path, headers["Content-Type"], headers["api-key"]) == ("/base/v1/traces", "application/json", "secret=1")
    (resource,) = request_of(body).resource_spans
    assert plain(resource.resource.attributes)["service.name"] == "n"
    spans = resource.scope_spans[0].spans
    assert len({span.trace_id for span in spans}) == 2
    assert {len(span.trace_id) for span in spans} == {16}
    assert len({span.span_id for span in spans}) == len(spans)


def test_the_spans_of_a_batch_have_its_times_offsets_and_rows() -> None:
    body = traces.encoded(PLACE, [CommittedBatch(REPORT, 5, partitions=2)])
    (resource,) = request_of(body).resource_spans
    assert plain(resource.resource.attributes) == {
        "service.name": "orders", "service.namespace": "shop", "service.instance.id": "pod-uid",
        "k8s.namespace.name": "shop", "k8s.pod.uid": "pod-uid", "messaging.system": "kafka",
        "server.address": "kafka:9092", "fencepost.pipeline": "shop/orders", "fencepost.epoch": 7,
    }  # fmt: skip
    root, *parts = resource.scope_spans[0].spans
    assert plain(root.attributes) == {
        "fencepost.epoch": 7, "fencepost.version": 12, "fencepost.batch.number": 5, "fencepost.records": 60,
        "fencepost.rows": 51, "fencepost.bytes": 20_000, "fencepost.lag": 3, "fencepost.partitions": 2,
        "fencepost.offsets": ["t/0@100-150", "t/1@7-17"],
    }  # fmt: skip
    assert not root.parent_span_id
    assert {part.parent_span_id for part in parts} == {root.span_id}
    assert {part.trace_id for part in parts} == {root.trace_id}
    found = [
        (
            span.name,
            span.start_time_unix_nano / 1e9,
            span.end_time_unix_nano / 1e9,
            plain(span.attributes).get("fencepost.sink"),
        )
        for span in (root, *parts)
    ]
    assert found == [
        ("batch", 8.0, 10.0, None),
        ("plan", 8.0, 8.2, None),
        ("record", 8.2, 8.3, None),
        ("commit", 9.85, 9.95, None),
        ("transform", 8.4, 8.5, None),
        ("read", 8.5, 9.5, None),
        ("write", 9.2, 9.7, "orders"),
        ("write", 8.5, 9.7, "totals"),  # its worker's clock is behind
        ("write", 9.7, 9.7, "idle"),
    ]


def test_a_batch_that_ends_the_run_is_a_span_with_the_error() -> None:
    (root,) = request_of(traces.encoded(PLACE, [FAILED])).resource_spans[0].scope_spans[0].spans
    assert (root.name, root.status.code, root.status.message) == ("batch", 2, "ValueError: no number")
    assert plain(root.attributes)["error.type"] == "RunFailed"
    assert plain(root.attributes)["fencepost.offsets"] == ["t/0@100-150"]


def test_a_run_that_fails_says_in_which_batch(tmp_path: Path) -> None:
    receiver = Receiver()
    batch = Batch((Range("t", 0, 5, 9),), {"t/0": 9})
    in_progress = InProgress(batch=batch, row=FenceRow(pipeline="p", owner="o"), since=0.0)
    last = Verdict(exit_code=1, reason=Reason.FAILED, message="no number", remedy="", version=3)
    with receiver.serve() as url:
        telemetry = RunTelemetry(traced(url), "pod", tmp_path)
        telemetry.ended(last, in_progress)
        telemetry.wait()
    (span,) = json.loads(receiver.bodies[0][2])["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert span["status"] == {"code": 2, "message": "no number"}


def test_no_receiver_is_the_default_and_starts_nothing(tmp_path: Path) -> None:
    threads = threading.active_count()
    telemetry = RunTelemetry(USUAL, "pod", tmp_path)
    telemetry.committed(REPORT)
    telemetry.ended(Verdict(exit_code=0, reason=Reason.STOPPED, message="", remedy=""), None)
    telemetry.wait()
    assert (telemetry.sent(), threading.active_count()) == ({}, threads)


@pytest.mark.parametrize(("url", "text"), [("http://collector:99999", ""), ("https://collector", "nonsense")])
def test_a_receiver_that_cannot_be_used_costs_the_run_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, url: str, text: str
) -> None:
    (tmp_path / "openTelemetry").mkdir()
    (tmp_path / "openTelemetry" / "ca.crt").write_text(text)
    telemetry = RunTelemetry(traced(url), "pod", tmp_path)
    telemetry.committed(REPORT)
    assert telemetry.sent() == {}
    assert "openTelemetry gets nothing" in caplog.text


def test_a_loop_reports_what_a_trace_needs_of_each_batch() -> None:
    world = World(log=FakeLog(ends={"t/0": 25}))
    world.run()
    first, second, *_ = world.reports
    assert [part.records for part in (*first.ranges, *second.ranges)] == [10, 10]
    assert {"write", "commit"} <= first.starts.keys()
    assert first.starts.keys() <= first.phases.keys()


def test_what_the_receiver_does_not_take_is_tried_again_then_dropped_and_counted() -> None:
    receiver = Receiver(statuses=[503, 429, 200, 500])
    with receiver.serve() as url:
        box = outbox(json_post(Access(url=url), "/v1/traces"))
        box.put(1)
        eventually("the third attempt", lambda: box.sent == Sent(delivered=1), seconds=20, pause=0.01)
        box.put(2)
        eventually("the last attempt", lambda: box.sent == Sent(delivered=1, dropped=1), seconds=20, pause=0.01)
    assert [json.loads(body) for _, _, body in receiver.bodies] == [[1]] * 3 + [[2]] * 3


@pytest.mark.parametrize("status", [302, 400, 401, 404])
def test_what_is_refused_is_not_repeated_and_a_redirect_is_not_followed(status: int) -> None:
    receiver = Receiver(statuses=[status])
    with receiver.serve() as url:
        box = outbox(json_post(Access(url=url), "/v1/traces"))
        box.put(1)
        eventually("the refusal", lambda: box.sent == Sent(dropped=1), seconds=20, pause=0.01)
    assert [path for path, _, _ in receiver.bodies] == ["/v1/traces"]


def test_what_waits_is_bounded_and_the_oldest_is_dropped_while_the_receiver_hangs() -> None:
    begun, free, bodies = threading.Event(), threading.Event(), list[bytes]()

    def post(body: bytes) -> int:
        begun.set()
        assert free.wait(60)
        bodies.append(body)
        return 200

    box = outbox(post, capacity=10, at_once=4)
    box.put(-1)
    assert begun.wait(20)
    for item in range(1000):
        box.put(item)  # returns, though nothing is sent
    assert box.sent == Sent(dropped=990)
    box.end()
    free.set()
    box.join(20)
    assert [json.loads(body) for body in bodies] == [[-1], [990, 991, 992, 993], [994, 995, 996, 997], [998, 999]]
    assert box.sent == Sent(delivered=11, dropped=990)


def test_an_end_waits_for_a_receiver_that_hangs_no_longer_than_is_said() -> None:
    free = threading.Event()
    box = outbox(lambda _: 200 if free.wait(60) else 500)
    box.put(1)
    box.end()
    box.join(0.01)
    assert box.sent == Sent()
    free.set()


def endless(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(10_000):
        connection.sendall(b"x" * 1_000_000)


def interim(connection: socket.socket) -> None:
    for _ in range(10_000):
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)


def garbage(connection: socket.socket) -> None:
    connection.sendall(b"\x00" * 100)


@pytest.mark.parametrize(
    ("answer", "sent"),
    [
        (endless, Sent(delivered=1)),  # its status is all that is read
        (interim, Sent(dropped=1)),
        (garbage, Sent(dropped=1)),
        (lambda _: None, Sent(dropped=1)),  # it closes the connection
    ],
)
def test_a_hostile_receiver_is_read_no_further_than_its_status(
    answer: Callable[[socket.socket], object], sent: Sent
) -> None:
    with hostile(answer) as url:
        box = outbox(json_post(Access(url=url), "/v1/traces"))
        box.put(1)
        eventually("the outcome", lambda: box.sent == sent, seconds=30, pause=0.01)


def test_a_receiver_that_is_gone_is_logged_once_with_a_remedy(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    attempts = iter(range(4))

    def post(_: bytes) -> int:
        if next(attempts) < 3:
            raise OSError("refused")
        return 200

    box = outbox(post)
    box.put(1)
    eventually("the drop", lambda: box.sent.dropped == 1, seconds=20, pause=0.01)
    box.put(2)
    eventually("the delivery", lambda: box.sent.delivered == 1, seconds=20, pause=0.01)
    assert [record.getMessage() for record in caplog.records] == [
        "openTelemetry takes nothing: OSError: refused",
        "openTelemetry takes what is sent again",
    ]
    assert "spec.observability.openTelemetry" in vars(caplog.records[0])["remedy"]
