"""The steps of a rewind. The first one whose end the facts do not show is the one that is in progress.

What was decided is recorded before it is done: the epoch before the fence is taken over, the backup's id before it is
written, the target before the offsets are set.  So an operator that restarts at any point continues from the facts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from fencepost.contract.guidance import remedy_of
from fencepost.fence import EMPTY, FenceRow
from fencepost.fence.snapshots import Trigger, snapshot_id
from fencepost_operator.actions import Action, RewindFence, TakeOverFence, TakeSnapshot
from fencepost_operator.api import (
    Reason,
    ResolvedTarget,
    Rewind,
    RewindSpec,
    RewindStatus,
    RewindStep,
    RunStatus,
    State,
    Status,
    StepState,
)
from fencepost_operator.decision.context import RunContext
from fencepost_operator.decision.outcome import Outcome, reconciling, stalled
from fencepost_operator.decision.rewind.purge_jobs import is_purged, ranges, start_count, start_purge, unpurgeable
from fencepost_operator.decision.rewind.step_status import Progress, completed, failed, reached, waiting
from fencepost_operator.decision.rewind.target import check as check_target
from fencepost_operator.decision.rewind.target import check_snapshot, records_to_repeat, resolve
from fencepost_operator.decision.rules.restart import unconfirmed_run_is_not_deleted
from fencepost_operator.decision.run.confirmation import how_to_prove, is_confirmed, proof_is_late
from fencepost_operator.decision.run.diagnosis import diagnose_pod_issue
from fencepost_operator.decision.run.open_batch import left_open
from fencepost_operator.decision.run.stop import stop_run
from fencepost_operator.decision.wording import detail, listed, with_remedy
from fencepost_operator.desired.jobs.purge_job import UNKNOWN_COMMAND
from fencepost_operator.observation import Known, NotAsked, PodIssue, PurgeJob, RewindFacts, Unknown, Unseen

HISTORY_PATIENCE: Final = timedelta(seconds=60)
"""After the first commit, until the history counts as having lost it: records are appended after the change."""
STEP_PATIENCE: Final = timedelta(minutes=5)
"""How long a step that keeps the pipeline stopped may take before it counts as late: most take seconds."""
PURGE_PATIENCE: Final = 10
"""How many times longer than counting the rows their deletion may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindContext:
    """One rewind at one moment, and its pipeline."""

    run: RunContext
    rewind: Rewind
    spec: RewindSpec

    @property
    def now(self) -> datetime:
        """When the observation was made."""
        return self.run.now

    @property
    def row(self) -> FenceRow:
        """The pipeline's fence row."""
        return self.run.row

    @property
    def status(self) -> RewindStatus:
        """The rewind's recorded status."""
        return self.rewind.status

    @property
    def facts(self) -> RewindFacts:
        """What was observed for the rewind."""
        return self.run.observation.rewind


def is_set(status: RewindStatus) -> bool:
    """Return whether it is recorded that the offsets were set: the pipeline continues from them."""
    return status.has_done(RewindStep.SET_OFFSETS)


def advance(context: RewindContext) -> Progress:
    """Return what the step in progress concludes; a rewind that can no longer be cancelled stays so until it is set."""
    progress = next(progress for step in STEPS if (progress := step(context)) is not None)
    is_over = progress.status.is_finished or is_set(progress.status)
    return replace(progress, held=not is_over and (progress.held or context.rewind.is_held))


def preflight(context: RewindContext) -> Progress | None:
    """Refuse before anything is stopped what could not be carried through."""
    if context.status.has_begun:
        return None
    if context.spec.delete_output and (violations := unpurgeable(context.run)):
        return _refused(context, violations)
    target = _target(context)
    if isinstance(target, Progress):
        return target
    if target.snapshot is not None and (unchecked := _check_state(context, target.snapshot)) is not None:
        return unchecked
    if context.spec.delete_output:
        return _count(context, target)
    return _dry(context, target) if context.spec.dry_run else None


