"""When a pass asks for the next one, and whether it counts as one that reconciled the pipeline."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from fakes.manifests import KEY
from fakes.ports import FakeMetrics, ports_of
from fakes.stage import POLICY, Stage
from fakes.workload_ports import FakeReleases, FakeRuns
from fencepost_operator.api import ObjectKey, ReconcileConfig
from fencepost_operator.backoff import JITTER
from fencepost_operator.errors import Conflict, Denied, FencepostError, PortError, Unreachable
from fencepost_operator.observation import RunList
from fencepost_operator.runtime.reconciler import Reconciler
from present import present


@dataclass(slots=True)
class Watched:
    """An operator on a stage, and when its passes succeeded."""

    stage: Stage
    metrics: FakeMetrics = field(default_factory=FakeMetrics)
    reconciler: Reconciler = field(init=False)

    def __post_init__(self) -> None:
        ports = replace(ports_of(self.stage.world, self.stage.gate), metrics=self.metrics)
        self.reconciler = Reconciler(ports=ports, config=POLICY)

    async def succeeds(self) -> bool:
        """Whether a pass, after some time, counts as a success."""
        self.stage.world.advance(POLICY.resync_interval)
        before = len(self.metrics.successes)
        with contextlib.suppress(PortError):
            await self.reconciler.reconcile(KEY)
        return len(self.metrics.successes) > before


async def test_a_pass_that_recorded_what_it_saw_succeeded() -> None:
    watched = Watched(await Stage.streaming())
    assert await watched.succeeds()
    assert watched.metrics.successes == [watched.stage.world.now]


@pytest.mark.parametrize("error", [Unreachable("etcd is full"), Denied("may not"), Conflict("modified")])
async def test_a_pass_whose_status_cannot_be_written_is_not_a_success(error: FencepostError) -> None:
    watched = Watched(await Stage.streaming())
    watched.stage.world.kill_driver()

    def refuse(_number: int, name: str) -> None:
        if name == "write_status":
            raise error

    watched.stage.gate.before = refuse
    assert not await watched.succeeds()
    assert not await watched.succeeds()


async def test_a_status_that_always_conflicts_is_written_ever_more_rarely() -> None:
    """Another client writes the object faster than a pass takes; each pass costs ten requests and records nothing."""
    watched = Watched(await Stage.streaming())

    def refuse(_number: int, name: str) -> None:
        if name == "write_status":
            raise Conflict("modified")

    waits: list[float | None] = []
    for conflicts in (True, False, True):
        watched.stage.world.kill_driver()
        watched.stage.gate.before = refuse if conflicts else lambda _number, _name: None
        for _ in range(12 if conflicts else 1):
            watched.stage.world.advance(1.0)
            waits.append(await watched.reconciler.reconcile(KEY))
    assert waits[:4] == [0.1, 0.2, 0.4, 0.8]
    assert waits[11] == 60.0
    assert waits[13] == 0.1, "a pass that recorded something begins again"


async def test_a_pass_whose_runs_cannot_be_listed_is_not_a_success() -> None:
    watched = Watched(await Stage.streaming())
    runs = BlindRuns(watched.stage.world, watched.stage.gate)
    watched.reconciler.ports = replace(watched.reconciler.ports, runs=runs)
    assert not await watched.succeeds()
    assert watched.metrics.outcomes == ["blind"]


class BlindRuns(FakeRuns):
    async def list(self, key: ObjectKey, uid: str) -> RunList:
        del key, uid
        raise Denied("may not list jobs.batch")


async def test_a_snapshot_that_cannot_be_written_does_not_hide_runs_that_cannot_be_listed() -> None:
    watched = Watched(await Stage.streaming())
    refuse_snapshots(watched.stage)
    runs = BlindRuns(watched.stage.world, watched.stage.gate)
    watched.reconciler.ports = replace(watched.reconciler.ports, runs=runs)
    assert [await watched.succeeds() for _ in range(6)] == [False] * 6


async def test_a_snapshot_that_cannot_be_written_does_not_delay_the_next_look() -> None:
    stage = await Stage.streaming()
    refuse_snapshots(stage)
    waits = []
    for _ in range(30):
        stage.world.advance(POLICY.resync_interval)
        waits.append(await stage.turn())
    assert "take_snapshot" in stage.gate.writes
    assert max(wait for wait in waits if wait is not None) <= POLICY.resync_interval * (1 + JITTER)


def refuse_snapshots(stage: Stage) -> None:
    """Ask for a snapshot that Cassandra does not take."""

    def refuse(_number: int, name: str) -> None:
        if name == "take_snapshot":
            raise Denied("may not")

    stage.gate.before = refuse
    stage.world.objects[KEY]["metadata"]["annotations"] = {"streaming.fencepost.dev/snapshot": "one"}
    stage.world.touch(KEY)


async def test_an_action_that_fails_and_says_so_is_a_success() -> None:
    watched = Watched(await Stage.streaming())
    watched.stage.world.kill_driver()

    def refuse(_number: int, name: str) -> None:
        if name == "start":
            raise Unreachable("no")

    watched.stage.gate.before = refuse
    assert [await watched.succeeds() for _ in range(3)] == [True, True, True]
    assert "action_failure" in watched.metrics.outcomes


async def test_a_pipeline_that_is_gone_leaves_no_success() -> None:
    watched = Watched(Stage())
    assert not await watched.succeeds()


async def test_a_release_of_a_pipeline_that_is_gone_is_forgotten() -> None:
    """A suspended pipeline has none to uninstall when it is deleted."""
    watched = Watched(Stage())
    await watched.succeeds()
    releases = watched.reconciler.ports.releases
    assert isinstance(releases, FakeReleases)
    assert releases.forgotten == [KEY]


async def test_a_pipeline_that_is_gone_restarts_no_more() -> None:
    """Also when it was the only one: no other pipeline's pass updates the metrics."""
    watched = Watched(Stage())
    now = watched.stage.world.now
    watched.reconciler.permits.begin({KEY: now}, now, now.timestamp())
    assert watched.reconciler.permits.in_progress(now.timestamp()) == 1
    await watched.succeeds()
    assert watched.metrics.restarting == [(0, 0)]


