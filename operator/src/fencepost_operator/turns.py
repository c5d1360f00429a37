"""Turns at what all tenants share, and time limits that do not count the wait for one.

One gate, `Turns`, is in front of each resource of the operator: connections to the API server, threads of a session,
processes of Helm, passes.  A free turn goes to the tenant with the fewest turns in progress, and among those to the one
that has had none for longest, so that what one tenant asks for never delays another by more than one turn of each.

A queue is not an outage.  So `time_limit` stands still while its task waits in a queue, and a wait that is too long
raises Busy, which names the operator's own queue and no server.

Everything here belongs to the event loop's thread.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, TypeVar

from fencepost_operator.buckets import Bucket
from fencepost_operator.errors import Busy

T = TypeVar("T")

LONGEST_WAIT: Final = 60.0
"""Seconds in one queue. A pass waits in a few of them, and counts as stuck after minutes."""
TENANT: Final[ContextVar[str]] = ContextVar("tenant", default="")
"""The namespace on whose behalf the current task works; '' for the operator itself."""

_REMEMBERED: Final = 10_000
"""Tenants whose last turn is remembered."""
_LIMITS: Final[ContextVar[tuple[_Limit, ...]]] = ContextVar("time limits", default=())


@dataclass(slots=True, eq=False)
class _Limit:
    """One `time_limit` in progress; while `queued` is not 0 it has `left` seconds and stands still."""

    timeout: asyncio.Timeout
    left: float = 0.0
    queued: int = 0
    is_over: bool = False

    def stop(self) -> None:
        when = self.timeout.when()
        if not self.queued and when is not None and self._runs():
            self.left = when - asyncio.get_running_loop().time()
            self.timeout.reschedule(None)
        self.queued += 1

    def resume(self) -> None:
        self.queued -= 1
        if not self.queued and self._runs():
            self.timeout.reschedule(asyncio.get_running_loop().time() + self.left)

    def _runs(self) -> bool:
        return not self.is_over and not self.timeout.expired()


@asynccontextmanager
async def time_limit(seconds: float) -> AsyncIterator[None]:
    """Raise TimeoutError after that many seconds in the body, those in a queue of the operator not counted."""
    async with asyncio.timeout(seconds) as timeout:
        limit = _Limit(timeout)
        token = _LIMITS.set((*_LIMITS.get(), limit))
        try:
            yield
        finally:
            limit.is_over = True
            _LIMITS.reset(token)


@contextmanager
def queued() -> Iterator[None]:
    """Let the time limits around the current task stand still while the body waits in a queue of the operator."""
    limits = _LIMITS.get()
    for limit in limits:
        limit.stop()
    try:
        yield
    finally:
        for limit in limits:
            limit.resume()


async def in_queue(turn: Awaitable[T], what: str, *, patience: float = LONGEST_WAIT) -> T:
    """Wait for a turn, while time limits stand still. Raises Busy after `patience` seconds; `what` is the resource."""
    with queued():
        try:
            async with asyncio.timeout(patience if patience < math.inf else None):
                return await turn
        except TimeoutError:
            raise Busy(
                f"no turn at {what} within {patience:.0f} s: the operator has more to do than it may do at once",
                remedy="wait; if this lasts, spread the pipelines over more namespaces or installations",
            ) from None


@dataclass(slots=True, eq=False)
class _Line:
    """One tenant's requests: `served` is the number of its last turn among all turns."""

    bucket: Bucket
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    in_progress: int = 0
    served: int = 0


class Turns:
    """At most `limit` turns at a time, and `per_tenant` of one tenant.

    Each tenant may also begin `burst` turns at once, and then `rate` a second.  `patience`: seconds after which a wait
    raises Busy; `what` names the resource in its message.
    """

    def __init__(
        self,
        what: str,
        *,
        limit: float = math.inf,
        per_tenant: float = math.inf,
        rate: float = math.inf,
        burst: float = 1.0,
        patience: float = LONGEST_WAIT,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._limit, self._per_tenant, self._rate, self._burst = limit, per_tenant, rate, burst
        self._patience, self._monotonic = patience, monotonic
        self._lines: OrderedDict[str, _Line] = OrderedDict()
        self._waiting: dict[str, _Line] = {}
        self._in_progress = 0
        self._numbers = itertools.count(1)
        self._refill: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """Wait for a turn and keep it for the body. Raises Busy."""
        await self.acquire(tenant)
        try:
            yield
        finally:
            self.release(tenant)

    async def acquire(self, tenant: str) -> None:
        """Wait for a turn, which `release` ends. Raises Busy when it does not come within the patience."""
        line = self._line(tenant)
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.waiting.append(mine)
        self._waiting[tenant] = line
        self._dispatch()
        if mine.done():
            return
        try:
            await in_queue(mine, self._what, patience=self._patience)
        except BaseException:
            self._leave(tenant, line, mine)
            raise

    def release(self, tenant: str) -> None:
        """End a turn of the tenant."""
        self._line(tenant).in_progress -= 1
        self._in_progress -= 1
        self._dispatch()

    def _line(self, tenant: str) -> _Line:
        line = self._lines.get(tenant)
        if line is None:
            line = self._lines[tenant] = _Line(Bucket(self._burst, self._rate, self._monotonic))
        self._lines.move_to_end(tenant)
        if len(self._lines) > _REMEMBERED:
            oldest, idle = next(iter(self._lines.items()))
            if not idle.in_progress and not idle.waiting:
                del self._lines[oldest]
        return line

    def _leave(self, tenant: str, line: _Line, mine: asyncio.Future[None]) -> None:
        """Give up waiting; a turn that came at the same moment is passed on."""
        if mine in line.waiting:
            line.waiting.remove(mine)
            if not line.waiting:
                self._waiting.pop(tenant, None)
        elif mine.done() and not mine.cancelled():
            self.release(tenant)

    def _dispatch(self) -> None:
        """Give the free turns."""
        while self._waiting and self._in_progress < self._limit:
            allowed = {tenant: line for tenant, line in self._waiting.items() if line.in_progress < self._per_tenant}
            ready = [tenant for tenant, line in allowed.items() if line.bucket.tokens >= 1]
            if not ready:
                if allowed:
                    self._dispatch_later(min(line.bucket.wait for line in allowed.values()))
                return
            self._give(min(ready, key=lambda tenant: (allowed[tenant].in_progress, allowed[tenant].served)))

    def _give(self, tenant: str) -> None:
        line = self._waiting[tenant]
        mine = line.waiting.popleft()
        if not line.waiting:
            del self._waiting[tenant]
        if mine.done():  # cancelled, and about to leave
            return
        line.in_progress += 1
        line.bucket.spend()
        line.served = next(self._numbers)
        self._in_progress += 1
        mine.set_result(None)

    def _dispatch_later(self, seconds: float) -> None:
        if self._refill is None:
            self._refill = asyncio.get_running_loop().call_later(seconds, self._refilled)

    def _refilled(self) -> None:
        self._refill = None
        self._dispatch()
