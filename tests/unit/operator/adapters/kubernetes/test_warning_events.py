"""Events explain what pods show: one list serves all pods of an observation, and none is needed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

from fakes.clock import Clock
from fencepost_operator.adapters.helm.command import Helm
from fencepost_operator.adapters.helm.releases import HelmReleases
from fencepost_operator.adapters.kubernetes.api_server import (
    EVENTS,
    JOBS,
    NODES,
    PODS,
    STATEFUL_SETS,
    ApiServer,
    Resource,
)
from fencepost_operator.adapters.kubernetes.kubelets import Kubelets
from fencepost_operator.adapters.kubernetes.runs import KubernetesRuns
from fencepost_operator.api import ObjectKey
from fencepost_operator.desired import labels
from fencepost_operator.errors import Denied
from fencepost_operator.observation import SparkCluster
from present import present

KEY = ObjectKey("shop", "orders")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG_AGO = (NOW - timedelta(minutes=5)).isoformat()
WORKERS = 50


Asked: TypeAlias = list[tuple[Resource, str]]


class Namespace(ApiServer):
    """An API server that has these objects, and counts its lists."""

    def __init__(self, found: dict[Resource, list[dict[str, Any]]], *, denied: bool = False) -> None:
        self.found, self.denied = found, denied
        self.asked: Asked = []

    async def list(self, resource: Resource, *, fields: str = "", **_: Any) -> list[dict[str, Any]]:
        self.asked.append((resource, fields))
        if resource == EVENTS and self.denied:
            raise Denied("may not list events")
        return self.found.get(resource, [])

    async def versioned_list(self, resource: Resource, **_: Any) -> tuple[Sequence[dict[str, Any]], str]:
        return await self.list(resource), "1"

    async def get(self, resource: Resource, *, name: str, **_: Any) -> dict[str, Any] | None:
        assert resource == NODES
        return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}

    def events(self) -> tuple[str, ...]:
        return tuple(fields for resource, fields in self.asked if resource == EVENTS)


def marks(component: str) -> dict[str, str]:
    return {labels.PIPELINE: "orders", labels.GENERATION: "1", labels.COMPONENT: component}


def stateful(component: str, replicas: int) -> dict[str, Any]:
    metadata = {"name": f"orders-g1-{component}", "namespace": "shop", "uid": component, "labels": marks(component)}
    return {"metadata": metadata, "spec": {"replicas": replicas}}


def creating(number: int) -> dict[str, Any]:
    """A worker whose containers stay in creation."""
    return {
        "metadata": {
            "name": f"orders-g1-worker-{number}",
            "namespace": "shop",
            "uid": f"pod-{number}",
            "creationTimestamp": LONG_AGO,
            "labels": marks("worker"),
            "ownerReferences": [{"uid": "worker"}],
        },
        "spec": {"nodeName": "node-1"},
        "status": {"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]},
    }


def event(uid: str, reason: str, message: str, *, at: str = LONG_AGO, kind: str = "Warning") -> dict[str, Any]:
    return {"involvedObject": {"uid": uid}, "type": kind, "reason": reason, "message": message, "lastTimestamp": at}


def namespace(*events: dict[str, Any], denied: bool = False) -> Namespace:
    sets = [stateful("master", 1), stateful("worker", WORKERS + 1)]
    workers = [creating(number) for number in range(WORKERS)]
    return Namespace({STATEFUL_SETS: sets, PODS: workers, EVENTS: list(events)}, denied=denied)


async def cluster(api: Namespace) -> SparkCluster:
    helm = Helm(binary=Path("helm"), chart=Path("chart"))
    return present(await HelmReleases(api=api, helm=helm, clock=Clock(NOW), namespace="operator").cluster(KEY))


async def test_events_are_listed_once_for_fifty_workers() -> None:
    api = namespace(
        event("pod-7", "FailedMount", "first"),
        event("pod-7", "FailedMount", "no Secret\u2028x", at=NOW.isoformat()),
        event("pod-7", "BackOff", "another", at=NOW.isoformat()),
        event("worker", "FailedCreate", "exceeded quota"),
        event("another pod", "FailedMount", "not ours"),
    )
    found = await cluster(api)
    assert api.events() == ("type=Warning",)
    assert [(issue.pod, issue.reason, issue.message) for issue in found.issues] == [
        ("orders-g1-worker-7", "FailedMount", "no Secret x"),
        ("orders-g1-worker", "FailedCreate", "exceeded quota"),
    ]


async def test_a_cluster_without_trouble_asks_for_no_events() -> None:
    api = Namespace({STATEFUL_SETS: [stateful("master", 0), stateful("worker", 0)]})
    await cluster(api)
    assert api.events() == ()


async def test_events_that_cannot_be_listed_hide_nothing() -> None:
    found = await cluster(namespace(denied=True))
    assert (found.generation, found.issues) == (1, ())


async def test_runs_without_pods_ask_once() -> None:
    jobs = [
        {
            "metadata": {
                "name": f"orders-run-{epoch}",
                "namespace": "shop",
                "uid": f"job-{epoch}",
                "creationTimestamp": LONG_AGO,
                "ownerReferences": [{"uid": "uid-1"}],
            }
        }
        for epoch in range(3)
    ]
    api = Namespace({JOBS: jobs, EVENTS: [event("job-2", "FailedCreate", "exceeded quota")]})
    found = await KubernetesRuns(api=api, clock=Clock(NOW), kubelets=Kubelets(api=api)).list(KEY, "uid-1")
    assert [run.issue.message if run.issue else None for run in found.runs] == [None, None, "exceeded quota"]
    assert api.events() == ("type=Warning",)
