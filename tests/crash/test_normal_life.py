"""Four hours of normal life without a page: drains, deploys, an idle topic, a suspend, scales and short outages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from fakes.gate import Gate
from fakes.manifests import KEY, body
from fakes.paging import Paging
from fakes.stage import POLICY, Stage
from fakes.world import World
from fencepost.contract import ExitCode
from fencepost_operator.api import State
from fencepost_operator.errors import Unreachable
from present import present

HOURS = timedelta(hours=4)
MINUTE = 60.0
RARELY = replace(POLICY, resync_interval=15.0, refresh_interval=15.0)
"""Passes are further apart than usual, so that four hours take seconds."""
SHORT = POLICY.page_not_ready_after / 2
"""Seconds of an outage that ends before a user has to know."""


@dataclass(slots=True)
class Life:
    """A pipeline and its operator."""

    stage: Stage
    began_at: datetime

    @classmethod
    def begins(cls) -> Life:
        world, gate = World(), Gate()
        world.apply(body())
        return cls(Stage(world, gate, config=RARELY, paging=Paging(world, gate)), world.now)

    @property
    def world(self) -> World:
        return self.stage.world

    @property
    def heard(self) -> list[str]:
        return [each.key for each in present(self.stage.paging).heard]

    async def until(self, reached: Callable[[], bool], *, minutes: float = 10.0) -> None:
        """Let the operator work until something holds."""
        end = self.world.now + timedelta(minutes=minutes)
        while not reached():
            assert self.world.now < end, f"not reached in {minutes} min: {self.stage.pipeline.status}"
            again = await self.stage.turn()
            if KEY in self.world.objects and (pages := self.stage.pipeline.status.pages):
                raise AssertionError(f"an incident is open: {pages}")
            self.world.advance(again or 0.1)
        self.stage.check()

    async def passes(self, minutes: float) -> None:
        """Let time pass."""
        end = self.world.now + timedelta(minutes=minutes)
        await self.until(lambda: self.world.now >= end, minutes=minutes + 1)

    async def runs(self, minutes: float) -> None:
        """Wait until the pipeline runs, and let it run for some time."""
        await self.until(self.stage.is_running)
        await self.passes(minutes)
        assert self.stage.is_running()
        self.world.growth.clear()  # no record is that old

    @asynccontextmanager
    async def outage(self, attribute: str) -> AsyncIterator[None]:
        """Have Kafka or Cassandra silent for a short time; the driver gives up, and no other one can start."""
        setattr(self.world, attribute, True)
        self.world.kill_driver(code=ExitCode.DEPENDENCY_DOWN)
        await self.passes(SHORT / MINUTE)
        yield
        setattr(self.world, attribute, False)
        await self.runs(8)


async def drain(life: Life) -> None:
    """Evict the driver and its cluster; the node takes pods again two minutes later."""
    world = life.world
    world.drain(KEY, {"master", "worker"})
    world.delete_pod(world.newest_pod())
    await life.passes(2)
    world.uncordon(KEY)
    await life.runs(8)


async def deploy(life: Life, release: int) -> None:
    """Change the image."""
    life.world.change(KEY, job={"image": f"registry.example/job:{release}", "entrypoint": "orders.job:transform"})
    await life.runs(8)


async def suspend(life: Life, minutes: float) -> None:
    """Suspend the pipeline, and resume it."""
    life.world.change(KEY, suspend=True)
    await life.until(lambda: life.stage.pipeline.status.state is State.SUSPENDED)
    await life.passes(minutes)
    life.world.change(KEY, suspend=False)
    await life.runs(8)


async def idle(life: Life, minutes: float) -> None:
    """Let no record come."""
    rate, life.world.rate = life.world.rate, 0.0
    await life.passes(minutes)
    life.world.rate = rate
    await life.runs(2)


async def lose_api_server(life: Life) -> None:
    """Have the API server refuse each write for two minutes."""

    def refuse(_: int, name: str) -> None:
        raise Unreachable(f"{name}: no answer")

    life.stage.gate.before = refuse
    await life.passes(2)
    life.stage.gate.before = lambda _number, _name: None
    await life.runs(5)


async def test_four_hours_of_normal_life_send_no_page() -> None:
    life = Life.begins()
    await life.runs(10)
    for _ in range(3):
        await drain(life)
    for release in (2, 3, 4):
        await deploy(life, release)
    await idle(life, 60)
    await suspend(life, 75)
    for workers in (2, 1):
        life.world.change(KEY, cluster={"workers": workers})
        await life.runs(8)
    for dependency in ("kafka_down", "cassandra_down"):
        async with life.outage(dependency):
            assert not life.heard
    await lose_api_server(life)
    life.stage._operator = None  # a new one, which knows what is recorded
    for _ in range(2):
        life.world.kill_driver()
        await life.runs(16)
    assert life.world.now - life.began_at >= HOURS
    assert not life.heard
    life.world.kill_driver(code=ExitCode.BAD_SPEC)
    await life.stage.until(lambda: bool(life.heard))
    assert len(life.heard) == 1, "the receiver hears what needs an action"
