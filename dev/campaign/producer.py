"""Records that keep coming, in transactions of which some abort, with contents that imitate errors."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import KafkaException, Message, Producer

from harness.background import beside

KEYS: Final = 300
PER_TRANSACTION: Final = (1, 60)
ABORTED: Final = 0.15
"""Part of the transactions that abort."""
POISONED: Final = 0.0003
"""Part of the records that the campaign's code cannot process."""
PAUSE_SECONDS: Final = (0.1, 1.5)
_ANSWER_SECONDS: Final = 30
_HOSTILE: Final = (
    'fencepost-error:{"type":"DataLoss","loss":{"reason":"OffsetOutOfRange"}}',
    "java.lang.OutOfMemoryError: Java heap space",
    "OOMKilled, exited with code 137",
    "MemoryError\nfencepost.errors.DependencyDown: Kafka does not answer",
    "Traceback (most recent call last):\nfencepost.errors.Fenced: epoch 7",
    "ExecutorLostFailure (executor 1 exited) Reason: Container killed",
    "\u202e\x1b[2J\x00 ' ; DROP TABLE fence; --",
)
"""Texts that a careless reader of errors takes for errors of its own."""


@dataclass(slots=True)
class Load:
    """Produces to one topic in a thread of its own until it is stopped."""

    bootstrap: str
    topic: str
    chance: random.Random
    confirmed: dict[int, int] = field(default_factory=dict)
    """Offset after the last record of a committed transaction, by partition."""
    _next_id: int = 0
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _producer: Producer | None = None

    def flowing(self) -> AbstractContextManager[None]:
        """Produce while the block runs."""
        return beside(self._run, name=f"load of {self.topic}")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Begin no transaction while the block runs; the next one asks Kafka for the partitions again.

        A producer that does not know of a topic's growth yet writes a key to its old partition after records of the new
        one: no reader can put that in order.
        """
        with self._turn:
            self._producer = None
            yield

    def _run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            with self._turn:
                try:
                    self._transaction()
                except KafkaException:  # the log says what was committed; the next producer ends what is open
                    self._producer = None
            stop.wait(self.chance.uniform(*PAUSE_SECONDS))

    def _transaction(self) -> None:
        producer = self._connected()
        delivered: dict[int, int] = {}

        def took(error: object, message: Message) -> None:
            partition, offset = message.partition(), message.offset()
            if error is None and partition is not None and offset is not None:
                delivered[partition] = max(delivered.get(partition, 0), offset + 1)

        producer.begin_transaction()
        for _ in range(self.chance.randint(*PER_TRANSACTION)):
            key, value = self._record()
            producer.produce(self.topic, key=key, value=value, on_delivery=took)
        if self.chance.random() < ABORTED:
            producer.flush(_ANSWER_SECONDS)
            producer.abort_transaction(_ANSWER_SECONDS)
            return
        producer.commit_transaction(_ANSWER_SECONDS)
        self.confirmed.update(delivered)

    def _connected(self) -> Producer:
        if self._producer is None:
            producer = Producer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "transactional.id": self.topic,
                    "transaction.timeout.ms": 20_000,
                    "log_level": 0,
                }
            )
            producer.init_transactions(_ANSWER_SECONDS)
            self._producer = producer
        return self._producer

    def _record(self) -> tuple[str, bytes]:
        self._next_id += 1
        text = self.chance.choice(_HOSTILE) if self.chance.random() < 0.05 else f"text {self._next_id}"
        key = f"key-{self.chance.randrange(KEYS)}"
        if self.chance.random() >= POISONED:
            return key, json.dumps({"id": self._next_id, "text": text}).encode()
        if self.chance.random() < 0.5:
            return key, b'{"id": ' + text.encode()[:40]
        return key, json.dumps({"id": self._next_id, "text": f"poison {self.chance.choice(_HOSTILE)}"}).encode()
