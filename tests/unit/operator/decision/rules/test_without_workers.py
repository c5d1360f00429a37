"""`cluster.workers: 0`: the driver's pod runs the tasks, and there is no Spark cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencepost_operator.actions import InstallCluster, StartRun, StopRun, UninstallCluster
from fencepost_operator.api import Spec, State
from fencepost_operator.desired.identity.hashes import fingerprints
from fencepost_operator.observation import ReleaseState
from present import present
from unit.operator.scenes import CLUSTER, FENCED, JOB, NEW, POD, RECORDED, ROW, RUN, SILENT, WELL, Scene

NONE = {"workers": 0}
TAKEN_DOWN = replace(RECORDED, config_hash="", ready_at=None, workers=0, ready_workers=0)
WITHOUT_CLUSTER = {"release": None, "cluster": None}


def alone() -> Scene:
    """Return a pipeline without workers that streams."""
    scene = WELL.asked(cluster=NONE)
    assert isinstance(scene.pipeline.spec, Spec)
    run = fingerprints(scene.pipeline.spec, {}).run
    return scene.said(run=replace(RUN, spec_hash=run, cluster_generation=0), cluster=TAKEN_DOWN).seen(
        **WITHOUT_CLUSTER, runs=(replace(JOB, spec_hash=run, cluster_generation=0),)
    )


def queued(scene: Scene) -> Scene:
    return replace(scene, observation=replace(scene.observation, may_restart=False))


def test_it_starts_without_a_cluster() -> None:
    first = NEW.asked(cluster=NONE).seen(fence=replace(ROW, epoch=1, driver=None, offsets={}, committed_at=None))
    decision = first.decide()
    assert isinstance(decision.action, StartRun)
    assert "without a Spark cluster" in decision.status.message
    assert present(decision.status.run).cluster_generation == 0
    assert decision.status.cluster is None


def test_it_streams_without_a_cluster() -> None:
    decision = alone().decide()
    assert (decision.reason, decision.action, decision.status.state) == ("Streaming", None, State.RUNNING)
    assert "workers are ready" not in decision.status.message
    assert alone().said(cluster=None).decide().reason == "Streaming", "it never had one"


@pytest.mark.parametrize("fact", ["release", "cluster"])
def test_it_streams_where_helm_cannot_be_read(fact: str) -> None:
    """It needs nothing of it."""
    assert alone().seen(**{fact: SILENT}).decide().reason == "Streaming"


def test_a_scale_to_none_finishes_the_batch_and_starts_another_run() -> None:
    decision = WELL.asked(cluster=NONE).decide()
    assert (decision.reason, type(decision.action)) == ("Upgrading", StopRun)


def test_a_scale_to_none_waits_for_its_turn_with_its_cluster() -> None:
    """The run still uses it."""
    decision = queued(WELL.asked(cluster=NONE)).decide()
    assert (decision.reason, decision.action) == ("RestartQueued", None)


def test_the_cluster_is_uninstalled_before_the_run_without_it_starts() -> None:
    """The quota of the namespace may not have room for both."""
    decision = FENCED.asked(cluster=NONE).decide()
    assert (decision.reason, type(decision.action)) == ("Scaled", UninstallCluster)
    assert present(decision.status.cluster) == TAKEN_DOWN, "recorded first"
    after = FENCED.asked(cluster=NONE).said(cluster=TAKEN_DOWN).seen(**WITHOUT_CLUSTER).decide()
    assert isinstance(after.action, StartRun)


def test_it_waits_for_a_release_that_may_be_there_and_not_for_one_that_never_was() -> None:
    scaled = FENCED.asked(cluster=NONE).seen(release=SILENT)
    assert (scaled.decide().reason, scaled.decide().action) == ("KubernetesUnreachable", None)
    assert isinstance(scaled.said(cluster=None).decide().action, StartRun)


def test_a_recorded_cluster_that_was_never_installed_is_forgotten() -> None:
    decision = FENCED.asked(cluster=NONE).seen(**WITHOUT_CLUSTER).decide()
    assert isinstance(decision.action, StartRun)
    assert present(decision.status.cluster) == TAKEN_DOWN, "the scale subresource shows its workers"


def test_an_installation_that_takes_effect_late_is_taken_down() -> None:
    decision = alone().seen(release=ReleaseState.DEPLOYED, cluster=CLUSTER).decide()
    assert isinstance(decision.action, UninstallCluster)


def test_a_scale_from_none_does_not_wait_for_its_turn() -> None:
    decision = queued(alone().asked(cluster={"workers": 2})).decide()
    assert isinstance(decision.action, StopRun)
    assert "ahead of its turn: scaling from 0 to 2 workers needs a Spark cluster" in decision.status.message


def test_a_scale_from_none_is_on_a_cluster_with_names_of_its_own() -> None:
    over = FENCED.said(cluster=TAKEN_DOWN).seen(**WITHOUT_CLUSTER).decide()
    assert isinstance(over.action, InstallCluster)
    assert over.action.values["generation"] == 2


def test_the_next_driver_keeps_away_from_the_node_on_which_the_last_one_may_live() -> None:
    run = replace(present(alone().pipeline.status.run), ended_at=ROW.committed_at, dead=False, stop_requested_at=None)
    lost = alone().said(run=run).seen(runs=(), fence=replace(ROW, epoch=3, driver=None))
    decision = lost.decide()
    assert isinstance(decision.action, StartRun)
    affinity = decision.action.job["spec"]["template"]["spec"]["affinity"]
    assert present(POD.node) in str(affinity)
