"""The next run shares no Spark cluster with a driver that may live, though no list shows it or it came late."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest

from fencepost.fence import FenceRow
from fencepost_operator.actions import InstallCluster
from fencepost_operator.api import ClusterStatus, RunStatus
from fencepost_operator.observation import Run
from present import present
from unit.operator.scenes import JOB, NOW, POD, RECORDED, ROW, RUN, WELL, Scene

ENDED: Final = replace(RUN, ended_at=NOW - timedelta(seconds=30), dead=True, stop_requested_at=NOW)
UNSEEN: Final = replace(
    ENDED, pod_name=None, pod_uid=None, node_name=None, node_uid=None, started_at=None, claimed_at=None
)
NEVER_LISTED: Final = replace(UNSEEN, created_at=None, ended_at=None, dead=False, stop_requested_at=None)
UNCLAIMED: Final = replace(ROW, driver=None)
OLDER: Final = replace(JOB, name="orders-run-1", epoch=1, pod=None)
OLDER_POD: Final = replace(POD, name="orders-run-1-x", uid="pod-1")


def next_generation(scene: Scene) -> int | None:
    """Return the generation of the cluster for the next run."""
    decision = scene.decide()
    if isinstance(decision.action, InstallCluster):
        assert decision.action.values["generation"] == present(decision.status.cluster).generation
    return decision.status.cluster.generation if decision.status.cluster else None


OVER: Final = replace(UNCLAIMED, epoch=3)
SECOND: Final = replace(RECORDED, generation=2)


@pytest.mark.parametrize(
    ("run", "fence", "cluster", "generation"),
    [
        pytest.param(UNSEEN, UNCLAIMED, RECORDED, 2, id="its pod was never seen"),
        pytest.param(UNSEEN, UNCLAIMED, SECOND, 2, id="its pod was never seen, and there is a new cluster"),
        pytest.param(ENDED, UNCLAIMED, RECORDED, 1, id="its driver was seen to end"),
        pytest.param(NEVER_LISTED, OVER, RECORDED, 2, id="never listed, and its epoch is over"),
        pytest.param(NEVER_LISTED, UNCLAIMED, RECORDED, 1, id="never listed"),
    ],
)
def test_a_run_that_may_live_keeps_its_cluster(
    run: RunStatus, fence: FenceRow, cluster: ClusterStatus, generation: int
) -> None:
    assert next_generation(WELL.said(run=run, cluster=cluster).seen(runs=(), fence=fence)) == generation


@pytest.mark.parametrize(
    ("older", "generation"),
    [
        pytest.param(OLDER, 2, id="before-its-pod"),
        pytest.param(replace(OLDER, pod=OLDER_POD, had_pod=True), 2, id="with-its-pod"),
        pytest.param(replace(OLDER, pod=OLDER_POD, had_pod=True, deleting=True), 2, id="its-pod-ends"),
        pytest.param(replace(OLDER, deleting=True), 1, id="deleted-before-its-pod"),
        pytest.param(replace(OLDER, had_pod=True), 1, id="its-pod-is-gone"),
        pytest.param(replace(OLDER, pod=replace(OLDER_POD, exit_code=50), had_pod=True), 1, id="ended"),
        pytest.param(replace(OLDER, pod=OLDER_POD, had_pod=True, cluster_generation=0), 1, id="on-another-cluster"),
    ],
)
def test_an_older_run_may_live_whose_job_was_created_late(older: Run, generation: int) -> None:
    scene = WELL.said(run=ENDED).seen(fence=UNCLAIMED)
    assert next_generation(scene.seen(runs=(older,))) == generation


def test_a_run_that_streams_is_not_replaced_for_an_older_one() -> None:
    decision = WELL.seen(runs=(replace(OLDER, pod=OLDER_POD, had_pod=True), JOB)).decide()
    assert decision.status.cluster == WELL.pipeline.status.cluster
    assert present(decision.status.run).is_active
