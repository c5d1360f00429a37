"""Leases in memory, and replicas that share them: each with a clock of its own that tests stop and set."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from fakes.interleaving import Operator
from fakes.ports import FakeClock
from fencepost_operator.errors import Conflict, Unreachable
from fencepost_operator.logs import PIPELINE
from fencepost_operator.ports import LeaseRecord
from fencepost_operator.runtime.replicas.leadership import RENEWAL, Leadership
from fencepost_operator.runtime.replicas.shards import Shards, shard_of

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class FakeLeases:
    """The API server's one Lease.

    `down`: no answer; `refuses`: no answer to a write; `loses_answers`: a write takes effect and is not answered.
    """

    record: LeaseRecord | None = None
    down: bool = False
    refuses: bool = False
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
        if self.down or self.refuses:
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
class FakeShardLeases:
    """The API server's Leases of all shards."""

    leases: dict[int, FakeLeases] = field(default_factory=dict)
    before_list: Callable[[], None] = lambda: None

    async def all(self) -> Mapping[int, LeaseRecord]:
        """Return those that exist."""
        self.before_list()
        found = {shard: await each.read() for shard, each in self.leases.items()}
        return {shard: record for shard, record in found.items() if record is not None}

    def of(self, shard: int) -> FakeLeases:
        """Return the Lease of one shard."""
        return self.leases.setdefault(shard, FakeLeases())

    @property
    def writes(self) -> list[LeaseRecord]:
        """All that was written, shard by shard."""
        return [record for each in self.leases.values() for record in each.writes]


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

    async def acquire(self) -> None:
        """Look at the Lease as `Shards` does, until it is this replica's."""
        while True:
            try:
                found = await self.leases.read()
                if (found is None or self.leadership.is_free(found)) and await self.leadership.take(found):
                    return
            except Unreachable:
                pass
            await self.sleep(min(RENEWAL, self.leadership.free_in or RENEWAL))

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
    """An operator that acts while it holds the pipeline's shard; its container starts again when it has lost one."""

    leases: FakeShardLeases
    name: str
    count: int = 1
    """Of all shards, as this operator divides pipelines."""
    shards: Shards | None = None
    _work: asyncio.Task[None] | None = None

    @property
    def leads(self) -> bool:
        """Whether it may write to the pipeline now."""
        return self.shards is not None and self.shards.is_held(shard_of(self.key, self.count))

    def begin(self) -> None:
        """Start its process."""
        self._task = asyncio.get_running_loop().create_task(self._live())

    def failure(self) -> BaseException | None:
        """Return what ended its loop."""
        ended = [task for task in (self._task, self._work) if task is not None and task.done() and not task.cancelled()]
        return next((error for task in ended if (error := task.exception()) is not None), None)

    async def begin_loops(self) -> None:
        """Make passes, if this operator has the pipeline's shard."""
        if self.shards is not None and self.shards.owns(self.key) and self._work is None:
            self._work = asyncio.get_running_loop().create_task(self._passes(self.shards))

    async def end_loops(self, shard: int) -> None:
        """Make no more passes, if this was the pipeline's shard."""
        if shard == shard_of(self.key, self.count):
            await _ended(self._work)
            self._work = None

    def _seconds(self) -> float:
        return self.schedule.world.now.timestamp()

    async def _passes(self, shards: Shards) -> None:
        PIPELINE.set(str(self.key))
        await self.work(shards.require)

    async def _live(self) -> None:
        while True:
            is_lost = asyncio.Event()
            self.shards = Shards(
                _SlowLeases(self),
                count=self.count,
                holder=self.name,
                clock=FakeClock(self.schedule.world),
                lost=functools.partial(_note, is_lost),
                monotonic=self._seconds,
                sleep=self.sleep,
            )
            serving = asyncio.get_running_loop().create_task(self.shards.serve(_Work(self)))
            try:
                await is_lost.wait()
            finally:
                await _ended(serving, self._work, *self.shards._kept.values())
                self._work = None


def _note(event: asyncio.Event, _error: BaseException) -> None:
    event.set()


async def _ended(*tasks: asyncio.Task[None] | None) -> None:
    """Kill what a process does, wherever it is; nothing is released."""
    begun = [task for task in tasks if task is not None]
    for task in begun:
        task.cancel()
    await asyncio.gather(*begun, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _Work:
    """The loop of one operator as the work of its shards."""

    operator: ElectedOperator

    async def prepare(self, shards: Iterable[int], shard: int) -> None:
        del shards, shard

    async def begin(self) -> bool:
        await self.operator.begin_loops()
        return True

    async def end(self, shards: Iterable[int], shard: int) -> None:
        del shards
        await self.operator.end_loops(shard)


@dataclass(frozen=True, slots=True)
class _SlowLeases:
    """The Leases as one operator reaches them: time passes before and after each effect, and answers are lost."""

    operator: ElectedOperator

    async def all(self) -> Mapping[int, LeaseRecord]:
        await self.operator.sleep()
        found = await self.operator.leases.all()
        await self.operator.sleep()
        return found

    def of(self, shard: int) -> _Slow:
        return _Slow(self.operator, shard)


@dataclass(frozen=True, slots=True)
class _Slow:
    """One of them."""

    operator: ElectedOperator
    shard: int

    async def read(self) -> LeaseRecord | None:
        await self.operator.sleep()
        found = await self.operator.leases.of(self.shard).read()
        await self.operator.sleep()
        return found

    async def write(self, record: LeaseRecord) -> LeaseRecord:
        schedule = self.operator.schedule
        await self.operator.sleep()
        draw = schedule.chance.random()
        if draw < schedule.faults / 2:
            raise Unreachable("the lease: no answer, and no effect")
        written = await self.operator.leases.of(self.shard).write(record)
        await self.operator.sleep()
        if draw < schedule.faults:
            raise Unreachable("the lease: no answer")
        return written
