"""When a generation counts as done: Ready is never True of what was only recorded, or cannot be seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencepost_operator.actions import (
    InstallCluster,
    PruneCluster,
)
from fencepost_operator.observation import (
    ClusterObject,
)
from unit.operator.scenes import CLUSTER, DEAD, LONG_AGO, NOW, RECORDED, SILENT, WELL, World
from unit.operator.test_rules import CASES

BLIND = {"Cassandra silent": {"fence": SILENT}, "references unknown": {"references": SILENT}}


@pytest.mark.parametrize("blindness", BLIND)
def test_a_new_generation_is_not_ready_before_it_is_rolled_out(blindness: str) -> None:
    world = WELL.asked(job={"image": "b", "entrypoint": "a:b"}).with_pipeline(generation=2).seen(**BLIND[blindness])
    status = world.decide().status
    ready = next(c for c in status.conditions if c.type == "Ready")
    assert (ready.status, status.observed_generation) == ("False", 2)


@pytest.mark.parametrize("blindness", BLIND)
def test_a_generation_that_is_rolled_out_stays_ready_while_its_facts_are_unknown(blindness: str) -> None:
    status = WELL.seen(**BLIND[blindness]).decide().status
    assert next(c for c in status.conditions if c.type == "Ready").status == "True"


HIDDEN = {
    "cluster": {"cluster": SILENT},
    "release": {"release": SILENT},
    "cluster and release": {"cluster": SILENT, "release": SILENT},
}


@pytest.mark.parametrize("hidden", ["cluster", "cluster and release"])
def test_a_scale_that_was_only_recorded_is_not_ready_while_the_cluster_is_unseen(hidden: str) -> None:
    """Injected: the operator records the target, and dies or fails before Helm applies it."""
    asked = WELL.asked(cluster={"workers": 3}).with_pipeline(generation=2)
    recorded = asked.with_pipeline(status=asked.decide().status).seen(**HIDDEN[hidden])
    assert ready_of(recorded) == ("False", 2)


@pytest.mark.parametrize("hidden", ["cluster", "cluster and release"])
def test_a_repair_is_not_ready_before_the_cluster_was_seen_again(hidden: str) -> None:
    damaged = WELL.seen(cluster=replace(CLUSTER, workers=0, ready_workers=0))
    recorded = damaged.with_pipeline(status=damaged.decide().status).seen(**HIDDEN[hidden])
    assert ready_of(recorded) == ("False", 1)


@pytest.mark.parametrize("hidden", HIDDEN)
def test_a_generation_that_was_ready_stays_ready_while_its_cluster_is_unseen(hidden: str) -> None:
    assert ready_of(WELL.seen(**HIDDEN[hidden])) == ("True", 1)


def ready_of(world: World) -> tuple[str, int | None]:
    status = world.decide().status
    return next(c for c in status.conditions if c.type == "Ready").status, status.observed_generation


def test_a_suspended_pipeline_whose_cluster_still_exists_is_not_ready_and_says_how_to_remove_it() -> None:
    """A build that named its releases otherwise, in the pipeline's namespace, installed the cluster."""
    assert ready_of(CASES["suspended"][0])[0] == "True"
    world = CASES["suspended"][0].seen(cluster=CLUSTER)
    decision = world.decide()
    assert ready_of(world)[0] == "False"
    assert "no cluster" not in decision.status.message
    assert "elm uninstall fencepost-orders --namespace shop" in decision.status.message
    litter = (ClusterObject(kind="StatefulSet", name="orders-g1-master", uid="u", generation=1),)
    later = world.with_pipeline(status=decision.status).seen(cluster_objects=litter).decide()
    assert later.action == PruneCluster(objects=litter)


def test_workers_that_are_not_as_many_as_asked_for_are_not_ready() -> None:
    capped = WELL.asked(cluster={"workers": 3}).said(cluster=replace(RECORDED, workers=3))
    decision = capped.decide()
    assert isinstance(decision.action, InstallCluster)
    assert next(c for c in decision.status.conditions if c.type == "Ready").status == "False"


def test_last_transition_moves_only_with_the_status() -> None:
    ready = WELL.decide().status.conditions[0]
    assert ready.last_transition_time == LONG_AGO
    assert DEAD.decide().status.conditions[0].last_transition_time == NOW
