"""Producing a feed to Kafka so that each event is there once: an idempotent producer, every replica's word awaited.

The ledger is written from the delivery reports, so it says what Kafka confirmed and not what was meant to be sent.
"""

import functools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from flights.dataset import Event, Events
from flights.ledger import Ledger

TICK_SECONDS: Final = 0.02
"""At a set rate the events of one tick are sent together."""
UNPACED: Final = 500
"""Events between two polls of delivery reports without a rate to keep."""
DELIVERY_SECONDS: Final = 180.0
"""How long an event may wait for Kafka: longer than the outages that tests make."""


class LoadError(Exception):
    """Kafka did not take what was produced, or did not create or delete the topic."""


@dataclass(slots=True)
class Loader:
    """Produces events and notes in `ledger` where each one went."""

    bootstrap: str
    feed: Events
    ledger: Ledger
    _refused: KafkaError | None = field(init=False, default=None)

    def load(
        self,
        until: int,
        *,
        rate: float | None = None,
        stop: threading.Event | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Produce the events from the ledger's next one to `until`, the last one left out.

        `rate` is in events a second, None for as fast as it goes. `progress` gets, at every tick, how many events the
        ledger holds. Setting `stop` ends the load early, with all that was sent confirmed.
        Raises LoadError when Kafka refuses an event or does not confirm the last ones.
        """
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 10,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 200_000,
                "message.timeout.ms": int(DELIVERY_SECONDS * 1000),
                # An outage that is waited out needs no line for each attempt; one that is not raises.
                "log_level": 2,
            }
        )
        begun, start = time.monotonic(), self.ledger.next_number
        for first, last in _ticks(start, until, rate):
            if stop is not None and stop.is_set():
                break
            for event in self.feed.events(first, last):
                self._send(producer, event)
            producer.poll(0)
            progress(len(self.ledger))
            if rate is not None:
                time.sleep(max(0.0, begun + (last - start) / rate - time.monotonic()))
        left = producer.flush(DELIVERY_SECONDS)
        progress(len(self.ledger))
        if self._refused is not None:
            raise LoadError(f"Kafka refused an event of {self.ledger.topic}: {self._refused}")
        if left:
            raise LoadError(f"Kafka did not confirm {left} events within {DELIVERY_SECONDS:.0f} s")

    def _send(self, producer: Producer, event: Event) -> None:
        report = functools.partial(self._delivered, event.number)
        while True:
            try:
                producer.produce(self.ledger.topic, key=event.key, value=event.value(), on_delivery=report)
            except BufferError:  # the queue is full: wait for reports
                producer.poll(0.1)
            else:
                return

    def _delivered(self, number: int, error: KafkaError | None, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if error is not None or partition is None or offset is None:
            self._refused = self._refused or error
        else:
            self.ledger.add(partition, offset, number)


def _ticks(first: int, until: int, rate: float | None) -> Iterator[tuple[int, int]]:
    """Cut [first, until) into what is sent between two looks at the clock."""
    size = UNPACED if rate is None else max(1, round(rate * TICK_SECONDS))
    for start in range(first, until, size):
        yield start, min(start + size, until)
