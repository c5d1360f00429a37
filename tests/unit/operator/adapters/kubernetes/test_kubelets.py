"""Which nodes are silent, by looks at the kubelets' Leases."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from fencepost_operator.adapters.kubernetes.kubelets import NAMESPACE, Kubelets
from fencepost_operator.backoff import JITTER


@dataclass
class Leases:
    """The API server's Leases, and a clock."""

    renewed: dict[str, str] = field(default_factory=dict)
    time: float = 0.0
    asked: int = 0

    def monotonic(self) -> float:
        return self.time

    async def get(self, _resource: object, *, name: str, namespace: str) -> Any:
        self.asked += 1
        assert namespace == NAMESPACE
        return {"spec": {"renewTime": self.renewed[name]}} if name in self.renewed else None


def kubelets(**renewed: str) -> tuple[Kubelets, Leases]:
    leases = Leases(renewed=renewed)
    return Kubelets(api=leases, monotonic=leases.monotonic), leases  # type: ignore[arg-type]


async def looks(found: Kubelets, leases: Leases, *seconds: float) -> list[frozenset[str]]:
    answers = []
    for moment in seconds:
        leases.time = moment
        answers.append(await found.silent(["a", "b"]))
    return answers


async def test_a_lease_that_stays_the_same_for_15_s_is_of_a_silent_node() -> None:
    found, leases = kubelets(a="10:00:00", b="10:00:01")
    assert await looks(found, leases, 0, 5, 10) == [frozenset()] * 3
    leases.renewed["b"] = "10:00:11"
    assert await looks(found, leases, 15) == [frozenset({"a"})]
    leases.renewed["a"] = "10:00:16"
    assert await looks(found, leases, 20) == [frozenset()]


async def test_one_old_lease_says_nothing_for_clocks_differ() -> None:
    found, leases = kubelets(a="1999-01-01", b="2999-01-01")
    assert await looks(found, leases, 0) == [frozenset()]


async def test_after_a_pause_the_time_begins_again() -> None:
    """In an outage of the API server no kubelet can renew its Lease, and no client can read it."""
    found, leases = kubelets(a="10:00:00", b="10:00:00")
    assert await looks(found, leases, 0, 5, 60, 70) == [frozenset()] * 4
    assert await looks(found, leases, 75) == [frozenset({"a", "b"})]


async def test_a_node_without_a_lease_is_not_silent() -> None:
    found, leases = kubelets()
    assert await looks(found, leases, 0, 10, 20, 30) == [frozenset()] * 4


async def test_many_pipelines_ask_the_api_server_once() -> None:
    found, leases = kubelets(a="10:00:00", b="10:00:00")
    await looks(found, leases, 0, 0.5, 1)
    assert leases.asked == 2


async def test_many_nodes_are_looked_at_less_often_and_still_found_silent() -> None:
    names = [f"node-{number}" for number in range(100)]
    found, leases = kubelets(**dict.fromkeys(names, "10:00:00"))
    answers = []
    for leases.time in range(20):
        answers.append(await found.silent(names))
    assert leases.asked == 4 * len(names), "at 0, 5, 10 and 15 s"
    assert answers[14] == frozenset()
    assert answers[15] == frozenset(names)


@pytest.mark.parametrize("pause", [1.0, 3.0, 4.0, 5.0, 6.0, 9.0])
async def test_of_many_nodes_one_is_found_silent_by_a_single_pipeline_whatever_its_pauses(pause: float) -> None:
    """Injected: a kubelet that stops. Pauses alternate between the shortest and the longest that their jitter gives."""
    names = [f"node-{number}" for number in range(200)]
    found, leases = kubelets(**dict.fromkeys(names, "10:00:00"))
    answers = []
    while leases.time < 45:
        answers.append(await found.silent(names))
        leases.time += pause * (1 - JITTER if len(answers) % 2 else 1 + JITTER)
    assert answers[-1] == frozenset(names)


async def test_a_node_that_was_not_looked_at_for_long_is_forgotten() -> None:
    found, leases = kubelets(a="10:00:00", b="10:00:00", c="10:00:00")
    await looks(found, leases, 0)
    leases.time = 60
    await found.silent(["c"])
    assert set(found._beats) == {"c"}
