"""A healthy run whose restart is queued: what waits with it, and what does not."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fencepost_operator.actions import InstallCluster, StopRun
from fencepost_operator.observation import ReleaseState
from present import present
from unit.operator.scenes import CLUSTER, NOW, WELL, Scene


def queued(scene: Scene) -> Scene:
    """Return it while other pipelines have all the permits."""
    return replace(scene, observation=replace(scene.observation, may_restart=False))


NEW_CONFIG: dict[str, Any] = {"job": {"image": "registry.example/job:2", "entrypoint": "orders.job:transform"}}
NEW_RUN: dict[str, Any] = {"batchInterval": "1s"}
DAMAGED: dict[str, dict[str, Any]] = {
    "no release": {"release": None},
    "failed release": {"release": ReleaseState.FAILED},
    "no cluster": {"cluster": None},
    "too few pods": {"cluster": replace(CLUSTER, workers=0)},
}


@pytest.mark.parametrize("changed", [NEW_CONFIG, NEW_RUN])
def test_a_healthy_run_waits_for_its_turn(changed: dict[str, Any]) -> None:
    decision = queued(WELL.asked(**changed)).decide()
    assert (decision.reason, decision.action, decision.is_queued) == ("RestartQueued", None, True)


def test_a_scale_that_needs_the_new_configuration_goes_ahead() -> None:
    decision = queued(WELL.asked(**NEW_CONFIG, cluster={"workers": 3})).decide()
    assert isinstance(decision.action, StopRun)
    assert decision.status.planned_restart_since == NOW, "it counts, though it did not wait"
    assert "ahead of its turn: scaling from 1 to 3 workers needs the new Spark cluster" in decision.status.message


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_repair_that_needs_the_new_configuration_goes_ahead(damage: str) -> None:
    decision = queued(WELL.asked(**NEW_CONFIG).seen(**DAMAGED[damage])).decide()
    assert isinstance(decision.action, StopRun)
    assert "ahead of its turn: repairing the Spark cluster needs the new one" in decision.status.message


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_cluster_of_the_same_configuration_is_repaired_in_place(damage: str) -> None:
    decision = queued(WELL.asked(**NEW_RUN).seen(**DAMAGED[damage])).decide()
    assert isinstance(decision.action, InstallCluster)
    assert present(decision.status.cluster).generation == 1


def test_a_cluster_of_the_same_configuration_is_scaled_in_place() -> None:
    decision = queued(WELL.asked(**NEW_RUN, cluster={"workers": 3})).decide()
    assert isinstance(decision.action, InstallCluster)
    assert decision.status.message == "Scaling from 1 to 3 workers"


def test_whoever_has_a_permit_is_not_ahead_of_its_turn() -> None:
    assert "ahead" not in WELL.asked(**NEW_CONFIG, cluster={"workers": 3}).decide().status.message


@pytest.mark.parametrize(("minutes", "continues"), [(9, True), (10, False), (600, False), (-5, False)])
def test_a_permit_that_has_expired_does_not_cover_a_later_restart(minutes: int, continues: bool) -> None:
    """The pipeline did not come up in time after the first one, so its status still names that."""
    before = NOW - timedelta(minutes=minutes)
    decision = WELL.said(planned_restart_since=before).asked(**NEW_CONFIG).decide()
    assert isinstance(decision.action, StopRun)
    assert decision.status.planned_restart_since == (before if continues else NOW)
