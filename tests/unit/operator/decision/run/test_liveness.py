"""Whether a driver is dead: what proves it, and what does not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from fencepost.fence import FenceRow
from fencepost_operator.api import RunStatus
from fencepost_operator.decision.run.liveness import liveness_of
from fencepost_operator.observation import (
    DriverPod,
    Fact,
    Known,
    Liveness,
    NodeState,
    NotAsked,
    Observation,
    References,
    Run,
    Unknown,
    UnknownReason,
    Watermarks,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MARGIN = 30.0
GRACE = 60
ALIVE, DEAD, UNKNOWN = Liveness.ALIVE, Liveness.DEAD, Liveness.UNKNOWN
SILENT = Unknown(reason=UnknownReason.UNREACHABLE, message="no answer")
READY = NodeState(name="node-1", uid="node-uid", ready=True)

POD = DriverPod(
    name="p", uid="pod-2", phase="Running", node="node-1", node_uid="node-uid", node_ready=True, started_at=NOW,
    deleting_since=None, exit_code=None, termination_reason=None, finished_at=None, verdict=None, issue=None,
)  # fmt: skip
JOB = Run(
    name="orders-run-2", epoch=2, spec_hash="h", cluster_generation=1, created_at=NOW, deleting=False, finished=False,
    pod=POD, termination_grace=GRACE, had_pod=True,
)  # fmt: skip
UNSEEN = RunStatus(
    name="orders-run-2", epoch=2, spec_hash="h", cluster_generation=1, recorded_at=NOW, created_at=NOW,
    termination_grace=GRACE,
)  # fmt: skip
SEEN = replace(UNSEEN, pod_uid="pod-2", node_name="node-1", node_uid="node-uid", claimed_at=NOW)
UNPLACED = replace(SEEN, node_name=None, node_uid=None, claimed_at=None)
"""Its pod was seen before it had a node."""
FREE = FenceRow(pipeline="p", owner="o", epoch=2, driver=None)
HELD = replace(FREE, driver="pod-2")
OURS: Fact[FenceRow | None] = Known(HELD)
NODE: Fact[NodeState] = Known(READY)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


LONG_AGO = ago(600)
STOPPING = replace(SEEN, stop_requested_at=LONG_AGO)
"""It was asked to stop, and by the recorded time its grace period is over."""


@dataclass(frozen=True)
class Case:
    """What was recorded, what is seen, and what follows."""

    liveness: Liveness | None
    run: RunStatus = SEEN
    job: Run | None = None
    fence: Fact[FenceRow | None] = OURS
    node: Fact[NodeState] | NotAsked = NODE
    terminated: bool = False
    measured: datetime | None = None
    """Since when this process has known that the run was asked to stop."""
    seen: datetime | None = LONG_AGO
    """Since when it has seen the node in its state."""


CASES: dict[str, Case] = {
    "runs": Case(ALIVE, job=JOB),
    "its container ended": Case(DEAD, job=replace(JOB, pod=replace(POD, phase="Failed", exit_code=1))),
    "its container ended, its node is lost": Case(
        DEAD, job=replace(JOB, pod=replace(POD, exit_code=1, node_ready=False))
    ),
    "pod failed without a word, node Ready": Case(DEAD, job=replace(JOB, pod=replace(POD, phase="Failed"))),
    "pod failed without a word, deleted by force": Case(
        UNKNOWN, job=replace(JOB, pod=replace(POD, phase="Failed", force_deleted=True))
    ),
    "orphaned": Case(UNKNOWN, job=replace(JOB, deleting=True, orphaned=True)),
    "orphaned, then asked to stop": Case(
        UNKNOWN, run=replace(SEEN, stop_requested_at=ago(1)), job=replace(JOB, deleting=True, orphaned=True)
    ),
    # it was asked to stop
    "stops in time": Case(ALIVE, run=STOPPING, measured=ago(80), job=replace(JOB, deleting=True)),
    "does not stop": Case(UNKNOWN, run=STOPPING, measured=ago(100), job=replace(JOB, deleting=True)),
    "stops within its own grace period, longer than the new spec's": Case(
        ALIVE, run=STOPPING, measured=ago(300), job=replace(JOB, deleting=True, termination_grace=600)
    ),
    # its pod is gone
    "gone, never seen to end": Case(UNKNOWN),
    "gone, its end was watched": Case(DEAD, terminated=True),
    "gone, its end was watched on a node that is lost by now": Case(DEAD, terminated=True, node=NotAsked()),
    "gone before its grace period was over": Case(UNKNOWN, run=STOPPING, measured=ago(GRACE - 1)),
    "gone after its grace period": Case(DEAD, run=STOPPING, measured=ago(GRACE)),
    "gone after its grace period by the clock of another operator": Case(UNKNOWN, run=STOPPING, measured=NOW),
    "gone after the grace period of another run": Case(UNKNOWN, measured=ago(GRACE)),
    "gone while its node was away, which has just come back": Case(
        UNKNOWN, run=STOPPING, measured=ago(600), seen=ago(GRACE - 1)
    ),
    "gone while its node was away, which has had the grace period since": Case(
        DEAD, run=STOPPING, measured=ago(600), seen=ago(GRACE)
    ),
    "gone, its node is back, by another clock for long": Case(
        UNKNOWN, run=STOPPING, measured=ago(600), seen=NOW, node=Known(replace(READY, ready_since=ago(600)))
    ),
    "gone after its grace period, node unknown": Case(None, run=STOPPING, measured=ago(GRACE), node=SILENT),
    "gone after its grace period, by force": Case(
        UNKNOWN, run=replace(STOPPING, force_deleted=True), measured=ago(GRACE)
    ),
    "gone, the row names another driver": Case(UNKNOWN, terminated=True, fence=Known(replace(HELD, driver="twin"))),
    "gone, the row names another driver of another epoch": Case(
        DEAD, terminated=True, fence=Known(replace(HELD, driver="pod-3", epoch=3))
    ),
    "never placed on a node": Case(DEAD, run=UNPLACED, fence=Known(FREE)),
    "seen before it had a node, nothing claims": Case(DEAD, run=UNPLACED, fence=Known(None)),
    "seen before it had a node, then the row names it": Case(UNKNOWN, run=UNPLACED),
    "seen before it had a node, then it claimed": Case(
        UNKNOWN, run=replace(UNPLACED, claimed_at=NOW), fence=Known(FREE)
    ),
    "seen before it had a node, then it started": Case(
        UNKNOWN, run=replace(UNPLACED, started_at=NOW), fence=Known(FREE)
    ),
    "seen before it had a node, row unknown": Case(UNKNOWN, run=UNPLACED, fence=SILENT),
    "seen before it had a node, its end was watched": Case(DEAD, run=UNPLACED, terminated=True),
    # its pod was never seen
    "no pod yet": Case(ALIVE, run=UNSEEN, job=replace(JOB, pod=None, had_pod=False), fence=Known(FREE)),
    "no pod, Job deleted as we asked": Case(DEAD, run=replace(UNSEEN, stop_requested_at=NOW), fence=Known(FREE)),
    "no pod, Job deleted as we asked, but the row names a driver": Case(
        UNKNOWN, run=replace(UNSEEN, stop_requested_at=NOW)
    ),
    "no pod, Job deleted as we asked, row unknown": Case(
        UNKNOWN, run=replace(UNSEEN, stop_requested_at=NOW), fence=SILENT
    ),
    "no pod, Job deleted by a user": Case(UNKNOWN, run=UNSEEN, fence=Known(FREE)),
    "no pod, Job failed without one": Case(
        DEAD, run=UNSEEN, job=replace(JOB, pod=None, finished=True, had_pod=False), fence=Known(FREE)
    ),
    "no pod seen, Job had one": Case(UNKNOWN, run=UNSEEN, job=replace(JOB, pod=None, finished=True), fence=Known(FREE)),
}


@pytest.mark.parametrize("name", CASES)
def test_liveness(name: str) -> None:
    case = CASES[name]
    observation = Observation(
        now=NOW,
        references=Known(References(hashes={})),
        release=Known(None),
        cluster=Known(None),
        runs=Known((case.job,) if case.job else ()),
        run_node=case.node,
        fence=case.fence,
        source=Known(Watermarks(ends={})),
        run_terminated=case.terminated,
        stop_measured_since=case.measured,
        node_measured_since=case.seen,
    )
    assert liveness_of(case.run, case.job, observation, stop_margin=MARGIN) is case.liveness
