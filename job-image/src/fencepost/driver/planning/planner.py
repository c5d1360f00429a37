"""Plans batch after batch: how many records the next one has, what of Kafka's log it reads, and what it leaves out."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from fencepost.batch import Watermarks
from fencepost.contract import DriverConfig
from fencepost.driver.planning import plan
from fencepost.driver.planning.log_polling import LogPolling
from fencepost.driver.planning.plan import Divide, Plan, Position
from fencepost.driver.sizing.batch_limit import Limit
from fencepost.fence import FenceRow

log = logging.getLogger(__name__)

POLL: Final = 1.0
"""Longest time in seconds between two looks at an idle log."""


class Planner:
    """The plans of one run, whose batches `divide` divides. `unavailable` names the partitions that they leave out."""

    def __init__(
        self, config: DriverConfig, polling: LogPolling, limit: Limit, *, divide: Divide = plan.equally
    ) -> None:
        self._topics = config.source.topics
        self._bound = config.finish_until
        self.idle_interval = min(max(config.batch_interval, 0.05), POLL)
        """Seconds between two looks at a log that has nothing to read."""
        self._polling = polling
        self._limit = limit
        self._divide = divide
        self.unavailable: tuple[str, ...] = ()

    def next(self, row: FenceRow) -> Plan:
        """Return the plan after the committed offsets. Raises DataLoss, DependencyDown, Stopping."""
        # Begun beside the last batch, and not there when that was committed.
        begun = self._polling.begun()
        if begun is not None:
            found = self.after(row, row.offsets, begun)
            if not found.batch.is_empty:
                return found
        return self.after(row, row.offsets, self._polling.now())

    def after(self, row: FenceRow, offsets: Mapping[str, int], state: Watermarks) -> Plan:
        """Return the plan of a batch of the size that is right now. Raises DataLoss, and what `divide` raises."""
        position = Position(offsets=offsets, barrier=row.growth_barrier, log_ends=row.log_ends, growths=row.growths)
        return plan.after(
            position,
            row.topic_ids,
            state,
            self._topics,
            self._limit.records,
            divide=self._divide,
            bound=self._bound or None,
        )

    def is_finished(self, row: FenceRow) -> bool:
        """Return whether this run was to finish what its code began, and has."""
        return bool(self._bound) and all(row.offsets.get(key, end) >= end for key, end in self._bound.items())

    def note(self, found: Plan) -> None:
        """Log the partitions that a plan leaves out, when they change."""
        if found.unavailable == self.unavailable:
            return
        self.unavailable = found.unavailable
        if found.unavailable:
            log.warning(
                "Kafka has no leader for some partitions: the batches leave them out",
                extra={"fields": {"partitions": list(found.unavailable)}},
            )
        else:
            log.info("all partitions are available again")
