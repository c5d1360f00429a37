"""How far the batch in progress is, or that an idle driver works: no decision about committing depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress:
    """What a driver reported inside a batch.

    `epoch` and `version` are those of the fence row that the batch began on: a report of other ones is about another
    batch.  `done` counts records that are finished, of the batch; a report of 0 is a sign of life between two batches.
    `at` is Cassandra's time of the report.
    """

    epoch: int
    version: int
    done: int
    at: datetime
