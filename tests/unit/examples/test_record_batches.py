"""The example as a function of record batches gives the rows of the one for DataFrames."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from fencepost import PoisonRecord
from fencepost.testing import BatchTest, context, frame, record_batch, record_context
from flights import dataset, expectation
from unit.examples.test_transforms import CLOCKS, by_offset, flights, records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flights.dataset import Event

__all__ = ["flights"]

BLOCK = 10_000
"""Flights that are made to rows at once."""
FIRST = {
    "id": 1, "year": 2014, "month": 3, "day": 9, "sched_dep_time": 100, "dep_time": 100, "carrier": "UA", "flight": 1,
    "tailnum": "N1", "origin": "EWR", "dest": "IAH", "distance": 1400,
}  # fmt: skip


def made(transform: Any, given: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The rows by offset, instants in UTC."""
    return {row["offset"]: row for row in transform(record_batch(given), record_context()).to_pylist()}


@pytest.mark.parametrize("every", [100_000, pytest.param(BLOCK, marks=pytest.mark.long)])
def test_each_flight_is_what_plain_python_makes_of_it(departures_arrow: ModuleType, every: int) -> None:
    feed = dataset.flights()
    wrong = []
    for start in range(0, len(feed), every):
        events = list(feed.events(start, min(len(feed), start + BLOCK)))
        rows = made(departures_arrow.transform, records(events, "flights"))
        for offset, event in enumerate(events):
            want = expectation.departure(event)
            have = {column: rows[offset][column] for column in want}
            if have != want:
                wrong.append((event.number, have, want))
    assert wrong[:3] == []


def edges() -> list[dict[str, Any]]:
    """Flights at clock readings that do not exist, that occur twice, and around them, in two years; and no readings."""
    days = ((2013, 3, 10), (2014, 3, 9), (2014, 11, 2), (2013, 12, 31), (2016, 2, 29))
    readings = (0, 30, 100, 159, 200, 230, 259, 300, 330, 2330, 2400)
    found: list[dict[str, Any]] = [
        {"year": year, "month": month, "day": day, "sched_dep_time": planned, "dep_time": left}
        for year, month, day in days
        for planned in readings
        for left in (planned, 205, 255, 2400, None)
    ]
    found += [{"month": None}, {"sched_dep_time": None}, {"tailnum": None, "dep_time": None}]
    return [
        {"offset": offset, "value": json.dumps(FIRST | some).encode(), "topic": "flights"}
        for offset, some in enumerate(found, 9_900)
    ]


@pytest.mark.long
def test_both_transforms_agree_on_every_edge_of_the_clock(
    spark: SparkSession, departures: ModuleType, departures_arrow: ModuleType, flights: list[Event]
) -> None:
    given = [*edges(), *records(flights, "flights", first_offset=20_000), {"offset": 9, "value": None}]
    expected = by_offset(departures.transform(frame(spark, given), context(spark)))
    assert made(departures_arrow.transform, given) == expected


def test_a_reading_that_summer_time_leaves_out_is_read_by_winter_time(departures_arrow: ModuleType) -> None:
    given = [{"value": json.dumps(FIRST | {"sched_dep_time": 155, "dep_time": 230}).encode()}]
    (row,) = made(departures_arrow.transform, given).values()
    assert row["departed_at"] == datetime(2014, 3, 9, 7, 30, tzinfo=UTC)
    assert row["delay_minutes"] == 35


def test_the_day_follows_from_the_clock(departures_arrow: ModuleType) -> None:
    given = [
        {
            "value": json.dumps(
                FIRST | {"year": 2013, "month": 7, "day": 1, "sched_dep_time": at, "dep_time": left}
            ).encode()
        }
        for at, left, _, _ in CLOCKS
    ]
    rows = made(departures_arrow.transform, given)
    found = [(rows[offset]["delay_minutes"], rows[offset]["departed_at"]) for offset in range(len(CLOCKS))]
    assert found == [(delay, departed_at) for _, _, delay, departed_at in CLOCKS]


def test_the_empty_batch_has_the_columns_of_every_other(departures_arrow: ModuleType) -> None:
    empty = departures_arrow.transform(record_batch([]), record_context())
    assert empty.num_rows == 0
    for some in ([{"value": None}], [{"value": b"{}"}], edges()):
        assert departures_arrow.transform(record_batch(some), record_context()).schema == empty.schema


@pytest.mark.parametrize("value", [b"flight 1", b'{"flight": "x"}', b"{} {}", b"[]", b""])
def test_a_record_that_is_not_a_flight_is_poison(departures_arrow: ModuleType, value: bytes) -> None:
    with pytest.raises(PoisonRecord):
        made(departures_arrow.transform, [{"value": value}])


def test_a_record_of_several_lines_is_one_record(departures_arrow: ModuleType) -> None:
    given = [{"value": json.dumps(FIRST, indent=2).encode()}, {"value": json.dumps(FIRST).encode()}]
    assert len(made(departures_arrow.transform, given)) == 2


def test_departures_depend_on_the_records_alone(departures_arrow: ModuleType) -> None:
    BatchTest(None, departures_arrow.transform).assert_deterministic(edges()[:40])


def test_the_batch_has_the_types_of_the_table(departures_arrow: ModuleType) -> None:
    schema = departures_arrow.transform(record_batch([]), record_context()).schema
    assert schema.field("departed_at").type == pa.timestamp("us", tz="UTC")
    assert schema.field("bucket").type == pa.int64()
