"""Which releases and objects the operator may change or delete as a cluster's."""

from __future__ import annotations

import base64
import gzip
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fencepost_operator.adapters.clock import SystemClock
from fencepost_operator.adapters.helm.command import Helm
from fencepost_operator.adapters.helm.releases import HelmReleases, _installed_generation
from fencepost_operator.adapters.kubernetes.api_server import CONFIG_MAPS, ApiServer, Resource
from fencepost_operator.adapters.kubernetes.spark_clusters import _runs
from fencepost_operator.api import ObjectKey
from fencepost_operator.desired import labels, names
from fencepost_operator.errors import Rejected
from fencepost_operator.observation import ReleaseState

KEY, OTHER = ObjectKey("shop", "orders"), ObjectKey("other", "orders")


def part(release: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "orders-g3-master",
            "labels": {labels.PIPELINE: "orders", labels.GENERATION: "3"},
            "annotations": {"meta.helm.sh/release-name": release},
        }
    }


@pytest.mark.parametrize(
    ("release", "expected"), [(names.release_name(KEY), 3), ("fencepost-others", None), ("mine", None)]
)
def test_a_part_is_ours_by_the_release_that_helm_notes(release: str, expected: int | None) -> None:
    assert _installed_generation(KEY, part(release)) == expected


SET: dict[str, Any] = {"metadata": {"uid": "set-1", "generation": 1}, "status": {"observedGeneration": 1}}


def pod(*containers: dict[str, Any], owner: str = "set-1", **metadata: str) -> dict[str, Any]:
    return {"metadata": {"ownerReferences": [{"uid": owner}], **metadata}, "status": {"containerStatuses": containers}}


RUNNING: dict[str, Any] = {"state": {"running": {}}, "restartCount": 0}
WAITING: dict[str, Any] = {"state": {"waiting": {"reason": "ContainerCreating"}}, "restartCount": 0}


@pytest.mark.parametrize(
    ("master", "runs"),
    [
        (pod(RUNNING), True),
        (pod(), False),
        (pod(RUNNING, WAITING), False),
        (pod({**RUNNING, "restartCount": 1}), False),
        (pod(RUNNING, owner="set-2"), False),
        (pod(RUNNING, deletionTimestamp="2026-01-01T12:00:00Z"), False),
    ],
)
def test_a_master_runs_for_the_first_time(master: dict[str, Any], runs: bool) -> None:
    assert _runs(master, {**SET, "status": {**SET["status"], "updateRevision": None}}) is runs


class Revisions(ApiServer):
    """An API server with Helm's revisions, of which some were not written by this operator, and one ConfigMap."""

    def __init__(self, *marks: dict[str, str], live: dict[str, Any] | None = None) -> None:
        self.marks = {f"v{number}": mark for number, mark in enumerate(marks, start=1)}
        self.live = live
        self.fetched: list[str] = []
        self.lists = 0

    async def list(self, resource: Resource, *_: Any, labels: str = "", **__: Any) -> list[dict[str, Any]]:
        self.lists += 1
        if resource is CONFIG_MAPS and self.live:
            return [{"metadata": {**self.live["metadata"], "resourceVersion": json.dumps(self.live["data"])}}]
        wanted = dict(part.split("=", 1) for part in labels.split(",") if "=" in part)
        found = {name: mark for name, mark in self.marks.items() if wanted.items() <= mark.items()}
        return [{"metadata": {"name": name, "uid": name, "labels": mark}} for name, mark in found.items()]

    async def get(self, resource: Resource, *, name: str, namespace: str | None = None) -> dict[str, Any] | None:
        self.fetched.append(f"{namespace}/{name}")
        if resource is CONFIG_MAPS:
            return self.live
        text = json.dumps({"manifest": "".join(f"---\n{json.dumps(item)}\n" for item in (APPLIED, OF_ANOTHER_RELEASE))})
        return {"data": {"release": base64.b64encode(base64.b64encode(gzip.compress(text.encode()))).decode()}}

    async def delete(self, *_: Any, name: str, **__: Any) -> None:
        del self.marks[name]


