"""Kafka and Cassandra go away for a minute, and come back."""

from __future__ import annotations

import time

import pytest

from e2e.stream import Starts, Stream
from harness.faults.cluster_faults import Faults
from harness.waiting import throughout

pytestmark = [pytest.mark.e2e, pytest.mark.outage, pytest.mark.long, pytest.mark.timeout(600)]

OUTAGE_SECONDS = 60.0
MOST_RESTARTS = 1


@pytest.mark.parametrize("service", ["cassandra", "kafka"])
def test_a_minute_without_it_loses_nothing_and_starts_no_storm_of_restarts(
    stream: Stream, faults: Faults, service: str
) -> None:
    """The service's StatefulSet is scaled to 0 for 60 s in mid-stream; before it and after it flights keep coming."""
    restarts, epoch = stream.pipeline.restarts(), stream.pipeline.epoch()
    starts = Starts(stream.pipeline)

    def check_calm() -> None:
        assert stream.pipeline.restarts() <= restarts + MOST_RESTARTS
        assert stream.pipeline.epoch() <= epoch + MOST_RESTARTS

    with stream.load.flowing():
        row = stream.commits_past(stream.fence())
    stream.load.burst(2_000)
    with faults.down(service):
        throughout(OUTAGE_SECONDS, check_calm, pause=5)
    back = time.monotonic()
    with stream.load.flowing():
        after = stream.commits_past(row)
        stream.commits_past(after)
    print(f"first commits {time.monotonic() - back:.1f} s after {service} was ready again")
    stream.kills += len(starts.by_job())  # a run that was replaced may have ended with a change not on record
    row = stream.check_every_row()
    stream.pipeline.wait_ready(epoch=row.epoch)
    check_calm()
    assert len(starts.by_job()) == row.epoch - epoch
