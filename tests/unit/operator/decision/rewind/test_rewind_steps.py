"""The steps of a rewind as a table: from what is recorded and seen, the step in progress, and what is done."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final
from uuid import uuid1

import pytest

from fakes.manifests import KEY
from fencepost.contract.purge_request import PurgeReport
from fencepost.fence.snapshots import Snapshot
from fencepost_operator.actions import RewindFence, StartPurge, StopRun, TakeOverFence, TakeSnapshot
from fencepost_operator.api import (
    FINALIZER,
    EventType,
    FinishingStatus,
    ResolvedTarget,
    Rewind,
    RewindStep,
    StepState,
    StepStatus,
    read_rewind,
)
from fencepost_operator.decision.decision import Decision
from fencepost_operator.decision.rewind.purge_jobs import purge_due
from fencepost_operator.decision.rewind.queue import next_rewind, without_pipeline
from fencepost_operator.decision.rewind.step_status import RewindUpdate
from fencepost_operator.observation import Known, PodIssue, PurgeJob, RewindFacts, Unknown, Watermarks
from unit.operator.scenes import BURIED, DENIED, LONG_AGO, NOW, ROW, SILENT, WELL, Scene

LOG: Final = Watermarks(ends={"orders/0": 50}, starts={"orders/0": 5}, topic_ids={"orders": "id"})
BACK: Final = {"orders/0": 10}
ROW_READ: Final = replace(ROW, topic_ids={"orders": "id"}, planned=ROW.offsets)
TAKEN: Final = replace(ROW_READ, epoch=3, driver=None, version=10)
SET: Final = replace(TAKEN, offsets=BACK, planned=BACK, version=11)
KEPT: Final = Snapshot(id=uuid1(), trigger="Rewind", offsets=dict(ROW.offsets), topic_ids={"orders": "id"})
TARGET: Final = ResolvedTarget(offsets=BACK)
COUNTED: Final = PurgeJob(name="count", is_done=True, report=PurgeReport(rows=7, left=7, seconds=2.0))
PURGED: Final = PurgeJob(name="purge", is_done=True, report=PurgeReport(rows=7, left=0, seconds=2.0))
STUCK: Final = PodIssue(pod="p", reason="ImagePullBackOff", message="manifest unknown")


def asked(to: dict[str, Any] | None = None, *, name: str = "back", age: int = 0, **spec: Any) -> Rewind:
    """Return a rewind to offset 10 of 50, or to another target, that leaves the output."""
    created = (NOW - timedelta(seconds=age)).isoformat()
    metadata = {"namespace": KEY.namespace, "name": name, "uid": f"uid-{name}", "creationTimestamp": created}
    wanted = {"pipeline": KEY.name, "to": to or {"offsets": BACK}, "deleteOutput": False, **spec}
    return read_rewind({"metadata": metadata, "spec": wanted})


def begun(rewind: Rewind, *done: RewindStep, **status: Any) -> Rewind:
    """Return the rewind after these steps and the one that stops the run."""
    steps = tuple(
        StepStatus(name=step.value, state=StepState.DONE, message="", started_at=LONG_AGO, finished_at=NOW)
        for step in (RewindStep.STOP, *done)
    )
    return replace(rewind, status=replace(rewind.status, phase=RewindStep.STOP.value, steps=steps, epoch=3, **status))


def running(rewind: Rewind, step: RewindStep, seconds: float) -> Rewind:
    """Return the rewind in a step that began so long ago."""
    began = NOW - timedelta(seconds=seconds)
    found = StepStatus(name=step.value, state=StepState.RUNNING, message="", started_at=began)
    return replace(rewind, status=replace(rewind.status, steps=(*rewind.status.steps, found)))


BEFORE: Final = WELL.seen(fence=ROW_READ, source=LOG)
STOPPED: Final = BURIED.seen(fence=ROW_READ, source=LOG)
FENCED: Final = STOPPED.seen(fence=TAKEN)
GO: Final = asked()
PURGES: Final = asked(deleteOutput=True)
BACKED_UP: Final = begun(GO, backup=str(KEPT.id))
RESOLVED: Final = begun(GO, backup=str(KEPT.id), target=TARGET, records_to_repeat=40, version=10)
DELETES: Final = begun(PURGES, backup=str(KEPT.id), target=TARGET, records_to_repeat=40, version=10)
EARLIER: Final = Snapshot(id=uuid1(), trigger="Schedule", offsets=BACK, topic_ids={"orders": "id"}, checkpoint=b"one")
HELD_STATE: Final = replace(EARLIER, id=uuid1(), trigger="Rewind")
STATEFUL: Final = FENCED.asked(
    job={"image": "registry.example/job:1", "entrypoint": "orders.job:stream", "mode": "Stateful"}
).seen(fence=replace(TAKEN, checkpoint=b"two"))
WITH_STATE: Final = begun(asked({"snapshot": str(EARLIER.id)}, deleteOutput=True), backup=str(KEPT.id))
HOLDING: Final = replace(WITH_STATE, status=replace(WITH_STATE.status, held_state=str(HELD_STATE.id)))
CLEARS: Final = replace(
    DELETES, status=replace(DELETES.status, target=replace(TARGET, snapshot=str(HELD_STATE.id)))
)  # fmt: skip
PLACED: Final = begun(
    GO, RewindStep.SET_OFFSETS, backup=str(KEPT.id), target=TARGET, records_to_repeat=40, version=11
)  # fmt: skip


def first(offsets: Any) -> RewindFacts:
    return RewindFacts(first_commit=offsets if isinstance(offsets, Unknown) else Known(offsets))


def job(found: Any) -> RewindFacts:
    return RewindFacts(job=found if isinstance(found, Unknown) else Known(found))


CASES: Final[dict[str, tuple[Scene, Rewind, RewindFacts, str, type | None]]] = {
    # before anything is stopped
    "a run is active": (BEFORE, GO, RewindFacts(), "Stop", StopRun),
    "a dry run": (BEFORE, asked(dryRun=True), RewindFacts(), "Completed", None),
    "the target is committed": (BEFORE, asked({"offsets": {"orders/0": 50}}), RewindFacts(), "Completed", None),
    "beyond what is committed": (BEFORE, asked({"offsets": {"orders/0": 51}}), RewindFacts(), "Failed", None),
    "where the log begins": (BEFORE, asked({"offsets": {"orders/0": 5}}), RewindFacts(), "Stop", StopRun),
    "before the log begins": (BEFORE, asked({"offsets": {"orders/0": 4}}), RewindFacts(), "Failed", None),
    "a partition that was not read": (BEFORE, asked({"offsets": {"orders/7": 4}}), RewindFacts(), "Failed", None),
    "a topic that is not read": (
        BEFORE.seen(fence=replace(ROW_READ, offsets={**ROW.offsets, "old/0": 9}), source=LOG),
        asked({"offsets": {"old/0": 4}}), RewindFacts(), "Failed", None,
    ),
    "a recreated topic": (
        BEFORE.seen(source=replace(LOG, topic_ids={"orders": "new"})), GO, RewindFacts(), "Failed", None,
    ),
    "Kafka is silent": (BEFORE.seen(source=SILENT), GO, RewindFacts(), "Waiting", None),
    "no topic is known": (BEFORE.seen(source=replace(LOG, topic_ids={})), GO, RewindFacts(), "Waiting", None),
    "where the log begins is not known": (
        BEFORE.seen(source=replace(LOG, starts={})), GO, RewindFacts(), "Waiting", None,
    ),
    "no such snapshot": (BEFORE, asked({"snapshot": "s"}), RewindFacts(snapshot=Known(None)), "Failed", None),
    "a snapshot that was not asked for": (BEFORE, asked({"snapshot": "s"}), RewindFacts(), "Waiting", None),
    "a snapshot that cannot be read": (
        BEFORE, asked({"snapshot": "s"}), RewindFacts(snapshot=SILENT), "Waiting", None,
    ),
    "a snapshot of another topic": (
        BEFORE, asked({"snapshot": "s"}),
        RewindFacts(snapshot=Known(replace(KEPT, offsets=BACK, topic_ids={"orders": "other"}))), "Failed", None,
    ),
    "a snapshot": (
        BEFORE, asked({"snapshot": "s"}), RewindFacts(snapshot=Known(replace(KEPT, offsets=BACK))), "Stop", StopRun,
    ),
    # the rows to delete are counted
    "nothing is counted": (BEFORE, PURGES, job(None), "Count", StartPurge),
    "the count is not known": (BEFORE, PURGES, job(SILENT), "Waiting", None),
    "the count runs": (BEFORE, PURGES, job(PurgeJob(name="count")), "Count", None),
    "the count cannot start": (BEFORE, PURGES, job(PurgeJob(name="count", issue=STUCK)), "Count", None),
    "the count failed": (BEFORE, PURGES, job(PurgeJob(name="count", is_failed=True)), "Failed", None),
    "the count ended without a figure": (BEFORE, PURGES, job(PurgeJob(name="count", is_done=True)), "Failed", None),
    "it is counted": (BEFORE, PURGES, job(COUNTED), "Stop", StopRun),
    "it is counted, a dry run": (BEFORE, asked(deleteOutput=True, dryRun=True), job(COUNTED), "Completed", None),
    "a sink whose rows cannot be deleted": (
        BEFORE.asked(sinks=[{"name": "out", "kafka": {"topic": "out"}}]), PURGES, job(COUNTED), "Failed", None,
    ),
    # the pipeline is stopped
    "the run has ended": (STOPPED, begun(GO), RewindFacts(), "Stop", TakeOverFence),
    "another epoch than was recorded": (
        STOPPED.seen(fence=replace(TAKEN, epoch=4)), begun(GO), RewindFacts(), "Stop", TakeOverFence,
    ),
    "the epoch is claimed": (
        STOPPED.seen(fence=replace(TAKEN, driver="pod-3")), begun(GO), RewindFacts(), "Stop", TakeOverFence,
    ),
    "the fence is taken over": (FENCED, begun(GO), RewindFacts(), "BackUp", TakeSnapshot),
    "the backup is recorded, not written": (FENCED, BACKED_UP, RewindFacts(), "BackUp", TakeSnapshot),
    "the backup is not known": (FENCED, BACKED_UP, RewindFacts(backup=SILENT), "BackUp", None),
    "the backup is written": (FENCED, BACKED_UP, RewindFacts(backup=Known(KEPT)), "Resolve", None),
    "the backup is written, Kafka is silent": (
        FENCED.seen(source=SILENT), BACKED_UP, RewindFacts(backup=Known(KEPT)), "Resolve", None,
    ),
    "the log has moved on beyond the target": (
        FENCED.seen(source=replace(LOG, starts={"orders/0": 11})), BACKED_UP, RewindFacts(backup=Known(KEPT)),
        "Failed", None,
    ),
    "the state is not held": (
        STATEFUL, WITH_STATE, RewindFacts(snapshot=Known(EARLIER), backup=Known(KEPT)), "Resolve", TakeSnapshot,
    ),
    "a copy of the state is recorded, not written": (
        STATEFUL, HOLDING, RewindFacts(snapshot=Known(EARLIER), backup=Known(KEPT), held=Known(None)), "Resolve",
        TakeSnapshot,
    ),
    "whether the state is held is not known": (
        STATEFUL, HOLDING, RewindFacts(snapshot=Known(EARLIER), backup=Known(KEPT), held=SILENT), "Resolve", None,
    ),
    "the state is held": (
        STATEFUL, HOLDING, RewindFacts(snapshot=Known(EARLIER), backup=Known(KEPT), held=Known(HELD_STATE)), "Resolve",
        None,
    ),
    "the snapshot is gone before its state is held": (
        STATEFUL, HOLDING, RewindFacts(snapshot=Known(None), backup=Known(KEPT), held=Known(None)), "Failed", None,
    ),
    "the target is recorded": (FENCED, RESOLVED, RewindFacts(), "SetOffsets", RewindFence),
    # output is deleted
    "nothing is deleted": (FENCED, DELETES, job(None), "Purge", StartPurge),
    "what is deleted is not known": (FENCED, DELETES, job(SILENT), "Purge", None),
    "Kafka is silent before the deletion": (FENCED.seen(source=SILENT), DELETES, job(None), "Purge", None),
    "output is being deleted": (FENCED, DELETES, job(PurgeJob(name="purge")), "Purge", None),
    "the deletion cannot start": (FENCED, DELETES, job(PurgeJob(name="purge", issue=STUCK)), "Purge", None),
    "the deletion failed": (FENCED, DELETES, job(PurgeJob(name="purge", is_failed=True)), "Purge", None),
    "output is left": (FENCED, DELETES, job(replace(PURGED, report=COUNTED.report)), "Purge", None),
    "output is deleted": (FENCED, DELETES, job(PURGED), "SetOffsets", RewindFence),
    "output is deleted, the state is held": (
        STATEFUL, CLEARS, RewindFacts(job=Known(PURGED), snapshot=Known(HELD_STATE)), "SetOffsets", RewindFence,
    ),
    "output is deleted, the state is gone": (
        STATEFUL, CLEARS, RewindFacts(job=Known(PURGED), snapshot=Known(None)), "SetOffsets", None,
    ),
    # the offsets are set
    "the offsets are set": (FENCED.seen(fence=SET), RESOLVED, RewindFacts(), "Resume", None),
    "no run has claimed since": (FENCED.seen(fence=SET), PLACED, RewindFacts(), "Resume", None),
    "the next run has claimed": (
        BEFORE.seen(fence=replace(ROW_READ, offsets=BACK, planned=BACK, version=12)), PLACED, first(None),
        "Check", None,
    ),
    "a suspended pipeline still has its run": (BEFORE.asked(suspend=True), GO, RewindFacts(), "Waiting", None),
    "the row was at the offsets before": (
        FENCED.seen(fence=replace(SET, version=10)), RESOLVED, RewindFacts(), "SetOffsets", RewindFence,
    ),
    "the history has no commit": (FENCED.seen(fence=replace(SET, version=12)), PLACED, first(None), "Check", None),
    "the history is not known": (FENCED.seen(fence=replace(SET, version=12)), PLACED, first(SILENT), "Check", None),
    "the first commit began at the target": (
        FENCED.seen(fence=replace(SET, version=12)), PLACED, first(BACK), "Completed", None,
    ),
    "the first commit began elsewhere": (
        FENCED.seen(fence=replace(SET, version=12)), PLACED, first({"orders/0": 11}), "Failed", None,
    ),
}  # fmt: skip
OF_THE_PIPELINE: Final = ("Resume", "Check", "Completed", "Failed", "Waiting")
"""Phases in which the pipeline's own rules may act."""
HELD: Final = {case for case, (*_, phase, _) in CASES.items() if phase in {"SetOffsets", "Purge"}} - {
    "what is deleted is not known",
    "Kafka is silent before the deletion",
}
"""Rewinds that can no longer be cancelled; one that has not seen its Job has not begun to delete."""
REASONS: Final = {
    "the count cannot start": "ImagePullFailed",
    "the deletion cannot start": "ImagePullFailed",
    "the deletion failed": "PurgeFailed",
    "output is left": "PurgeFailed",
    "output is deleted, the state is gone": "PurgeFailed",
}
"""Of Ready, where it is another one than its phase's."""


