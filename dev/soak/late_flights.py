"""Flights out of order: some a day late, which count, and some two months late, which the pipeline drops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Final

from flights.dataset import Event, Feed, flights
from flights.ledger import Ledger

HELD_BACK: Final = 1_000
"""Places in the feed, some 26 hours: less than the watermark of hourly-departures is behind."""
HELD_BACK_EVERY: Final = 20
"""One flight in so many is held back."""
TOO_LATE: Final = 60_000
"""Places in the feed, some 65 days: its hour has left the state."""
TOO_LATE_EVERY: Final = 100
"""After one flight in so many, a flight comes once more, too late."""


class LateFlights(Feed):
    """The flights from 2013 on, as they arrive; the events of some numbers come twice, the second time too late."""

    def events(self, first: int, until: int) -> Iterator[Event]:
        """Yield what arrives in the places `first` to `until`, the last one left out."""
        for place in range(first, until):
            number = place - HELD_BACK if place % HELD_BACK_EVERY == 0 else place
            if number >= 0:
                yield self.event(number)
            if place % TOO_LATE_EVERY == 1 and place >= TOO_LATE:
                yield self.event(place - TOO_LATE)


def late_flights() -> LateFlights:
    """Return the feed."""
    plain = flights()
    return LateFlights(**{field.name: getattr(plain, field.name) for field in fields(plain)})


def in_time(ledger: Ledger) -> Iterator[int]:
    """Yield the number of each event that was produced before its hour left the state."""
    for placed in ledger.partitions.values():
        newest = 0
        for number in placed.numbers:
            newest = max(newest, number)
            if newest - number < TOO_LATE // 2:
                yield number
