"""When a generation counts as done: Ready is never True of what was only recorded, or cannot be seen."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from fencepost_operator.actions import InstallCluster, PruneCluster
from fencepost_operator.api import Reason, Status
from fencepost_operator.observation import ClusterObject, ClusterObjects, Watermarks
from present import present
from unit.operator.decision.rules.test_rules import CASES
from unit.operator.scenes import BURIED, CLUSTER, DEAD, FAILED, LONG_AGO, NOW, RECORDED, SILENT, WELL, Scene

BLIND = {"Cassandra silent": {"fence": SILENT}, "references unknown": {"references": SILENT}}


@pytest.mark.parametrize("blindness", BLIND)
def test_a_new_generation_is_not_ready_before_it_is_rolled_out(blindness: str) -> None:
    scene = WELL.asked(job={"image": "b", "entrypoint": "a:b"}).with_pipeline(generation=2).seen(**BLIND[blindness])
    status = scene.decide().status
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


def ready_of(scene: Scene) -> tuple[str, int | None]:
    status = scene.decide().status
    return next(c for c in status.conditions if c.type == "Ready").status, status.observed_generation


def test_a_suspended_pipeline_whose_cluster_still_exists_is_not_ready_and_says_how_to_remove_it() -> None:
    """Its release is gone, or something else installed it."""
    assert ready_of(CASES["suspended"][0])[0] == "True"
    scene = CASES["suspended"][0].seen(cluster=CLUSTER)
    decision = scene.decide()
    assert ready_of(scene)[0] == "False"
    assert "no cluster" not in decision.status.message
    assert (
        "kubectl delete statefulsets --namespace shop --selector streaming.fencepost.dev/pipeline=orders"
        in decision.status.message
    )
    litter = (ClusterObject(kind="StatefulSet", name="orders-g1-master", uid="u", generation=1),)
    later = scene.with_pipeline(status=decision.status).seen(cluster_objects=ClusterObjects(found=litter)).decide()
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


STUCK = {
    "Stalled": BURIED.said(failure=replace(FAILED, reason=Reason.BAD_SPEC, next_attempt_at=NOW)),
    "waiting for a topic": BURIED.said(failure=None).seen(source=Watermarks(ends={}, missing_topics=("orders",))),
}
CORRECTIONS: dict[str, dict[str, Any]] = {
    "another image": {"job": {"image": "b", "entrypoint": "a:b"}},
    "another nonce": {"restart": {"nonce": "again"}},
}


def stuck(name: str) -> Scene:
    """Return a pipeline that an operator has seen in this state for an hour."""
    scene = STUCK[name]
    long_ago = replace(scene, observation=replace(scene.observation, now=LONG_AGO))
    status = replace(long_ago.decide().status, observed_since=LONG_AGO)
    assert condition(status, "Ready") == ("False", LONG_AGO)
    return scene.with_pipeline(status=status)


def condition(status: Status, kind: str) -> tuple[str, datetime] | None:
    return next(((c.status, c.last_transition_time) for c in status.conditions if c.type == kind), None)


@pytest.mark.parametrize("correction", CORRECTIONS)
@pytest.mark.parametrize("state", STUCK)
def test_the_first_status_of_a_correction_is_not_stalled_and_has_its_own_time(state: str, correction: str) -> None:
    """Argo CD fails a sync with waves at the first status that is Degraded."""
    corrected = stuck(state).asked(**CORRECTIONS[correction]).with_pipeline(generation=2).decide().status
    assert (corrected.observed_generation, corrected.observed_since) == (2, NOW)
    assert condition(corrected, "Stalled") is None
    ready = present(condition(corrected, "Ready"))
    assert ready[1] == LONG_AGO, "its status has not changed"


@pytest.mark.parametrize("since", [LONG_AGO, None])
@pytest.mark.parametrize("state", STUCK)
def test_the_time_of_a_generation_stays_as_it_is(state: str, since: datetime | None) -> None:
    """None is what an operator of the release before left: it is not written for its own sake."""
    scene = stuck(state).said(observed_since=since)
    assert scene.decide().status.observed_since == since
