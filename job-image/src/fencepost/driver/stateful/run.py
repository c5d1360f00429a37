"""One run of a stateful pipeline: Spark's query on a checkpoint that is served from the fence row.

What holds at each step:

- the offsets of a batch and Spark's log of it are in the fence row before anything of it is read; a successor's query
  repeats that batch;
- code that does not fit the state ends before its first batch is planned;
- offsets, batch number and state move in one conditional update, after all rows and files of the batch are written;
- a run that is asked to stop ends between two batches, so nothing is planned then;
- any exception ends the query, and the epoch's checkpoint with it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from fencepost.batch import EMPTY, Batch, EventTime, Range, Written
from fencepost.contract import DriverConfig, Reason, split_offset_key
from fencepost.driver.loop import InProgress, ignore, nothing_left
from fencepost.driver.loss_report import recorded
from fencepost.driver.planning.claiming import Claiming
from fencepost.driver.planning.log_polling import LogPolling, Stopping
from fencepost.driver.ports import Records, TimedLog
from fencepost.driver.recovery.failing_record import failing_record
from fencepost.driver.reporting.commit_figures import Measure, of_batch, unmeasured
from fencepost.driver.reporting.commit_report import Report, StateSize, Stopwatch
from fencepost.driver.stateful.plan import StreamPlan, starting
from fencepost.driver.stopping import check_held
from fencepost.errors import BadSpec, BatchFailed, DataLoss, DriverError, replaced, suspects_record
from fencepost.fence import Fence, Fenced, FenceMissing, FenceRow, Starting
from fencepost.fence.patience import Patience
from fencepost.spark.stateful.stream_source import Plans, end_of, with_end
from fencepost.state.checkpoint import Checkpoint
from fencepost.state.chunks import ChunkStore, PatientChunks
from fencepost.state.collector import Collector
from fencepost.state.errors import CheckpointDamaged, CheckpointError, CheckpointFull, LogTooLong
from fencepost.state.fence_committer import FenceCommitter, PlannedBatch, WrittenBatch, reopened
from fencepost.state.file_ids import FileIds, FileIndex
from fencepost.state.progress import unpack_planned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)


class Query(Protocol):
    """The author's query."""

    def run(self, location: str, plans: Plans, write: Callable[[DataFrame, int], None]) -> None:
        """Run on the checkpoint at a location until something is raised, and raise that."""
        ...

    def write(self, rows: DataFrame, batch: Batch, row: FenceRow, *, is_repeated: bool) -> Written:
        """Write the rows of a batch."""
        ...

    def rehearse(self, parts: Sequence[Range]) -> int:
        """Do to these records what the query does, with empty state, and write nothing; return how many there are."""
        ...

    def event_time(self, batch: int) -> EventTime | None:
        """Return what the batches of this run before that one add, each once; None without such a batch."""
        ...

    def progress(self) -> int:
        """Return a number that grows while the tasks of a batch work."""
        ...


Serve = Callable[[Checkpoint, ChunkStore, Callable[[Exception], object]], AbstractContextManager[str]]
"""Serves a checkpoint for a block; its value is the location for Spark. See `stateful.checkpoint_service`."""


