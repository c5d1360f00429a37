"""The unordered flights are those of the year, and as late as tests rely on."""

from __future__ import annotations

from flights.dataset import flights
from flights.disorder import HELD_BACK, SHARE, SPREAD, in_time, unordered_flights
from flights.ledger import Ledger


def test_each_flight_comes_once_and_a_few_come_weeks_late() -> None:
    ordered = flights()
    due = {id(row): place for place, row in enumerate(ordered.rows)}
    arrived = [due[id(row)] for row in unordered_flights().rows]
    assert sorted(arrived) == list(range(len(ordered)))
    behind = [place - planned for place, planned in enumerate(arrived)]
    late = [places for places in behind if places > 2 * SPREAD]
    assert all(HELD_BACK - 2 * SPREAD < places <= HELD_BACK for places in late)
    assert 0.5 * SHARE < len(late) / len(ordered) < 1.5 * SHARE
    assert sum(places != 0 for places in behind) > 0.9 * len(behind)


def test_flights_that_are_weeks_late_are_not_in_time_also_after_the_year() -> None:
    feed, year = unordered_flights(), len(flights())
    places = range(year - 20_000, year + 20_000)
    ledger = Ledger("topic", feed.name)
    for offset, number in enumerate(places):
        ledger.add(0, offset, number)
    found = {event.number for event in in_time(ledger)}
    departed = {event.number for event in map(feed.event, places) if event.fields["dep_time"] is not None}
    late = departed - found
    assert found <= departed
    assert 0.2 * SHARE < len(late) / len(departed) < 1.5 * SHARE
