"""Decisions of a stateful pipeline: its batches, its rewinds, and the snapshots that it keeps."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import pytest

from fakes.manifests import body
from fencepost.fence import EMPTY, FenceRow
from fencepost.fence.snapshots import Snapshot, snapshot_id
from fencepost.state.state_check import StateCheck
from fencepost_operator.actions import DropSnapshots, RewindFence, StartPurge
from fencepost_operator.api import (
    Reason,
    ResolvedTarget,
    Revision,
    RewindStep,
    SnapshotsStatus,
    Spec,
)
from fencepost_operator.decision.kafka.snapshots import needs_list, whole_milliseconds
from fencepost_operator.desired.identity.code import code_text
from fencepost_operator.desired.identity.hashes import fingerprints
from fencepost_operator.observation import Began, Known, PurgeJob, RewindFacts, Unknown, UnknownReason, reports_matter
from present import present
from unit.operator.decision.rewind.test_rewind_steps import (
    BACK,
    BEFORE,
    DELETES,
    GO,
    KEPT,
    ROW_READ,
    asked,
    begun,
    job,
    running,
    seen,
)
from unit.operator.decision.rewind.test_rewind_steps import FENCED as TAKEN_OVER
from unit.operator.desired.test_stateful import JOB, pipeline_of, stateful
from unit.operator.scenes import CLUSTER, FAILED, FENCED, LONG_AGO, NOW, RECORDED, ROW, SILENT, WELL, Scene, started


def of_state(scene: Scene) -> Scene:
    """Return the scene of a stateful pipeline, on the cluster that its spec asks for."""
    assert isinstance(scene.observation.fence, Known)
    assert scene.observation.fence.value
    row, asked = scene.observation.fence.value, scene.asked(job=JOB)
    assert isinstance(asked.pipeline.spec, Spec)
    wanted = fingerprints(asked.pipeline.spec, {}).cluster
    return asked.said(cluster=replace(RECORDED, config_hash=wanted)).seen(
        fence=replace(row, checkpoint=b"state"), cluster=replace(CLUSTER, config_hash=wanted)
    )


def test_a_planned_batch_is_repeated_as_a_whole() -> None:
    """What tasks have stored of its state is of all its records."""
    scene = FENCED.seen(fence=replace(ROW, epoch=3, driver=None, version=10, planned={"orders/0": 90}))
    too_large = replace(FAILED, count=1, reason=Reason.OUT_OF_MEMORY, batch_records=40, next_attempt_at=NOW)
    suspect = replace(FAILED, count=3, repeats=3, reason=Reason.BATCH_FAILED, next_attempt_at=NOW)
    for failure, of_a_stateless_run in ((too_large, (20, False)), (suspect, (None, True))):
        for mode, expected in ((scene.asked(), of_a_stateless_run), (of_state(scene), (None, of_a_stateless_run[1]))):
            spec = mode.pipeline.spec
            assert isinstance(spec, Spec)
            config = started(mode.said(failure=replace(failure, spec_hash=fingerprints(spec, {}).run)))
            assert (config.first_batch_limit, config.isolate) == expected


def test_the_progress_of_a_batch_without_records_is_read() -> None:
    """Timers and watermarks have Spark run one: a long one must not look like a run that hangs."""
    row = replace(ROW, planned=ROW.offsets)
    assert not reports_matter(row, by_driver=False)
    assert reports_matter(replace(row, planned_log=b"log"), by_driver=False)


@pytest.mark.parametrize(
    "change", [{"job": {**JOB, "image": "registry.example/job:2"}}, {"state": {"outputMode": "append"}}]
)
def test_a_batch_without_records_is_finished_by_the_code_that_began_it(change: dict[str, Any]) -> None:
    """Its rows are of windows that close, or of timers: other code would write them under other keys."""
    old = of_state(FENCED)
    assert isinstance(old.pipeline.spec, Spec)
    revision = Revision.of("orders", body(job=JOB)["spec"], {})
    planned = replace(
        ROW, epoch=3, driver=None, version=10, checkpoint=b"state", planned=ROW.offsets, planned_log=b"log",
        code=code_text(old.pipeline.spec, {}, revision.name),
    )  # fmt: skip
    new = old.asked(**{"job": JOB, **change}).said(failure=None).seen(fence=planned, began=Began(revision=revision))
    config = started(new)
    assert (config.finish_until, config.code) == (ROW.offsets, planned.code)
    assert present(config.state).output_mode == "update"
    written = new.seen(fence=replace(planned, version=11, planned_log=None)).decide().status
    assert written.finishing is None


def test_a_row_with_the_commits_of_another_mode_is_not_run() -> None:
    """A pipeline was deleted with its row retained, and is created again with another mode."""
    for scene, mode in ((WELL.asked(job=JOB), "Stateless"), (of_state(WELL).asked(), "Stateful")):
        decision = scene.decide()
        assert (decision.reason, decision.action) == (Reason.INVALID_SPEC, None)
        assert f"the commits of a {mode} pipeline. Set it to {mode}" in decision.status.message
    assert of_state(WELL).decide().reason != Reason.INVALID_SPEC
    emptied = of_state(WELL).seen(fence=replace(ROW, checkpoint=EMPTY))
    assert emptied.decide().reason != Reason.INVALID_SPEC, "by a rewind to before the first commit"
    new = WELL.seen(fence=replace(ROW, committed_at=None)).asked(job=JOB)
    assert new.decide().reason != Reason.INVALID_SPEC


FULL: Final = replace(KEPT, offsets=BACK, checkpoint=b"state at 10")
TO_SNAPSHOT: Final = asked({"snapshot": "s"})


WHOLE: Final = StateCheck(files=5, checked=5)
LACKING: Final = StateCheck(files=5, checked=3, missing="chunks of state/0/0/7.zip")


def checked(state: StateCheck | Unknown, snapshot: Snapshot = FULL) -> RewindFacts:
    return RewindFacts(snapshot=Known(snapshot), state=state if isinstance(state, Unknown) else Known(state))


@pytest.mark.parametrize(
    ("facts", "phase", "message"),
    [
        (RewindFacts(snapshot=Known(FULL)), "Waiting", "Waiting for the next observation"),
        (checked(SILENT), "Waiting", "Waiting: "),
        (checked(StateCheck(files=5, checked=3)), "Waiting", ": 3 of 5 files are there"),
        (checked(WHOLE), "Stop", ""),
        (checked(LACKING), "Failed", f"nothing was changed: the state of snapshot {FULL.id} lacks chunks of state/0/0"),
        (RewindFacts(snapshot=Known(replace(FULL, checkpoint=None))), "Stop", ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dry", [False, True])
def test_nothing_is_stopped_for_a_snapshot_whose_files_are_not_all_there(
    dry: bool, facts: RewindFacts, phase: str, message: str
) -> None:
    (update,) = seen(of_state(BEFORE), (asked({"snapshot": "s"}, dryRun=dry),), facts).decide().rewinds
    assert update.status.phase == ("Completed" if dry and phase == "Stop" else phase)
    assert message in update.status.message
    if phase == "Failed":
        assert "restore table checkpoint_chunks" in update.status.message


def test_a_check_of_the_files_continues_where_it_was() -> None:
    facts = checked(StateCheck(files=5, checked=3))
    (update,) = seen(of_state(BEFORE), (TO_SNAPSHOT,), facts).decide().rewinds
    assert (update.status.checked_snapshot, update.status.checked_files) == (str(FULL.id), 3)


@pytest.mark.parametrize(("began", "phase"), [(61, "Completed"), (60, "Check")])
def test_a_rewind_of_the_state_alone_does_not_wait_for_a_commit(began: int, phase: str) -> None:
    """Commits without records leave the offsets as they are, and a quiet topic has no commit at all."""
    target = ResolvedTarget(offsets=dict(ROW.offsets), snapshot=str(KEPT.id))
    placed = begun(TO_SNAPSHOT, RewindStep.SET_OFFSETS, backup="b", target=target, records_to_repeat=0, version=11)
    rewind = running(placed, RewindStep.CHECK, began)
    taken = of_state(TAKEN_OVER)
    claimed = taken.seen(fence=replace(present(fence_of(taken)), version=12))
    (update,) = seen(claimed, (rewind,), RewindFacts(first_commit=Known(None))).decide().rewinds
    assert update.status.phase == phase
    assert ("no records are repeated" in update.status.message) == (phase == "Completed")


@pytest.mark.parametrize("to", [{"offsets": BACK}, {"timestamp": "2026-01-31T12:00:00Z"}])
def test_a_rewind_of_state_by_time_or_offsets_is_refused(to: dict[str, Any]) -> None:
    """No state belongs to such a place but that of a snapshot."""
    facts = RewindFacts(positions=Known(BACK))
    (update,) = seen(of_state(BEFORE), (asked(to),), facts).decide().rewinds
    assert update.status.phase == "Failed"
    assert "nothing was changed" in update.status.message
    assert "has the state only of its snapshots: name one of `fencepost snapshots list`" in update.status.message
    assert "or set spec.emptyState" in update.status.message


@pytest.mark.parametrize("to", [{"offsets": BACK}, {"timestamp": "2026-01-31T12:00:00Z"}, {"snapshot": "s"}])
def test_a_rewind_with_empty_state_sets_the_offsets_alone(to: dict[str, Any]) -> None:
    """Also those of a snapshot, whose files are not needed then."""
    given = asked(to, emptyState=True)
    facts = RewindFacts(positions=Known(BACK), snapshot=Known(FULL), backup=Known(KEPT))
    (update,) = seen(of_state(BEFORE), (given,), facts).decide().rewinds
    assert update.status.phase == "Stop"
    (update,) = seen(of_state(TAKEN_OVER), (begun(given, backup="b"),), facts).decide().rewinds
    target = present(update.status.target)
    assert (target.offsets, target.snapshot) == (BACK, None)
    set_back = begun(given, backup="b", target=target, records_to_repeat=40, version=10)
    action = seen(of_state(TAKEN_OVER), (set_back,), RewindFacts()).decide().action
    assert isinstance(action, RewindFence)
    assert (action.offsets, action.snapshot) == (BACK, None)


@pytest.mark.parametrize(("state", "phase"), [(b"state", "Stop"), (EMPTY, "Completed")])
def test_the_state_is_emptied_at_the_committed_offsets(state: bytes, phase: str) -> None:
    """No record is read again: what was counted so far is left out."""
    here = asked({"offsets": dict(ROW_READ.offsets)}, emptyState=True)
    scene = of_state(BEFORE).seen(fence=replace(ROW_READ, checkpoint=state))
    (update,) = seen(scene, (here,), RewindFacts()).decide().rewinds
    assert update.status.phase == phase


def test_a_pipeline_without_state_has_none_to_empty() -> None:
    (update,) = seen(BEFORE, (asked({"offsets": BACK}, emptyState=True),), RewindFacts()).decide().rewinds
    assert update.status.phase == "Failed"
    assert "leave spec.emptyState out" in update.status.message


def fence_of(scene: Scene) -> FenceRow | None:
    row = scene.observation.fence
    assert isinstance(row, Known)
    return row.value


def test_before_its_first_commit_a_stateful_pipeline_has_no_state_to_set_back() -> None:
    scene = of_state(BEFORE)
    row = scene.observation.fence
    assert isinstance(row, Known)
    new = scene.seen(fence=replace(present(row.value), checkpoint=None, committed_at=None))
    (update,) = seen(new, (GO,), RewindFacts()).decide().rewinds
    assert update.status.phase == "Stop"


def test_a_rewind_to_a_snapshot_sets_its_state_back_with_the_offsets() -> None:
    (update,) = seen(of_state(BEFORE), (TO_SNAPSHOT,), checked(WHOLE)).decide().rewinds
    assert update.status.phase == "Stop"
    taken = of_state(TAKEN_OVER)
    (update,) = seen(
        taken, (begun(TO_SNAPSHOT, backup="b"),), RewindFacts(snapshot=Known(FULL), backup=Known(KEPT))
    ).decide().rewinds  # fmt: skip
    assert present(update.status.target).snapshot == str(FULL.id)
    set_back = begun(TO_SNAPSHOT, backup="b", target=update.status.target, records_to_repeat=40, version=10)
    action = seen(taken, (set_back,), RewindFacts()).decide().action
    assert isinstance(action, RewindFence)
    assert (action.offsets, action.snapshot) == (BACK, str(FULL.id))


@pytest.mark.parametrize(
    ("now", "then", "phase"),
    [
        (b"state", b"earlier", "Stop"), (b"state", None, "Stop"), (EMPTY, b"earlier", "Stop"),
        (b"state", b"state", "Completed"), (EMPTY, None, "Completed"),
    ],
)  # fmt: skip
def test_the_state_moves_without_the_offsets(now: bytes, then: bytes | None, phase: str) -> None:
    """Spark commits batches without records: a watermark moves, and what is due leaves the state."""
    row, facts = replace(ROW_READ, checkpoint=now), checked(WHOLE, replace(KEPT, checkpoint=then))
    (update,) = seen(of_state(BEFORE).seen(fence=row), (TO_SNAPSHOT,), facts).decide().rewinds
    assert update.status.phase == phase


def test_the_version_shows_that_the_state_is_set() -> None:
    target = ResolvedTarget(offsets=dict(ROW.offsets), snapshot=str(KEPT.id))
    rewind = begun(TO_SNAPSHOT, backup="b", target=target, records_to_repeat=0, version=10)
    taken = of_state(TAKEN_OVER)
    decision = seen(taken, (rewind,), RewindFacts()).decide()
    assert isinstance(decision.action, RewindFence)
    done = replace(present(fence_of(taken)), version=11)
    (update,) = seen(taken.seen(fence=done), (rewind,), RewindFacts()).decide().rewinds
    assert (update.status.phase, update.status.version) == ("Resume", 11)


@pytest.mark.parametrize(
    ("found", "phase"),
    [
        (Known(replace(FULL, id=UUID(int=1))), "Purge"), (SILENT, "Purge"),
        (Known(None), "Failed"), (Known(replace(FULL, offsets={"orders/0": 11})), "Failed"),
    ],
)  # fmt: skip
def test_no_output_is_deleted_for_a_snapshot_that_is_gone(found: Any, phase: str) -> None:
    """Afterwards only an earlier snapshot could write again what was deleted."""
    deletes = asked({"snapshot": "s"}, deleteOutput=True)
    target = ResolvedTarget(offsets=BACK, snapshot=str(FULL.id))
    rewind = begun(deletes, backup="b", target=target, records_to_repeat=40, version=10)
    facts = RewindFacts(snapshot=found, job=Known(None))
    decision = seen(of_state(TAKEN_OVER), (rewind,), facts).decide()
    (update,) = decision.rewinds
    assert (update.status.phase, isinstance(decision.action, StartPurge)) == (
        phase,
        phase == "Purge" and found is not SILENT,
    )
    if phase == "Failed":
        assert f"snapshot {FULL.id} does not exist any more" in update.status.message


def test_a_stateless_pipeline_takes_the_offsets_of_a_snapshot_alone() -> None:
    facts = RewindFacts(snapshot=Known(FULL), backup=Known(KEPT))
    (update,) = seen(TAKEN_OVER, (begun(TO_SNAPSHOT, backup="b"),), facts).decide().rewinds
    assert present(update.status.target).snapshot is None


def test_state_is_not_set_back_to_before_a_topic_was_added() -> None:
    """Its records before its committed offsets would be in no state."""
    scene = of_state(BEFORE)
    assert isinstance(scene.observation.fence, Known)
    row = present(scene.observation.fence.value)
    added = replace(
        row, offsets={**row.offsets, "new/0": 5}, planned={**row.planned, "new/0": 5},
        topic_ids={**row.topic_ids, "new": "id-2"},
    )  # fmt: skip
    (update,) = seen(scene.seen(fence=added), (TO_SNAPSHOT,), RewindFacts(snapshot=Known(FULL))).decide().rewinds
    assert update.status.phase == "Failed"
    assert "topic new was added after the snapshot was taken" in update.status.message


def test_the_state_of_a_recreated_topic_is_not_set_back() -> None:
    other = replace(FULL, topic_ids={"orders": "other"})
    (update,) = seen(of_state(BEFORE), (TO_SNAPSHOT,), checked(WHOLE, other)).decide().rewinds
    assert update.status.phase == "Failed"
    assert "topic orders was recreated since the snapshot was taken" in update.status.message


def test_no_snapshot_goes_while_a_rewind_may_need_it() -> None:
    """A deletion of output takes hours; then the state is read from the snapshot."""
    ages = (timedelta(days=400 + number) for number in range(3))
    old = tuple(replace(KEPT, id=snapshot_id(LONG_AGO - age, "s"), version=ROW.version) for age in ages)
    known = {"snapshots": SnapshotsStatus(count=3)}
    assert isinstance(WELL.said(**known).seen(snapshots=old, pinned=frozenset()).decide().action, DropSnapshots)
    deleting = seen(
        TAKEN_OVER.said(**known).seen(snapshots=old, pinned=frozenset()), (DELETES,), job(PurgeJob(name="purge"))
    )
    assert deleting.decide().action is None


def test_a_pinned_snapshot_outlives_retention_and_an_unknown_pin_deletes_nothing() -> None:
    """Each is too old; the newest stays in any case."""
    ages = (timedelta(days=400 + number) for number in range(3))
    old = tuple(replace(KEPT, id=snapshot_id(LONG_AGO - age, "s"), version=ROW.version) for age in ages)
    scene = WELL.said(snapshots=SnapshotsStatus(count=3, oldest_at=old[2].at)).seen(snapshots=old)
    pinned = scene.seen(pinned=frozenset({str(old[2].id)})).decide()
    assert pinned.action == DropSnapshots(ids=(str(old[1].id),))
    known = present(pinned.status.snapshots)
    assert (known.count, known.pinned, known.oldest_at) == (3, 1, whole_milliseconds(old[1].at))
    unknown = Unknown(reason=UnknownReason.UNREACHABLE, message="no answer")
    assert scene.seen(pinned=unknown).decide().action is None
    assert scene.decide().action is None

    both = scene.seen(pinned=frozenset({str(one.id) for one in old[1:]})).decide()
    status = replace(pipeline_of(stateful()).status, snapshots=both.status.snapshots)
    assert both.action is None
    assert not needs_list(replace(pipeline_of(stateful()), status=status), NOW)