class StatefulRun:
    """One run. It shows what `fencepost.driver.loop.Loop` shows, from any thread, and ends as that does.

    It is the `BatchFacts` of its committer.  `end` ends the process: it is called with Fenced as soon as a plan or a
    commit is refused, from the thread that serves it.  `snapshots` returns the checkpoints of all snapshots.
    """

    def __init__(
        self,
        *,
        config: DriverConfig,
        driver: str,
        fence: Fence,
        source: TimedLog,
        records: Records,
        query: Query,
        serve: Serve,
        chunks: ChunkStore,
        index: FileIndex,
        snapshots: Callable[[], Iterable[bytes]],
        stop: threading.Event,
        report: Callable[[Report], None],
        end: Callable[[BaseException], object],
        claimed: Callable[[FenceRow], None] = nothing_left,
        mirror: Callable[[Mapping[str, int]], None] = ignore,
        memory: Measure = unmeasured,
        now: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self._config = config
        self._driver = driver
        self._fence = fence
        self._source = source
        self._records = records
        self._query = query
        self._serve = serve
        patience = Patience(config.patience)
        self._store = chunks
        self._chunks = PatientChunks(chunks, patience)
        self._index = index
        self._ids = FileIds(index, patience)
        self._snapshots = snapshots
        self._stop = stop
        self._report = report
        self._end = end
        self._claimed = claimed
        self._mirror = mirror
        self._memory = memory
        self._now = now
        self._wait = wait
        self._polling = LogPolling(source, stop)
        self._claiming = Claiming(
            config=config,
            fence=fence,
            polling=self._polling,
            limit=config.source.max_records_per_batch,
            wait=wait or stop.wait,
            now=now,
        )
        self._row: FenceRow | None = None
        self._committer: FenceCommitter | None = None
        self._checkpoint: Checkpoint | None = None
        self._plan: StreamPlan | None = None
        self._collector: Collector | None = None
        self._failure: BaseException | None = None
        self._request_failure: Exception | None = None
        """Why a request of Spark's to the checkpoint failed since the last commit: it may be repeated."""
        self._inherited: int | None = None
        self._began: float | None = None
        self._is_oversized = False
        self._in_progress: InProgress | None = None
        self._written: tuple[Batch, Written, WrittenBatch, Stopwatch] | None = None

    @property
    def life(self) -> tuple[FenceRow, int] | None:
        """The row, and how often Kafka had nothing to read: one moves while the run works."""
        return None if self._row is None else (self.row, 0 if self._plan is None else self._plan.looks_in_vain)

    def progress(self) -> int:
        """Return a number that grows while the current batch makes progress: its tasks, and the files of its state.

        A task that loads gigabytes of state shows nothing else for minutes.
        """
        return self._query.progress() + (0 if self._checkpoint is None else self._checkpoint.moved)

    @property
    def row(self) -> FenceRow:
        """The fence row as last changed by this run."""
        found = self._row if self._committer is None else self._committer.row
        if found is None:
            raise RuntimeError("nothing is claimed yet")
        return found

    @property
    def version(self) -> int | None:
        """The row's version, None before the claim."""
        return None if self._row is None else self.row.version

    @property
    def in_progress(self) -> InProgress | None:
        """The batch that is being written."""
        return self._in_progress

    @property
    def hand(self) -> Batch:
        """The batch that is being read or written; an empty one between batches."""
        return EMPTY if self._plan is None else self._plan.hand

    def collect(self) -> bool:
        """Delete the files that nothing reaches any more, and return whether there is a claim to do so.

        One thread at a time.  Raises FenceError.
        """
        if self._collector is None:
            return False
        self._collector.collect()
        return True

    def run(self) -> None:
        """Claim, then run the query until `stop`; whatever goes wrong is raised."""
        try:
            with replaced(self._recorded):
                with suppress(Stopping):
                    self._claim()
                    self._stream()
                check_held(self._fence, None if self._row is None else self.row, self._config)
        finally:
            self._polling.end()

    def _claim(self) -> None:
        """Bind the epoch to this driver. Raises as `Loop.claim`."""
        topics = self._config.source.topics

        def start(row: FenceRow) -> Starting:
            found = self._claiming.start(row)
            return starting(self._claiming.row or row, found, topics)

        row = self._fence.claim(
            epoch=self._config.epoch,
            driver=self._driver,
            code=self._config.code,
            start=start,
            owner=self._config.owner,
        )
        planned = unpack_planned(row.planned_log)
        self._row, self._inherited = row, None if planned is None else planned.batch
        self._claimed(row)
        self._show()

    def _stream(self) -> None:
        checkpoint, committer = reopened(
            self._fence,
            self.row,
            facts=self,
            chunks=self._chunks,
            ids=self._ids,
            now=lambda: time.time_ns() // 1_000_000,
            ended=self._ended,
        )
        self._checkpoint, self._committer = checkpoint, committer
        self._plan = StreamPlan(
            config=self._config,
            row=lambda: committer.coming,
            source=self._source,
            records=self._records,
            stop=self._stop,
            leader_epochs=self._claiming.leader_epochs,
            written_until=self._claiming.written_until,
            now=self._now,
            wait=self._wait,
        )
        self._collector = Collector(
            self._fence,
            committer.row,
            chunks=self._chunks,
            index=self._index,
            serving=lambda: self._serving(checkpoint, committer),
            snapshots=self._snapshots,
        )
        try:
            with replaced(self._cause), self._serve(checkpoint, self._store, self._failed) as location:
                self._query.run(location, self._plan, self._write)
        finally:
            checkpoint.close()
            self._plan.close()

    def _serving(self, checkpoint: Checkpoint, committer: FenceCommitter) -> frozenset[UUID]:
        # In this order: an id becomes an upload, and an upload a file of the row.
        return self._ids.unused | checkpoint.reached | committer.reached

    def _write(self, rows: DataFrame, number: int) -> None:
        """Write the rows of the batch that is planned; its state is written with them.

        Spark has compared the query with the state by now, and run no task.
        """
        assert self._checkpoint is not None  # noqa: S101 - it is served
        self._checkpoint.begin()
        batch, row = self.hand, self.row
        if batch.is_empty and row.planned != row.offsets:
            raise BatchFailed("Spark has rows of a batch whose records it never asked for", remedy="Report this.")
        began = self._now() if self._began is None else self._began
        self._in_progress = InProgress(batch=batch, row=row, since=began)
        is_repeated = batch.is_repeated or number == self._inherited
        assert self._plan is not None  # noqa: S101 - there is a batch
        planning = self._plan.planning
        watch = Stopwatch(self._now, planning[0] if planning else began)
        if planning:
            watch.passed("plan", *planning)
        with watch.phase("write"):
            written = self._query.write(rows, batch, row, is_repeated=is_repeated)
        epochs = self._plan.written(written)
        facts = WrittenBatch(
            records=batch.records,
            duration_ms=round((self._now() - began) * 1000),
            leader_epochs=epochs.leader_epochs,
            epoch_starts=epochs.epoch_starts,
            event_time=self._query.event_time(number),
            record_times=written.record_times,
            figures=of_batch(written, limit=self._plan.limit, driver=self._memory()),
        )
        self._written = batch, written, facts, watch

    def planned(self, offset_log: str, row: FenceRow) -> PlannedBatch:  # noqa: ARG002 - the plan has the row
        """Return the ranges of the batch that this offset log describes."""
        assert self._plan is not None  # noqa: S101 - it has chosen the batch
        self._began = self._now()
        return self._plan.planned(end_of(offset_log))

    def written(self, batch: int) -> WrittenBatch:
        """Return what is known of the batch, which is written. Raises BatchFailed where it is not."""
        if self._written is None:
            raise BatchFailed(f"batch {batch} is to be committed before it is written", remedy="Report this.")
        return self._written[2]

    def committed(self, row: FenceRow) -> None:
        """End the batch in progress: report its commit, and mirror it."""
        assert self._plan is not None and self._written is not None  # noqa: S101, PT018 - a batch is committed
        batch, written, facts, watch = self._written
        watch.passed("commit", watch.started + (watch.starts["write"] + watch.phases["write"]) / 1000, self._now())
        plan, self._written, self._in_progress, self._began = self._plan, None, None, None
        plan.committed()
        self._request_failure = None
        self._show()
        self._report(
            Report(
                epoch=row.epoch,
                version=row.version,
                records=batch.records,
                size=written.size,
                limit=plan.limit,
                work=written.work,
                phases={**watch.phases, **written.phases, "total": facts.duration_ms},
                lag=plan.lag,
                ranges=batch.ranges,
                starts=watch.starts,
                seconds=watch.total() / 1000,
                unavailable=plan.unavailable,
                clock_skew_ms=self._fence.clock_skew_ms,
                event_time=facts.event_time,
                state=self._state_size(),
            )
        )

    def _state_size(self) -> StateSize | None:
        """Return how large the state is; say once in a run that it exceeds its room."""
        state, committer = self._config.state, self._committer
        if state is None or committer is None:
            return None
        if committer.size > state.max_bytes and not self._is_oversized:
            self._is_oversized = True
            log.warning(
                "the state has %d bytes, and spec.state.maxBytes is %d: raise it before workers are evicted, or keep"
                " less state, by shorter windows, watermarks and timeouts",
                committer.size,
                state.max_bytes,
            )
        return StateSize(used=committer.size, room=state.max_bytes)

    def logged(self, offset_log: str, offsets: Mapping[str, int]) -> str:
        """Return the offset log with these offsets."""
        return with_end(offset_log, offsets)

    def _show(self) -> None:
        topics = set(self._config.source.topics)
        self._mirror({key: at for key, at in self.row.offsets.items() if split_offset_key(key)[0] in topics})

    def _ended(self, error: BaseException) -> None:
        """Keep why a plan or a commit failed; end the process at once where another driver has the row."""
        self._failure = self._failure or error
        if isinstance(error, Fenced | FenceMissing):
            self._end(error)

    def _failed(self, error: Exception) -> None:
        self._request_failure = error

    def _cause(self, error: Exception) -> BaseException:
        """Return why the query ended: Spark knows the text of what the checkpoint answered, and not the cause."""
        if self._failure is not None:
            return _of_checkpoint(self._failure)
        # Not a kind of its own: RecordFailed and OutOfMemory have their cause.
        if type(error) is BatchFailed and self._request_failure is not None:
            return _of_checkpoint(self._request_failure)
        if isinstance(error, DataLoss) and error.reason is Reason.OFFSET_OUT_OF_RANGE and self._is_accepted():
            return BatchFailed(
                f"{error.message}; that was accepted before",
                reason=error.reason,
                remedy="Nothing to do: the next run continues after the deleted records.",
            )
        if self._config.isolate and suspects_record(error):
            return self._named(error)
        return error

    def _named(self, error: Exception) -> Exception:
        """Return which record of the batch at hand fails alone; the error itself where none does."""
        log.warning("the batch failed: looking for the record", extra={"fields": {"error": str(error)}})
        try:
            return failing_record(self.hand.ranges, self._query.rehearse) or error
        except DriverError as other:
            log.warning("no record is found: %s", other.message)
            return error

    def _is_accepted(self) -> bool:
        return self._claiming.without_expired(self.row, self._polling.insist()) is not None

    def _recorded(self, error: Exception) -> Exception:
        return recorded(
            error,
            self.row if self._row is not None else self._claiming.row,
            is_claimed=self._row is not None,
            epoch=self._config.epoch,
            fence=self._fence,
            polling=self._polling,
            records=self._records,
            topics=self._config.source.topics,
        )


def _of_checkpoint(error: BaseException) -> BaseException:
    """Return the error of a run for one of the checkpoint's."""
    if isinstance(error, LogTooLong):
        return BadSpec(
            str(error),
            reason=Reason.STATE_TOO_LARGE,
            remedy="Read fewer partitions of Kafka: name fewer topics in spec.source.kafka.topics, or topics with fewer"
            " partitions. For a log in commits/, create a pipeline with fewer spec.state.partitions.",
        )
    if isinstance(error, CheckpointFull):
        return BadSpec(
            str(error),
            reason=Reason.STATE_TOO_LARGE,
            remedy="Keep less state: shorter windows and timeouts, or fewer state partitions.",
        )
    if isinstance(error, CheckpointDamaged):
        return BatchFailed(
            str(error),
            reason=Reason.STATE_UNAVAILABLE,
            remedy="Repair the tables of the state in Cassandra, or rewind to a snapshot.",
        )
    if isinstance(error, CheckpointError):
        return BatchFailed(f"{type(error).__name__}: {error}", reason=Reason.FAILED)
    return error
