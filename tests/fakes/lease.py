"""A Lease in memory, and replicas that share it: each with a clock of its own that tests stop and set."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from fakes.interleaving import Operator
from fakes.ports import FakeClock
from fencepost_operator.errors import Conflict, Unreachable
from fencepost_operator.ports import LeaseRecord
from fencepost_operator.runtime.leadership import Leadership, LeaseLost

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class FakeLeases:
    """The API server's one Lease. `down`: no answer; `loses_answers`: a write takes effect and is not answered."""

    record: LeaseRecord | None = None
    down: bool = False
    loses_answers: bool = False
    writes: list[LeaseRecord] = field(default_factory=list)
    before_write: Callable[[], None] = lambda: None
    _versions: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    async def read(self) -> LeaseRecord | None:
        """Return the Lease."""
        if self.down:
            raise Unreachable("no answer")
        return self.record

    async def write(self, record: LeaseRecord) -> LeaseRecord:
        """Write it on condition of the version."""
        if self.down:
            raise Unreachable("no answer")
        self.before_write()
        if record.resource_version != (self.record.resource_version if self.record is not None else ""):
            raise Conflict("another replica was faster")
        version = next(self._versions)
        self.record = replace(record, uid=record.uid or f"lease-{version}", resource_version=str(version))
        self.writes.append(self.record)
        if self.loses_answers:
            raise Unreachable("no answer to a write")
        return self.record


@dataclass(slots=True)
class Replica:
    """One replica's leadership by a clock that only the test moves; sleeping moves this clock only."""

    leases: FakeLeases
    holder: str
    seconds: float = 0.0
    wall: datetime = START
    slept: Callable[[], None] = lambda: None
    leadership: Leadership = field(init=False)

    def __post_init__(self) -> None:
        self.leadership = Leadership(
            self.leases, holder=self.holder, clock=self, monotonic=lambda: self.seconds, sleep=self.sleep
        )

    def now(self) -> datetime:
        """Return wall time."""
        return self.wall

    def pass_time(self, seconds: float) -> None:
        """Let time pass by both clocks."""
        self.seconds += seconds
        self.wall += timedelta(seconds=seconds)

    async def sleep(self, seconds: float) -> None:
        """Let that time pass, then what the test wants to happen."""
        self.pass_time(seconds)
        self.slept()


@dataclass(slots=True, kw_only=True)
class ElectedOperator(Operator):
    """An operator that acts while it holds the lease; its container starts again when it has lost it."""

    leases: FakeLeases
    name: str
    leadership: Leadership | None = None
    _work: asyncio.Task[None] | None = None

    @property
    def leads(self) -> bool:
        """Whether it may write now."""
        return self.leadership is not None and self.leadership.is_held

    def begin(self) -> None:
        """Start its process."""
        self._task = asyncio.get_running_loop().create_task(self._live())

    def failure(self) -> BaseException | None:
        """Return what ended its loop."""
        ended = [task for task in (self._task, self._work) if task is not None and task.done() and not task.cancelled()]
        return next((error for task in ended if (error := task.exception()) is not None), None)

    def _seconds(self) -> float:
        return self.schedule.world.now.timestamp()

    async def _live(self) -> None:
        while True:
            leadership = self.leadership = Leadership(
                _Slow(self),
                holder=self.name,
                clock=FakeClock(self.schedule.world),
                monotonic=self._seconds,
                sleep=self.sleep,
            )
            await leadership.acquire()
            self._work = asyncio.get_running_loop().create_task(self.work(leadership.require))
            try:
                await leadership.keep()
            except LeaseLost:
                continue
            finally:
                self._work.cancel()
                await asyncio.gather(self._work, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _Slow:
    """The Lease as one operator reaches it: time passes before and after each effect, and answers are lost."""

    operator: ElectedOperator

    async def read(self) -> LeaseRecord | None:
        await self.operator.sleep()
        found = await self.operator.leases.read()
        await self.operator.sleep()
        return found

    async def write(self, record: LeaseRecord) -> LeaseRecord:
        schedule = self.operator.schedule
        await self.operator.sleep()
        draw = schedule.chance.random()
        if draw < schedule.faults / 2:
            raise Unreachable("the lease: no answer, and no effect")
        written = await self.operator.leases.write(record)
        await self.operator.sleep()
        if draw < schedule.faults:
            raise Unreachable("the lease: no answer")
        return written
