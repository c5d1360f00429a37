"""Spark clusters by a real Helm in a real API server; what they run does not matter here, so images are absent."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
import os
import signal
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fencepost_operator.adapters.clock import SystemClock
from fencepost_operator.adapters.helm.command import Helm
from fencepost_operator.adapters.helm.releases import HelmReleases
from fencepost_operator.adapters.kubernetes.api_server import (
    CONFIG_MAPS,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SECRETS,
    SERVICES,
    STATEFUL_SETS,
    ApiServer,
    Resource,
)
from fencepost_operator.api import GROUP, ObjectKey
from fencepost_operator.desired import labels, names
from fencepost_operator.desired.cluster.spark_files import spark_files
from fencepost_operator.errors import Rejected, Unreachable
from fencepost_operator.observation import ReleaseState
from harness.waiting import eventually_async
from integration.operator.cluster import CHART
from present import present
from testbed.environment import Environment

pytestmark = pytest.mark.integration

QUOTAS = Resource(prefix="/api/v1", plural="resourcequotas")


def values(**changes: Any) -> Mapping[str, Any]:
    return {
        "pipeline": "departures",
        "generation": 1,
        "image": "fencepost.test/absent:1",
        "imagePullPolicy": "Never",
        "workers": 2,
        "annotations": {f"{GROUP}/config-hash": "abc"},
        "files": spark_files({}),
        **changes,
    }


@pytest.fixture
def helm(testbed: Environment, tmp_path: Path) -> Helm:
    return Helm(binary=testbed.helm, chart=CHART, kubeconfig=testbed.kubeconfig, home=tmp_path)


@pytest.fixture
async def store(api: ApiServer) -> AsyncIterator[str]:
    """What stands for the operator's namespace."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    await api._call("POST", "create", NAMESPACES, body={"metadata": {"name": name}})
    yield name
    await api._call("DELETE", "delete", NAMESPACES, name=name, body={"propagationPolicy": "Background"})


@pytest.fixture
def releases(api: ApiServer, helm: Helm, store: str) -> HelmReleases:
    return HelmReleases(api=api, helm=helm, clock=SystemClock(), namespace=store)


@pytest.fixture
def place(namespace: str) -> ObjectKey:
    return ObjectKey(namespace, "departures")


async def uids(api: ApiServer, place: ObjectKey) -> set[str]:
    return {found["metadata"]["uid"] for found in await api.list(STATEFUL_SETS, namespace=place.namespace)}


def revision_name(place: ObjectKey, revision: int) -> str:
    return f"sh.helm.release.v1.{names.release_name(place)}.v{revision}"


async def mark(api: ApiServer, store: str, place: ObjectKey, revision: int, status: str) -> None:
    """Make a revision's Secret look as a helm that was killed leaves it."""
    body = {"metadata": {"labels": {"status": status}}}
    await api.merge(SECRETS, namespace=store, name=revision_name(place, revision), body=body)


PARTS: dict[str, tuple[Resource, dict[str, Any]]] = {
    "Secret departures-g1-auth": (SECRETS, {"data": {"secret": "b3RoZXI="}}),
    "ConfigMap departures-g1-conf": (CONFIG_MAPS, {"data": {"spark-defaults.conf": "other"}}),
    "Service departures-g1-master": (SERVICES, {"spec": {"selector": {labels.COMPONENT: "other"}}}),
    "Service departures-g1-worker": (SERVICES, {"spec": {"publishNotReadyAddresses": False}}),
    "PodDisruptionBudget departures-g1-worker": (POD_DISRUPTION_BUDGETS, {"spec": {"maxUnavailable": 2}}),
    "StatefulSet departures-g1-worker": (
        STATEFUL_SETS,
        {"spec": {"template": {"metadata": {"labels": {"app.kubernetes.io/part-of": "x"}}}}},
    ),
}
"""Each kind of a cluster's objects, and a change of one by hand."""


