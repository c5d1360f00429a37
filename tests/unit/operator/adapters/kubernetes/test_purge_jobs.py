"""The Jobs of a rewind, and what keeps their pods from starting."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from fakes.clock import Clock
from fencepost_operator.adapters.kubernetes.api_server import EVENTS, JOBS, PODS, ApiServer, Resource
from fencepost_operator.adapters.kubernetes.purge_jobs import KubernetesPurges
from fencepost_operator.adapters.kubernetes.runs import KubernetesRuns
from fencepost_operator.api import ObjectKey
from fencepost_operator.observation import PodIssue, PurgeJob
from present import present

KEY, OWNER = ObjectKey("shop", "orders"), "rewind-1"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
JOB: dict[str, Any] = {
    "metadata": {"name": "orders-purge-2", "uid": "job-1", "ownerReferences": [{"uid": OWNER}]},
    "status": {},
}


class Listing(ApiServer):
    """An API server that has these objects."""

    def __init__(self, **found: list[dict[str, Any]]) -> None:
        self._found = {JOBS: [JOB], PODS: found.get("pods", []), EVENTS: found.get("events", [])}

    async def list(self, resource: Resource, **_: Any) -> list[dict[str, Any]]:
        return self._found[resource]


def pod(created: str, **status: Any) -> dict[str, Any]:
    owner = {"uid": "job-1"}
    metadata = {"name": f"pod-{created}", "uid": created, "ownerReferences": [owner], "creationTimestamp": created}
    return {"metadata": metadata, "spec": {}, "status": status}


async def found(**objects: list[dict[str, Any]]) -> PurgeJob:
    api = Listing(**objects)
    job = await KubernetesPurges(api, cast("KubernetesRuns", None), Clock(NOW)).find(KEY, "orders-purge-2", OWNER)
    return present(job)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (
            {"containerStatuses": [{"name": "purge", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]},
            "ImagePullBackOff",
        ),
        ({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}, "Unschedulable"),
    ],
)
async def test_the_newest_pod_says_why_it_cannot_start(status: dict[str, Any], reason: str) -> None:
    failed = pod("2026-01-01T11:59:00Z", phase="Failed")
    job = await found(pods=[failed, pod("2026-01-01T11:59:50Z", phase="Pending", **status)])
    assert job.issue is not None
    assert (job.issue.pod, job.issue.reason) == ("pod-2026-01-01T11:59:50Z", reason)


async def test_a_job_without_a_pod_says_who_refused_it() -> None:
    event = {"involvedObject": {"uid": "job-1"}, "reason": "FailedCreate", "message": "exceeded quota: small"}
    job = await found(events=[event])
    assert job.issue == PodIssue(pod="orders-purge-2", reason="FailedCreate", message="exceeded quota: small")


async def test_a_pod_that_runs_is_not_an_issue() -> None:
    running = {"name": "purge", "ready": True, "state": {"running": {"startedAt": "2026-01-01T11:00:00Z"}}}
    assert (await found(pods=[pod("2026-01-01T11:00:00Z", phase="Running", containerStatuses=[running])])).issue is None