def seen(scene: Scene, rewinds: tuple[Rewind, ...], facts: RewindFacts) -> Scene:
    there = scene.seen(rewinds=rewinds)
    return replace(there, observation=replace(there.observation, rewind=facts))


def decide(case: str) -> tuple[Decision, RewindUpdate]:
    scene, rewind, facts, _, _ = CASES[case]
    decision = seen(scene, (rewind,), facts).decide()
    (update,) = decision.rewinds
    return decision, update


@pytest.mark.parametrize("case", CASES)
def test_step(case: str) -> None:
    _, _, _, phase, action = CASES[case]
    decision, update = decide(case)
    assert update.status.phase == phase, update.status.message
    if phase not in OF_THE_PIPELINE:
        assert (type(decision.action) if decision.action else None) == action
    assert update.held == (case in HELD)


@pytest.mark.parametrize("case", CASES)
def test_what_its_status_and_its_event_say(case: str) -> None:
    """A reason that asks for the user's attention is a Warning, on the rewind as on the pipeline."""
    phase = CASES[case][3]
    usual = {"Completed": "Rewound", "Failed": "RewindRefused"}.get(phase, "Rewinding")
    decision, update = decide(case)
    reason = REASONS.get(case, usual)
    assert update.status.conditions[0].reason == reason
    assert update.status.conditions[0].status == ("True" if phase == "Completed" else "False")
    warns = reason not in {"Rewinding", "Rewound"}
    assert {event.type for event in update.events} <= {EventType.WARNING if warns else EventType.NORMAL}
    written = replace(update.rewind, status=update.status)
    assert RewindUpdate(rewind=written, status=update.status).events == (), "an Event is of a change"
    if case in REASONS and phase == "Purge":
        assert (EventType.WARNING, reason) in {(event.type, str(event.reason)) for event in decision.events}
    assert decision.status.rewind == ("back" if phase in KEEPS else None)


