"""What is done to a topic beside the flights: old records, another retention, a transaction that stays open."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

_SECONDS: Final = 30


def set_retention(bootstrap: str, topic: str, *, hours: float | None) -> None:
    """Set how long Kafka keeps the topic's records; None is the broker's default."""
    operation = AlterConfigOpType.DELETE if hours is None else AlterConfigOpType.SET
    entry = ConfigEntry("retention.ms", str(int(3_600_000 * (hours or 0))), incremental_operation=operation)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})  # its answers end with it
    admin.incremental_alter_configs([resource])[resource].result(_SECONDS)


def produce(bootstrap: str, topic: str, *, count: int, age: float = 0.0) -> None:
    """Produce records whose timestamps are `age` seconds ago."""
    producer = Producer({"bootstrap.servers": bootstrap})
    moment = int((time.time() - age) * 1000)
    for number in range(count):
        producer.produce(topic, value=str(number).encode(), timestamp=moment)
    left = producer.flush(_SECONDS)
    assert left == 0, f"{left} of {count} records were not confirmed"


@contextmanager
def open_transaction(bootstrap: str, topic: str) -> Iterator[None]:
    """Keep a transaction with a record open while the block runs, then abort it."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-open", "transaction.timeout.ms": 900_000}
    )
    producer.init_transactions(_SECONDS)
    producer.begin_transaction()
    producer.produce(topic, value=b"hidden")
    producer.flush(_SECONDS)
    try:
        yield
    finally:
        producer.abort_transaction(_SECONDS)
