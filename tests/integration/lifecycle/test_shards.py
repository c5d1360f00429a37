"""Three shards on operators as processes and a real API server: one killed, and a number of shards that changes.

Each process' metrics show over which pipelines it makes passes. Nothing of their specs can be used, so that no Kafka
and no Cassandra is asked first.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final
from urllib.request import urlopen

import pytest

from harness.kubernetes.kubectl import Kubectl
from harness.waiting import eventually
from integration.lifecycle.operators import HOME, Installed, Replica
from integration.lifecycle.test_leadership import apply, is_reported

pytestmark = [pytest.mark.integration, pytest.mark.timeout(420)]

PLACE: Final = "elected"
PIPELINES: Final = tuple(f"sharded-{number}" for number in range(9))
_BEAT: Final = re.compile(
    rf'fencepost_pipeline_heartbeat_timestamp_seconds{{name="(sharded-[0-9]+)",namespace="{PLACE}"}} (\S+)'
)


@pytest.fixture(scope="module")
def kubectl(installed: Installed) -> Kubectl:
    """Return kubectl for a namespace with pipelines."""
    kubectl = installed.plane.kubectl(PLACE)
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLACE}})
    for name in PIPELINES:
        apply(kubectl, name)
    return kubectl


def beats(replica: Replica) -> dict[str, float]:
    """Return when this process last began a pass over each of its pipelines."""
    with urlopen(replica.metrics, timeout=20) as answer:  # noqa: S310 - of this machine
        return {name: float(at) for name, at in _BEAT.findall(answer.read().decode())}


def owners(replicas: Sequence[Replica]) -> dict[str, Replica]:
    """Return who reconciles each pipeline; never two, but for metrics that are served again for three seconds."""
    found = dict[str, Replica]()
    for replica in replicas:
        for name in beats(replica):
            assert name not in found, f"two operators reconcile {name}"
            found[name] = replica
    return found


def are_divided(replicas: Sequence[Replica]) -> bool:
    """Whether each replica has some of the pipelines, and each pipeline one replica, also in metrics that are kept."""
    names = [name for replica in replicas for name in beats(replica)]
    return sorted(names) == sorted(PIPELINES) and all(beats(replica) for replica in replicas)


def numbers(installed: Installed) -> set[str]:
    """Return the numbers of shards that the Leases carry."""
    leases = installed.plane.kubectl(HOME).items("leases")
    return {lease["metadata"]["annotations"]["streaming.fencepost.dev/shards"] for lease in leases}


def test_the_pipelines_of_a_killed_operator_are_taken_over_and_the_others_passes_continue(
    installed: Installed, kubectl: Kubectl
) -> None:
    """SIGKILL of one of three, and then an orderly end of the second."""
    with ExitStack() as stack:
        replicas = [stack.enter_context(installed.replica(f"shard-{each}", shards=3)) for each in "abc"]
        eventually("each has a shard", lambda: are_divided(replicas), seconds=120)
        killed, *others = replicas
        before = owners(others)
        beaten = {name: beats(replica)[name] for name, replica in before.items()}
        killed.process.kill()
        killed.process.wait(timeout=30)
        continued = set[str]()

        def is_complete() -> bool:
            found = owners(others)
            assert before.items() <= found.items(), "a pipeline has left its operator"
            if found.keys() != set(PIPELINES):
                now = {name: beats(replica)[name] for name, replica in before.items()}
                continued.update(name for name, at in now.items() if at > beaten[name])
            return found.keys() == set(PIPELINES)

        eventually("the others have all pipelines", is_complete, seconds=60, pause=0.3)
        assert continued == before.keys(), "passes over the others' pipelines continued before the takeover"
        assert not any("may act, so this one ends" in other.log.read_text() for other in others)
        apply(kubectl, "sharded-new")
        eventually("a new pipeline is reconciled", lambda: is_reported(kubectl, "sharded-new"), seconds=60)
        others[0].process.send_signal(signal.SIGTERM)
        assert others[0].process.wait(timeout=60) == 0
        eventually("the last one has all", lambda: owners(others[1:]).keys() >= set(PIPELINES), seconds=60)


@pytest.mark.long
def test_another_number_of_shards_waits_for_the_operators_that_have_the_old_one(
    installed: Installed, kubectl: Kubectl
) -> None:
    """As in a rollout of the chart with another value of shards: the new replica is there before the old one ends."""
    with installed.replica("old-number", shards=3) as old:
        eventually("it has all pipelines", lambda: owners([old]).keys() >= set(PIPELINES), seconds=90)
        with installed.replica("new-number", shards=2) as new:
            waits = "waiting for the end of replicas with another number of shards"
            eventually("the new one waits", lambda: waits in new.log.read_text(), seconds=60)
            apply(kubectl, "sharded-10")
            eventually("the old one acts", lambda: is_reported(kubectl, "sharded-10"), seconds=60)
            assert not new.leads
            old.process.send_signal(signal.SIGTERM)
            assert old.process.wait(timeout=60) == 0
            eventually("the new one has all", lambda: owners([new]).keys() >= set(PIPELINES), seconds=90)
            apply(kubectl, "sharded-11")
            eventually("the new one acts", lambda: is_reported(kubectl, "sharded-11"), seconds=60)
            assert numbers(installed) == {"2"}
