"""How many records the next batch may have: pure arithmetic over what the batches before it took.

Three things bound a batch.  It should end within a target duration: a long batch delays a stop, and is repeated as a
whole after a failure.  It must fit into memory: it may read a number of bytes.  And it has at least and at most a
number of records.  Where they contradict, memory comes first, and the lower bound last.

The rules, for the three things that go wrong:

- One batch says little: the size grows at most GROWTH-fold per batch, and only after a full one.  The time of a small
  batch is mostly overhead, which says nothing about a large one.
- A batch that took too long costs the most: the size shrinks at once, to what would have taken the target.
- Records differ in size: a mean above the one known so far counts at once, a lower one by half per batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, Self

from fencepost.contract import KafkaSource

GROWTH: Final = 4
"""Largest factor from one batch to the next. The smallest worker begins with 128 records, and reaches 100,000 small
ones in the sixth batch; with a factor of 2, in the ninth. On two cores 250,000 records of 43 bytes took 9.8 s so, and
8.2 s in batches of 100,000 from the first one on."""
LARGEST_RECORD: Final = 1024 * 1024
"""Bytes of a record whose size is not known yet: what brokers accept by default (message.max.bytes)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a batch may be: `target` in seconds, `size` in bytes (None: no bound), `least` and `most` in records."""

    least: int
    most: int
    target: float | None = None
    size: int | None = None

    @classmethod
    def of(cls, source: KafkaSource, *, most: int | None = None) -> Self:
        """Return the bounds of a source; `most` is a further upper bound on the records."""
        largest = source.max_records_per_batch if most is None else min(source.max_records_per_batch, most)
        return cls(
            least=source.min_records_per_batch,
            most=largest,
            target=source.target_batch_duration,
            size=source.max_bytes_per_batch,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One batch: the offsets that it covered, the records among them and their bytes, and the seconds that it took.

    Compaction and transactions leave offsets without a record.
    """

    offsets: int
    records: int
    size: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSize:
    """The size of the next batch, `records`, and what it follows from."""

    bounds: Bounds
    records: int
    record_size: float | None = None
    """Bytes of a record as far as they are known."""

    @classmethod
    def first(cls, bounds: Bounds) -> Self:
        """Return the size before anything is known: as if each record were as large as brokers accept."""
        return cls(bounds=bounds, records=_within(bounds, bounds.most, None))

    def after(self, batch: Measured) -> Self:
        """Return the size after a batch of at most `records`, or of any size that a predecessor planned."""
        record_size = self._record_size(batch)
        wanted = min(self._by_time(batch), max(self.records, batch.offsets) * GROWTH)
        return replace(self, records=_within(self.bounds, wanted, record_size), record_size=record_size)

    def at_most(self, most: int) -> Self:
        """Return the size under another upper bound; one that was held by the old bound goes to the new one."""
        wanted = most if self.records == self.bounds.most else self.records
        bounds = replace(self.bounds, most=most)
        return replace(self, bounds=bounds, records=_within(bounds, wanted, self.record_size))

    def _by_time(self, batch: Measured) -> int:
        """Return how many records would have taken the target."""
        target = self.bounds.target
        if target is None:
            return self.bounds.most
        seconds = max(batch.seconds, 0.001)
        if seconds <= target and batch.offsets < self.records:
            return self.records
        return min(int(batch.offsets * target / seconds), self.bounds.most)

    def _record_size(self, batch: Measured) -> float | None:
        if not batch.records:
            return self.record_size
        mean = batch.size / batch.records
        known = self.record_size
        return mean if known is None or mean > known else (mean + known) / 2


def _within(bounds: Bounds, records: int, record_size: float | None) -> int:
    """Return the number of records nearest to `records` that the bounds allow; memory comes before the lower bound."""
    fitting = bounds.most if bounds.size is None else _fitting(bounds.size, record_size)
    return max(1, min(max(records, bounds.least), fitting, bounds.most))


def _fitting(size: int, record_size: float | None) -> int:
    each = LARGEST_RECORD if record_size is None else max(record_size, 1.0)
    return math.floor(size / each)
