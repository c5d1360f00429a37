"""What is done to the cluster: kills, freezes, outages.  What a fault takes away it gives back, however a test ends."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from harness.kubernetes.kubectl import Kubectl, Object
from harness.kubernetes.nodes import Container, NodeError, Nodes
from harness.waiting import eventually
from testbed.release import NAMESPACE as OPERATOR_NAMESPACE
from testbed.release import RELEASE as OPERATOR
from testbed.services.kafka_and_cassandra import NAMESPACE as DATA_NAMESPACE


@dataclass(frozen=True, slots=True)
class Faults:
    """Hands on the cluster's processes."""

    kubectl: Kubectl
    nodes: Nodes

    def evict(self, pod: str) -> None:
        """Evict a pod as a drain does. Raises KubectlError where a PodDisruptionBudget forbids it now."""
        namespace = self.kubectl.namespace
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
        self.kubectl.run("create", f"--raw={path}", "--filename=-", text=json.dumps(body))

    def sigkill(self, pod: Object) -> float:
        """Kill all processes of a pod's container with SIGKILL; return the monotonic time of it."""
        container = Container.of(pod)
        assert container is not None, f"{pod['metadata']['name']} does not run"
        self.nodes.signal(container, "KILL")
        return time.monotonic()

    @contextmanager
    def frozen(self, pod: Object) -> Iterator[Container]:
        """Stop all processes of a pod's container with SIGSTOP, and let the remaining ones continue at the end."""
        container = Container.of(pod)
        assert container is not None, f"{pod['metadata']['name']} does not run"
        try:
            # Twice: a process that was being started during the first round is caught by the second.
            self.nodes.signal(container, "STOP")
            self.nodes.signal(container, "STOP")
            yield container
        finally:
            with suppress(NodeError):
                self.nodes.signal(container, "CONT")

    @contextmanager
    def kept(self, pod: Object) -> Iterator[None]:
        """Keep a pod's object after its end, so that a test can read how its container ended."""
        name = pod["metadata"]["name"]
        ours = "fencepost.test/keep"
        self._finalizers(name, lambda there: [*there, ours])
        try:
            yield
        finally:
            self._finalizers(name, lambda there: [one for one in there if one != ours])

    def _finalizers(self, name: str, change: Callable[[list[str]], list[str]]) -> None:
        pod = self.kubectl.get("pod", name)
        if pod is not None:
            now = pod["metadata"].get("finalizers", [])
            self.kubectl.patch("pod", name, {"metadata": {"finalizers": change(now)}})

    @contextmanager
    def down(self, statefulset: str) -> Iterator[None]:
        """Take Kafka or Cassandra away: no pod of it is left when the block begins; it is back, ready, after it."""
        data = self.kubectl.within(DATA_NAMESPACE)

        def pods() -> list[Object]:
            return data.items("pods", f"--selector=app={statefulset}")

        try:
            data.run("scale", f"statefulset/{statefulset}", "--replicas=0")
            eventually(f"{statefulset} is gone", lambda: not pods(), seconds=60)
            yield
        finally:
            data.run("scale", f"statefulset/{statefulset}", "--replicas=1")
            data.run("rollout", "status", f"statefulset/{statefulset}", "--timeout=120s", seconds=130)

    def operator_pod(self) -> Object | None:
        """Return the operator's running pod."""
        pods = self.kubectl.within(OPERATOR_NAMESPACE).items(
            "pods", f"--selector=app.kubernetes.io/instance={OPERATOR}"
        )
        return next((pod for pod in pods if Container.of(pod)), None)

    @contextmanager
    def operator_killed(self) -> Iterator[None]:
        """Kill the operator with SIGKILL; after the block a new one is ready."""
        pod = eventually("the operator runs", self.operator_pod, seconds=60)
        self.sigkill(pod)
        try:
            yield
        finally:
            self.operator_ready()

    def operator_ready(self) -> None:
        """Wait for the operator's Deployment to be available."""
        operator = self.kubectl.within(OPERATOR_NAMESPACE)
        operator.run("rollout", "status", f"deployment/{OPERATOR}", "--timeout=90s", seconds=100)

        def available() -> bool:
            pod = self.operator_pod()
            return pod is not None and all(status["ready"] for status in pod["status"]["containerStatuses"])

        eventually("the operator is ready", available, seconds=90)

    @contextmanager
    def helm_killed(self, release: str, midway: Callable[[], bool], *, seconds: float = 60) -> Iterator[None]:
        """Catch the operator's first helm of this release from here on; after the block kill it once `midway` holds.

        Helm is let on in steps of some milliseconds, so that it stands still while `midway` is asked.
        Raises NodeError when no helm was seen in time, or it ended before `midway` held.
        """
        container = Container.of(eventually("the operator runs", self.operator_pod, seconds=60))
        assert container is not None
        catch = (
            f"echo; end=$(($(date +%s) + {seconds:.0f})); while [ $(date +%s) -lt $end ]; do"
            f" for pid in $(pgrep -x helm); do grep -q {container.identity} /proc/$pid/cgroup"
            f" && grep -qa {release} /proc/$pid/cmdline && kill -STOP $pid && echo $pid && exit 0; done; done; exit 1"
        )
        with self.nodes.lines(container.node, "sh", "-c", catch) as lines:
            if next(lines, None) is None:  # it looks now: helm ends within a second
                raise NodeError(f"nothing can be run on {container.node}")
            pid = None
            try:
                yield
                pid = next(lines, "").strip()
                if not pid:
                    raise NodeError(f"no helm of {release} within {seconds:.0f} s")
                # Between helm's two writes lie some 40 ms on a quiet machine: longer steps leap over them.
                step = f"kill -CONT {pid} && sleep 0.01 && kill -STOP {pid}"
                while not midway():
                    self.nodes.run(container.node, "sh", "-c", step)
            finally:  # also after a failure: one that stays stopped keeps the operator's others waiting
                if pid is None:
                    pid = next(lines, "").strip()
                self.nodes.run(container.node, "kill", "-KILL", pid, check=False)
