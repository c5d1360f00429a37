"""Several operators in one world, which a seed lets move one step at a time.

Between any two steps time passes, drivers commit and other operators act: the facts of one observation are of different
moments.  A write may fail before it takes effect, after it, or take effect long after its caller gave up.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from fakes.gate import Gate
from fakes.ports import ports_of
from fakes.world import RefusedError, World
from fencepost_operator.api import ObjectKey, ReconcileConfig
from fencepost_operator.errors import Conflict, PortError, Unreachable
from fencepost_operator.runtime.passes.reconciler import Reconciler

T = TypeVar("T")

PAUSES: Final = (0.0, 0.0, 0.0, 0.05, 0.2, 1.0)
"""Seconds that may pass between two steps."""
LATEST: Final = 60.0
"""Seconds after which a request without a waiting caller has reached the API server, or never does."""
LATE: Final = frozenset({"start", "stop", "install", "uninstall", "prune", "write_status", "set_finalizer"})
"""Writes to Kubernetes. A late write to the fence is settled by the next read at SERIAL."""
DANGEROUS: Final = frozenset({"start", "take_over", "delete_fence"})
FACTS_OF_A_START: Final = frozenset({"fence", "runs", "cluster", "release", "references"})


@dataclass(slots=True)
class Schedule:
    """Whose turn it is. `late` counts writes that took effect after their caller had given up."""

    world: World
    chance: random.Random
    faults: float = 0.15
    """The share of writes without an answer: some never take effect, some do, and most do late."""
    late: int = 0
    _waiting: list[tuple[datetime, asyncio.Future[None]]] = field(default_factory=list)
    _in_flight: list[tuple[datetime, Callable[[], object]]] = field(default_factory=list)

    async def sleep(self, seconds: float = 0.0) -> None:
        """Wait for a turn, in some seconds at the earliest."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((self.world.now + timedelta(seconds=seconds), turn))
        await turn

    def delay(self, effect: Callable[[], object]) -> None:
        """Let an effect come later."""
        self._in_flight.append((self.world.now + timedelta(seconds=self.chance.uniform(0, LATEST)), effect))

    async def step(self) -> None:
        """Let time pass, then one of those that wait."""
        await self._settle()
        self.world.advance(self.chance.choice(PAUSES))
        self._land()
        ready = [turn for turn in self._waiting if turn[0] <= self.world.now]
        if not ready:
            self.world.advance(0.25)
            return
        chosen = self.chance.choice(ready)
        self._waiting.remove(chosen)
        if not chosen[1].done():
            chosen[1].set_result(None)
        await self._settle()

    async def _settle(self) -> None:
        """Let every task run until it waits for its turn."""
        for _ in range(12):
            await asyncio.sleep(0)

    def _land(self) -> None:
        for landing in [one for one in self._in_flight if one[0] <= self.world.now]:
            self._in_flight.remove(landing)
            with contextlib.suppress(Conflict, KeyError, FileExistsError, RefusedError):
                landing[1]()
                self.late += 1


@dataclass(slots=True)
class Operator:
    """One operator: its gate, and what it did that it must not do."""

    schedule: Schedule
    key: ObjectKey
    config: ReconcileConfig
    broken: list[str] = field(default_factory=list)
    frozen: bool = False
    """Whether its process is stopped, wherever it is."""
    _task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start it; a new one knows nothing but what is recorded."""
        self._task = asyncio.get_running_loop().create_task(self.work(lambda: None))

    async def work(self, may_write: Callable[[], None]) -> None:
        """Make passes; before each write it asks."""
        gate = InterleavedGate(self.schedule, self.broken, sleep=self.sleep, may_write=may_write)
        ports = replace(ports_of(self.schedule.world, gate), may_write=may_write)
        await self._loop(Reconciler(ports=ports, config=self.config).reconcile)

    async def sleep(self, seconds: float = 0.0) -> None:
        """Wait for a turn, which a frozen process does not get."""
        await self.schedule.sleep(seconds)
        while self.frozen:
            await self.schedule.sleep(0.5)

    async def end(self) -> None:
        """Kill it, wherever it is."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def failure(self) -> BaseException | None:
        """Return what ended its loop."""
        return self._task.exception() if self._task is not None and self._task.done() else None

    async def _loop(self, reconcile: Callable[[ObjectKey], Coroutine[Any, Any, float | None]]) -> None:
        while True:
            try:
                again = await reconcile(self.key)
            except PortError:
                again = 1.0
            await self.sleep(1.0 if again is None else again)


class InterleavedGate(Gate):
    """A gate where others move, writes fail and land late, and what an operator may never do is noted."""

    def __init__(
        self,
        schedule: Schedule,
        broken: list[str],
        *,
        sleep: Callable[[], Coroutine[Any, Any, None]],
        may_write: Callable[[], None],
    ) -> None:
        super().__init__()
        self._schedule, self._broken, self._sleep, self._may_write = schedule, broken, sleep, may_write
        self._unseen: set[str] = set()
        self._dangerous: list[str] = []

    async def point(self) -> None:
        """Let others move."""
        await self._sleep()

    async def write(self, name: str, effect: Callable[[], object]) -> None:
        """Ask whether this operator may write, as the client of the API server does, then write at a later moment."""
        self._may_write()
        await super().write(name, effect)

    async def read(self, name: str, fact: Callable[[], T]) -> T:
        """Read, and note what could not be seen in this pass."""
        if name == "pipeline":
            self._unseen.clear()
            self._dangerous.clear()
        try:
            return await super().read(name, fact)
        except PortError:
            self._unseen.add(name)
            raise

    def apply(self, name: str, effect: Callable[[], object]) -> None:
        """Let the write take effect now, never, now without an answer, or late."""
        self._note(name)
        draw = self._schedule.chance.random() / self._schedule.faults if self._schedule.faults else 1.0
        if draw >= 1.0:
            effect()
            return
        if draw < 1 / 6:
            raise Unreachable(f"{name}: no answer, and no effect")
        if draw < 1 / 3 or name not in LATE:
            effect()
            raise Unreachable(f"{name}: no answer")
        self._schedule.delay(effect)
        raise Unreachable(f"{name}: no answer yet")

    def _note(self, name: str) -> None:
        if name in DANGEROUS:
            self._dangerous.append(name)
        if len(self._dangerous) > 1:
            self._broken.append(f"dangerous actions of one pass: {self._dangerous}")
        if name == "start" and self._unseen & FACTS_OF_A_START:
            self._broken.append(f"a start without {self._unseen & FACTS_OF_A_START}")
