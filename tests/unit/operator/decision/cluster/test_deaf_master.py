"""A Spark master that is ready and that no run reaches: what is wrong with it is not seen from outside."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencepost_operator.actions import InstallCluster, RestoreCluster, StartRun
from fencepost_operator.api import Reason
from fencepost_operator.observation import ClusterObjects
from unit.operator.scenes import CLUSTER, FAILED, FENCED, RUN, WELL, Scene

DELETED = ClusterObjects(damage=("Service orders-g1-master was deleted",))


def unreachable(repeats: int) -> Scene:
    """Return the scene after so many runs in a row that did not reach the master."""
    failure = replace(
        FAILED, count=repeats, repeats=repeats, epoch=RUN.epoch, reason=Reason.SPARK_UNREACHABLE, next_attempt_at=None
    )
    return FENCED.said(failure=failure)


@pytest.mark.parametrize(("repeats", "replaced"), [(1, False), (2, True), (3, False), (4, True)])
def test_each_second_run_in_a_row_that_does_not_reach_it_gets_a_new_cluster(repeats: int, replaced: bool) -> None:
    action = unreachable(repeats).decide().action
    assert isinstance(action, InstallCluster if replaced else StartRun)
    if isinstance(action, InstallCluster):
        assert action.values["generation"] == 2


def test_a_master_that_is_not_ready_explains_it_and_is_waited_for() -> None:
    waiting = unreachable(2).seen(cluster=replace(CLUSTER, master_ready=False))
    assert not isinstance(waiting.decide().action, InstallCluster)


@pytest.mark.parametrize("scene", [WELL, unreachable(1)], ids=["a run streams", "the next run is due"])
def test_what_was_deleted_is_restored(scene: Scene) -> None:
    decision = scene.seen(cluster_objects=DELETED).decide()
    assert decision.action == RestoreCluster(damage=DELETED.damage)
    assert decision.reason == Reason.CLUSTER_CHANGED
    assert DELETED.damage[0] in decision.status.message
