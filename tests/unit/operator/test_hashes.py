"""Hashes with a version: an upgrade of the operator replaces nothing, another chart is a planned restart."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass, make_dataclass, replace
from typing import Any

import pytest

from fakes.manifests import body
from fakes.previous_release import DOMAIN, Recorded, recorded
from fencepost_operator.actions import InstallCluster, StopRun
from fencepost_operator.api import Pipeline, Reason, Spec, read_pipeline
from fencepost_operator.api.spec import JobSpec
from fencepost_operator.decision.chain import decide
from fencepost_operator.decision.present_hashes import in_present_hashes
from fencepost_operator.desired.cluster_values import cluster_values
from fencepost_operator.desired.hashes import Fingerprints, fingerprints, is_same_spec
from fencepost_operator.desired.hashes_v1 import fingerprints_v1
from fencepost_operator.desired.revision import revision_of
from fencepost_operator.observation import References, Release, ReleaseState
from unit.operator.scenes import FAILED, NOW, POLICY, RECORDED, ROW, RUN, SILENT, WELL, World

FLEET = {found.pipeline.key.name: found for found in recorded()}
CHART = "60e6ba1d926a"
WITH_CHART = replace(POLICY, chart=CHART)


def as_the_release_left_it(found: Recorded) -> World:
    """Return a pipeline that streams, with each hash in its status and on its objects as the release wrote it."""
    workers = found.spec.cluster.workers
    world = replace(WELL, pipeline=replace(WELL.pipeline, spec=found.spec, written=found.pipeline.written))
    revision = revision_of(world.pipeline, found.spec, found.references).name
    job, cluster, row = (getattr(WELL.observation, name).value for name in ("runs", "cluster", "fence"))
    return world.said(
        run=replace(RUN, spec_hash=found.run, revision=revision),
        cluster=replace(RECORDED, config_hash=found.cluster, workers=workers, ready_workers=workers),
    ).seen(
        references=References(hashes=found.references),
        runs=(replace(job[0], spec_hash=found.run),),
        cluster=replace(cluster, config_hash=found.cluster, workers=workers, ready_workers=workers),
        stored_revision=None,
        fence=row,
    )


@pytest.mark.parametrize("name", FLEET)
def test_what_the_previous_release_recorded_is_what_its_algorithm_says_here(name: str) -> None:
    found = FLEET[name]
    said = fingerprints_v1(found.spec, found.references)
    assert (said.run, said.cluster) == (found.run, found.cluster)


@pytest.mark.parametrize("name", FLEET)
def test_an_upgrade_from_the_previous_release_replaces_nothing(name: str) -> None:
    found = FLEET[name]
    world = as_the_release_left_it(found)
    decision = decide(world.pipeline, world.observation, WITH_CHART)
    assert decision.action is None, decision.status.message
    now = fingerprints(found.spec, found.references)
    assert decision.status.run is not None
    assert decision.status.cluster is not None
    assert (decision.status.run.spec_hash, decision.status.cluster.config_hash) == (now.run, now.cluster)
    again = replace(world, pipeline=replace(world.pipeline, status=decision.status))
    again_decided = decide(again.pipeline, again.observation, WITH_CHART)
    assert again_decided.action is None, "the annotations are of the release"
    assert (again_decided.reason, again_decided.status.run) == (Reason.STREAMING, decision.status.run)


@pytest.mark.parametrize("name", FLEET)
def test_an_upgrade_gives_helm_what_the_previous_release_gave_but_for_the_files(name: str) -> None:
    """A scale installs the chart again under the living driver: another value could restart its workers.

    The files are others since metrics are served, and so is the chart: such a cluster is replaced by plan first.
    """
    found = FLEET[name]
    values = cluster_values(
        pipeline=found.pipeline, spec=found.spec, references=found.references, generation=1, cluster_domain=DOMAIN,
        config_hash=found.cluster,
    )  # fmt: skip
    assert values | {"files": {}} == {**found.values, "files": {}}
    assert values["files"] != found.values["files"]


def test_what_changed_while_no_operator_ran_is_noticed() -> None:
    found = FLEET["orders-14"]
    world = as_the_release_left_it(found)
    changed = world.seen(references=References(hashes={**found.references, "Secret/account": "another password"}))
    decision = decide(changed.pipeline, changed.observation, WITH_CHART)
    assert isinstance(decision.action, StopRun)
    assert decision.status.message.startswith("Upgrading to the new spec")


def adopted(found: Recorded) -> World:
    """Return the pipeline once this release has looked at it."""
    world = as_the_release_left_it(found)
    status = decide(world.pipeline, world.observation, WITH_CHART).status
    return replace(world, pipeline=replace(world.pipeline, status=status))


@pytest.mark.parametrize("looked", [False, True])
def test_a_scale_of_an_adopted_cluster_is_a_restart_on_a_new_one_ahead_of_its_turn(looked: bool) -> None:
    """Its chart is not recorded: in place, this release's chart would replace the pods under the living driver."""
    found = FLEET["orders-1"]
    world = adopted(found) if looked else as_the_release_left_it(found)
    spec = replace(found.spec, cluster=replace(found.spec.cluster, workers=5))
    scaled = replace(
        world, pipeline=replace(world.pipeline, spec=spec), observation=replace(world.observation, may_restart=False)
    )
    decision = decide(scaled.pipeline, scaled.observation, WITH_CHART)
    assert isinstance(decision.action, StopRun)
    assert "ahead of its turn: scaling from 3 to 5 workers needs the new Spark cluster" in decision.status.message


