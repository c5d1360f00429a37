"""Records of bounded ranges, read from Kafka with the pipeline's own properties and as no member of a group."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, Message, TopicPartition

from fencepost.batch import Range
from fencepost.kafka import header_names
from fencepost.kafka.answers import REFUSALS, refusal
from fencepost.kafka.log import QUIET
from fencepost.local.record_lines import EPOCH, FileRecord
from fencepost_cli.errors import CliError
from fencepost_cli.ports import KafkaAccess
from fencepost_cli.stores.kafka.log import connection_properties
from fencepost_cli.stores.kafka.names import client_of

QUIET_FOR: Final = 30.0
"""Seconds without a record after which the read fails."""
AT_ONCE: Final = 500
"""Records that are taken from librdkafka at once."""
FETCHED: Final = 4 * 1024 * 1024
"""Bytes of one answer of a broker, unless its first record is larger."""
LARGEST_RECORDS: Final = 128 * 1024 * 1024
"""Bytes of an answer with such a record: the brokers may be whatever a pipeline's author names."""
_EXPIRED: Final = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})  # noqa: SLF001


def read_records(access: KafkaAccess, ranges: Sequence[Range]) -> Generator[FileRecord]:
    """Yield the records of ranges, one of each partition, in order within a partition. Raises CliError."""
    with _consumer(access) as (consumer, complaints):
        yield from _Reading(access, consumer, complaints, {(part.topic, part.partition): part for part in ranges}).all()


def consumer_properties(access: KafkaAccess) -> dict[str, str]:
    """Return librdkafka's properties of a consumer whose answers are bounded. Raises CliError.

    librdkafka creates no consumer with an answer that is larger than what it receives, or smaller than a message that
    it would send: all three are set, whatever the pipeline has.
    """
    return {
        **connection_properties(access),
        "auto.offset.reset": "error",
        "enable.auto.commit": "false",
        "enable.partition.eof": "true",
        "fetch.max.bytes": str(FETCHED),
        "group.id": "fencepost",  # never joined
        "message.max.bytes": str(FETCHED),
        "queued.max.messages.kbytes": "16384",
        "receive.message.max.bytes": str(LARGEST_RECORDS),
    }


@contextmanager
def _consumer(access: KafkaAccess) -> Iterator[tuple[Consumer, deque[KafkaError]]]:
    complaints: deque[KafkaError] = deque(maxlen=20)
    settings: dict[str, Any] = {**consumer_properties(access), "error_cb": complaints.append}
    consumer = client_of(lambda own: Consumer(own, logger=QUIET), settings, access.dial)
    try:
        yield consumer, complaints
    finally:
        consumer.close()


@dataclass(slots=True)
class _Reading:
    access: KafkaAccess
    consumer: Consumer
    complaints: deque[KafkaError]
    left: dict[tuple[str, int], Range] = field(default_factory=dict)

    def all(self) -> Iterator[FileRecord]:
        self.consumer.assign([TopicPartition(*place, part.start) for place, part in self.left.items()])
        last = time.monotonic()
        while self.left:
            messages = self.consumer.consume(AT_ONCE, timeout=1.0)
            for message in messages:
                yield from self._taken(message)
            if messages:
                last = time.monotonic()
                self.complaints.clear()
            elif refused := refusal(self.complaints):
                raise self._refused(refused)
            elif time.monotonic() - last > QUIET_FOR:
                raise CliError(
                    f"Kafka at {self._servers} gave no record of {self._waiting()} for {QUIET_FOR:.0f} s",
                    remedy="see whether Kafka answers at this address; --kafka names another one",
                )

    def _taken(self, message: Message) -> Iterator[FileRecord]:
        """Yield a record that is inside its range, and end a range that is read."""
        place: tuple[str, int] = (message.topic(), message.partition())  # type: ignore[assignment]
        part, offset, error = self.left.get(place), message.offset() or 0, message.error()
        if part is None:
            return
        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own spelling
            self._judge(error, part)
            return
        if error is None and offset < part.until:
            yield _record(message)
        # At the end of the log comes its end and no record.
        if offset + (error is None) >= part.until:
            del self.left[place]
            self.consumer.incremental_unassign([TopicPartition(*place)])

    def _judge(self, error: KafkaError, part: Range) -> None:
        """Raise CliError for what waiting does not fix; librdkafka recovers from all else."""
        if error.code() in _EXPIRED:
            raise CliError(
                f"Kafka no longer has all of {part.key} [{part.start}, {part.until}): {error.str()}",
                remedy="choose other records; `fencepost offsets` shows which ones there are",
            )
        if error.code() in REFUSALS:
            raise self._refused(error)

    def _refused(self, error: KafkaError) -> CliError:
        topics = sorted({topic for topic, _ in self.left})
        return CliError(
            f"Kafka at {self._servers} refused the read: {error}",
            remedy="let the account of the pipeline's Secret read: kafka-acls.sh --add --allow-principal User:NAME"
            f" --operation Read --topic {topics[0]}",
        )

    @property
    def _servers(self) -> str:
        return self.access.endpoint.bootstrap_servers

    def _waiting(self) -> str:
        return ", ".join(f"{part.key} [{part.start}, {part.until})" for part in self.left.values())


def _record(message: Message) -> FileRecord:
    with header_names.replaced():
        headers: Any = message.headers()
    return FileRecord(
        topic=message.topic(),
        partition=message.partition() or 0,
        offset=message.offset(),
        timestamp=_moment(*message.timestamp()),
        key=message.key(),
        value=message.value(),
        headers=tuple(headers or ()),
    )


def _moment(kind: int, milliseconds: int) -> datetime | None:
    """Return a record's timestamp, None without one and for one that is not of the years 1 to 9999, as a run does."""
    if kind == TIMESTAMP_NOT_AVAILABLE:
        return None
    try:
        return EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
