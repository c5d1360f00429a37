"""Reading ranges: every record once, in full chunks, and no waiting for records that do not exist."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from fencepost.batch import Range
from fencepost.contract import LONGEST_REQUEST, Reason
from fencepost.errors import DataLoss, DependencyDown, WorkerError, from_text
from fencepost.kafka import reader

PROPERTIES = {"bootstrap.servers": "k:9092"}
PATIENCE = 120.0


@dataclass(frozen=True)
class Message:
    """What librdkafka hands out: a record, or an event about a partition."""

    partition_: int
    offset_: int
    code: int | None = None
    size: int = 1
    words: str = "words"
    key_: bytes | None = None
    headers_: list[tuple[str, bytes | None]] | None = None
    timestamp_: tuple[int, int] = (1, 1_000)
    epoch_: int | None = None

    def __len__(self) -> int:
        return self.size

    def error(self) -> Any:
        return None if self.code is None else SimpleNamespace(code=lambda: self.code, str=lambda: self.words)

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self.partition_

    def offset(self) -> int:
        return self.offset_

    def timestamp(self) -> tuple[int, int]:
        return self.timestamp_

    def key(self) -> bytes | None:
        return self.key_

    def value(self) -> bytes:
        return b"v" * self.size

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.headers_

    def leader_epoch(self) -> int | None:
        return self.epoch_


def records(partition: int, offsets: Sequence[int]) -> list[Message]:
    return [Message(partition, offset) for offset in offsets]


def end(partition: int, offset: int) -> Message:
    return Message(partition, offset, KafkaError._PARTITION_EOF)


@dataclass(frozen=True)
class Fetched:
    """A report of librdkafka's: the next offset to fetch of partition 0."""

    offset: int

    def to_json(self) -> str:
        return json.dumps({"topics": {"t": {"partitions": {"0": {"next_offset": self.offset}}}}})


@dataclass
class Consumer:
    """Messages that arrive at a time each; `consume` waits as librdkafka does: for all that it was asked for.

    Reports are made once it was opened for them: by `reporting`.
    """

    arriving: list[tuple[float, Message | Fetched]]
    now: float = 0.0
    calls: int = 0
    unassigned: list[int] = field(default_factory=list)
    is_assigned: bool = False
    topic_error: int | None = None
    complaints: deque[KafkaError] = field(default_factory=deque)
    asked: int = 0
    is_down: bool = False
    complaining: dict[float, KafkaError] = field(default_factory=dict)
    report: Callable[[str], None] | None = None
    assigned: list[TopicPartition] = field(default_factory=list)
    is_closed: bool = False

    def reporting(self, _properties: Any, _complaints: Any, report: Callable[[str], None]) -> Consumer:
        self.report = report
        return self

    def close(self) -> None:
        self.is_closed = True

    def list_topics(self, topic: str, timeout: float) -> Any:
        assert timeout > 0
        self.asked += 1
        if self.is_down:
            self.now += timeout
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        error = None if self.topic_error is None else KafkaError(self.topic_error)
        return SimpleNamespace(topics={topic: SimpleNamespace(error=error)})

    def assign(self, parts: Sequence[TopicPartition]) -> None:
        """Give nothing before these positions."""
        self.is_assigned, self.assigned = bool(parts), list(parts)
        starts = {part.partition: part.offset for part in parts}
        self.arriving = [(at, one) for at, one in self.arriving if not self._is_before(one, starts)]

    @staticmethod
    def _is_before(message: Message | Fetched, starts: Mapping[int, int]) -> bool:
        if isinstance(message, Fetched) or message.code is not None:
            return False
        return message.offset_ < starts.get(message.partition_, 0)

    def unassign(self) -> None:
        self.is_assigned = False

    def incremental_unassign(self, parts: Sequence[TopicPartition]) -> None:
        self.unassigned += [part.partition for part in parts]

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        assert num_messages > 0
        self.calls += 1
        for at in [at for at in self.complaining if at <= self.now]:
            self.complaints.append(self.complaining.pop(at))
        deadline = self.now + timeout
        taken: list[Message] = []
        while len(taken) < num_messages and self.arriving and self.arriving[0][0] <= deadline:
            at, message = self.arriving.pop(0)
            self.now = max(self.now, at)
            if isinstance(message, Fetched):
                if self.report is not None:
                    self.report(message.to_json())
                continue
            taken.append(message)
        if len(taken) < num_messages:
            self.now = deadline
        return taken

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def monotonic(self) -> float:
        return self.now