def _check_state(context: RewindContext, snapshot: str) -> Progress | None:
    """Refuse a snapshot whose state is gone, while the pipeline runs; None once all of its files were seen.

    Nothing deletes them afterwards: they are reached by the snapshot, and then by the row.
    """
    found = context.facts.snapshot
    if isinstance(found, Known) and found.value is not None and found.value.checkpoint is None:
        return None
    state = context.facts.state
    if not isinstance(state, Known):
        return Progress(status=waiting(context.rewind, _why_unknown(state), context.now))
    if state.value.missing:
        return _refused(context, (_incomplete(snapshot, state.value.missing),))
    if state.value.is_done:
        return None
    status = replace(context.status, checked_snapshot=snapshot, checked_files=state.value.checked)
    message = f"Checking the state of snapshot {snapshot}: {state.value.checked} of {state.value.files} files are there"
    return Progress(status=waiting(replace(context.rewind, status=status), message, context.now))


def _incomplete(snapshot: str, missing: str) -> str:
    return (
        f"the state of snapshot {snapshot} lacks {missing}: restore table checkpoint_chunks from its backup, or name"
        " another snapshot of `fencepost snapshots list`"
    )


def _count(context: RewindContext, target: ResolvedTarget) -> Progress | None:
    """Count the rows to delete while the pipeline runs: it shows that every table can be purged, and how long it takes.

    From the count on, the target may move on with the pipeline's commits; it is fixed once the fence is taken over.
    """
    job = context.facts.job
    if not isinstance(job, Known):
        return Progress(status=waiting(context.rewind, _why_unknown(job), context.now))
    if job.value is None:
        status = _reached(context, RewindStep.COUNT, "Counting the rows to delete")
        return Progress(status=status, aside=start_count(context.run, context.rewind, target))
    report = job.value.report
    if job.value.is_failed or (job.value.is_done and report is None):
        return _refused(context, (_why_failed(context, job.value, "the rows to delete could not be counted"),))
    if report is None:
        return Progress(status=_counting(context, job.value))
    fresh = replace(context.status, rows_to_delete=report.rows, estimated_seconds=report.seconds)
    if context.spec.dry_run:
        return _dry(context, target, fresh)
    return stop(replace(context, rewind=replace(context.rewind, status=fresh)))


def _counting(context: RewindContext, job: PurgeJob) -> RewindStatus:
    what = "Counting the rows"
    if job.issue is not None:
        return _held_up(context, RewindStep.COUNT, what, job.issue)[0]
    return _reached(context, RewindStep.COUNT, _in_progress(what, job))


def stop(context: RewindContext) -> Progress | None:
    """Stop the run gracefully, then take the fence over: whatever still lives can commit no more."""
    if is_set(context.status):
        return None
    run, row = context.run.active_run, context.row
    if run is not None:
        outcome = stop_run(context.run, run, why="Rewinding", reason=Reason.REWINDING, state=State.REWINDING)
        return Progress(status=_reached(context, RewindStep.STOP, outcome.message), outcome=outcome)
    is_taken = row.epoch == context.status.epoch and row.driver is None and row.owner == context.run.owner
    if is_taken:
        return None
    message = f"Taking over the fence: epoch {row.epoch + 1} has no driver while the pipeline is rewound"
    is_unclaimed = row.driver is None  # the version keeps it so until the fence is taken over
    fresh = replace(
        context.status,
        epoch=row.epoch + 1,
        unclaimed_epoch=row.epoch if is_unclaimed else None,
        version=None,
        backup=None,
        held_state=None,
        target=None,
    )
    action = TakeOverFence(epoch=row.epoch, version=row.version if is_unclaimed else None, owner=context.run.owner)
    return _working(context, RewindStep.STOP, message, action=action, status=fresh)


def back_up(context: RewindContext) -> Progress | None:
    """Copy the fence row into a snapshot."""
    if is_set(context.status) or context.status.target is not None:
        return None
    status, backup = context.status, context.facts.backup
    if status.backup is not None and isinstance(backup, Known) and backup.value is not None:
        return None
    found = status.backup or str(snapshot_id(context.now, context.rewind.uid, Trigger.REWIND))
    action = TakeSnapshot(id=found, trigger=Trigger.REWIND, name="", owner=context.run.owner)
    message = f"Copying the fence row to snapshot {found}"
    if isinstance(backup, Unknown):
        return _working(context, RewindStep.BACK_UP, f"{message}: {_why_unknown(backup)}")
    fresh = replace(status, backup=found)
    return _working(context, RewindStep.BACK_UP, message, action=action, status=fresh)


