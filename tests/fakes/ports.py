"""The operator's ports on a `World`. Every write passes a gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from fakes.fence_port import FakeFences
from fakes.gate import Gate
from fakes.kafka_port import FakeOffsets
from fakes.objects_ports import FakeObjects, FakePipelines, FakeRewinds, FakeUpgradeTrials
from fakes.revisions_port import FakeRevisions
from fakes.workload_ports import FakePurges, FakeReleases, FakeRuns
from fakes.world import World
from fencepost.fence import FenceRow
from fencepost_operator.api import ObjectKey, Status
from fencepost_operator.observation import Backlog
from fencepost_operator.ports import Ports


@dataclass(slots=True)
class FakeClock:
    world: World

    def now(self) -> datetime:
        return self.world.now

    def monotonic(self) -> float:
        return self.world.now.timestamp()


@dataclass(slots=True)
class FakeMetrics:
    outcomes: list[str] = field(default_factory=list)
    successes: list[datetime] = field(default_factory=list)
    backlogs: dict[ObjectKey, Backlog | None] = field(default_factory=dict)
    restarting: list[tuple[int, int]] = field(default_factory=list)
    silent: tuple[int, int] = (0, 0)

    def reconciled(self, key: ObjectKey, *, outcome: str, seconds: float) -> None:
        del key, seconds
        self.outcomes.append(outcome)

    def observed(self, key: ObjectKey, status: Status, committed: Mapping[str, int], backlog: Backlog | None) -> None:
        del status, committed
        self.backlogs[key] = backlog

    def committed(self, key: ObjectKey, row: FenceRow) -> None:
        pass

    def heartbeat(self, key: ObjectKey, now: datetime) -> None:
        pass

    def succeeded(self, key: ObjectKey, now: datetime) -> None:
        del key
        self.successes.append(now)

    def recorded(self) -> None:
        pass

    def restarts(self, *, in_progress: int, queued: int) -> None:
        self.restarting.append((in_progress, queued))

    def silent_drivers(self, *, silent: int, waiting: int) -> None:
        self.silent = (silent, waiting)

    def forget(self, key: ObjectKey) -> None:
        pass


def ports_of(world: World, gate: Gate | None = None) -> Ports:
    """Return every port on a world."""
    gate = gate or Gate()
    return Ports(
        pipelines=FakePipelines(world, gate),
        releases=FakeReleases(world, gate),
        runs=FakeRuns(world, gate),
        revisions=FakeRevisions(world, gate),
        rewinds=FakeRewinds(world, gate),
        purges=FakePurges(world, gate),
        trials=FakeUpgradeTrials(world, gate),
        objects=FakeObjects(world, gate),
        fences=FakeFences(world, gate),
        offsets=FakeOffsets(world, gate),
        metrics=FakeMetrics(),
        clock=FakeClock(world),
    )
