"""How far the batch in progress is, or that an idle driver works: no decision about committing depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


def heartbeat_key(pipeline: str) -> str:
    """Return the key under which the table of reports has the newest heartbeat of a pipeline's driver.

    Beside the report of its batch: a heartbeat says that the process runs and reaches the database, and nothing of what
    it does.
    """
    return f"{pipeline}#heartbeat"


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
    note: str = ""
    """Of an operator's sign of life: the reason for which it could not run the pipeline, '' where it could."""
    at: datetime
