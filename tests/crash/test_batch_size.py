"""Batches that do not fit into memory: the size settles, the pipeline goes on, and it restarts rarely."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta

import pytest

from fakes.manifests import body
from fakes.stage import Stage
from fencepost.driver.limit import RAISE_LIMIT
from fencepost_operator.api import State

MOST, FITS = 1000, 100


@pytest.mark.parametrize(
    "restart", [{"maxAttempts": 0}, {"maxAttempts": 5}], ids=["without a budget", "with the budget that settling needs"]
)
async def test_batches_that_always_run_out_of_memory_above_a_size_restart_the_run_every_ten_minutes(
    restart: dict[str, int],
) -> None:
    """1000, 500, 250 and 125 records fail, 62 do not. Each doubled size of 124 fails, and 62 are right again."""
    stage = Stage()
    started: list[datetime] = []
    progress: list[datetime] = []
    stage.world.rate = 100.0
    kafka = {"bootstrapServers": "kafka:9092", "topics": ["orders"], "maxRecordsPerBatch": MOST}
    stage.world.ends = {"orders/0": 10_000, "orders/1": 10_000}
    stage.world.apply(body(source={"kafka": kafka}, batchInterval="5s", restart=restart))
    end = stage.world.now + timedelta(minutes=25)

    def is_over() -> bool:
        now = stage.world.now
        for driver in stage.world.drivers:
            driver.fits = FITS
        started.extend([now] * (len(stage.world.created_jobs) - len(started)))
        commits = sum(len(driver.commits) for driver in stage.world.drivers)
        progress.extend([now] * (commits - len(progress)))
        assert stage.pipeline.status.state is not State.STALLED, stage.pipeline.status.message
        return now >= end

    await stage.until(is_over, seconds=3600)
    settled = progress[0]
    assert len([moment for moment in started if moment < settled]) == 5
    gaps = [later - earlier for earlier, later in itertools.pairwise(m for m in [settled, *started] if m >= settled)]
    assert len(gaps) == 2
    assert min(gaps) >= timedelta(seconds=RAISE_LIMIT - 30)
    waits = [later - earlier for earlier, later in itertools.pairwise(progress)]
    assert max(waits) < timedelta(seconds=30)
    assert end - progress[-1] < timedelta(seconds=30)
    failure = stage.pipeline.status.failure
    assert failure is not None
    assert (failure.count, failure.reason) == (0, "OutOfMemory")