def resolve_target(context: RewindContext) -> Progress | None:
    """Record where the pipeline goes back to, checked against what is committed now that nothing moves any more."""
    if context.status.target is not None:
        return None
    target = _target(context)
    if isinstance(target, Progress):
        return target
    if target.snapshot is not None and context.spec.delete_output:
        if (holding := _hold(context, target.snapshot)) is not None:
            return holding
        target = replace(target, snapshot=context.status.held_state)
    count = records_to_repeat(context.row, target)
    fresh = replace(context.status, target=target, records_to_repeat=count, version=context.row.version)
    return _working(context, RewindStep.RESOLVE, f"{count} records will be repeated", status=fresh)


def _hold(context: RewindContext, snapshot: str) -> Progress | None:
    """Copy the snapshot whose state is to be set; None once the copy is there.

    A deletion of the snapshot itself may be on its way: one that retention has sent before the rewind began.
    """
    status, seen = context.status, context.facts.held
    if status.held_state is not None and isinstance(seen, Known) and seen.value is not None:
        return None
    found = status.held_state or str(snapshot_id(context.now, context.rewind.uid, Trigger.REWIND, snapshot))
    message = f"Copying snapshot {snapshot}, whose state is to be set, to snapshot {found}"
    if isinstance(seen, Unknown):
        return _working(context, RewindStep.RESOLVE, f"{message}: {_why_unknown(seen)}")
    action = TakeSnapshot(id=found, trigger=Trigger.REWIND, name="", owner=context.run.owner, of=snapshot)
    fresh = replace(status, held_state=found)
    return _working(context, RewindStep.RESOLVE, message, action=action, status=fresh)


def purge(context: RewindContext) -> Progress | None:
    """Delete the output beyond the target, and look whether anything is left."""
    target, job = context.status.target, context.facts.job
    if is_set(context.status) or target is None or not context.spec.delete_output or _has_moved(context):
        return None
    run = context.run.unconfirmed_run
    never_wrote = run is not None and run.epoch == context.status.unclaimed_epoch
    if run is not None and not never_wrote and not is_confirmed(context.run, run):
        return _without_proof(context, run)
    if not isinstance(job, Known):
        return _working(context, RewindStep.PURGE, _why_unknown(job))
    if job.value is None and not context.rewind.is_held and (found := _unrepeatable(context, target)) is not None:
        return found
    if job.value is None:
        action = start_purge(context.run, context.rewind, target)
        progress = _working(context, RewindStep.PURGE, "Deleting the output beyond the target", action=action)
    elif job.value.is_failed or (job.value.is_done and not is_purged(job.value)):
        progress = _purge_failed(context, _why_failed(context, job.value, "output could not be deleted"))
    elif is_purged(job.value):
        return None
    elif job.value.issue is not None:
        status, outcome = _held_up(context, RewindStep.PURGE, "Deleting the output", job.value.issue)
        progress = Progress(status=status, outcome=outcome)
    else:
        progress = _working(context, RewindStep.PURGE, _in_progress("Deleting the output", job.value))
    return replace(progress, held=True)


def set_offsets(context: RewindContext) -> Progress | None:
    """Set the offsets by one conditional update; the pipeline's failures of before do not count any more."""
    row, target = context.row, context.status.target
    if is_set(context.status) or target is None:
        return None
    if _has_moved(context):
        message = f"The offsets are set in epoch {row.epoch}, {context.status.records_to_repeat} records back"
        outcome = _outcome(context, message, status=replace(context.run.status, failure=None))
        status = replace(context.status, version=row.version)
        return Progress(status=_reached(context, RewindStep.RESUME, message, status=status), outcome=outcome)
    if context.spec.delete_output and (lost := _lost_state(context, target)) is not None:
        return lost
    action = RewindFence(
        epoch=row.epoch,
        version=row.version,
        offsets=target.offsets,
        leader_epochs=target.leader_epochs,
        growth_barrier=target.growth_barrier,
        keeps_output=not context.spec.delete_output,
        snapshot=target.snapshot,
    )
    message = f"Setting the offsets {context.status.records_to_repeat} records back"
    status = _reached(context, RewindStep.SET_OFFSETS, message)
    outcome = _outcome(context, message, action=action, status=_with_what_stays(context, target))
    return Progress(status=status, outcome=outcome, held=True)


