"""onUnprovenDeath: how a run ends whose driver may still live."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fencepost_operator.actions import StopRun, TakeOverFence
from fencepost_operator.api import CONFIRM_DEAD_ANNOTATION, EventType, Reason, State
from fencepost_operator.observation import NodeState, Run
from present import present
from unit.operator.scenes import JOB, LOST, NOW, POD, ROW, RUN, WELL, Scene

WAIT = {"restart": {"onUnprovenDeath": "wait"}}
AWAY = replace(POD, deleting_since=NOW, node_ready=False)
AWAY_NODE = NodeState(name="node-1", uid="node-uid", ready=False)
GONE = WELL.said(**LOST).seen(runs=(), run_node=AWAY_NODE)


def condition(scene: Scene, kind: str) -> Any:
    return next((c for c in scene.decide().status.conditions if c.type == kind), None)


def test_by_default_a_lost_driver_is_fenced() -> None:
    assert isinstance(WELL.seen(runs=(replace(JOB, pod=AWAY),)).decide().action, TakeOverFence)
    assert isinstance(GONE.decide().action, TakeOverFence)


def test_with_wait_a_lost_drivers_fence_is_left_to_it_and_the_user_is_informed() -> None:
    scene = WELL.asked(**WAIT).seen(runs=(replace(JOB, pod=AWAY),))
    decision = scene.decide()
    assert (decision.reason, decision.action, decision.status.state) == (
        Reason.DEATH_UNPROVEN, StopRun(name="orders-run-2"), State.RESTARTING,
    )  # fmt: skip
    assert decision.status.run is not None
    assert (decision.status.run.ended_at, decision.status.run.dead) == (NOW, False)
    assert "on node node-1" in decision.status.message
    assert f"--overwrite {CONFIRM_DEAD_ANNOTATION}=orders-run-2" in decision.status.message
    assert (condition(scene, "Ready").status, condition(scene, "Stalled")) == ("False", None)
    assert condition(scene, "Reconciling").reason == Reason.DEATH_UNPROVEN


@pytest.mark.parametrize("claimed", [True, False])
def test_with_wait_nothing_else_is_done_while_there_is_no_proof(claimed: bool) -> None:
    row = ROW if claimed else replace(ROW, driver=None)
    decision = GONE.asked(**WAIT).seen(fence=row).decide()
    assert (decision.reason, decision.action) == (Reason.DEATH_UNPROVEN, None)


def test_a_run_of_which_nothing_was_seen_does_not_count_as_asked_to_stop() -> None:
    """Found by the simulation, seed 5001487: a cache did not show its Job, and to have asked it was taken for proof."""
    unseen = replace(RUN, pod_uid=None, pod_name=None, node_name=None, node_uid=None, ended_at=NOW, dead=False)
    scene = GONE.said(run=unseen).asked(**WAIT).seen(fence=replace(ROW, driver=None))
    recorded = present(scene.decide().status.run)
    assert (recorded.stop_requested_at, recorded.dead) == (None, False)
    again = scene.said(run=recorded).decide()
    assert (again.reason, again.action) == (Reason.DEATH_UNPROVEN, None)


BACK = replace(AWAY_NODE, ready=True)
"""The node of a pod that vanished, Ready: it proves the end once the grace period is over."""
ENDING = replace(RUN, ended_at=NOW, dead=False, stop_requested_at=NOW - timedelta(seconds=5), termination_grace=30)
UNSEEN = replace(ENDING, pod_uid=None, pod_name=None, node_name=None, node_uid=None)
LONG_ASKED = NOW - timedelta(hours=1)
LATE = WELL.said(run=replace(ENDING, stop_requested_at=LONG_ASKED)).measured(stop_since=LONG_ASKED)


@pytest.mark.parametrize(
    "scene",
    [
        WELL.said(run=replace(ENDING, stop_requested_at=None)).seen(runs=(), run_node=BACK),
        WELL.said(run=ENDING).seen(runs=(), run_node=BACK),
        LATE.seen(runs=(), run_node=BACK).measured(stop_since=NOW),
        LATE.seen(runs=(), run_node=BACK).measured(stop_since=LONG_ASKED, node_since=NOW - timedelta(seconds=3)),
        WELL.said(run=UNSEEN).seen(runs=(replace(JOB, deleting=True, had_pod=True, pod=None),)),
    ],
    ids=[
        "a pod that a user deleted", "a pod that was asked to end", "a pod that another operator asked to end",
        "a node that is back", "a pod never seen",
    ],
)  # fmt: skip
def test_a_proof_that_is_on_its_way_is_waited_for(scene: Scene) -> None:
    decision = scene.asked(**WAIT).decide()
    assert (decision.reason, decision.action) == (Reason.STOPPING, None)
    assert "Waiting for proof that the driver of orders-run-2" in decision.status.message
    assert EventType.WARNING not in {event.type for event in decision.events}


@pytest.mark.parametrize(
    "scene",
    [
        GONE,
        WELL.said(run=ENDING).seen(runs=(), run_node=replace(BACK, uid="another")),
        WELL.said(run=ENDING).seen(runs=(), run_node=replace(BACK, uid=None)),
        WELL.said(run=replace(ENDING, force_deleted=True)).seen(runs=(), run_node=BACK),
        WELL.said(run=replace(UNSEEN, stop_requested_at=None)).seen(runs=()),
        LATE.seen(runs=(replace(JOB, deleting=True, pod=replace(POD, deleting_since=LONG_ASKED)),)),
    ],
    ids=["node away", "another node", "node gone", "deleted by force", "it was not asked", "does not end"],
)  # fmt: skip
def test_a_proof_that_is_late_is_reported(scene: Scene) -> None:
    decision = scene.asked(**WAIT).decide()
    assert decision.reason == Reason.DEATH_UNPROVEN
    assert (EventType.WARNING, Reason.DEATH_UNPROVEN) in {(event.type, event.reason) for event in decision.events}


ORPHAN = replace(JOB, orphaned=True, deleting=True, created_at=JOB.created_at)


@pytest.mark.parametrize(
    ("job", "named"),
    [
        (ORPHAN, True),
        (replace(ORPHAN, pod=AWAY), False),  # the kubelet does not see a deletion
        (replace(ORPHAN, pod=replace(POD, node_ready=False)), False),
        (JOB, False),
    ],
    ids=["orphan", "being deleted", "on a lost node", "with its Job"],
)
def test_an_orphans_pod_is_named_with_the_command_that_ends_it(job: Run, named: bool) -> None:
    message = WELL.asked(**WAIT).said(run=ENDING).seen(runs=(job,)).decide().status.message
    assert ("kubectl delete pod orders-run-2-x --namespace shop" in message) is named


def test_a_job_that_is_being_deleted_is_not_deleted_again() -> None:
    scene = WELL.asked(**WAIT).said(**LOST).seen(runs=(replace(JOB, deleting=True, pod=AWAY),))
    assert scene.decide().action is None


def test_proof_ends_the_wait() -> None:
    ended = replace(JOB, deleting=True, pod=replace(AWAY, exit_code=137, phase="Failed", node_ready=True))
    decision = WELL.asked(**WAIT).said(**LOST).seen(runs=(ended,)).decide()
    assert present(decision.status.run).dead
    assert isinstance(decision.action, TakeOverFence)


def test_a_persons_word_ends_the_wait_for_that_run_alone() -> None:
    scene = GONE.asked(**WAIT)
    wrong = scene.with_pipeline(annotations={CONFIRM_DEAD_ANNOTATION: "orders-run-1"})
    assert wrong.decide().reason == Reason.DEATH_UNPROVEN
    right = scene.with_pipeline(annotations={CONFIRM_DEAD_ANNOTATION: "orders-run-2"})
    assert isinstance(right.decide().action, TakeOverFence)
    assert right.decide().status.run == replace(RUN, ended_at=NOW, dead=False), (
        "a confirmation is not a proof: no cluster is shared"
    )


def test_with_wait_a_dead_drivers_run_is_replaced_as_ever() -> None:
    dead = WELL.asked(**WAIT).seen(runs=(replace(JOB, finished=True, pod=replace(POD, exit_code=137, phase="Failed")),))
    assert dead.decide().reason != Reason.DEATH_UNPROVEN


def test_suspension_and_deletion_fence_as_ever() -> None:
    suspended = WELL.asked(suspend=True, **WAIT).said(**LOST).seen(runs=())
    assert isinstance(suspended.decide().action, TakeOverFence)
    deleted = GONE.asked(**WAIT).with_pipeline(deleting_since=NOW).seen(release=None)
    assert isinstance(deleted.decide().action, TakeOverFence)


def test_a_change_of_the_policy_starts_no_run() -> None:
    assert WELL.asked(**WAIT).decide().reason == Reason.STREAMING
