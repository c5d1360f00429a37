"""A rewind: whatever is killed at whichever moment, it ends as an undisturbed one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from fakes.gate import SIDES, failing_at
from fakes.manifests import KEY, body
from fakes.paging import Paging
from fakes.ports import ports_of
from fakes.stage import FAULTS, POLICY, Died, Stage
from fakes.stepping_clock import SteppingClock
from fakes.world import World
from fencepost.contract import DriverConfig, ExitCode
from fencepost.fence.snapshots import Trigger
from fencepost_operator.api import COMPLETED, FAILED, ObjectKey, Reason, Rewind, RewindStep, StepState, read_rewind
from fencepost_operator.decision.rewind import machine
from fencepost_operator.desired.jobs import run_config
from fencepost_operator.errors import Unreachable
from fencepost_operator.observation import PodIssue
from fencepost_operator.runtime.passes.reconciler import Reconciler
from present import present

NAME = ObjectKey(KEY.namespace, "back")
TARGET = {"orders/0": 40, "orders/1": 70}
ENDS = {"orders/0": 160, "orders/1": 160}


@dataclass(slots=True)
class RewindStage(Stage):
    """A stage whose commits may go back, once, to the target."""

    target: Mapping[str, int] = field(default_factory=lambda: TARGET)

    def check_commits(self) -> None:
        """Commits are contiguous, except that the first one after the rewind begins at the target."""
        commits = sorted(
            (commit for driver in self.world.drivers for commit in driver.commits),
            key=lambda commit: (commit[0], sum(commit[1].values())),
        )
        backward = [pair for pair in itertools.pairwise(commits) if pair[0][2] != pair[1][1]]
        assert len(backward) <= 1, backward
        assert all(later[1] == self.target for _, later in backward), backward

    @property
    def rewind(self) -> Rewind:
        """The object as it is now."""
        return read_rewind(self.world.rewinds[NAME])

    def is_over(self) -> bool:
        """Whether the rewind arrived or failed, and is marked so."""
        return self.rewind.status.is_finished and self.rewind.is_marked_finished


async def streaming(**changes: Any) -> RewindStage:
    """A pipeline that has committed all that there is."""
    stage = RewindStage()
    source = {"kafka": {"bootstrapServers": "kafka:9092", "topics": ["orders"], "maxRecordsPerBatch": 60}}
    stage.world.apply(body(restart={"stallTimeout": "15s"}, source=source, batchInterval="500ms", **changes))
    stage.world.rate = 0
    stage.world.ends.update(ENDS)
    await stage.running()
    await stage.until(lambda: dict(stage.row.offsets) == ENDS)
    return stage


def ask(stage: RewindStage, to: dict[str, Any] | None = None, **spec: Any) -> None:
    stage.world.ask_for_rewind(NAME.name, to or {"offsets": dict(TARGET)}, pipeline=KEY, **spec)


async def asked(to: dict[str, Any] | None = None, **spec: Any) -> RewindStage:
    """A pipeline whose rewind has ended."""
    stage = await streaming()
    ask(stage, to, **spec)
    await stage.until(stage.is_over)
    return stage


async def play(stage: RewindStage) -> None:
    if NAME not in stage.world.rewinds:
        ask(stage)
    await stage.until(stage.is_over, seconds=600)
    await stage.until(lambda: dict(stage.row.offsets) == ENDS)
    await stage.until(stage.is_running)


def end_state(stage: RewindStage) -> tuple[Any, ...]:
    """What an undisturbed rewind and a disturbed one have in common."""
    row, status = stage.row, stage.rewind.status
    backups = [one for one in stage.world.snapshots.values() if one.trigger == Trigger.REWIND]
    sets = [after for before, after in itertools.pairwise(stage.world.table.history) if after.offsets == TARGET]
    return (
        (row.epoch, row.offsets, row.planned, row.topic_ids, row.growth_barrier),
        [one.offsets for one in backups],
        [str(one.id) for one in backups] == [status.backup],
        len({one.version for one in sets if one.driver is None}),
        (status.phase, [(step.name, step.state) for step in status.steps]),
        (status.target, status.records_to_repeat, stage.rewind.finalizers),
        (stage.pipeline.status.rewind, stage.pipeline.status.failure),
        stage.world.created_jobs,
    )


async def test_an_undisturbed_rewind() -> None:
    stage = await streaming()
    await play(stage)
    status = stage.rewind.status
    assert status.phase == COMPLETED, status
    assert status.message == "Rewound: the first commit began at the target, 210 records back"
    assert [(step.name, step.state) for step in status.steps] == [
        (RewindStep.COUNT, StepState.SKIPPED),
        (RewindStep.STOP, StepState.DONE),
        (RewindStep.BACK_UP, StepState.DONE),
        (RewindStep.RESOLVE, StepState.DONE),
        (RewindStep.PURGE, StepState.SKIPPED),
        (RewindStep.SET_OFFSETS, StepState.DONE),
        (RewindStep.RESUME, StepState.DONE),
        (RewindStep.CHECK, StepState.DONE),
    ]
    first = min((d for d in stage.world.drivers if d.config.epoch == 2), key=lambda d: d.config.epoch).commits[0]
    assert first[1] == TARGET
    assert [condition.type for condition in status.conditions] == ["Ready"]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("side", SIDES)
async def test_a_fault_at_each_write_ends_as_an_undisturbed_rewind(side: str, fault: type[BaseException]) -> None:
    calm = await streaming()
    first = len(calm.gate.writes)
    await play(calm)
    last, wanted = len(calm.gate.writes), end_state(calm)
    assert {"rewind", "take_over", "take_snapshot", "mark_rewind"} <= set(calm.gate.writes[first:])
    for number in range(first, last):
        stage = await streaming()
        setattr(stage.gate, side, failing_at(number, fault))
        await play(stage)
        assert end_state(stage) == wanted, (number, calm.gate.writes[number])


async def test_a_driver_that_hangs_or_dies_meanwhile_changes_nothing() -> None:
    calm = await streaming()
    await play(calm)
    for harm in ("killed", "frozen"):
        stage = await streaming()
        driver = stage.world.newest_pod().driver
        stage.world.kubelet_kills = harm != "frozen"
        driver.frozen = harm == "frozen"
        ask(stage)
        if harm == "killed":
            stage.world.kill_driver()
        await play(stage)
        driver.frozen = False
        await stage.run(5)
        assert stage.rewind.status.phase == COMPLETED
        assert stage.rewind.status.target == calm.rewind.status.target
        assert driver.exit_code in {ExitCode.FENCED, 137, 0}


async def test_a_snapshot_takes_the_pipeline_back_to_what_it_holds() -> None:
    stage = await streaming()
    stage.annotate("streaming.fencepost.dev/snapshot", "good")
    await stage.until(lambda: bool(stage.world.snapshots))
    stage.target = dict(ENDS)
    stage.world.ends.update({"orders/0": 300, "orders/1": 400})
    await stage.until(lambda: stage.row.offsets["orders/1"] == 400)
    ask(stage, {"snapshot": "good"})
    await stage.until(stage.is_over)
    status = stage.rewind.status
    assert status.phase == COMPLETED, status.message
    assert status.records_to_repeat == 380


async def test_a_timestamp_takes_the_pipeline_back_to_the_records_of_then() -> None:
    stage = await streaming()
    at, then = stage.world.now, dict(ENDS)
    await stage.run(5)
    stage.target = then
    stage.world.rate = 10
    await stage.run(10)
    stage.world.rate = 0
    await stage.until(lambda: dict(stage.row.offsets) == stage.world.ends)
    (first, _) = next(grown for grown in stage.world.growth["orders/0"] if grown[1] >= at)
    stage.target = {"orders/0": first, "orders/1": first}
    ask(stage, {"timestamp": at.isoformat()})
    await stage.until(stage.is_over)
    assert stage.rewind.status.phase == COMPLETED, stage.rewind.status.message


async def test_a_suspended_pipeline_is_rewound_and_stays_suspended() -> None:
    stage = await streaming()
    await stage.suspended()
    ask(stage)
    await stage.until(stage.is_over)
    assert stage.rewind.status.phase == COMPLETED
    await stage.until(lambda: stage.ready() == "Suspended")
    assert stage.row.offsets == TARGET
    assert stage.world.created_jobs == ["orders-run-1"]
    stage.world.change(KEY, suspend=False)
    await stage.until(lambda: dict(stage.row.offsets) == ENDS)


async def test_a_rewind_of_a_suspended_pipeline_that_never_ran_says_what_it_waits_for() -> None:
    """No fault. Simulation seed 203918: the rewind said "Creating the checkpoint", which nothing created."""
    stage = RewindStage()
    stage.world.apply(body(suspend=True))
    ask(stage)
    await stage.until(lambda: "has never run" in stage.rewind.status.message)
    assert "Set spec.suspend to false, or delete this object" in stage.rewind.status.message
    assert not stage.world.table.rows
    stage.world.change(KEY, suspend=False)
    await stage.until(lambda: stage.rewind.status.is_finished)


async def test_a_stalled_pipeline_can_be_rewound() -> None:
    stage = await streaming()
    stage.world.newest_pod().driver.end(stage.world.now, ExitCode.DATA_LOSS)
    await stage.until(lambda: any(c.type == "Stalled" for c in stage.pipeline.status.conditions))
    await play(stage)
    assert stage.rewind.status.phase == COMPLETED


@pytest.mark.parametrize(
    ("to", "refusal"),
    [
        ({"offsets": {"orders/0": 161}}, "orders/0: 161 is beyond the committed offset 160"),
        ({"offsets": {"orders/0": 5}}, "orders/0: the log begins at 10"),
        ({"offsets": {"orders/7": 5}}, "orders/7 is not a partition that the pipeline has committed"),
        ({"offsets": {"others/0": 5}}, "topic others is not read"),
        ({"snapshot": "nowhere"}, "snapshot 'nowhere' does not exist"),
        ({"offsets": {"orders": 5}}, "spec.to.offsets.orders: is not topic/partition"),
        ({}, "does not have exactly one of"),
        ({"timestamp": "2026-01-01T00:00:00"}, "is not RFC 3339 with a time zone"),
    ],
)
async def test_a_target_that_cannot_be_is_refused_before_anything_stops(to: dict[str, Any], refusal: str) -> None:
    stage = await streaming()
    stage.world.starts["orders/0"] = 10
    stage.world.ask_for_rewind(NAME.name, to, pipeline=KEY)
    await stage.until(stage.is_over)
    status = stage.rewind.status
    assert status.phase == FAILED
    assert refusal in status.message
    assert stage.epoch == 1
    assert stage.is_running()


def recreated(stage: RewindStage) -> None:
    stage.world.topic_ids["orders"] = "another"


def another_key(stage: RewindStage) -> None:
    stage.world.purge_failure, stage.world.count_fails = "the table has another key", True


def without_the_command(stage: RewindStage) -> None:
    stage.world.purge_exit_code = 2


UNKNOWN = "spec.job.image does not know the command `fencepost purge`; an image of the operator's release or newer"


@pytest.mark.parametrize(
    ("sink", "harm", "refusal"),
    [
        pytest.param({}, recreated, "topic orders was recreated", id="a recreated topic"),
        pytest.param({}, another_key, "the table has another key", id="a table that cannot be purged"),
        pytest.param({}, without_the_command, UNKNOWN, id="an image without the command"),
        pytest.param({"kafka": {"topic": "out"}}, None, "the output of sink out cannot be deleted", id="Kafka"),
        pytest.param(
            {"function": {"entrypoint": "out:write"}}, None, "the output of sink out cannot be deleted", id="a function"
        ),
    ],
)
async def test_output_that_cannot_be_deleted_is_found_before_anything_stops(
    sink: dict[str, Any], harm: Callable[[RewindStage], None] | None, refusal: str
) -> None:
    stage = await streaming(**({"sinks": [{"name": "out", **sink}]} if sink else {}))
    if harm is not None:
        harm(stage)
    ask(stage, deleteOutput=True)
    await stage.until(stage.is_over)
    assert all(part in stage.rewind.status.message for part in refusal.split("; "))
    assert stage.epoch == 1
    assert stage.is_running()


async def test_a_topic_that_is_recreated_before_the_purge_keeps_its_output() -> None:
    """Kafka no longer has the records from which the rows would be written again."""
    stage = await streaming()
    ask(stage, deleteOutput=True)
    await stage.until(lambda: stage.rewind.status.target is not None)
    assert not stage.rewind.is_held
    stage.world.topic_ids["orders"] = "another"
    await stage.until(stage.is_over)
    assert "topic orders was recreated" in stage.rewind.status.message
    assert dict(stage.row.offsets) == ENDS
    assert not stage.world.purged


async def test_where_the_pipeline_is_already_nothing_is_done() -> None:
    stage = await asked({"offsets": dict(ENDS)})
    assert stage.rewind.status.message == "Nothing to do: the target is what is committed"
    assert stage.epoch == 1


async def test_a_dry_run_reports_and_changes_nothing() -> None:
    stage = await asked(dryRun=True)
    status = stage.rewind.status
    assert (status.phase, status.records_to_repeat) == (COMPLETED, 210)
    assert present(status.target).offsets == TARGET
    assert stage.epoch == 1
    assert not stage.world.snapshots


async def test_output_is_deleted_once_at_a_timestamp_between_the_runs() -> None:
    stage = await streaming()
    last = stage.row
    ask(stage, deleteOutput=True)
    await play(stage)
    status = stage.rewind.status
    assert (status.phase, status.rows_to_delete) == (COMPLETED, 210)
    (request,) = stage.world.purged
    assert request.ranges == {"orders/0": (40, 160), "orders/1": (70, 160)}
    first = next(row for row in stage.world.table.history if row.epoch == 2 and row.driver is not None)
    assert last.write_timestamp < present(request.timestamp) < first.write_timestamp
    assert [step.name for step in status.steps if step.state is StepState.DONE] == list(RewindStep)


async def test_a_table_of_older_code_is_purged_while_the_spec_of_a_suspended_pipeline_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the advice of MixedOutput says."""
    stage, configs = await streaming(), []
    create = World.create_purge

    def created(world: World, job: Any, config_map: Any) -> None:
        configs.append(DriverConfig.from_json(config_map["data"][run_config.KEY]))
        create(world, job, config_map)

    monkeypatch.setattr(World, "create_purge", created)
    sinks = stage.world.objects[KEY]["spec"]["sinks"]
    old = {"name": "old", "cassandra": {"keyspace": "shop", "table": "old"}}
    stage.world.change(KEY, suspend=True, sinks=[*sinks, old])
    ask(stage, deleteOutput=True)
    await stage.until(stage.is_over)
    assert stage.rewind.status.phase == COMPLETED
    assert [[sink.name for sink in config.sinks] for config in configs] == [["orders", "old"]] * 2
    assert stage.world.created_jobs == ["orders-run-1"]
    stage.world.change(KEY, suspend=False, sinks=sinks)
    await stage.until(lambda: dict(stage.row.offsets) == ENDS)


