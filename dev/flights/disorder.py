"""Flights as they come from airports that do not report in order: all of them shuffled, and some of them weeks late."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from flights.dataset import Feed, flights

NAME: Final = "unordered-flights"
SPREAD: Final = 1_000
"""Places by which a flight comes later than it was due, at most: a day, and so within any watermark of a week."""
HELD_BACK: Final = 12_000
"""Places by which flights come later that are weeks late: thirteen days."""
SHARE: Final = 0.01
"""Of the flights that are weeks late."""


@functools.cache
def unordered_flights() -> Feed:
    """Return the flights of 2013 in an order that is the same each time."""
    ordered, chance = flights(), random.Random(2013)
    order = sorted(range(len(ordered)), key=list(_arrivals(chance, len(ordered))).__getitem__)
    return replace(ordered, name=NAME, rows=[ordered.rows[place] for place in order])


def _arrivals(chance: random.Random, count: int) -> Iterator[float]:
    """Yield the place at which each flight arrives."""
    for place in range(count):
        yield place + (HELD_BACK if chance.random() < SHARE else chance.uniform(0, SPREAD))
