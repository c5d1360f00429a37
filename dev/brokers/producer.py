"""Numbered records with acks=all, and where Kafka said that it put each one."""

from __future__ import annotations

import json
import random
import threading
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from harness.background import beside

PARTITIONS: Final = 4
PER_TURN: Final = (1, 40)
"""Records that are sent together."""
PAUSE_SECONDS: Final = (0.0, 0.3)
DELIVERED_WITHIN: Final = 20.0
"""Seconds after which the producer gives a record up: it may be stored all the same."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A record as Kafka acknowledged it: the `number` in its value, its place, and when, in seconds since 1970."""

    number: int
    partition: int
    offset: int
    at: float


@dataclass(slots=True)
class Load:
    """Produces to one topic in a thread of its own. `idempotent`: Kafka stores each number once at most."""

    bootstrap: str
    topic: str
    chance: random.Random
    idempotent: bool
    acknowledged: list[Acknowledged] = field(default_factory=list)
    sent: int = 0
    _producer: Producer | None = None

    def flowing(self) -> AbstractContextManager[None]:
        """Produce while the block runs, and until Kafka has answered for every record."""
        return beside(self._run, name=f"load of {self.topic}")

    def fill(self, partition: int, count: int) -> None:
        """Send so many records to one partition, from the caller's thread while nothing else is produced."""
        producer = self._connected()
        for _ in range(count):
            self._send(producer, partition)
        producer.flush(2 * DELIVERED_WITHIN)

    def _run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                producer = self._connected()
                for _ in range(self.chance.randint(*PER_TURN)):
                    self._send(producer, self.chance.randrange(PARTITIONS))
                producer.poll(0)
            except BufferError:
                self._connected().poll(0.2)
            except KafkaException:  # fatal for an idempotent producer; what is open stays without an answer
                self._producer = None
            stop.wait(self.chance.uniform(*PAUSE_SECONDS))
        if self._producer is not None:
            self._producer.flush(2 * DELIVERED_WITHIN)

    def _send(self, producer: Producer, partition: int) -> None:
        number = self.sent
        value = json.dumps({"n": number, "x": number / 2, "city": f"c{number % 7}"})
        producer.produce(self.topic, value=value, partition=partition, on_delivery=self._answered)
        self.sent += 1

    def _answered(self, error: KafkaError | None, message: Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        if error is None and partition is not None and offset is not None and value is not None:
            self.acknowledged.append(Acknowledged(json.loads(value)["n"], partition, offset, time.time()))

    def _connected(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "acks": "all",
                    "enable.idempotence": self.idempotent,
                    "message.timeout.ms": round(DELIVERED_WITHIN * 1000),
                    "linger.ms": 5,
                    # A log is cut between a producer's batches.
                    "batch.num.messages": 10,
                    "topic.metadata.refresh.interval.ms": 5000,
                    "log_level": 0,
                }
            )
        return self._producer
