"""A stateful pipeline on the cluster: the example hourly-departures, under load."""

from __future__ import annotations

from datetime import UTC

import pytest

from e2e.stream import Applied, Stream, cassandra
from fencepost.fence import FenceRow
from fencepost_cli.history.checks import check_history
from flights.dataset import flights
from flights.expectation import hourly_departures
from flights.history import read_history
from harness.faults.cluster_faults import Faults
from harness.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

EXAMPLE = "hourly-departures"
DAYS_22 = 20_000
"""Flights: so many that the watermark, seven days behind, moves and hours leave the state."""


@pytest.fixture
def hourly(applied: Applied) -> Stream:
    """Return the example's pipeline, streaming."""
    stream = applied(EXAMPLE, example=EXAMPLE, source={"kafka": {"maxRecordsPerBatch": 2000}})
    stream.load.burst(DAYS_22)
    stream.pipeline.wait_ready()
    return stream


def committed(stream: Stream) -> FenceRow:
    """Wait until all that was produced is committed; return the fence row."""
    ends = stream.load.ends()

    def drained() -> FenceRow | None:
        row = stream.fence()
        return row if row is not None and {key: row.offsets.get(key) for key in ends} == ends else None

    return eventually(f"{stream.pipeline.name} commits everything", drained, seconds=180)


def check_every_count(stream: Stream) -> FenceRow:
    """Compare every row with a plain count of what was produced, and every commit with the one before."""
    row = committed(stream)
    feed = flights()
    expected = hourly_departures(feed.event(number) for _, _, number in stream.load.ledger)
    with cassandra(stream.place) as opened:
        rows = opened.execute(f"SELECT origin, hour, departures FROM {stream.place.tables}.{stream.table}")  # noqa: S608
        found = {(one.origin, one.hour.replace(tzinfo=UTC)): one.departures for one in rows}
        story = check_history(read_history(opened, stream.place.fences, stream.key))
    assert found == expected
    assert story.ok, "\n".join(story.lines())
    return row


def test_a_driver_killed_under_load_leaves_the_counts_of_a_plain_count(hourly: Stream, faults: Faults) -> None:
    """SIGKILL of all the driver's processes, twice in mid-stream, after a backlog."""
    first = hourly.pipeline.epoch()
    with hourly.load.flowing():
        for number in (1, 2):
            row = hourly.commits_past(hourly.fence())
            faults.sigkill(hourly.pipeline.driver())
            while row.epoch < first + number:
                row = hourly.commits_past(row, seconds=180)
    row = check_every_count(hourly)
    assert row.epoch == first + 2
    assert row.checkpoint is not None
