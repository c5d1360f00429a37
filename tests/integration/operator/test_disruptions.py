"""A real kubelet evicts a driver, and a real scheduler preempts one: each is named as such.

The testbed's kubelets measure no volumes, so the eviction is for the container's own limit of ephemeral storage.  Both
pods ask for an extended resource of one node, so that no other pod is preempted.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import pytest

from fencepost.contract import Reason
from fencepost_operator.adapters.clock import SystemClock
from fencepost_operator.adapters.kubernetes.api_server import NODES, PODS, ApiServer, Resource
from fencepost_operator.adapters.kubernetes.kubelets import Kubelets
from fencepost_operator.adapters.kubernetes.runs import KubernetesRuns
from fencepost_operator.api import ObjectKey
from fencepost_operator.decision.run.diagnosis import ENVIRONMENT, Diagnosis
from fencepost_operator.errors import FencepostError
from harness.waiting import eventually_async
from integration.operator.cluster import job_manifest, owner_of_runs
from integration.operator.test_diagnosis import diagnosed
from testbed.environment import Environment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SEAT: Final = "fencepost.test/seat"
CLASSES: Final = Resource(prefix="/apis/scheduling.k8s.io/v1", plural="priorityclasses")
NODE_STATUS: Final = Resource(prefix=NODES.prefix, plural=NODES.plural, subresource="status")

RUNS: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "evicted": ("head -c 67108864 /dev/zero > /tmp/full; exec sleep 600", {"limits": {"ephemeral-storage": "8Mi"}}),
    "preempted": ("sleep 600", {"limits": {SEAT: "1"}}),
}


@pytest.fixture
async def urgent(api: ApiServer) -> AsyncIterator[str]:
    """A PriorityClass above all others of the tests, while a node has one seat."""
    node = next(found["metadata"]["name"] for found in await api.list(NODES) if not (found["spec"].get("taints") or []))
    name = "fencepost-test-urgent"
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 1000}
    with contextlib.suppress(FencepostError):  # left over from a test that was killed
        await api._call("DELETE", "delete", CLASSES, name=name, body={})
    await api._call("POST", "create", CLASSES, body=body)
    await patch_status(api, node, {"capacity": {SEAT: "1"}})
    yield name
    await patch_status(api, node, {"capacity": {SEAT: None}, "allocatable": {SEAT: None}})
    await api._call("DELETE", "delete", CLASSES, name=name, body={})


async def test_an_eviction_and_a_preemption_are_named_and_cost_no_attempt(
    api: ApiServer, namespace: str, testbed: Environment, urgent: str
) -> None:
    key, clock = ObjectKey(namespace, "departures"), SystemClock()
    runs = KubernetesRuns(api=api, clock=clock, kubelets=Kubelets(api=api))
    uid = await owner_of_runs(api, key)
    for number, (command, resources) in enumerate(RUNS.values(), start=1):
        await runs.start(key, job(key, number, uid, command, resources, testbed))
    found: dict[str, Diagnosis] = {}
    came = False

    async def all_reported() -> bool:
        nonlocal came
        for run in (await runs.list(key, uid)).runs:
            name = [*RUNS][run.epoch - 1]
            if name == "preempted" and run.pod is not None and run.pod.started_at and not came:
                spec = job(key, 9, uid, *RUNS[name], testbed)["spec"]["template"]["spec"]
                body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "urgent"}}
                await api.create(
                    PODS, namespace=namespace, body={**body, "spec": {**spec, "priorityClassName": urgent}}
                )
                came = True
            over = run.pod is not None and (run.pod.exit_code is not None or run.pod.phase == "Failed")
            if over and (diagnosis := diagnosed(run)) is not None:
                found[name] = diagnosis
        return found.keys() == RUNS.keys()

    await eventually_async(all_reported, seconds=200)
    assert found["evicted"].category is Reason.EVICTED
    assert "ephemeral" in found["evicted"].message
    assert found["preempted"].category is Reason.PREEMPTED
    assert "higher priority" in found["preempted"].message
    assert all(diagnosis.remedy and diagnosis.category in ENVIRONMENT for diagnosis in found.values())


async def patch_status(api: ApiServer, node: str, status: dict[str, Any]) -> None:
    kind = "application/merge-patch+json"
    await api._call("PATCH", "patch", NODE_STATUS, name=node, body={"status": status}, content_type=kind)


def job(
    key: ObjectKey, number: int, uid: str, command: str, resources: dict[str, Any], testbed: Environment
) -> dict[str, Any]:
    """A driver's Job with these resources."""
    container = {"image": testbed.operator_image, "imagePullPolicy": "IfNotPresent", "resources": resources}
    return job_manifest(key, f"departures-run-{number}", owner=uid, command=command, pod=container)
