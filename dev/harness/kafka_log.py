"""What Kafka's log holds at the end: the truth that tables are compared with."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

READ_SECONDS: Final = 120.0
"""How long reading the whole topic may take."""


@dataclass(frozen=True, slots=True)
class Record:
    """One committed record."""

    partition: int
    offset: int
    key: str
    value: bytes


def read_log(bootstrap: str, topic: str) -> list[Record]:
    """Return each record of the topic that is not of an aborted transaction. Raises KafkaException, TimeoutError."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checker",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = sorted(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        return _until_the_end(consumer, set(partitions))
    finally:
        consumer.close()


def _until_the_end(consumer: Consumer, unread: set[int]) -> list[Record]:
    found: list[Record] = []
    deadline = time.monotonic() + READ_SECONDS
    while unread:
        if time.monotonic() > deadline:
            raise TimeoutError(f"partitions {sorted(unread)} were not read within {READ_SECONDS:.0f} s")
        message = consumer.poll(1.0)
        if message is None:
            continue
        partition, offset, error = message.partition(), message.offset(), message.error()
        assert partition is not None
        if error is not None:
            if error.code() != -191:  # librdkafka's _PARTITION_EOF: all that is committed was read
                raise KafkaException(error)
            unread.discard(partition)
            continue
        assert offset is not None
        found.append(Record(partition, offset, (message.key() or b"").decode(), message.value() or b""))
    return found
