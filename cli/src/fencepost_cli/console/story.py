"""What a pipeline did in a span of time: lag and rate, its epochs, its commits and its faults."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from fencepost_cli.console.kept_history import MOST_CHANGES
from fencepost_cli.history.reading import Entry
from fencepost_cli.ports import Json

BUCKETS: Final = 120
"""Points of a chart."""
MOST_EPOCHS: Final = 500
"""Epochs that one page shows: whoever may write the history decides how many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A part of the span: its beginning, its commits, records per second, and the last lag in it; None is not known."""

    at: datetime
    commits: int
    rate: float | None
    lag: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """One epoch, as far as it is in the span. `driver` is the uid of the pod that claimed it."""

    number: int
    start: datetime
    until: datetime
    driver: str | None
    code: str | None
    commits: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that happened at a moment: a rewind, or a Warning of the operator."""

    at: datetime
    reason: str
    message: str
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The span with all of it; epochs and marks are the oldest first. `is_cut` says that older ones are left out."""

    since: datetime
    until: datetime
    points: Sequence[Point]
    epochs: Sequence[Epoch]
    marks: Sequence[Mark]
    is_cut: bool

    def share(self, moment: datetime) -> float:
        """Return where a moment is, from 0 at the beginning to 1 at the end."""
        return min(max((moment - self.since) / (self.until - self.since), 0.0), 1.0)


def story(newest: Sequence[Entry], faults: Iterable[Mark], *, since: datetime, until: datetime) -> Story:
    """Return the story of these changes, which are the newest first as `history.reading.newest` has them."""
    entries = [(entry.recorded_at, entry) for entry in reversed(newest) if entry.recorded_at is not None]
    inside = [(at, entry) for at, entry in entries if since <= at <= until]
    rewinds = [
        Mark(at=at, reason="Rewind", message=f"to version {e.version}") for at, e in inside if e.kind == "rewind"
    ]
    epochs = _epochs(inside, until)
    marks = [*rewinds, *(mark for mark in faults if since <= mark.at <= until)]
    return Story(
        since=since,
        until=until,
        points=_points(inside, since, until),
        epochs=epochs[-MOST_EPOCHS:],
        marks=sorted(marks, key=lambda mark: mark.at),
        is_cut=len(newest) >= MOST_CHANGES or len(epochs) > MOST_EPOCHS,
    )


def faults(events: Iterable[Json]) -> list[Mark]:
    """Return the Warnings about a pipeline, each at the moment at which it was seen last."""
    found = list[Mark]()
    for event in events:
        at = moment_of(event)
        if event.get("type") == "Warning" and at is not None:
            times = event.get("count")
            found.append(
                Mark(
                    at=at,
                    reason=str(event.get("reason", "")),
                    message=str(event.get("message", "")),
                    times=times if isinstance(times, int) else 1,
                )
            )
    return found


def moment_of(event: Json) -> datetime | None:
    """Return when an Event was seen last; whoever may create Events decides what it holds."""
    series = event.get("series")
    seen = series.get("lastObservedTime") if isinstance(series, dict) else None
    text = seen or event.get("lastTimestamp") or event.get("eventTime")
    try:
        found = datetime.fromisoformat(str(text))
        return found.astimezone(UTC) if found.tzinfo else None
    except (ValueError, OverflowError):
        return None


def _points(inside: Sequence[tuple[datetime, Entry]], since: datetime, until: datetime) -> list[Point]:
    width = (until - since) / BUCKETS
    commits, records, lags = [0] * BUCKETS, [0] * BUCKETS, list[int | None]([None] * BUCKETS)
    for at, entry in inside:
        place = min(int((at - since) / width), BUCKETS - 1)
        lags[place] = entry.lag if entry.lag is not None else lags[place]
        if entry.kind == "commit":
            commits[place] += 1
            records[place] += entry.records or 0
    first = int((inside[0][0] - since) / width) if inside else BUCKETS
    return [
        Point(
            at=since + width * place,
            commits=commits[place],
            rate=records[place] / width.total_seconds() if place >= first else None,
            lag=lags[place],
        )
        for place in range(BUCKETS)
    ]


def _epochs(inside: Sequence[tuple[datetime, Entry]], until: datetime) -> list[Epoch]:
    starts = [
        place for place, (_, entry) in enumerate(inside) if place == 0 or entry.epoch != inside[place - 1][1].epoch
    ]
    found = list[Epoch]()
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else len(inside)
        part = [entry for _, entry in inside[start:end]]
        committed = [entry for entry in part if entry.kind == "commit"]
        found.append(
            Epoch(
                number=part[0].epoch,
                start=inside[start][0],
                until=inside[end][0] if end < len(inside) else until,
                driver=next((entry.driver for entry in part if entry.driver), None),
                code=part[-1].code,
                commits=len(committed),
                records=sum(entry.records or 0 for entry in committed),
            )
        )
    return found


SPANS: Final = {
    "15m": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
}
"""What a page can show, by its name."""