def _lost_state(context: RewindContext, target: ResolvedTarget) -> Progress | None:
    """Name the deleted rows whose records cannot be read again with the state of before; None with the snapshot."""
    gone = check_snapshot(target, context.facts.snapshot)
    if isinstance(gone, Unseen) or not gone:
        return None
    deleted = listed(
        [
            f"{key}: {start} to {until - 1}"
            for key, (start, until) in ranges(context.row, context.run.status, target).items()
        ]
    )
    message = with_remedy(
        f"{gone[0]}; the output of these offsets is deleted: {deleted}",
        "delete this PipelineRewind with its finalizer, and create one to an earlier snapshot, or with emptyState to"
        " offsets at or before these",
    )
    status = reached(
        context.rewind, context.status, RewindStep.SET_OFFSETS, message, context.now, reason=Reason.PURGE_FAILED
    )
    named = f"PipelineRewind {context.rewind.key.name}: {message}"
    return Progress(status=status, outcome=stalled(context.run, Reason.PURGE_FAILED, named), held=True)


def _with_what_stays(context: RewindContext, target: ResolvedTarget) -> Status:
    """Return the pipeline's status with what stays of the batch that is being finished.

    Its rows are there unless the output was deleted.  It is recorded before the offsets are set; of any other open
    batch the fence row keeps the ends.
    """
    if context.spec.delete_output:
        return replace(context.run.status, finishing=None)
    return left_open(context.run, target.offsets)


def resume(context: RewindContext) -> Progress | None:
    """Wait for the run that begins at the target; the pipeline's own rules start it."""
    if context.run.spec.suspend:
        message = "The offsets are set; the pipeline is suspended and continues from them once spec.suspend is false"
        return Progress(status=completed(context.rewind, context.status, message, context.now))
    if context.row.version != context.status.version:
        return None
    return Progress(status=_reached(context, RewindStep.RESUME, "Waiting for the next run to claim the fence"))


def check(context: RewindContext) -> Progress:
    """Compare where the first commit began, by the fence's history, with the target."""
    first, target = context.facts.first_commit, context.status.target
    status = _reached(context, RewindStep.CHECK, "Comparing the first commit with the target")
    if not isinstance(first, Known):
        return Progress(status=_reached(context, RewindStep.CHECK, _why_unknown(first)))
    wanted = target.offsets if target is not None else {}
    if first.value is None:
        return _without_history(context)
    if other := sorted(key for key, offset in wanted.items() if first.value.get(key) != offset):
        message = with_remedy(
            f"The first commit did not begin at the target, for {listed(other)}",
            "look at the history with `fencepost fence history`; to go back again, create another PipelineRewind",
        )
        return Progress(status=failed(context.rewind, status, message, context.now))
    count = context.status.records_to_repeat
    message = f"Rewound: the first commit began at the target, {count} records back"
    return Progress(status=completed(context.rewind, status, message, context.now))


STEPS: Final[tuple[Callable[[RewindContext], Progress | None], ...]] = (
    preflight,
    stop,
    back_up,
    resolve_target,
    purge,
    set_offsets,
    resume,
    check,
)


def _without_history(context: RewindContext) -> Progress:
    """Wait for the first commit, and for its record; a history that has lost it ends the wait.

    Where a rewind sets the state alone, the commits after it may leave the offsets where they are, and a topic without
    new records may have none.
    """
    target, step = context.status.target, context.status.step(RewindStep.CHECK)
    is_moved = target is not None and any(context.row.offsets.get(key) != end for key, end in target.offsets.items())
    repeats_nothing = context.status.records_to_repeat == 0
    began = step.started_at if step is not None and step.state is StepState.RUNNING else context.now
    if not (is_moved or repeats_nothing) or context.now - began <= HISTORY_PATIENCE:
        return Progress(status=_reached(context, RewindStep.CHECK, "Waiting for the first commit"))
    message = "Rewound: the pipeline commits; the history has not kept the first commit, so its start is unchecked"
    if not is_moved:
        message = "Rewound: the state is set and a run has claimed it; no records are repeated, so no commit is awaited"
    return Progress(status=completed(context.rewind, context.status, message, context.now))