@pytest.mark.parametrize("lost", [{"release": None}, {"cluster": None}])
def test_an_adopted_cluster_that_has_lost_something_is_never_repaired_in_place(lost: dict[str, None]) -> None:
    world = adopted(FLEET["orders-1"]).seen(**lost)
    assert isinstance(decide(world.pipeline, world.observation, WITH_CHART).action, StopRun)


def test_a_run_that_follows_an_adopted_one_has_a_cluster_of_this_releases_chart() -> None:
    found = FLEET["orders-0"]
    world = adopted(found)
    run = world.pipeline.status.run
    assert run is not None
    over = world.said(run=replace(run, ended_at=NOW, dead=True)).seen(runs=(), fence=replace(ROW, driver=None))
    decision = decide(over.pipeline, over.observation, WITH_CHART)
    assert isinstance(decision.action, InstallCluster)
    assert decision.action.values["generation"] == 2
    assert decision.status.cluster is not None
    assert decision.status.cluster.config_hash == fingerprints(found.spec, found.references, CHART).cluster


def test_a_failure_before_the_upgrade_still_counts() -> None:
    found = FLEET["orders-0"]
    world = as_the_release_left_it(found).said(failure=replace(FAILED, spec_hash=found.run))
    told, _, _ = in_present_hashes(world.pipeline, world.observation, WITH_CHART)
    assert told.status.failure == replace(FAILED, spec_hash=fingerprints(found.spec, found.references).run)
    assert told.status.run is not None
    over = world.said(run=replace(told.status.run, ended_at=NOW, dead=True), failure=told.status.failure)
    told, _, _ = in_present_hashes(over.pipeline, over.observation, WITH_CHART)
    assert told.status.failure == replace(FAILED, spec_hash=fingerprints(found.spec, found.references, CHART).run)


def test_nothing_is_told_otherwise_while_the_references_cannot_be_read() -> None:
    world = as_the_release_left_it(FLEET["orders-0"]).seen(references=SILENT)
    as_it_was = (world.pipeline, world.observation, WITH_CHART)
    assert in_present_hashes(*as_it_was) == as_it_was
    assert decide(world.pipeline, world.observation, WITH_CHART).action is None


def test_another_chart_is_rolled_out_as_a_planned_restart_that_says_so() -> None:
    found = FLEET["orders-0"]
    now = fingerprints(found.spec, found.references, CHART)
    world = as_the_release_left_it(replace(found, run=now.run, cluster=now.cluster))
    assert decide(world.pipeline, world.observation, WITH_CHART).action is None
    decision = decide(world.pipeline, world.observation, replace(POLICY, chart="another"))
    assert isinstance(decision.action, StopRun)
    assert decision.reason == Reason.UPGRADING
    assert "the operator's new chart of the Spark cluster" in decision.status.message
    assert decision.status.failure is None


