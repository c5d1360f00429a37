"""Pipelines at rest of which no event comes any more: whatever happens is found, and nothing is done on old facts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

import pytest

from fakes.gate import Gate
from fakes.manifests import KEY
from fakes.stage import POLICY, Stage
from fakes.world import World
from fencepost_operator.api import Status
from fencepost_operator.decision.rest import apart_from_figures

T = TypeVar("T")

ASKED: Final = frozenset({"pipeline", "release", "cluster", "runs", "rewinds"})
"""What a pass asks Kubernetes for before it does anything."""
CONFIG: Final = replace(POLICY, look_interval=100.0)


class Fresh(Gate):
    """Notes what a pass has asked for, and refuses what it does without."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.asked: set[str] = set()
        self.glances = 0

    def begin(self) -> None:
        """Begin a pass."""
        self.asked.clear()

    async def read(self, name: str, fact: Callable[[], T]) -> T:
        self.asked.add(name)
        return await super().read(name, fact)

    async def write(self, name: str, effect: Callable[[], object]) -> None:
        has_asked = self.asked >= ASKED
        assert has_asked or name == "write_status", f"{name} without a look at Kubernetes: {self.asked}"
        before = self._status()
        await super().write(name, effect)
        if not has_asked:
            self.glances += 1
            assert apart_from_figures(self._status()) == apart_from_figures(before)

    def _status(self) -> Status:
        stage = Stage(self.world)
        return stage.pipeline.status


def broken_image(world: World) -> None:
    world.broken_images["registry.example/job:2"] = 1
    world.change(KEY, job={"image": "registry.example/job:2", "entrypoint": "orders.job:transform"})


HAPPENS: Final[dict[str, Callable[[World], object]]] = {
    "the driver is killed": lambda world: world.kill_driver(),
    "the driver hangs": lambda world: setattr(world.newest_pod().driver, "frozen", True),
    "its pod is deleted": lambda world: world.delete_pod(world.newest_pod()),
    "its Job is deleted": lambda world: world.delete_job(KEY, world.created_jobs[-1], cascade="background"),
    "the cluster's node is lost": lambda world: world.lose_node(KEY, "worker"),
    "the image is changed": lambda world: world.change(
        KEY, job={"image": "registry.example/job:2", "entrypoint": "orders.job:transform"}
    ),
    "the image is broken": broken_image,
}


@pytest.mark.parametrize("what", HAPPENS)
async def test_what_happens_without_an_event_is_found_and_decided_on_what_is_there_then(what: str) -> None:
    """Injected: no watch shows anything from the moment on in which the pipeline has come to rest."""
    world = World()
    gate = Fresh(world)
    stage = await Stage.streaming(Stage(world, gate, config=CONFIG))
    await stage.run(60)
    stage.woken, stage.begins = False, gate.begin
    await stage.run(20)
    assert gate.glances, "the pipeline is at rest"
    HAPPENS[what](world)
    await stage.until(lambda: len(world.created_jobs) > 1, seconds=2 * CONFIG.look_interval)
