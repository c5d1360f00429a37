"""Single steps of a rewind, as decisions."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from fakes.manifests import KEY, body
from fencepost.fence import FenceRow
from fencepost_operator.actions import StopRun, TakeOverFence
from fencepost_operator.api import (
    CONFIRM_DEAD_ANNOTATION,
    FINALIZER,
    EventType,
    Reason,
    ReconcileConfig,
    ResolvedTarget,
    RewindSpec,
    RunStatus,
    Spec,
    State,
    Status,
    read_pipeline,
    read_rewind,
)
from fencepost_operator.decision.context import Context, RunContext
from fencepost_operator.decision.decide import prepare
from fencepost_operator.decision.outcome import Outcome
from fencepost_operator.decision.rewind.machine import RewindContext, purge, stop
from fencepost_operator.decision.rewind.step_status import RewindUpdate
from fencepost_operator.observation import Known, RewindFacts, Run, Watermarks
from present import present
from unit.operator.scenes import WELL

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SEEN = WELL.observation
GIVEN_UP = RunStatus(
    name="orders-run-2", epoch=2, spec_hash="a", cluster_generation=1, recorded_at=NOW - timedelta(minutes=5),
    created_at=NOW - timedelta(minutes=5), pod_uid="pod-2", ended_at=NOW - timedelta(seconds=5), dead=False,
)  # fmt: skip
JOB = Run(
    name="orders-run-2", epoch=2, spec_hash="a", cluster_generation=1, created_at=NOW - timedelta(minutes=5),
    deleting=False, finished=False, pod=None, had_pod=True,
)  # fmt: skip


LATE = replace(GIVEN_UP, stop_requested_at=NOW - timedelta(minutes=5), termination_grace=30)
"""Asked to stop for longer than its grace period."""


def purging(job: Run | None, ended: RunStatus = GIVEN_UP) -> RewindContext:
    """Return a rewind that deletes output next, after a run that was given up."""
    pipeline = replace(read_pipeline(body()), finalizers=(FINALIZER,), status=Status(epoch=3, run=ended))
    assert isinstance(pipeline.spec, Spec)
    row = FenceRow(
        pipeline="default/shop/orders",
        owner="cluster-1/uid-1",
        epoch=3,
        offsets={"orders/0": 50},
        topic_ids={"orders": "id-orders"},
    )
    log = Watermarks(ends={"orders/0": 60}, starts={"orders/0": 0}, topic_ids=row.topic_ids)
    runs = Known((job,) if job is not None else ())
    observation = replace(
        SEEN, now=NOW, release=Known(None), cluster=Known(None), runs=runs, fence=Known(row), source=Known(log),
        rewind=RewindFacts(job=Known(None)),
        stop_measured_since=ended.stop_requested_at,
        node_measured_since=ended.stop_requested_at,
    )  # fmt: skip
    config = ReconcileConfig(cluster_uid="cluster-1")
    run = prepare(Context(pipeline=pipeline, status=pipeline.status, observation=observation, config=config))
    assert isinstance(run, RunContext)
    metadata = {"namespace": KEY.namespace, "name": "back", "uid": "uid-9", "creationTimestamp": NOW.isoformat()}
    asked = read_rewind({"metadata": metadata, "spec": {"pipeline": KEY.name, "to": {"offsets": {"orders/0": 10}}}})
    assert isinstance(asked.spec, RewindSpec)
    status = replace(asked.status, epoch=3, target=ResolvedTarget(offsets={"orders/0": 10}))
    return RewindContext(run=run, rewind=replace(asked, status=status), spec=asked.spec)


def outcome_of(context: RewindContext) -> Outcome:
    return present(present(purge(context)).outcome)


def test_the_job_of_a_run_that_was_given_up_is_deleted_before_its_output_is() -> None:
    """Found by the simulation, seed 40214: the rewind waited for a proof that only the Job's deletion gives."""
    found = outcome_of(purging(JOB))
    assert (found.action, found.state) == (StopRun(name="orders-run-2"), State.REWINDING)
    assert present(found.status.run).stop_requested_at == NOW


