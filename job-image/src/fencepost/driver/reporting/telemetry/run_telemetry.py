"""The telemetry of one run: what the driver says of it, for each receiver that its configuration names."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from fencepost.batch import Batch
from fencepost.contract import DriverConfig, TelemetryReceiver, Verdict
from fencepost.driver.reporting.commit_report import Report
from fencepost.driver.reporting.telemetry import lineage, traces
from fencepost.driver.reporting.telemetry.lineage import Lineage
from fencepost.driver.reporting.telemetry.outbox import Outbox, Sent
from fencepost.driver.reporting.telemetry.post import Post, json_post
from fencepost.driver.reporting.telemetry.traces import CommittedBatch, FailedBatch, Place
from fencepost.errors import BadSpec
from fencepost.formats.access import Access

log = logging.getLogger(__name__)

LAST_SEND: Final = 1.0
"""Seconds that the end of a run waits for what is sent last."""


class InProgress(Protocol):
    """The batch that is being written, and when that began (monotonic seconds)."""

    @property
    def batch(self) -> Batch:
        """What it reads."""
        ...

    @property
    def since(self) -> float:
        """When it began."""
        ...


class RunTelemetry:
    """Each method returns at once, but `wait`, which takes LAST_SEND seconds at most; none raises.

    A Secret that cannot be used costs its receiver: telemetry ends no run.
    """

    def __init__(self, config: DriverConfig, driver: str, credentials: Path) -> None:
        self._place = Place(pipeline=config.pipeline, epoch=config.epoch, driver=driver, source=config.source)
        self._traces = _traces(config, self._place, credentials)
        self._events = _events(config, driver, credentials)
        self._lineage = None if self._events is None else Lineage(config, self._events.put)
        self._batches = 0
        self._deadline = 0.0

    def claimed(self) -> None:
        """Begin the run's lineage."""
        if self._lineage is not None:
            self._lineage.begun()

    def committed(self, report: Report) -> None:
        """Trace a committed batch."""
        self._batches += 1
        if self._lineage is not None:
            self._lineage.committed(report)
        if self._traces is not None:
            bounded = replace(report, ranges=report.ranges[: traces.MOST_RANGES])
            self._traces.put(CommittedBatch(bounded, self._batches, partitions=len(report.ranges)))

    def ended(self, last: Verdict, in_progress: InProgress | None) -> None:
        """Trace the batch in which the run failed, and begin to send what waits."""
        self._deadline = time.monotonic() + LAST_SEND
        if self._traces is not None and last.exit_code and in_progress is not None:
            self._traces.put(_failed(last, in_progress))
        if self._lineage is not None:
            self._lineage.ended(last)
        for box in self._boxes().values():
            box.end()

    def wait(self) -> None:
        """Wait for what `ended` sends."""
        for box in self._boxes().values():
            box.join(max(0.0, self._deadline - time.monotonic()))

    def sent(self) -> Mapping[str, Sent]:
        """Return what each receiver has got. From any thread."""
        return {name: box.sent for name, box in self._boxes().items()}

    def _boxes(self) -> Mapping[TelemetryReceiver, Outbox[Any]]:
        found = {TelemetryReceiver.OPEN_TELEMETRY: self._traces, TelemetryReceiver.OPEN_LINEAGE: self._events}
        return {name: box for name, box in found.items() if box is not None}


def _traces(config: DriverConfig, place: Place, credentials: Path) -> Outbox[CommittedBatch | FailedBatch] | None:
    receiver = config.observability.open_telemetry
    if receiver is None:
        return None
    name = TelemetryReceiver.OPEN_TELEMETRY
    post = _post(name, receiver.endpoint, traces.PATH, credentials)
    return None if post is None else Outbox(name, partial(traces.encoded, place), post)


def _events(config: DriverConfig, driver: str, credentials: Path) -> Outbox[lineage.Event] | None:
    receiver = config.observability.open_lineage
    if receiver is None:
        return None
    name = TelemetryReceiver.OPEN_LINEAGE
    post = _post(name, receiver.url, lineage.PATH, credentials)
    encode = partial(lineage.encoded, config, driver, receiver.namespace)
    return None if post is None else Outbox(name, encode, post, capacity=lineage.CAPACITY, at_once=1, gather=0.0)


def _post(name: TelemetryReceiver, url: str, path: str, credentials: Path) -> Post | None:
    """Return what sends to a receiver; None, and a warning, where its Secret or its address cannot be used."""
    try:
        access = Access.of(url, credentials / name, field=f"spec.observability.{name}.credentialsFrom")
        return json_post(access, path)
    except (BadSpec, OSError, ValueError) as error:  # a port may be none of TCP's
        log.warning("%s gets nothing: %s", name, error, extra={"remedy": f"Correct spec.observability.{name}."})
        return None


def _failed(last: Verdict, in_progress: InProgress) -> FailedBatch:
    batch, now = in_progress.batch, time.time()
    return FailedBatch(
        ranges=batch.ranges[: traces.MOST_RANGES],
        partitions=len(batch.ranges),
        records=batch.records,
        version=last.version,
        since=now - (time.monotonic() - in_progress.since),
        until=now,
        reason=last.reason,
        message=last.message,
    )
