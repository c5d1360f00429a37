"""When a pass asks for the next one, and whether it counts as one that reconciled the pipeline."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TypeVar

import pytest

from fakes.gate import Gate
from fakes.manifests import KEY, body
from fakes.ports import FakeMetrics, ports_of
from fakes.stage import POLICY, Stage
from fakes.workload_ports import FakeReleases, FakeRuns
from fencepost_operator.adapters.kubernetes.kubelets import CONTINUOUS
from fencepost_operator.api import PAUSED_ANNOTATION, ObjectKey, ReconcileConfig
from fencepost_operator.backoff import JITTER
from fencepost_operator.desired import labels
from fencepost_operator.errors import Conflict, Denied, FencepostError, PortError, Unreachable
from fencepost_operator.observation import RunList
from fencepost_operator.runtime.passes.reconciler import Reconciler
from present import present

T = TypeVar("T")


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
    assert watched.metrics.restarting[-1] == (0, 0)


KUBERNETES = frozenset(
    {"pipeline", "references", "release", "cluster", "runs", "node", "objects", "rewinds", "revision", "trial"}
)


class Counted(Gate):
    """Counts what was read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = Counter[str]()

    async def read(self, name: str, fact: Callable[[], T]) -> T:
        self.reads[name] += 1
        return await super().read(name, fact)

    def asked_of_kubernetes(self) -> set[str]:
        """Return what Kubernetes was asked for since the last call."""
        found = {name for name in self.reads if name in KUBERNETES}
        self.reads.clear()
        return found


async def resting(config: ReconcileConfig = POLICY) -> tuple[Stage, Counted]:
    """Return a stage whose pipeline is at rest, and of whose changes no event comes."""
    gate = Counted()
    stage = await Stage.streaming(Stage(gate=gate, config=config))
    await stage.run(60)
    stage.woken = False
    await stage.turn()
    gate.asked_of_kubernetes()
    return stage, gate


async def test_a_pipeline_at_rest_asks_kubernetes_for_nothing_until_there_is_an_event() -> None:
    stage, gate = await resting(replace(POLICY, look_interval=3600.0))
    before = stage.row.version
    await stage.run(120)
    assert gate.asked_of_kubernetes() == set()
    assert stage.row.version > before
    assert stage.pipeline.status.committed is not None
    assert stage.row.version - stage.pipeline.status.committed.version <= 15, "the figures are written all the same"
    stage.woken = True
    await stage.turn()
    assert gate.asked_of_kubernetes() >= {"pipeline", "runs", "cluster", "release", "rewinds"}


async def test_a_suspended_pipeline_asks_kubernetes_for_nothing_until_there_is_an_event() -> None:
    gate = Counted()
    stage = await Stage.streaming(Stage(gate=gate, config=replace(POLICY, look_interval=3600.0)))
    await stage.suspended()
    await stage.run(60)
    stage.woken = False
    gate.asked_of_kubernetes()
    await stage.run(120)
    assert gate.asked_of_kubernetes() == set()
    stage.world.change(KEY, suspend=False)
    stage.woken = True
    await stage.turn()
    stage.woken = False
    await stage.running()


async def test_what_no_event_has_shown_is_seen_within_the_interval_between_two_looks() -> None:
    stage, _ = await resting()
    stage.world.rate = 0.0  # nor does the driver's work show that it is gone
    await stage.run(30)
    stage.world.kill_driver()
    await stage.until(lambda: len(stage.world.created_jobs) == 2, seconds=POLICY.look_interval * (1 + JITTER) + 20)


async def test_a_driver_that_is_dead_unseen_is_missed_by_its_commits() -> None:
    """Injected: no event of a pod that is gone; what is known of Kubernetes says that it lives."""
    stage, _ = await resting(replace(POLICY, look_interval=3600.0))
    stage.world.kill_driver()
    await stage.until(lambda: len(stage.world.created_jobs) == 2, seconds=120)
    assert stage.world.jobs[-1].manifest["metadata"]["annotations"][labels.GENERATION] == "1", "its death is proven"


