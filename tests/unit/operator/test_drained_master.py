"""A master whose volume is on a node that takes no pods, as after a drain: the pipeline moves to a new cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencepost_operator.actions import InstallCluster, StopRun, TakeOverFence
from fencepost_operator.api import State
from unit.operator.scenes import CLUSTER, FENCED, JOB, NOW, RECORDED, ROW, RUN, STRANDED_MASTER, WELL, YOUNG, World

DRAINED = STRANDED_MASTER.message
SINCE_1_33 = "0/3 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity."
NO_ROOM = "0/3 nodes are available: 3 Insufficient memory."


def pending(world: World, message: str = DRAINED, *, workers: int = 1) -> World:
    """Return the world in which the master waits for a node, for a reason of the scheduler."""
    issues = (replace(STRANDED_MASTER, message=message),)
    return world.seen(cluster=replace(CLUSTER, master_ready=False, ready_workers=workers, issues=issues))


@pytest.mark.parametrize(
    ("message", "ready", "replaced"),
    [(DRAINED, True, True), (SINCE_1_33, True, True), (DRAINED, False, False), (NO_ROOM, True, False)],
)
def test_between_two_runs_the_cluster_is_replaced_once(message: str, ready: bool, replaced: bool) -> None:
    recorded = RECORDED if ready else replace(RECORDED, ready_at=None)
    world = pending(FENCED.said(cluster=recorded), message)
    assert isinstance(world.decide().action, InstallCluster) is replaced


@pytest.mark.parametrize("message", [DRAINED, SINCE_1_33])
@pytest.mark.parametrize("world", [WELL, YOUNG], ids=["commits", "has not claimed"])
def test_a_run_finishes_its_batch_and_moves(world: World, message: str) -> None:
    """The workers that are left can be replaced by none, so a drain would wait for them without an end."""
    decision = pending(world, message).decide()
    assert isinstance(decision.action, StopRun)
    assert (decision.reason, decision.status.state) == ("Drained", State.RESTARTING)
    stopping = replace(RUN, stop_requested_at=NOW)
    again = pending(world.said(run=stopping).seen(runs=(replace(JOB, deleting=True),))).decide()
    assert again.action is None, "it is asked once, and ends in its own time"


def test_the_run_after_it_gets_a_new_cluster() -> None:
    ended = replace(RUN, stop_requested_at=NOW, ended_at=NOW, dead=True)
    decision = pending(FENCED.said(run=ended)).decide()
    assert isinstance(decision.action, InstallCluster)
    assert decision.action.values["generation"] == 2


def test_a_run_without_a_worker_is_fenced_at_once() -> None:
    """It can finish no batch, so its grace period would only be waited for."""
    decision = pending(WELL, workers=0).decide()
    assert isinstance(decision.action, TakeOverFence)
    assert decision.action.epoch == ROW.epoch
    assert decision.reason == "Drained"


@pytest.mark.parametrize(
    "world", [pending(WELL, NO_ROOM), pending(WELL.said(cluster=replace(RECORDED, ready_at=None)))]
)
def test_a_run_goes_on_where_another_cluster_would_be_no_better_off(world: World) -> None:
    assert world.decide().action is None
