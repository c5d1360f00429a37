"""One task per pipeline: passes one after another, woken by events, and by the clock when none comes.

Whatever wakes a loop, its passes and those of its namespace have budgets, so that no tenant keeps the operator busy.

A loop never ends by an exception, and there is never a second one for the same pipeline, deleted or not: the pipeline's
only writer is the pass that runs.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

from fencepost_operator.api import ObjectKey, Reason
from fencepost_operator.backoff import jittered, retry_delay
from fencepost_operator.errors import PortError
from fencepost_operator.logs import PIPELINE
from fencepost_operator.ports import Clock, LoopMetrics
from fencepost_operator.turns import TENANT, Turns, time_limit

log = logging.getLogger(__name__)


class Reconcile(Protocol):
    """One pass: returns the seconds after which to look again, or None when the pipeline is gone.

    `woken`: `Controller.wake` was called since the last pass began.
    """

    def __call__(self, key: ObjectKey, *, woken: bool) -> Coroutine[None, None, float | None]:
        """Make the pass."""
        ...


PASS_TIMEOUT: Final = 300.0
"""Seconds after which a pass that does not end is cancelled; those in a queue of the operator are not counted."""
STUCK_AFTER: Final = 2 * PASS_TIMEOUT + 120.0
"""Seconds without a new pass after which a loop counts as stuck."""

_QUIET: Final = 0.2
"""Least seconds between two passes: a burst of events is one reason to look."""
_BUSY: Final = 4
"""Passes in progress in the namespace, without glances, from which on that time grows with their number, up to
LONGEST_QUIET.  When many pipelines start at once, one pass then answers more of the events that their pods cause."""
_LONGEST_QUIET: Final = 1.0
_BURST: Final = 20.0
_RATE: Final = 1.0
"""Passes that a pipeline may have in a row, and then per second: a start takes seven, and a pass ten requests."""
_BURST_OF_NAMESPACE: Final = 200.0
_RATE_OF_NAMESPACE: Final = 20.0
"""The same for all pipelines of a namespace, without glances: a core makes about 100 other passes per second."""
_YIELDS: Final = 1.0
"""Seconds that a glance waits at most for passes that are more than one.  A glance brings figures, which may be a
little older; those passes replace drivers, and on a busy core each glance that runs beside one delays it."""
_YIELDS_FOR: Final = 0.25
"""The same before it looks again whether there are any: glances that have waited do not begin all at one moment."""
_AT_ONCE: Final = 0.02
"""The same after a pass that did something: a start takes three to seven of them."""


@dataclass(slots=True)
class _Loop:
    """A pipeline's task and what wakes it."""

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Controller:
    """All loops. `wake` is cheap and may be called from any callback of the event loop's thread.

    `is_glance`: whether the next pass over a pipeline, unless it is woken, is so cheap that it takes nothing of the
    namespace's share.  Otherwise the pipelines at rest of a large namespace would delay the one that has failed.  For
    the same reason it waits a moment for passes that are more than that, of whichever namespace.
    """

    def __init__(
        self,
        reconcile: Reconcile,
        *,
        metrics: LoopMetrics,
        clock: Clock,
        is_glance: Callable[[ObjectKey], bool] = lambda _: False,
        pass_timeout: float = PASS_TIMEOUT,
        quiet: float = _QUIET,
        owns: Callable[[ObjectKey], bool] = lambda _key: True,
    ) -> None:
        self._reconcile = reconcile
        self._is_glance = is_glance
        self._owns = owns
        self._metrics = metrics
        self._clock = clock
        self._pass_timeout = pass_timeout
        self._quiet = quiet
        self._loops: dict[ObjectKey, _Loop] = {}
        self._urgent = Counter[str]()
        """Passes in progress that are more than a glance, by namespace: no tenant's make another one's wait."""
        self._turns = Turns("passes", rate=_RATE, burst=_BURST, patience=math.inf)
        self._shares = Turns("passes", rate=_RATE_OF_NAMESPACE, burst=_BURST_OF_NAMESPACE, patience=math.inf)

    def wake(self, key: ObjectKey) -> None:
        """Reconcile the pipeline soon; starts its loop if it does not run."""
        self.ensure(key)
        if key in self._loops:
            self._loops[key].wake.set()

    def ensure(self, key: ObjectKey) -> None:
        """Begin the pipeline's loop, unless there is one, or another replica has the pipeline's shard."""
        if key not in self._loops and self._owns(key):
            loop = self._loops[key] = _Loop()
            loop.task = asyncio.create_task(self._run(key, loop), name=f"loop of {key}")

    def __len__(self) -> int:
        """Return how many loops there are."""
        return len(self._loops)

    async def close(self) -> None:
        """End all loops where they are; what they began, the next operator finishes."""
        await self.end(lambda _key: True)

    async def end(self, which: Callable[[ObjectKey], bool]) -> Sequence[ObjectKey]:
        """End these pipelines' loops where they are, and return the pipelines."""
        keys = [key for key in self._loops if which(key)]
        tasks = [task for key in keys if (task := self._loops[key].task) is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for key in keys:
            self._loops.pop(key, None)
        return keys

    async def _run(self, key: ObjectKey, loop: _Loop) -> None:
        PIPELINE.set(str(key))
        TENANT.set(key.namespace)
        failures = 0
        while True:
            async with self._turns.turn(str(key)):
                pass
            is_urgent = not await self._comes_to_a_glance(key, loop)
            if is_urgent:
                async with self._shares.turn(key.namespace):
                    pass
            woken = loop.wake.is_set()
            loop.wake.clear()  # whatever happened until now, this pass sees
            self._metrics.heartbeat(key, self._clock.now())
            try:
                with self._counted(key.namespace, is_urgent=is_urgent):
                    wait = await self._pass(key, woken=woken)
            except _PassFailed:
                failures += 1
                wait = jittered(retry_delay(failures))
            else:
                failures = 0
            if wait is None and not loop.wake.is_set():
                self._metrics.forget(key)
                del self._loops[key]
                return
            if failures:
                await asyncio.sleep(min(1.0, wait or 0.0))
            else:
                await asyncio.sleep(min(self._quiet, _AT_ONCE) if wait == 0.0 else self._quiet_in(key.namespace))
            await _woken(loop.wake, within=wait or 0.0)

    def _quiet_in(self, namespace: str) -> float:
        return max(self._quiet, min(self._quiet * self._urgent[namespace] / _BUSY, _LONGEST_QUIET))

    async def _comes_to_a_glance(self, key: ObjectKey, loop: _Loop) -> bool:
        """Return whether the next pass is a glance, after those that are more than one, unless it is woken."""
        last = time.monotonic() + _YIELDS
        while not loop.wake.is_set() and self._is_glance(key):
            if not self._urgent.total() or time.monotonic() >= last:
                return True
            await _woken(loop.wake, within=jittered(_YIELDS_FOR))
        return False

    @contextmanager
    def _counted(self, namespace: str, *, is_urgent: bool) -> Iterator[None]:
        self._urgent[namespace] += is_urgent
        try:
            yield
        finally:
            self._urgent[namespace] -= is_urgent
            if not self._urgent[namespace]:
                del self._urgent[namespace]

    async def _pass(self, key: ObjectKey, *, woken: bool) -> float | None:
        """Make one pass. Raises _PassFailed for whatever goes wrong; our own cancellation passes."""
        started = time.monotonic()
        try:
            async with time_limit(self._pass_timeout):
                return await self._reconcile(key, woken=woken)
        except (KeyboardInterrupt, SystemExit):
            raise
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            failure: BaseException = error  # not ours: a future that another task cancelled
        except BaseException as error:  # noqa: BLE001 - after any error, the pipeline must be reconciled again
            failure = error
        seconds = time.monotonic() - started
        self._metrics.reconciled(key, outcome="error", seconds=seconds)
        if isinstance(failure, PortError):
            log.warning("the pass failed: %s", failure, extra={"reason": Reason.PASS_FAILED, "remedy": failure.remedy})
        else:
            log.error("the pass failed after %.1f s", seconds, exc_info=failure, extra={"reason": Reason.PASS_FAILED})
        raise _PassFailed from failure


class _PassFailed(Exception):
    """A pass ended by an exception, which was logged."""


async def _woken(event: asyncio.Event, *, within: float) -> None:
    """Return when the event is set, or after that many seconds."""
    try:
        async with asyncio.timeout(within):
            await event.wait()
    except TimeoutError:
        return
