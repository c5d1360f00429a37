"""Bounded ranges of Kafka, read by librdkafka inside a Python worker, as Arrow record batches.

The consumer lives in this imported module, so a reused worker keeps its connections from batch to batch.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition

from fencepost.batch import NO_EPOCH, Range, Sighting
from fencepost.contract import Loss, Reason
from fencepost.errors import DataLoss, DependencyDown, DriverError, as_worker_error
from fencepost.kafka import header_names
from fencepost.kafka.answers import MISSING, REFUSALS, refusal
from fencepost.kafka.fetch_positions import INTERVAL, FetchPositions
from fencepost.kafka.log import refused, unreachable
from fencepost.kafka.topic_ids import TopicIds

ARROW_SCHEMA: Final = pa.schema([
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
])  # fmt: skip
"""The author's input, as Arrow; `fencepost.spark.source.SCHEMA` is the same for Spark."""

CHUNK: Final = 10_000
"""Records in one Arrow batch."""
CHUNK_BYTES: Final = 8 * 1024 * 1024
"""Bytes of content that fill an Arrow batch before CHUNK does: so many large records would not fit in a worker."""

TIMESTAMPS: Final = (-62_135_596_800_000, 253_402_300_799_999)
"""The first and the last timestamp that Spark has, in ms since 1970: of the years 1 to 9999."""

ASK_AFTER: Final = 5.0
"""Seconds without a record after which Kafka is asked why, and between two such questions."""
ANSWER_WITHIN: Final = 5.0
"""Seconds for one answer."""
TRUNCATIONS_WITHIN: Final = 2.0
"""Seconds after a truncated log is found in which other partitions may report theirs."""
BEHIND_PAUSE: Final = 1.0
"""Seconds before a broker is asked again that does not know yet that it leads no more."""

_TRUNCATION: Final = KafkaError(KafkaError._LOG_TRUNCATION).str()  # noqa: SLF001 - librdkafka's own spelling
"""Part of librdkafka's report of a truncated log; the report's code is that of a missing reset policy."""
_DIVERGENCE: Final = re.compile(r"broker end offset is (\d+)(?: \(offset leader epoch (-?\d+)\))?")
"""In the same report, and nowhere else: the offset from which on the log differs from what was read.

It is where the log ends the epoch that was asked about, or the last one before that, which is the other number.
It is -1 of a broker that knows no epoch so late: one that the controller does not reach, and that leads no more.
"""


@dataclass(frozen=True, slots=True)
class _Client:
    """A consumer, and what it reported besides records: a wrong password comes with no record and no partition."""

    consumer: Consumer
    complaints: deque[KafkaError]


_Properties = tuple[tuple[str, str], ...]
_clients: dict[tuple[_Properties, int | None], _Client] = {}
_topic_ids: dict[_Properties, TopicIds] = {}
_record_bytes: dict[_Properties, float] = {}
"""Bytes of a record, in the mean of the last Arrow batch."""

SMALL_FETCHES: Final = (64 * 1024, 256 * 1024)
"""Bytes per partition of one fetch, for ranges that are expected to fit into it.

What a fetch brings beyond its range is dropped with the assignment. Batches of 1,000 records of 200 bytes, in four
partitions, took 4,700 kB and p50 27 to 36 ms with librdkafka's 1 MB, and 330 kB and 10 ms with 64 KiB (producer's
batches of 16 kB; a batch of the producer's comes whole, whatever its size).
"""
_SIZED_BY_AUTHOR: Final = frozenset({"fetch.message.max.bytes", "max.partition.fetch.bytes", "queued.min.messages"})


Reached = Callable[[str, int], object]
"""Takes a partition's key and an offset: from a range's end up to there the log has no record for this reader."""

Seen = Callable[[str, int, int], object]
"""Takes a partition's key, a record's offset and its leader epoch: of the first and the last record of each epoch in a
range, and of the record beyond it that ends it."""


