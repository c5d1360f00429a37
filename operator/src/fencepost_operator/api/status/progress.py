"""What is committed, how fast, and what keeps records from being read."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from fencepost_operator.api.fields import Offsets
from fencepost_operator.api.model import Model
from fencepost_operator.api.moments import MaybeSince, Since


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedStatus(Model):
    """The newest commit that was seen in the fence row."""

    version: int
    """Version of the fence row."""
    at: datetime | None = None
    """When it was committed."""
    # A new partition that the growth barrier holds back does not count as waiting.
    since: MaybeSince = None
    """When the offsets last changed, or records began to wait; absent while no record waits."""
    # No driver is replaced for an outage of its dependencies.
    observable_since: MaybeSince = None
    """Since when both Kafka and Cassandra answer the operator; absent while one of them does not."""
    records: int | None = None
    """Records of its batch."""
    offsets: Offsets = field(default_factory=dict)
    """Next offset to read, by topic/partition."""
    # Of the batch that begins at `version`.
    done: int | None = None
    """Work that the driver reported in the batch in progress, in its own unit."""
    done_at: MaybeSince = None
    """When that last grew."""
    signed: datetime | None = None
    """Where only the driver may connect to Kafka: Cassandra's time of its newest sign of life."""
    alive_at: MaybeSince = None
    """When that, or a commit after it, was first seen."""
    heartbeat: datetime | None = None
    """The database's time of the newest heartbeat that was read: while records wait and the row stays as it is."""
    heartbeat_at: MaybeSince = None
    """Since when that and the row have been the same each time they were read."""
    heartbeat_asked: MaybeSince = None
    """When it was last asked for, and read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputStatus(Model):
    """How fast records are committed, over windows of a minute and more."""

    since: MaybeSince = None
    """Begin of the window that is being measured; absent until a commit begins one."""
    records_per_second: int | None = None
    """Records committed per second in the newest complete window."""
    estimated_catch_up: str | None = None
    """Time until the lag is worked off at the rate at which it fell in that window, such as 12m. 0s if the pipeline
    keeps up; absent if no end is in sight or nothing is measured yet."""
    records: int = 0
    """Records committed since then."""
    lag: int = 0
    """Records that were to be read at that time."""
    growing_seconds: int = 0
    """Seconds for which the lag has grown from window to window although every batch is full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTimeStatus(Model):
    """Event time of a stateful pipeline, as it was known when the last batch was committed: without that batch."""

    watermark: datetime | None = None
    """The query's watermark, at most of the year 9999; absent without one."""
    held_since: MaybeSince = None
    """Since when commits have left the watermark where it is, or ahead of the records of half of the partitions that
    were read."""
    held_seconds: int = 0
    """Seconds from then to the last of these commits; the condition WatermarkStuck follows from 15 minutes on."""
    late_rows: int = 0
    """Rows that stateful operators dropped as older than the watermark, in all runs. An aggregation combines records
    before it drops them, so that a row may stand for several."""
    late_at: MaybeSince = None
    """When that last grew; the condition LateRowsDropped lasts for 30 minutes from then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredStateStatus(Model):
    """Size of a stateful pipeline's state after the last commit; absent before the first commit, and from a rewind to
    the next one."""

    bytes: int
    """Bytes of its stored files, also of those of earlier versions that Spark still keeps."""
    max_bytes: int | None = None
    """Bytes that every worker has room for, by spec.state.maxBytes; the condition StateNearLimit follows from 80 % of
    them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction(Model):
    """A transaction that keeps consumers from reading past `offset` of a partition, since when it was first seen so."""

    partition: str
    """The partition."""
    offset: int
    """The next offset to read when the transaction ends."""
    since: Since
    """When that was first seen."""
    # How far the high watermark is ahead.
    records: int = 0
    """Records that it keeps from being read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflinePartition(Model):
    """A partition for which no leader answers the operator, since when it was first seen so."""

    partition: str
    """The partition."""
    since: Since
    """When that was first seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataRisk(Model):
    """The partition whose uncommitted records Kafka deletes first. Absent while the oldest one is younger than a
    minute, or while retention deletes none; see the condition RetentionRisk.

    All times are moments, which waiting does not change.
    """

    partition: str | None = None
    """The partition."""
    offset: int | None = None
    """The next offset to read."""
    oldest_uncommitted_at: datetime | None = None
    """Since when the record at the offset has been there; at most 15 s or 1 % of its age too early."""
    expires_at: datetime | None = None
    """From when on Kafka may delete that record. An estimate where the limit is retention.bytes."""
    warn_at: datetime | None = None
    """From when on the condition RetentionRisk warns of it."""
    limit: str | None = None
    """The setting of the topic that deletes it: retention.ms or retention.bytes."""
    retention_ms: int | None = None
    """The topic's retention.ms; absent without that limit."""
    retention_bytes: int | None = None
    """The topic's retention.bytes; absent without that limit."""
    lost_records: int | None = None
    """Uncommitted records that Kafka has deleted."""
    unknown: str | None = None
    """What could not be found out and what to do about it."""
