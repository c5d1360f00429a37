"""The driver as an actor: it plans, writes its rows and commits behind the real fence; each step may be its last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from fakes.drivers import Driver, _log
from fencepost.batch import Batch, Watermarks, between
from fencepost.contract import ExitCode, Reason
from fencepost.driver import watchdogs
from fencepost.driver.planning import plan
from fencepost.driver.planning.claiming import Claiming
from fencepost.driver.planning.log_polling import LogPolling
from fencepost.driver.recovery.poison import Isolator
from fencepost.driver.reporting.verdict import judge
from fencepost.errors import DataLoss, DriverError
from fencepost.fence import Fenced, FenceRow, FenceUnavailable, Starting
from simulation.content import Attempts, Contents, FenceSteps, SetAside
from simulation.failure import require
from simulation.invariants import Output

FENCE_CHECK = timedelta(seconds=watchdogs.FENCE_CHECK)
PATIENCE = timedelta(seconds=30)
"""How long a driver waits for Cassandra before it ends."""


class SimulatedPolling(LogPolling):
    """Looks at a log that answers at once."""

    def __init__(self, state: Callable[[], Watermarks]) -> None:
        self._state = state

    def now(self) -> Watermarks:
        """Return what the log holds now."""
        return self._state()


def _answers_at_once(_seconds: float) -> None:
    raise AssertionError("the log has answered, and the claim waits")


@dataclass(slots=True)
class SimulatedDriver(Driver):
    """A driver that writes rows, notices losses, and gives up on a Cassandra that stays away."""

    output: Output = field(default_factory=Output)
    ends_at_claim: list[int] = field(default_factory=list)
    """Exit codes with which the next drivers end as soon as they have claimed."""
    contents: Contents = field(default_factory=Contents)
    claims: Claiming | None = None
    isolator: Isolator | None = None
    planning: plan.Plan | None = None
    generation: int = 0
    dies_before_commit: int | None = None
    """The exit code with which it ends once its next batch is written."""
    unanswered_since: datetime | None = None
    looked_at: datetime | None = None

    def step(self, now: datetime, *, executors: bool) -> None:
        """Do what is due."""
        if self.exit_code is not None or self.frozen:
            return
        waits = self.unanswered_since
        self.unanswered_since = None
        Driver.step(self, now, executors=executors)
        if self._is_unanswered():
            self.unanswered_since = waits or now
            if now - self.unanswered_since > PATIENCE:
                self.end(now, ExitCode.DEPENDENCY_DOWN, reason=Reason.CASSANDRA_UNREACHABLE)
        self._watch_fence(now)

    def _watch_fence(self, now: datetime) -> None:
        """End once the fence is another's, as an idle driver finds out: see `fencepost.driver.watchdogs`."""
        since = self.looked_at or self.started_at
        if self.exit_code is not None or since is None or now - since < FENCE_CHECK:
            return
        self.looked_at = now
        try:
            row = self.fence.read()
        except FenceUnavailable:
            return
        if row is None or (self.config.awaits_epoch and row.epoch < self.config.epoch):
            return
        if row.epoch != self.config.epoch or row.driver not in {None, self.uid}:
            self.end(now, ExitCode.FENCED)

    def _is_unanswered(self) -> bool:
        return self.unanswered_since is not None

    def _work(self, now: datetime, *, executors: bool) -> None:
        try:
            Driver._work(self, now, executors=executors)
        except FenceUnavailable:
            self.unanswered_since = now
        except Fenced:
            if self.row is not None and self.dies_before_commit is None:
                self._write(self.row, self.row.planned)  # executors may be a moment behind their driver
            raise

    def _claim(self, now: datetime) -> bool:
        if Driver._claim(self, now) and self.ends_at_claim:
            self.end(now, self.ends_at_claim.pop(0))
        return self.alive

    def _start(self, row: FenceRow) -> Starting:
        self.claims = Claiming(
            config=self.config,
            fence=self.fence,
            polling=SimulatedPolling(lambda: self._state(self.ends() or {})),
            limit=self.config.source.max_records_per_batch,
            wait=_answers_at_once,
        )
        try:
            return self.claims.start(row)
        finally:
            self.claiming = self.claims.row

    def _state(self, ends: Mapping[str, int]) -> Watermarks:
        """Return the log, with what it has lost; Kafka has long said that a topic without partitions does not exist."""
        log = _log(ends)
        absent = {topic: plan.AGREEMENT for topic in self.config.source.topics if topic not in log.topic_ids}
        return replace(
            log,
            begins={**log.begins, **self.lost.get("begins", {})},
            topic_ids={**log.topic_ids, **self.lost.get("topic_ids", {})},
            missing=absent,
        )

    def _batch(self, now: datetime, ends: Mapping[str, int]) -> None:
        if self.lost and self.row is not None:
            self._check_log(now, self.row, self._state(ends))
            if not self.alive:
                return
        Driver._batch(self, now, ends)
        if self.row is not None and self.batch_since == now:
            self._write(self.row, _halves(self.row))

    def _check_log(self, now: datetime, row: FenceRow, log: Watermarks) -> None:
        """Move past what retention deleted where that is accepted; end with any other loss."""
        assert self.claims is not None
        try:
            plan.advance(_position(row), row.topic_ids, log, self.config.source.topics)
        except DataLoss as error:
            is_expired = error.reason is Reason.OFFSET_OUT_OF_RANGE
            found = self.claims.without_expired(row, log) if is_expired else None
            if found is None:
                self.claiming = row
                self._lose(now, error)
                return
            self.row = self.fence.skip(row, offsets=found.offsets, growth_barrier=found.growth_barrier)
            self.batch_since = None

    def _after(self, row: FenceRow, ends: Mapping[str, int]) -> Mapping[str, int]:
        """Plan the next batch as the loop does; `planning` has all of the plan."""
        log, topics, bound = self._state(ends), self.config.source.topics, self.config.finish_until
        found = plan.after(_position(row), row.topic_ids, log, topics, self.limit)
        if bound:
            found = replace(found, batch=plan.up_to(found.batch, found.position.offsets, bound))
        self.planning = found
        return {**found.position.offsets, **found.batch.until}

    def _plan(self, row: FenceRow, until: Mapping[str, int]) -> FenceRow:
        found = self.planning
        assert found is not None
        return self.fence.plan(
            row,
            offsets=found.position.offsets,
            planned=until,
            growth_barrier=found.position.barrier,
            log_ends=found.log_ends,
        )

    def _commit(self, now: datetime, ends: Mapping[str, int]) -> None:
        assert self.row is not None
        if self.row.planned == self.row.offsets:
            after = self._after(self.row, ends)
            if after == self.row.offsets:
                return
            self.row = self._plan(self.row, after)
        batch = between(self.row.offsets, self.row.planned)
        if self.contents.failing and self.contents.first(batch.spans()):
            self._fail(now, batch, ends)
            return
        self._write(self.row, self.row.planned)
        if self.dies_before_commit is not None:
            self.end(now, self.dies_before_commit)
            return
        Driver._commit(self, now, ends)

    def _fail(self, now: datetime, batch: Batch, ends: Mapping[str, int]) -> None:
        """Do a batch with a record that fails: end, or without that record where this run isolates it."""
        attempts, steps = (
            Attempts(self, self.contents, self.output, lambda: self._state(ends)),
            FenceSteps(self, self.contents),
        )
        try:
            attempts.write(batch, steps.row)
        except DriverError as error:
            try:
                if not self.config.isolate:
                    raise
                self._isolator(attempts).isolate(batch, error, steps)
                self.committed_at = now
            except DriverError as last:
                self.end(now, last.code)
                self.verdict = judge(last, epoch=steps.row.epoch, version=steps.row.version, batch=batch.spans())
                self._check_verdict(last)

    def _isolator(self, attempts: Attempts) -> Isolator:
        letters = SetAside(self.contents, self.output) if self.config.dead_letter_retention is not None else None
        self.isolator = self.isolator or Isolator(
            engine=attempts,
            source=attempts,
            records=attempts,
            letters=letters,
            stopping=lambda: self.asked_at is not None,
        )
        return self.isolator

    def _check_verdict(self, error: DriverError) -> None:
        """Look whether a run that a record ended says so, and names the record where it knows it."""
        assert self.verdict is not None
        require(self.verdict.suspect, f"a record's content decides the verdict: {self.verdict.reason}")
        self.output.met[f"run ended by content: {type(error).__name__}"] += 1
        for key, offset in self.verdict.record.items():
            is_failing = offset in self.contents.failing.get(key, {})
            require(is_failing, f"a good record is called poison: {key} offset {offset}")

    def _write(self, row: FenceRow, until: Mapping[str, int]) -> None:
        ranges = {key: (row.offsets.get(key, 0), end) for key, end in until.items() if end > row.offsets.get(key, 0)}
        self.output.write(row, self.uid, self.config.code, ranges)


def _position(row: FenceRow) -> plan.Position:
    return plan.Position(offsets=row.offsets, barrier=row.growth_barrier, log_ends=row.log_ends)


def _halves(row: FenceRow) -> dict[str, int]:
    """Return how far the rows of a batch are written soon after it began."""
    return {key: offset + (row.planned.get(key, offset) - offset + 1) // 2 for key, offset in row.offsets.items()}
