"""The unordered flights are those of the year, and as late as tests rely on."""

from __future__ import annotations

from flights.dataset import flights
from flights.disorder import HELD_BACK, SHARE, SPREAD, unordered_flights


def test_each_flight_comes_once_and_a_few_come_weeks_late() -> None:
    ordered = flights()
    due = {id(row): place for place, row in enumerate(ordered.rows)}
    arrived = [due[id(row)] for row in unordered_flights().rows]
    assert sorted(arrived) == list(range(len(ordered)))
    behind = [place - planned for place, planned in enumerate(arrived)]
    late = [places for places in behind if places > 2 * SPREAD]
    assert all(HELD_BACK - 2 * SPREAD < places <= HELD_BACK for places in late[: len(late) // 2])
    assert 0.5 * SHARE < len(late) / len(ordered) < 1.5 * SHARE
    assert sum(places != 0 for places in behind) > 0.9 * len(behind)
