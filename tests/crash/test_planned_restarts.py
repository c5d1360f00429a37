"""A Secret that many pipelines name is rotated: only so many restart at the same time, and nothing else waits.

Injected: passes of all pipelines that come between each other at every call, a new leader, an image that cannot be
pulled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fakes.gate import Gate
from fakes.manifests import body
from fakes.ports import FakeMetrics, ports_of
from fakes.stage import POLICY
from fakes.stepping_clock import SteppingClock
from fakes.world import World
from fencepost_operator.api import ObjectKey, Pipeline, ReconcileConfig, State, read_pipeline
from fencepost_operator.observation import PodIssue
from fencepost_operator.runtime.passes.reconciler import Reconciler
from present import present

LIMITED = replace(POLICY, max_concurrent_restarts=2)
SECRET = ("shop", "Secret/shared")
SOURCE = {"kafka": {"bootstrapServers": "kafka:9092", "topics": ["orders"], "propertiesFrom": {"secretName": "shared"}}}


class Interleaving(Gate):
    """Lets the other passes move at each call."""

    async def point(self) -> None:
        await asyncio.sleep(0)


@dataclass(slots=True)
class Fleet:
    """Some pipelines that name the same Secret, and their operator. `most` is how many restarted at once."""

    keys: Sequence[ObjectKey]
    config: ReconcileConfig = LIMITED
    world: World = field(default_factory=World)
    most: int = 0
    clock: SteppingClock = field(init=False)
    """The operator's."""
    _operator: Reconciler = field(init=False)

    def __post_init__(self) -> None:
        self.clock = SteppingClock(self.world)
        self.start_operator()
        for number, key in enumerate(self.keys):
            self.world.references[key.namespace, SECRET[1]] = "1"
            self.world.apply(body(key, uid=f"uid-{number}", source=SOURCE))

    def start_operator(self) -> None:
        """Let another replica lead, which knows what the statuses say."""
        ports = replace(ports_of(self.world, Interleaving()), clock=self.clock)
        self._operator = Reconciler(ports=ports, config=self.config)
        restarting = {
            key: since
            for key in self.keys
            if key in self.world.objects and (since := self.pipeline(key).status.planned_restart_since)
        }
        self._operator.permits.begin(restarting, self.world.now, self.world.now.timestamp())

    def pipeline(self, key: ObjectKey) -> Pipeline:
        return read_pipeline(self.world.objects[key])

    def ready(self, key: ObjectKey) -> tuple[str, str]:
        return next((c.status, c.reason) for c in self.pipeline(key).status.conditions if c.type == "Ready")

    def epochs(self) -> list[int]:
        return [self.pipeline(key).status.epoch or 0 for key in self.keys]

    def restarting(self) -> int:
        """Return how many streamed before and do not now, for a restart by plan."""
        return sum(self.pipeline(key).status.planned_restart_since is not None for key in self.keys)

    def running(self) -> bool:
        return all(self.pipeline(key).status.state is State.RUNNING for key in self.keys)

    async def until(self, reached: Callable[[], Any], *, seconds: int = 600) -> None:
        """Make passes over all pipelines side by side until something holds."""
        for _ in range(seconds):
            if reached():
                return
            await asyncio.gather(*(self._operator.reconcile(key) for key in self.keys))
            self.most = max(self.most, self.restarting())
            self.world.advance(1)
        raise AssertionError([self.pipeline(key).status.message for key in self.keys])

    @property
    def metrics(self) -> FakeMetrics:
        found = self._operator.ports.metrics
        assert isinstance(found, FakeMetrics)
        return found


async def fleet(count: int, config: ReconcileConfig = LIMITED) -> Fleet:
    found = Fleet([ObjectKey("shop", f"orders-{number}") for number in range(count)], config)
    await found.until(found.running)
    assert found.most == 0, "first starts need no permit"
    return found


