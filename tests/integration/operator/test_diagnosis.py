"""Every way in which a real kubelet, scheduler or API server keeps a pod from its work is named, with what to do.

The cases only wait, so they do it side by side in one namespace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from fencepost.contract import Reason
from fencepost_operator.adapters.clock import SystemClock
from fencepost_operator.adapters.kubernetes import pods
from fencepost_operator.adapters.kubernetes.api_server import PODS, ApiServer, Resource
from fencepost_operator.adapters.kubernetes.kubelets import Kubelets
from fencepost_operator.adapters.kubernetes.runs import KubernetesRuns
from fencepost_operator.adapters.kubernetes.warning_events import NamespaceWarnings
from fencepost_operator.api import ObjectKey
from fencepost_operator.decision.run.diagnosis import Diagnosis, diagnose_end, diagnose_pod_issue
from fencepost_operator.errors import Unreachable
from fencepost_operator.observation import Run
from harness.waiting import NotInTimeError, answered, eventually_async
from integration.operator.cluster import job_manifest, owner_of_runs
from testbed.environment import Environment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

QUOTAS: Final = Resource(prefix="/api/v1", plural="resourcequotas")
CLAIMS: Final = Resource(prefix="/api/v1", plural="persistentvolumeclaims")
ABSENT: Final = "fencepost.test/absent:1"
CLAIM: Final = "recovery"
SCRATCH: Final = {"volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}
MEMORY_COMMAND: Final = "sleep 1; tail /dev/zero; sleep 2; exit 137"
"""Its child fills the memory; with cgroup v1 the shell outlives it.

containerd reports a container that ends in the moment of its kill as `Error` now and then: its event of the kill comes
after the end (containerd issues 8180 and 8893).
"""
PROBE: Final = {"readinessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 5}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A pod that fails in one way: its container, its pod's spec, and what must be said of it."""

    reason: Reason
    says: str
    """What the message must hold."""
    command: str = "sleep 600"
    container: Mapping[str, Any] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)


RUNS: Final[Mapping[str, Case]] = {
    "image": Case(reason=Reason.IMAGE_PULL_FAILED, says="absent", container={"image": ABSENT}),
    "image name": Case(reason=Reason.IMAGE_PULL_FAILED, says="UPPER", container={"image": "UPPER"}),
    "image never pulled": Case(
        reason=Reason.IMAGE_PULL_FAILED, says="absent", container={"image": ABSENT, "imagePullPolicy": "Never"}
    ),
    "too large": Case(
        reason=Reason.UNSCHEDULABLE, says="memory", container={"resources": {"requests": {"memory": "9Ti"}}}
    ),
    "volume": Case(
        reason=Reason.VOLUME_PENDING,
        says="PersistentVolumeClaim",
        spec={"volumes": [{"name": "scratch", "persistentVolumeClaim": {"claimName": CLAIM}}]},
    ),
    "quota": Case(reason=Reason.QUOTA_EXCEEDED, says="exceeded quota", spec={"activeDeadlineSeconds": 600}),
    "admission": Case(
        reason=Reason.POD_REFUSED, says="PodSecurity", container={"securityContext": {"privileged": True}}
    ),
    "secret": Case(
        reason=Reason.CONTAINER_CONFIG_ERROR,
        says="absent-secret",
        container={"envFrom": [{"secretRef": {"name": "absent-secret"}}]},
    ),
    "mount": Case(
        reason=Reason.CONTAINER_CONFIG_ERROR,
        says="absent-code",
        container=SCRATCH,
        spec={"volumes": [{"name": "scratch", "configMap": {"name": "absent-code"}}]},
    ),
    "no such program": Case(
        reason=Reason.CONTAINER_CONFIG_ERROR, says="no-such-program", container={"command": ["/no-such-program"]}
    ),
    "probe": Case(reason=Reason.PROBE_FAILED, says="probe", container=PROBE),
    "memory": Case(
        reason=Reason.OUT_OF_MEMORY,
        says="driver's container",
        command=MEMORY_COMMAND,
        container={"resources": {"limits": {"memory": "48Mi"}}},
    ),
    "drained": Case(
        reason=Reason.DRAINED,
        says="evicted through the API",
        spec={"terminationGracePeriodSeconds": 10},  # until it is over the pod shows why it ends
    ),
    "exit code": Case(
        reason=Reason.RUN_FAILED,
        says="the last line",
        command="echo one; echo the last line; exit 3",
        container={"terminationMessagePolicy": "FallbackToLogsOnError"},
    ),
    "killed": Case(reason=Reason.KILLED, says="SIGKILL", command="exit 137"),
    "bad spec": Case(reason=Reason.BAD_SPEC, says="not valid", command="exit 51"),
}
"""Driver Jobs. The kubelets of the testbed evict nothing: `test_reported_failures` has what theirs would say."""