def read(
    ranges: Sequence[Range],
    properties: Mapping[str, str],
    *,
    patience: float,
    reached: Reached | None = None,
    seen: Seen | None = None,
) -> Generator[pa.RecordBatch]:
    """Yield the records of `ranges`, in order within a partition.

    What is yielded is of the topic that its range names: Kafka is asked for the topics' ids after each fetch.
    Raises WorkerError: of DataLoss when the log no longer holds a range (retention, a truncated log) or the topic was
    recreated, of DependencyDown when Kafka gives nothing for `patience` seconds or refuses the credentials. Records of
    aborted transactions count as given. A topic that does not exist gives nothing: whether it is gone for good is for
    the next run's plan to decide.
    """
    todo = [part for part in ranges if part.records > 0]
    key = tuple(sorted(properties.items()))
    # Also without ranges: it is then connecting while the session warms up.
    client = _client(properties, _fetch_bytes(todo, properties, _record_bytes.get(key)))
    topics = _topics(properties)
    if not todo:
        return
    ids = {part.topic: part.topic_id for part in todo if part.topic_id is not None}
    confirm = partial(topics.confirm, ids, patience=patience)
    try:
        for batch in _Reading(client, todo, properties, patience, reached, seen, confirm).batches():
            _record_bytes[key] = batch.nbytes / batch.num_rows
            yield batch
    except DriverError as error:
        raise as_worker_error(error) from error


def check(
    ranges: Sequence[Range],
    properties: Mapping[str, str],
    *,
    patience: float,
    at_least: Mapping[str, int] | None = None,
) -> Mapping[str, int]:
    """Read ranges of which each has the leader epoch under which its start was reached; return their records' epochs.

    That is, per 'topic/partition', the epoch of the first record; a partition that gave none is absent.  `at_least` has
    the epoch that it must have: an earlier one, or none, is the answer of a leader that was cut off, and Kafka is asked
    again.
    With a consumer of its own: librdkafka asks whether the log still holds what was read when it first sees a leader
    epoch, not when a partition is assigned again after that, as it is to a consumer that is kept from batch to batch.
    Raises DataLoss, DependencyDown.
    """
    wanted, found = at_least or {}, dict[str, int]()
    deadline = time.monotonic() + patience
    todo = ranges
    while True:
        found |= _first_epochs(todo, properties, patience)
        todo = [part for part in todo if found.get(part.key, -1) < wanted.get(part.key, -1)]
        if not todo:
            return found
        if time.monotonic() > deadline:
            what = ", ".join(f"{part.key} from {part.start} on of leader epoch {wanted[part.key]}" for part in todo)
            raise unreachable(properties["bootstrap.servers"], f"did not give again the record of {what}")
        time.sleep(BEHIND_PAUSE)


def _first_epochs(ranges: Sequence[Range], properties: Mapping[str, str], patience: float) -> dict[str, int]:
    """Read ranges with a new consumer; return the epoch of the first record of each partition."""
    found: dict[str, int] = {}
    complaints: deque[KafkaError] = deque(maxlen=20)
    client = _Client(_consumer(properties, None, complaints), complaints)
    try:
        seen = partial(_keep_first, found)
        for _ in _Reading(client, ranges, properties, patience, seen=seen).batches():
            pass
    finally:
        client.consumer.close()
    return found


def _keep_first(found: dict[str, int], key: str, _offset: int, epoch: int) -> None:
    found.setdefault(key, epoch)


def _fetch_bytes(ranges: Sequence[Range], properties: Mapping[str, str], record_bytes: float | None) -> int | None:
    """Return how much of a partition to fetch at once, None for as much as librdkafka wants."""
    if not ranges or record_bytes is None or _SIZED_BY_AUTHOR & properties.keys():
        return None
    expected = max(part.records for part in ranges) * record_bytes
    return next((size for size in SMALL_FETCHES if expected <= size), None)


def _client(properties: Mapping[str, str], fetch_bytes: int | None) -> _Client:
    key = tuple(sorted(properties.items())), fetch_bytes
    if key not in _clients:
        complaints: deque[KafkaError] = deque(maxlen=20)
        _clients[key] = _Client(_consumer(properties, fetch_bytes, complaints), complaints)
    return _clients[key]


def _topics(properties: Mapping[str, str]) -> TopicIds:
    key = tuple(sorted(properties.items()))
    if key not in _topic_ids:
        _topic_ids[key] = TopicIds(properties)
    return _topic_ids[key]