def test_after_another_chart_the_next_cluster_is_a_generation_of_its_own() -> None:
    """Never in place: that would restart the workers under whatever still runs there."""
    found = FLEET["orders-0"]
    now = fingerprints(found.spec, found.references, CHART)
    world = as_the_release_left_it(replace(found, run=now.run, cluster=now.cluster))
    over = world.said(run=None).seen(
        runs=(), fence=replace(ROW, driver=None),
        release=Release(name="orders", revision=1, state=ReleaseState.DEPLOYED),
    )  # fmt: skip
    decision = decide(over.pipeline, over.observation, replace(POLICY, chart="another"))
    assert isinstance(decision.action, InstallCluster)
    assert decision.action.values["generation"] == 2
    same = decide(over.pipeline, over.observation, WITH_CHART)
    assert not isinstance(same.action, InstallCluster)


def test_a_hash_of_a_later_release_is_of_another_spec() -> None:
    """After a rollback of the operator: nobody can tell, so the run is replaced, gracefully."""
    found = FLEET["orders-0"]
    world = as_the_release_left_it(found)
    (job,) = world.observation.runs.value  # type: ignore[union-attr]
    world = world.seen(runs=(replace(job, spec_hash="v3:0123456789abcdef.0123"),))
    decision = decide(world.pipeline, world.observation, WITH_CHART)
    assert isinstance(decision.action, StopRun)


def spec_of(**changes: Any) -> Spec:
    spec = read_pipeline(body(**changes)).spec
    assert isinstance(spec, Spec)
    return spec


def test_the_form_of_a_hash() -> None:
    """These digests are recorded in every status: other ones for the same spec would replace every run."""
    code: dict[str, str | None] = {"ConfigMap/code": "abc"}
    assert fingerprints(spec_of(), code, "1234") == Fingerprints(
        cluster="v2:f283ab7ad7cda728.1234", run="v2:95d6fbd3e39ca13c.1234"
    )
    fullest = FLEET["orders-9"]
    assert fingerprints(fullest.spec, fullest.references).run == "v2:7adbf8e5d3419149"


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
    assert fingerprints_v1(replace(spec, job=later(**own)), {}) == fingerprints_v1(spec, {})


def test_what_is_written_out_as_it_is_by_default_changes_no_hash() -> None:
    written: dict[str, Any] = {
        "job": {"image": "registry.example/job:1", "entrypoint": "orders.job:transform", "memory": "512Mi", "args": []},
        "cluster": {"workers": 4, "worker": {"cores": 1}, "master": {}, "sparkConf": {}},
        "batchInterval": "5s",
    }
    assert fingerprints(spec_of(**written), {}) == fingerprints(spec_of(), {})


def test_each_field_that_is_set_counts() -> None:
    """Each field of what a run depends on, one after the other, at another value than its default."""
    spec = spec_of()
    parts: dict[str, Any] = {
        "job": spec.job,
        "source": spec.source,
        "checkpoint": spec.checkpoint,
        "cluster": spec.cluster,
    }
    uncounted = {"workers", "create_schema", "replication_class", "replication_factor", "tls"}
    uncounted |= {"max_records_per_batch", "min_records_per_batch", "max_bytes_per_batch", "target_batch_duration"}
    for name, part in parts.items():
        for field in fields(part):
            before = getattr(part, field.name)
            if field.name in uncounted or is_dataclass(before) or field.name.startswith("env"):
                continue
            changed = replace(spec, **{name: replace(part, **{field.name: _other(before)})})
            assert fingerprints(changed, {}).run != fingerprints(spec, {}).run, f"{name}.{field.name}"
            assert field.default is not MISSING or field.default_factory is not MISSING or before


def _other(value: object) -> Any:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case tuple():
            return ("other",)
        case dict():
            return {"other": "other"}
        case _:
            return "other"


def test_the_fleet_is_large_and_its_specs_differ() -> None:
    assert len({found.run for found in FLEET.values()}) == len(FLEET) == 20
    assert all(isinstance(found.pipeline, Pipeline) for found in FLEET.values())
