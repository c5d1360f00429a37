"""One batch: the offsets that it reads, and its result.

Offsets are the next to read; a range is [start, until).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from fencepost.contract import offset_key, split_offset_key


@dataclass(frozen=True, slots=True)
class Watermarks:
    """Kafka at one moment: per partition the first offset, the end and the leader epoch, per topic its id.

    A partition without a leader is in `leaderless`, and absent from `begins` and `ends`.
    `leader_epochs` holds the epoch of the leader that answered; a partition whose epoch is not known is absent.
    `missing` maps each topic that Kafka says does not exist to the seconds for which every answer has said so: one such
    answer proves nothing, for a broker that has just started gives it too.  Answers that are far apart count for less.
    """

    begins: Mapping[str, int]
    ends: Mapping[str, int]
    topic_ids: Mapping[str, str]
    leader_epochs: Mapping[str, int] = field(default_factory=dict)
    missing: Mapping[str, float] = field(default_factory=dict)
    leaderless: frozenset[str] = frozenset()
    high: Mapping[str, int] = field(default_factory=dict)
    """High watermarks: of readers of committed records, an open transaction withholds what lies beyond the end."""

    def high_watermark(self, key: str) -> int:
        """Return where the log of a partition ends, whatever transactions are open."""
        return self.high.get(key, self.ends[key])


NO_EPOCH: Final = -1
"""In place of the leader epoch of a record that has none: its batch has an older format."""


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """Offsets [start, until) of one partition.

    `leader_epoch` is that of the record before `start`, or a later one under which that record was still there; None
    when it is not known.  A reader sends it to Kafka, which answers whether the log diverged before `start`.
    `epoch_start` is the first record that was read of `leader_epoch`; None where that epoch is not one of a record, but
    of a leader that was seen to hold the record before `start`: it may be later than the record's.
    `topic_id` is that of the topic whose offsets these are; None when any topic of the name will do.
    `left_out` are records that a reader leaves out, each by its offset and its leader epoch, NO_EPOCH without one.
    """

    topic: str
    partition: int
    start: int
    until: int
    leader_epoch: int | None = field(default=None, compare=False)
    topic_id: str | None = field(default=None, compare=False)
    epoch_start: int | None = field(default=None, compare=False)
    left_out: tuple[tuple[int, int], ...] = field(default=(), compare=False)

    @property
    def key(self) -> str:
        """'topic/partition'."""
        return offset_key(self.topic, self.partition)

    def after(self, start: int) -> Range:
        """Return what is left of the range from an offset on; the epoch is that of the record before its own start."""
        return self if start == self.start else self.beside(start, self.until)

    def beside(self, start: int, until: int) -> Range:
        """Return other offsets of the partition, reached under an epoch that is not known."""
        return replace(self, start=start, until=until, leader_epoch=None, epoch_start=None)

    def fields(self) -> tuple[object, ...]:
        """Return what `of_fields` takes, for JSON."""
        return (
            self.topic, self.partition, self.start, self.until, self.leader_epoch, self.topic_id, self.epoch_start,
            self.left_out,
        )  # fmt: skip

    @classmethod
    def of_fields(cls, fields: Sequence[Any]) -> Range:
        """Return the range of `fields` that have been in JSON."""
        left_out = tuple((offset, epoch) for offset, epoch in fields[-1])
        return replace(cls(*fields[:-1]), left_out=left_out)

    @property
    def records(self) -> int:
        """Offsets in the range; at least the number of records (compaction and transactions leave gaps)."""
        return self.until - self.start


@dataclass(frozen=True, slots=True)
class Batch:
    """A bounded read: its ranges, and every partition's offset after it.

    `leader_epochs` are those under which the log was seen to hold everything up to `until`.
    """

    ranges: tuple[Range, ...]
    until: Mapping[str, int]
    leader_epochs: Mapping[str, int] = field(default_factory=dict, compare=False)
    is_repeated: bool = field(default=False, compare=False)
    """Whether an earlier run planned some of it, and may have written it."""

    @property
    def records(self) -> int:
        """Offsets in all ranges."""
        return sum(part.records for part in self.ranges)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read."""
        return not self.ranges

    @property
    def since_other_leaders(self) -> tuple[Range, ...]:
        """The first offset of each range whose partition has had another leader since that offset was reached."""
        return tuple(
            replace(part, until=part.start + 1)
            for part in self.ranges
            if part.leader_epoch is not None and part.leader_epoch < self.leader_epochs.get(part.key, 0)
        )

    def spans(self) -> dict[str, tuple[int, int]]:
        """Return {'topic/partition': (start, until)}, as in a verdict."""
        return {part.key: (part.start, part.until) for part in self.ranges}