def _target(context: RewindContext) -> ResolvedTarget | Progress:
    """Return where to go back to, or what is concluded where that is unknown, wrong, or where the pipeline is."""
    found = resolve(context.spec, context.row, context.run.observation.source, context.facts)
    if isinstance(found, Unseen):
        why = _why_unknown(found)
        if context.status.has_begun:
            return _working(context, RewindStep.RESOLVE, why)
        return Progress(status=waiting(context.rewind, why, context.now))
    if not isinstance(found, ResolvedTarget):
        return _refused(context, found)
    return _needless(context) if _is_where_it_goes(context, found) else found


def _unrepeatable(context: RewindContext, target: ResolvedTarget) -> Progress | None:
    """Refuse to delete rows that cannot be written again.

    While the purge waited, Kafka may have deleted the records, and a user the snapshot.
    """
    found = check_snapshot(target, context.facts.snapshot)
    found = found or check_target(target, context.row, context.run.observation.source)
    if isinstance(found, Unseen):
        return _working(context, RewindStep.PURGE, _why_unknown(found))
    return _refused(context, found) if found else None


def _without_proof(context: RewindContext, run: RunStatus) -> Progress:
    """Delete what is left of a run that may still write, then wait for proof of its end or a user's confirmation.

    A run whose pod was seen counts as asked to stop, so that a node that has had its grace period proves the end.
    """
    waiting_for = f"Waiting for proof that the driver of {run.name} has ended: it may still write output"
    cancel = "" if context.rewind.is_held else "; or delete the PipelineRewind, and the pipeline continues as before"
    message = with_remedy(waiting_for, f"{how_to_prove(context.run, run)}{cancel}")
    if deletion := unconfirmed_run_is_not_deleted(context.run):
        outcome = _outcome(context, waiting_for, action=deletion.action, status=deletion.status)
        return Progress(status=_reached(context, RewindStep.PURGE, waiting_for), outcome=outcome)
    if run.pod_uid is not None and run.stop_requested_at is None:
        run = replace(run, stop_requested_at=context.now)
    if not proof_is_late(context.run, run):
        outcome = _outcome(context, waiting_for, status=replace(context.run.status, run=run))
        return Progress(status=_reached(context, RewindStep.PURGE, waiting_for), outcome=outcome)
    outcome = _outcome(context, message, status=replace(context.run.status, run=run))
    reason = Reason.DEATH_UNPROVEN
    status = reached(context.rewind, context.status, RewindStep.PURGE, message, context.now, reason=reason)
    return Progress(status=status, outcome=replace(outcome, reason=reason, warning=True))


def _held_up(context: RewindContext, step: RewindStep, what: str, issue: PodIssue) -> tuple[RewindStatus, Outcome]:
    """Return the status of a step whose pod cannot start: the step continues as soon as the cause is gone."""
    found = diagnose_pod_issue(issue)
    message = with_remedy(f"{what}: {found.message}", found.remedy)
    status = reached(context.rewind, context.status, step, message, context.now, reason=found.category)
    return status, replace(_outcome(context, message), reason=found.category, warning=True)


def _purge_failed(context: RewindContext, why: str) -> Progress:
    status = reached(context.rewind, context.status, RewindStep.PURGE, why, context.now, reason=Reason.PURGE_FAILED)
    named = f"PipelineRewind {context.rewind.key.name}: {why}"
    return Progress(status=status, outcome=stalled(context.run, Reason.PURGE_FAILED, named))


def _why_failed(context: RewindContext, job: PurgeJob, what: str) -> str:
    namespace = context.rewind.key.namespace
    if not job.message and job.exit_code in UNKNOWN_COMMAND:
        return with_remedy(
            f"{what}: the image of spec.job.image does not know the command `fencepost purge`, and ended with exit code"
            f" {job.exit_code}",
            "set spec.job.image to an image of the operator's release or newer",
            f"kubectl delete job --namespace {namespace} {job.name} tries again" if context.status.has_begun else "",
        )
    why = detail(job.message) or f"its pod did not say why, and ended with exit code {job.exit_code}"
    return with_remedy(
        f"{what}: {why}",
        f"kubectl logs --namespace {namespace} job/{job.name} has more",
        f"kubectl delete job --namespace {namespace} {job.name} tries again" if context.status.has_begun else "",
    )


