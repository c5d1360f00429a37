"""The examples with records beside their manifest, as `fencepost run --local` runs them."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from fencepost.local.request import Event
from fencepost_cli.local.request import LocalOptions, read_pipeline, request
from fencepost_cli.stores.processes.local import run_local
from flights.dataset import flights
from shop.expectation import Arrival, sessions
from shop.feeds import Shop

EXAMPLES: Final = Path(__file__).parents[3] / "examples"


def views() -> list[bytes]:
    return [event.value() for event in Shop(users=40, every=timedelta(seconds=30)).views().events(0, 600)]


def test_the_samples_are_those_of_the_feeds() -> None:
    departures = (EXAMPLES / "departures" / "flights.jsonl").read_bytes().splitlines()
    assert departures == [event.value() for event in flights().events(0, 1_000)]
    assert (EXAMPLES / "shop" / "sessions" / "views.jsonl").read_bytes().splitlines() == views()


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_sessions_that_are_over_are_in_the_table(tmp_path: Path) -> None:
    pipeline = read_pipeline(EXAMPLES / "shop" / "sessions" / "pipeline.yaml")
    made = request(pipeline, LocalOptions(database=tmp_path / "rows.sqlite", scratch=tmp_path))
    events: list[Event] = []
    ended = run_local(made, events.append, lambda: False).verdict
    assert ended is not None
    assert ended.exit_code == 0, f"{ended.message}\n{(tmp_path / 'spark.log').read_text()[-3000:]}"
    with closing(sqlite3.connect(tmp_path / "rows.sqlite")) as database:
        found = database.execute("SELECT user, started_at, ended_at, views, first_page FROM sessions").fetchall()
    over, still_open = sessions(Arrival.of("views", 0, offset, value) for offset, value in enumerate(views()))
    assert len(over) > 20
    assert still_open
    assert Counter(map(tuple, found)) == Counter(map(_stored, over.elements()))


def _stored(row: Sequence[Any]) -> tuple[Any, ...]:
    """Return a row as the sink stores it."""
    return tuple(
        value.isoformat(" ", "milliseconds").removesuffix("+00:00") if isinstance(value, datetime) else value
        for value in row
    )
