"""What a run's claim records: where reading continues, and the end of its first batch."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from fencepost.batch import Watermarks, between
from fencepost.contract import DriverConfig, Reason, ReportedLoss
from fencepost.driver.planning import plan
from fencepost.driver.planning.awaiting import refuse_open_batch
from fencepost.driver.planning.log_polling import LogPolling
from fencepost.driver.recovery import lost_ranges
from fencepost.errors import DependencyDown
from fencepost.fence import Fence, FenceRow, Starting

log = logging.getLogger(__name__)

LOOK_AGAIN: Final = 1.0
"""Seconds between two reads of a log that does not show yet where to start."""


class Claiming:
    """Answers the fence when it asks what the claim records; `row` is what it asked with, None before."""

    def __init__(
        self,
        *,
        config: DriverConfig,
        fence: Fence,
        polling: LogPolling,
        limit: int,
        wait: Callable[[float], object],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._fence = fence
        self._polling = polling
        self._limit = limit
        self._wait = wait
        self._now = now
        self.row: FenceRow | None = None
        self.written_until: Mapping[str, int] = {}
        """Up to where an earlier run may have written output beyond the committed offsets."""
        self._reported: tuple[ReportedLoss, ...] = ()
        self.leader_epochs: Mapping[str, int] = {}
        """Under which the log was seen to hold what comes next."""

    def start(self, row: FenceRow) -> Starting:
        """Return what the claim records. Raises DataLoss, BadSpec, DependencyDown, Fenced, Stopping."""
        refuse_open_batch(row, self._config)
        source = self._config.source
        reported = self._fence.read_losses(row)
        self.written_until = row.written_until
        state = self._resolved(row)
        going_on = lost_ranges.without_accepted(row, reported, state)
        if going_on.accepted:
            state = self._resolved(going_on.row)  # a replaced topic starts again: its start must be resolved too
            going_on = lost_ranges.without_accepted(row, reported, state)
        self._reported = reported
        self._note(going_on)
        if going_on.row.accepted_until:
            self._reported += self._fence.read_newest_losses()
            continued = lost_ranges.without_expired(going_on.row, self._reported, state)
            if continued is not None:  # a run before this one claimed under that acceptance
                self._note(continued)
                going_on = replace(going_on, row=continued.row)
        self.row, self.leader_epochs = going_on.row, state.leader_epochs
        found = plan.starting(
            going_on.row,
            state,
            source.topics,
            source.starting_offsets,
            self._limit,
            first_limit=self._config.first_batch_limit,
            replaced=going_on.starts,
        )
        if bound := self._config.finish_until:
            batch = between(found.offsets, found.planned)
            planned = {**found.offsets, **plan.up_to(batch, found.offsets, bound).until}
            found = replace(
                found, planned=planned, begun=plan.begun(going_on.row, found.offsets, planned, source.topics)
            )
        for report in going_on.accepted:
            log.warning(
                "continuing without the ranges accepted as lost", extra={"fields": lost_ranges.log_fields(report)}
            )
        return found

    def without_expired(self, row: FenceRow, log: Watermarks) -> FenceRow | None:
        """Return the row after what retention has deleted since the claim; None when that was not accepted."""
        going_on = lost_ranges.without_expired(row, self._reported, log)
        if going_on is None:
            return None
        self._note(going_on)
        return going_on.row

    def _note(self, found: lost_ranges.Continued) -> None:
        """Record what open acceptances are used for, before the offsets move past it: done twice, it is done once."""
        for each in found.skipped:
            if each.ranges:
                self._fence.record_skipped(each.report, each.ranges)
                fields = {**lost_ranges.log_fields(each.report), "skipped": dict(each.ranges)}
                log.warning("skipping what retention has deleted, as was accepted", extra={"fields": fields})

    def _resolved(self, row: FenceRow) -> Watermarks:
        """Return the log once each new topic's start can be resolved. Raises DependencyDown after the patience."""
        deadline = self._now() + max(self._config.patience, 2 * plan.AGREEMENT)
        while True:
            state = self._polling.now()
            waiting_for = plan.unresolved(row, state, self._config.source.topics)
            if not waiting_for:
                return state
            if self._now() > deadline:
                raise DependencyDown(
                    f"where to start is not known: {waiting_for}",
                    reason=Reason.KAFKA_UNREACHABLE,
                    remedy="See whether all brokers of the topic's replicas run.",
                )
            self._wait(LOOK_AGAIN)
            self._polling.check_stop()