async def test_nothing_but_figures_follows_from_what_kubernetes_showed_earlier() -> None:
    """Each action, and each other change of the status, is of a pass that has asked Kubernetes for everything."""
    stage, gate = await resting(replace(POLICY, look_interval=3600.0))
    stage.world.kafka_down = True
    await stage.run(POLICY.page_not_ready_after + 60)
    assert stage.ready() != "Streaming"
    assert "runs" in gate.asked_of_kubernetes()


async def test_a_status_that_another_client_writes_is_taken_as_it_is() -> None:
    stage, _ = await resting()
    stage.world.objects[KEY]["status"]["restarts"] = 7
    stage.world.touch(KEY)
    stage.woken = True
    await stage.turn()
    await stage.run(20)
    assert stage.pipeline.status.restarts == 7


async def test_figures_that_are_not_written_yet_stay_unwritten_where_a_pause_begins() -> None:
    stage, _ = await resting()
    await stage.run(5)
    before = stage.pipeline.status
    stage.annotate(PAUSED_ANNOTATION, "true")
    stage.woken = True
    await stage.turn()
    after = stage.pipeline.status
    assert stage.condition("Paused") is not None
    assert replace(after, conditions=before.conditions) == before


async def test_figures_are_written_now_and_then_and_everything_else_at_once() -> None:
    stage, gate = await resting()
    gate.writes.clear()
    await stage.run(150)
    assert 9 <= gate.writes.count("write_status") <= 150 / POLICY.figures_interval + 1
    stage.world.kill_driver()
    stage.woken = True
    await stage.turn()
    assert stage.pipeline.status.failure is not None
    assert stage.pipeline.status.failure.count == 1


async def test_a_pipeline_as_large_as_a_tenant_likes_is_not_kept_in_memory() -> None:
    gate = Counted()
    stage = Stage(gate=gate, config=replace(POLICY, look_interval=3600.0))
    job = {"image": "registry.example/job:1", "entrypoint": "orders.job:transform", "args": ["x" * 1000] * 70}
    await Stage.streaming(stage, job=job)
    await stage.run(60)
    stage.woken = False
    gate.asked_of_kubernetes()
    await stage.run(20)
    assert "pipeline" in gate.asked_of_kubernetes()


async def test_a_driver_that_starts_is_awaited_without_a_question_to_kubernetes() -> None:
    """The claim and the first commit are in the fence row; what else happens to the driver is an event."""
    stage, gate = await resting(replace(POLICY, start_look_interval=60.0))
    stage.woken = True
    stage.world.kill_driver()
    await stage.until(lambda: len(stage.world.created_jobs) == 2 and present(stage.pipeline.status.run).epoch == 2)
    await stage.until(lambda: present(stage.pipeline.status.run).started_at is not None)
    await stage.turn()
    stage.woken = False
    gate.asked_of_kubernetes()
    asked = 0
    while stage.row.driver is None:
        stage.world.advance(present(await stage.turn()))
        asked += bool(gate.asked_of_kubernetes())
    assert asked == 0
    await stage.running(seconds=10)


async def test_a_first_driver_that_does_not_claim_is_looked_at_within_seconds() -> None:
    """Injected: it hangs before its claim. That its node is silent, or its probe fails, time alone shows."""
    gate = Counted()
    stage = Stage(gate=gate)
    stage.world.apply(body())
    await stage.until(
        lambda: stage.pipeline.status.run is not None and stage.pipeline.status.run.started_at is not None
    )
    present(stage.world.newest_pod().driver).frozen = True
    await stage.run(10)
    stage.woken = False
    await stage.turn()
    gate.asked_of_kubernetes()
    await stage.run(POLICY.start_look_interval * (1 + JITTER) + 1)
    assert gate.asked_of_kubernetes() >= {"pipeline", "runs", "cluster"}


