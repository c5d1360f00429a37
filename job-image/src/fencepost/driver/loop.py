"""The stateless loop: plan, write, commit. It knows protocols alone, so that every failure can be tried in memory.

What holds at each step:

- a batch's end is in the fence row (`planned`) before its first row is written, so a successor repeats the very same
  batch, also when it was begun after an idle time;
- the offsets move only after all its rows are written, in one conditional update; so a crash anywhere repeats the
  batch, and the repetition overwrites every row that the first try left;
- any exception leaves the loop, and nothing after it is written or committed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from fencepost.batch import EMPTY, Batch, Watermarks, Written, between
from fencepost.contract import DriverConfig, split_offset_key
from fencepost.driver import plan
from fencepost.errors import DriverError
from fencepost.fence import Fence, FenceRow

POLL: Final = 1.0
"""Longest time in seconds between two looks at an idle log."""
KEEP_WARM: Final = 30.0
"""Seconds of idleness after which the workers are exercised: Spark ends Python workers that idle for a minute."""


class Log(Protocol):
    """The source's log."""

    def state(self) -> Watermarks:
        """Return what the log holds now. Raises DependencyDown."""
        ...


class Engine(Protocol):
    """What turns a batch into rows in the sinks."""

    def write(self, batch: Batch, row: FenceRow) -> Written:
        """Read, transform and write the whole batch at `row.write_timestamp`, or raise."""
        ...

    def keep_warm(self) -> None:
        """Exercise the same path with no records."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One committed batch, for the log. Times in ms; `lag` is what the log held beyond it."""

    epoch: int
    version: int
    records: int
    rows: Mapping[str, int]
    phases: Mapping[str, int]
    lag: int | None


class Stopwatch:
    """Milliseconds by phase of one batch."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.started = now()
        self.phases: dict[str, int] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a block."""
        before = self._now()
        try:
            yield
        finally:
            self.phases[name] = round((self._now() - before) * 1000)

    def total(self) -> int:
        """Milliseconds since the batch began."""
        return round((self._now() - self.started) * 1000)


class Loop:
    """One run of one pipeline. `stop` ends it after the batch in hand; `hand` and `row` say where it was."""

    def __init__(
        self,
        *,
        config: DriverConfig,
        driver: str,
        fence: Fence,
        source: Log,
        engine: Engine,
        stop: threading.Event,
        report: Callable[[Report], None],
        now: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self._config = config
        self._driver = driver
        self._fence = fence
        self._source = source
        self._engine = engine
        self._stop = stop
        self._report = report
        self._now = now
        self._wait = wait or stop.wait
        self._ahead = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plan-ahead")
        self._row: FenceRow | None = None
        self._exercised = now()
        self.hand: Batch = EMPTY
        """The batch that is being written, for the verdict."""

    @property
    def row(self) -> FenceRow:
        """The fence row as last changed by this run."""
        if self._row is None:
            raise RuntimeError("nothing is claimed yet")
        return self._row

    @property
    def version(self) -> int | None:
        """The row's version, None before the claim."""
        return None if self._row is None else self._row.version

    def claim(self) -> None:
        """Bind the epoch to this driver. Raises Fenced, DataLoss, BadSpec, FenceUnavailable."""
        source = self._config.source
        self._row = self._fence.claim(
            epoch=self._config.epoch,
            driver=self._driver,
            code=self._config.code,
            start=lambda row: plan.starting(
                row, self._source.state(), source.topics, source.starting_offsets, source.max_records_per_batch
            ),
        )

    def run(self) -> None:
        """Claim, then batch after batch until `stop`; whatever goes wrong is raised."""
        try:
            self.claim()
            batch = self._planned()
            while not self._stop.is_set():
                watch = Stopwatch(self._now)
                if batch.is_empty:
                    batch = self._plan(watch)
                if batch.is_empty:
                    self._idle()
                    continue
                ahead = self._do(batch, watch)
                full = batch.records >= self._config.source.max_records_per_batch
                batch = ahead
                if batch.is_empty and not full:
                    self._pause(watch)
        finally:
            self._ahead.shutdown(wait=False, cancel_futures=True)

    def _planned(self) -> Batch:
        """Return the batch that the row says comes next."""
        topics = set(self._config.source.topics)
        until = {key: end for key, end in self.row.planned.items() if split_offset_key(key)[0] in topics}
        return between(self.row.offsets, until)

    def _plan(self, watch: Stopwatch) -> Batch:
        """Plan the next batch and record its end at the fence, before anything of it is written."""
        with watch.phase("plan"):
            batch = self._next(self.row.offsets)[0]
        if not batch.is_empty:
            with watch.phase("record"):
                offsets = {**self.row.offsets, **_starts(batch)}
                self._row = self._fence.plan(self.row, offsets=offsets, planned=batch.until)
        return batch

    def _next(self, offsets: Mapping[str, int]) -> tuple[Batch, int]:
        """Return the batch after `offsets` and the lag there. Raises DataLoss, DependencyDown."""
        source = self._config.source
        state = self._source.state()
        grown = plan.advance(offsets, self.row.topic_ids, state, source.topics)
        batch = plan.next_batch(grown, state, source.topics, source.max_records_per_batch)
        lag = sum(max(0, state.ends[key] - offset) for key, offset in grown.items() if key in state.ends)
        return Batch(ranges=batch.ranges, until={**grown, **batch.until}), lag

    def _do(self, batch: Batch, watch: Stopwatch) -> Batch:
        """Write and commit one batch; return the next one when there is a full one, else an empty batch."""
        self.hand = batch
        # The fence row does not change before the commit, so what comes next can be planned while this is written.
        looking = self._ahead.submit(self._next, batch.until)
        with watch.phase("write"):
            written = self._engine.write(batch, self.row)
        following, lag, trouble = _outcome(looking)
        backlog = following.records >= self._config.source.max_records_per_batch
        with watch.phase("commit"):
            self._row = self._fence.commit(
                self.row,
                offsets=batch.until,
                planned=following.until if backlog else batch.until,
                records=batch.records,
                duration_ms=watch.total(),
            )
        self.hand = EMPTY
        self._exercised = self._now()
        self._report(
            Report(
                epoch=self.row.epoch,
                version=self.row.version,
                records=batch.records,
                rows=written.rows,
                phases={**watch.phases, **written.phases, "total": watch.total()},
                lag=lag,
            )
        )
        if trouble is not None:
            raise trouble  # after the commit: what was written is complete
        return self._planned() if backlog else EMPTY

    def _idle(self) -> None:
        """Wait a little; exercise the workers now and then."""
        now = self._now()
        if now - self._exercised >= KEEP_WARM:
            self._engine.keep_warm()
            self._exercised = self._now()
        self._wait(min(max(self._config.batch_interval, 0.05), POLL))

    def _pause(self, watch: Stopwatch) -> None:
        """Let the interval between two batches' starts pass."""
        left = watch.started + self._config.batch_interval - self._now()
        if left > 0:
            self._wait(left)


def _starts(batch: Batch) -> dict[str, int]:
    """Return where a batch's ranges start; a partition that is new to the row starts with it."""
    return {part.key: part.start for part in batch.ranges}


def _outcome(looking: Future[tuple[Batch, int]]) -> tuple[Batch, int | None, DriverError | None]:
    """Return the plan made meanwhile, or why there is none; the finished batch is committed either way."""
    try:
        following, lag = looking.result()
    except DriverError as error:
        return EMPTY, None, error
    return following, lag, None