@pytest.mark.parametrize("side", SIDES)
async def test_an_operator_that_dies_while_output_is_deleted_ends_the_same(side: str) -> None:
    calm = await streaming()
    first = len(calm.gate.writes)
    ask(calm, deleteOutput=True)
    await play(calm)
    wanted = end_state(calm)
    assert "start_purge" in calm.gate.writes[first:]
    for number in range(first, len(calm.gate.writes)):
        stage = await streaming()
        setattr(stage.gate, side, failing_at(number, Died))
        ask(stage, deleteOutput=True)
        await play(stage)
        assert end_state(stage) == wanted, (number, calm.gate.writes[number])
        assert stage.world.purged == calm.world.purged or len(stage.world.purged) == 1


async def test_a_sink_of_a_package_is_asked_by_the_count() -> None:
    stage = await streaming(sinks=[{"name": "out", "plugin": {"kind": "postgresql"}}])
    ask(stage, deleteOutput=True)
    await play(stage)
    assert stage.rewind.status.phase == COMPLETED
    assert len(stage.world.purged) == 1


async def test_a_purge_that_fails_waits_for_the_user_and_is_not_cancelled() -> None:
    stage = await streaming()
    stage.world.purge_failure = "no answer"
    ask(stage, deleteOutput=True)
    await stage.until(lambda: any(c.type == "Stalled" for c in stage.rewind.status.conditions))
    assert stage.ready() == "PurgeFailed"
    stage.world.delete_rewind(NAME)
    await stage.run(5)
    assert stage.rewind.is_held
    assert stage.world.created_jobs == ["orders-run-1"]
    stage.world.purge_failure = ""
    del stage.world.purges["orders-purge-2"]
    await stage.until(lambda: NAME not in stage.world.rewinds)
    await stage.until(lambda: dict(stage.row.offsets) == ENDS)
    assert TARGET in [row.offsets for row in stage.world.table.history]