async def test_each_object_that_is_deleted_or_changed_is_found_and_restored(
    api: ApiServer, releases: HelmReleases, place: ObjectKey
) -> None:
    """The same secret is restored: pods that run have it, and a new one would keep the next driver from joining."""
    assert (await releases.objects(place, urgent=False)).found == ()
    await releases.install(place, values())

    async def damage() -> tuple[str, ...]:
        releases.note_change(place)
        return (await releases.objects(place, urgent=False)).damage

    async def secret() -> Any:
        found = await api.get(SECRETS, namespace=place.namespace, name="departures-g1-auth")
        return found and found["data"]

    before, known = await secret(), await releases.objects(place, urgent=False)
    assert await damage() == (), "the API server's defaults are not a change"
    assert set(known.found) == set((await releases.objects(place, urgent=False)).found), "as its installation knew"
    sets = await uids(api, place)
    for named, (resource, change) in PARTS.items():
        name = named.partition(" ")[2]
        await api.merge(resource, namespace=place.namespace, name=name, body=change)
        assert [found.partition(" was changed")[0] for found in await damage()] == [named]
        await releases.restore(place)
        assert await damage() == (), named
        assert await uids(api, place) == sets, "nothing is replaced"
        await api.delete(resource, namespace=place.namespace, name=name)
        await eventually_async(partial(_is_gone, api, resource, place, name))
        assert await damage() == (f"{named} was deleted",)
        await releases.restore(place)
        assert await damage() == (), named
    assert await secret() == before
    assert await releases.release(place) is ReleaseState.DEPLOYED
    await releases.uninstall(place)
    assert (await releases.objects(place, urgent=False)).damage == ()


async def _is_gone(api: ApiServer, resource: Resource, place: ObjectKey, name: str) -> bool:
    return await api.get(resource, namespace=place.namespace, name=name) is None


async def test_nothing_is_there_before_the_install(releases: HelmReleases, place: ObjectKey) -> None:
    assert await releases.release(place) is None
    assert await releases.cluster(place) is None
    await releases.uninstall(place)


async def test_install_scale_and_uninstall(api: ApiServer, releases: HelmReleases, place: ObjectKey) -> None:
    await releases.install(place, values())
    assert await releases.release(place) is ReleaseState.DEPLOYED
    before = await uids(api, place)

    async def seen() -> Any:
        cluster = await releases.cluster(place)
        # A kubelet that is busy first says FailedMount of a ConfigMap that it does not have yet.
        reasons = [issue.reason for issue in cluster.issues] if cluster else []
        return cluster if reasons == ["ErrImageNeverPull"] * 3 else None

    cluster = await eventually_async(seen)
    assert (cluster.generation, cluster.config_hash, cluster.workers) == (1, "abc", 2)
    assert (cluster.ready_workers, cluster.master_ready) == (0, False)

    await releases.install(place, values(workers=1))
    scaled = present(await releases.cluster(place))
    assert scaled.workers == 1
    assert await uids(api, place) == before

    await releases.uninstall(place)
    await releases.uninstall(place)
    assert await releases.release(place) is None
    assert await releases.cluster(place) is None


async def test_a_new_generation_replaces_the_old_one(api: ApiServer, releases: HelmReleases, place: ObjectKey) -> None:
    await releases.install(place, values())
    before = await uids(api, place)
    await releases.install(place, values(generation=2))
    cluster = present(await releases.cluster(place))
    assert cluster.generation == 2
    assert not await uids(api, place) & before


@pytest.mark.parametrize("left", ["pending-install", "uninstalling", "failed"])
async def test_a_first_install_that_was_cut_off_is_done_again(
    api: ApiServer, releases: HelmReleases, store: str, place: ObjectKey, left: str
) -> None:
    await releases.install(place, values())
    before = await uids(api, place)
    await mark(api, store, place, 1, left)
    await releases.install(place, values(workers=1))
    assert await releases.release(place) is ReleaseState.DEPLOYED
    # Only what was being removed goes; what a pending install made is adopted as it is.
    assert (await uids(api, place) == before) is (left != "uninstalling")


