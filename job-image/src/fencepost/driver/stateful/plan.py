"""The batches of a stream: planned by the rules of the loop when Spark asks, and read as the fence row has them.

Spark repeats the batch that its checkpoint has as planned.  The checkpoint is served from the fence row, so that is the
batch which the row has as planned, and no other one is read.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

from fencepost.batch import EMPTY, Batch, Written
from fencepost.contract import DriverConfig, split_offset_key
from fencepost.driver.planning import plan
from fencepost.driver.planning.leader_epochs import Committed, LeaderEpochs
from fencepost.driver.planning.log_polling import LogPolling, Stopping
from fencepost.driver.planning.pacing import Pacing
from fencepost.driver.planning.plan import Plan
from fencepost.driver.planning.planner import Planner
from fencepost.driver.ports import Records, TimedLog
from fencepost.driver.sizing.batch_limit import Limit
from fencepost.errors import BatchFailed
from fencepost.fence import FenceRow, Starting
from fencepost.state.fence_committer import PlannedBatch


def starting(row: FenceRow, found: Starting, topics: Iterable[str]) -> Starting:
    """Return what the claim of a stream records, of what that of a loop would: no batch but the one to be repeated.

    `row` is the one without what is accepted as lost.  Spark plans each other batch, after the claim; and it repeats a
    batch as a whole, however large it is.
    """
    wanted = set(topics)
    repeated = {key: end for key, end in row.planned.items() if row.planned_log and split_offset_key(key)[0] in wanted}
    planned = {key: max(at, repeated.get(key, 0)) for key, at in found.offsets.items()}
    return replace(found, planned=planned, begun=plan.begun(row, found.offsets, planned, wanted))


class StreamPlan:
    """The plans of one run, from its claim on. The query's thread asks; `row` returns the newest fence row.

    `leader_epochs` and `written_until` are those of the claim (`fencepost.driver.planning.claiming`).
    """

    def __init__(
        self,
        *,
        config: DriverConfig,
        row: Callable[[], FenceRow],
        source: TimedLog,
        records: Records,
        stop: threading.Event,
        leader_epochs: Mapping[str, int],
        written_until: Mapping[str, int],
        now: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self._config = config
        self._row = row
        self._polling = LogPolling(source, stop)
        self._limit = Limit(config.source, reduced=config.first_batch_limit, now=now)
        pacing = Pacing(lambda time, keys: self._polling.ask(partial(source.offsets_at, time, keys)))
        self._planner = Planner(config, self._polling, self._limit, divide=pacing)
        self._epochs = LeaderEpochs(records)
        self._seen_epochs = leader_epochs
        self._written_until = written_until
        self._now = now
        self._wait = wait or stop.wait
        self._found: Plan | None = None
        self._began = -math.inf
        """When the batch began after which `end` is asked next."""
        self.planning: tuple[float, float] | None = None
        """When the plan of the batch at hand began and was made; None of a batch that another run planned."""
        self.looks_in_vain = 0
        """How often Kafka had nothing to read. From any thread."""
        self.lag: int | None = None
        """What the log held beyond the newest planned batch, in offsets; None before the first plan of this run."""
        self.hand: Batch = EMPTY
        """The batch that is being written; an empty one between batches. From any thread."""

    @property
    def limit(self) -> int:
        """How many records the next batch may have."""
        return self._limit.records

    @property
    def unavailable(self) -> tuple[str, ...]:
        """The partitions that batches leave out."""
        return self._planner.unavailable

    def start(self) -> Mapping[str, int]:
        """Return the committed offsets."""
        return self._row().offsets

    def end(self, start: Mapping[str, int]) -> Mapping[str, int]:
        """Return where the batch after the committed offsets ends; `start` after a wait when there is nothing to read.

        Raises Stopping between two batches, once a stop was requested or this run has finished what its code began;
        DataLoss, DependencyDown.
        """
        self._pause()
        self._polling.check_stop()
        row = self._row()
        if self._planner.is_finished(row):
            raise Stopping
        self._limit.rise()
        began = self._now()
        found = self._planner.next(row)
        self._planner.note(found)
        if found.batch.is_empty:
            self.looks_in_vain += 1
            self._wait(self._planner.idle_interval)
            return start
        self._found, self.planning = found, (began, self._now())
        return _planned(found)

    def planned(self, end: Mapping[str, int]) -> PlannedBatch:
        """Return what the fence records of the batch that ends there; nothing new of one that reads no records.

        Spark runs such a batch when a watermark has moved.  Raises BatchFailed for an end that this run has not chosen.
        """
        row, found = self._row(), self._found
        if found is not None and _planned(found) == end:
            self._seen_epochs = found.batch.leader_epochs
            self.lag = found.lag - found.batch.records
            position = found.position
            return PlannedBatch(
                offsets=position.offsets, planned=end, growth_barrier=position.barrier, log_ends=found.log_ends
            )
        if end != row.offsets:
            raise BatchFailed(
                f"Spark plans a batch up to {dict(end)}, which this run has not chosen",
                remedy="Report this: nothing of the batch is planned.",
            )
        return PlannedBatch(offsets=row.offsets, planned=row.offsets)

    def batch(self, start: Mapping[str, int], end: Mapping[str, int]) -> Batch:
        """Return the batch that the row has as planned, and look at the log for the next one meanwhile.

        Raises BatchFailed for another batch, DataLoss, DependencyDown.
        """
        row = self._row()
        if start == end:
            return EMPTY
        if end != row.planned:
            raise BatchFailed(
                f"Spark's checkpoint has a batch up to {dict(end)}, and the fence row one up to {dict(row.planned)}",
                remedy="Report this: nothing of the batch is read or committed.",
            )
        found = plan.recorded(
            row,
            self._config.source.topics,
            leader_epochs=self._seen_epochs,
            written_until=self._written_until,
        )
        self._epochs.before(found)
        self.hand = found
        self._began = self._now()
        self._polling.begin()
        return found

    def written(self, written: Written) -> Committed:
        """Return the leader epochs to be committed with the batch at hand; learn from what it took.

        Raises DataLoss, DependencyDown: then the batch must not be committed.
        """
        batch, seconds = self.hand, self._now() - self._began
        if batch.is_empty:
            return Committed()
        epochs = self._epochs.after(batch, written.epochs)
        self._limit.measure(batch, written, seconds=seconds)
        return epochs

    def committed(self) -> None:
        """End the batch at hand."""
        self.hand, self.planning = EMPTY, None

    def close(self) -> None:
        """Look at the log no more."""
        self._polling.end()

    def _pause(self) -> None:
        """Let the interval between two batches' starts pass, unless the last batch was a full one."""
        began, found = self._began, self._found
        self._began, self._found = -math.inf, None
        if found is not None and found.batch.records >= self._limit.records:
            return
        left = began + self._config.batch_interval - self._now()
        if left > 0:
            self._wait(left)


def _planned(found: Plan) -> dict[str, int]:
    return {**found.position.offsets, **found.batch.until}