APPLIED: dict[str, Any] = {
    "kind": "ConfigMap",
    "metadata": {
        "name": "orders-g3-conf",
        "uid": "1",
        "labels": {labels.PIPELINE: "orders", labels.GENERATION: "3"},
        "annotations": {"meta.helm.sh/release-name": names.release_name(KEY)},
    },
    "data": {"spark": "a"},
}
OF_ANOTHER_RELEASE: dict[str, Any] = {"kind": "NetworkPolicy", "metadata": {"name": "orders-g3-net"}}
"""An object of a kind that only the chart of another release of the operator has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls(Helm):
    """A Helm that notes what it is asked to do."""

    asked: list[str] = field(default_factory=list)

    async def change(self, operation: str, *arguments: str, **_: Any) -> None:
        assert names.release_name(KEY) in arguments
        self.asked.append(f"{operation} {names.release_name(KEY)}")


def revision_of(
    key: ObjectKey | None, name: str = names.release_name(KEY), *, status: str = "deployed", version: int = 1
) -> dict[str, str]:
    marks = {"owner": "helm", "name": name, "status": status, "version": str(version)}
    return marks | ({labels.PIPELINE: key.name, labels.NAMESPACE: key.namespace} if key else {})


async def test_values_go_to_standard_input_alone(tmp_path: Path) -> None:
    binary, said, took = tmp_path / "helm", tmp_path / "said", list[str]()
    binary.write_text(f'#!/bin/sh\necho "$@" > {said}; cat >> {said}\n')
    binary.chmod(0o700)
    helm = Helm(binary=binary, chart=Path("/chart"), home=tmp_path, timed=lambda operation, _: took.append(operation))
    releases = HelmReleases(api=Revisions(), helm=helm, clock=SystemClock(), namespace="fencepost")
    await releases.install(KEY, {"generation": 1, "secret": "s3cret"})
    command, values = said.read_text().splitlines()
    assert "s3cret" not in command
    assert f"upgrade --install {names.release_name(KEY)} /chart --values -" in command
    assert "--labels streaming.fencepost.dev/pipeline=orders,streaming.fencepost.dev/namespace=shop" in command
    assert "--history-max 3" in command
    assert "--disable-openapi-validation" in command, "half of the CPU time of an installation"
    assert "--post-renderer" in command
    assert "--namespace fencepost --no-hooks" in command
    assert json.loads(values) == {"generation": 1, "secret": "s3cret", "namespace": "shop"}
    assert took == ["install"]


@pytest.mark.parametrize("owner", [OTHER, ObjectKey("shop", "others"), None])
async def test_a_release_of_the_same_name_that_is_not_the_pipelines_is_never_changed(owner: ObjectKey | None) -> None:
    """The release name is a hash: whoever finds a collision would have another pipeline's cluster uninstalled."""
    helm = Calls(binary=Path("helm"), chart=Path("chart"))
    releases = HelmReleases(api=Revisions(revision_of(owner)), helm=helm, clock=SystemClock(), namespace="fencepost")
    assert await releases.release(KEY) is None
    for change in (releases.install(KEY, {"generation": 1}), releases.uninstall(KEY), releases.restore(KEY)):
        with pytest.raises(Rejected, match=str(owner) if owner else "not the operator's") as refused:
            await change
        assert "another name" in refused.value.remedy
    assert helm.asked == []


async def test_two_pipelines_whose_installed_releases_share_a_name_change_neither() -> None:
    helm, api = Calls(binary=Path("helm"), chart=Path("chart")), Revisions(revision_of(OTHER), revision_of(KEY))
    releases = HelmReleases(api=api, helm=helm, clock=SystemClock(), namespace="fencepost")
    with pytest.raises(Rejected, match="belongs to pipeline other/orders"):
        await releases.uninstall(KEY)
    assert helm.asked == []


async def test_another_pipelines_release_of_another_name_stays() -> None:
    name = names.release_name(KEY)
    others = revision_of(OTHER, "orders-of-the-other")
    helm, api = Calls(binary=Path("helm"), chart=Path("chart")), Revisions(revision_of(KEY, name), others)
    releases = HelmReleases(api=api, helm=helm, clock=SystemClock(), namespace="fencepost")
    assert await releases.release(KEY) is ReleaseState.DEPLOYED
    await releases.install(KEY, {"generation": 1})
    await releases.uninstall(KEY)
    assert helm.asked == [f"install {name}", f"uninstall {name}"]