KEEPS: Final = ("Stop", "BackUp", "Resolve", "Purge", "SetOffsets")
"""Phases in which the rewind keeps the pipeline from running."""


def test_what_the_offsets_are_set_to() -> None:
    kept = replace(KEPT, offsets=BACK, leader_epochs={"orders/0": 4, "old/0": 2})
    decision, update = decide("the target is recorded")
    assert decision.action == RewindFence(
        epoch=3, version=10, offsets=BACK, leader_epochs={}, growth_barrier={}, keeps_output=True
    )
    scene = seen(
        FENCED, (begun(asked({"snapshot": "s"}), backup="b"),), RewindFacts(snapshot=Known(kept), backup=Known(kept))
    )
    (update,) = scene.decide().rewinds
    assert update.status.target == replace(TARGET, leader_epochs={"orders/0": 4})
    assert (update.status.records_to_repeat, update.status.version) == (40, TAKEN.version)
    (dry,) = seen(BEFORE, (asked(deleteOutput=True, dryRun=True),), job(COUNTED)).decide().rewinds
    assert dry.status.message == "Dry run: 40 records would be repeated, 7 rows deleted; nothing is changed"
    assert (dry.status.target, dry.status.rows_to_delete) == (TARGET, 7)


def test_the_backup_is_written_under_the_id_that_is_recorded() -> None:
    for case in ("the fence is taken over", "the backup is recorded, not written"):
        decision, update = decide(case)
        assert isinstance(decision.action, TakeSnapshot)
        assert decision.action.id == update.status.backup
    assert update.status.backup == str(KEPT.id)


