"""The passes over a trial: what is observed for each step, what is recorded before it is done, and what fails."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest

from fakes.manifests import KEY, body
from fakes.ports import ports_of
from fakes.trial_ports import FakePipelinesToTry, FakeTrialJobs, FakeTrials
from fakes.world import World
from fencepost.contract.trial import SinkFindings, TrialReport
from fencepost.fence import Starting
from fencepost.fence.snapshots import Trigger, snapshot_of
from fencepost_operator.api import (
    ObjectKey,
    Pipeline,
    PromotionState,
    ReconcileConfig,
    Spec,
    Trial,
    TrialPhase,
    read_pipeline,
)
from fencepost_operator.errors import Conflict, Denied, FencepostError, Rejected, Unreachable
from fencepost_operator.ports import TrialPorts
from fencepost_operator.runtime.passes.trial_reconciler import TrialReconciler
from present import present

PLACE = ObjectKey(KEY.namespace, "next")
ROW = "default/shop/orders"
JOB = {"image": "orders:2"}
REPORT = TrialReport(records=12, total=12, seconds=2.0, sinks=(SinkFindings(name="orders", equal=12, missing=0),))


def commit(world: World) -> None:
    """Create the pipeline's row, commit twelve records one hour after its first run, and let a minute pass.

    Its first run begins ten seconds after its row.
    """
    fence = world.fence(ROW)
    created = fence.create("cluster/uid")
    world.advance(10.0)
    taken = fence.take_over(created, owner="cluster/uid")
    start = Starting(offsets={"orders/0": 0}, planned={"orders/0": 12}, topic_ids={"orders": "id"}, log_ends={})
    row = fence.claim(epoch=taken.epoch, driver="pod", code="", start=lambda _: start)
    world.advance(3600.0)
    fence.commit(row, offsets=row.planned, planned=row.planned, records=12, duration_ms=5)
    world.advance(60.0)


def pipeline() -> Pipeline:
    return replace(read_pipeline(body()), resource_version="1", generation=1)


@dataclass(slots=True)
class Scene:
    """A pipeline that has committed twelve records, and a trial of them all."""

    spec: Mapping[str, Any] = field(default_factory=dict)
    world: World = field(default_factory=World)
    trials: FakeTrials = field(default_factory=FakeTrials)
    jobs: FakeTrialJobs = field(default_factory=FakeTrialJobs)
    pipelines: FakePipelinesToTry = field(default_factory=lambda: FakePipelinesToTry(pipeline()))
    may_write: list[FencepostError] = field(default_factory=list)
    reconciler: TrialReconciler = field(init=False)

    def __post_init__(self) -> None:
        commit(self.world)
        shared, created = ports_of(self.world), self.world.now.isoformat()
        spec = {"pipeline": KEY.name, "job": JOB, "since": {"duration": "30m"}, **self.spec}
        self.trials.apply(PLACE, spec, created=created)
        ports = TrialPorts(
            trials=self.trials, jobs=self.jobs, pipelines=self.pipelines, objects=shared.objects,
            fences=shared.fences, clock=shared.clock, may_write=self._check,
        )  # fmt: skip
        self.reconciler = TrialReconciler(ports=ports, config=ReconcileConfig(cluster_uid="cluster"))

    def _check(self) -> None:
        if self.may_write:
            raise self.may_write[0]

    async def reconcile(self, times: int = 1) -> float | None:
        """Make passes, and return when the last one wants another."""
        again: float | None = None
        for _ in range(times):
            again = await self.reconciler.reconcile(PLACE)
        return again

    async def trial(self) -> Trial:
        return present(await self.trials.read(PLACE))


async def test_a_trial_is_pinned_then_started_then_recorded() -> None:
    scene = Scene()
    assert await scene.reconcile() == 0.0
    pinned = (await scene.trial()).status
    assert (pinned.phase, pinned.until, pinned.records_total) == (TrialPhase.STARTING, {"orders/0": 12}, 12)
    assert scene.jobs.jobs == {}
    await scene.reconcile()
    assert list(scene.jobs.jobs) == [pinned.job]
    await scene.reconcile(2)
    assert len(scene.jobs.jobs) == 1
    scene.jobs.finish(REPORT)
    assert await scene.reconcile() is None
    status = (await scene.trial()).status
    assert (status.phase, present(status.rows).equal, status.complete) == (TrialPhase.COMPLETED, 12, True)
    assert [event.reason for event in scene.trials.events] == ["Trying", "Tried"]


async def test_code_that_keeps_its_bounds_is_promoted_once() -> None:
    scene = Scene(spec={"promoteWhen": {}})
    await scene.reconcile(2)
    scene.jobs.finish(REPORT)
    await scene.reconcile(4)
    assert scene.pipelines.promoted == [JOB]
    assert present((await scene.trial()).status.promotion).state == PromotionState.PROMOTED


async def test_a_promotion_over_another_change_is_tried_again_and_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Injected: a user changes the pipeline between the operator's read and its write."""
    scene = Scene(spec={"promoteWhen": {}})
    await scene.reconcile(2)
    scene.jobs.finish(REPORT)
    await scene.reconcile()
    real = scene.pipelines.set_job

    async def after_a_change(found: Pipeline, job: Mapping[str, Any]) -> None:
        scene.pipelines.pipeline = replace(present(scene.pipelines.pipeline), resource_version="9", generation=2)
        await real(found, job)

    monkeypatch.setattr(FakePipelinesToTry, "set_job", lambda _, found, job: after_a_change(found, job))
    assert present(await scene.reconcile()) > 0
    assert await scene.reconcile() is None
    assert scene.pipelines.promoted == []
    assert present((await scene.trial()).status.promotion).state == PromotionState.REFUSED


