"""How fast a pipeline works off a backlog: from batches that read as many records as they were allowed to.

A batch that had fewer says little: most of its time does not depend on its size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fencepost.fence.figures import Figure
from fencepost.fence.row import FenceRow

_GROWING: Final = 1.5
"""Times the records of a batch: where the next one may have more, the size has not settled since the run began."""
_LONGEST: Final = 86_400_000
_MOST: Final = 2**40
"""Of a batch. The fence row is in the tenant's Cassandra: its figures may be anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Batches that were run with so many cores: their number, their records, and the seconds that they took."""

    batches: int
    records: int
    seconds: float
    cores: int

    @property
    def per_second(self) -> float:
        """Records per second of work."""
        return self.records / self.seconds

    @property
    def per_core(self) -> float:
        """Records per second of one core."""
        return self.per_second / self.cores


def full_batch(row: FenceRow, limit: int) -> Rate | None:
    """Return what the last batch did, which might have `limit` records; None where it had fewer, or took no time."""
    records, took = row.records or 0, row.duration_ms or 0
    if not took or not limit or records < limit:
        return None
    return Rate(batches=1, records=records, seconds=took / 1000, cores=row.figures.get(Figure.CORES, 0))


def backlog_rate(row: FenceRow) -> Rate | None:
    """Return what the last batch did of a backlog, by its row alone: the next batch is full, and not much larger."""
    limit, records, took = row.figures.get(Figure.LIMIT, 0), row.records or 0, row.duration_ms or 0
    if not 0 < records <= _MOST or not 0 < took <= _LONGEST or not 0 < limit <= _GROWING * records:
        return None
    waiting = sum(max(0, end - row.offsets.get(key, end)) for key, end in row.planned.items())
    cores = row.figures.get(Figure.CORES, 0)
    if waiting < limit or cores < 1:
        return None
    return Rate(batches=1, records=records, seconds=took / 1000, cores=cores)
