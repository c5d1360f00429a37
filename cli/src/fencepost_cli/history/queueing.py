"""A pipeline as a queue: what waits and for how long, by what arrives and how many workers there are.

Records are a fluid that each partition gives out in the order of arrival.  A batch reads equal shares of the partitions
that have records, like the driver's plan.  A new worker takes part after a while, and one that is removed leaves the
tasks that it had begun to the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

SMALLEST_BATCH: Final = 0.3
"""Seconds that a batch takes beside its records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Seconds until a new worker takes part, and that a full batch takes; of one that a removed worker had begun, half
    is repeated.
    """

    start: float = 20.0
    batch: float = 10.0


@dataclass(slots=True, kw_only=True)
class Queue:
    """The state after some time; `rate` is in records per second and worker, and `at` in seconds."""

    rate: float
    partitions: Sequence[str]
    workers: int
    costs: Costs = field(default_factory=Costs)
    at: float = 0.0
    done: float = 0.0
    """Records of the last step, per second and worker that took part."""
    is_full: bool = False
    """Whether records were left when it ended."""
    _waiting: list[deque[tuple[float, float]]] = field(default_factory=list)
    """By partition: when records arrived, and how many of them are left."""
    _lags: list[float] = field(default_factory=list)
    _starting: list[float] = field(default_factory=list)
    _repeated: float = 0.0
    _in_batch: float = SMALLEST_BATCH
    _arriving: Sequence[float] = ()

    def __post_init__(self) -> None:
        self._waiting = [deque() for _ in self.partitions]
        self._lags = [0.0 for _ in self.partitions]

    def scale(self, workers: int) -> None:
        """Ask for another number of workers."""
        if workers > self.workers:
            self._starting += [self.at + self.costs.start] * (workers - self.workers)
        removed = self.workers - workers
        if removed > 0:
            begun = max(0, removed - len(self._starting))
            del self._starting[max(0, len(self._starting) - removed) :]
            self._repeated += begun * self.rate * self._in_batch / 2
        self.workers = workers

    def step(self, arrived: Sequence[float], seconds: float) -> None:
        """Let time pass in which so many records arrive in each partition."""
        self._starting = [each for each in self._starting if each > self.at]
        self.at += seconds
        for waiting, count, place in zip(self._waiting, arrived, range(len(arrived)), strict=True):
            if count > 0:
                waiting.append((self.at - seconds / 2, count))
                self._lags[place] += count
        ready = self.workers - len(self._starting)
        capacity = ready * self.rate * seconds
        repeated = min(capacity, self._repeated)
        self._repeated -= repeated
        self._take(capacity - repeated)
        self._arriving = [count / seconds for count in arrived]
        self.done, self.is_full = self.rate, sum(self._lags) > 0 and ready > 0
        load = sum(arrived) / capacity if capacity else 1.0
        shortest = min(SMALLEST_BATCH, self.costs.batch)
        taken = self.costs.batch if self.is_full else shortest / max(1 - load, shortest / self.costs.batch)
        self._in_batch = min(taken, self.costs.batch)

    def _take(self, records: float) -> None:
        """Read equal shares of the partitions that have records."""
        left = [place for place, lag in enumerate(self._lags) if lag > 0]
        while left and records > 1e-6:  # noqa: PLR2004 - less than a record, of fractions of them
            share = min(records / len(left), *(self._lags[place] for place in left))
            for place in left:
                self._give_out(place, share)
            records -= share * len(left)
            left = [place for place in left if self._lags[place] > 0]

    def _give_out(self, place: int, records: float) -> None:
        waiting = self._waiting[place]
        left = self._lags[place] - records
        if left <= 1e-6:  # noqa: PLR2004 - as above
            waiting.clear()
            self._lags[place] = 0.0
            return
        self._lags[place] = left
        while records > 0 and waiting:
            since, count = waiting[0]
            if count > records:
                waiting[0] = (since, count - records)
                return
            records -= count
            waiting.popleft()

    @property
    def lags(self) -> Mapping[str, int]:
        """Records of each partition that are not committed: those of the batch in progress as well."""
        arriving = self._arriving or [0.0] * len(self.partitions)
        found = zip(self.partitions, self._lags, arriving, strict=True)
        return {key: int(lag + each * self._in_batch) for key, lag, each in found}

    @property
    def time_lag(self) -> float:
        """Age of the oldest record that is not committed."""
        ages = [self.at - waiting[0][0] for waiting in self._waiting if waiting]
        return max(ages, default=0.0) + self._in_batch
