"""A trace of each batch, in OTLP's JSON: https://opentelemetry.io/docs/specs/otlp/.

A committed batch has the span `batch`, and below it `plan`, `record` (of the plan, in the fence row), `transform` (the
author's function), `read` and `write` (by the tasks of one Spark job, both at the same time; one `write` for each sink)
and `commit`. A batch that ends its run has the span `batch` alone, with the error.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from fencepost.batch import Range, SinkWork
from fencepost.contract import KafkaSource
from fencepost.driver.reporting.commit_report import Report

PATH: Final = "/v1/traces"
MOST_RANGES: Final = 100
"""Partitions that a span names; `fencepost.partitions` counts all of them."""
_INTERNAL: Final = 1
_ERROR: Final = 2
_FOLLOWING: Final = ("plan", "record", "commit")

Value = str | int | float | bool | Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What each span of a run shares: the fence row's key, the epoch, the driver's pod, and where records come from."""

    pipeline: str
    epoch: int
    driver: str
    source: KafkaSource


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A batch to be traced; `number` counts those of its run, from 1. Its report names MOST_RANGES at most."""

    report: Report
    number: int
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedBatch:
    """The batch in which a run ended, from and to seconds since 1970."""

    ranges: tuple[Range, ...]
    partitions: int
    records: int
    version: int | None
    since: float
    until: float
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class _Span:
    """Seconds since 1970."""

    name: str
    since: float
    until: float
    attributes: Mapping[str, Value | None]
    error: str | None = None


def encoded(place: Place, batches: Sequence[CommittedBatch | FailedBatch]) -> bytes:
    """Return the body of a request: an ExportTraceServiceRequest in JSON."""
    spans = [span for batch in batches for span in _trace(batch)]
    scope = {"scope": {"name": "fencepost"}, "spans": spans}
    resource = {"attributes": _attributes(_resource(place))}
    return msgspec.json.encode({"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]})


def _resource(place: Place) -> Mapping[str, Value]:
    _, namespace, name = place.pipeline.split("/")
    return {
        "service.name": name,
        "service.namespace": namespace,
        "service.instance.id": place.driver,
        "k8s.namespace.name": namespace,
        "k8s.pod.uid": place.driver,
        "messaging.system": "kafka",
        "server.address": place.source.bootstrap_servers,
        "fencepost.pipeline": f"{namespace}/{name}",
        "fencepost.epoch": place.epoch,
    }


def _trace(batch: CommittedBatch | FailedBatch) -> Iterator[dict[str, Any]]:
    trace, root = secrets.token_hex(16), secrets.token_hex(8)
    if isinstance(batch, FailedBatch):
        yield _json(_failed(batch), trace, root)
        return
    yield _json(_committed(batch), trace, root)
    for part in _parts(batch.report):
        yield _json(part, trace, secrets.token_hex(8), root)


def _failed(batch: FailedBatch) -> _Span:
    attributes: dict[str, Value | None] = {
        "fencepost.version": batch.version,
        "fencepost.records": batch.records,
        **_offsets(batch.ranges, batch.partitions),
        "error.type": batch.reason,
    }
    return _Span("batch", batch.since, batch.until, attributes, error=batch.message)


def _committed(batch: CommittedBatch) -> _Span:
    report = batch.report
    attributes: dict[str, Value | None] = {
        "fencepost.epoch": report.epoch,
        "fencepost.version": report.version,
        "fencepost.batch.number": batch.number,
        "fencepost.records": report.records,
        "fencepost.rows": sum(work.rows for work in report.work.values()),
        "fencepost.bytes": report.size,
        "fencepost.lag": report.lag,
        "fencepost.dead_letter": report.dead_letter,
        **_offsets(report.ranges, batch.partitions),
    }
    return _Span("batch", report.committed_at - report.seconds, report.committed_at, attributes)


def _offsets(ranges: Sequence[Range], partitions: int) -> dict[str, Value]:
    return {
        "fencepost.partitions": partitions,
        "fencepost.offsets": [f"{part.key}@{part.start}-{part.until}" for part in ranges],
    }


def _parts(report: Report) -> Iterator[_Span]:
    """Yield the spans of a committed batch's parts. The workers' clocks may differ: none leaves the Spark job."""
    began = report.committed_at - report.seconds
    for name in _FOLLOWING:
        if name in report.phases and name in report.starts:
            since = began + report.starts[name] / 1000
            yield _Span(name, since, since + report.phases[name] / 1000, {})
    if "job" not in report.phases:  # ranges without records
        return
    write = began + report.starts.get("write", 0) / 1000
    job = write + report.phases.get("transform", 0) / 1000
    yield _Span("transform", write, job, {})
    end = job + report.phases["job"] / 1000
    work = report.work.values()
    read_until = max((one.read_until for one in work), default=0.0) or end
    reading: dict[str, Value | None] = {
        "fencepost.records": report.records,
        "fencepost.bytes": report.size,
        "fencepost.task_seconds": sum(one.reading for one in work),
    }
    yield _Span("read", job, min(max(job, read_until), end), reading)
    for sink, done in report.work.items():
        yield _Span("write", min(max(job, done.wrote_from or end), end), end, _of_sink(sink, done))


def _of_sink(sink: str, done: SinkWork) -> Mapping[str, Value]:
    return {
        "fencepost.sink": sink,
        "fencepost.rows": done.rows,
        "fencepost.bytes": done.size,
        "fencepost.task_seconds": done.writing,
        "fencepost.retries": done.retries,
    }


def _json(span: _Span, trace: str, own: str, parent: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "traceId": trace,
        "spanId": own,
        "name": span.name,
        "kind": _INTERNAL,
        "startTimeUnixNano": _nanoseconds(span.since),
        "endTimeUnixNano": _nanoseconds(span.until),
        "attributes": _attributes(span.attributes),
    }
    if parent is not None:
        found["parentSpanId"] = parent
    if span.error is not None:
        found["status"] = {"code": _ERROR, "message": span.error}
    return found


def _nanoseconds(seconds: float) -> str:
    """Return what JSON has of an int64: text."""
    return str(round(seconds * 1e6) * 1000)


def _attributes(found: Mapping[str, Value | None]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in found.items() if value is not None]


def _value(value: Value) -> dict[str, Any]:
    match value:
        case str():
            return {"stringValue": value}
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case _:
            return {"arrayValue": {"values": [{"stringValue": one} for one in value]}}