async def test_every_way_to_fail_is_named_with_a_remedy(api: ApiServer, namespace: str, testbed: Environment) -> None:
    """No injected fault but the pods' own specs and one eviction."""
    key = ObjectKey(namespace, "departures")
    clock = SystemClock()
    runs = KubernetesRuns(api=api, clock=clock, kubelets=Kubelets(api=api))
    uid = await owner_of_runs(api, key)
    await forbid_some(api, namespace)
    await asyncio.gather(*(start(runs, key, uid, testbed, name) for name in RUNS))
    found: dict[str, Diagnosis] = {}
    disruptions: dict[str, str] = {}

    async def seen() -> tuple[Run, ...]:
        return (await answered(lambda: runs.list(key, uid), Unreachable)).runs

    async def all_reported() -> bool:
        for run in await seen():
            name = [*RUNS][run.epoch - 1]
            if name == "drained" and run.pod is not None and run.pod.started_at and not run.pod.deleting_since:
                await evict(api, namespace, run.pod.name)
            if run.pod is not None and run.pod.disruption:
                disruptions[run.name] = run.pod.disruption
            diagnosis = diagnosed(run, disruptions.get(run.name, ""))
            if diagnosis is not None and RUNS[name].says in diagnosis.message:
                found[name] = diagnosis
        return found.keys() == RUNS.keys()

    try:
        await eventually_async(all_reported, seconds=240)
    except NotInTimeError as error:
        silent = [run for run in await seen() if [*RUNS][run.epoch - 1] not in found]
        raise AssertionError(f"nothing was said of {silent}") from error
    assert {name: diagnosis.category for name, diagnosis in found.items()} == {
        name: case.reason for name, case in RUNS.items()
    }
    assert all(diagnosis.remedy for diagnosis in found.values())
    assert found["exit code"].log == ("one", "the last line")


@pytest.mark.long
async def test_a_container_of_the_cluster_that_keeps_ending_is_named(
    api: ApiServer, namespace: str, testbed: Environment
) -> None:
    """Injected: a worker's container ends with an error, and one is killed by the kernel for memory."""
    commands = {"crash": "echo no master; exit 4", "memory": MEMORY_COMMAND}
    for name, command in commands.items():
        await api.create(PODS, namespace=namespace, body=worker(namespace, name, command, testbed.operator_image))

    async def looping() -> dict[str, Any]:
        warnings, now = NamespaceWarnings(api, namespace), SystemClock().now()
        listed = {pod["metadata"]["name"]: pod for pod in await api.list(PODS, namespace=namespace)}
        issues = {name: await pods.find_issue(warnings, pod, now) for name, pod in listed.items()}
        kill = pods.memory_kill(listed["memory"])
        return {"kill": kill, **issues} if kill and all(issues.values()) else {}

    found = await eventually_async(looping, seconds=120)
    crash = diagnose_pod_issue(found["crash"])
    assert crash.category is Reason.CRASH_LOOP
    assert "exit code 4" in crash.message
    assert "no master" in crash.message
    assert (found["kill"].pod, found["kill"].limit) == ("memory", "48Mi")


async def start(runs: KubernetesRuns, key: ObjectKey, uid: str, testbed: Environment, name: str) -> None:
    case, epoch = RUNS[name], [*RUNS].index(name) + 1
    container = {"image": testbed.operator_image, "imagePullPolicy": "IfNotPresent", **case.container}
    job = job_manifest(key, f"departures-run-{epoch}", owner=uid, command=case.command, pod=container)
    job["spec"]["template"]["spec"].update(case.spec)
    await runs.start(key, job)


async def forbid_some(api: ApiServer, namespace: str) -> None:
    """A claim whose class does not exist, and a quota for the one pod that has a deadline."""
    size = {"resources": {"requests": {"storage": "1Mi"}}, "storageClassName": "absent"}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM},
        "spec": {"accessModes": ["ReadWriteOnce"], **size},
    }
    await api.create(CLAIMS, namespace=namespace, body=claim)
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none"},
        "spec": {"hard": {"pods": "0"}, "scopes": ["Terminating"]},
    }
    await api.create(QUOTAS, namespace=namespace, body=quota)

    async def enforced() -> bool:
        found = await api.get(QUOTAS, namespace=namespace, name="none")
        return bool(found and found.get("status", {}).get("hard"))

    await eventually_async(enforced)


def diagnosed(run: Run, disruption: str = "") -> Diagnosis | None:
    """Return what the operator would say of a run as it is, None when nothing is wrong with it yet.

    The Job controller removes an evicted pod as it counts it, so that `disruption` may be all that was seen.
    """
    ended = run.pod is not None and (run.pod.exit_code is not None or run.pod.phase == "Failed")
    if ended or (run.finished and disruption):
        return diagnose_end(run, run.name, disruption=disruption)
    issue = run.issue or (run.pod.issue if run.pod is not None else None)
    return diagnose_pod_issue(issue) if issue is not None else None


async def evict(api: ApiServer, namespace: str, pod: str) -> None:
    """Ask for an eviction, as `kubectl drain` does."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
    path = Resource(prefix="/api/v1", plural=f"pods/{pod}/eviction")
    await api.create(path, namespace=namespace, body=eviction)


def worker(namespace: str, name: str, command: str, image: str) -> dict[str, Any]:
    """A pod whose container is started again whenever it ends, as a worker's is."""
    job = job_manifest(
        ObjectKey(namespace, name),
        name,
        owner="0",
        command=command,
        pod={
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "resources": {"limits": {"memory": "48Mi"}},
        },
    )
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": job["spec"]["template"]["spec"] | {"restartPolicy": "Always"},
    }