def test_the_state_is_set_from_the_rewinds_own_copy() -> None:
    """The snapshot that the spec names may go while output is deleted."""
    for case in ("the state is not held", "a copy of the state is recorded, not written"):
        decision, update = decide(case)
        assert isinstance(decision.action, TakeSnapshot)
        assert (decision.action.of, decision.action.id) == (str(EARLIER.id), update.status.held_state)
    assert update.status.held_state == str(HELD_STATE.id)
    _, update = decide("the state is held")
    assert update.status.target == replace(TARGET, snapshot=str(HELD_STATE.id))
    decision, _ = decide("output is deleted, the state is held")
    assert isinstance(decision.action, RewindFence)
    assert decision.action.snapshot == str(HELD_STATE.id)


def test_a_rewind_that_has_lost_its_state_names_the_deleted_output() -> None:
    _, update = decide("output is deleted, the state is gone")
    assert "the output of these offsets is deleted: orders/0: 10 to 49. Delete this" in update.status.message


def test_the_count_is_kept_for_the_deletion() -> None:
    _, update = decide("it is counted")
    assert (update.status.rows_to_delete, update.status.estimated_seconds) == (7, 2.0)


@pytest.mark.parametrize(
    ("step", "estimate", "minutes"),
    [
        (RewindStep.BACK_UP, None, 5),
        (RewindStep.BACK_UP, 60.0, 5),
        (RewindStep.PURGE, None, 5),
        (RewindStep.PURGE, 2.0, 5),
        (RewindStep.PURGE, 60.0, 10),
    ],
)
def test_a_step_that_takes_too_long_warns_and_continues(step: RewindStep, estimate: float | None, minutes: int) -> None:
    purges = step is RewindStep.PURGE
    rewind, facts = (DELETES, job(PurgeJob(name="purge"))) if purges else (begun(GO), RewindFacts())
    rewind = replace(rewind, status=replace(rewind.status, estimated_seconds=estimate))
    for early, reason in ((1, "Rewinding"), (0, "RewindLate")):
        decision = seen(FENCED, (running(rewind, step, minutes * 60 - early),), facts).decide()
        (update,) = decision.rewinds
        assert (decision.reason, update.status.conditions[0].reason) == (reason, reason)
        assert isinstance(decision.action, TakeSnapshot) != purges
        is_late = reason == "RewindLate"
        assert (f"(this step has taken {minutes} min)" in update.status.message) is is_late
        assert ((EventType.WARNING, reason) in {(each.type, str(each.reason)) for each in decision.events}) is is_late