async def test_an_upgrade_that_was_cut_off_disturbs_nothing(
    api: ApiServer, releases: HelmReleases, store: str, place: ObjectKey
) -> None:
    await releases.install(place, values())
    await releases.install(place, values(workers=3))
    before = await uids(api, place)
    await mark(api, store, place, 1, "deployed")
    await mark(api, store, place, 2, "pending-upgrade")
    assert await releases.release(place) is ReleaseState.PENDING
    await releases.install(place, values(workers=1))
    cluster = present(await releases.cluster(place))
    assert cluster.workers == 1
    assert await uids(api, place) == before


async def test_an_operator_that_dies_between_any_two_writes_of_a_first_revision_is_made_good_by_the_next_one(
    releases: HelmReleases, place: ObjectKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator dies after 0, 1, 2 … writes: pending revision, each object, deployed revision."""
    whole = await writes_until_death(releases, place, monkeypatch, after=None)
    kinds = Counter(plural for _, plural in whole)
    assert kinds["secrets"] == 3, "the revision twice, and the cluster's own Secret"
    for after in range(len(whole)):
        key = ObjectKey(place.namespace, f"cut-{after}")
        assert await writes_until_death(releases, key, monkeypatch, after=after) == whole[:after]
        await releases.install(key, values(pipeline=key.name))
        assert await releases.release(key) is ReleaseState.DEPLOYED
        cluster = present(await releases.cluster(key))
        assert (cluster.generation, cluster.workers) == (1, 2), after
        releases.note_change(key)
        assert (await releases.objects(key, urgent=False)).damage == (), after


class Dead(BaseException):
    """The operator's process is gone, as an exception that nothing handles."""


async def writes_until_death(
    releases: HelmReleases, key: ObjectKey, monkeypatch: pytest.MonkeyPatch, *, after: int | None
) -> list[tuple[str, str]]:
    """Install the first revision and die before the write that follows so many; return the verb and kind of each."""
    written: list[tuple[str, str]] = []

    def watched(verb: str) -> Callable[..., Awaitable[Any]]:
        write = getattr(ApiServer, verb)

        async def until_death(api: ApiServer, resource: Resource, **request: Any) -> Any:
            if len(written) == after:
                raise Dead
            answer = await write(api, resource, **request)
            written.append((verb, resource.plural))
            return answer

        return until_death

    with monkeypatch.context() as patched:
        for verb in ("create", "replace"):
            patched.setattr(ApiServer, verb, watched(verb))
        if after is None:
            await releases.install(key, values(pipeline=key.name))
        else:
            with pytest.raises(Dead):
                await releases.install(key, values(pipeline=key.name))
    return written


@pytest.mark.parametrize("after", [0.15, 0.4, 0.8, 1.2])
async def test_helm_killed_midway_is_made_good_by_the_next_one(
    releases: HelmReleases, place: ObjectKey, monkeypatch: pytest.MonkeyPatch, after: float
) -> None:
    """The moment is random within helm's work; each must end well."""
    start = asyncio.create_subprocess_exec

    async def start_and_kill(*arguments: Any, **options: Any) -> asyncio.subprocess.Process:
        process = await start(*arguments, **options)

        def end() -> None:
            if process.returncode is None:
                os.kill(process.pid, signal.SIGKILL)

        asyncio.get_running_loop().call_later(after, end)
        return process

    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "create_subprocess_exec", start_and_kill)
        with contextlib.suppress(Unreachable):
            await releases.install(place, values())
    await releases.install(place, values())
    release, cluster = await releases.release(place), await releases.cluster(place)
    assert release is ReleaseState.DEPLOYED
    assert cluster is not None
    assert cluster.workers == 2


