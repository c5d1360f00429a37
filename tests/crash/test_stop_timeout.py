"""restart.stopTimeout: a run that does not stop in time is fenced at once, and never commits again."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from fakes.drivers import Driver
from fakes.manifests import KEY
from fakes.stage import Stage
from fencepost.contract import ExitCode
from present import present

SLOW = {"image": "registry.example/job:1", "entrypoint": "orders.job:transform", "terminationGracePeriodSeconds": 600}
NEW = {**SLOW, "image": "registry.example/job:2"}


async def that_does_not_stop(**restart: Any) -> tuple[Stage, Driver]:
    """A pipeline whose driver is in the middle of something, for minutes."""
    stage = await Stage.streaming(job=SLOW, restart={"stallTimeout": "10m", **restart})
    driver = stage.world.newest_pod().driver
    driver.frozen = True
    return stage, driver


def seconds_since(stage: Stage, start: datetime) -> float:
    return (stage.world.now - start) / timedelta(seconds=1)


async def test_a_changed_spec_waits_no_longer_than_the_timeout() -> None:
    stage, old = await that_does_not_stop(stopTimeout="20s")
    start, generation = stage.world.now, stage.pipeline.status.cluster
    stage.world.change(KEY, job=NEW)
    await stage.until(lambda: "StopTimedOut" in stage.reported)
    assert 20 <= seconds_since(stage, start) < 30
    await stage.running()
    assert seconds_since(stage, start) < 90
    assert (stage.row.code or "").startswith(str(NEW["image"]))
    assert stage.pipeline.status.failure is None, "it has not failed"
    assert stage.pipeline.status.cluster is not None
    assert stage.pipeline.status.cluster.generation > present(generation).generation
    commits = len(old.commits)
    old.frozen = False
    await stage.run(10)
    assert (old.exit_code, len(old.commits)) == (ExitCode.FENCED, commits)


async def test_a_suspension_waits_no_longer_either() -> None:
    stage, old = await that_does_not_stop(stopTimeout="20s")
    start = stage.world.now
    await stage.suspended()
    assert seconds_since(stage, start) < 60
    assert stage.row.driver is None
    commits = len(old.commits)
    old.frozen = False
    await stage.run(10)
    assert len(old.commits) == commits


@pytest.mark.parametrize("restart", [{}, {"stopTimeout": "10m"}])
async def test_without_it_a_run_has_its_whole_grace_period(restart: dict[str, Any]) -> None:
    stage, old = await that_does_not_stop(**restart)
    stage.world.change(KEY, job=NEW)
    await stage.run(300)
    assert stage.pipeline.status.epoch == 1
    old.frozen = False
    await stage.running()
    assert old.exit_code == ExitCode.STOPPED


async def test_a_driver_that_stops_in_time_is_not_fenced() -> None:
    stage, old = await that_does_not_stop(stopTimeout="20s")
    old.frozen = False
    cluster = stage.pipeline.status.cluster
    stage.world.change(KEY, job={**SLOW, "args": ["--other"]})
    await stage.until(lambda: stage.pipeline.status.epoch == 2)
    await stage.running()
    assert old.exit_code == ExitCode.STOPPED
    assert stage.pipeline.status.cluster is not None
    assert stage.pipeline.status.cluster.generation == present(cluster).generation