def test_a_rewind_that_is_held_is_released_once_its_offsets_are_set() -> None:
    for rewind, scene, held in ((begun(GO), FENCED, True), (PLACED, FENCED.seen(fence=SET), False)):
        (update,) = seen(scene, (replace(rewind, finalizers=(FINALIZER,)),), RewindFacts()).decide().rewinds
        assert update.held is held


@pytest.mark.parametrize(("began", "phase"), [(61, "Completed"), (60, "Check")])
def test_a_history_that_lost_the_first_commit_ends_the_wait(began: int, phase: str) -> None:
    waits = running(PLACED, RewindStep.CHECK, began)
    moved = FENCED.seen(fence=replace(SET, version=13, offsets={"orders/0": 20}))
    for scene, expected in ((moved, phase), (FENCED.seen(fence=replace(SET, version=13)), "Check")):
        (update,) = seen(scene, (waits,), first(None)).decide().rewinds
        assert update.status.phase == expected
        step = update.status.step(RewindStep.CHECK)
        assert step is not None
        assert step.state is (StepState.DONE if expected == "Completed" else StepState.RUNNING)


@pytest.mark.parametrize(
    ("rewind", "facts", "left"), [(DELETES, job(PURGED), {}), (RESOLVED, RewindFacts(), {"orders/1": 9})]
)
def test_a_batch_that_was_begun_stays_open_unless_its_output_was_deleted(
    rewind: Rewind, facts: RewindFacts, left: dict[str, int]
) -> None:
    offsets, begins = {**ROW.offsets, "orders/1": 7}, {"orders/0": 60, "orders/1": 9}
    row = replace(TAKEN, offsets=offsets, planned=offsets, begun=begins)
    target = ResolvedTarget(offsets={**BACK, "orders/1": 7})
    rewind = replace(rewind, status=replace(rewind.status, target=target))
    batch = FinishingStatus(code=row.code or "", revision="orders-1", since=NOW, until=begins)
    decision = seen(FENCED.seen(fence=row).said(finishing=batch), (rewind,), facts).decide()
    assert isinstance(decision.action, RewindFence)
    finishing = decision.status.finishing
    assert (finishing.until if finishing else {}, decision.action.keeps_output) == (left, bool(left))


