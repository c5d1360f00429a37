"""The examples' transforms on real records, against plain Python, with no Kafka and no Cassandra."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from fencepost.testing import context, frame
from flights import dataset, expectation
from flights.dataset import Event

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHANGES_OF_CLOCK = {(3, 9), (3, 10), (11, 2), (11, 3)}
MIDNIGHT = 2400


def at_night(event: Event) -> bool:
    """Whether it was due late in the evening or early in the morning."""
    return not 600 < int(event.fields["sched_dep_time"] or 0) < 2200


@pytest.fixture(scope="module")
def flights() -> list[Event]:
    """Every 1,499th flight, those at midnight and in the nights when the clock changes, and some of a later year."""
    feed = dataset.flights()
    of_the_year = [
        event
        for event in feed.events(0, len(feed))
        if event.number % 1_499 == 0
        or event.fields["dep_time"] == MIDNIGHT
        or ((event.fields["month"], event.fields["day"]) in CHANGES_OF_CLOCK and at_night(event))
    ]
    return [*of_the_year, *feed.events(3 * len(feed), 3 * len(feed) + 50)]


@pytest.fixture(scope="module")
def weather() -> list[Event]:
    """Every 97th hour."""
    feed = dataset.weather()
    return [feed.event(number) for number in range(0, len(feed), 97)]


def records(events: Iterable[Event], topic: str, first_offset: int = 0) -> list[dict[str, Any]]:
    """The events as the source yields them."""
    return [
        {"topic": topic, "offset": offset, "key": event.key.encode(), "value": event.value()}
        for offset, event in enumerate(events, first_offset)
    ]


def by_offset(rows: "DataFrame") -> dict[int, dict[str, Any]]:
    """The rows, instants in UTC."""
    return {
        row["offset"]: {
            column: value.astimezone(UTC) if isinstance(value, datetime) else value
            for column, value in row.asDict().items()
        }
        for row in rows.collect()
    }


def differences(
    rows: Mapping[int, Mapping[str, Any]], events: Sequence[Event], expected: expectation.Expectation
) -> list[str]:
    """What is not as plain Python has it, a line a row."""
    found = []
    for offset, event in enumerate(events):
        want = expected(event)
        have = {column: rows[offset][column] for column in want}
        if have != want:
            found.append(f"{offset}: {have} for {want}")
    return found


def test_departures_are_what_plain_python_makes_of_them(
    spark: "SparkSession", departures: ModuleType, flights: list[Event]
) -> None:
    rows = by_offset(departures.transform(frame(spark, records(flights, "flights")), context(spark)))

    assert len(rows) == len(flights)
    assert differences(rows, flights, expectation.departure) == []


def test_a_departure_is_keyed_by_its_place_in_kafka(spark: "SparkSession", departures: ModuleType) -> None:
    events = dataset.flights().events(0, 2)
    batch = frame(spark, records(events, "flights", first_offset=29_999))

    rows = by_offset(departures.transform(batch, context(spark)))

    keys = {(row["topic"], row["partition"], row["bucket"], row["offset"]) for row in rows.values()}
    assert keys == {("flights", 0, 2, 29_999), ("flights", 0, 3, 30_000)}


CLOCKS = [  # on the first of July: planned, read; minutes of delay, departed at
    (1545, 1550, 5, datetime(2013, 7, 1, 19, 50, tzinfo=UTC)),
    (1545, 1502, -43, datetime(2013, 7, 1, 19, 2, tzinfo=UTC)),
    (2359, 14, 15, datetime(2013, 7, 2, 4, 14, tzinfo=UTC)),
    (5, 2355, -10, datetime(2013, 7, 1, 3, 55, tzinfo=UTC)),
    (2300, 2400, 60, datetime(2013, 7, 2, 4, 0, tzinfo=UTC)),
    (1600, 1341, 1301, datetime(2013, 7, 2, 17, 41, tzinfo=UTC)),
    (1545, None, None, None),
]


def test_the_day_of_a_departure_follows_from_the_clock(spark: "SparkSession", departures: ModuleType) -> None:
    first = dict(dataset.flights().event(0).fields)
    events = [
        Event(0, "UA1545", {**first, "month": 7, "sched_dep_time": planned, "dep_time": read})
        for planned, read, _, _ in CLOCKS
    ]

    rows = by_offset(departures.transform(frame(spark, records(events, "flights")), context(spark)))

    found = [(rows[offset]["delay_minutes"], rows[offset]["departed_at"]) for offset in range(len(CLOCKS))]
    assert found == [(delay, departed_at) for _, _, delay, departed_at in CLOCKS]


def test_a_record_that_is_not_json_stops_the_batch(spark: "SparkSession", departures: ModuleType) -> None:
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - as the session
    from pyspark.errors import PySparkException  # noqa: PLC0415 - as the session

    batch = frame(spark, [{"topic": "flights", "value": b"{no flight"}])

    with pytest.raises((Py4JJavaError, PySparkException)) as raised:
        departures.transform(batch, context(spark)).collect()
    assert "MALFORMED_RECORD" in str(raised.value)


def test_of_an_hour_that_is_sent_twice_in_a_batch_the_newest_stays(
    spark: "SparkSession", flights_and_weather: ModuleType, weather: list[Event]
) -> None:
    first = weather[0]
    corrected = Event(first.number, first.key, {**first.fields, "temp": 50.0, "precip": None})
    batch = frame(spark, records([first, *weather[1:3], corrected], "weather"))

    rows = by_offset(flights_and_weather.transform(batch, context(spark))["weather"])

    assert sorted(rows) == [1, 2, 3]
    assert (rows[3]["temperature_celsius"], rows[3]["precipitation_millimetres"]) == (10.0, None)


def test_one_batch_becomes_flights_and_weather(
    spark: "SparkSession", flights_and_weather: ModuleType, flights: list[Event], weather: list[Event]
) -> None:
    batch = frame(spark, [*records(flights, "flights"), *records(weather, "weather")])

    frames = flights_and_weather.transform(batch, context(spark))

    assert set(frames) == {"flights", "weather"}
    found = {name: by_offset(rows) for name, rows in frames.items()}
    assert {name: len(rows) for name, rows in found.items()} == {"flights": len(flights), "weather": len(weather)}
    assert differences(found["flights"], flights, expectation.airport_departure) == []
    assert differences(found["weather"], weather, expectation.weather) == []
