"""Replicas that divide pipelines among them, on Leases in memory and one virtual clock."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fakes.lease import START, FakeLeases, FakeShardLeases
from fencepost_operator.api import ObjectKey
from fencepost_operator.errors import Unreachable
from fencepost_operator.ports import LeaseRecord
from fencepost_operator.runtime.replicas.shards import Shards, shard_of

PIPELINES = tuple(ObjectKey(f"team-{number % 7}", f"pipeline-{number}") for number in range(40))
_SETTLED = 12
"""Turns of the event loop after which all that an answer leads to is done."""


@dataclass(slots=True)
class Timeline:
    """Seconds that pass only when the test lets them; `at_each_step` is called after each event."""

    now: float = 0.0
    at_each_step: Callable[[], None] = lambda: None
    _waits: list[tuple[float, int, asyncio.Future[None]]] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    async def sleep(self, seconds: float) -> None:
        """Wait until that time has passed."""
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waits, (self.now + seconds, next(self._numbers), mine))
        await mine

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, event by event."""
        end = self.now + seconds
        await _settle()
        while self._waits and self._waits[0][0] <= end:
            self.now, _, waiting = heapq.heappop(self._waits)
            if not waiting.done():
                waiting.set_result(None)
                await _settle()
                self.at_each_step()
        self.now = end


async def _settle() -> None:
    for _ in range(_SETTLED):
        await asyncio.sleep(0)


@dataclass(slots=True, kw_only=True)
class Member:
    """One replica. With `chance`, requests take up to two seconds, and some answers are lost."""

    timeline: Timeline
    leases: FakeShardLeases
    name: str
    count: int
    chance: random.Random | None = None
    is_frozen: bool = False
    errors: list[BaseException] = field(default_factory=list)
    """Why its process ended."""
    log: list[str] = field(default_factory=list)
    """What it did for its shards."""
    can_list: bool = True
    """Whether it learns which loops are missing."""
    shards: Shards = field(init=False)
    _task: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self.shards = Shards(
            self, count=self.count, holder=self.name, clock=self, lost=self._lost, monotonic=self._now, sleep=self.sleep
        )

    @property
    def has(self) -> set[int]:
        """The shards that it may write to."""
        return {shard for shard in range(self.count) if self.shards.is_held(shard)}

    def may_write(self, key: ObjectKey) -> bool:
        """Return whether a pass over the pipeline would write now."""
        return self.shards.owns(key) and self.shards.is_held(shard_of(key, self.count))

    def start(self) -> Member:
        """Start its process."""
        self._task = asyncio.get_running_loop().create_task(self.shards.serve(self))
        return self

    def kill(self) -> None:
        """End its process, as SIGKILL does: nothing is released."""
        for task in (self._task, *self.shards._kept.values()):
            if task is not None:
                task.cancel()
        self.shards._kept.clear()

    async def stop(self) -> None:
        """End its process in order."""
        if self._task is not None:
            self._task.cancel()
        await self.shards.close()

    async def sleep(self, seconds: float) -> None:
        """Wait, and for longer while the process is frozen."""
        await self.timeline.sleep(seconds)
        while self.is_frozen:
            await self.timeline.sleep(0.5)

    def now(self) -> datetime:
        """Return wall time."""
        return START + timedelta(seconds=self.timeline.now)

    # Its work

    async def prepare(self, shards: Iterable[int], shard: int) -> None:
        """Note what it learns."""
        self.log.append(f"prepare {shard} of {sorted(shards)}")

    async def begin(self) -> bool:
        """Note that its loops begin."""
        self.log.append("begin")
        return self.can_list

    async def end(self, shards: Iterable[int], shard: int) -> None:
        """Note that loops end, while the Lease is still its own."""
        assert self.shards.is_held(shard)
        assert not any(self.shards.owns(key) for key in PIPELINES if shard_of(key, self.count) == shard)
        self.log.append(f"end {shard}, keeps {sorted(shards)}")

    # The Leases as it reaches them

    async def all(self) -> Mapping[int, LeaseRecord]:
        """List them."""
        await self._travel()
        found = await self.leases.all()
        await self._travel()
        return found

    def of(self, shard: int) -> _Reached:
        """Return the Lease of one shard."""
        return _Reached(self, self.leases.of(shard))

    async def _travel(self) -> None:
        if self.chance is not None or self.is_frozen:
            await self.sleep(self.chance.random() ** 3 * 2 if self.chance is not None else 0.0)

    def _now(self) -> float:
        return self.timeline.now

    def _lost(self, error: BaseException) -> None:
        self.errors.append(error)
        self.kill()


@dataclass(frozen=True, slots=True)
class _Reached:
    """One Lease as a replica reaches it."""

    member: Member
    lease: FakeLeases

    async def read(self) -> LeaseRecord | None:
        await self.member._travel()
        found = await self.lease.read()
        await self.member._travel()
        return found

    async def write(self, record: LeaseRecord) -> LeaseRecord:
        await self.member._travel()
        written = await self.lease.write(record)
        await self.member._travel()
        if self.member.chance is not None and self.member.chance.random() < 0.02:
            raise Unreachable("no answer to a write")
        return written