def test_a_suspended_pipeline_is_not_waited_for() -> None:
    suspended = (
        WELL.asked(suspend=True)
        .said(run=STOPPED.pipeline.status.run)
        .seen(runs=(), release=None, cluster=None, source=LOG, fence=SET)
    )
    (update,) = seen(suspended, (PLACED,), RewindFacts()).decide().rewinds
    assert update.status.phase == "Completed"


def test_a_pipeline_that_is_suspended_before_its_first_run_has_nothing_to_go_back_to() -> None:
    new = WELL.asked(suspend=True).said(run=None, epoch=None, cluster=None)
    (update,) = seen(
        new.seen(runs=(), release=None, cluster=None, fence=None), (GO,), RewindFacts()
    ).decide().rewinds  # fmt: skip
    assert update.status.phase == "Waiting"
    assert "has never run" in update.status.message


def test_one_rewind_at_a_time_the_oldest_first_and_the_one_that_has_begun_before_it() -> None:
    old, young, middle = asked(name="c", age=30), asked(name="a"), asked(name="b", age=20)
    decision = seen(BEFORE, (young, old, middle), RewindFacts()).decide()
    messages = {update.rewind.key.name: update.status.message for update in decision.rewinds}
    assert {name for name, message in messages.items() if message == "Waiting for PipelineRewind c"} == {"a", "b"}
    assert next_rewind([old, begun(young)]) == begun(young)
    assert next_rewind([replace(old, deleting_since=NOW), middle]) == middle
    assert next_rewind([replace(old, deleting_since=NOW, finalizers=(FINALIZER,)), middle]).key.name == "c"  # type: ignore[union-attr]
    assert next_rewind([replace(old, status=replace(old.status, phase="Failed"))]) is None