@dataclass
class Topics:
    """Kafka's answer when it is asked for topics' ids: how many were fetched by then, and whether it confirms them."""

    consumer: Consumer
    is_recreated: bool = False
    confirmed: list[tuple[Mapping[str, str], int]] = field(default_factory=list)

    def confirm(self, ids: Mapping[str, str], *, patience: float) -> None:
        assert patience == PATIENCE
        if self.is_recreated:
            raise DataLoss("another topic", reason=Reason.TOPIC_RECREATED)
        self.confirmed.append((ids, len(self.consumer.arriving)))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Read ranges from a consumer that gets these bursts: {second: messages}."""

    def start(
        ranges: Sequence[Range],
        bursts: Mapping[float, Sequence[Message | Fetched]],
        reached: dict[str, int] | None = None,
        topics: Callable[[Consumer], Topics] = Topics,
        **state: Any,
    ) -> tuple[Consumer, list[Any]]:
        consumer = Consumer([(at, message) for at, some in bursts.items() for message in some], **state)
        asked = topics(consumer)
        monkeypatch.setattr(reader, "_topics", lambda _properties: asked)
        client = reader._Client(consumer, consumer.complaints)  # type: ignore[arg-type]
        monkeypatch.setattr(reader, "_client", lambda _properties, _fetch_bytes: client)
        monkeypatch.setattr(reader, "_reporting", consumer.reporting)
        monkeypatch.setattr(reader, "time", consumer)
        report = None if reached is None else reached.__setitem__
        found: Iterator[pa.RecordBatch] = reader.read(ranges, PROPERTIES, patience=PATIENCE, reached=report)
        return consumer, list(found)

    return start


def offsets(batches: Sequence[pa.RecordBatch]) -> list[tuple[int, int]]:
    return [
        pair
        for batch in batches
        for pair in zip(batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True)
    ]


def test_a_gap_at_the_end_of_a_range_is_not_waited_for(read: Any) -> None:
    """A transaction's marker is the range's last offset: what ends it is the log's end, not a record."""
    consumer, batches = read(
        [Range("t", 0, 0, 5), Range("t", 1, 7, 9)],
        {0.01: [*records(0, [0, 1, 3]), *records(1, [7])], 0.03: [end(0, 5), end(1, 9)]},
    )
    assert offsets(batches) == [(0, 0), (0, 1), (0, 3), (1, 7)]
    assert len(batches) == 1
    assert consumer.now == 0.03
    assert consumer.unassigned == [0, 1]
    assert not consumer.is_assigned


def test_a_record_behind_the_range_ends_it_at_once(read: Any) -> None:
    consumer, batches = read([Range("t", 0, 0, 3)], {0.01: records(0, [0, 1, 4, 5])})
    assert offsets(batches) == [(0, 0), (0, 1)]
    assert consumer.now == 0.01


def test_a_record_is_left_out_by_its_offset_and_its_leader_epoch(read: Any) -> None:
    """Found: a log that was truncated below the offset and filled again lost the record that is there now."""
    parts = [
        Range("t", 0, 0, 5, left_out=((2, 7), (4, 7))),
        Range("t", 1, 0, 2, left_out=((0, -1), (1, 6))),
        Range("t", 2, 0, 1, left_out=((0, 3),)),
    ]
    arriving = [
        *(replace(one, epoch_=7 if one.offset_ < 4 else 8) for one in records(0, range(5))),
        *(replace(one, epoch_=None) for one in records(1, range(2))),
        *(replace(one, epoch_=3) for one in records(2, [0])),
    ]
    consumer, batches = read(parts, {0.01: arriving})
    assert sorted(offsets(batches)) == [(0, 0), (0, 1), (0, 3), (0, 4), (1, 1)]
    assert not consumer.is_assigned


