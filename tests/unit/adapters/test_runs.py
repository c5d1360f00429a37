"""Driver Jobs and pods as the API server shows them, and what they say of a run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fencepost_operator.adapters.api_server import JOBS, NODES, PODS, ApiServer, Resource
from fencepost_operator.adapters.runs import KubernetesRuns
from fencepost_operator.api import ObjectKey
from fencepost_operator.desired import labels
from fencepost_operator.observation import Run

KEY, OWNER = ObjectKey("shop", "orders"), "uid-1"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOTES = {labels.SPEC_HASH: "abc", labels.GENERATION: "3"}


class Clock:
    def now(self) -> datetime:
        return NOW


class Listing(ApiServer):
    """An API server that has these Jobs and pods, and one node."""

    def __init__(self, *, jobs: list[dict[str, Any]], pods: list[dict[str, Any]]) -> None:
        self._found = {JOBS: jobs, PODS: pods}

    async def list(self, resource: Resource, **_: Any) -> list[dict[str, Any]]:
        return self._found.get(resource, [])

    async def get(self, resource: Resource, *, name: str, namespace: str | None = None) -> dict[str, Any]:
        del namespace
        assert resource == NODES
        return {"metadata": {"name": name, "uid": "node-uid"}, "status": {"conditions": []}}


def job(epoch: int, **metadata: Any) -> dict[str, Any]:
    own = {
        "name": f"orders-run-{epoch}",
        "uid": f"job-{epoch}",
        "namespace": "shop",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "annotations": NOTES,
        "ownerReferences": [{"uid": OWNER}],
    }
    return {"metadata": {**own, **metadata}, "status": {}}


def pod(epoch: int, *, phase: str = "Running", **metadata: Any) -> dict[str, Any]:
    marks = {labels.EPOCH: str(epoch), "batch.kubernetes.io/controller-uid": f"job-{epoch}"}
    own = {
        "name": f"orders-run-{epoch}-x",
        "uid": f"pod-{epoch}",
        "namespace": "shop",
        "creationTimestamp": "2026-01-01T00:00:01Z",
        "labels": marks,
        "annotations": NOTES,
        "ownerReferences": [{"uid": f"job-{epoch}"}],
    }
    return {"metadata": {**own, **metadata}, "spec": {"nodeName": "node-1"}, "status": {"phase": phase}}


async def runs(*, jobs: list[dict[str, Any]], pods: list[dict[str, Any]], owner: str = OWNER) -> tuple[Run, ...]:
    return await KubernetesRuns(api=Listing(jobs=jobs, pods=pods), clock=Clock()).list(KEY, owner)


async def test_a_job_comes_with_the_pod_that_it_made() -> None:
    found = await runs(jobs=[job(12), job(7)], pods=[pod(12), pod(7)])
    assert [(run.epoch, run.pod.uid if run.pod else None, run.deleting) for run in found] == [
        (7, "pod-7", False),
        (12, "pod-12", False),
    ]


async def test_a_pod_that_outlives_its_job_stands_for_it() -> None:
    (run,) = await runs(jobs=[], pods=[pod(5, deletionTimestamp="2026-01-01T00:01:00Z")])
    assert (run.name, run.epoch, run.spec_hash, run.cluster_generation) == ("orders-run-5", 5, "abc", 3)
    assert (run.deleting, run.finished, run.orphaned) == (True, False, False)
    assert run.pod is not None
    assert run.pod.deleting_since is not None


@pytest.mark.parametrize(("owners", "orphaned"), [([{"uid": "job-5"}], False), ([], True)])
async def test_a_pod_without_an_owner_is_an_orphan(owners: list[dict[str, str]], orphaned: bool) -> None:
    (run,) = await runs(jobs=[], pods=[pod(5, ownerReferences=owners)])
    assert run.orphaned is orphaned


async def test_an_orphan_is_still_its_jobs_pod_while_the_job_goes() -> None:
    (run,) = await runs(jobs=[job(5, deletionTimestamp="2026-01-01T00:00:09Z")], pods=[pod(5, ownerReferences=[])])
    assert run.pod is not None


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_pod_that_ended_without_its_job_is_none(phase: str) -> None:
    assert await runs(jobs=[], pods=[pod(5, phase=phase)]) == ()


async def test_jobs_of_another_object_and_their_pods_are_none() -> None:
    assert await runs(jobs=[job(5)], pods=[pod(5)], owner="another") == ()