def test_the_rewinds_of_a_deleted_pipeline_are_over() -> None:
    done = replace(GO, status=replace(GO.status, phase="Completed", message="m"))
    decision = seen(BEFORE.with_pipeline(deleting_since=NOW), (GO, done), RewindFacts()).decide()
    assert [(update.status.phase, update.status.message) for update in decision.rewinds] == [
        ("Failed", "Over: the pipeline is deleted"), ("Completed", "m"),
    ]  # fmt: skip
    gone = without_pipeline((GO, begun(asked(name="b")), done, replace(GO, deleting_since=NOW)), NOW)
    assert [(update.rewind.key.name, update.status.phase) for update in gone] == [("b", "Failed"), ("back", "Waiting")]
    assert without_pipeline((done, replace(GO, deleting_since=NOW)), NOW) == ()


def test_nothing_is_started_while_the_rewinds_cannot_be_listed() -> None:
    for scene, reason in ((STOPPED, "KubernetesForbidden"), (BEFORE, "Streaming")):
        assert scene.said(rewind="back").seen(rewinds=DENIED).decide().reason == reason
    assert STOPPED.said(rewind="back").seen(rewinds=DENIED).decide().status.rewind == "back"


def test_a_rewind_whose_spec_is_wrong_is_refused_and_one_of_a_pipeline_that_is_not_ready_waits() -> None:
    (wrong,) = seen(BEFORE, (asked({"offsets": {}, "snapshot": "s"}),), RewindFacts()).decide().rewinds
    assert (wrong.status.phase, wrong.status.conditions[1].type) == ("Failed", "Stalled")
    for rewind, phase in ((GO, "Waiting"), (RESOLVED, "Stop")):
        (update,) = seen(BEFORE.seen(fence=SILENT), (rewind,), RewindFacts()).decide().rewinds
        assert update.status.phase == phase


def test_a_cancelled_rewind_leaves_the_pipeline_alone() -> None:
    decision = seen(BEFORE, (replace(GO, deleting_since=NOW),), RewindFacts()).decide()
    assert (decision.reason, decision.action) == ("Streaming", None)
    assert [(update.status, update.events) for update in decision.rewinds] == [(GO.status, ())]


def test_an_image_without_the_command_is_named() -> None:
    """Found before anything is stopped: the exit code is that of a shell, or of the argument parser."""
    unknown = PurgeJob(name="count", is_failed=True, exit_code=2)
    for found, is_named in (
        (unknown, True),
        (replace(unknown, message="m"), False),
        (replace(unknown, exit_code=1), False),
    ):
        (update,) = seen(BEFORE, (PURGES,), job(found)).decide().rewinds
        assert ("does not know the command `fencepost purge`" in update.status.message) is is_named


@pytest.mark.parametrize(
    ("rewind", "due"),
    [
        (GO, None),
        (PURGES, "count"),
        (begun(PURGES), None),
        (DELETES, "purge"),
        (replace(DELETES, status=replace(DELETES.status, epoch=None)), None),
        (begun(PURGES, RewindStep.SET_OFFSETS, target=TARGET), None),
        (asked({"offsets": {}, "snapshot": "s"}), None),
    ],
)
def test_which_job_is_looked_for(rewind: Rewind, due: str | None) -> None:
    name = purge_due(rewind)
    assert (name is None) is (due is None)
    assert name is None or f"-{due}-" in name
