"""Records written to Kafka one by one with the pipeline's own properties, each confirmed before the next."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from fencepost.contract import offset_key
from fencepost.kafka.answers import MISSING, REFUSALS, refusal
from fencepost.kafka.log import QUIET
from fencepost_cli.errors import CliError
from fencepost_cli.ports import KafkaAccess, NewRecord
from fencepost_cli.stores.kafka.log import connection_properties
from fencepost_cli.stores.kafka.names import client_of

STORED_WITHIN: Final = 30.0
"""Seconds for which one record is tried."""
ABSENT_FOR: Final = 5.0
"""Seconds after which a topic that Kafka does not name is missing, and not only new."""
LARGEST_RECORD: Final = 1_000_000_000
"""Bytes that librdkafka accepts of a record, the most that it can: the topic's own limit decides."""
_TOO_LARGE: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})


@contextmanager
def open_producer(access: KafkaAccess) -> Iterator[RecordProducer]:
    """Open a producer for the block. Raises CliError."""
    complaints: deque[KafkaError] = deque(maxlen=20)
    settings: dict[str, Any] = {
        key: value for key, value in connection_properties(access).items() if key != "isolation.level"
    }
    settings |= {
        "acks": "all",
        "allow.auto.create.topics": "false",
        "enable.idempotence": "true",
        "linger.ms": "0",
        "message.max.bytes": str(LARGEST_RECORD),
        "message.timeout.ms": str(int(STORED_WITHIN * 1000)),
        "topic.metadata.propagation.max.ms": str(int(ABSENT_FOR * 1000)),
        "error_cb": complaints.append,
    }
    client = client_of(lambda own: Producer(own, logger=QUIET), settings, access.dial)
    producer = RecordProducer(client, access.endpoint.bootstrap_servers, complaints)
    try:
        yield producer
    finally:
        producer.close()


@dataclass(frozen=True, slots=True)
class RecordProducer:
    """Implements the Producer port."""

    producer: Producer
    servers: str
    complaints: deque[KafkaError] = field(default_factory=deque)

    def send(self, record: NewRecord) -> str:
        """Store a record, and return its 'topic/partition@offset'. Raises CliError."""
        answers: list[tuple[KafkaError | None, Message]] = []
        place: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
        try:
            self.producer.produce(
                record.topic,
                record.value,
                record.key,
                headers=list(record.headers),
                on_delivery=lambda error, message: answers.append((error, message)),
                **place,
            )
        except (KafkaException, BufferError) as error:
            raise self._failed(record, error.args[0] if isinstance(error, KafkaException) else error) from error
        deadline = time.monotonic() + STORED_WITHIN + 5.0
        while not answers and time.monotonic() < deadline:
            self._poll(record)
        if not answers:
            raise self._failed(record, "Kafka did not answer")
        failure, message = answers[0]
        if failure is not None:
            raise self._failed(record, failure)
        return f"{offset_key(message.topic() or record.topic, message.partition() or 0)}@{message.offset()}"

    def _poll(self, record: NewRecord) -> None:
        try:
            self.producer.poll(0.1)
        except KafkaException as error:  # fatal, as for an account that may write to no topic at all
            raise self._failed(record, error.args[0]) from error
        refused = refusal(self.complaints)
        if refused is not None:
            raise self._failed(record, refused)

    def close(self) -> None:
        """Drop what was not sent."""
        self.producer.purge()
        self.producer.flush(1.0)

    def _failed(self, record: NewRecord, cause: object) -> CliError:
        code = cause.code() if isinstance(cause, KafkaError) else None
        remedy = f"see whether Kafka answers and topic {record.topic} exists; --kafka names another address"
        if code in REFUSALS:
            remedy = (
                "let the account of the pipeline's Secret write: kafka-acls.sh --add --allow-principal User:NAME"
                f" --operation Write --topic {record.topic}"
            )
        elif code in MISSING:
            remedy = "choose a topic that exists with --to-topic"
        elif code in _TOO_LARGE:
            remedy = "raise max.message.bytes of the topic, or choose another topic with --to-topic"
        return CliError(f"Kafka at {self.servers} did not store a record in {record.topic}: {cause}", remedy=remedy)
