"""A node that is silent: what is given up before Kubernetes notices, and where the next cluster goes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fencepost_operator.actions import InstallCluster, StartRun, TakeOverFence
from fencepost_operator.api import CommittedStatus, Reason
from fencepost_operator.decision.cluster.silent_nodes import nodes_to_watch
from fencepost_operator.desired.placement import avoiding
from fencepost_operator.observation import Known
from present import present
from unit.operator.scenes import (
    CLUSTER,
    FENCED,
    JOB,
    LAGGING,
    LOST,
    NOW,
    POD,
    RECORDED,
    ROW,
    RUN,
    SILENT,
    WELL,
    YOUNG,
    Scene,
)

PLACED = replace(CLUSTER, master_node="node-2", worker_nodes=frozenset({"node-3", "node-4"}))


def quiet(scene: Scene, seconds: float, **facts: Any) -> Scene:
    """Return the scene after so many seconds in which records waited and nothing was committed."""
    committed = CommittedStatus(
        version=8, since=NOW - timedelta(seconds=seconds), observable_since=NOW - timedelta(hours=1),
        offsets={"orders/0": 50},
    )  # fmt: skip
    return scene.said(committed=committed).seen(cluster=PLACED, **LAGGING, **facts)


@pytest.mark.parametrize(
    ("silent", "seconds", "given_up"),
    [
        ({"node-1"}, 31, True),
        ({"node-1"}, 19, False),  # a commit may still come
        ({"node-3", "node-4"}, 31, True),
        ({"node-3"}, 31, False),  # the other worker continues
        ({"node-2"}, 31, False),  # a run that has executors needs no master
        ({"node-7"}, 31, False),
        (set(), 31, False),
    ],
)
def test_a_run_that_commits_nothing_and_stands_on_a_silent_node_is_given_up(
    silent: set[str], seconds: float, given_up: bool
) -> None:
    decision = quiet(WELL, seconds, silent_nodes=frozenset(silent)).decide()
    assert isinstance(decision.action, TakeOverFence) is given_up
    if given_up:
        assert decision.reason == Reason.POD_LOST
        assert all(node in decision.status.message for node in silent)
        assert present(decision.status.failure).attempts == 0, "a lost node uses up no attempt"


def test_a_run_that_commits_is_left_alone_whatever_its_kubelet_does() -> None:
    decision = WELL.seen(silent_nodes=frozenset({"node-1"}), cluster=PLACED, **LAGGING).decide()
    assert decision.reason == Reason.STREAMING


def test_a_node_of_which_nothing_can_be_known_is_not_silent() -> None:
    assert quiet(WELL, 31, silent_nodes=SILENT).decide().action is None


def test_with_wait_the_driver_of_a_silent_node_is_left_to_kubernetes() -> None:
    scene = quiet(WELL.asked(restart={"onUnprovenDeath": "wait"}), 31, silent_nodes=frozenset({"node-1"}))
    assert scene.decide().action is None


def test_a_run_that_waits_for_a_silent_master_is_given_up() -> None:
    started = NOW - timedelta(seconds=31)
    scene = quiet(YOUNG, 31, silent_nodes=frozenset({"node-2"})).said(
        run=replace(RUN, claimed_at=None, started_at=started)
    )
    scene = scene.seen(runs=(replace(JOB, pod=replace(POD, started_at=started)),), fence=replace(ROW, driver=None))
    assert isinstance(scene.decide().action, TakeOverFence)


def test_the_cluster_after_a_silent_node_avoids_it_and_so_does_its_driver() -> None:
    given_up = quiet(FENCED.said(**LOST), 31, silent_nodes=frozenset({"node-1"}), runs=())
    action = given_up.decide().action
    assert isinstance(action, InstallCluster)
    assert action.values["affinity"] == avoiding({}, ["node-1"])
    cluster = present(given_up.decide().status.cluster)
    assert (cluster.generation, cluster.avoided_nodes) == (2, ("node-1",))
    run = replace(RUN, ended_at=NOW, dead=True)
    ready = FENCED.said(run=run, cluster=replace(RECORDED, generation=2, avoided_nodes=("node-1",))).seen(
        cluster=replace(CLUSTER, generation=2)
    )
    started = ready.decide().action
    assert isinstance(started, StartRun)
    assert started.job["spec"]["template"]["spec"]["affinity"] == avoiding({}, ["node-1"])


def test_the_cluster_after_a_driver_that_hangs_avoids_its_node() -> None:
    action = FENCED.said(**LOST).seen(runs=()).decide().action
    assert isinstance(action, InstallCluster)
    assert action.values["affinity"] == avoiding({}, ["node-1"])


def test_a_cluster_whose_workers_are_silent_is_replaced_once() -> None:
    silent = frozenset({"node-3", "node-4"})
    scene = quiet(FENCED, 31, silent_nodes=silent)
    action = scene.decide().action
    assert isinstance(action, InstallCluster)
    assert action.values["generation"] == 2
    # Its pods fit nowhere else: another cluster would be no better off.
    again = scene.said(cluster=replace(RECORDED, avoided_nodes=tuple(silent)))
    assert isinstance(again.decide().action, StartRun)


def test_an_affinity_of_the_spec_is_kept() -> None:
    asked = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}, "podAffinity": {}}
    preferred = avoiding(asked, ["b", "a"])["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred[0] == {"weight": 1}
    assert [one["values"] for one in preferred[1]["preference"]["matchFields"]] == [["a"], ["b"]]
    assert asked["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] == [{"weight": 1}]
    assert avoiding(asked, []) == asked


@pytest.mark.parametrize(("seconds", "names"), [(4, set()), (6, {"node-1", "node-2", "node-3", "node-4"})])
def test_nodes_are_looked_at_only_while_records_wait_for_a_commit(seconds: float, names: set[str]) -> None:
    scene = quiet(WELL, seconds)
    observation = scene.observation
    assert nodes_to_watch(scene.pipeline, observation.runs, observation.cluster, NOW) == names
    assert nodes_to_watch(WELL.pipeline, observation.runs, observation.cluster, NOW) == set()
    assert nodes_to_watch(scene.pipeline, Known(()), Known(None), NOW) == ({"node-1"} if names else set())
