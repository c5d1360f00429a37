"""Both workers are drained in turn under load, as an upgrade of the cluster does it: nothing is cut off."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Final

import pytest

from e2e.stream import Stream, cassandra
from fencepost.contract import ExitCode
from fencepost.fence import FenceRow
from flights.history import commits, read_history
from harness.faults.cluster_faults import Faults
from harness.faults.node_loss import NodeLoss
from harness.kubernetes.kubectl import Kubectl, KubectlError, Object
from harness.kubernetes.placement import COMPONENT
from harness.pipelines import KIND, PIPELINE_LABEL
from harness.waiting import eventually
from present import present
from testbed.cluster import WORKERS

pytestmark = [pytest.mark.e2e, pytest.mark.outage, pytest.mark.long, pytest.mark.timeout(900)]

BATCH_SECONDS: Final = 5.0
"""Time that the batch in progress still takes when its driver is asked to stop."""


def test_each_node_is_drained_in_turn_and_no_batch_is_cut_off(stream: Stream, faults: Faults, kubectl: Kubectl) -> None:
    """`kubectl drain` of the node that the driver is on, then of that of the master and the workers, the operator too.

    Kafka and Cassandra stay: they have their data there. One worker after the other may be evicted.
    """
    pipeline, loss = stream.pipeline, NodeLoss(kubectl, faults.nodes)
    kubectl.run("scale", f"{KIND}/{pipeline.name}", "--replicas=2")
    eventually("both workers are ready", lambda: len(_ready_workers(kubectl, stream)) == 2, seconds=120)
    with stream.load.flowing():
        first = stream.commits_past(stream.fence())
        one, other = _ready_workers(kubectl, stream)
        faults.evict(one)
        with pytest.raises(KubectlError, match="disruption budget"):
            faults.evict(other)
        assert stream.commits_past(stream.commits_past(first)).epoch == first.epoch, "the other worker continues"
        here = pipeline.driver()["spec"]["nodeName"]
        there = next(node for node in WORKERS if node != here)
        _move(stream, kubectl, f"{here} is drained", loss.drained(here))
        _move(stream, kubectl, "the driver is evicted", _without_driver(there, stream, faults, loss))
        assert pipeline.driver()["spec"]["nodeName"] == here
        # What the master knew ends with its pod, and no worker that has moved gets ready without it.
        _move(stream, kubectl, f"{there} is drained", loss.drained(there))
    stream.check_every_row()


def _move(stream: Stream, kubectl: Kubectl, what: str, cause: AbstractContextManager[None]) -> None:
    """Check that the driver ends its batch in order because of `cause`, and that its successor commits meanwhile."""
    before = stream.commits_past(stream.fence())
    driver = stream.pipeline.driver()
    began = time.monotonic()
    with exit_codes(kubectl, driver["metadata"]["name"]) as codes, cause:
        done = time.monotonic() - began
        now = stream.commits_past(before, seconds=180)
        while now.epoch == before.epoch:
            now = stream.commits_past(now, seconds=180)
        now = stream.commits_past(now, seconds=180)  # the first row of an epoch has the offsets of the one before
        print(f"{what}: done after {done:.1f} s, next commit after {time.monotonic() - began:.1f} s")
    assert codes == {str(int(ExitCode.STOPPED))}, f"its batch was cut off: {codes}"
    stream.pipeline.wait_ready(epoch=now.epoch)


@contextmanager
def _without_driver(node: str, stream: Stream, faults: Faults, loss: NodeLoss) -> Iterator[None]:
    """Evict the driver in mid-batch; its successor starts on another node, and the rest of the cluster stays.

    The workers stand still meanwhile, so that the batch is not over before the driver is asked to stop.
    """
    with loss.cordoned(node):
        eventually("both workers are ready", lambda: len(_ready_workers(faults.kubectl, stream)) == 2, seconds=120)
        with ExitStack() as frozen:
            for worker in _workers(faults.kubectl, stream):
                frozen.enter_context(faults.frozen(worker))
            batch = eventually("a batch is in progress", lambda: _batch_in_progress(stream), seconds=30, pause=0)
            faults.evict(stream.pipeline.driver()["metadata"]["name"])
            time.sleep(BATCH_SECONDS)
            assert _is_same(stream.fence(), batch), "it is in progress all that time"
        yield
    with cassandra(stream.place) as opened:
        history = read_history(opened, stream.place.fences, stream.key)
    assert any(after.epoch == batch.epoch and after.offsets == batch.planned for _, after in commits(history))


def _batch_in_progress(stream: Stream) -> FenceRow | None:
    """Return the row of a batch that its driver cannot commit: what was written before is committed within a second."""
    row = stream.fence()
    if row is None or row.planned == row.offsets:
        return None
    time.sleep(1)
    return row if _is_same(stream.fence(), row) else None


def _is_same(row: FenceRow | None, batch: FenceRow) -> bool:
    return row is not None and (row.epoch, row.offsets, row.planned) == (batch.epoch, batch.offsets, batch.planned)


@contextmanager
def exit_codes(kubectl: Kubectl, pod: str) -> Iterator[set[str]]:
    """Watch how a pod's container ends; the set is filled when the block has ended."""
    path = "{.metadata.name} {.status.containerStatuses[0].state.terminated.exitCode}"
    words = ("get", "pod", pod, "--watch", f'--output=jsonpath={path}{{"\\n"}}')
    command = [*kubectl.command, f"--namespace={kubectl.namespace}", *words]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    codes: set[str] = set()
    try:
        assert present(watching.stdout).readline().split() == [pod], "it is watched while it still runs"
        yield codes
    finally:
        watching.terminate()
        codes.update(line.removeprefix(pod).strip() for line in watching.communicate(timeout=10)[0].splitlines())
        codes.discard("")


def _workers(kubectl: Kubectl, stream: Stream) -> list[Object]:
    selector = f"--selector={PIPELINE_LABEL}={stream.pipeline.name},{COMPONENT}=worker"
    return kubectl.items("pods", selector)


def _ready_workers(kubectl: Kubectl, stream: Stream) -> list[str]:
    return [
        pod["metadata"]["name"]
        for pod in _workers(kubectl, stream)
        if "deletionTimestamp" not in pod["metadata"]
        and any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))
    ]
