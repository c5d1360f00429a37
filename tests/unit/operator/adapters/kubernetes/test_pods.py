"""What pods say about themselves."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from fencepost_operator.adapters.kubernetes import pods
from fencepost_operator.adapters.kubernetes.api_server import NODES, ApiServer, Resource
from fencepost_operator.adapters.kubernetes.warning_events import NamespaceWarnings
from fencepost_operator.errors import Unreachable
from fencepost_operator.observation import NODE_LOST, MemoryKill, PodIssue
from present import present

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def pod(*containers: dict[str, Any], **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "a", "namespace": "n", "uid": "1"},
        "status": {"containerStatuses": containers, **status},
    }


def waiting(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    return {"state": {"waiting": {"reason": reason, "message": message}}, **more}


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing"])
def test_a_container_that_starts_is_not_an_issue(reason: str) -> None:
    assert pods.startup_issue(pod(waiting(reason))) is None


def test_a_container_that_waits_is_trouble() -> None:
    found = pods.startup_issue(pod(waiting("ImagePullBackOff", "no such image")))
    assert found == PodIssue(pod="a", reason="ImagePullBackOff", message="no such image")


def test_a_container_that_keeps_ending_says_how() -> None:
    last = {"terminated": {"exitCode": 2, "reason": "Error", "message": "no master, secret=hunter2"}}
    found = present(pods.startup_issue(pod(waiting("CrashLoopBackOff", "back-off 10s", lastState=last))))
    assert found.message == "back-off 10s (it ended with exit code 2, Error: no master, secret=***)"


def test_a_pod_that_fits_nowhere_is_trouble() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}
    found = pods.startup_issue(pod(conditions=[condition]))
    assert found == PodIssue(pod="a", reason="Unschedulable", message="0/2 nodes")


def test_a_pod_without_status_is_not_an_issue() -> None:
    assert pods.startup_issue({"metadata": {"name": "a"}}) is None


def test_init_containers_speak_first() -> None:
    found = pods.startup_issue(pod(waiting("PodInitializing"), initContainerStatuses=[waiting("ErrImagePull", "no")]))
    assert present(found).reason == "ErrImagePull"


def test_times_are_in_utc() -> None:
    at = present(pods.instant("2026-01-02T03:04:05Z"))
    assert at.isoformat() == "2026-01-02T03:04:05+00:00"
    assert pods.instant(None) is None


def test_a_hiccup_of_the_scheduler_is_none() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": "has been modified"}
    assert pods.startup_issue(pod(conditions=[condition])) is None


def silent(seconds: float, *, status: str = "False", containers: str = "True", **metadata: Any) -> PodIssue | None:
    """Return the issue of a pod whose Ready condition changed that long ago."""
    at = (NOW - timedelta(seconds=seconds)).isoformat()
    seen = pod(
        conditions=[
            {"type": "Ready", "status": status, "lastTransitionTime": at},
            {"type": "ContainersReady", "status": containers, "lastTransitionTime": at},
        ]
    )
    return pods.lost({**seen, "metadata": {**seen["metadata"], **metadata}, "spec": {"nodeName": "node-3"}}, NOW)


def test_a_pod_on_a_node_that_is_silent_for_long_is_lost() -> None:
    found = present(silent(15))
    assert (found.reason, found.message) == (NODE_LOST, "node node-3 is silent since 2026-01-01 11:59:45 UTC")


def test_a_pod_that_is_not_ready_for_another_cause_is_not_lost() -> None:
    assert silent(14) is None, "its node may come back"
    assert silent(600, containers="False") is None, "its kubelet says so"
    assert silent(600, status="True") is None


def test_a_pod_without_a_confirmed_end_is_lost() -> None:
    late, early = (NOW - timedelta(seconds=seconds) for seconds in (60, 30))
    assert silent(600, containers="False", deletionTimestamp=late.isoformat()) is not None
    assert silent(600, containers="False", deletionTimestamp=early.isoformat()) is None


@dataclass
class Nodes:
    """An API server that answers for one node, or does not answer."""

    ready: str | None
    seconds: float = 15

    async def get(self, resource: Resource, *, name: str) -> dict[str, Any] | None:
        assert (resource, name) == (NODES, "node-3")
        if self.ready is None:
            raise Unreachable("no answer")
        at = (NOW - timedelta(seconds=self.seconds)).isoformat()
        return {"status": {"conditions": [{"type": "Ready", "status": self.ready, "lastTransitionTime": at}]}}


async def placed(nodes: Nodes, *, age: float = 15, node: str = "node-3") -> PodIssue | None:
    """Return the issue of a pod that was never ready."""
    seen = pod(conditions=[{"type": "PodScheduled", "status": "True"}])
    created = (NOW - timedelta(seconds=age)).isoformat()
    seen = {**seen, "metadata": {**seen["metadata"], "creationTimestamp": created}, "spec": {"nodeName": node}}
    return await pods.find_issue(NamespaceWarnings(cast("ApiServer", nodes), "shop"), seen, NOW)


async def test_a_pod_that_was_placed_on_a_silent_node_is_lost_before_kubernetes_deletes_it() -> None:
    found = present(await placed(Nodes("Unknown")))
    assert (found.reason, found.message) == (NODE_LOST, "node node-3 is silent since 2026-01-01 11:59:45 UTC")


async def test_a_pod_that_starts_on_a_node_that_reports_is_not_lost() -> None:
    assert await placed(Nodes("True")) is None
    assert await placed(Nodes("Unknown", seconds=14)) is None, "it may come back"
    assert await placed(Nodes("Unknown"), age=14) is None, "a young pod costs no request"
    assert await placed(Nodes(None)) is None, "unknown is not lost"
    assert await placed(Nodes("Unknown"), node="") is None, "not placed yet"


def test_a_pod_that_ended_is_not_lost() -> None:
    late = (NOW - timedelta(hours=1)).isoformat()
    assert pods.lost({"metadata": {"name": "a", "deletionTimestamp": late}, "status": {"phase": "Failed"}}, NOW) is None


DRAINED = {
    "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting", "lastTransitionTime": "2026-01-01T11:59:00Z",
}  # fmt: skip
PRESSURE = {
    "phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory. Threshold: 100Mi",
    "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": "m"}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"conditions": [DRAINED]}, ("EvictionByEvictionAPI", "Eviction API: evicting")),
        (PRESSURE, ("Evicted", "The node was low on resource: memory. Threshold: 100Mi")),
        ({"conditions": [{**DRAINED, "status": "False"}]}, ("", "")),
        ({"reason": "NodeLost"}, ("", "")),
        ({}, ("", "")),
    ],
)
def test_who_ends_a_pod_is_read_from_its_status(status: dict[str, Any], expected: tuple[str, str]) -> None:
    assert pods.disruption({"metadata": {"name": "a"}, "status": status}) == expected


def killed(**state: Any) -> dict[str, Any]:
    seen = pod({"name": "worker", "ready": True, **state})
    spec = {"containers": [{"name": "worker", "resources": {"limits": {"memory": "1Gi"}}}]}
    return {**seen, "spec": spec}


def test_a_container_that_the_kernel_killed_for_memory_is_seen_after_its_restart() -> None:
    ended = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-01T11:59:00Z"}
    found = pods.memory_kill(killed(state={"running": {}}, lastState={"terminated": ended}))
    assert found == MemoryKill(pod="a", at=NOW - timedelta(minutes=1), limit="1Gi")
    assert pods.memory_kill(killed(lastState={"terminated": {**ended, "reason": "Error"}})) is None
    assert pods.memory_kill(killed(state={"running": {}})) is None
    assert pods.memory_kill({"metadata": {"name": "a"}}) is None


class Warnings(NamespaceWarnings):
    """Has one Event about every object."""

    def __init__(self) -> None:
        NamespaceWarnings.__init__(self, cast("ApiServer", Nodes("True")), "shop")

    async def newest(self, uid: str, reasons: frozenset[str]) -> dict[str, Any] | None:
        del uid
        found = {"reason": "Unhealthy", "message": "Readiness probe failed: connection refused"}
        return found if "Unhealthy" in reasons else None


@pytest.mark.parametrize(
    ("seconds", "ready", "may_wait", "reported"),
    [(61, False, False, True), (59, False, False, False), (61, True, False, False), (61, False, True, False)],
)
async def test_a_container_that_runs_and_stays_unready_fails_its_probe(
    seconds: int, ready: bool, may_wait: bool, reported: bool
) -> None:
    """But not a worker whose master is not ready: it waits for that one, before its own port is open."""
    since = (NOW - timedelta(seconds=seconds)).isoformat()
    seen = pod({"name": "master", "ready": ready, "state": {"running": {"startedAt": since}}})
    seen["metadata"]["creationTimestamp"] = since
    found = await pods.find_issue(Warnings(), seen, NOW, may_wait=may_wait)
    assert (found is not None) is reported
    if found is not None:
        assert (found.reason, found.message) == ("Unhealthy", "Readiness probe failed: connection refused")
