"""How many records the next batch may have, over the life of a run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from fencepost.batch import Batch, Written
from fencepost.contract import KafkaSource
from fencepost.driver.sizing.batch_size import BatchSize, Bounds, Measured

log = logging.getLogger(__name__)

RAISE_LIMIT: Final = 600.0
"""Seconds after which a reduced batch size doubles.  A batch that is too large again costs one restart in that time."""


class Limit:
    """Follows what batches took, within the source's bounds; a run after a failure begins at `reduced` records."""

    def __init__(self, source: KafkaSource, *, reduced: int | None, now: Callable[[], float]) -> None:
        self._most = source.max_records_per_batch
        self._size = BatchSize.first(Bounds.of(source, most=reduced))
        self._now = now
        self._since = now()

    @property
    def records(self) -> int:
        """How many records the next batch may have."""
        return self._size.records

    def measure(self, batch: Batch, written: Written, *, seconds: float) -> None:
        """Adapt the size of the next batch to what this one took."""
        measured = Measured(offsets=batch.records, records=written.records, size=written.size, seconds=seconds)
        self._size = self._size.after(measured)

    def rise(self) -> None:
        """Double a reduced upper bound once in a while: what made a batch fail may have passed.

        Not at each commit: twice the limit is the size that failed, and a commit resets the restart budget.
        """
        bound = self._size.bounds.most
        if bound < self._most and self._now() - self._since >= RAISE_LIMIT:
            self._size = self._size.at_most(min(self._most, 2 * bound))
            self._since = self._now()
            log.info("the batch size is raised", extra={"fields": {"max_records": self._size.bounds.most}})
