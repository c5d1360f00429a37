"""Events, by default flights, that keep coming to one topic while faults happen, each one written down in a ledger."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Self

from flights.dataset import Events, flights
from flights.ledger import Ledger
from flights.loader import Loader
from flights.topics import Topics

PARTITIONS: Final = 3
RATE: Final = 60.0
"""Events a second: some for each batch, little work for two cores."""
_FOR_EVER: Final = 1 << 40


@dataclass(slots=True)
class Load:
    """A topic and what was produced to it; `ledger` holds what Kafka confirmed."""

    bootstrap: str
    ledger: Ledger
    feed: Events = field(default_factory=flights)

    @classmethod
    def to(cls, bootstrap: str, topic: str, feed: Events | None = None) -> Self:
        """Make the topic and return a load that has produced nothing yet."""
        Topics(bootstrap).create(topic, PARTITIONS)
        feed = feed or flights()
        return cls(bootstrap=bootstrap, ledger=Ledger(topic=topic, feed=feed.name), feed=feed)

    def burst(self, events: int) -> None:
        """Produce so many events as fast as it goes."""
        self._loader().load(self.ledger.next_number + events)

    @contextmanager
    def flowing(self, rate: float = RATE) -> Iterator[None]:
        """Produce at a rate while the block runs; at its end all that was sent is confirmed. Raises LoadError."""
        stop = threading.Event()
        failures: list[BaseException] = []

        def produce() -> None:
            try:
                self._loader().load(_FOR_EVER, rate=rate, stop=stop)
            except BaseException as error:  # noqa: BLE001 - raised again below, in the test's own thread
                failures.append(error)

        producing = threading.Thread(target=produce, name=f"load of {self.ledger.topic}")
        producing.start()
        try:
            yield
        finally:
            stop.set()
            producing.join()
        if failures:
            raise failures[0]

    def ends(self) -> dict[str, int]:
        """Return the offset after the last event, by topic/partition, as the fence row has them."""
        return {f"{self.ledger.topic}/{partition}": end for partition, end in self.ledger.ends.items()}

    def _loader(self) -> Loader:
        return Loader(self.bootstrap, self.feed, self.ledger)
