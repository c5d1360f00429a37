"""Which records of a backlog a stateful query reads first: the oldest ones of all partitions, by their timestamps.

Spark has one watermark for a query, and it follows the newest record of any partition.  A partition that is read ahead
of the others makes their records late, and Spark drops those.  So a batch of a backlog ends at one record time in all
partitions: Kafka is asked for each partition's first record of that time or later, and the time is moved until the
batch has as many records as it may have.

Records within a partition may be out of order.  All that lie before the first record of a time are older than it, so
no partition is read beyond that time.

No partition has a share of its own: read ahead of its time, a single record is enough to move the watermark.  What
waits is younger than everything that is read, so it waits until the others have reached its time.  A partition whose
clock is ahead waits until the others have no backlog, and one whose clock is behind, or without timestamps, is read
first.  Both end in a pipeline that keeps up; one that does not loses records to retention in any order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

Find: TypeAlias = Callable[[int, Collection[str]], Mapping[str, int | None]]
"""`fencepost.driver.ports.TimedLog.offsets_at`."""

FIRST_STEP: Final = 1000
"""Milliseconds of the first step of a search; each one is twice as long as the one before."""
REQUESTS: Final = 128
"""Most requests of one search. Only timestamps of other centuries need so many."""
LATEST: Final = 253_402_300_799_999
"""The last ms of the year 9999. Later timestamps have no order."""


@dataclass(frozen=True, slots=True)
class _Cut:
    """How many records of each partition are older than a time; None is before or after all times."""

    time: int | None
    records: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.records.values())


class Pacing:
    """Divides batches, see `fencepost.driver.planning.plan.Divide`.

    It remembers where the last batch ended, only to begin its search there: `now` is the wall clock in seconds, where
    the first search begins.  Raises what `find` raises.
    """

    def __init__(self, find: Find, now: Callable[[], float] = time.time) -> None:
        self._find = find
        self._now = now
        self._reached: int | None = None
        self._step = FIRST_STEP

    def __call__(self, offsets: Mapping[str, int], lag: Mapping[str, int], limit: int) -> Mapping[str, int]:
        """Return how many records of each partition to read, `limit` together where the lag has as many.

        A partition whose leader does not answer is left out.
        """
        low, high = _Cut(None, dict.fromkeys(lag, 0)), _Cut(None, lag)
        if high.total <= limit:
            return lag
        for turn in range(REQUESTS):
            unsettled = [key for key, records in low.records.items() if records < high.records[key]]
            moment = self._between(low, high, limit, turn)
            if low.total == limit or len(unsettled) == 1 or moment is None:
                break
            found = self._find(moment, unsettled)
            silent = set(unsettled) - found.keys()
            if silent:
                return self(offsets, {key: records for key, records in lag.items() if key not in silent}, limit)
            older = {key: lag[key] if at is None else at - offsets[key] for key, at in found.items()}
            between = {key: _within(count, low.records[key], high.records[key]) for key, count in older.items()}
            cut = _Cut(moment, {**low.records, **between})
            low, high = (cut, high) if cut.total <= limit else (low, cut)
        self._remember(high.time if low.time is None else low.time)
        return _completed(low.records, high.records, limit)

    def _between(self, low: _Cut, high: _Cut, limit: int, turn: int) -> int | None:
        """Return a time between two cuts, in ms since 1970; None once nothing lies between them."""
        step = self._step << turn
        match low.time, high.time:
            case None, None:
                begin = int(self._now() * 1000) if self._reached is None else self._reached + self._step
                return _within(begin, 0, LATEST)
            case None, int(end):
                return max(end - step, 0) if end > 0 else None
            case int(begin), None:
                return min(begin + step, LATEST) if begin < LATEST else None
            case int(begin), int(end) if end - begin > 1:
                # In turn where the limit is if records are evenly spread, and the middle, which bounds the search.
                share = 0.5 if turn % 2 else (limit - low.total) / (high.total - low.total)
                return begin + _within(int((end - begin) * share), 1, end - begin - 1)
            case _:
                return None

    def _remember(self, reached: int | None) -> None:
        if reached is not None and self._reached is not None:
            self._step = max(abs(reached - self._reached), 1)
        self._reached = reached


def _completed(low: Mapping[str, int], high: Mapping[str, int], limit: int) -> Mapping[str, int]:
    """Return `limit` records: those of `low`, and of what is between it and `high` the same share of each partition."""
    left, between = limit - sum(low.values()), {key: high[key] - records for key, records in low.items()}
    every = sum(between.values())
    shares = {key: divmod(left * records, every) for key, records in between.items()}
    rest = left - sum(whole for whole, _ in shares.values())
    rounded_up = set(sorted(shares, key=lambda key: (-shares[key][1], key))[:rest])
    return {key: low[key] + whole + (key in rounded_up) for key, (whole, _) in shares.items()}


def _within(number: int, least: int, most: int) -> int:
    return min(max(number, least), most)
