"""The driver as an actor: it plans, writes its rows and commits behind the real fence; each step may be its last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from fakes.drivers import Driver, _log
from fencepost.batch import Watermarks
from fencepost.contract import ExitCode, Reason
from fencepost.driver import plan, watches
from fencepost.driver.claiming import Claiming
from fencepost.driver.looks import Looks
from fencepost.errors import DataLoss
from fencepost.fence import Fenced, FenceRow, FenceUnavailable, Starting
from simulation.invariants import Output

FENCE_CHECK = timedelta(seconds=watches.FENCE_CHECK)
PATIENCE = timedelta(seconds=30)
"""How long a driver waits for Cassandra before it ends."""


class SimulatedLooks(Looks):
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
    claims: Claiming | None = None
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
        """End once the fence is another's, as an idle driver finds out: see `fencepost.driver.watches`."""
        since = self.looked_at or self.started_at
        if self.exit_code is not None or since is None or now - since < FENCE_CHECK:
            return
        self.looked_at = now
        try:
            row = self.fence.read()
        except FenceUnavailable:
            return
        if row is not None and (row.epoch != self.config.epoch or row.driver not in {None, self.uid}):
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
            looks=SimulatedLooks(lambda: self._state(self.ends() or {})),
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
        self._write(self.row, self.row.planned)
        if self.dies_before_commit is not None:
            self.end(now, self.dies_before_commit)
            return
        Driver._commit(self, now, ends)

    def _write(self, row: FenceRow, until: Mapping[str, int]) -> None:
        ranges = {key: (row.offsets.get(key, 0), end) for key, end in until.items() if end > row.offsets.get(key, 0)}
        self.output.write(row, self.uid, self.config.code, ranges)


def _position(row: FenceRow) -> plan.Position:
    return plan.Position(offsets=row.offsets, barrier=row.growth_barrier, log_ends=row.log_ends)


def _halves(row: FenceRow) -> dict[str, int]:
    """Return how far the rows of a batch are written soon after it began."""
    return {key: offset + (row.planned.get(key, offset) - offset + 1) // 2 for key, offset in row.offsets.items()}
