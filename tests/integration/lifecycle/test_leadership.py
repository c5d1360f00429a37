"""Replicas of the operator as processes, with one Lease on a real API server: killed and frozen leaders.

What a pipeline is written to shows who acts: nothing of its spec can be used, so that no Kafka and no Cassandra is
asked first.
"""

from __future__ import annotations

import signal
import time
from typing import Final

import pytest

from fencepost_operator.api import ObjectKey
from fencepost_operator.app import LEASE_LOST
from harness.kubernetes.kubectl import Kubectl
from harness.waiting import eventually
from integration.lifecycle.operators import HOME, RELEASE, Installed, Replica
from integration.operator.cluster import pipeline_manifest
from present import present

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PLACE: Final = "elected"


@pytest.fixture(scope="module")
def kubectl(installed: Installed) -> Kubectl:
    """Return kubectl for a namespace of its own."""
    kubectl = installed.plane.kubectl(PLACE)
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLACE}})
    return kubectl


def apply(kubectl: Kubectl, name: str) -> None:
    """Create a pipeline whose spec cannot be used."""
    manifest = pipeline_manifest(ObjectKey(PLACE, name))
    manifest["spec"]["source"]["kafka"]["properties"] = {"no.such.property": "x"}
    kubectl.apply(manifest)


def is_reported(kubectl: Kubectl, name: str) -> bool:
    """Whether an operator has written that the spec cannot be used."""
    found = present(kubectl.get("spl", name))
    conditions = found["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["reason"] == "InvalidSpec" for one in conditions)


def written(kubectl: Kubectl) -> dict[str, str]:
    """Return the resourceVersion of everything that an operator may write here."""
    kinds = "streamingpipelines,events,configmaps,secrets,jobs,statefulsets,services,controllerrevisions"
    return {
        f"{item['kind']} {item['metadata']['name']}": item["metadata"]["resourceVersion"]
        for item in kubectl.items(kinds)
    }


def holder(installed: Installed) -> str:
    """Return who holds the Lease."""
    lease = installed.plane.kubectl(HOME).get("lease", RELEASE)
    return str(lease["spec"].get("holderIdentity", "")) if lease is not None else ""


def acts(kubectl: Kubectl, name: str, since: float, replica: Replica) -> None:
    """Check that a replica takes over and reconciles a new pipeline; print when. tests/crash holds how soon."""
    apply(kubectl, name)
    eventually("another replica acts", lambda: is_reported(kubectl, name), seconds=60, pause=0.1)
    print(f"the other replica acted after {time.monotonic() - since:.1f} s")
    assert replica.leads


def test_another_replica_acts_soon_after_the_leader_is_killed(installed: Installed, kubectl: Kubectl) -> None:
    """SIGKILL: nothing is released."""
    with installed.replica("killed_1") as leader:
        eventually("it leads", lambda: leader.leads, seconds=60)
        with installed.replica("survivor_1") as other:
            apply(kubectl, "before")
            eventually("the leader acts", lambda: is_reported(kubectl, "before"), seconds=60)
            assert holder(installed) == "killed_1"
            assert not other.leads
            leader.process.kill()
            acts(kubectl, "after-kill", time.monotonic(), other)
            assert holder(installed) == "survivor_1"


def test_a_leader_that_was_frozen_writes_nothing_when_it_wakes(installed: Installed, kubectl: Kubectl) -> None:
    """SIGSTOP and SIGCONT. When it wakes there is work, and its successor stands still: any write would be its own."""
    with installed.replica("frozen_1") as leader:
        eventually("it leads", lambda: leader.leads, seconds=60)
        with installed.replica("successor_1") as other:
            leader.process.send_signal(signal.SIGSTOP)
            acts(kubectl, "after-freeze", time.monotonic(), other)
            other.process.send_signal(signal.SIGSTOP)
            apply(kubectl, "late")
            before = written(kubectl)
            leader.process.send_signal(signal.SIGCONT)
            assert leader.process.wait(timeout=30) == LEASE_LOST
            assert written(kubectl) == before
            assert holder(installed) == "successor_1"
            assert "another replica may act, so this one ends" in leader.log.read_text()
            other.process.send_signal(signal.SIGCONT)
            eventually("its successor continues", lambda: is_reported(kubectl, "late"), seconds=60)
            assert other.process.poll() is None