def _consumer(properties: Mapping[str, Any], fetch_bytes: int | None, complaints: deque[KafkaError]) -> Consumer:
    # The next fetch of a partition is sent when nothing of it is queued.
    sized = {} if fetch_bytes is None else {"max.partition.fetch.bytes": str(fetch_bytes), "queued.min.messages": "1"}
    return Consumer(
        {
            # The first byte that is there is worth having: batches are bounded, latency is what counts.
            "fetch.wait.max.ms": "20",
            "queued.min.messages": "20000",
            # The default of 64 MB does not fit in a worker of the default size.
            "queued.max.messages.kbytes": "16384",
            # librdkafka doubles a fetch up to this wherever it finds nothing but aborted records; its default is 50 MB.
            "fetch.max.bytes": "16777216",
            # A partition whose queue is full is asked again after this; the default of one second outlasts whole
            # batches (p90 of 1,000 records: 1,033 ms, and 36 with this).
            "fetch.queue.backoff.ms": "5",
            "socket.nagle.disable": "true",
            "check.crcs": "true",
            **sized,
            **properties,
            "group.id": "fencepost",  # never joined: offsets live at the fence
            "enable.auto.commit": "false",
            "auto.offset.reset": "error",
            "enable.partition.eof": "true",
            "error_cb": complaints.append,
        }
    )


def _reporting(properties: Mapping[str, str], complaints: deque[KafkaError], report: Callable[[str], None]) -> Consumer:
    """Return a consumer that reports how far it has fetched."""
    reports = {"statistics.interval.ms": str(round(INTERVAL * 1000)), "stats_cb": report}
    return _consumer({**properties, **reports}, None, complaints)


def content_bytes(records: pa.RecordBatch) -> int:
    """Return the bytes of keys, values and headers in a batch of ARROW_SCHEMA."""
    headers = records.column("headers").flatten()
    columns = (records.column("key"), records.column("value"), *headers.flatten())
    return sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in columns)