@pytest.mark.parametrize(
    ("statuses", "left", "asked"),
    [
        (["deployed", "pending-upgrade"], ["v1"], ["install"]),
        (["pending-install"], [], ["install"]),
        (["uninstalling"], ["v1"], ["uninstall", "install"]),
        (["failed"], ["v1"], ["install"]),
    ],
)
async def test_what_a_killed_helm_left_is_removed_before_the_next_one(
    statuses: list[str], left: list[str], asked: list[str]
) -> None:
    marks = [revision_of(KEY, status=status, version=number) for number, status in enumerate(statuses, start=1)]
    helm, api = Calls(binary=Path("helm"), chart=Path("chart")), Revisions(*marks)
    await HelmReleases(api=api, helm=helm, clock=SystemClock(), namespace="fencepost").install(KEY, {"generation": 1})
    assert list(api.marks) == left
    assert helm.asked == [f"{operation} {names.release_name(KEY)}" for operation in asked]


async def test_damage_is_looked_for_once_and_what_helm_cannot_restore_is_accepted() -> None:
    helm, api = Calls(binary=Path("helm"), chart=Path("chart")), Revisions(revision_of(KEY), live=APPLIED)
    releases = HelmReleases(api=api, helm=helm, clock=SystemClock(), namespace="fencepost")

    async def damage() -> tuple[str, ...]:
        releases.note_change(KEY)
        return (await releases.objects(KEY, urgent=False)).damage

    assert await damage() == ()
    api.fetched.clear()
    assert await damage() == ()
    assert api.fetched == [], "the object has not changed since it was compared"
    api.live = {**APPLIED, "data": {"spark": "b"}}
    assert await damage() == ("ConfigMap orders-g3-conf was changed (data.spark)",)
    await releases.restore(KEY)
    assert helm.asked == [f"restore {names.release_name(KEY)}"]
    assert await damage() == (), "an admission webhook changes it again, for example"
    await releases.uninstall(KEY)
    assert await damage() == ("ConfigMap orders-g3-conf was changed (data.spark)",), "that was of another release"
    api.live = None
    assert await damage() == ("ConfigMap orders-g3-conf was deleted",)


async def test_objects_are_listed_again_only_after_an_event_that_shows_another_one() -> None:
    helm, api = Calls(binary=Path("helm"), chart=Path("chart")), Revisions(revision_of(KEY), live=APPLIED)
    releases = HelmReleases(api=api, helm=helm, clock=SystemClock(), namespace="fencepost")
    listed = {**APPLIED["metadata"], "resourceVersion": json.dumps(APPLIED["data"])}

    async def is_listed_again(metadata: dict[str, Any] | None) -> bool:
        await releases.objects(KEY, urgent=False)
        before = api.lists
        releases.note_object(KEY, metadata)
        await releases.objects(KEY, urgent=False)
        return api.lists > before

    assert not await is_listed_again(listed)
    assert await is_listed_again({**listed, "resourceVersion": "2"})
    assert await is_listed_again({**listed, "uid": "2"})
    assert await is_listed_again({**listed, "labels": {}})
    api.live = {**APPLIED, "metadata": {**APPLIED["metadata"], "generation": 1}}
    releases.note_change(KEY)
    assert not await is_listed_again({**listed, "generation": 1, "resourceVersion": "9"}), "its status has changed"
    assert await is_listed_again({**listed, "generation": 2})
    assert await is_listed_again(None), "one was deleted"


async def test_nothing_is_known_of_a_pipeline_that_is_gone() -> None:
    """A suspended pipeline has no release to uninstall when it is deleted."""
    helm, api = Calls(binary=Path("helm"), chart=Path("chart")), Revisions(revision_of(KEY), live=APPLIED)
    releases = HelmReleases(api=api, helm=helm, clock=SystemClock(), namespace="fencepost")
    await releases.objects(KEY, urgent=False)
    releases.forget(KEY)
    assert not {*releases._listed, *releases._intact, *releases._accepted}


@pytest.mark.parametrize("name", ["p", "p" * 38, "orders-of-the-old-shop-by-a-long-name"])
def test_a_release_name_has_128_bits_of_a_hash_and_53_characters_at_most(name: str) -> None:
    release = names.release_name(ObjectKey("n" * 63, name))
    assert len(release) <= 53
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]*-[a-z2-7]{26}", release)
    assert len({names.release_name(ObjectKey(f"n{number}", name)) for number in range(100)}) == 100