async def test_a_pipeline_is_looked_at_sooner_while_records_flow() -> None:
    stage = await Stage.streaming()
    for _ in range(10):
        stage.world.advance(POLICY.resync_interval)
        before = stage.pipeline.status
        again = await stage.turn()
        assert stage.pipeline.status != before
        assert present(again) <= POLICY.refresh_interval * (1 + JITTER)


async def test_a_pipeline_where_nothing_moves_waits_for_the_resync() -> None:
    stage = await Stage.streaming()
    stage.world.rate = 0.0
    await stage.run(20)
    assert stage.pipeline.status.lag == 0
    again = present(await stage.turn())
    assert again >= POLICY.resync_interval * (1 - JITTER)


async def test_a_resync_that_is_quicker_than_the_refresh_stays() -> None:
    stage = await Stage.streaming()
    config = ReconcileConfig(cluster_uid=POLICY.cluster_uid, resync_interval=1.0)
    stage.world.advance(POLICY.resync_interval)
    again = present(await Reconciler(ports=ports_of(stage.world), config=config).reconcile(KEY))
    assert again <= 1.0 + JITTER


async def test_lag_and_commits_in_the_status_are_seconds_old_while_records_flow() -> None:
    stage = await Stage.streaming()
    end, oldest, written = stage.world.now + timedelta(seconds=60), 0.0, stage.world.now
    while stage.world.now < end:
        before = stage.pipeline.status
        again = await stage.turn()
        if stage.pipeline.status != before:
            written = stage.world.now
        stage.world.advance(again or 0.0)
        oldest = max(oldest, (stage.world.now - written).total_seconds())
    assert oldest <= 2 * POLICY.refresh_interval * (1 + JITTER)