class _Reading:
    """One read of a range of each partition: where each one is, and which are done."""

    def __init__(
        self,
        client: _Client,
        ranges: Sequence[Range],
        properties: Mapping[str, str],
        patience: float,
        reached: Reached | None = None,
        seen: Seen | None = None,
        confirm: Callable[[], object] = lambda: None,
    ) -> None:
        self._consumer = client.consumer
        self._complaints = client.complaints
        self._ranges = {(part.topic, part.partition): part for part in ranges}
        self._left = {key: part.records for key, part in self._ranges.items()}
        self._properties = properties
        self._servers = properties["bootstrap.servers"]
        self._patience = patience
        self._reached = reached
        self._seen = seen
        self._last: dict[tuple[str, int], Sighting] = {}
        """The last record of each partition that has an epoch."""
        self._confirm = confirm
        self._fetched: FetchPositions | None = None
        """How far the consumer has fetched, once it reports that."""
        self._missing: set[str] = set()
        self._truncated: dict[tuple[str, int], tuple[int, int]] = {}
        self._is_behind = False
        """Whether a broker answered that does not know the leader epoch under which the start was reached."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        self._complaints.clear()  # of an earlier task, or of the time between two: they do not explain what comes now
        # With the epoch, Kafka is asked whether its log still holds what was read before (KIP-320).
        self._consumer.assign([_position(part) for part in self._ranges.values()])
        try:
            while self._left:
                records = self._chunk()
                self._confirm()
                if records:
                    yield _to_arrow(records)
        finally:
            self._consumer.unassign()
            if self._fetched is not None:
                self._consumer.close()

    def _chunk(self) -> list[Message]:
        """Return the next records: as many as make a full Arrow batch, fewer when the ranges are done."""
        records: list[Message] = []
        size, quiet_since, ask_at = 0, time.monotonic(), time.monotonic() + ASK_AFTER
        while self._left and len(records) < CHUNK and size < CHUNK_BYTES:
            wanted = min(CHUNK - len(records), sum(self._left.values()))
            # What is there, else the first that comes: asked to wait for more, librdkafka waits for all of it, and a
            # range with gaps (transaction markers, compaction) has fewer records than offsets.
            messages = self._consumer.consume(wanted, timeout=0) or self._consumer.consume(1, timeout=1.0)
            accepted = self._accept(messages)
            if self._truncated:
                raise self._truncation()
            if self._is_behind:
                self._begin_again()
            if messages and self._fetched is not None:
                self._fetched.given()
            if accepted:
                records += accepted
                with header_names.replaced():
                    size += sum(map(_content_bytes, accepted))
                quiet_since, ask_at = time.monotonic(), time.monotonic() + ASK_AFTER
                self._complaints.clear()
            elif self._fetched is not None and self._skips(self._fetched):
                quiet_since, ask_at = time.monotonic(), time.monotonic() + ASK_AFTER
            elif time.monotonic() - quiet_since > self._patience:
                raise self._silence()
            elif time.monotonic() > ask_at:
                self._ask_why()
                if self._fetched is None:
                    self._follow()
                ask_at = time.monotonic() + ASK_AFTER
        return records

    def _begin_again(self) -> None:
        """Ask who leads, and whether the log is still what it was, as a client does that has seen no leader yet."""
        time.sleep(BEHIND_PAUSE)
        self._is_behind = False
        self._follow()

    def _follow(self) -> None:
        """Read on with a consumer that reports how far it has fetched: it may be skipping aborted records."""
        starts = {key: self._ranges[key].until - left for key, left in self._left.items()}
        fetched = FetchPositions(starts)
        following = _reporting(self._properties, self._complaints, fetched.report)
        self._consumer.unassign()
        if self._fetched is not None:
            self._consumer.close()
        self._consumer, self._fetched = following, fetched
        following.assign([_position(self._ranges[key].after(start)) for key, start in starts.items()])

    def _skips(self, fetched: FetchPositions) -> bool:
        """Return whether the consumer fetches on although it gives nothing; finish the ranges that it has passed."""
        for key in list(self._left):
            passed = fetched.passed(key)
            if passed is not None and passed >= self._ranges[key].until:
                self._finish(key, passed)
        return fetched.moved()

    def _ask_why(self) -> None:
        """Ask about the topics that give nothing, up to a question without an answer.

        Raises DependencyDown for a refusal.
        """
        self._missing.clear()
        is_answered = True
        for topic in sorted({topic for topic, _ in self._left}):
            try:
                error = self._consumer.list_topics(topic, timeout=ANSWER_WITHIN).topics[topic].error
            except KafkaException as failure:
                error, is_answered = failure.args[0], False
            else:
                if error is not None and error.code() in MISSING:
                    self._missing.add(topic)
            if cause := refusal([*([error] if error else []), *self._complaints]):
                raise refused(self._servers, cause)
            if not is_answered:
                return  # each further question would take ANSWER_WITHIN as well

    def _silence(self) -> DependencyDown:
        """Return why nothing came for so long."""
        self._ask_why()
        what = f"returned no record for {self._patience:.0f} s; waiting for {self._waiting()}"
        if self._missing:
            what += f"; it reports as missing: topic {', '.join(sorted(self._missing))}"
        return unreachable(self._servers, what)

    def _truncation(self) -> DataLoss:
        """Return which committed offsets the log no longer holds, of all partitions that report it in time."""
        deadline = time.monotonic() + TRUNCATIONS_WITHIN
        while time.monotonic() < deadline and len(self._truncated) < len(self._ranges):
            self._accept(self._consumer.consume(len(self._ranges), timeout=0.1))
        found = {self._ranges[key].key: bounds for key, bounds in sorted(self._truncated.items())}
        shown = ", ".join(f"{key} [{start}, {until})" for key, (start, until) in found.items())
        return DataLoss(
            f"the log was truncated: {shown} no longer exist",
            reason=Reason.LOG_TRUNCATED,
            loss=Loss(reason=Reason.LOG_TRUNCATED, ranges=found),
        )

    def _accept(self, messages: Sequence[Message]) -> list[Message]:
        """Return the records inside the ranges, and note which partitions are done."""
        records = []
        for message in messages:
            error = message.error()
            # librdkafka names the partition of each message and of each error here
            key: tuple[str, int] = (message.topic(), message.partition())  # type: ignore[assignment]
            if error is not None:
                self._judge(error, key, message)
                continue
            left = self._left.get(key)
            if left is None:
                continue  # prefetched beyond the range
            part = self._ranges[key]
            until = part.until
            offset = message.offset() or 0
            epoch = message.leader_epoch()
            if epoch is None:
                epoch = NO_EPOCH
            if epoch >= 0:
                self._follow_epoch(key, Sighting(offset, epoch))
                if key in self._truncated:
                    continue
            if offset < until and (offset, epoch) not in part.left_out:
                records.append(message)
            if offset + 1 >= until:
                self._finish(key, max(offset, until))
            else:
                self._left[key] = until - offset - 1
        return records

    def _judge(self, error: KafkaError, key: tuple[str, int], message: Message) -> None:
        """Raise for an error that waiting does not fix; librdkafka itself recovers from the others."""
        code = error.code()
        if code == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's own spelling
            # Transaction markers and compaction leave no record at the end of a range; the log's end proves it.
            part = self._ranges.get(key)
            end = message.offset() or 0
            if part is not None and key in self._left and end >= part.until:
                self._finish(key, end)
        elif _TRUNCATION in error.str():
            if key in self._left:
                self._compare(key, error.str())
        elif code in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:  # noqa: SLF001
            raise DataLoss(
                f"the log no longer holds all of {self._waiting()}: {error.str()}", reason=Reason.OFFSET_OUT_OF_RANGE
            )
        elif code in REFUSALS:
            raise refused(self._servers, error)
        # Everything else is transient or exhausts the patience: a coordinator that refuses a group without members, a
        # broker that has just started and does not know the topic yet.

    def _follow_epoch(self, key: tuple[str, int], record: Sighting) -> None:
        """Report where the epoch changes. One that falls below that of a record before the range is of another log."""
        last, part = self._last.get(key), self._ranges[key]
        if part.epoch_start is not None and part.leader_epoch is not None and record.epoch < part.leader_epoch:
            self._truncated[key] = part.epoch_start, part.start
        if last is not None and (last.epoch != record.epoch or record.offset >= part.until):
            self._report(key, last)
        if last is None or last.epoch != record.epoch:
            self._report(key, record)
        self._last[key] = record

    def _report(self, key: tuple[str, int], record: Sighting) -> None:
        if self._seen is not None:
            self._seen(self._ranges[key].key, record.offset, record.epoch)

    def _finish(self, key: tuple[str, int], at: int) -> None:
        """End a range: no further record of it comes before `at`."""
        if key in self._last:
            self._report(key, self._last[key])
        del self._left[key]
        self._consumer.incremental_unassign([TopicPartition(*key)])
        part = self._ranges[key]
        if self._reached is not None and at > part.until:
            self._reached(part.key, at)

    def _compare(self, key: tuple[str, int], report: str) -> None:
        """Note from where a log differs; without an offset, that the broker leads no more: it knows an older epoch."""
        found = _DIVERGENCE.search(report)
        if found is None:
            self._is_behind = True
        else:
            part, cut = self._ranges[key], int(found[1])
            at = part.until - self._left[key]
            has_none = found[2] is not None and int(found[2]) < (part.leader_epoch or 0)
            if at == part.start and part.epoch_start is not None and has_none:
                cut = min(cut, part.epoch_start)  # what the log has of earlier epochs beyond there was not read
            self._truncated[key] = cut, at

    def _waiting(self) -> str:
        parts = (self._ranges[key] for key in self._left)
        return ", ".join(
            f"{part.key} [{part.until - self._left[part.topic, part.partition]}, {part.until})" for part in parts
        )


def _content_bytes(record: Message) -> int:
    """Return the bytes of a record's key, value and headers."""
    headers: Any = record.headers()
    content = len(record) + len(record.key() or b"")
    return content + sum(len(name) + len(value or b"") for name, value in headers) if headers else content