def test_a_range_without_any_record_gives_no_batch(read: Any) -> None:
    consumer, batches = read([Range("t", 0, 4, 6)], {0.02: [end(0, 6)]})
    assert batches == []
    assert consumer.now == 0.02


def test_an_end_before_the_range_s_end_is_not_its_end(read: Any) -> None:
    """A follower's view of the log, or records that are still on their way."""
    _, batches = read([Range("t", 0, 0, 3)], {0.01: [*records(0, [0]), end(0, 1)], 3.0: records(0, [1, 2])})
    assert offsets(batches) == [(0, 0), (0, 1), (0, 2)]


def test_chunks_are_full_however_the_records_come(read: Any) -> None:
    total = 2 * reader.CHUNK + 500
    bursts = {0.1 * (first // 700): records(0, range(first, min(first + 700, total))) for first in range(0, total, 700)}
    consumer, batches = read([Range("t", 0, 0, total)], bursts)
    assert [batch.num_rows for batch in batches] == [reader.CHUNK, reader.CHUNK, 500]
    assert offsets(batches) == [(0, offset) for offset in range(total)]
    assert consumer.calls <= 3 * len(bursts) + 3  # by bursts, not record by record


@pytest.mark.parametrize(
    "content",
    [
        {"size": reader.CHUNK_BYTES // 4},
        {"key_": bytes(reader.CHUNK_BYTES // 4)},
        {"headers_": [("a", bytes(reader.CHUNK_BYTES // 8)), ("b", None), ("c", bytes(reader.CHUNK_BYTES // 8))]},
    ],
    ids=lambda content: next(iter(content)),
)
def test_a_chunk_of_large_records_is_bounded_in_bytes(read: Any, content: dict[str, Any]) -> None:
    large = [Message(0, offset, **content) for offset in range(6)]
    _, batches = read([Range("t", 0, 0, 6)], {0.1 * offset: [one] for offset, one in enumerate(large)})
    assert [batch.num_rows for batch in batches] == [4, 2]


def test_retention_that_passed_the_range_is_data_loss(read: Any) -> None:
    with pytest.raises(WorkerError) as caught:
        read([Range("t", 0, 0, 3)], {0.01: [*records(0, [0]), Message(0, 1, KafkaError._AUTO_OFFSET_RESET)]})
    assert isinstance(from_text(str(caught.value)), DataLoss)
    assert "t/0 [1, 3)" in str(caught.value)


def test_a_silent_kafka_is_waited_for_from_its_last_record_on(read: Any) -> None:
    ranges = [Range("t", 0, 0, 3)]
    _, batches = read(ranges, {PATIENCE - 5: records(0, [0]), 2 * PATIENCE - 10: records(0, [1, 2])})
    assert offsets(batches) == [(0, 0), (0, 1), (0, 2)]
    with pytest.raises(WorkerError) as caught:
        read(ranges, {5.0: records(0, [0])})
    found = from_text(str(caught.value))
    assert isinstance(found, DependencyDown)
    assert "waiting for t/0 [1, 3)" in found.message


def fetched(start: int, *, until: int, step: int) -> dict[float, Sequence[Fetched]]:
    """A report per second, each a step further, from the sixth second on."""
    offsets = range(start, until, step)
    return {6.0 + second: [Fetched(offset)] for second, offset in enumerate(offsets)}


def test_aborted_records_that_librdkafka_skips_count_as_an_answer(read: Any) -> None:
    """A stretch that takes longer than the patience was KafkaUnreachable, and so was each repetition of the batch."""
    skipping = fetched(100, until=100 + 150 * 100, step=100)
    _, batches = read([Range("t", 0, 0, 20_000)], {**skipping, 200.0: records(0, [19_999])})
    assert offsets(batches) == [(0, 19_999)]


def test_a_range_ends_once_kafka_is_read_beyond_it(read: Any) -> None:
    """Among aborted records, with no record in sight: its end is where nothing more is to come."""
    reached: dict[str, int] = {}
    consumer, batches = read(
        [Range("t", 0, 0, 1000, 7)], {0.01: records(0, range(3)), **fetched(500, until=10_000, step=400)}, reached
    )
    assert offsets(batches) == [(0, 0), (0, 1), (0, 2)]
    assert reached == {"t/0": 1300}
    assert consumer.now < 12
    assert consumer.is_closed


def test_what_is_fetched_and_not_given_yet_is_waited_for(read: Any) -> None:
    """A report counts records that are still queued."""
    bursts = {6.0: [Fetched(1000)], 6.5: records(0, [10]), 7.0: [Fetched(1000)], 7.5: records(0, [20, 999])}
    _, batches = read([Range("t", 0, 0, 1000)], bursts)
    assert offsets(batches) == [(0, 10), (0, 20), (0, 999)]


def test_reading_continues_after_the_records_that_came(read: Any) -> None:
    """The epoch belongs to the range's start: with a later offset it would look like a truncated log."""
    consumer, _ = read([Range("t", 0, 5, 20, 7)], {0.01: records(0, [5, 6]), **fetched(7, until=50, step=10)})
    (assigned,) = consumer.assigned
    assert (assigned.offset, assigned.leader_epoch) == (7, None)


def test_where_the_next_record_is_is_reported(read: Any) -> None:
    reached: dict[str, int] = {}
    ranges = [Range("t", 0, 0, 3), Range("t", 1, 0, 3), Range("t", 2, 0, 3)]
    read(ranges, {0.01: [*records(0, [0, 1, 40]), end(1, 60), *records(2, [2, 3])]}, reached)
    assert reached == {"t/0": 40, "t/1": 60}


def test_a_kafka_that_is_silent_after_a_stretch_of_aborted_records_is_given_up(read: Any) -> None:
    found = failure(read, [Range("t", 0, 0, 20_000)], fetched(100, until=1_000, step=100))
    assert isinstance(found, DependencyDown)
    assert found.reason == "KafkaUnreachable"


def test_the_topic_is_confirmed_after_each_fetch_and_before_a_record_of_it_is_given(read: Any) -> None:
    """Found: the driver asked once for a whole batch, and committed it where Kafka did not answer at once."""
    made: list[Topics] = []

    def topics(consumer: Consumer) -> Topics:
        made.append(Topics(consumer))
        return made[0]

    part = Range("t", 0, 0, reader.CHUNK + 5, None, "id")
    chunks = {
        0.01: records(0, list(range(reader.CHUNK))),
        1.0: records(0, [reader.CHUNK]),
        2.0: [end(0, reader.CHUNK + 5)],
    }
    _, batches = read([part], chunks, topics=topics)
    assert [batch.num_rows for batch in batches] == [reader.CHUNK, 1]
    assert made[0].confirmed == [({"t": "id"}, 2), ({"t": "id"}, 0)]


def test_nothing_of_a_topic_that_was_recreated_is_given(read: Any) -> None:
    part = Range("t", 0, 0, 2, None, "id")
    found = failure(read, [part], {0.01: records(0, [0, 1])}, topics=partial(Topics, is_recreated=True))
    assert isinstance(found, DataLoss)
    assert found.reason is Reason.TOPIC_RECREATED


def failure(read: Any, *arguments: Any, **state: Any) -> Any:
    with pytest.raises(WorkerError) as caught:
        read(*arguments, **state)
    return from_text(str(caught.value))


def test_a_refused_group_coordinator_does_not_end_the_read(read: Any) -> None:
    """librdkafka asks for the group's coordinator although nothing joins the group; topic rights suffice."""
    refused = Message(0, 0, KafkaError.GROUP_AUTHORIZATION_FAILED)
    _, batches = read([Range("t", 0, 0, 2)], {0.01: [refused], 0.02: records(0, [0, 1])})
    assert offsets(batches) == [(0, 0), (0, 1)]


def test_one_answer_that_a_topic_is_unknown_is_not_data_loss(read: Any) -> None:
    """A broker that has just started does not know it yet."""
    unknown = Message(0, 0, KafkaError.UNKNOWN_TOPIC_OR_PART)
    _, batches = read([Range("t", 0, 0, 2)], {0.01: [unknown], 40.0: records(0, [0, 1])})
    assert offsets(batches) == [(0, 0), (0, 1)]


def test_a_topic_that_stays_unknown_ends_the_run_and_is_not_yet_data_loss(read: Any) -> None:
    """The next run asks for the topic's id, and requires that all answers agree for a while."""
    unknown = Message(0, 0, KafkaError.UNKNOWN_TOPIC_OR_PART)
    ranges = [Range("t", 0, 4, 6)]
    found = failure(read, ranges, {0.01: [unknown]}, topic_error=KafkaError.UNKNOWN_TOPIC_OR_PART)
    assert isinstance(found, DependencyDown)
    assert "waiting for t/0 [4, 6); it reports as missing: topic t" in found.message


@pytest.mark.parametrize(
    "state",
    [
        {"topic_error": KafkaError.TOPIC_AUTHORIZATION_FAILED},
        {"complaining": {1.0: KafkaError(KafkaError._AUTHENTICATION)}},
    ],
)
def test_a_refusal_that_comes_with_no_record_is_found_by_asking(read: Any, state: dict[str, Any]) -> None:
    found = failure(read, [Range("t", 0, 4, 6)], {}, **state)
    assert isinstance(found, DependencyDown)
    assert found.reason == "KafkaCredentialsRejected"


def test_a_kafka_that_is_down_is_given_up_within_one_request_after_the_patience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many topics there are: one without an answer is enough."""
    consumer = Consumer([], is_down=True)
    client = reader._Client(consumer, consumer.complaints)  # type: ignore[arg-type]
    monkeypatch.setattr(reader, "_client", lambda _properties, _fetch_bytes: client)
    monkeypatch.setattr(reader, "_reporting", consumer.reporting)
    monkeypatch.setattr(reader, "time", consumer)
    with pytest.raises(WorkerError):
        list(reader.read([Range(f"t{n}", 0, 0, 3) for n in range(20)], PROPERTIES, patience=12.0))
    assert consumer.now <= 12.0 + LONGEST_REQUEST


def test_a_refusal_of_an_earlier_batch_does_not_end_a_quiet_spell(read: Any) -> None:
    """A rolling restart long ago: one broker refused a connection once, and the batch went through."""
    earlier = deque([KafkaError(KafkaError._AUTHENTICATION)])
    _, batches = read([Range("t", 0, 0, 2)], {20.0: records(0, [0, 1])}, complaints=earlier)
    assert offsets(batches) == [(0, 0), (0, 1)]


def truncated(partition: int, end: int) -> Message:
    words = (
        f"Partition log truncation detected at offset 9 (leader epoch 3): broker end offset is {end} (offset leader"
        " epoch 3). Reset to INVALID.: Local: Partition log truncation detected (broker 1)"
    )
    return Message(partition, 0, KafkaError._AUTO_OFFSET_RESET, words=words)


def test_a_truncated_log_is_data_loss_with_the_range_of_each_partition(read: Any) -> None:
    ranges = [Range("t", 0, 9, 20, 3), Range("t", 1, 30, 40, 3), Range("t", 2, 5, 6, 3)]
    found = failure(read, ranges, {0.01: [*records(2, [5]), truncated(0, 4)], 0.5: [truncated(1, 17)]})
    assert isinstance(found, DataLoss)
    assert found.reason == "LogTruncated"
    assert "t/0 [4, 9), t/1 [17, 30)" in found.message


def test_a_log_truncated_in_the_middle_of_a_read_names_what_was_read(read: Any) -> None:
    found = failure(read, [Range("t", 0, 0, 20, 3)], {0.01: records(0, range(9)), 0.5: [truncated(0, 4)]})
    assert "t/0 [4, 9)" in found.message


def test_a_broker_that_does_not_know_the_epoch_is_asked_again(read: Any) -> None:
    """It does not know yet that it leads no more; Kafka has lost nothing."""
    given = {0.01: [truncated(0, -1)], 5.0: records(0, range(9, 12))}
    consumer, batches = read([Range("t", 0, 9, 12, 3)], given)
    assert offsets(batches) == [(0, 9), (0, 10), (0, 11)]
    assert consumer.now >= 5.0


KIB = 1024


@pytest.mark.parametrize(
    ("records", "record_bytes", "fetched"),
    [
        ([250, 250, 250, 250], 200.0, 64 * KIB),
        ([1000], 200.0, 256 * KIB),
        ([327, 1], 200.0, 64 * KIB),
        ([328, 1], 200.0, 256 * KIB),
        ([25_000] * 4, 200.0, None),
        ([250], 10_000.0, None),
        ([250], None, None),
        ([], 200.0, None),
    ],
)
def test_a_fetch_is_as_large_as_the_largest_range(
    records: list[int], record_bytes: float | None, fetched: int | None
) -> None:
    ranges = [Range("t", partition, 5, 5 + count) for partition, count in enumerate(records)]
    assert reader._fetch_bytes(ranges, PROPERTIES, record_bytes) == fetched


@pytest.mark.parametrize("name", ["max.partition.fetch.bytes", "fetch.message.max.bytes", "queued.min.messages"])
def test_a_size_that_the_author_sets_holds_for_all_ranges(name: str) -> None:
    assert reader._fetch_bytes([Range("t", 0, 0, 10)], {**PROPERTIES, name: "1000000"}, 200.0) is None


def test_the_size_of_records_is_learnt_from_those_that_were_read(read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    learnt: dict[Any, float] = {}
    monkeypatch.setattr(reader, "_record_bytes", learnt)
    read([Range("t", 0, 0, 2)], {0: [Message(0, 0, size=1_000), Message(0, 1, size=3_000)]})
    (size,) = learnt.values()
    assert 2_000 < size < 2_200


NO_TIMESTAMP, CREATE_TIME = 0, 1


@pytest.mark.parametrize(
    ("kind", "milliseconds", "expected"),
    [
        (CREATE_TIME, 1_700_000_000_123, datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)),
        (CREATE_TIME, -1, datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
        (CREATE_TIME, 253_402_300_799_999, datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
        (NO_TIMESTAMP, -1, None),
        (CREATE_TIME, 253_402_300_800_000, None),
        (CREATE_TIME, 1_700_000_000_000_000, None),
        (CREATE_TIME, 1_700_000_000_000_000_000, None),
        (CREATE_TIME, -(2**63), None),
    ],
)
def test_a_timestamp_that_spark_does_not_have_is_null(kind: int, milliseconds: int, expected: datetime | None) -> None:
    message: Any = Message(0, 5, timestamp_=(kind, milliseconds))
    batch = reader._to_arrow([message])
    assert batch.slice(0, 1).to_pylist()[0]["timestamp"] == expected


def of_epoch(epoch: int, offsets: Sequence[int]) -> list[Message]:
    return [Message(0, offset, epoch_=epoch) for offset in offsets]


def sightings(read: Any, monkeypatch: pytest.MonkeyPatch, part: Range, bursts: Any) -> list[tuple[str, int, int]]:
    """Read a range; return the distinct records whose epochs are reported, by offset."""
    found: set[tuple[str, int, int]] = set()
    whole = reader.read
    monkeypatch.setattr(reader, "read", partial(whole, seen=lambda key, offset, epoch: found.add((key, offset, epoch))))
    read([part], bursts)
    return sorted(found)


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (of_epoch(3, range(5)), [("t/0", 0, 3), ("t/0", 4, 3)]),
        ([*of_epoch(3, [0, 1, 2]), *of_epoch(5, [3, 4])], [("t/0", 0, 3), ("t/0", 2, 3), ("t/0", 3, 5), ("t/0", 4, 5)]),
        ([*of_epoch(3, [1, 3]), *of_epoch(4, [8])], [("t/0", 1, 3), ("t/0", 3, 3), ("t/0", 8, 4)]),
        ([*of_epoch(3, [1, 3]), end(0, 7)], [("t/0", 1, 3), ("t/0", 3, 3)]),
        (of_epoch(3, [9]), [("t/0", 9, 3)]),
        (records(0, range(5)), []),
    ],
)
def test_the_epochs_of_a_range_are_reported_where_they_change_and_where_it_ends(
    read: Any, monkeypatch: pytest.MonkeyPatch, messages: list[Message], expected: list[tuple[str, int, int]]
) -> None:
    assert sightings(read, monkeypatch, Range("t", 0, 0, 5), {0.01: messages}) == expected


def test_a_record_of_an_earlier_epoch_than_what_was_read_is_of_another_log(read: Any) -> None:
    """Of a leader that was elected again with its old log: all that was read of the later epoch is gone."""
    part = Range("t", 0, 150, 160, 2, epoch_start=100)
    found = failure(read, [part], {0.01: of_epoch(1, range(150, 160))})
    assert isinstance(found, DataLoss)
    assert found.reason == "LogTruncated"
    assert "t/0 [100, 150)" in found.message


@pytest.mark.parametrize("part", [Range("t", 0, 150, 152, 2), Range("t", 0, 150, 152, None, epoch_start=100)])
def test_a_record_of_an_earlier_epoch_than_a_leader_s_is_given(read: Any, part: Range) -> None:
    _, batches = read([part], {0.01: of_epoch(1, range(150, 152))})
    assert offsets(batches) == [(0, 150), (0, 151)]


def test_a_log_that_has_no_record_of_the_epoch_lost_it_from_its_start_on(read: Any) -> None:
    """The log ends an earlier epoch at 4, beyond the start of the one that was read; and that one at 17."""
    without = replace(
        truncated(0, 7), words=truncated(0, 7).words.replace("(offset leader epoch 3)", "(offset leader epoch 1)")
    )
    ranges = [Range("t", 0, 9, 20, 3, epoch_start=5), Range("t", 1, 30, 40, 3, epoch_start=5)]
    found = failure(read, ranges, {0.01: [without], 0.5: [truncated(1, 17)]})
    assert "t/0 [5, 9), t/1 [17, 30)" in found.message


class Consumers:
    """Fresh consumers, each with its messages."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *given: Sequence[Message]) -> None:
        self.made = [Consumer([(0.0, message) for message in messages]) for messages in given]
        self.left = list(self.made)
        monkeypatch.setattr(reader, "_consumer", lambda *_: self.left.pop(0))
        clock = self.made[0]
        monkeypatch.setattr(reader, "time", clock)


def test_a_check_returns_the_epoch_of_the_first_record(monkeypatch: pytest.MonkeyPatch) -> None:
    consumers = Consumers(monkeypatch, of_epoch(3, [9, 10]))
    assert reader.check([Range("t", 0, 9, 10, 3)], PROPERTIES, patience=5) == {"t/0": 3}
    assert consumers.made[0].is_closed


def test_an_answer_of_an_earlier_leader_than_was_seen_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    part = Range("t", 0, 9, 10, 3)
    Consumers(monkeypatch, of_epoch(3, [9]), of_epoch(3, [9]), of_epoch(5, [9]))
    assert reader.check([part], PROPERTIES, patience=5, at_least={"t/0": 4}) == {"t/0": 5}
    Consumers(monkeypatch, *[of_epoch(3, [9])] * 20)
    with pytest.raises(DependencyDown, match="did not give again the record of t/0 from 9 on of leader epoch 4"):
        reader.check([part], PROPERTIES, patience=5, at_least={"t/0": 4})
