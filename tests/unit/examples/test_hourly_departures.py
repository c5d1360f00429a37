"""The stateful example on real records, batch after batch, against plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from fencepost.testing.streams import StreamTest, disordered
from flights import dataset
from flights.dataset import Event
from flights.expectation import hourly_departures
from unit.examples.conftest import example
from unit.examples.test_transforms import flights

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["flights"]


@pytest.fixture(scope="module")
def hourly(spark: SparkSession) -> StreamTest:
    module: ModuleType = example("hourly-departures", "hourly_departures")
    return StreamTest(spark, module.stream, sinks=("hourly_departures",))


def records(events: Iterable[Event]) -> list[dict[str, Any]]:
    return [{"topic": "flights", "key": event.key.encode(), "value": event.value()} for event in events]


def table(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[tuple[str, datetime], int]:
    """A row of a later batch replaces the one before it."""
    return {(row["origin"], row["hour"]): row["departures"] for row in rows["hourly_departures"]}


@pytest.mark.long
def test_the_counts_are_those_of_plain_python(hourly: StreamTest, flights: list[Event]) -> None:
    found = records(flights)
    counts = table(hourly.rows([found[: len(found) // 2], found[len(found) // 2 :]]))
    assert counts == hourly_departures(flights)
    assert max(counts.values()) > 1


@pytest.mark.long
def test_the_counts_of_late_and_unordered_flights_depend_on_the_records_alone(hourly: StreamTest) -> None:
    """Late by hours, and the watermark waits for a week."""
    events = list(dataset.flights().events(0, 1_500))
    rows = hourly.assert_deterministic(disordered(records(events), batch=500, by=300), keys=["origin", "hour"])
    assert table(rows) == hourly_departures(events)
    assert len(rows["hourly_departures"]) > len(table(rows))


@pytest.mark.long
def test_a_late_flight_counts_for_the_hour_in_which_it_left(hourly: StreamTest) -> None:
    """Due at 16:00 and gone at 13:41, so on the next day."""
    first = {**dataset.flights().event(0).fields, "month": 7, "sched_dep_time": 1600, "origin": "EWR"}
    events = [Event(number, "k", {**first, "dep_time": left}) for number, left in enumerate((1341, None))]
    expected = {("EWR", datetime(2013, 7, 2, 17, tzinfo=UTC)): 1}
    assert table(hourly.rows([records(events)])) == expected
    assert hourly_departures(events) == expected
