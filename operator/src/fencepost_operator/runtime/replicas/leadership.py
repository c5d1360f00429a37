"""Whether a replica acts: it holds a Lease, for as long as it can be sure of that by its own clock.

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
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from fencepost_operator.api import Reason
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


@dataclass(frozen=True, slots=True)
class _Seen:
    """A write of another replica."""

    version: str
    holder: str
    free_at: float
    """When the Lease is free unless a later one comes, in seconds of the monotonic clock."""
    is_renewal: bool = False
    """Whether an earlier one of the same holder was seen."""


class Leadership:
    """One replica's part in the election for one Lease.

    `holder` must be unique to the pod, and the same after a restart in it. `shards` is written with each claim, and
    what `troubles` returns with each renewal.
    """

    def __init__(
        self,
        leases: Leases,
        *,
        holder: str,
        clock: Clock,
        shards: int = 1,
        troubles: Callable[[], str] = lambda: "",
        monotonic: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._leases = leases
        self._holder = holder
        self._clock = clock
        self._shards = shards
        self._troubles = troubles
        self._monotonic = monotonic or since_boot
        self._sleep = sleep
        self._record: LeaseRecord | None = None
        self._valid_until: float | None = None
        self._seen: _Seen | None = None

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

    @property
    def wanted_by(self) -> str:
        """The replica that asks this one, which holds the lease, for it; '' without one."""
        return self._record.wanted_by if self._record is not None else ""

    def is_free(self, found: LeaseRecord) -> bool:
        """Return whether this replica may take the lease, given the Lease as it is now.

        A replica may take the lease that it holds, as after a restart in its pod; a lease without a holder that is not
        reserved for another replica; and one that has expired while this replica watched.
        """
        if found.holder == self._holder or (not found.holder and found.wanted_by in {"", self._holder}):
            return True
        if self._seen is None or self._seen.version != found.resource_version:
            is_renewal = self._seen is not None and bool(found.holder) and self._seen.holder == found.holder
            self._seen = _Seen(found.resource_version, found.holder, self._expiry(found), is_renewal)
        return self._monotonic() >= self._seen.free_at

    @property
    def free_in(self) -> float | None:
        """Seconds until the lease is free, as it was seen; None where none is seen, or it is free already."""
        left = self._seen.free_at - self._monotonic() if self._seen is not None else 0.0
        return left if left > 0 else None

    @property
    def is_renewed(self) -> bool:
        """Whether its holder lives: this replica has seen one of its renewals lately."""
        left = self.free_in
        return self._seen is not None and self._seen.is_renewal and left is not None and left > DURATION - 2 * RENEWAL

    async def take(self, found: LeaseRecord | None, *, is_new: bool = False) -> bool:
        """Take the lease, which is free; return whether it is ours.

        A missing Lease is created without us as the holder, unless it `is_new`: it was missing for DURATION.
        """
        try:
            if found is None and not is_new:
                made = await in_time(self._leases.write(self._claim(None, holder=UNKNOWN)))
                self._seen = _Seen(made.resource_version, UNKNOWN, self._expiry(made))
                log.info(
                    "there was no lease: it is created, and free in %.0f s, when a former holder has stopped", DURATION
                )
                return False
            began = self._monotonic()
            self._hold(await in_time(self._leases.write(self._claim(found))), began)
        except Conflict:
            return False
        except (PortError, TimeoutError) as error:
            log.warning("the lease cannot be taken: %s", message_of(error), extra={"reason": Reason.LEASE_NOT_RENEWED})
            return False
        return True

    async def clear(self, found: LeaseRecord) -> None:
        """Write our number of shards to a lease that is free, so that its former holder cannot renew it.

        Raises PortError, Conflict, TimeoutError.
        """
        now = self._clock.now()
        cleared = replace(
            found, holder="", wanted_by="", troubles="", shards=self._shards, duration=DURATION, renewed_at=now
        )
        await in_time(self._leases.write(cleared))

    async def ask(self, found: LeaseRecord) -> None:
        """Ask the holder for the lease. Raises PortError, Conflict, TimeoutError."""
        await in_time(self._leases.write(replace(found, wanted_by=self._holder)))

    async def keep(self) -> None:
        """Renew until cancelled. Raises LeaseLost once another replica holds the lease."""
        while True:
            await self._sleep(RENEWAL)
            try:
                await self._renew()
            except (PortError, TimeoutError) as error:
                log.warning(
                    "the lease was not renewed: %s", message_of(error), extra={"reason": Reason.LEASE_NOT_RENEWED}
                )

    async def release(self, *, to: str = "") -> None:
        """Let another replica act at once, `to` if it is named. Nothing may be written afterwards."""
        record, self._record, self._valid_until = self._record, None, None
        try:
            if record is not None and not await self._freed(record, to):
                found = await in_time(self._leases.read())  # as when another replica has asked for it meanwhile
                if found is not None and found.holder == self._holder:
                    await self._freed(found, to)
        except (PortError, TimeoutError) as error:
            log.warning("the lease was not released: %s", message_of(error), extra={"reason": Reason.LEASE_NOT_RENEWED})

    async def _freed(self, record: LeaseRecord, to: str) -> bool:
        """Write that the lease has no holder; return whether that was possible."""
        try:
            free = replace(record, holder="", wanted_by=to, troubles="", renewed_at=self._clock.now())
            await in_time(self._leases.write(free))
        except Conflict:
            return False
        return True

    def _expiry(self, seen_now: LeaseRecord) -> float:
        return self._monotonic() + min(max(seen_now.duration, DURATION), _LONGEST)

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
            shards=self._shards,
            wanted_by=found.wanted_by if found is not None and same else "",
        )

    async def _renew(self) -> None:
        began = self._monotonic()
        if self._record is None:
            raise LeaseLost("the lease was released")
        renewed = replace(self._record, renewed_at=self._clock.now(), troubles=self._troubles())
        try:
            self._hold(await in_time(self._leases.write(renewed)), began)
        except Conflict:
            # A renewal of ours without an answer, or another replica's: the next is conditional on what is read here.
            found = await in_time(self._leases.read())
            if found is not None and found.holder != self._holder:
                self._record = self._valid_until = None
                raise LeaseLost(f"the lease is held by {found.holder or 'no replica'}") from None
            if found is None:
                self._vanished()
            began = self._monotonic()
            try:
                written = await in_time(self._leases.write(self._claim(found)))
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


async def in_time(request: Awaitable[_T]) -> _T:
    """Limit one request, not a renewal of several: an API server that is slow but answers keeps its leader."""
    async with asyncio.timeout(REQUEST_TIMEOUT):
        return await request


def since_boot() -> float:
    """Return seconds by a clock that cannot be set, and that continues while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def message_of(error: BaseException) -> str:
    """Return what a request for a Lease failed with."""
    return str(error) or f"no answer within {REQUEST_TIMEOUT:.0f} s"
