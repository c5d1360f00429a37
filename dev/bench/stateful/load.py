"""The records of `bench stateful`: each key once, then keys at random. One in twenty is late."""

from __future__ import annotations

import random
import time
from typing import Final

from confluent_kafka import Producer

TOPIC: Final = "bench-stateful"
PARTITIONS: Final = 4
STEP_MS: Final = 10
"""Of event time between two records: 1,000 records are ten seconds."""
LATE: Final = 0.05
LATEST_MS: Final = 600_000
"""How late a late record is at most; the windows wait for half of that."""


def produce(servers: str, keys: int, more: int) -> None:
    """Produce `keys` records with a key each, and `more` with random ones of these. Raises ValueError."""
    refused: list[object] = []
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "enable.idempotence": True})

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            refused.append(error)

    chance = random.Random(27)
    begin = int(time.time() * 1000) - STEP_MS * (keys + more)
    for number in range(keys + more):
        key = number if number < keys else chance.randrange(keys)
        late = chance.randrange(LATEST_MS) if chance.random() < LATE else 0
        moment = begin + STEP_MS * number - late
        while True:
            try:
                producer.produce(
                    TOPIC, key=f"k{key:09d}", partition=number % PARTITIONS, timestamp=moment, on_delivery=delivered
                )
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1_000 == 0:
            producer.poll(0)
    if left := producer.flush(120):
        raise ValueError(f"Kafka did not confirm {left} records")
    if refused:
        raise ValueError(f"Kafka refused {len(refused)} records: {refused[0]}")
