"""A change of a child's status wakes where a decision reads it, and a step of a start does not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.clock import Clock
from fencepost_operator.adapters.kubernetes.api_server import JOBS, NODES, PODS, STATEFUL_SETS, ApiServer, Resource
from fencepost_operator.adapters.kubernetes.kubelets import Kubelets
from fencepost_operator.adapters.kubernetes.runs import KubernetesRuns
from fencepost_operator.adapters.kubernetes.spark_clusters import spark_cluster
from fencepost_operator.api import ObjectKey
from fencepost_operator.desired import labels
from fencepost_operator.runtime.child_status import OF_CHILD, of_job, of_pod, of_stateful_set

Json = dict[str, Any]

KEY: Final = ObjectKey("shop", "orders")
NOW: Final = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T00:00:50Z"
READY: Final[Json] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
KINDS: Final = {"pods": PODS, "jobs": JOBS, "statefulsets": STATEFUL_SETS}


def metadata(uid: str, owner: str, **marks: str) -> Json:
    common = {"controller-revision-hash": "r-1", "batch.kubernetes.io/controller-uid": "job-1", labels.EPOCH: "1"}
    return {
        "name": uid,
        "uid": uid,
        "namespace": KEY.namespace,
        "creationTimestamp": EARLY,
        "resourceVersion": "1",
        "generation": 1,
        "labels": common | marks,
        "ownerReferences": [{"uid": owner}],
    }


class Cluster(ApiServer):
    """A driver's Job, a master's StatefulSet and a pod of each, all of one kind with a given status."""

    def __init__(self, kind: str, status: Json) -> None:
        pod = {"spec": {"nodeName": "node-1", "containers": [{"name": labels.DRIVER}]}, "status": READY}
        master = {labels.COMPONENT: "master"}
        self._found: dict[Resource, list[Json]] = {
            JOBS: [{"metadata": metadata("orders-run-1", "uid-1") | {"uid": "job-1"}, "status": {}}],
            STATEFUL_SETS: [{"metadata": metadata("set-1", "uid-1", **master), "spec": {"replicas": 1}, "status": {}}],
            PODS: [
                {"metadata": metadata("pod-1", "job-1", **{labels.COMPONENT: labels.DRIVER}), **pod},
                {"metadata": metadata("pod-2", "set-1", **master), **pod},
            ],
        }
        for each in self._found[KINDS[kind]]:
            each["status"] = status

    async def list(self, resource: Resource, *, labels: str = "", **_: Any) -> list[Json]:
        found = self._found.get(resource, [])
        return [each for each in found if resource != PODS or _matches(each, labels)]

    async def versioned_list(self, resource: Resource, *, labels: str, **_: Any) -> tuple[Sequence[Json], str]:
        return await self.list(resource, labels=labels), "1"

    async def get(self, resource: Resource, *, name: str, namespace: str | None = None) -> Json:
        del namespace
        assert resource == NODES
        return {"metadata": {"name": name, "uid": "node-uid"}, "status": {"conditions": []}}


def _matches(pod: Json, selector: str) -> bool:
    component = pod["metadata"]["labels"][labels.COMPONENT]
    return component in selector.partition(labels.COMPONENT)[2]


async def facts(kind: str, status: Json) -> object:
    """What the adapters make of a child with this status."""
    api, clock = Cluster(kind, status), Clock(NOW)
    runs = KubernetesRuns(api=api, clock=clock, kubelets=Kubelets(api=api))
    listed = await runs.list(KEY, "uid-1")
    return [listed, runs.terminated_by("pod-1", 1), await spark_cluster(api, KEY, NOW)]


TIMES: Final = st.sampled_from([EARLY, LATE])
CONDITIONS: Final = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["PodScheduled", "Ready", "ContainersReady", "DisruptionTarget", "Initialized"]),
            "status": st.sampled_from(["True", "False"]),
        },
        optional={"reason": st.sampled_from(["Unschedulable", "SchedulerError"]), "lastTransitionTime": TIMES},
    ),
    max_size=3,
    unique_by=lambda each: each["type"],
)
MARKED: Final = st.tuples(
    st.fixed_dictionaries({"type": st.just("Ready"), "status": st.just("False"), "lastTransitionTime": TIMES}),
    st.just({"type": "ContainersReady", "status": "True"}),
).map(list)
"""By the node controller, which leaves ContainersReady."""
ENDED: Final = st.fixed_dictionaries(
    {"exitCode": st.sampled_from([0, 137])},
    optional={"reason": st.sampled_from(["OOMKilled", "Error"]), "finishedAt": TIMES, "message": st.just("text")},
)
STATE: Final[st.SearchStrategy[Json]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"running": st.fixed_dictionaries({"startedAt": TIMES})}),
    st.fixed_dictionaries({"terminated": ENDED}),
    st.fixed_dictionaries(
        {
            "waiting": st.fixed_dictionaries(
                {"reason": st.sampled_from(["ContainerCreating", "PodInitializing", "ImagePullBackOff"])},
                optional={"message": st.sampled_from(["one", "two"])},
            )
        }
    ),
)
CONTAINERS: Final = st.lists(
    st.fixed_dictionaries(
        {"name": st.just(labels.DRIVER), "state": STATE},
        optional={"lastState": st.fixed_dictionaries({"terminated": ENDED}), "restartCount": st.sampled_from([0, 1])},
    ),
    max_size=1,
)
PARTS: Final[dict[str, dict[str, st.SearchStrategy[Any]]]] = {
    "pods": {
        "phase": st.sampled_from(["Pending", "Running", "Failed"]),
        "reason": st.sampled_from(["", "Evicted"]),
        "message": st.sampled_from(["", "low on memory"]),
        "conditions": CONDITIONS | MARKED,
        "containerStatuses": CONTAINERS,
        "podIP": st.sampled_from(["", "10.0.0.1"]),
    },
    "jobs": {
        "active": st.sampled_from([0, 1]),
        "ready": st.sampled_from([0, 1]),
        "failed": st.sampled_from([0, 1]),
        "uncountedTerminatedPods": st.sampled_from([{}, {"failed": ["pod-1"]}]),
        "conditions": st.sampled_from([[], [{"type": "Complete", "status": "True"}]]),
    },
    "statefulsets": {
        "observedGeneration": st.sampled_from([0, 1]),
        "updateRevision": st.sampled_from(["r-1", "r-2"]),
        "readyReplicas": st.sampled_from([0, 1]),
    },
}


def each_change(before: Any, other: Any) -> Iterator[Any]:
    """Yield the status with one part of another, which may be as small as one word of a condition."""
    if isinstance(before, dict) and isinstance(other, dict):
        for name in sorted(before.keys() | other.keys()):
            for part in each_change(before.get(name), other.get(name)):
                yield {**before, name: part}
    elif isinstance(before, list) and isinstance(other, list):
        for index, (one, another) in enumerate(zip(before, other, strict=False)):
            for part in each_change(one, another):
                yield [*before[:index], part, *before[index + 1 :]]
    if before != other:
        yield other


@pytest.mark.parametrize("kind", sorted(PARTS))
@settings(max_examples=200)
@given(data=st.data())
def test_what_changes_a_fact_is_a_change(kind: str, data: st.DataObject) -> None:
    before, other = (data.draw(st.fixed_dictionaries(PARTS[kind])) for _ in range(2))
    for after in each_change(before, other):
        if OF_CHILD[kind](before) == OF_CHILD[kind](after):
            assert asyncio.run(facts(kind, before)) == asyncio.run(facts(kind, after))


def test_the_steps_of_a_pods_start_are_no_change() -> None:
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": EARLY}
    creating = {"name": labels.DRIVER, "state": {"waiting": {"reason": "ContainerCreating"}}, "restartCount": 0}
    created = {"phase": "Pending", "qosClass": "Burstable"}
    placed = {**created, "conditions": [scheduled], "hostIP": "10.0.0.1"}
    assert of_pod(created) == of_pod(placed) == of_pod({**placed, "containerStatuses": [creating]})
    running = {**creating, "state": {"running": {"startedAt": LATE}}}
    assert of_pod({**placed, "containerStatuses": [running]}) != of_pod(placed)


def test_that_a_pod_of_a_job_is_ready_and_counted_again_is_no_change() -> None:
    assert of_job({"active": 1}) == of_job({"active": 1, "ready": 1, "startTime": EARLY})
    assert of_job({}) != of_job({"active": 1})


def test_how_many_replicas_are_ready_is_no_change() -> None:
    seen = {"observedGeneration": 1, "updateRevision": "r-1"}
    assert of_stateful_set(seen) == of_stateful_set({**seen, "readyReplicas": 1, "currentReplicas": 1})
