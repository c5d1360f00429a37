"""The events are the data set's, and what is expected of them is what the data set itself says."""

import itertools
import json
from datetime import UTC, datetime, timedelta

from flights import dataset, expectation
from flights.dataset import Event

FLIGHTS_OF_2013 = 336_776
HOURS_OF_2013 = 26_115


def test_every_flight_and_every_hour_is_an_event() -> None:
    assert len(dataset.flights()) == FLIGHTS_OF_2013
    assert len(dataset.weather()) == HOURS_OF_2013


def test_flights_come_as_they_were_due() -> None:
    feed = dataset.flights()
    due = [
        (*row[:3], row[3])  # year, month, day, sched_dep_time: the order of local clocks
        for row in feed.rows
    ]

    # Twice a year an hour of local time goes missing or comes again; elsewhere local order is the order of events.
    unordered = [before for before, after in itertools.pairwise(due) if before > after]

    assert {row[1:3] for row in unordered} <= {(3, 10), (11, 3)}


def test_the_expectation_is_the_data_sets_own_delay_and_hour() -> None:
    wrong = []
    for number, raw in itertools.islice(enumerate(dataset.records("flights.csv")), 0, None, 5):
        row = expectation.departure(Event(number, "", dataset.flight_fields(raw)))
        scheduled_at = datetime.fromisoformat(raw["time_hour"]) + timedelta(minutes=int(raw["minute"]))
        delay = None if raw["dep_delay"] in {"", "NA"} else int(raw["dep_delay"])
        departed_at = None if delay is None else scheduled_at + timedelta(minutes=delay)
        if (row["scheduled_at"], row["departed_at"], row["delay_minutes"]) != (scheduled_at, departed_at, delay):
            wrong.append(raw)

    assert wrong == []


def test_an_event_is_json_with_its_number_and_no_derived_column() -> None:
    event = dataset.flights().event(0)

    fields = json.loads(event.value())

    assert event.key == "UA1545"
    assert fields["id"] == 0
    assert fields["sched_dep_time"] == 515
    assert not {"dep_delay", "arr_delay", "time_hour", "hour", "minute"} & set(fields)


def test_what_is_not_available_is_null() -> None:
    feed = dataset.flights()
    cancelled = next(event for event in feed.events(0, len(feed)) if event.fields["dep_time"] is None)

    assert json.loads(cancelled.value())["dep_time"] is None


def test_after_the_last_flight_the_year_begins_again() -> None:
    feed = dataset.flights()
    first, again = feed.event(7), feed.event(7 + 2 * len(feed))

    assert again.fields == {**first.fields, "id": again.number, "year": 2015}
    assert again.key == first.key


def test_weather_of_a_later_year_is_of_other_hours() -> None:
    feed = dataset.weather()
    later = expectation.weather(feed.event(len(feed)))

    assert later["observed_at"] == datetime(2014, 1, 1, 6, tzinfo=UTC)
    assert later["month"] == "2014-01"
