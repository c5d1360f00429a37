"""Both workers are drained in turn under load, as an upgrade of the cluster does it: nothing is cut off."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from e2e.stream import Stream
from fencepost.contract import ExitCode
from harness.faults import Faults
from harness.kubectl import Kubectl, KubectlError
from harness.node_loss import NodeLoss
from harness.pipelines import KIND, PIPELINE_LABEL
from harness.placement import COMPONENT
from harness.waiting import eventually
from testbed.cluster import WORKERS

pytestmark = [pytest.mark.e2e, pytest.mark.outage, pytest.mark.timeout(900)]


def test_each_node_is_drained_in_turn_and_no_batch_is_cut_off(stream: Stream, faults: Faults, kubectl: Kubectl) -> None:
    """`kubectl drain` of the node that the driver is on, then of the other one, the operator with it.

    Kafka and Cassandra stay: they have their data there. One worker after the other may be evicted.
    """
    pipeline, loss = stream.pipeline, NodeLoss(kubectl, faults.nodes)
    kubectl.run("scale", f"{KIND}/{pipeline.name}", "--replicas=2")
    eventually("both workers are ready", lambda: len(_ready_workers(kubectl, stream)) == 2, seconds=120)
    with stream.load.flowing():
        first = stream.commits_past(stream.fence())
        one, other = _ready_workers(kubectl, stream)
        _evict(kubectl, one)
        with pytest.raises(KubectlError, match="disruption budget"):
            _evict(kubectl, other)
        assert stream.commits_past(stream.commits_past(first)).epoch == first.epoch, "the other worker goes on"
        here = pipeline.driver()["spec"]["nodeName"]
        for node in sorted(WORKERS, key=lambda name: name != here):
            _drain(node, stream, kubectl, loss)
    stream.check_every_row()


def _drain(node: str, stream: Stream, kubectl: Kubectl, loss: NodeLoss) -> None:
    """Drain a node under load; a driver that is on it ends its batch first, and its successor commits."""
    pipeline, before = stream.pipeline, stream.commits_past(stream.fence())
    driver = pipeline.driver()
    is_here = driver["spec"]["nodeName"] == node  # on a busy machine it may have moved back since the last drain
    began = time.monotonic()
    with _exit_codes(kubectl, driver["metadata"]["name"]) as codes, loss.drained(node):
        drained = time.monotonic() - began
        now = stream.commits_past(before, seconds=180)
        while is_here and now.epoch == before.epoch:
            now = stream.commits_past(now, seconds=180)
        print(f"{node}: drained in {drained:.1f} s, next commit after {time.monotonic() - began:.1f} s")
    if is_here:
        assert codes == {str(int(ExitCode.STOPPED))}, f"its batch was cut off: {codes}"
    pipeline.wait_ready(epoch=now.epoch)


@contextmanager
def _exit_codes(kubectl: Kubectl, pod: str) -> Iterator[set[str]]:
    """Watch how a pod's container ends; the set is filled when the block has ended."""
    path = "{.status.containerStatuses[0].state.terminated.exitCode}"
    words = ("get", "pod", pod, "--watch", f'--output=jsonpath={path}{{"\\n"}}')
    command = [*kubectl.command, f"--namespace={kubectl.namespace}", *words]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    codes: set[str] = set()
    try:
        yield codes
    finally:
        watching.terminate()
        codes.update(filter(None, watching.communicate(timeout=10)[0].split("\n")))


def _ready_workers(kubectl: Kubectl, stream: Stream) -> list[str]:
    selector = f"--selector={PIPELINE_LABEL}={stream.pipeline.name},{COMPONENT}=worker"
    pods = kubectl.items("pods", selector)
    return [
        pod["metadata"]["name"]
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
        and any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))
    ]


def _evict(kubectl: Kubectl, pod: str) -> None:
    """Evict a pod as a drain does. Raises KubectlError where a PodDisruptionBudget forbids it now."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": kubectl.namespace},
    }
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/{pod}/eviction"
    kubectl.run("create", f"--raw={path}", "--filename=-", text=json.dumps(body))