async def test_a_cancelled_install_takes_its_process_along(
    releases: HelmReleases, place: ObjectKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, stopped = asyncio.create_subprocess_exec, asyncio.Event()

    async def start_and_stop(*arguments: Any, **options: Any) -> asyncio.subprocess.Process:
        process = await start(*arguments, **options)
        stop(process.pid)
        stopped.set()
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_and_stop)
    task = asyncio.create_task(releases.install(place, values()))
    async with asyncio.timeout(30):
        await stopped.wait()
    assert processes_that_mention(names.release_name(place)) != []
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert processes_that_mention(names.release_name(place)) == []


def stop(pid: int) -> None:
    """Stop helm, which may otherwise be done before it is cancelled; from then on /proc has its command line."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)


def processes_that_mention(word: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += [path.parent.name] if word.encode() in path.read_bytes() else []
    return found


async def test_what_the_chart_refuses_is_rejected(releases: HelmReleases, place: ObjectKey) -> None:
    with pytest.raises(Rejected, match="workers"):
        await releases.install(place, values(workers="many"))


async def test_what_the_api_server_refuses_is_rejected_in_its_words(releases: HelmReleases, place: ObjectKey) -> None:
    with pytest.raises(Rejected, match=r"(?i)quantit|memory"):
        await releases.install(place, values(worker={"resources": {"limits": {"memory": "-5"}}}))


REFUSED: Mapping[str, Mapping[str, Any]] = {
    "tolerations": {"tolerations": [{"key": "dedicated", "operator": "Sometimes"}]},
    "affinity": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 0}]}}},
    "resources of the workers": {"worker": {"resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}}},
}
"""Values that the chart renders and the API server refuses at a StatefulSet, when the other objects are there."""


async def test_what_refused_upgrades_left_is_found_and_deleted_by_the_next_one(
    api: ApiServer, releases: HelmReleases, place: ObjectKey
) -> None:
    await releases.install(place, values(master={"storage": {"size": "1Mi", "storageClassName": "standard"}}))
    for generation, wrong in enumerate(REFUSED.values(), start=2):
        with pytest.raises(Rejected, match="StatefulSet"):
            await releases.install(place, values(generation=generation, **wrong))
    await releases.install(place, values(generation=9))
    found = (await releases.objects(place, urgent=False)).found
    left = [part for part in found if part.generation != 9]
    assert {part.generation for part in left} == {2, 3, 4}
    assert ("StatefulSet", 4) in {(part.kind, part.generation) for part in left}, "a master that runs"
    await releases.prune(place, left)

    async def metadata() -> list[dict[str, Any]]:
        kinds = (STATEFUL_SETS, SERVICES, SECRETS, CONFIG_MAPS, POD_DISRUPTION_BUDGETS, PODS, PERSISTENT_VOLUME_CLAIMS)
        lists = [await api.list(kind, namespace=place.namespace, labels=f"{GROUP}/generation") for kind in kinds]
        return [item["metadata"] for items in lists for item in items]

    async def only_the_newest() -> set[str]:
        present = {one["name"]: one for one in await metadata()}
        shown = ("deletionTimestamp", "finalizers", "ownerReferences")
        others = {
            name: {field: one.get(field) for field in shown}
            for name, one in present.items()
            if not name.startswith("departures-g9-")
        }
        assert others == {}
        return set(present)

    names_left = await eventually_async(only_the_newest)
    assert {part.name for part in (await releases.objects(place, urgent=False)).found} <= names_left


async def test_the_volume_of_a_cluster_that_is_replaced_at_once_is_deleted(
    api: ApiServer, releases: HelmReleases, place: ObjectKey
) -> None:
    """Kubernetes leaves the claims of a StatefulSet that is deleted within seconds of its creation."""
    on_a_volume = {"master": {"storage": {"size": "1Mi", "storageClassName": "standard"}}}
    await releases.install(place, values(**on_a_volume))
    await releases.install(place, values(generation=2, **on_a_volume))

    async def only_the_newest() -> bool:
        claims = await api.list(PERSISTENT_VOLUME_CLAIMS, namespace=place.namespace)
        assert [claim["metadata"]["name"] for claim in claims] == ["departures-g2-recovery"]
        return True

    assert await eventually_async(only_the_newest)


async def test_what_only_carries_the_label_is_left_alone(
    api: ApiServer, releases: HelmReleases, place: ObjectKey
) -> None:
    """A tenant's copy of one of our objects, and one with a generation that is not a number."""
    await releases.install(place, values())
    before = set((await releases.objects(place, urgent=False)).found)
    marks = {f"{GROUP}/pipeline": place.name, f"{GROUP}/generation": "7"}
    for name, number in (("departures-g7-conf", "7"), ("departures-g8-conf", "9" * 63), ("mine", "7")):
        copy = {"metadata": {"name": name, "labels": {**marks, f"{GROUP}/generation": number}}}
        await api.create(CONFIG_MAPS, namespace=place.namespace, body=copy)
    await releases.prune(place, ())
    assert set((await releases.objects(place, urgent=False)).found) == before


