"""One suite for the operator's ports: what the in-memory world promises, the adapters keep."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from contract.operator_stages import Stage, in_memory, on_the_testbed
from fakes.fence_stores import CassandraFenceStore
from fakes.manifests import values_of
from fakes.secrets import Secrets
from fencepost_operator.adapters.kubernetes.revisions import KEPT
from fencepost_operator.api import Event, EventType, Pipeline, ReconcileConfig, Revision, Spec, StableStatus, State
from fencepost_operator.desired.identity.revision import controller_revision
from fencepost_operator.desired.jobs.driver_config import driver_config
from fencepost_operator.desired.jobs.run_config import run_config
from fencepost_operator.desired.jobs.run_job import run_job
from fencepost_operator.errors import Conflict, Denied, Rejected, Unreachable
from fencepost_operator.observation import (
    Known,
    ReleaseState,
    Retention,
    Run,
    UnreadRecords,
    Watermarks,
)
from harness.waiting import answered, eventually_async
from present import present
from testbed.environment import load

PINNED = "bbbbbbbb-0000-11f1-8000-000000000000"


@pytest.fixture(params=["memory", pytest.param("testbed", marks=pytest.mark.integration)])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    world = in_memory() if request.param == "memory" else on_the_testbed(load(), tmp_path)
    async with world as made:
        yield made


async def pipeline(stage: Stage) -> Pipeline:
    return present(await stage.ports.pipelines.read(stage.key))


async def values(stage: Stage, *, workers: int = 1, generation: int = 1) -> dict[str, Any]:
    seen = await pipeline(stage)
    assert isinstance(seen.spec, Spec)
    spec = replace(seen.spec, cluster=replace(seen.spec.cluster, workers=workers))
    return {**values_of(seen, spec, generation=generation), "ownerReference": {}}


async def job(stage: Stage, epoch: int, *, spec_hash: str = "abc", generation: int = 4) -> dict[str, Any]:
    return (await job_and_config_map(stage, epoch, spec_hash=spec_hash, generation=generation))[0]


async def job_and_config_map(
    stage: Stage, epoch: int, *, spec_hash: str = "abc", generation: int = 4
) -> tuple[dict[str, Any], dict[str, Any]]:
    seen = await pipeline(stage)
    assert isinstance(seen.spec, Spec)
    settings = ReconcileConfig(cluster_uid="cluster")
    config = driver_config(key=stage.key, spec=seen.spec, references={}, config=settings, epoch=epoch, generation=4)
    made = run_job(pipeline=seen, spec=seen.spec, config=config, generation=generation, spec_hash=spec_hash)
    mounted = run_config(pipeline=seen, config=config)
    for one in (made, mounted):
        one["metadata"]["ownerReferences"] = [dict(stage.reference)]
    return made, mounted


# The pipeline


async def test_a_pipeline_is_read_or_absent(stage: Stage) -> None:
    seen = await pipeline(stage)
    assert seen.key == stage.key
    assert isinstance(seen.spec, Spec)
    assert await stage.ports.pipelines.read(replace(stage.key, name="absent")) is None


async def test_a_status_is_replaced_only_over_what_was_read(stage: Stage) -> None:
    async def write() -> tuple[Pipeline, Pipeline] | None:
        before = await pipeline(stage)
        status = replace(before.status, state=State.SUSPENDED, message="as asked", epoch=3)
        try:
            return before, await stage.ports.pipelines.write_status(before, status)
        except Conflict:
            return None

    pair = present(await stage.eventually(write))
    before, after = pair
    assert (after.status.state, after.status.message, after.status.epoch) == (State.SUSPENDED, "as asked", 3)
    assert after.resource_version != before.resource_version
    with pytest.raises(Conflict):
        await stage.ports.pipelines.write_status(before, before.status)


async def test_the_finalizer_is_set_only_over_what_was_read(stage: Stage) -> None:
    stale = replace(await pipeline(stage), resource_version="1", finalizers=())

    async def add() -> bool:
        try:
            await stage.ports.pipelines.set_finalizer(await pipeline(stage), present=True)
        except Conflict:
            return False
        return (await pipeline(stage)).has_finalizer

    assert await stage.eventually(add)
    with pytest.raises(Conflict):
        await stage.ports.pipelines.set_finalizer(stale, present=True)


async def test_events_are_published(stage: Stage) -> None:
    event = Event(EventType.NORMAL, "RunStarted", "Starting orders-run-1")
    await stage.ports.pipelines.publish(await pipeline(stage), [event, event])


# The cluster


async def test_a_release_comes_and_goes(stage: Stage) -> None:
    releases, key = stage.ports.releases, stage.key
    assert await releases.release(key) is None
    assert await releases.cluster(key) is None
    await releases.uninstall(key)
    await releases.install(key, await values(stage))
    assert await releases.release(key) == ReleaseState.DEPLOYED
    cluster = present(await releases.cluster(key))
    assert (cluster.generation, cluster.workers) == (1, 1)
    assert cluster.config_hash == (await values(stage))["annotations"]["streaming.fencepost.dev/config-hash"]
    await releases.install(key, await values(stage, workers=3))
    scaled = present(await releases.cluster(key))
    assert (scaled.generation, scaled.workers) == (1, 3)
    await releases.install(key, await values(stage, generation=2))
    renewed = present(await releases.cluster(key))
    assert renewed.generation == 2
    await releases.uninstall(key)
    await releases.uninstall(key)
    assert await releases.release(key) is None
    assert await releases.cluster(key) is None


async def test_an_older_generation_stays_where_a_run_works_on_it(stage: Stage) -> None:
    releases, key = stage.ports.releases, stage.key
    await releases.install(key, await values(stage))
    first = set((await releases.objects(key, urgent=False)).found)
    await releases.install(key, await values(stage, generation=2), keep=1)
    both = await releases.objects(key, urgent=False)
    assert first < set(both.found)
    assert both.damage == ()
    cluster = present(await releases.cluster(key))
    assert (cluster.generation, [(each.generation, each.workers) for each in cluster.others]) == (2, [(1, 1)])
    await releases.install(key, await values(stage))  # a next run that failed: back to the one that works
    back = await releases.objects(key, urgent=False)
    assert (set(back.found), back.damage) == (first, ())
    await releases.install(key, await values(stage, generation=3), keep=1)
    await releases.prune(key, list(first))
    assert {found.generation for found in (await releases.objects(key, urgent=False)).found} == {3}


async def refused(stage: Stage, generation: int) -> None:
    """Try to install a generation whose StatefulSets the API server refuses."""
    taints = [{"key": "dedicated", "operator": "Exists", "value": "batch"}]
    with pytest.raises(Rejected, match="operator"):
        await stage.ports.releases.install(
            stage.key, {**await values(stage, generation=generation), "tolerations": taints}
        )


async def test_what_a_refused_upgrade_left_behind_is_seen_and_deleted(stage: Stage) -> None:
    releases, key = stage.ports.releases, stage.key
    assert (await releases.objects(key, urgent=False)).found == ()
    await releases.install(key, await values(stage))
    assert {found.generation for found in (await releases.objects(key, urgent=False)).found} == {1}
    await refused(stage, 2)
    assert {found.generation for found in (await releases.objects(key, urgent=False)).found} == {1, 2}
    await releases.install(key, await values(stage, generation=3))
    found = (await releases.objects(key, urgent=False)).found
    left = [part for part in found if part.generation == 2]
    assert {part.generation for part in found} == {2, 3}
    assert {"Service", "Secret", "ConfigMap"} <= {part.kind for part in left}
    await releases.prune(key, [replace(part, uid="another") for part in left])
    assert set((await releases.objects(key, urgent=False)).found) == set(found)
    await releases.prune(key, left)
    await releases.prune(key, left)
    assert set((await releases.objects(key, urgent=False)).found) == set(found) - set(left)
    cluster = present(await releases.cluster(key))
    assert cluster.generation == 3


async def test_what_an_uninstall_after_a_refused_upgrade_leaves_is_seen(stage: Stage) -> None:
    releases, key = stage.ports.releases, stage.key
    await releases.install(key, await values(stage))
    await refused(stage, 2)
    await releases.uninstall(key)
    left = (await releases.objects(key, urgent=False)).found
    assert {part.generation for part in left} == {1}
    assert "StatefulSet" in {part.kind for part in left}
    await releases.prune(key, left)
    assert (await releases.objects(key, urgent=False)).found == ()


# Runs


async def test_a_run_is_started_once_and_stopped_once(stage: Stage) -> None:
    runs, key = stage.ports.runs, stage.key
    assert (await runs.list(key, stage.owner)).runs == ()
    await runs.start(key, *await job_and_config_map(stage, 12))
    await runs.start(key, *await job_and_config_map(stage, 7))
    await runs.start(key, *await job_and_config_map(stage, 7))
    found = (await runs.list(key, stage.owner)).runs
    assert [(run.name, run.epoch, run.spec_hash, run.cluster_generation) for run in found] == [
        ("orders-run-7", 7, "abc", 4),
        ("orders-run-12", 12, "abc", 4),
    ]
    assert not any(run.finished or run.deleting for run in found)
    assert {run.termination_grace for run in found} == {60}
    assert (await runs.list(key, "another uid")).runs == ()

    async def has_pod() -> Run | None:
        return next((run for run in (await runs.list(key, stage.owner)).runs if run.epoch == 7 and run.pod), None)

    run = present(await stage.eventually(has_pod))
    assert run.pod is not None
    assert (run.had_pod, run.pod.exit_code, run.pod.force_deleted) == (True, None, False)
    await runs.stop(key, "orders-run-7")
    await runs.stop(key, "orders-run-7")

    async def one_is_left() -> bool:
        return [run.epoch for run in (await runs.list(key, stage.owner)).runs] == [12]

    assert await stage.eventually(one_is_left)
    await runs.stop(key, "orders-run-7")


async def test_a_job_of_that_name_that_another_object_owns_is_an_error(stage: Stage) -> None:
    runs, key = stage.ports.runs, stage.key
    foreign = await job(stage, 3)
    foreign["metadata"]["ownerReferences"][0]["uid"] = stage.stranger["uid"]
    foreign["metadata"]["ownerReferences"][0]["name"] = stage.stranger["name"]
    await runs.start(key, foreign)
    with pytest.raises(Rejected, match=f"orders-run-3.* {stage.stranger['name']}") as caught:
        await runs.start(key, await job(stage, 3))
    assert "kubectl delete job orders-run-3" in caught.value.remedy
    assert (await runs.list(key, stage.owner)).runs == ()


@pytest.mark.parametrize("late", [{"spec_hash": "old"}, {"generation": 3}], ids=["spec", "generation"])
async def test_a_job_of_ours_that_was_made_for_another_spec_is_reported(stage: Stage, late: dict[str, Any]) -> None:
    runs, key = stage.ports.runs, stage.key
    await runs.start(key, await job(stage, 3, **late))
    with pytest.raises(Rejected, match=r"orders-run-3.*another spec"):
        await runs.start(key, await job(stage, 3))
    (run,) = (await runs.list(key, stage.owner)).runs
    assert (run.spec_hash, run.cluster_generation) == (late.get("spec_hash", "abc"), late.get("generation", 4))


async def test_a_node_that_is_gone_has_no_uid(stage: Stage) -> None:
    node = await stage.ports.runs.node("absent")
    assert (node.name, node.uid, node.ready) == ("absent", None, False)


# What a spec names


async def test_references_say_what_is_missing(stage: Stage) -> None:
    names = ["Secret/account", "ConfigMap/absent", "Secret/absent"]
    found = await stage.ports.objects.references(stage.key, names)
    assert list(found.hashes) == names
    assert found.missing() == ("ConfigMap/absent", "Secret/absent")
    with pytest.raises(Rejected, match="absent"):
        await stage.ports.objects.secret(stage.key, "absent")


# Kafka


async def test_log_ends_and_missing_topics(stage: Stage) -> None:
    (topic,) = stage.kafka.topics

    async def whole() -> Watermarks | None:
        """Return what Kafka says, once both partitions of the new topic have a leader."""
        found = await answered(lambda: stage.ports.offsets.ends(stage.kafka), Unreachable)
        return found if found is not None and len(found.ends) == 2 else None

    found = present(await eventually_async(whole))
    assert found.ends == {f"{topic}/0": 0, f"{topic}/1": 0}
    assert found.missing_topics == ()
    asked = replace(stage.kafka, topics=(topic, "absent"))
    found = present(await answered(lambda: stage.ports.offsets.ends(asked), Unreachable))
    assert (sorted(found.ends), found.missing_topics) == ([f"{topic}/0", f"{topic}/1"], ("absent",))


async def test_the_retention_of_a_topic_and_no_age_where_nothing_is_unread(stage: Stage) -> None:
    (topic,) = stage.kafka.topics
    source = present(await answered(lambda: stage.ports.offsets.ends(stage.kafka), Unreachable))
    found = await answered(lambda: stage.ports.offsets.unread(stage.key, stage.kafka, source, {}), Unreachable)
    assert found == UnreadRecords(retention={topic: Known(Retention())})


# What cannot be reached, on the adapters alone

_WRONG_PASSWORD = Secrets({"username": "fencepost", "password": "wrong"})


@pytest.mark.integration
async def test_a_kafka_or_cassandra_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    async with on_the_testbed(load(), tmp_path) as stage:
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
            await stage.ports.offsets.ends(replace(stage.kafka, bootstrap_servers="127.0.0.1:1"))
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
            await stage.ports.fences.read(replace(stage.cassandra, port=1), "contract/a/b")
        with pytest.raises(Denied) as caught:
            await CassandraFenceStore(_WRONG_PASSWORD).read(stage.cassandra, "contract/a/b")
        assert "credentialsFrom" in caught.value.remedy
        nowhere = replace(stage.cassandra, contact_points=("absent.fencepost.test",))
        with pytest.raises(Unreachable, match="absent"):
            await stage.ports.fences.read(nowhere, "contract/a/b")


async def test_the_durability_settings_of_topics_and_keyspaces_are_read(stage: Stage) -> None:
    topics = present(await stage.ports.offsets.settings(stage.kafka))
    (settings,) = topics.values()
    assert topics.keys() == set(stage.kafka.topics)
    assert None not in {settings.replicas, settings.min_insync_replicas, settings.unclean_leader_election}
    found = await stage.ports.fences.settings(stage.cassandra, ["system_auth"])
    assert found.nodes["datacenter1"] >= 1
    assert found.commitlog_sync is not None
    keyspace = present(found.keyspaces["system_auth"])
    assert "class" in keyspace.replication


# The specs that are kept


async def test_a_revision_is_stored_once_and_read_back(stage: Stage) -> None:
    seen, revisions = await pipeline(stage), stage.ports.revisions
    kept = Revision.of(
        stage.key.name, {"job": {"image": "é", "n": 1.5}}, {"ConfigMap/code": "abc", "ConfigMap/x": None}
    )
    assert await revisions.find(stage.key, stage.owner, kept.name) is None
    for _ in range(2):
        await revisions.store(stage.key, _owned(stage, controller_revision(seen, kept)), ())
    assert await revisions.find(stage.key, stage.owner, kept.name) == kept
    with pytest.raises(Rejected, match="belongs to"):
        await revisions.find(stage.key, stage.stranger["uid"], kept.name)


async def test_a_revision_of_other_content_is_refused_and_replaced(stage: Stage) -> None:
    seen, revisions = await pipeline(stage), stage.ports.revisions
    kept = Revision.of(stage.key.name, {"job": {}}, {})
    wanted = _owned(stage, controller_revision(seen, kept))
    await revisions.store(stage.key, {**wanted, "data": {"spec": {"job": {"image": "evil"}}}}, ())
    with pytest.raises(Rejected, match="has been changed"):
        await revisions.find(stage.key, stage.owner, kept.name)
    await revisions.store(stage.key, wanted, ())
    assert await revisions.find(stage.key, stage.owner, kept.name) == kept


async def test_a_revision_of_another_owner_is_left_alone(stage: Stage) -> None:
    seen, revisions = await pipeline(stage), stage.ports.revisions
    kept = Revision.of(stage.key.name, {"job": {}}, {})
    theirs = _owned(stage, controller_revision(seen, kept), **stage.stranger)
    await revisions.store(stage.key, theirs, ())
    with pytest.raises(Rejected, match="belongs to"):
        await revisions.store(stage.key, _owned(stage, controller_revision(seen, kept)), ())


async def test_old_revisions_go_and_needed_ones_stay(stage: Stage) -> None:
    seen, revisions = await pipeline(stage), stage.ports.revisions
    made = [Revision.of(stage.key.name, {"number": number}, {}) for number in range(KEPT + 3)]
    needed = made[0].name
    for number, each in enumerate(made):
        await revisions.store(stage.key, _owned(stage, controller_revision(seen, each)), (needed,))
        if number < 3:
            await stage.wait()  # the API server dates objects to the second
            await stage.wait()
    found = [each for each in made if await revisions.find(stage.key, stage.owner, each.name) is not None]
    assert len(found) in {KEPT, KEPT + 1}
    assert made[0] in found
    assert made[-1] in found
    assert made[1] not in found


async def test_a_kept_spec_pins_snapshots_while_a_status_names_it(stage: Stage) -> None:
    seen, pipelines = await pipeline(stage), stage.ports.pipelines
    pins = [{"name": "state", "pipeline": stage.key.name, "snapshot": PINNED}]
    kept = Revision.of(stage.key.name, {"source": {"pinnedStates": pins}}, {})
    await stage.ports.revisions.store(stage.key, _owned(stage, controller_revision(seen, kept)), ())
    assert await pipelines.pinned_snapshots(stage.key) == frozenset()
    stable = StableStatus(revision=kept.name, epoch=1, since=datetime(2026, 1, 1, tzinfo=UTC))
    seen = await pipeline(stage)
    await pipelines.write_status(seen, replace(seen.status, stable=stable))
    assert await pipelines.pinned_snapshots(stage.key) == {PINNED}
    assert await pipelines.pinned_snapshots(replace(stage.key, name="another")) == frozenset()


def _owned(stage: Stage, manifest: Mapping[str, Any], **other: str) -> dict[str, Any]:
    reference = {**stage.reference, **other}
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [reference]}}
