"""Records of a bench, as fast as Kafka takes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import Producer

POLL_EVERY: Final = 1_000
"""Records between two looks at what Kafka has confirmed."""
FLUSH_SECONDS: Final = 120.0


def produce(servers: str, topic: str, records: Iterable[Mapping[str, Any]], *, largest: int = 1_000_000) -> None:
    """Produce records, each with the arguments of `Producer.produce`; `largest` are the bytes of the largest one.

    Raises ValueError when Kafka does not confirm all of them.
    """
    refused: list[object] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer(
        {"bootstrap.servers": servers, "linger.ms": 20, "enable.idempotence": True, "message.max.bytes": largest}
    )
    for number, record in enumerate(records):
        while True:
            try:
                producer.produce(topic, on_delivery=delivered, **record)
                break
            except BufferError:
                producer.poll(0.1)
        if number % POLL_EVERY == 0:
            producer.poll(0)
    if left := producer.flush(FLUSH_SECONDS):
        raise ValueError(f"Kafka did not confirm {left} records")
    if refused:
        raise ValueError(f"Kafka refused {len(refused)} records: {refused[0]}")
