"""Batches that do not fit into memory: the size settles, the pipeline continues, and it restarts rarely."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta

import pytest

from fakes.manifests import body
from fakes.stage import Stage
from fencepost.contract import Reason
from fencepost.contract.guidance import GUIDANCE, Category
from fencepost.driver.sizing.batch_limit import RAISE_LIMIT
from fencepost_operator.api import RETRY_ANNOTATION, State
from present import present

MOST, FITS = 1000, 100


@pytest.mark.long
@pytest.mark.parametrize(
    "restart",
    [
        pytest.param({"maxAttempts": 0}, id="without a budget"),
        pytest.param({"maxAttempts": 5}, id="with the budget that settling needs"),
    ],
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
    failure = present(stage.pipeline.status.failure)
    assert (failure.count, failure.reason) == (0, "OutOfMemory")


async def test_a_record_that_never_fits_stalls_with_the_sizes_until_a_user_asks_again() -> None:
    stage = Stage()
    stage.world.rate = 100.0
    stage.world.apply(body(restart={"maxBackoff": "2s"}))
    fits = 0

    def stalled() -> bool:
        for driver in stage.world.drivers:
            driver.fits = fits
        return stage.pipeline.status.state is State.STALLED

    await stage.until(stalled, seconds=900)
    assert stage.ready() == "OutOfMemory"
    message = stage.pipeline.status.message
    assert "with a batch of one record, which cannot be cut" in message
    assert "cluster.worker.memory is" in message
    runs = len(stage.world.created_jobs)
    await stage.run(120)
    assert len(stage.world.created_jobs) == runs

    fits = MOST
    stage.annotate(RETRY_ANNOTATION, "now")
    await stage.running()


async def test_an_idle_topic_never_alarms() -> None:
    """Forty stall timeouts without a record: one run, a Ready pipeline, and nothing to act on."""
    stage = Stage()
    stage.world.rate = 0
    stage.world.apply(body(restart={"maxAttempts": 2, "stallTimeout": "15s"}))
    await stage.running()
    await stage.run(600)
    assert stage.world.created_jobs == ["orders-run-1"]
    assert stage.ready() == "Streaming"
    categories = {GUIDANCE[Reason(reason)].category for reason, _ in stage.world.events}
    assert categories <= {Category.STEADY, Category.PROGRESS}
