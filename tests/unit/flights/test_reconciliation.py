"""Each kind of damage to a sink is found, and by its own name."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from flights.dataset import Event, Feed
from flights.expectation import Cell
from flights.history import HistoryRow
from flights.ledger import Ledger
from flights.reconciliation import Reconciliation, Report, Writers

FEED = Feed("flights", ("name",), [("a",), ("b",), ("c",), ("d",)], lambda _: "", lambda _fields, _years: None)
AT = datetime(2013, 1, 1, tzinfo=UTC)
HISTORY = [
    HistoryRow(epoch=1, driver="d", version=2, clock=10, offsets={"t/0": 0, "t/1": 0}),
    HistoryRow(epoch=1, driver="d", version=3, clock=11, offsets={"t/0": 1, "t/1": 2}, records=3),
    HistoryRow(epoch=1, driver="d", version=4, clock=900, offsets={"t/0": 2, "t/1": 2}, records=1),
]
Row = list[Any]


def expectation(event: Event) -> dict[str, Cell]:
    return {"id": event.number, "name": event.fields["name"], "at": AT}


def ledger() -> Ledger:
    made = Ledger("t", "flights")
    for partition, offset, number in [(0, 0, 0), (1, 0, 1), (1, 1, 2), (0, 1, 3)]:
        made.add(partition, offset, number)
    return made


def sink() -> list[Row]:
    """The rows as they should be: topic, partition, offset, id, name, at, WRITETIME(id)."""
    at = AT.replace(tzinfo=None)
    return [
        ["t", 0, 0, 0, "a", at, 11],
        ["t", 1, 0, 1, "b", at, 11],
        ["t", 1, 1, 2, "c", at, 11],
        ["t", 0, 1, 3, "d", at, 12],
    ]


def report(rows: list[Row]) -> Report:
    comparison = Reconciliation(ledger(), FEED, expectation, Writers.of(HISTORY))
    for row in rows:
        comparison.row(row)
    return comparison.report()


def counts(found: Report) -> dict[str, int]:
    return {name: getattr(found, name) for name in ("missing", "doubled", "wrong", "stray") if getattr(found, name)}


def test_a_whole_sink_is_fine() -> None:
    found = report(sink())

    assert found.ok
    assert (found.produced, found.found, found.traced) == (4, 4, 4)
    assert found.samples == ()


def lose_one(rows: list[Row]) -> None:
    del rows[2]


def invent_one(rows: list[Row]) -> None:
    rows.append(["t", 0, 2, 4, "e", None, 12])


def copy_of_another_topic(rows: list[Row]) -> None:
    rows.append(["other", *rows[0][1:]])


def same_place_twice(rows: list[Row]) -> None:
    rows.append(list(rows[0]))


def wrong_value(rows: list[Row]) -> None:
    rows[1][4] = "x"


def value_lost(rows: list[Row]) -> None:
    rows[1][5] = None


def event_at_anothers_place(rows: list[Row]) -> None:
    rows[1][3:5] = rows[0][3:5]


def write_of_a_replaced_driver(rows: list[Row]) -> None:
    rows[3][6] = 11


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lose_one, {"missing": 1}),
        (invent_one, {"doubled": 1}),
        (copy_of_another_topic, {"doubled": 1}),
        (same_place_twice, {"doubled": 1}),
        (wrong_value, {"wrong": 1}),
        (value_lost, {"wrong": 1}),
        (event_at_anothers_place, {"doubled": 1, "wrong": 1}),
        (write_of_a_replaced_driver, {"stray": 1}),
    ],
)
def test_damage_is_found(damage: Callable[[list[Row]], None], expected: dict[str, int]) -> None:
    rows = sink()
    damage(rows)

    found = report(rows)

    assert counts(found) == expected
    assert not found.ok
    assert found.samples


def test_a_write_whose_commit_is_not_on_record_is_not_judged() -> None:
    comparison = Reconciliation(ledger(), FEED, expectation, Writers.of(HISTORY[:2]))
    for row in sink():
        comparison.row(row)

    assert comparison.report().traced == 3
    assert comparison.report().ok


def test_a_report_says_each_count() -> None:
    lines = report(sink()[1:]).lines()

    assert lines[:4] == ["produced      4", "found         3", "missing       1", "doubled       0"]
    assert lines[-1] == "missing: t/0@0, event 0"
