"""The feed of the stateful soak: each flight arrives in time once, some a day late, and some again much later."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate

from flights.ledger import Ledger
from soak.late_flights import HELD_BACK, TOO_LATE, in_time, late_flights

END = TOO_LATE + 2_000


def test_each_flight_arrives_once_in_time() -> None:
    feed = late_flights()
    numbers = [event.number for event in feed.events(0, END)]
    ledger = Ledger("topic", feed.name)
    for offset, number in enumerate(numbers):
        ledger.add(0, offset, number)
    found = Counter(in_time(ledger))
    assert set(found.values()) == {1}
    assert set(range(END - HELD_BACK)) <= found.keys()
    newest = accumulate(numbers, max)
    late = [number for number, last in zip(numbers, newest, strict=True) if number < last - TOO_LATE // 2]
    assert len(late) == len(numbers) - found.total() > 0


def test_a_flight_that_is_held_back_arrives_after_later_ones() -> None:
    numbers = [event.number for event in late_flights().events(HELD_BACK, 2 * HELD_BACK)]
    assert sorted(numbers) != numbers
    assert min(numbers) == 0