def _in_progress(what: str, job: PurgeJob) -> str:
    return f"{what}: {detail(job.message)}" if job.message else f"{what} in {job.name}"


def _dry(context: RewindContext, target: ResolvedTarget, status: RewindStatus | None = None) -> Progress:
    status = status or context.status
    count = records_to_repeat(context.row, target)
    rows = f", {status.rows_to_delete} rows deleted" if status.rows_to_delete is not None else ""
    status = replace(status, target=target, records_to_repeat=count)
    message = f"Dry run: {count} records would be repeated{rows}; nothing is changed"
    return Progress(status=completed(context.rewind, status, message, context.now))


def _needless(context: RewindContext) -> Progress:
    message = "Nothing to do: the target is what is committed"
    return Progress(status=completed(context.rewind, context.status, message, context.now))


def _refused(context: RewindContext, violations: tuple[str, ...]) -> Progress:
    effect = "the pipeline continues from its last commit" if context.status.has_begun else "nothing was changed"
    message = with_remedy(
        f"Refused, {effect}: {detail('; '.join(violations))}", "create another PipelineRewind with what is right"
    )
    return Progress(status=failed(context.rewind, context.status, message, context.now))


def _working(
    context: RewindContext,
    step: RewindStep,
    message: str,
    *,
    action: Action | None = None,
    status: RewindStatus | None = None,
) -> Progress:
    """Conclude that a step is in progress, and that the pipeline does nothing but this; one that is late says so."""
    found, outcome = _reached(context, step, message, status=status), _outcome(context, message, action=action)
    since, patience = _begun_at(found, step), _patience(context, step)
    if context.now - since < patience:
        return Progress(status=found, outcome=outcome)
    minutes, reason = int((context.now - since).total_seconds() // 60), Reason.REWIND_LATE
    late = with_remedy(f"{message} (this step has taken {minutes} min)", remedy_of(reason))
    found = reached(context.rewind, found, step, late, context.now, reason=reason)
    return Progress(status=found, outcome=replace(_outcome(context, late, action=action), reason=reason, warning=True))


def _begun_at(status: RewindStatus, step: RewindStep) -> datetime:
    """Return when a step began that is in progress."""
    return next(found.started_at for found in status.steps if found.name == step)


def _patience(context: RewindContext, step: RewindStep) -> timedelta:
    counted = context.status.estimated_seconds
    if step is not RewindStep.PURGE or counted is None:
        return STEP_PATIENCE
    return max(STEP_PATIENCE, timedelta(seconds=PURGE_PATIENCE * counted))


def _outcome(
    context: RewindContext, message: str, *, action: Action | None = None, status: Status | None = None
) -> Outcome:
    named = f"PipelineRewind {context.rewind.key.name}: {message}"
    return reconciling(context.run, Reason.REWINDING, named, state=State.REWINDING, action=action, status=status)


def _reached(
    context: RewindContext, step: RewindStep, message: str, *, status: RewindStatus | None = None
) -> RewindStatus:
    return reached(context.rewind, status or context.status, step, message, context.now)


def _is_where_it_goes(context: RewindContext, target: ResolvedTarget) -> bool:
    """Return whether the row has the target's offsets and its state: Spark also commits batches without records."""
    row, snapshot = context.row, context.facts.snapshot
    if dict(target.offsets) != dict(row.offsets):
        return False
    if context.spec.empty_state:
        return row.checkpoint == EMPTY
    if target.snapshot is None or not isinstance(snapshot, Known) or snapshot.value is None:
        return target.snapshot is None
    return (snapshot.value.checkpoint or EMPTY) == row.checkpoint


def _has_moved(context: RewindContext) -> bool:
    """Return whether the offsets are set: in the rewind's epoch nothing else changes the row."""
    return context.status.version not in {None, context.row.version}


def _why_unknown(unknown: Unseen) -> str:
    if isinstance(unknown, NotAsked):
        return "Waiting for the next observation"
    return with_remedy(f"Waiting: {detail(unknown.message)}", unknown.remedy)
