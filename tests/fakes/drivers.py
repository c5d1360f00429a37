"""A driver in memory: it claims its epoch, commits batches behind the real fence, and ends as the real one does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from fencepost.batch import Watermarks
from fencepost.contract import DriverConfig, ExitCode, Reason, ReportedLoss, Verdict, split_offset_key
from fencepost.driver.planning import plan
from fencepost.driver.planning.awaiting import has_begun, refuse_open_batch
from fencepost.driver.recovery import lost_ranges
from fencepost.driver.sizing.batch_limit import RAISE_LIMIT
from fencepost.driver.watchdogs import FIRST_EXECUTOR_LIMIT, SIGN_INTERVAL
from fencepost.errors import BadSpec, DataLoss
from fencepost.fence import Fence, Fenced, FenceMissing, FenceRow, FenceUnavailable, Starting

WARM_UP = timedelta(seconds=4)
STOPPING = timedelta(seconds=1)
SIGN = timedelta(seconds=SIGN_INTERVAL)


@dataclass(slots=True)
class Driver:
    """One process. `step` lets it do what it would have done by now."""

    config: DriverConfig
    uid: str
    fence: Fence
    ends: Callable[[], Mapping[str, int] | None]
    """The log ends, or None while Kafka is down."""
    started_at: datetime | None = None
    row: FenceRow | None = None
    frozen: bool = False
    asked_at: datetime | None = None
    exit_code: int | None = None
    finished_at: datetime | None = None
    verdict: Verdict | None = None
    committed_at: datetime | None = None
    had_executors: bool = False
    is_warm: bool = False
    """It awaits its epoch."""
    master: tuple[int, int] | None = None
    """The master that it registered with: the cluster's generation, and how many masters that had before."""
    lonely_since: datetime | None = None
    """Since when it has had no executor."""
    fails_with: ExitCode | None = None
    batch_takes: timedelta = timedelta(0)
    """From the start of a batch to its commit; it reports progress at each step in between."""
    batch_since: datetime | None = None
    hangs: bool = False
    """Its batches neither end nor report progress, and it gives no sign of life."""
    signed_at: datetime | None = None
    is_mute: bool = False
    """Neither its heartbeats nor its reports from inside a batch arrive, whatever else it does."""
    beat: tuple[datetime, int] | None = None
    """When it last looked whether a heartbeat is due, and the version of its row then."""
    fits: int | None = None
    """How many records of a batch fit into memory; a larger batch ends the process."""
    limit: int = field(init=False)
    """Maximum number of records of a batch; a reduced one doubles once in a while."""
    limited_since: datetime | None = None
    knows_finishing: bool = True
    """False: it is of an older release, and continues after what it was to finish."""
    wrote: list[tuple[str, Mapping[str, int], Mapping[str, int]]] = field(default_factory=list)
    """Batches that it began: the code, the offsets before and after."""
    lost: Mapping[str, Any] = field(default_factory=dict)
    """How the log differs from one that has everything; fields of Watermarks."""
    claiming: FenceRow | None = None
    accepted: list[str] = field(default_factory=list)
    """Ids of the losses that its claim took out."""
    moved: tuple[Mapping[str, int], Mapping[str, int]] | None = None
    """The offsets before its claim and after it, when that took a loss out."""
    commits: list[tuple[int, Mapping[str, int], Mapping[str, int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        most = self.config.source.max_records_per_batch
        self.limit = min(most, self.config.first_batch_limit or most)

    @property
    def alive(self) -> bool:
        """Whether the process exists, frozen or not."""
        return self.exit_code is None

    def step(self, now: datetime, *, executors: bool) -> None:
        """Do what is due."""
        if not self.alive or self.frozen or self.started_at is None:
            return
        self.lonely_since = None if executors else self.lonely_since or now
        self.had_executors = self.had_executors or executors
        patience = self.config.executor_patience if self.had_executors else FIRST_EXECUTOR_LIMIT
        if self.lonely_since is not None and now - self.lonely_since > timedelta(seconds=patience):
            self.end(now, ExitCode.NO_EXECUTORS)
            return
        try:
            self._beat(now)
            self._work(now, executors=executors)
        except (Fenced, FenceMissing):
            self.end(now, ExitCode.FENCED)
        except FenceUnavailable:
            return

    def end(self, now: datetime, code: int, message: str = "", *, reason: Reason | None = None) -> None:
        """End the process; with exit code 54 it says by default that Kafka did not answer."""
        self.exit_code, self.finished_at = int(code), now
        reason = reason or (Reason.KAFKA_UNREACHABLE if code == ExitCode.DEPENDENCY_DOWN else Reason.RUN_ENDED)
        self.verdict = Verdict(exit_code=int(code), reason=reason, message=message or f"exit {code}", remedy="")

    def _work(self, now: datetime, *, executors: bool) -> None:
        starts = self.started_at is None or now - self.started_at < WARM_UP or not executors
        if self.row is None and (starts or self._awaits_its_epoch()):
            if self.asked_at is not None:
                self.end(now, ExitCode.STOPPED)
            return
        if self.fails_with is not None:
            self.end(now, self.fails_with)
            return
        ends = self.ends()
        if self.row is None:
            if ends is None or not self._claim(now):
                return
        elif self._is_finished(self.row):
            self._stop(now)
            return
        elif ends is not None and self._due(now):
            self._batch(now, ends)
            self._sign(now)
        if self.asked_at is not None and now - self.asked_at >= STOPPING:
            self._stop(now)

    def _awaits_its_epoch(self) -> bool:
        if self.fails_with is not None or not self.config.awaits_epoch or has_begun(self.fence.read(), self.config):
            return False
        self.is_warm = True
        return True

    def _stop(self, now: datetime) -> None:
        if self.row is not None and self.config.hands_over:
            self.fence.end_epoch(self.row, seconds=0.0)
        self.end(now, ExitCode.STOPPED)

    def _claim(self, now: datetime) -> bool:
        try:
            self.row = self.fence.claim(
                epoch=self.config.epoch,
                driver=self.uid,
                code=self.config.code,
                start=self._start,
                owner=self.config.owner,
            )
        except DataLoss as error:
            self._lose(now, error)
        except BadSpec as error:
            self.end(now, ExitCode.BAD_SPEC, str(error), reason=error.reason)
        return self.alive

    def _start(self, row: FenceRow) -> Starting:
        refuse_open_batch(row, self.config)
        source = self.config.source
        log = replace(_log(self.ends() or {}), **self.lost)
        remaining = lost_ranges.without_accepted(row, self.fence.read_losses(row), log)
        self.accepted = [report.loss.id for report in remaining.accepted]
        self.claiming = remaining.row
        found = plan.starting(
            remaining.row,
            log,
            source.topics,
            source.starting_offsets,
            source.max_records_per_batch,
            first_limit=self.config.first_batch_limit,
            replaced=remaining.starts,
        )
        if bound := self.config.finish_until if self.knows_finishing else {}:
            planned = self._bounded(found.offsets, found.planned, bound)
            begun = plan.begun(remaining.row, found.offsets, planned, source.topics)
            found = replace(found, planned=planned, begun=begun)
        self.moved = (row.offsets, found.offsets) if remaining.accepted else None
        return found

    def _lose(self, now: datetime, error: DataLoss) -> None:
        """Record a loss, and end with it."""
        lost = error
        if self.claiming is not None:  # else an acceptance cannot be applied, and the loss is recorded
            lost = lost_ranges.completed(error, self.claiming)
            assert lost.loss is not None
            self.fence.report_loss(ReportedLoss(loss=lost.loss, epoch=self.config.epoch, at=now))
        assert lost.loss is not None
        self.end(now, ExitCode.DATA_LOSS, lost.message, reason=lost.reason)
        assert self.verdict is not None
        self.verdict = replace(self.verdict, loss=lost.loss.id)

    def _is_finished(self, row: FenceRow) -> bool:
        bound = self.config.finish_until if self.knows_finishing else {}
        return bool(bound) and all(row.offsets.get(key, end) >= end for key, end in bound.items())

    @staticmethod
    def _bounded(offsets: Mapping[str, int], until: Mapping[str, int], bound: Mapping[str, int]) -> dict[str, int]:
        return {key: min(end, max(offsets[key], bound.get(key, offsets[key]))) for key, end in until.items()}

    def _due(self, now: datetime) -> bool:
        interval = timedelta(seconds=self.config.batch_interval)
        return self.committed_at is None or now - self.committed_at >= interval or self.asked_at is not None

    def _batch(self, now: datetime, ends: Mapping[str, int]) -> None:
        row = self.row
        if self.hangs or row is None:
            return
        if self.batch_since is None:
            self._raise_limit(now)
            until = row.planned if row.planned != row.offsets else self._after(row, ends)
            if until == row.offsets:
                return
            if (self.batch_takes or self.fits is not None) and row.planned != until:
                row = self.row = self._plan(row, until)
            self.batch_since = now
        if self.batch_since == now and row.planned != row.offsets:
            self.wrote.append((self.config.code, row.offsets, row.planned))
        if self.fits is not None and _records(row.offsets, row.planned) > self.fits:
            self.end(now, ExitCode.FAILED, reason=Reason.OUT_OF_MEMORY)
            return
        taken = now - self.batch_since
        if taken >= self.batch_takes:
            self.batch_since = None
            self._commit(now, ends)
        elif not self.is_mute:
            self.fence.report_progress(row, int(taken.total_seconds()))

    def _sign(self, now: datetime) -> None:
        """Give a sign of life between two batches."""
        if self.row is None or self.hangs or self.batch_since is not None:
            return
        if self.signed_at is None or now - self.signed_at >= SIGN:
            self.signed_at = now
            self.fence.give_sign(self.row)

    def _beat(self, now: datetime) -> None:
        """Give a heartbeat where the row has stayed as it is for the interval between two."""
        if self.row is None or not self.config.heartbeat:
            return
        since, version = self.beat or (now, -1)
        pause = self.config.idle_heartbeat if self._is_idle(self.row) else self.config.heartbeat
        if version == self.row.version and now - since < timedelta(seconds=pause):
            return
        self.beat = now, self.row.version
        if version in {-1, self.row.version} and not self.is_mute:
            with suppress(FenceUnavailable):
                self.fence.beat(self.row)

    def _is_idle(self, row: FenceRow) -> bool:
        """Return whether it looks for records, and finds none."""
        if self.hangs or self.batch_since is not None or row.planned != row.offsets:
            return False
        ends = self.ends()
        return ends is not None and all(row.offsets.get(key) == end for key, end in ends.items())

    def _raise_limit(self, now: datetime) -> None:
        since = self.limited_since = self.limited_since or self.started_at or now
        if now - since >= timedelta(seconds=RAISE_LIMIT):
            self.limit = min(2 * self.limit, self.config.source.max_records_per_batch)
            self.limited_since = now

    def _after(self, row: FenceRow, ends: Mapping[str, int]) -> Mapping[str, int]:
        until = plan.next_batch(row.offsets, _log(ends), self.config.source.topics, self.limit).until
        bound = self.config.finish_until if self.knows_finishing else {}
        return self._bounded(row.offsets, until, bound) if bound else until

    def _plan(self, row: FenceRow, until: Mapping[str, int]) -> FenceRow:
        return self.fence.plan(row, offsets=row.offsets, planned=until)

    def _commit(self, now: datetime, ends: Mapping[str, int]) -> None:
        row = self.row
        assert row is not None
        after = row.planned if row.planned != row.offsets else self._after(row, ends)
        if after == row.offsets:
            return
        records = _records(row.offsets, after)
        self.wrote.append((self.config.code, row.offsets, after))
        state = b"state" if self.config.state is not None else None
        self.row = self.fence.commit(
            row, offsets=after, planned=after, records=records, duration_ms=200, log_ends=ends, checkpoint=state
        )
        self.commits.append((self.config.epoch, row.offsets, after))
        self.committed_at = now


def _log(ends: Mapping[str, int]) -> Watermarks:
    topics = {split_offset_key(key)[0] for key in ends}
    return Watermarks(begins=dict.fromkeys(ends, 0), ends=ends, topic_ids={topic: f"id-{topic}" for topic in topics})


def _records(before: Mapping[str, int], after: Mapping[str, int]) -> int:
    return sum(after.values()) - sum(before.values())
