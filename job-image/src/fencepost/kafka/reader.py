"""Bounded ranges of Kafka, read by librdkafka inside a Python worker, as Arrow record batches.

The consumer lives in this imported module, so a reused worker keeps its connections from batch to batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from fencepost.batch import Range
from fencepost.contract import Reason
from fencepost.errors import DataLoss, DependencyDown, DriverError, as_worker_error
from fencepost.kafka.log import PATIENCE, REFUSALS, refused

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
CHUNK_BYTES: Final = 16 * 1024 * 1024
"""Bytes of values that fill an Arrow batch before CHUNK does: so many large records would not fit in a worker."""

_consumers: dict[tuple[tuple[str, str], ...], Consumer] = {}


def read(ranges: Sequence[Range], properties: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """Yield the records of `ranges`, in order within a partition.

    Raises WorkerError: of DataLoss when retention passed a range meanwhile, of DependencyDown when Kafka gives nothing
    for `fencepost.kafka.log.PATIENCE` seconds or refuses the credentials.
    """
    todo = [part for part in ranges if part.records > 0]
    consumer = _consumer(properties)  # also without ranges: it is then connecting while the session warms up
    if not todo:
        return
    try:
        yield from _Reading(consumer, todo, properties["bootstrap.servers"]).batches()
    except DriverError as error:
        raise as_worker_error(error) from error


def _consumer(properties: Mapping[str, str]) -> Consumer:
    key = tuple(sorted(properties.items()))
    if key not in _consumers:
        _consumers[key] = Consumer(
            {
                # The first byte that is there is worth having: batches are bounded, latency is what counts.
                "fetch.wait.max.ms": "20",
                "queued.min.messages": "20000",
                # A partition whose queue is full is asked again after this; the default of one second outlasts whole
                # batches (p90 of 1,000 records: 1,033 ms, and 36 with this).
                "fetch.queue.backoff.ms": "5",
                "socket.nagle.disable": "true",
                "check.crcs": "true",
                **properties,
                "group.id": "fencepost",  # never joined: offsets live at the fence
                "enable.auto.commit": "false",
                "auto.offset.reset": "error",
                "enable.partition.eof": "true",
            }
        )
    return _consumers[key]


class _Reading:
    """One task's read: where each partition is, and which are done."""

    def __init__(self, consumer: Consumer, ranges: Sequence[Range], servers: str) -> None:
        self._consumer = consumer
        self._ranges = {(part.topic, part.partition): part for part in ranges}
        self._left = {key: part.records for key, part in self._ranges.items()}
        self._servers = servers

    def batches(self) -> Iterator[pa.RecordBatch]:
        self._consumer.assign([TopicPartition(p.topic, p.partition, p.start) for p in self._ranges.values()])
        try:
            while self._left:
                records = self._chunk()
                if records:
                    yield _to_arrow(records)
        finally:
            self._consumer.unassign()

    def _chunk(self) -> list[Message]:
        """Return the next records: as many as make a full Arrow batch, fewer when the ranges are done."""
        records: list[Message] = []
        size, quiet_since = 0, time.monotonic()
        while self._left and len(records) < CHUNK and size < CHUNK_BYTES:
            wanted = min(CHUNK - len(records), sum(self._left.values()))
            # What is there, else the first that comes: asked to wait for more, librdkafka waits for all of it, and a
            # range with gaps (transaction markers, compaction) has fewer records than offsets.
            messages = self._consumer.consume(wanted, timeout=0) or self._consumer.consume(1, timeout=1.0)
            accepted = self._accept(messages)
            if accepted:
                records += accepted
                size += sum(map(len, accepted))
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since > PATIENCE:
                raise DependencyDown(
                    f"kafka at {self._servers} gave nothing for {PATIENCE:.0f} s; waiting for {self._waiting()}",
                    reason=Reason.KAFKA_UNREACHABLE,
                )
        return records

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
            until = self._ranges[key].until
            offset = message.offset() or 0
            if offset < until:
                records.append(message)
            if offset + 1 >= until:
                self._finish(key)
            else:
                self._left[key] = until - offset - 1
        return records

    def _judge(self, error: KafkaError, key: tuple[str, int], message: Message) -> None:
        """Raise for an error that waiting does not mend; librdkafka itself goes on after the others."""
        code = error.code()
        if code == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's own spelling
            # Transaction markers and compaction leave no record at the end of a range; the log's end proves it.
            part = self._ranges.get(key)
            if part is not None and key in self._left and (message.offset() or 0) >= part.until:
                self._finish(key)
        elif code in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:  # noqa: SLF001
            raise DataLoss(
                f"the log no longer holds all of {self._waiting()}: {error.str()}", reason=Reason.OFFSET_OUT_OF_RANGE
            )
        elif code in REFUSALS:
            raise refused(self._servers, error)
        elif code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise DataLoss(f"{key[0]}/{key[1]} is gone: {error.str()}", reason=Reason.TOPIC_DELETED)

    def _finish(self, key: tuple[str, int]) -> None:
        del self._left[key]
        self._consumer.incremental_unassign([TopicPartition(*key)])

    def _waiting(self) -> str:
        parts = (self._ranges[key] for key in self._left)
        return ", ".join(
            f"{part.key} [{part.until - self._left[part.topic, part.partition]}, {part.until})" for part in parts
        )


def _to_arrow(records: Sequence[Message]) -> pa.RecordBatch:
    """Return the messages as one batch, column by column."""
    # Reinterpreted, not cast: Arrow's first cast of a zoned timestamp loads the time zones, which took five seconds.
    microseconds = np.array([record.timestamp()[1] for record in records], dtype=np.int64) * 1000
    headers: list[Any] = [record.headers() for record in records]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([record.topic() for record in records], pa.string()),
            pa.array([record.partition() for record in records], pa.int32()),
            pa.array([record.offset() for record in records], pa.int64()),
            pa.array(microseconds).view(ARROW_SCHEMA.field("timestamp").type),
            pa.array([record.key() for record in records], pa.binary()),
            pa.array([record.value() for record in records], pa.binary()),
            _headers(headers),
        ],
        schema=ARROW_SCHEMA,
    )


def _headers(headers: Sequence[Any]) -> pa.Array:
    kind = ARROW_SCHEMA.field("headers").type
    if not any(headers):
        return pa.nulls(len(headers), kind)
    pairs = [[{"key": key, "value": value} for key, value in some] if some else None for some in headers]
    return pa.array(pairs, kind)
