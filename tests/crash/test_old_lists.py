"""A list of runs that is older than the end of a pod, which the operator has watched meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from fakes.gate import Gate
from fakes.manifests import body
from fakes.stage import Stage
from fencepost_operator.desired import labels

T = TypeVar("T")


@dataclass
class OldLists(Gate):
    """Answers each list of runs as the first one, while it is `old`."""

    old: bool = False
    _first: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    async def read(self, name: str, fact: Callable[[], T]) -> T:
        found = await super().read(name, fact)
        if name == "runs":
            self._first.append(found)
        return self._first[0] if name == "runs" and self.old else found


@pytest.mark.parametrize(("old", "generation"), [(True, "2"), (False, "1")])
async def test_the_end_of_a_pod_proves_nothing_with_a_list_that_is_older(old: bool, generation: str) -> None:
    """Injected: the first list, while a second pod of the run's Job lives (seed 336296 of the simulation).

    A list that is not older would show that pod.
    """
    gate = OldLists()
    stage = Stage(gate=gate)
    stage.world.apply(body())
    await stage.running()
    (job,) = stage.world.jobs
    second = stage.world._pod(job) if old else None
    stage.world.kill_driver()
    stage.world._bury(job)
    gate.old, job.pod = old, second
    if second is not None:
        second.driver.frozen = True
    await stage.until(lambda: len(stage.world.created_jobs) == 2)
    assert second is None or second.driver.alive
    assert stage.world.jobs[-1].manifest["metadata"]["annotations"][labels.GENERATION] == generation
