"""Flights as they come from airports that do not report in order: all of them shuffled, and some of them weeks late."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from flights.dataset import Event, Feed, flights
from flights.expectation import departure
from flights.ledger import Ledger

NAME: Final = "unordered-flights"
SPREAD: Final = 1_000
"""Places by which a flight comes later than it was due, at most: a day, and so within any watermark of a week."""
HELD_BACK: Final = 12_000
"""Places by which flights come later that are weeks late: thirteen days.

None of the end of the year is: its place would be after that end, and it would come a few days late.
"""
SHARE: Final = 0.01
"""Of the flights that are weeks late."""
WATERMARK: Final = timedelta(days=7)
"""How far that of hourly-departures is behind."""


@functools.cache
def unordered_flights() -> Feed:
    """Return the flights of 2013 in an order that is the same each time."""
    ordered, chance = flights(), random.Random(2013)
    order = sorted(range(len(ordered)), key=list(_arrivals(chance, len(ordered))).__getitem__)
    return replace(ordered, name=NAME, rows=[ordered.rows[place] for place in order])


def _arrivals(chance: random.Random, count: int) -> Iterator[float]:
    """Yield the place at which each flight arrives."""
    for place in range(count):
        is_held_back = chance.random() < SHARE and place < count - HELD_BACK
        yield place + (HELD_BACK if is_held_back else chance.uniform(0, SPREAD))


def in_time(ledger: Ledger) -> Iterator[Event]:
    """Yield each event of the unordered flights that was produced before its hour left the state."""
    feed = unordered_flights()
    for placed in ledger.partitions.values():
        newest = datetime.min.replace(tzinfo=UTC)
        for event in map(feed.event, placed.numbers):
            left = departure(event)["departed_at"]
            if isinstance(left, datetime):
                newest = max(newest, left)
                if newest - left < WATERMARK:
                    yield event