async def test_a_trial_whose_time_is_up_is_deleted() -> None:
    scene = Scene(spec={"ttlAfterFinished": "1h"})
    await scene.reconcile(2)
    scene.jobs.finish(REPORT)
    assert await scene.reconcile() == 3600.0
    scene.world.advance(3600.0)
    assert await scene.reconcile() is None
    assert scene.trials.bodies == {}
    assert await scene.reconcile() is None


async def test_a_pipeline_that_is_deleted_ends_the_job() -> None:
    scene = Scene()
    await scene.reconcile(2)
    scene.pipelines.pipeline = None
    await scene.reconcile()
    assert scene.jobs.jobs == {}
    assert (await scene.trial()).status.phase == TrialPhase.FAILED


async def test_a_trial_that_is_gone_or_being_deleted_is_left_alone() -> None:
    scene = Scene()
    scene.trials.bodies[PLACE]["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    assert await scene.reconcile() is None
    assert not (await scene.trial()).status.has_begun
    del scene.trials.bodies[PLACE]
    assert await scene.reconcile() is None


@pytest.mark.parametrize(
    ("since", "phase", "words"),
    [
        ({"duration": "1s"}, TrialPhase.WAITING, "nothing since"),
        ({"snapshot": "before"}, TrialPhase.FAILED, "no such snapshot"),
        ({"timestamp": "2026-01-01T00:30:00Z"}, TrialPhase.STARTING, "on 12 records"),
        ({"timestamp": "2026-01-01T00:00:00Z"}, TrialPhase.FAILED, "earliest possible moment is 2026-01-01T00:00:10Z"),
        ({"timestamp": "2026-01-01T00:00:10Z"}, TrialPhase.STARTING, "on 12 records"),
    ],
)
async def test_the_start_is_looked_for_where_the_spec_says(since: dict[str, str], phase: str, words: str) -> None:
    scene = Scene(spec={"since": since})
    await scene.reconcile()
    status = (await scene.trial()).status
    assert status.phase == phase
    assert words in status.message


async def test_a_young_pipeline_is_tried_from_its_first_run_on() -> None:
    scene = Scene(spec={"since": {"duration": "168h"}})
    await scene.reconcile()
    status = (await scene.trial()).status
    assert (status.phase, status.start, status.records_total) == (TrialPhase.STARTING, {"orders/0": 0}, 12)


@pytest.mark.parametrize("since", [{"timestamp": "2026-01-01T00:30:00Z"}, {"snapshot": "before"}])
async def test_a_topic_that_was_added_later_is_not_read_from_its_first_record(since: dict[str, str]) -> None:
    """The pipeline began it at startingOffsets: the trial would process what the pipeline never did."""
    scene = Scene(spec={"since": since})
    world, row = scene.world, scene.world.table.rows[ROW]
    world.snapshots[ROW, "id"] = snapshot_of(row, id=UUID(int=1), trigger=Trigger.ON_DEMAND, name="before")
    more = {**row.offsets, "refunds/0": 500}
    world.fence(ROW).plan(row, offsets=more, planned=more)
    found = pipeline()
    assert isinstance(found.spec, Spec)
    kafka = replace(found.spec.source.kafka, topics=("orders", "refunds"))
    scene.pipelines.pipeline = replace(found, spec=replace(found.spec, source=replace(found.spec.source, kafka=kafka)))
    await scene.reconcile()
    status = (await scene.trial()).status
    assert (status.phase, status.start) == (TrialPhase.FAILED, {})
    assert "spec.since" in status.message


async def test_a_spec_that_cannot_be_read_asks_nobody() -> None:
    scene = Scene(spec={"since": {}})
    scene.pipelines.pipeline = None
    assert await scene.reconcile() is None
    assert "exactly one of" in (await scene.trial()).status.message


async def test_nothing_is_done_where_the_status_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Injected: another writer, a lost right, another replica that leads."""
    scene = Scene()

    async def modified(*_: object) -> Trial:
        raise Conflict("modified")

    with monkeypatch.context() as patched:
        patched.setattr(FakeTrials, "write_status", modified)
        assert await scene.reconcile() == 1.0
    scene.may_write.append(Denied("another replica leads"))
    with pytest.raises(Denied):
        await scene.reconcile()
    assert scene.jobs.jobs == {}
    assert not (await scene.trial()).status.has_begun


async def test_an_action_that_fails_is_tried_again_ever_later(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    await scene.reconcile()

    async def refuses(*_: object) -> None:
        raise Rejected("exceeded quota")

    with monkeypatch.context() as patched:
        patched.setattr(FakeTrialJobs, "start", refuses)
        waits = [present(await scene.reconcile()) for _ in range(6)]
    assert waits[0] < waits[-1]
    await scene.reconcile()
    assert len(scene.jobs.jobs) == 1


async def test_an_event_that_cannot_be_published_ends_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()

    async def denied(*_: object) -> None:
        raise Unreachable("no answer")

    monkeypatch.setattr(FakeTrials, "publish", denied)
    await scene.reconcile(2)
    assert len(scene.jobs.jobs) == 1


async def test_a_cassandra_that_does_not_answer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()

    async def hangs(*_: object) -> None:
        await asyncio.sleep(60)

    with monkeypatch.context() as patched:
        patched.setattr(type(scene.reconciler.ports.fences), "read", hangs)
        patched.setattr(scene.reconciler, "config", replace(scene.reconciler.config, observation_timeout=0.05))
        assert present(await scene.reconcile()) > 0
    status = (await scene.trial()).status
    assert status.phase == TrialPhase.WAITING
    assert "no answer" in status.message
    await scene.reconcile()
    assert (await scene.trial()).status.has_begun
