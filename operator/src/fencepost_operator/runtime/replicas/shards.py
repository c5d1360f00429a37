"""Which pipelines this replica reconciles: those of the shards whose Leases it holds.

A pipeline, a rewind of it, and a trial belong to the shard that the hash of `namespace/name` gives.  Each shard has a
Lease of its own with the rules of `leadership`, so that a replica which dies leaves the other shards alone.
Replicas look at all Leases every RENEWAL seconds: they take those that are free, and ask whoever has at least two more
than they have for one, which its holder hands over when its loops have ended.

Replicas that divide pipelines by different numbers would reconcile one pipeline twice, under two Leases.  So each Lease
carries the number of whoever wrote it.  A replica takes none while one that is held carries another number, nor within
DURATION after that: a Lease that was deleted is there again by then if its holder lives.  It writes its own number to
those that are free, so that no former holder can renew them.  When it has taken one, it looks at all of them again, and
gives it back unless all carry its number.  Of two that take one at the same time, the later one sees the other's.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from fencepost_operator.api import ObjectKey, Reason
from fencepost_operator.backoff import jittered
from fencepost_operator.errors import Conflict, NotLeading, PortError
from fencepost_operator.logs import PIPELINE
from fencepost_operator.ports import Clock, LeaseRecord, ShardLeases
from fencepost_operator.runtime.replicas.leadership import (
    DURATION,
    RENEWAL,
    UNKNOWN,
    Leadership,
    in_time,
    message_of,
    since_boot,
)
from fencepost_operator.settings import MOST_SHARDS

log = logging.getLogger(__name__)

_FAIR: Final = 2
"""Shards that another replica has more than this one, from which on it is asked for one."""


def shard_of(key: ObjectKey | str, count: int) -> int:
    """Return the shard of a pipeline or a trial, `namespace/name`, from 0 to `count` - 1."""
    return int.from_bytes(hashlib.blake2b(str(key).encode(), digest_size=8).digest()) % count


def share_of(limit: int, shards: Iterable[int], count: int) -> int:
    """Return these shards' part of a limit on all pipelines; the parts of all of them add up to it."""
    return sum(limit // count + (shard < limit % count) for shard in shards)


class ShardWork(Protocol):
    """What is done for a shard while this replica has it."""

    async def prepare(self, shards: Iterable[int], shard: int) -> None:
        """Learn what the replica before has begun, before the first pass; `shards` are all that this replica has."""
        ...

    async def begin(self) -> bool:
        """Begin the loops that are missing; return whether all are known."""
        ...

    async def end(self, shards: Iterable[int], shard: int) -> None:
        """End the loops of a shard, and forget its pipelines; `shards` are those that this replica keeps."""
        ...


class Shards:
    """The shards that one replica has, of `count`. `lost` ends the process, when another replica has its Lease."""

    def __init__(
        self,
        leases: ShardLeases,
        *,
        count: int,
        holder: str,
        clock: Clock,
        lost: Callable[[BaseException], None],
        monotonic: Callable[[], float] = since_boot,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.troubles: Callable[[], str] = lambda: ""
        """Returns what the replica writes to its Leases for the one that beats for all of them, in lines."""
        self._leases = leases
        self._count = count
        self._holder = holder
        self._lost = lost
        self._monotonic = monotonic
        self._sleep = sleep
        self._all = tuple(
            Leadership(
                leases.of(shard),
                holder=holder,
                clock=clock,
                shards=count,
                troubles=self._own_troubles,
                monotonic=monotonic,
                sleep=sleep,
            )
            for shard in range(MOST_SHARDS)
        )
        """Also of those beyond the count: replicas with another one may hold them."""
        self._kept: dict[int, asyncio.Task[None]] = {}
        """The renewals of the Leases that this replica holds."""
        self._served: set[int] = set()
        """The shards whose pipelines have loops here."""
        self._is_changed = False
        """Whether a Lease with another number was seen since this replica last took one."""
        self._agreed_since: float | None = None
        """Since when no Lease that is held carries another number."""
        self._waiting_for = ""
        self._absent_since: dict[int, float] = {}
        """Since when shards have no Lease, as this replica saw it."""

    def is_held(self, shard: int) -> bool:
        """Return whether this replica may write to the shard's pipelines now."""
        return shard in self._kept and self._all[shard].is_held

    @property
    def is_sure(self) -> bool:
        """Whether this replica has shards, and may write to the pipelines of each."""
        return bool(self._kept) and all(self._all[shard].is_held for shard in self._kept)

    def owns(self, key: ObjectKey) -> bool:
        """Return whether a pipeline or a trial is to have a loop here."""
        return shard_of(key, self._count) in self._served

    def require(self) -> None:
        """Return if this replica may write now to the pipeline or trial whose loop the current task is.

        A task of no loop acts for all pipelines, so it needs each Lease that this replica has. Raises NotLeading.
        """
        name = PIPELINE.get()
        concerned = [shard_of(name, self._count)] if name else list(self._kept)
        if not concerned or not self._kept.keys() >= set(concerned):
            raise NotLeading(
                "another replica of the operator has the pipeline's shard; nothing was written",
                remedy="wait: that replica reconciles the pipeline",
            )
        for shard in concerned:
            self._all[shard].require()

    def _own_troubles(self) -> str:
        return self.troubles()

    async def troubles_of_others(self) -> Sequence[str]:
        """Return what keeps the other shards from being served: what their replicas wrote, or that they have none."""
        missing = [shard for shard in range(self._count) if shard not in self._kept]
        found = await self._found() if missing else {}
        if found is None:
            return ("the Leases of the other shards cannot be listed",)
        lines = (line for shard in missing for line in self._troubles_of(shard, found.get(shard)))
        return tuple(dict.fromkeys(lines))

    def _troubles_of(self, shard: int, found: LeaseRecord | None) -> Sequence[str]:
        if self._may_take(shard, found):
            return (f"shard {shard} of {self._count} has no replica",)
        return found.troubles.splitlines() if found is not None else ()

    async def first(self) -> None:
        """Wait until this replica has a shard."""
        await self._look()
        while not self._kept:
            await self._sleep(self._until_next_look())
            await self._look()

    async def serve(self, work: ShardWork) -> None:
        """Do the work of each shard while this replica has it, until cancelled."""
        is_begun = True
        try:
            while True:
                for shard in sorted(self._kept.keys() - self._served):
                    await work.prepare(self._served | {shard}, shard)
                    self._served.add(shard)
                    is_begun = False
                if not is_begun:
                    is_begun = await work.begin()
                await self._sleep(self._until_next_look())
                await self._hand_over(work)
                await self._look()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - after any error, nothing begins the loops of a shard
            self._lost(error)

    async def close(self) -> None:
        """Release all Leases, when the work has ended."""
        tasks = list(self._kept.values())
        self._served.clear()
        self._kept.clear()
        await _cancelled(*tasks)
        await asyncio.gather(*(leadership.release() for leadership in self._all))

    async def _look(self) -> None:
        """Look at all Leases once: take what is free, or ask for a fair share."""
        if len(self._kept) == self._count:
            return
        found = await self._found()
        if found is None:
            return
        now, before = self._monotonic(), self._absent_since
        self._absent_since = {shard: before.get(shard, now) for shard in range(self._count) if shard not in found}
        if not await self._agrees(found):
            return
        missing = [shard for shard in range(self._count) if shard not in self._kept]
        free = [shard for shard in missing if self._may_take(shard, found.get(shard))]
        taken = [shard for shard in free if await self._take(shard, found.get(shard))]
        if taken and not await self._is_agreed():
            await asyncio.gather(*(self._all[shard].release() for shard in taken))
            return
        for shard in taken:
            self._kept[shard] = asyncio.create_task(self._keep(shard), name=f"lease of shard {shard}")
            log.info(
                "this replica holds the lease of shard %s of %s", shard, self._count, extra={"reason": Reason.LEADING}
            )
        if not free:
            await self._ask(found)

    def _may_take(self, shard: int, found: LeaseRecord | None) -> bool:
        return found is None or self._all[shard].is_free(found)

    async def _take(self, shard: int, found: LeaseRecord | None) -> bool:
        now = self._monotonic()
        return await self._all[shard].take(found, is_new=now - self._absent_since.get(shard, now) >= DURATION)

    async def _found(self) -> Mapping[int, LeaseRecord] | None:
        """Return the Leases by shard, None without an answer."""
        try:
            found = await in_time(self._leases.all())
        except (PortError, TimeoutError) as error:
            log.warning(
                "the leases cannot be listed: %s", message_of(error), extra={"reason": Reason.LEASE_NOT_RENEWED}
            )
            return None
        return {shard: record for shard, record in found.items() if shard < MOST_SHARDS}

    async def _agrees(self, found: Mapping[int, LeaseRecord]) -> bool:
        """Return whether all replicas that may act have our number of shards, and write it to the Leases."""
        others = {shard: record for shard, record in found.items() if record.shards != self._count}
        held = {shard: record for shard, record in others.items() if not self._all[shard].is_free(record)}
        if held or (others and not self._is_changed):
            self._agreed_since = None
        self._is_changed = self._is_changed or bool(others)
        if held:
            self._report_wait(held)
            return False
        now = self._monotonic()
        self._agreed_since = now if self._agreed_since is None else self._agreed_since
        if self._is_changed and now - self._agreed_since < DURATION:
            return False
        try:
            for shard, record in others.items():
                await self._all[shard].clear(record)
        except Conflict:
            return False
        except (PortError, TimeoutError) as error:
            log.warning(
                "the lease cannot be written: %s", message_of(error), extra={"reason": Reason.LEASE_NOT_RENEWED}
            )
            return False
        self._is_changed = False
        return True

    def _report_wait(self, held: Mapping[int, LeaseRecord]) -> None:
        holders = {f"{record.holder or 'a replica'} with shards: {record.shards}" for record in held.values()}
        waiting_for = ", ".join(sorted(holders))
        if waiting_for != self._waiting_for:
            log.info(
                "waiting for the end of replicas with another number of shards: %s; this one has shards: %s",
                waiting_for, self._count, extra={"reason": Reason.STANDBY},
            )  # fmt: skip
        self._waiting_for = waiting_for

    async def _is_agreed(self) -> bool:
        """Return whether all Leases carry our number, after one was taken."""
        found = await self._found()
        return found is not None and all(record.shards == self._count for record in found.values())

    async def _ask(self, found: Mapping[int, LeaseRecord]) -> None:
        """Ask replicas that have more shards than this one for a fair share."""
        has = Counter(record.holder for record in found.values() if not record.wanted_by)
        mine = len(self._kept) + sum(record.wanted_by == self._holder for record in found.values())
        for shard, record in sorted(found.items(), reverse=True):
            is_candidate = record.holder not in {"", UNKNOWN, self._holder} and not record.wanted_by
            if is_candidate and self._all[shard].is_renewed and has[record.holder] - mine >= _FAIR:
                try:
                    await self._all[shard].ask(record)
                except (PortError, Conflict, TimeoutError):
                    continue  # the next look decides again
                has[record.holder] -= 1
                mine += 1

    async def _hand_over(self, work: ShardWork) -> None:
        """Give the shards to others that they have asked for, but for the last one."""
        for shard in sorted(self._served):
            asker = self._all[shard].wanted_by
            if not asker or asker == self._holder or len(self._kept) == 1:
                continue
            log.info("shard %s is handed over to %s", shard, asker, extra={"reason": Reason.STANDBY})
            self._served.discard(shard)
            await work.end(self._served, shard)
            await _cancelled(self._kept.pop(shard))
            await self._all[shard].release(to=asker)

    async def _keep(self, shard: int) -> None:
        """Keep a Lease; end the process when another replica has it."""
        try:
            await self._all[shard].keep()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - after any error, nothing renews the lease
            self._lost(error)

    def _until_next_look(self) -> float:
        """Return seconds: a renewal's interval, or less if a Lease becomes free before."""
        waits = [leadership.free_in for shard, leadership in enumerate(self._all) if shard not in self._kept]
        if self._is_changed and self._agreed_since is not None:
            waits.append(self._agreed_since + DURATION - self._monotonic())
        return min([jittered(RENEWAL), *(wait for wait in waits if wait is not None and wait > 0)])


async def _cancelled(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