async def forge(api: ApiServer, namespace: str, place: ObjectKey, victim: str) -> None:
    """Write a revision into a namespace as whoever may write Secrets there could: it names an object elsewhere."""
    evil = f"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: victim, namespace: {victim}}}\n"
    revision = {
        "name": names.release_name(place),
        "namespace": namespace,
        "version": 1,
        "info": {"status": "deployed", "first_deployed": "2026-01-01T00:00:00Z"},
        "chart": {"metadata": {"apiVersion": "v2", "name": "spark-cluster", "version": "0.1.0"}},
        "manifest": evil,
        "hooks": [
            {
                "name": "evil", "kind": "ConfigMap", "path": "a/templates/b.yaml",
                "events": ["pre-delete", "pre-upgrade"],
                "manifest": f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: hook, namespace: {victim}}}\n",
            }
        ],
    }  # fmt: skip
    text = base64.b64encode(gzip.compress(json.dumps(revision).encode())).decode()
    marks = {"owner": "helm", "name": names.release_name(place), "status": "deployed", "version": "1"}
    body = {
        "type": "helm.sh/release.v1",
        "metadata": {"name": revision_name(place, 1), "labels": marks | {labels.PIPELINE: place.name}},
        "stringData": {"release": text},
    }
    await api.create(SECRETS, namespace=namespace, body=body)


async def test_a_forged_release_in_the_pipelines_namespace_is_never_read(
    api: ApiServer, releases: HelmReleases, store: str, place: ObjectKey
) -> None:
    """Helm would delete and create what it names, anywhere, with the operator's rights."""
    await api.create(CONFIG_MAPS, namespace=store, body={"metadata": {"name": "victim"}})
    await forge(api, place.namespace, place, store)
    assert await releases.release(place) is None
    await releases.uninstall(place)
    await releases.install(place, values())
    await releases.install(place, values(generation=2))
    await releases.uninstall(place)
    assert await api.get(CONFIG_MAPS, namespace=store, name="victim") is not None
    assert await api.get(CONFIG_MAPS, namespace=store, name="hook") is None


async def test_pipelines_of_one_name_in_two_namespaces_have_two_releases() -> None:
    assert names.release_name(ObjectKey("a", "x")) != names.release_name(ObjectKey("b", "x"))
    assert len(names.release_name(ObjectKey("n" * 63, "p" * 38))) <= 53


async def test_pods_that_a_quota_refuses_are_an_issue(api: ApiServer, releases: HelmReleases, place: ObjectKey) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    await api.create(QUOTAS, namespace=place.namespace, body=quota)
    await asyncio.sleep(1)  # the quota counts from when its controller saw it
    await releases.install(place, values())

    async def refused() -> bool:
        cluster = await releases.cluster(place)
        return cluster is not None and {issue.reason for issue in cluster.issues} == {"FailedCreate"}

    assert await eventually_async(refused)
