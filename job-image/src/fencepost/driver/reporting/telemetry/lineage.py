"""The lineage of a run, as OpenLineage's events: https://openlineage.io/spec/.

START after the claim, RUNNING every minute in which something was committed, COMPLETE or FAIL at the end. Each says
what the run has read and written so far: topics with their offsets, tables and topics of the sinks with their rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import NAMESPACE_URL, UUID, uuid5

import msgspec

from fencepost.batch import SinkWork
from fencepost.contract import (
    CassandraSink,
    DeclaredSink,
    DriverConfig,
    KafkaSink,
    Verdict,
    split_offset_key,
)
from fencepost.driver.reporting.commit_report import Report

PATH: Final = "/api/v1/lineage"
EVERY: Final = 60.0
"""Seconds between two events of a run that goes well."""
CAPACITY: Final = 16
"""Events that wait: each has the offsets of all partitions."""
MOST_PARTITIONS: Final = 1000
"""Partitions of a topic whose offsets an event has."""
_PRODUCER: Final = "https://github.com/fencepost/fencepost"
_SPEC: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS: Final = "https://openlineage.io/spec/facets/"
_OWN: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/"


@dataclass(frozen=True, slots=True)
class Progress:
    """What a run has committed: by 'topic/partition' the offsets [start, until), and what it wrote, by sink."""

    spans: Mapping[str, tuple[int, int]]
    records: int
    size: int
    work: Mapping[str, SinkWork]
    version: int | None = None

    def after(self, report: Report) -> Progress:
        """Return the progress after one more batch."""
        spans = dict(self.spans)
        for part in report.ranges:
            spans[part.key] = (spans.get(part.key, (part.start, 0))[0], part.until)
        work = {sink: done + report.work.get(sink, SinkWork()) for sink, done in self.work.items()}
        return Progress(spans, self.records + report.records, self.size + report.size, work, report.version)


@dataclass(frozen=True, slots=True)
class Event:
    """An event of OpenLineage; `at` is in seconds since 1970."""

    kind: str
    at: float
    progress: Progress
    error: str = ""


class Lineage:
    """Says when which event is due. One thread at a time."""

    def __init__(self, config: DriverConfig, put: Callable[[Event], object]) -> None:
        self._put = put
        self._progress = Progress({}, 0, 0, {sink.name: SinkWork() for sink in config.sinks})
        self._said: float | None = None

    def begun(self) -> None:
        """The run has claimed its epoch."""
        self._say("START")

    def committed(self, report: Report) -> None:
        """A batch is committed."""
        self._progress = self._progress.after(report)
        if self._said is not None and time.monotonic() - self._said >= EVERY:
            self._say("RUNNING")

    def ended(self, last: Verdict) -> None:
        """The run ends; one that has never begun says nothing."""
        if self._said is not None:
            self._say("FAIL" if last.exit_code else "COMPLETE", f"{last.reason}: {last.message}")

    def _say(self, kind: str, error: str = "") -> None:
        self._said = time.monotonic()
        self._put(Event(kind, time.time(), self._progress, error if kind == "FAIL" else ""))


def encoded(config: DriverConfig, driver: str, namespace: str, events: Sequence[Event]) -> bytes:
    """Return the body of a request: one event in JSON."""
    (event,) = events
    _, own, name = config.pipeline.split("/")
    return msgspec.json.encode(
        {
            "eventType": event.kind,
            "eventTime": datetime.fromtimestamp(event.at, UTC).isoformat(timespec="milliseconds"),
            "producer": _PRODUCER,
            "schemaURL": _SPEC,
            "run": {"runId": str(run_id(driver)), "facets": _run_facets(config, event)},
            "job": {"namespace": namespace or own, "name": name, "facets": _job_facets()},
            "inputs": list(_inputs(config, event.progress)),
            "outputs": list(_outputs(config, event.progress, namespace or own)),
        }
    )


def run_id(driver: str) -> UUID:
    """Return the uid of the driver's pod; without a pod, an id that follows from the driver's name."""
    try:
        return UUID(driver)
    except ValueError:
        return uuid5(NAMESPACE_URL, driver)


def _facet(name: str, version: str, content: Mapping[str, Any]) -> dict[str, Any]:
    return {"_producer": _PRODUCER, "_schemaURL": f"{_FACETS}{version}/{name}.json#/$defs/{name}", **content}


def _own_facet(kind: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a facet that the specification does not have: it names the base of its kind."""
    return {"_producer": _PRODUCER, "_schemaURL": f"{_OWN}{kind}", **content}


def _run_facets(config: DriverConfig, event: Event) -> dict[str, Any]:
    facts = {"epoch": config.epoch, "version": event.progress.version, "code": config.code}
    found = {"fencepost": _own_facet("RunFacet", facts)}
    if event.error:
        error = {"message": event.error, "programmingLanguage": "PYTHON"}
        found["errorMessage"] = _facet("ErrorMessageRunFacet", "1-0-1", error)
    return found


def _job_facets() -> dict[str, Any]:
    kind = {"processingType": "STREAMING", "integration": "FENCEPOST", "jobType": "PIPELINE"}
    return {"jobType": _facet("JobTypeJobFacet", "2-0-4", kind)}


def _inputs(config: DriverConfig, progress: Progress) -> Iterator[dict[str, Any]]:
    for topic in config.source.topics:
        spans = [(split_offset_key(key), span) for key, span in sorted(progress.spans.items())]
        found = [
            {"partition": partition, "start": start, "until": until}
            for (name, partition), (start, until) in spans
            if name == topic
        ]
        offsets = {"partitions": found[:MOST_PARTITIONS], "partitionCount": len(found)}
        yield {
            "namespace": _kafka(config.source.bootstrap_servers),
            "name": topic,
            "facets": {"fencepost_offsets": _own_facet("DatasetFacet", offsets)},
        }


def _outputs(config: DriverConfig, progress: Progress, own: str) -> Iterator[dict[str, Any]]:
    """Yield a dataset for each place that rows go to; of a sink with several, nothing counts the rows of each."""
    for sink in config.sinks:
        done = progress.work[sink.name]
        statistics = _facet("OutputStatisticsOutputDatasetFacet", "1-0-2", {"rowCount": done.rows, "size": done.size})
        namespace, names = _places(config, sink, own)
        facets = {"outputStatistics": statistics} if len(names) == 1 else {}
        for name in names:
            yield {"namespace": namespace, "name": name, "outputFacets": facets}


def _places(config: DriverConfig, sink: DeclaredSink, own: str) -> tuple[str, Sequence[str]]:
    """Return the namespace and the names of a sink's datasets, as OpenLineage names those of the store."""
    if isinstance(sink, CassandraSink) and config.cassandra is not None:
        at = f"cassandra://{config.cassandra.contact_points[0]}:{config.cassandra.port}"
        return at, [f"{sink.keyspace}.{sink.table}"]
    if isinstance(sink, KafkaSink):
        return _kafka(sink.bootstrap_servers or config.source.bootstrap_servers), sink.topics
    return own, [f"{config.pipeline.rpartition('/')[2]}.{sink.name}"]


def _kafka(servers: str) -> str:
    return f"kafka://{servers.partition(',')[0]}"
