"""Which replica acts: the one that holds the Lease, for as long as it can be sure of that by its own clock.

Each renewal is on condition of the resourceVersion, so it succeeds only if no other replica has written.  The holder
stops writing VALIDITY seconds after it began the last renewal that succeeded; a successor takes over DURATION seconds
after it saw that renewal.  The difference is left for requests that are on their way.  Both are measured by clocks that
cannot be set: wall time is written to the Lease for people only.

A Lease that is not there says nothing: it may have been deleted while its holder acts.  Whoever finds none creates one
that is held by UNKNOWN, and all wait until that has expired.

Renewals are made by the event loop that does the work: a loop that is blocked, or a process that is frozen, stops
renewing and finds itself without a lease before its next write.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, TypeVar

from fencepost_operator.api import Reason
from fencepost_operator.backoff import jittered
from fencepost_operator.errors import Conflict, FencepostError, NotLeading, PortError
from fencepost_operator.ports import Clock, LeaseRecord, Leases

log = logging.getLogger(__name__)

_T = TypeVar("_T")

DURATION: Final = 12.0
"""Seconds without a renewal after which another replica takes the lease."""
VALIDITY: Final = 8.0
"""Seconds for which the holder acts after the beginning of its last renewal."""
RENEWAL: Final = 2.0
"""Seconds between two renewals, and between two looks of a replica that waits."""
REQUEST_TIMEOUT: Final = 3.0
"""Seconds that one request for the Lease may take."""
UNKNOWN: Final = "unknown"
"""The holder of a Lease that a replica created because none existed; no pod has this name."""
_LONGEST: Final = 60.0
"""Seconds; a Lease that was edited manually does not keep all replicas waiting for longer."""


class LeaseLost(FencepostError):
    """Another replica holds the lease: whatever this one remembers may be out of date."""


class Leadership:
    """One replica's part in the election. `holder` must be unique to the pod, and the same after a restart in it."""

    def __init__(
        self,
        leases: Leases,
        *,
        holder: str,
        clock: Clock,
        monotonic: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._leases = leases
        self._holder = holder
        self._clock = clock
        self._monotonic = monotonic or _since_boot
        self._sleep = sleep
        self._record: LeaseRecord | None = None
        self._valid_until: float | None = None
        self._seen: tuple[str, float] | None = None
        """The last renewal of another replica that we saw, and when the lease is free unless a later one comes."""

    @property
    def is_held(self) -> bool:
        """Whether this replica may write now."""
        return self._valid_until is not None and self._monotonic() < self._valid_until

    def require(self) -> None:
        """Return if this replica may write now; called before each write. Raises NotLeading."""
        if self.is_held:
            return
        raise NotLeading(
            "the operator's lease is not renewed, so another replica may act; nothing was written",
            remedy="wait: it is renewed as soon as the API server answers, unless another replica has it",
        )

    async def acquire(self) -> None:
        """Wait until the lease is ours."""
        while not await self._attempt():
            await self._sleep(self._until_next_look())

    async def keep(self) -> None:
        """Renew until cancelled. Raises LeaseLost once another replica holds the lease."""
        while True:
            await self._sleep(RENEWAL)
            try:
                await self._renew()
            except (PortError, TimeoutError) as error:
                log.warning(
                    "the lease was not renewed: %s", _message(error), extra={"reason": Reason.LEASE_NOT_RENEWED}
                )

    async def release(self) -> None:
        """Let another replica act at once. Nothing may be written afterwards."""
        record, self._record, self._valid_until = self._record, None, None
        if record is None:
            return
        try:
            await _in_time(self._leases.write(replace(record, holder="", renewed_at=self._clock.now())))
        except (PortError, Conflict, TimeoutError) as error:
            log.warning("the lease was not released: %s", _message(error), extra={"reason": Reason.LEASE_NOT_RENEWED})

    async def _attempt(self) -> bool:
        """Take the lease if it is free; return whether it is ours."""
        try:
            found = await _in_time(self._leases.read())
            if found is None:
                made = await _in_time(self._leases.write(self._claim(None, holder=UNKNOWN)))
                self._seen = (made.resource_version, self._expiry(made))
                log.info(
                    "there was no lease: it is created, and free in %.0f s, when a former holder has stopped", DURATION
                )
                return False
            if not self._is_free(found):
                return False
            began = self._monotonic()
            self._hold(await _in_time(self._leases.write(self._claim(found))), began)
        except Conflict:
            return False
        except (PortError, TimeoutError) as error:
            log.warning("the lease cannot be taken: %s", _message(error), extra={"reason": Reason.LEASE_NOT_RENEWED})
            return False
        return True

    def _is_free(self, found: LeaseRecord) -> bool:
        """Return whether the lease has no holder, is held by this replica, or expired while this replica watched."""
        if found.holder in {"", self._holder}:
            return True
        if self._seen is None or self._seen[0] != found.resource_version:
            self._seen = (found.resource_version, self._expiry(found))
        return self._monotonic() >= self._seen[1]

    def _expiry(self, seen_now: LeaseRecord) -> float:
        return self._monotonic() + min(max(seen_now.duration, DURATION), _LONGEST)

    def _until_next_look(self) -> float:
        """Return seconds: a renewal's interval, or less if the lease becomes free before."""
        wait, now = jittered(RENEWAL), self._monotonic()
        if self._seen is None or self._seen[1] <= now:
            return wait
        return min(wait, self._seen[1] - now)

    def _claim(self, found: LeaseRecord | None, *, holder: str | None = None) -> LeaseRecord:
        now, holder = self._clock.now(), holder or self._holder
        same = found is not None and found.holder == holder
        return LeaseRecord(
            holder=holder,
            duration=DURATION,
            acquired_at=found.acquired_at if found is not None and same else now,
            renewed_at=now,
            transitions=found.transitions + (not same and found.holder != UNKNOWN) if found is not None else 0,
            uid=found.uid if found is not None else "",
            resource_version=found.resource_version if found is not None else "",
        )

    async def _renew(self) -> None:
        began = self._monotonic()
        if self._record is None:
            raise LeaseLost("the lease was released")
        renewed = replace(self._record, renewed_at=self._clock.now())
        try:
            self._hold(await _in_time(self._leases.write(renewed)), began)
        except Conflict:
            # A renewal of ours without an answer, or another replica's: the next is conditional on what is read here.
            found = await _in_time(self._leases.read())
            if found is not None and found.holder != self._holder:
                self._record = self._valid_until = None
                raise LeaseLost(f"the lease is held by {found.holder or 'no replica'}") from None
            if found is None:
                self._vanished()
            began = self._monotonic()
            try:
                written = await _in_time(self._leases.write(self._claim(found)))
            except Conflict:
                self._record = self._valid_until = None
                raise LeaseLost("another replica took the lease while this one renewed it") from None
            self._hold(written, began)

    def _vanished(self) -> None:
        """Stop writing until the Lease that was deleted is there again. Raises LeaseLost when ours had expired.

        As long as it had not, no other replica has acted: a successor waits for DURATION.
        """
        was_held, self._valid_until = self.is_held, None
        if not was_held:
            self._record = None
            raise LeaseLost("the lease was deleted after it had expired: another replica may have acted since")
        log.warning("the lease was deleted; it is created again", extra={"reason": Reason.LEASE_NOT_RENEWED})

    def _hold(self, written: LeaseRecord, began: float) -> None:
        self._record, self._valid_until = written, began + VALIDITY


async def _in_time(request: Awaitable[_T]) -> _T:
    """Limit one request, not a renewal of several: an API server that is slow but answers keeps its leader."""
    async with asyncio.timeout(REQUEST_TIMEOUT):
        return await request


def _since_boot() -> float:
    """Return seconds by a clock that cannot be set, and that continues while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def _message(error: BaseException) -> str:
    return str(error) or f"no answer within {REQUEST_TIMEOUT:.0f} s"
