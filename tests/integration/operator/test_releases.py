"""Spark clusters by a real Helm in a real API server; what they run does not matter here, so images are absent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fencepost_operator.adapters.api_server import SECRETS, STATEFUL_SETS, ApiServer, Resource
from fencepost_operator.adapters.clock import SystemClock
from fencepost_operator.adapters.helm import Helm
from fencepost_operator.adapters.post_renderer import Expected
from fencepost_operator.adapters.releases import HelmReleases
from fencepost_operator.api import GROUP, ObjectKey
from fencepost_operator.desired.spark_files import spark_files
from fencepost_operator.errors import Rejected, Unreachable
from fencepost_operator.observation import Release, ReleaseState
from harness.waiting import eventually_async
from integration.operator.cluster import CHART
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
def releases(api: ApiServer, helm: Helm) -> HelmReleases:
    return HelmReleases(api=api, helm=helm, clock=SystemClock())


@pytest.fixture
def place(namespace: str) -> ObjectKey:
    return ObjectKey(namespace, "departures")


async def uids(api: ApiServer, place: ObjectKey) -> set[str]:
    return {found["metadata"]["uid"] for found in await api.list(STATEFUL_SETS, namespace=place.namespace)}


async def mark(api: ApiServer, place: ObjectKey, revision: int, status: str) -> None:
    """Make a revision's Secret look as a helm that was killed leaves it."""
    name = f"sh.helm.release.v1.fencepost-departures.v{revision}"
    body = {"metadata": {"labels": {"status": status}}}
    await api.merge(SECRETS, namespace=place.namespace, name=name, body=body)


async def test_nothing_is_there_before_the_install(releases: HelmReleases, place: ObjectKey) -> None:
    assert await releases.release(place) is None
    assert await releases.cluster(place) is None
    await releases.uninstall(place)


async def test_install_scale_and_uninstall(api: ApiServer, releases: HelmReleases, place: ObjectKey) -> None:
    await releases.install(place, values())
    assert await releases.release(place) == Release(
        name="fencepost-departures", revision=1, state=ReleaseState.DEPLOYED
    )
    before = await uids(api, place)

    async def seen() -> Any:
        cluster = await releases.cluster(place)
        return cluster if cluster and len(cluster.issues) == 3 else None

    cluster = await eventually_async(seen)
    assert (cluster.generation, cluster.config_hash, cluster.workers) == (1, "abc", 2)
    assert (cluster.ready_workers, cluster.master_ready) == (0, False)
    assert {trouble.reason for trouble in cluster.issues} == {"ErrImageNeverPull"}

    await releases.install(place, values(workers=1))
    scaled = await releases.cluster(place)
    assert scaled is not None
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
    cluster = await releases.cluster(place)
    assert cluster is not None
    assert cluster.generation == 2
    assert not await uids(api, place) & before


@pytest.mark.parametrize("left", ["pending-install", "uninstalling", "failed"])
async def test_a_first_install_that_was_cut_off_is_done_again(
    api: ApiServer, releases: HelmReleases, place: ObjectKey, left: str
) -> None:
    await releases.install(place, values())
    before = await uids(api, place)
    await mark(api, place, 1, left)
    await releases.install(place, values(workers=1))
    release = await releases.release(place)
    assert release is not None
    assert release.state is ReleaseState.DEPLOYED
    # Only what was being removed goes; what a pending install made is adopted as it is.
    assert (await uids(api, place) == before) is (left != "uninstalling")


async def test_an_upgrade_that_was_cut_off_disturbs_nothing(
    api: ApiServer, releases: HelmReleases, place: ObjectKey
) -> None:
    await releases.install(place, values())
    await releases.install(place, values(workers=3))
    before = await uids(api, place)
    await mark(api, place, 1, "deployed")
    await mark(api, place, 2, "pending-upgrade")
    release = await releases.release(place)
    assert release is not None
    assert release.state is ReleaseState.PENDING
    await releases.install(place, values(workers=1))
    cluster = await releases.cluster(place)
    assert cluster is not None
    assert cluster.workers == 1
    assert await uids(api, place) == before


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
    assert release is not None
    assert release.state is ReleaseState.DEPLOYED
    assert cluster is not None
    assert cluster.workers == 2


async def test_a_cancelled_install_takes_its_process_along(releases: HelmReleases, place: ObjectKey) -> None:
    task = asyncio.create_task(releases.install(place, values()))
    await asyncio.sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert processes_that_mention(place.namespace) == []


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


async def test_a_release_of_somebody_else_is_neither_changed_nor_removed(
    api: ApiServer, helm: Helm, releases: HelmReleases, place: ObjectKey
) -> None:
    """A user's own release that happens to have the name that the operator would use."""
    await helm.install(
        release="fencepost-departures",
        namespace=place.namespace,
        labels={"team": "flights"},
        values=values(),
        expected=Expected(namespace=place.namespace, stem="departures-g1"),
    )
    before = await uids(api, place)
    with pytest.raises(Rejected, match=r"'fencepost-departures' .* is not the operator's") as refused:
        await releases.install(place, values(generation=2))
    assert "another name" in refused.value.remedy
    assert await releases.release(place) is None
    await releases.uninstall(place)
    assert await uids(api, place) == before


async def test_pods_that_a_quota_refuses_are_troubles(api: ApiServer, releases: HelmReleases, place: ObjectKey) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    await api.create(QUOTAS, namespace=place.namespace, body=quota)
    await asyncio.sleep(1)  # the quota counts from when its controller saw it
    await releases.install(place, values())

    async def refused() -> bool:
        cluster = await releases.cluster(place)
        return cluster is not None and {trouble.reason for trouble in cluster.issues} == {"FailedCreate"}

    assert await eventually_async(refused)
