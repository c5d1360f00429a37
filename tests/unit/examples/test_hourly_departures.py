"""The stateful example on real records, as one batch, against plain Python: a batch has no watermark to miss."""

from __future__ import annotations

from datetime import UTC, datetime
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from fencepost.context import StreamContext
from fencepost.testing import frame
from flights import dataset
from flights.dataset import Event
from flights.expectation import hourly_departures
from unit.examples.conftest import example
from unit.examples.test_transforms import flights, records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["flights"]


@pytest.fixture(scope="module")
def hourly() -> ModuleType:
    return example("hourly-departures", "hourly_departures")


def test_the_counts_are_those_of_plain_python(spark: SparkSession, hourly: ModuleType, flights: list[Event]) -> None:
    context = StreamContext(pipeline="p", epoch=1, args=(), spark=spark)
    rows = hourly.stream(frame(spark, records(flights, "flights")), context).collect()
    found = {(row["origin"], row["hour"].astimezone(UTC)): row["departures"] for row in rows}
    assert found == hourly_departures(flights)
    assert max(found.values()) > 1
    assert len(rows) == len(found)


def test_a_late_flight_counts_for_the_hour_in_which_it_left(spark: SparkSession, hourly: ModuleType) -> None:
    """Due at 16:00 and gone at 13:41, so on the next day."""
    context = StreamContext(pipeline="p", epoch=1, args=(), spark=spark)
    first = {**dataset.flights().event(0).fields, "month": 7, "sched_dep_time": 1600, "origin": "EWR"}
    events = [Event(number, "k", {**first, "dep_time": left}) for number, left in enumerate((1341, None))]
    (row,) = hourly.stream(frame(spark, records(events, "flights")), context).collect()
    assert (row["origin"], row["departures"]) == ("EWR", 1)
    assert row["hour"].astimezone(UTC) == datetime(2013, 7, 2, 17, tzinfo=UTC)
    assert hourly_departures(events) == {("EWR", datetime(2013, 7, 2, 17, tzinfo=UTC)): 1}