async def test_a_rotated_secret_restarts_only_so_many_at_the_same_time_and_all_in_the_end() -> None:
    many = await fleet(6)
    many.world.references[SECRET] = "2"
    await many.until(lambda: many.restarting() == 2)
    queued = [key for key in many.keys if many.ready(key)[1] == "RestartQueued"]
    assert len(queued) == 4
    assert {many.ready(key)[0] for key in queued} == {"True"}, "their specs are the same"
    assert all(many.pipeline(key).status.state is State.RUNNING for key in queued)
    assert (2, 4) in many.metrics.restarting
    await many.until(lambda: min(many.epochs()) == 2 and many.running())
    assert many.most == 2
    assert many.epochs() == [2] * 6
    assert many.metrics.restarting[-1] == (0, 0)
    assert [reason for reason, _ in many.world.events].count("RestartQueued") >= 4


async def test_a_new_spec_of_a_pipeline_that_waits_is_not_ready() -> None:
    many = await fleet(4)
    many.world.references[SECRET] = "2"
    await many.until(lambda: many.restarting() == 2)
    queued = next(key for key in many.keys if many.ready(key)[1] == "RestartQueued")
    many.world.change(queued, job={"image": "registry.example/job:2", "entrypoint": "a:b"})
    await many.until(lambda: many.ready(queued) == ("False", "RestartQueued"), seconds=3)
    await many.until(lambda: min(many.epochs()) == 2 and many.running())
    assert many.most == 2


async def test_a_failed_a_resumed_and_a_broken_pipeline_do_not_wait() -> None:
    """The fleet's permits are all in use, by pipelines that do not come up."""
    many = await fleet(5)
    failed, resumed, fixed = many.keys[2:]
    many.world.change(resumed, suspend=True)
    await many.until(lambda: many.ready(resumed)[1] == "Suspended")
    many.world.broken_images["broken"] = 51
    many.world.change(fixed, job={"image": "broken", "entrypoint": "a:b"})
    await many.until(lambda: many.ready(fixed)[1] == "BadSpec")
    await many.until(lambda: many.restarting() == 1, seconds=3)
    many.world.issue = PodIssue(pod="p", reason="Unschedulable", message="0/3 nodes are available")
    for key in many.keys[:2]:
        many.world.change(key, job={"image": "registry.example/job:2", "entrypoint": "a:b"})
    await many.until(lambda: any(many.ready(key)[1] == "RestartQueued" for key in many.keys[:2]), seconds=30)
    many.world.issue = None
    before = many.epochs()
    many.world.change(fixed, job={"image": "registry.example/job:3", "entrypoint": "a:b"})
    many.world.change(resumed, suspend=False)
    job = next(job for job in many.world.jobs if job.key == failed)
    present(job.pod).driver.end(many.world.now, 137)
    await many.until(lambda: all(now > then for now, then in zip(many.epochs()[2:], before[2:], strict=True)))
    await many.until(many.running)


async def test_a_pipeline_that_does_not_come_up_holds_its_permit_for_a_bounded_time() -> None:
    many = await fleet(3, replace(LIMITED, max_concurrent_restarts=1, restart_timeout=60.0))
    many.world.broken_images["broken"] = 51
    stuck = many.keys[0]
    many.world.change(stuck, job={"image": "broken", "entrypoint": "a:b"})
    await many.until(lambda: many.ready(stuck)[1] == "BadSpec")
    began = present(many.pipeline(stuck).status.planned_restart_since)
    many.world.references[SECRET] = "2"
    await many.until(lambda: many.restarting() == 2)
    assert (many.world.now - began).total_seconds() >= 60
    await many.until(lambda: many.epochs()[1:] == [2, 2])


async def test_a_new_leader_knows_who_restarts() -> None:
    many = await fleet(4)
    many.world.references[SECRET] = "2"
    await many.until(lambda: many.restarting() == 2)
    many.start_operator()
    await many.until(lambda: min(many.epochs()) == 2 and many.running())
    assert many.most == 2


async def test_without_a_limit_all_restart_at_once() -> None:
    many = await fleet(4, replace(LIMITED, max_concurrent_restarts=0))
    many.world.references[SECRET] = "2"
    await many.until(lambda: many.restarting() == 4, seconds=5)