def _position(part: Range) -> TopicPartition:
    if part.leader_epoch is None:
        return TopicPartition(part.topic, part.partition, part.start)
    return TopicPartition(part.topic, part.partition, part.start, leader_epoch=part.leader_epoch)


def _to_arrow(records: Sequence[Message]) -> pa.RecordBatch:
    """Return the messages as one batch, column by column."""
    headers: list[Any] = [record.headers() for record in records]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([record.topic() for record in records], pa.string()),
            pa.array([record.partition() for record in records], pa.int32()),
            pa.array([record.offset() for record in records], pa.int64()),
            _timestamps(records),
            pa.array([record.key() for record in records], pa.binary()),
            pa.array([record.value() for record in records], pa.binary()),
            _headers(headers),
        ],
        schema=ARROW_SCHEMA,
    )


def _timestamps(records: Sequence[Message]) -> pa.Array:
    """Return the records' timestamps, null for one that Kafka does not have or that is outside of TIMESTAMPS.

    A producer may set any number: one that counts microseconds is 50,000 years ahead.
    """
    milliseconds = np.array([record.timestamp()[1] for record in records], dtype=np.int64)
    kinds = np.array([record.timestamp()[0] for record in records])
    first, last = TIMESTAMPS
    absent = (kinds == TIMESTAMP_NOT_AVAILABLE) | (milliseconds < first) | (milliseconds > last)
    microseconds = pa.array(np.where(absent, 0, milliseconds) * 1000, mask=absent)
    # Reinterpreted, not cast: Arrow's first cast of a zoned timestamp loads the time zones, which took five seconds.
    return microseconds.view(ARROW_SCHEMA.field("timestamp").type)


def _headers(headers: Sequence[Any]) -> pa.Array:
    kind = ARROW_SCHEMA.field("headers").type
    if not any(headers):
        return pa.nulls(len(headers), kind)
    pairs = [[{"key": key, "value": value} for key, value in some] if some else None for some in headers]
    return pa.array(pairs, kind)
