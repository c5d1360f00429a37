"""A node that falls silent, and nodes that take no pods: what is taken away is given back, however a test ends."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from harness.kubernetes.kubectl import Kubectl, KubectlError, Object
from harness.kubernetes.nodes import Nodes
from harness.waiting import eventually

OURS: Final = "app.kubernetes.io/part-of=fencepost"
"""Selects the operator's pods and those of pipelines: Kafka and Cassandra stay where their data is."""
_RESUME: Final = """
cat >/dev/null
for attempt in 1 2 3 4 5 6 7 8 9 10; do
  "$0" unpause "$1"
  [ "$("$0" inspect --format '{{.State.Paused}}' "$1")" = false ] && exit 0
  sleep 2
done
exit 1
"""
"""Waits until its standard input ends, then resumes a node, however often Docker refuses."""
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"


@dataclass(frozen=True, slots=True)
class NodeLoss:
    """Takes nodes away from the cluster, wholly or for new pods."""

    kubectl: Kubectl
    nodes: Nodes

    @contextmanager
    def silent(self, node: str) -> Iterator[float]:
        """Freeze all that runs in a node, kubelet and pods alike; after the block it resumes, and is Ready.

        Yields the monotonic time of the loss. A process of its own resumes the node when the block ends, and also when
        this process is killed.
        """
        docker = self.nodes.docker
        keeper = subprocess.Popen(
            ["sh", "-c", _RESUME, docker, node],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            subprocess.run([docker, "pause", node], check=True, capture_output=True, timeout=30)
            yield time.monotonic()
        finally:
            _, complaint = keeper.communicate(timeout=90)
            if keeper.returncode:
                raise RuntimeError(f"{node} is not resumed: {complaint.decode(errors='replace').strip()}")
            self.wait_ready(node)

    def wait_ready(self, node: str, *, seconds: float = 120) -> None:
        """Wait until a node is Ready and takes pods."""

        def is_ready() -> bool:
            found = self._node(node)
            ready = next(one["status"] for one in found["status"]["conditions"] if one["type"] == "Ready")
            return ready == "True" and not found["spec"].get("taints")

        eventually(f"{node} is Ready and takes pods", is_ready, seconds=seconds)

    def is_unreachable(self, node: str) -> bool:
        """Whether Kubernetes has noticed that a node is silent."""
        taints = self._node(node)["spec"].get("taints") or []
        return any(taint["key"] == _UNREACHABLE for taint in taints)

    @contextmanager
    def cordoned(self, node: str) -> Iterator[None]:
        """Let no new pod onto a node while the block runs."""
        try:
            self.kubectl.run("cordon", node)
            yield
        finally:
            self.kubectl.run("uncordon", node)

    @contextmanager
    def drained(self, node: str, *, selector: str = OURS, seconds: float = 180) -> Iterator[None]:
        """`kubectl drain` a node of what Fencepost runs there; it takes pods again after the block."""
        options = ("--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={seconds:.0f}s")
        try:
            self.kubectl.run("drain", node, f"--pod-selector={selector}", *options, seconds=seconds + 10)
            yield
        finally:
            self.kubectl.run("uncordon", node)

    def _node(self, name: str) -> Object:
        found = self.kubectl.get("node", name)
        if found is None:
            raise KubectlError(("get", "node", name), "node not found")
        return found