NO_IMAGE = PodIssue(pod="orders-purge-2-x", reason="ImagePullBackOff", message="no such image")


async def deleting(**trouble: Any) -> RewindStage:
    """A rewind whose Job that deletes output was just created, with pagers."""
    stage = await streaming()
    stage.paging, stage._operator = Paging(stage.world, stage.gate), None
    ask(stage, deleteOutput=True)
    await stage.until(lambda: bool(stage.world.purged))
    for name, value in trouble.items():
        setattr(stage.world, name, value)
    return stage


@pytest.mark.parametrize(
    ("trouble", "reason", "cause"),
    [
        ({"purge_issue": NO_IMAGE}, Reason.IMAGE_PULL_FAILED, "no such image"),
        ({"purge_hangs": True}, Reason.REWIND_LATE, "Deleting the output"),
    ],
    ids=["its pod cannot start", "it hangs"],
)
async def test_a_deletion_of_output_that_does_not_progress_says_why_and_pages(
    trouble: dict[str, Any], reason: Reason, cause: str
) -> None:
    stage = await deleting(**trouble)
    assert stage.paging is not None
    patience = machine.STEP_PATIENCE.total_seconds()
    await stage.run(patience - 30)
    assert not stage.paging.heard
    await stage.run(60)
    assert stage.ready() == reason
    assert cause in stage.pipeline.status.message
    assert [(c.type, c.status) for c in stage.rewind.status.conditions] == [("Ready", "False"), ("Reconciling", "True")]
    assert cause in stage.rewind.status.message
    await stage.run(POLICY.page_not_ready_after)
    (page,) = [page for page in stage.pipeline.status.pages if page.reason == Reason.NOT_READY]
    assert cause in page.message
    assert [heard.is_over for heard in stage.paging.heard] == [False]
    stage.world.purge_issue, stage.world.purge_hangs = None, False
    await stage.until(stage.is_over)
    await stage.until(stage.is_running)
    await stage.run(POLICY.page_resolve_after + 60)
    assert [heard.is_over for heard in stage.paging.heard] == [False, True]


