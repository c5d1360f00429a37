"""Which replica of the testbed's operator leads, and two of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.node_loss import NodeLoss
from harness.kubernetes.kubectl import Kubectl, Object
from harness.waiting import eventually
from testbed.cluster import WORKERS
from testbed.release import NAMESPACE as OPERATOR_NAMESPACE
from testbed.release import RELEASE


def leader(kubectl: Kubectl) -> Object | None:
    """Return the pod of the replica that acts, None while none does. Raises KubectlError."""
    operator = kubectl.within(OPERATOR_NAMESPACE)
    lease = operator.get("lease", RELEASE)
    holder = (lease or {}).get("spec", {}).get("holderIdentity", "").partition("_")[0]
    return operator.get("pod", holder) if holder else None


@contextmanager
def two_operators(kubectl: Kubectl, loss: NodeLoss, *, leader_on: str) -> Iterator[None]:
    """Run two replicas of the operator, of which the one on a node leads; afterwards there is one again."""
    operator = kubectl.within(OPERATOR_NAMESPACE)
    selector = f"--selector=app.kubernetes.io/instance={RELEASE}"

    def leads_there() -> bool:
        pod = leader(kubectl)
        return pod is not None and pod["spec"].get("nodeName") == leader_on

    def scale(replicas: int) -> None:
        operator.run("scale", f"deployment/{RELEASE}", f"--replicas={replicas}")
        operator.run("rollout", "status", f"deployment/{RELEASE}", "--timeout=120s", seconds=130)

    try:
        if not leads_there():
            with loss.cordoned(next(node for node in WORKERS if node != leader_on)):
                operator.run("delete", "pods", selector, "--timeout=60s", seconds=70)
                eventually(f"the operator on {leader_on} leads", leads_there, seconds=60)
        scale(2)
        assert leads_there()
        nodes = {pod["spec"]["nodeName"] for pod in operator.items("pods", selector)}
        assert nodes == set(WORKERS), "replicas are spread over the nodes"
        yield
    finally:
        scale(1)
