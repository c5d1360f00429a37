"""Hashes of what is desired: a field at its default counts for nothing, another chart is a planned restart."""

from __future__ import annotations

from dataclasses import fields, make_dataclass, replace
from typing import Any

import pytest

from fakes.manifests import spec_of
from fencepost_operator.actions import InstallCluster, StopRun
from fencepost_operator.api import Reason, Spec
from fencepost_operator.api.spec.job import JobSpec
from fencepost_operator.decision.decide import decide
from fencepost_operator.desired.identity.hashes import Fingerprints, fingerprints, is_same_spec
from fencepost_operator.observation import References, ReleaseState
from unit.operator.scenes import POLICY, RECORDED, ROW, RUN, WELL, Scene

CHART = "60e6ba1d926a"
WITH_CHART = replace(POLICY, chart=CHART)
REFERENCES: dict[str, str | None] = {"Secret/account": "a password"}


def streaming(**changes: Any) -> Scene:
    """Return a pipeline that streams as this operator, with this chart, started it."""
    spec = spec_of(checkpoint={"cassandra": {"contactPoints": ["c"], "credentialsFrom": {"secretName": "account"}}})
    now = replace(fingerprints(spec, REFERENCES, CHART), **changes)
    workers = spec.cluster.workers
    job, cluster, row = (getattr(WELL.observation, name).value for name in ("runs", "cluster", "fence"))
    scene = replace(WELL, pipeline=replace(WELL.pipeline, spec=spec))
    return scene.said(
        run=replace(RUN, spec_hash=now.run),
        cluster=replace(RECORDED, config_hash=now.cluster, workers=workers, ready_workers=workers),
    ).seen(
        references=References(hashes=REFERENCES),
        runs=(replace(job[0], spec_hash=now.run),),
        cluster=replace(cluster, config_hash=now.cluster, workers=workers, ready_workers=workers),
        fence=row,
    )


def test_another_chart_is_rolled_out_as_a_planned_restart_that_says_so() -> None:
    scene = streaming()
    assert decide(scene.pipeline, scene.observation, WITH_CHART).action is None
    decision = decide(scene.pipeline, scene.observation, replace(POLICY, chart="another"))
    assert isinstance(decision.action, StopRun)
    assert decision.reason == Reason.UPGRADING
    assert "the operator's new chart of the Spark cluster" in decision.status.message
    assert decision.status.failure is None


def test_a_scale_over_another_chart_is_a_restart_on_a_new_cluster_ahead_of_its_turn() -> None:
    """In place, the other chart would replace the pods under the living driver."""
    scene = streaming()
    spec = scene.pipeline.spec
    assert isinstance(spec, Spec)
    scaled = replace(
        scene,
        pipeline=replace(scene.pipeline, spec=replace(spec, cluster=replace(spec.cluster, workers=5))),
        observation=replace(scene.observation, may_restart=False),
    )
    decision = decide(scaled.pipeline, scaled.observation, replace(POLICY, chart="another"))
    assert isinstance(decision.action, StopRun)
    assert "ahead of its turn: scaling from 1 to 5 workers needs the new Spark cluster" in decision.status.message


@pytest.mark.parametrize("lost", [{"release": None}, {"cluster": None}])
def test_a_cluster_of_another_chart_that_has_lost_something_is_never_repaired_in_place(lost: dict[str, None]) -> None:
    scene = streaming().seen(**lost)
    decision = decide(scene.pipeline, scene.observation, replace(POLICY, chart="another"))
    assert isinstance(decision.action, StopRun)


def test_after_another_chart_the_next_cluster_is_a_generation_of_its_own() -> None:
    """Never in place: that would restart the workers under whatever still runs there."""
    over = streaming().said(run=None).seen(
        runs=(), fence=replace(ROW, driver=None),
        release=ReleaseState.DEPLOYED,
    )  # fmt: skip
    decision = decide(over.pipeline, over.observation, replace(POLICY, chart="another"))
    assert isinstance(decision.action, InstallCluster)
    assert decision.action.values["generation"] == 2
    same = decide(over.pipeline, over.observation, WITH_CHART)
    assert not isinstance(same.action, InstallCluster)


def test_a_hash_of_another_version_is_of_another_spec() -> None:
    """It says nothing about the spec, so the run is replaced, gracefully."""
    scene = streaming(run="v0:0123456789abcdef.0123")
    assert isinstance(decide(scene.pipeline, scene.observation, WITH_CHART).action, StopRun)


def test_the_form_of_a_hash() -> None:
    """These digests are recorded in every status: other ones for the same spec replace every run."""
    code: dict[str, str | None] = {"ConfigMap/code": "abc"}
    assert fingerprints(spec_of(), code, "1234") == Fingerprints(
        cluster="v1:c00b45c2290317a9.1234", run="v1:0607cb66b08e7cd9.1234"
    )
    assert fingerprints(spec_of(), code).run == "v1:0607cb66b08e7cd9"


def test_two_hashes_that_differ_in_the_chart_alone_are_of_the_same_spec() -> None:
    one, other = (fingerprints(spec_of(), {}, chart) for chart in ("a", "b"))
    assert one.run != other.run
    assert is_same_spec(one.run, other.run)
    assert not is_same_spec(one.run, fingerprints(spec_of(batchInterval="1s"), {}, "a").run)


def test_a_field_that_a_later_release_adds_with_a_default_changes_no_hash() -> None:
    """A field at its default is left out, whatever its name: made here as a release would add it."""
    spec = spec_of()
    later = make_dataclass("JobSpec", [("tuned", int, 7)], bases=(JobSpec,), frozen=True, slots=True, kw_only=True)
    own = {field.name: getattr(spec.job, field.name) for field in fields(spec.job)}
    assert fingerprints(replace(spec, job=later(**own)), {}) == fingerprints(spec, {})
    assert fingerprints(replace(spec, job=later(**own, tuned=8)), {}) != fingerprints(spec, {})


def test_what_is_written_out_as_it_is_by_default_changes_no_hash() -> None:
    written: dict[str, Any] = {
        "job": {"image": "registry.example/job:1", "entrypoint": "orders.job:transform", "memory": "1Gi", "args": []},
        "cluster": {"workers": 4, "worker": {"cores": 1, "memory": "2Gi"}, "master": {}, "sparkConf": {}},
        "batchInterval": "5s",
    }
    assert fingerprints(spec_of(**written), {}) == fingerprints(spec_of(), {})