@pytest.mark.parametrize("hours", [2, -2])
async def test_a_step_of_the_clock_makes_no_step_of_a_rewind_late(hours: int) -> None:
    stage, patience = await deleting(purge_hangs=True), machine.STEP_PATIENCE.total_seconds()
    clock = SteppingClock(stage.world)
    stage._operator = Reconciler(ports=replace(ports_of(stage.world, stage.gate), clock=clock), config=POLICY)
    await stage.run(30)
    clock.ahead = timedelta(hours=hours)
    await stage.run(patience - 60)
    assert stage.ready() == Reason.REWINDING
    await stage.run(60)
    assert stage.ready() == Reason.REWIND_LATE


async def test_a_count_whose_pod_cannot_start_says_why_and_stops_nothing() -> None:
    stage = await streaming()
    stage.world.purge_issue = NO_IMAGE
    ask(stage, deleteOutput=True)
    await stage.until(lambda: "no such image" in stage.rewind.status.message)
    assert stage.rewind.status.conditions[0].reason == Reason.IMAGE_PULL_FAILED
    assert stage.is_running()
    stage.world.purge_issue = None
    await stage.until(stage.is_over)


async def test_a_dry_run_counts_the_rows_to_delete() -> None:
    stage = await asked(deleteOutput=True, dryRun=True)
    status = stage.rewind.status
    assert (status.rows_to_delete, status.estimated_seconds) == (210, 2.0)
    assert not stage.world.purged
    assert stage.epoch == 1


