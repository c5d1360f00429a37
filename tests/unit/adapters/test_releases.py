"""Which releases and objects the operator may change or delete as a cluster's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fencepost_operator.adapters.clock import SystemClock
from fencepost_operator.adapters.helm.command import Helm
from fencepost_operator.adapters.helm.releases import HelmReleases, _installed_generation
from fencepost_operator.adapters.kubernetes.api_server import ApiServer
from fencepost_operator.adapters.kubernetes.spark_clusters import _runs
from fencepost_operator.api import ObjectKey
from fencepost_operator.desired import labels, names
from fencepost_operator.errors import Rejected
from present import present

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
    """An API server with Helm's revisions, of which some were not written by this operator."""

    def __init__(self, *marks: dict[str, str]) -> None:
        self.marks = marks

    async def list(self, *_: Any, labels: str = "", **__: Any) -> list[dict[str, Any]]:
        wanted = dict(part.split("=", 1) for part in labels.split(","))
        found = [each for each in self.marks if wanted.items() <= each.items()]
        return [{"metadata": {"name": "revision", "labels": each}} for each in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls(Helm):
    """A Helm that notes what it is asked to do."""

    asked: list[str] = field(default_factory=list)

    async def _run(self, operation: str, arguments: Sequence[str], *_: Any, **__: Any) -> None:
        release = arguments[arguments.index("--install") + 1] if "--install" in arguments else arguments[1]
        self.asked.append(f"{operation} {release}")


def revision_of(key: ObjectKey | None, name: str = names.release_name(KEY)) -> dict[str, str]:
    marks = {"owner": "helm", "name": name, "status": "deployed", "version": "1"}
    return marks | ({labels.PIPELINE: key.name, labels.NAMESPACE: key.namespace} if key else {})


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
    found = present(await releases.release(KEY))
    assert found.name == name
    await releases.install(KEY, {"generation": 1})
    await releases.uninstall(KEY)
    assert helm.asked == [f"install {name}", f"uninstall {name}"]


@pytest.mark.parametrize("name", ["p", "p" * 38, "orders-of-the-old-shop-by-a-long-name"])
def test_a_release_name_has_128_bits_of_a_hash_and_53_characters_at_most(name: str) -> None:
    release = names.release_name(ObjectKey("n" * 63, name))
    assert len(release) <= 53
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]*-[a-z2-7]{26}", release)
    assert len({names.release_name(ObjectKey(f"n{number}", name)) for number in range(100)}) == 100
