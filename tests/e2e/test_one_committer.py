"""At most one committer, whatever starts drivers: Job controllers, people, two operators, two Kubernetes clusters."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.stream import Starts, Stream
from fencepost.contract import ExitCode
from harness.faults.cluster_faults import Faults
from harness.kubernetes.control_plane import control_plane
from harness.kubernetes.kubectl import Kubectl, Object
from harness.pipelines import KIND, SECRET, Ending, code, ending
from harness.waiting import eventually
from integration.lifecycle.operators import Installed
from present import present
from testbed.environment import Environment
from testbed.release import NAMESPACE as OPERATOR_NAMESPACE
from testbed.release import RELEASE

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def test_the_second_pod_of_a_job_is_fenced_out(stream: Stream, faults: Faults, kubectl: Kubectl) -> None:
    """A Job controller with a stale cache makes a second pod: made as it makes them, while it is frozen itself."""
    pipeline = stream.pipeline
    with stream.load.flowing():
        row = stream.commits_past(stream.fence())
        job = present(kubectl.get("job", pipeline.run_name(row.epoch)))
        with faults.frozen(_controller_manager(kubectl)):
            twin = kubectl.create(_pod_of(job))["metadata"]["name"]
            found = _ending_of(kubectl, twin)
            now = stream.commits_past(stream.fence())
            assert (now.epoch, now.driver) == (row.epoch, row.driver), "the twin took the fence"
        assert found.exit_code == ExitCode.FENCED, found
        # One of its pods has failed, so the Job has: its controller ends the other one, in order.
        while now.epoch == row.epoch:
            now = stream.commits_past(now)
        stream.commits_past(now)
    assert stream.check_every_row().epoch == row.epoch + 1
    name = job["metadata"]["name"]
    eventually("no pod of the failed Job lives", lambda: all(map(ending, pipeline.pods_of(name))), seconds=60)


@pytest.mark.long
def test_a_job_deleted_without_its_pod_leaves_no_second_committer(stream: Stream, kubectl: Kubectl) -> None:
    """`kubectl delete job --cascade=orphan`: the driver continues, without an owner."""
    pipeline = stream.pipeline
    with stream.load.flowing():
        row = stream.commits_past(stream.fence())
        orphan = pipeline.driver()["metadata"]["name"]
        kubectl.run("delete", "job", pipeline.run_name(row.epoch), "--cascade=orphan")
        stream.kills += 1
        now = row
        while now.epoch == row.epoch:
            now = stream.commits_past(now)
        stream.commits_past(now)
        eventually("the orphan has ended", lambda: _has_ended(kubectl, orphan), seconds=90)
    assert stream.check_every_row().epoch == row.epoch + 1
    kubectl.delete("pod", orphan)


@pytest.mark.long
def test_two_operators_with_stale_views_start_one_run_an_epoch(
    stream: Stream, faults: Faults, kubectl: Kubectl
) -> None:
    """A second operator without the Lease; the driver is killed, and each operator in turn is frozen as it reacts."""
    pipeline, starts = stream.pipeline, Starts(stream.pipeline)
    with stream.load.flowing(), _second_operator(kubectl) as second:
        row = stream.commits_past(stream.fence())
        for frozen in (second, _operator_pod(kubectl, RELEASE)):
            faults.sigkill(pipeline.driver())
            # In the middle of what it does about it: it continues with a view that is old by then.
            time.sleep(1.0)
            with faults.frozen(frozen):
                now = row
                while now.epoch == row.epoch:
                    now = stream.commits_past(now)
            row = now
            for _ in range(3):
                row = stream.commits_past(row)
    runs = starts.by_job()
    stream.kills += len(runs)
    assert all(len(pods) == 1 for pods in runs.values()), f"an epoch had two drivers: {runs}"
    stream.check_every_row()


@pytest.mark.long
def test_a_second_kubernetes_cluster_takes_nothing_over(
    stream: Stream, kubectl: Kubectl, environment: Environment, tmp_path: Path
) -> None:
    """The same manifest in a cluster with an API server of its own, with an operator, over the same Cassandra.

    That operator is a process of this machine, so the manifest has the addresses that lead there from here.
    """
    pipeline = stream.pipeline
    with stream.load.flowing(), control_plane() as plane:
        row = stream.commits_past(stream.fence())
        other = plane.kubectl(kubectl.namespace)
        account = {"username": environment.cassandra_username, "password": environment.cassandra_password}
        other.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other.namespace}})
        other.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "stringData": account}, code())
        with Installed.by_helm(plane, tmp_path).operator():
            other.apply(stream.manifest(**_from_here(environment)))

            def refused() -> Object | None:
                found = other.get(KIND, pipeline.name) or {}
                conditions = found.get("status", {}).get("conditions", [])
                return next((one for one in conditions if one["reason"] == "FenceOwnedElsewhere"), None)

            eventually("the second cluster's operator refuses", refused, seconds=90)
            now = stream.commits_past(stream.commits_past(stream.fence()))
            assert (now.epoch, now.driver, now.owner) == (row.epoch, row.driver, row.owner)
            assert not other.items("jobs"), "the second cluster started a driver"
    assert stream.check_every_row().epoch == row.epoch


def _from_here(environment: Environment) -> dict[str, Any]:
    cassandra = {"contactPoints": [environment.cassandra_host], "port": environment.cassandra_port}
    return {"source": {"kafka": {"bootstrapServers": environment.kafka_host}}, "checkpoint": {"cassandra": cassandra}}


def _controller_manager(kubectl: Kubectl) -> Object:
    return kubectl.within("kube-system").items("pods", "--selector=component=kube-controller-manager")[0]


def _pod_of(job: Object) -> Object:
    """Return a pod as the Job controller makes it."""
    template = copy.deepcopy(job["spec"]["template"])
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}
    metadata = {
        "generateName": f"{job['metadata']['name']}-",
        "labels": template["metadata"]["labels"],
        "annotations": template["metadata"].get("annotations", {}),
        "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        "finalizers": ["batch.kubernetes.io/job-tracking"],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def _ending_of(kubectl: Kubectl, name: str) -> Ending:
    def ended() -> Ending | None:
        pod = kubectl.get("pod", name)
        assert pod is not None, f"{name} is gone, and its end was not seen"
        return ending(pod)

    return eventually(f"{name} ends", ended, seconds=120)


def _has_ended(kubectl: Kubectl, name: str) -> bool:
    pod = kubectl.get("pod", name)
    return pod is None or ending(pod) is not None


def _operator_pod(kubectl: Kubectl, instance: str) -> Object:
    operator = kubectl.within(OPERATOR_NAMESPACE)

    def running() -> Object | None:
        pods = operator.items("pods", f"--selector=app.kubernetes.io/instance={instance}")
        ready = (pod for pod in pods if pod["status"].get("containerStatuses", [{}])[0].get("ready"))
        return next(ready, None)

    return eventually(f"the operator {instance} runs", running, seconds=90)


@contextmanager
def _second_operator(kubectl: Kubectl) -> Iterator[Object]:
    """Run a copy of the operator that does not know of the Lease; yield its pod."""
    operator, name = kubectl.within(OPERATOR_NAMESPACE), f"{RELEASE}-second"
    deployment = present(operator.get("deployment", RELEASE))
    template = copy.deepcopy(deployment["spec"]["template"])
    template["metadata"]["labels"]["app.kubernetes.io/instance"] = name
    for variable in template["spec"]["containers"][0]["env"]:
        if variable["name"] == "FENCEPOST_LEASE":
            variable["value"] = ""
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": {"app.kubernetes.io/instance": name}},
        "template": {"metadata": {"labels": template["metadata"]["labels"]}, "spec": template["spec"]},
    }
    try:
        operator.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec})
        yield _operator_pod(kubectl, name)
    finally:
        operator.delete("deployment", name)