async def test_deleting_it_before_the_offsets_are_set_cancels_it() -> None:
    stage = await streaming()
    ask(stage)

    def die_before_the_offsets(_number: int, name: str) -> None:
        if name == "take_snapshot":
            raise Unreachable("no answer")

    stage.gate.before = die_before_the_offsets
    await stage.until(lambda: NAME in stage.world.rewinds and stage.rewind.status.phase == RewindStep.BACK_UP)
    await stage.run(3)
    stage.world.delete_rewind(NAME)
    await stage.until(stage.is_running)
    assert NAME not in stage.world.rewinds
    assert dict(stage.row.offsets) == ENDS
    assert stage.pipeline.status.rewind is None


async def test_one_at_a_time_the_oldest_first() -> None:
    stage = await streaming()
    ask(stage)
    stage.world.ask_for_rewind("later", {"offsets": {"orders/0": 50}}, pipeline=KEY)
    later = ObjectKey(KEY.namespace, "later")
    await stage.turn()
    assert read_rewind(stage.world.rewinds[later]).status.message == "Waiting for PipelineRewind back"
    await stage.until(stage.is_over)
    assert stage.rewind.status.phase == COMPLETED


async def test_a_deleted_pipeline_ends_its_rewind() -> None:
    stage = await streaming()
    ask(stage)
    await stage.until(lambda: stage.epoch == 2)
    await stage.deleted()
    assert stage.rewind.status.phase == FAILED
    assert not stage.rewind.is_held


async def test_a_rewind_waits_for_a_pipeline_that_does_not_exist() -> None:
    stage = RewindStage()
    ask(stage)
    await stage.turn()
    assert "StreamingPipeline orders does not exist" in stage.rewind.status.message
    assert not stage.rewind.is_marked_finished


async def test_no_run_starts_while_the_rewinds_cannot_be_listed() -> None:
    """Injected: the API server does not answer, just when the offsets are about to be set."""
    stage = await streaming()
    ask(stage)
    await stage.until(lambda: stage.rewind.status.target is not None)
    found, stage.world.rewinds = stage.world.rewinds, Unlisted()
    await stage.run(10)
    assert stage.world.created_jobs == ["orders-run-1"]
    stage.world.rewinds = found
    await play(stage)
    assert stage.rewind.status.phase == COMPLETED


class Unlisted(dict[ObjectKey, dict[str, Any]]):
    """Rewinds that cannot be listed."""

    def values(self) -> Any:
        """Answer as an API server that is away."""
        raise Unreachable("no answer")