EMPTY: Final = Batch(ranges=(), until={})


def between(
    offsets: Mapping[str, int],
    until: Mapping[str, int],
    epochs: Mapping[str, int] | None = None,
    topic_ids: Mapping[str, str] | None = None,
    epoch_starts: Mapping[str, int] | None = None,
) -> Batch:
    """Return the batch that leads from one map of offsets to another; what does not grow is not read.

    `epochs` are the leader epochs that belong to `offsets`, `epoch_starts` the first records that were read of them,
    `topic_ids` the topics'.  A partition that `offsets` does not have starts at 0: an older release plans a new
    partition before it commits it.
    """
    starts = {key: offsets.get(key, 0) for key in until}
    known, ids, begun = epochs or {}, topic_ids or {}, epoch_starts or {}
    ranges = [
        Range(*(place := split_offset_key(key)), starts[key], end, known.get(key), ids.get(place[0]), begun.get(key))
        for key, end in until.items()
        if end > starts[key]
    ]
    return Batch(ranges=tuple(sorted(ranges)), until={**offsets, **{part.key: part.until for part in ranges}})


class Sighting(NamedTuple):
    """A record as it was read: its offset, and the leader epoch under which it was written."""

    offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class SinkWork:
    """What the tasks of a batch did for one sink: rows, their bytes in Arrow's format, and seconds summed over tasks.

    `reading` is what they waited for rows, which are read and transformed meanwhile; `writing` is the sink's own time.
    `retries` are requests that they repeated.  `read_until` is when a task had read its last row, `wrote_from` when one
    had its first rows to write: seconds since 1970 by the workers' clocks, 0 where it is not known.
    """

    rows: int = 0
    size: int = 0
    reading: float = 0.0
    writing: float = 0.0
    retries: int = 0
    read_until: float = 0.0
    wrote_from: float = 0.0

    def __add__(self, other: SinkWork) -> SinkWork:
        """Return the work of both."""
        return SinkWork(
            self.rows + other.rows,
            self.size + other.size,
            self.reading + other.reading,
            self.writing + other.writing,
            self.retries + other.retries,
            max(self.read_until, other.read_until),
            min(filter(None, (self.wrote_from, other.wrote_from)), default=0.0),
        )


@dataclass(frozen=True, slots=True)
class WorkerMemory:
    """Bytes of a worker's container, of its limit, of one Python worker, and of its executor's JVM; 0 is not known."""

    container: int = 0
    limit: int = 0
    python: int = 0
    jvm: int = 0

    def largest(self, other: WorkerMemory) -> WorkerMemory:
        """Return the larger figure of each."""
        return WorkerMemory(
            max(self.container, other.container),
            max(self.limit, other.limit),
            max(self.python, other.python),
            max(self.jvm, other.jvm),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTime:
    """What Spark says of a stateful query's event time.

    `watermark` is in ms since 1970, None of a query without one.  `late_rows` counts the rows that stateful operators
    dropped because they were older: of an aggregation those that are left of a task's records after it has combined
    them, so at most as many as records.
    """

    watermark: int | None = None
    late_rows: int = 0


@dataclass(frozen=True, slots=True)
class Written:
    """What a batch did: the work by sink, milliseconds per phase, and what it read.

    `records` and `size` (bytes of keys, values and headers) count each record once, whatever the number of sinks.
    `reached` has partitions of which the log was seen to have no record from the batch's end up to an offset.
    `epochs` has, per partition, records and their leader epochs: the first and the last one of each epoch that a task
    read, and the one that it saw beyond its range.
    `record_times` has, per partition, the largest timestamp that a stateful query read, in ms since 1970.
    `memory` is the most that any worker has had since the run began, and `cores` what the executors have together.
    """

    work: Mapping[str, SinkWork]
    phases: Mapping[str, int] = field(default_factory=dict)
    records: int = 0
    size: int = 0
    reached: Mapping[str, int] = field(default_factory=dict)
    epochs: Mapping[str, tuple[Sighting, ...]] = field(default_factory=dict)
    record_times: Mapping[str, int] = field(default_factory=dict)
    memory: WorkerMemory = field(default_factory=WorkerMemory)
    cores: int = 0

    @property
    def rows(self) -> dict[str, int]:
        """Rows by sink."""
        return {sink: work.rows for sink, work in self.work.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record as Kafka holds it."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
