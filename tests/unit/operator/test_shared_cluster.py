"""The next run shares no Spark cluster with a driver that may live, though no list shows it or it came late."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest

from fencepost_operator.actions import InstallCluster
from fencepost_operator.observation import Run
from present import present
from unit.operator.scenes import JOB, NOW, POD, ROW, RUN, WELL, Scene

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


def test_a_run_whose_pod_was_never_seen_may_have_one() -> None:
    assert next_generation(WELL.said(run=UNSEEN).seen(runs=(), fence=UNCLAIMED)) == 2


def test_one_whose_driver_was_seen_to_end_leaves_its_cluster_to_the_next() -> None:
    assert next_generation(WELL.said(run=ENDED).seen(runs=(), fence=UNCLAIMED)) == 1


def test_a_run_that_was_never_listed_may_live_once_its_epoch_is_over() -> None:
    replaced = replace(UNCLAIMED, epoch=3)
    assert next_generation(WELL.said(run=NEVER_LISTED).seen(runs=(), fence=replaced)) == 2
    assert next_generation(WELL.said(run=NEVER_LISTED).seen(runs=(), fence=UNCLAIMED)) == 1


def test_there_is_one_new_cluster_for_an_unseen_run() -> None:
    second = WELL.said(run=UNSEEN, cluster=replace(present(WELL.pipeline.status.cluster), generation=2))
    assert next_generation(second.seen(runs=(), fence=UNCLAIMED)) == 2


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
