"""A master that is drained or deleted: its successor does not know the run, so the pipeline moves to a new cluster."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from fencepost_operator.actions import Action, InstallCluster, StopRun, TakeOverFence
from fencepost_operator.api import State
from fencepost_operator.observation import SparkCluster
from present import present
from unit.operator.scenes import CLUSTER, FENCED, JOB, NOW, POD, RECORDED, ROW, RUN, STRANDED_MASTER, WELL, YOUNG, Scene

DRAINED = STRANDED_MASTER.message
SINCE_1_33 = "0/3 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity."
NO_ROOM = "0/3 nodes are available: 3 Insufficient memory."
ROOM_MAY_COME = f"{DRAINED} 1 Insufficient cpu."
"""Its zone has no room at the moment; nodes of other zones never reach the volume."""


def pending(scene: Scene, message: str = DRAINED, *, workers: int = 1) -> Scene:
    """Return the scene in which the master waits for a node, for a reason of the scheduler."""
    issues = (replace(STRANDED_MASTER, message=message),)
    return scene.seen(cluster=replace(CLUSTER, master_ready=False, ready_workers=workers, issues=issues))


@pytest.mark.parametrize(
    ("message", "ready", "replaced"),
    [
        (DRAINED, True, True),
        (SINCE_1_33, True, True),
        (DRAINED, False, False),
        (NO_ROOM, True, False),
        (ROOM_MAY_COME, True, False),
    ],
)
def test_between_two_runs_the_cluster_is_replaced_once(message: str, ready: bool, replaced: bool) -> None:
    recorded = RECORDED if ready else replace(RECORDED, ready_at=None)
    scene = pending(FENCED.said(cluster=recorded), message)
    assert isinstance(scene.decide().action, InstallCluster) is replaced


@pytest.mark.parametrize("message", [DRAINED, SINCE_1_33])
@pytest.mark.parametrize("scene", [WELL, YOUNG], ids=["commits", "has not claimed"])
def test_a_run_finishes_its_batch_and_moves(scene: Scene, message: str) -> None:
    """The workers that are left can be replaced by none, so a drain would wait for them without an end."""
    decision = pending(scene, message).decide()
    assert isinstance(decision.action, StopRun)
    assert (decision.reason, decision.status.state) == ("Drained", State.RESTARTING)
    stopping = replace(RUN, stop_requested_at=NOW)
    again = pending(scene.said(run=stopping).seen(runs=(replace(JOB, deleting=True),))).decide()
    assert again.action is None, "it is asked once, and ends in its own time"


def test_the_run_after_it_gets_a_new_cluster() -> None:
    ended = replace(RUN, stop_requested_at=NOW, ended_at=NOW, dead=True)
    decision = pending(FENCED.said(run=ended)).decide()
    assert isinstance(decision.action, InstallCluster)
    assert decision.action.values["generation"] == 2


OURS, ANOTHER = replace(CLUSTER, master_uid="a"), replace(CLUSTER, master_uid="b", master_ready=False)
REGISTERED = WELL.said(run=replace(RUN, master_uid="a"))


def test_the_first_master_that_is_ready_is_that_of_the_run() -> None:
    waiting = present(WELL.seen(cluster=replace(OURS, master_ready=False)).decide().status.run)
    assert waiting.master_uid is None
    found = present(WELL.seen(cluster=OURS).decide().status.run)
    assert found.master_uid == "a"
    queued = replace(JOB, pod=replace(POD, started_at=None, node=None, phase="Pending"))
    placed = YOUNG.said(run=replace(RUN, started_at=None, claimed_at=None)).seen(cluster=OURS, runs=(queued,))
    unknown = present(placed.decide().status.run)
    assert unknown.master_uid is None, "a driver that does not run yet may meet another one"


@pytest.mark.parametrize(
    ("cluster", "action"),
    [
        (OURS, None),
        (replace(OURS, master_ready=False), None),  # its container starts again, and finds what it knew
        (replace(OURS, master_uid=None), None),  # its successor does not exist yet
        (ANOTHER, StopRun),  # waits for the executors' end, so the batch can be finished
        (replace(ANOTHER, master_ready=True), TakeOverFence),  # no executor was left
        (replace(ANOTHER, ready_workers=0), TakeOverFence),
    ],
)
def test_a_run_whose_master_is_another_pod_now_moves(cluster: SparkCluster, action: type[Action] | None) -> None:
    decided = REGISTERED.seen(cluster=cluster).decide()
    assert type(decided.action) is (action or type(None))
    ended = FENCED.said(run=replace(RUN, master_uid="a", ended_at=NOW, dead=True)).seen(cluster=cluster)
    follows = ended.decide().action
    assert isinstance(follows, InstallCluster) is (action is not None)


@pytest.mark.parametrize(
    "scene", [pending(WELL, NO_ROOM), pending(WELL.said(cluster=replace(RECORDED, ready_at=None)))]
)
def test_a_run_continues_where_another_cluster_would_not_help(scene: Scene) -> None:
    assert scene.decide().action is None


def test_a_run_that_is_being_stopped_is_fenced_once_it_has_no_executor() -> None:
    """It can finish no batch, so its grace period would only be waited for; nothing counts as a failure."""
    stopping = REGISTERED.said(run=replace(RUN, master_uid="a", stop_requested_at=NOW))
    decision = stopping.seen(cluster=replace(ANOTHER, ready_workers=0)).decide()
    assert isinstance(decision.action, TakeOverFence)
    assert decision.action.epoch == ROW.epoch
    assert decision.status.failure == stopping.pipeline.status.failure


@pytest.mark.parametrize(
    ("minutes", "moves"),
    [
        (-5, False),  # the run's own
        (2, False),  # the driver may have waited for it
        (3, True),  # a driver that found no master until then has ended
        (60, True),
    ],
)
def test_a_run_whose_record_was_lost_knows_another_master_by_its_age(minutes: int, moves: bool) -> None:
    """Without a record, the next master was taken for the run's, and no worker that was replaced found the run."""
    started = NOW - timedelta(hours=2)
    pod = replace(POD, started_at=started)
    followed = replace(OURS, master_uid="b", master_created_at=started + timedelta(minutes=minutes))
    lost = WELL.said(run=replace(RUN, started_at=started)).seen(cluster=followed, runs=(replace(JOB, pod=pod),))
    decision = lost.decide()
    assert (decision.action is not None) is moves
    assert present(decision.status.run).master_uid == (None if moves else "b")
    ended = FENCED.said(run=replace(RUN, started_at=started, ended_at=NOW, dead=True)).seen(cluster=followed)
    assert not isinstance(ended.decide().action, InstallCluster), "the next run may use it"


def test_a_master_with_a_volume_knows_the_run_whatever_its_age() -> None:
    followed = replace(OURS, master_uid=None, master_created_at=None)
    assert WELL.seen(cluster=followed).decide().action is None