async def test_a_pipeline_is_looked_at_sooner_while_records_flow() -> None:
    stage = await Stage.streaming()
    for _ in range(10):
        stage.world.advance(POLICY.resync_interval)
        again = await stage.turn()
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
    assert oldest <= POLICY.figures_interval + 2 * POLICY.refresh_interval * (1 + JITTER)


@pytest.mark.parametrize(("rate", "least"), [(1.0, 1.0), (0.2, 5.0), (0.01, 9.0)], ids=["few", "many", "too many"])
async def test_the_more_pipelines_there_are_the_less_often_figures_are_looked_at(rate: float, least: float) -> None:
    """One pipeline, and so few looks a second that it stands for many pipelines."""
    config = replace(POLICY, refresh_interval=0.1, resync_interval=0.1, looks_per_second=rate)
    stage, _ = await resting(config)
    for _ in range(5):
        stage.world.advance(1.0)
        assert least * (1 - JITTER) <= present(await stage.turn()) <= least * (1 + JITTER)


async def test_a_run_that_is_about_to_count_as_stalled_is_looked_at_in_time_among_any_number_of_pipelines() -> None:
    """Injected: the driver hangs, and no event shows anything."""
    stage, _ = await resting(replace(POLICY, looks_per_second=0.01, look_interval=3600.0))
    present(stage.world.newest_pod().driver).frozen = True
    pauses: list[float] = []
    while len(stage.world.created_jobs) == 1:
        again = present(await stage.turn())
        pauses.append(again)
        stage.world.advance(min(again, 2.0))
    assert min(pauses) < POLICY.resync_interval * (1 - JITTER)


def test_a_node_that_is_silent_is_looked_at_often_enough_to_stay_so() -> None:
    assert POLICY.slowest_look * (1 + JITTER) < CONTINUOUS


async def test_a_pass_counts_as_a_glance_after_one_and_not_after_an_event() -> None:
    """A tenant whose Kafka shows something else each time gets one look at Kubernetes for each pass of its share."""
    stage, _ = await resting()
    await stage.turn()
    operator = present(stage._operator)
    assert operator.is_glance(KEY)
    stage.woken = True
    await stage.turn()
    assert not operator.is_glance(KEY), "it is at rest, and has not shown that it stays so"
    stage.woken = False
    await stage.turn()
    assert operator.is_glance(KEY)
    stage.world.advance(POLICY.census_holds)
    assert not operator.is_glance(KEY)
    assert not operator.is_glance(replace(KEY, name="another"))


async def test_the_first_pass_adds_the_finalizer_and_creates_the_row_and_the_cluster() -> None:
    stage = Stage()
    stage.world.apply(body())
    assert await stage.turn() == 0.0
    assert [name for name in stage.gate.writes if name not in {"write_status", "publish"}] == [
        "set_finalizer", "create", "install",
    ]  # fmt: skip


async def test_a_change_of_the_spec_ends_the_pass_that_looked_at_another_one() -> None:
    stage = Stage()
    stage.world.apply(body())

    def change(_number: int, name: str) -> None:
        if name == "create":
            stage.world.change(KEY, suspend=True)

    stage.gate.after = change
    assert await stage.turn() == 0.0
    assert "install" not in stage.gate.writes
    await stage.until(lambda: stage.ready() == "Suspended")
    assert "install" not in stage.gate.writes


async def test_a_finalizer_that_is_taken_away_at_once_keeps_no_pass_busy() -> None:
    stage = Stage()
    stage.world.apply(body())

    def strip(_number: int, name: str) -> None:
        if name == "set_finalizer":
            stage.world.objects[KEY]["metadata"]["finalizers"] = []

    stage.gate.after = strip
    assert present(await stage.turn()) > 0
    assert stage.gate.writes.count("set_finalizer") == 1
