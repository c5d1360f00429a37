"""What the examples' transforms make of an event, in plain Python: the other side of every comparison.

It shares no code and no method with the transforms (zoneinfo here, Spark SQL there), and a unit test holds it against
the data set's own columns.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

from flights.dataset import FLIGHTS, WEATHER, Event, Value

Cell: TypeAlias = Value | datetime | date
Expectation: TypeAlias = Callable[[Event], Mapping[str, Cell]]
"""From an event to the sink's row, the coordinates left out."""

NEW_YORK: Final = ZoneInfo("America/New_York")
DAY: Final = 24 * 60
EARLIEST: Final = 60
"""Minutes that a flight leaves early at most; the data set's earliest is 43, its latest is 1,301 late."""


def departure(event: Event) -> dict[str, Cell]:
    """The row of a flight in `departures`. Delays in minutes, None for a flight that did not leave."""
    fields = event.fields
    midnight = datetime(_int(fields["year"]), _int(fields["month"]), _int(fields["day"]))  # noqa: DTZ001 - local, see below
    planned = _minutes(_int(fields["sched_dep_time"]))
    scheduled_at = _utc(midnight + timedelta(minutes=planned))
    departed_at = delay = None
    if fields["dep_time"] is not None:
        behind = (_minutes(_int(fields["dep_time"])) - planned + EARLIEST) % DAY - EARLIEST
        departed_at = _utc(midnight + timedelta(minutes=planned + behind))
        delay = (departed_at - scheduled_at) // timedelta(minutes=1)
    return {
        "id": event.number,
        "carrier": fields["carrier"],
        "flight": fields["flight"],
        "tailnum": fields["tailnum"],
        "origin": fields["origin"],
        "dest": fields["dest"],
        "distance_miles": fields["distance"],
        "scheduled_at": scheduled_at,
        "departed_at": departed_at,
        "delay_minutes": delay,
    }


def airport_departure(event: Event) -> dict[str, Cell]:
    """The row of a flight in `departures_by_airport`."""
    row = departure(event)
    day = date(_int(event.fields["year"]), _int(event.fields["month"]), _int(event.fields["day"]))
    kept = ("id", "carrier", "flight", "tailnum", "origin", "dest", "scheduled_at")
    return {**{column: row[column] for column in kept}, "day": day, "cancelled": event.fields["dep_time"] is None}


def hourly_departures(events: Iterable[Event]) -> Mapping[tuple[str, datetime], int]:
    """How many flights left each airport in each hour: the rows of `hourly_departures`, by airport and hour."""
    left = [(str(event.fields["origin"]), departure(event)["departed_at"]) for event in events]
    return Counter((origin, at.replace(minute=0)) for origin, at in left if isinstance(at, datetime))


def weather(event: Event) -> dict[str, Cell]:
    """The row of an hour in `weather`: metric units."""
    fields = event.fields
    observed_at = datetime.fromisoformat(str(fields["time_hour"]))
    return {
        "id": event.number,
        "origin": fields["origin"],
        "month": f"{observed_at:%Y-%m}",
        "observed_at": observed_at,
        "temperature_celsius": _scaled(fields["temp"], lambda fahrenheit: (fahrenheit - 32) / 1.8),
        "wind_metres_per_second": _scaled(fields["wind_speed"], lambda miles: miles * 0.44704),
        "wind_degrees": fields["wind_dir"],
        "precipitation_millimetres": _scaled(fields["precip"], lambda inches: inches * 25.4),
        "visibility_kilometres": _scaled(fields["visib"], lambda miles: miles * 1.609344),
    }


def of_feed(name: str) -> Expectation:
    """The expectation for the events of a feed."""
    return {FLIGHTS: departure, WEATHER: weather}[name]


def _minutes(clock: int) -> int:
    hours, minutes = divmod(clock, 100)
    return hours * 60 + minutes


def _utc(local: datetime) -> datetime:
    return local.replace(tzinfo=NEW_YORK).astimezone(UTC)


def _int(value: Value) -> int:
    if not isinstance(value, int):
        raise TypeError(f"not a whole number: {value!r}")
    return value


def _scaled(value: Value, convert: Callable[[float], float]) -> float | None:
    return None if value is None else convert(float(value))