def test_a_job_that_is_being_deleted_is_waited_for() -> None:
    assert outcome_of(purging(replace(JOB, deleting=True))).action is None


def test_a_wait_for_a_confirmation_is_reported_as_one() -> None:
    """Found by the simulation, seed 7023: the wait counted as a step that a user asked for, which never pages."""
    early = outcome_of(purging(None))
    assert (early.reason, early.warning) == (Reason.REWINDING, False), "the proof is on its way"
    waiting = purging(None, LATE)
    found, outcome = present(purge(waiting)), outcome_of(waiting)
    assert (outcome.reason, outcome.state, outcome.action) == (Reason.DEATH_UNPROVEN, State.REWINDING, None)
    assert outcome.warning
    assert "delete the PipelineRewind" in outcome.message
    assert [(c.type, c.reason) for c in found.status.conditions] == [
        ("Ready", Reason.DEATH_UNPROVEN), ("Reconciling", Reason.DEATH_UNPROVEN),
    ]  # fmt: skip
    update = RewindUpdate(rewind=waiting.rewind, status=found.status)
    assert [(event.type, event.reason) for event in update.events] == [(EventType.WARNING, Reason.DEATH_UNPROVEN)]
    held = present(purge(replace(waiting, rewind=replace(waiting.rewind, finalizers=(FINALIZER,)))))
    assert "delete the PipelineRewind" not in held.status.message, "it can no longer be cancelled"


def test_the_node_of_a_pod_that_was_seen_may_prove_its_end() -> None:
    """A Job that another client deleted: its run counts as asked to stop, and its node's grace period begins.

    Where the pod was never seen, nothing proves anything, and to count it as asked to stop would be a false proof.
    """
    seen = purging(None)
    run, status = seen.run, seen.run.status
    never_seen = replace(run, status=replace(status, run=replace(GIVEN_UP, pod_uid=None)))
    for context, asked in ((seen, NOW), (replace(seen, run=never_seen), None)):
        assert present(outcome_of(context).status.run).stop_requested_at == asked


def test_a_user_may_confirm_that_the_driver_of_a_lost_machine_is_dead() -> None:
    """Deleting the Node object proves nothing: Kubernetes then deletes the node's pods, ended or not."""
    waiting = purging(replace(JOB, deleting=True), LATE)
    found = present(purge(waiting))
    assert f"{CONFIRM_DEAD_ANNOTATION}=orders-run-2" in found.status.message
    assert "Node object" not in found.status.message
    said = replace(waiting.run.pipeline, annotations={CONFIRM_DEAD_ANNOTATION: "orders-run-2"})
    confirmed = replace(waiting, run=replace(waiting.run, pipeline=said))
    assert outcome_of(confirmed).action is not None, "the output is deleted"


def test_the_driver_of_an_epoch_without_a_claim_has_written_nothing() -> None:
    """Found by the simulation, seed 23458: the Job of a run that had just started was deleted, and proved nothing."""
    waiting = purging(replace(JOB, deleting=True))
    found = purge(replace(waiting, rewind=replace(waiting.rewind, status=replace(waiting.status, unclaimed_epoch=2))))
    assert "proof" not in present(found).status.message
    before = waiting.row
    for driver, version in ((None, before.version), ("pod-1", None)):
        row = replace(before, epoch=2, driver=driver)
        running = replace(waiting.run, row=row, observation=replace(waiting.run.observation, fence=Known(row)))
        taken = present(stop(replace(waiting, run=running)))
        assert present(taken.outcome).action == TakeOverFence(epoch=2, version=version, owner=running.owner)
        assert (taken.status.epoch, taken.status.unclaimed_epoch) == (3, 2 if driver is None else None)
