"""What must hold at every moment: of the fence's rows, of the output, of what operators do and of what they say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from fencepost.contract import EARLIEST, Loss, ReportedLoss, commit_ms, split_offset_key
from fencepost.contract import Reason as RunReason
from fencepost.fence import FenceRow
from fencepost.fence.memory import MemoryFenceTable
from fencepost_operator.api import Condition, HandoffStatus, Pipeline, Reason, Spec, State, Status
from fencepost_operator.decision.cluster.autoscale import SCALING_LIMITED
from fencepost_operator.decision.durability import DURABILITY_AT_RISK
from fencepost_operator.decision.kafka.retention_risk import RETENTION_RISK
from fencepost_operator.decision.pausing import PAUSED, is_paused
from fencepost_operator.decision.reporting.conditions import (
    FALLING_BEHIND,
    PARTITIONS_OFFLINE,
    PROGRESS_UNREADABLE,
    TRANSACTION_STALLED,
)
from fencepost_operator.decision.reporting.failover_condition import FAILOVER_BLOCKED
from fencepost_operator.decision.reporting.incidents import WHILE_PAUSED
from fencepost_operator.decision.reporting.standby_condition import STANDBY_READY
from fencepost_operator.decision.rules.rollback import BY_THE_IMAGE
from fencepost_operator.decision.rules.upgrade import AHEAD
from fencepost_operator.decision.run.blindness import UNOBSERVED
from fencepost_operator.decision.run.diagnosis import ENVIRONMENT
from fencepost_operator.decision.run.open_batch import START_PATIENCE
from simulation.codes import NO_END, RowsByCode, Written
from simulation.failure import require

DANGEROUS: Final = frozenset({"start", "take_over", "delete_fence", "rewind"})
FACTS_OF_A_START: Final = frozenset({"fence", "runs", "cluster", "release", "references", "source"})
TYPES: Final = frozenset(
    {
        "Ready", "Stalled", "Reconciling", "Streaming", PAUSED, STANDBY_READY,
        FALLING_BEHIND, PARTITIONS_OFFLINE, PROGRESS_UNREADABLE, SCALING_LIMITED, TRANSACTION_STALLED, UNOBSERVED,
        DURABILITY_AT_RISK, FAILOVER_BLOCKED, RETENTION_RISK,
    }
)  # fmt: skip
REASONS: Final = frozenset(Reason)
NOT_REPEATED: Final = frozenset({"start", "take_over", "install", "uninstall", "create", "delete_fence"})
"""Writes that a stalled pipeline has no reason to repeat. Deletions of what is left over may fail and be repeated."""
RUNS_WHILE_INVALID: Final = 16
"""Where another spec than the object's is in effect, valid or stable: runs that fail are replaced. An operator whose
clock is ahead takes the first pauses between them for over."""
INSTEAD: Final = frozenset({Reason.INVALID_SPEC, Reason.ROLLED_BACK})
HOT_LOOP: Final = 30
MEASURED: Final = timedelta(seconds=5)
"""By how much a time may be off that an operator has measured while its wall clock was set."""


@dataclass(slots=True)
class Output:
    """The sink's table: who wrote which rows at which timestamp, and which of that is committed."""

    written: dict[str, list[Written]] = field(default_factory=dict)
    committed: dict[str, list[Written]] = field(default_factory=dict)
    codes: RowsByCode = field(default_factory=RowsByCode)
    grown: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    """By topic id the partitions that the topic got, each with the ends that the older ones had then."""
    letters: set[tuple[str, int]] = field(default_factory=set)
    """Partitions and offsets of records that were set aside."""
    met: Counter[str] = field(default_factory=Counter)
    """How often what a promise is about happened."""

    def write(self, row: FenceRow, driver: str, code: str, ranges: Mapping[str, tuple[int, int]]) -> None:
        """Write the rows of a batch that begins on `row`. A driver that was replaced must not win over commits."""
        for key, (start, until) in ranges.items():
            self._in_order(row, key)
            rows = Written(start, until, row.write_timestamp, row.epoch, driver, code)
            self.written.setdefault(key, []).append(rows)
            mixes = list(self.codes.write(key, rows))
            require(not mixes, f"rows of two codes without a record: {mixes}")
            for other in self.committed.get(key, ()):
                if other.epoch > rows.epoch and _overlap(other, rows):
                    require(rows.timestamp < other.timestamp, f"rows of a replaced driver win: {rows} over {other}")

    def commit(self, before: FenceRow, after: FenceRow) -> None:
        """Commit what the batch from `before` to `after` wrote: all of it, and no one else's rows win."""
        for key, until in after.offsets.items():
            start = before.offsets.get(key, 0)
            if until == start or (until == start + 1 and (key, start) in self.letters):
                continue
            rows = Written(start, until, before.write_timestamp, after.epoch, str(after.driver), str(after.code))
            self.committed.setdefault(key, []).append(rows)
            mine = [
                part for part in self.written.get(key, ()) if (part.epoch, part.driver) == (rows.epoch, rows.driver)
            ]
            covers = any(part.start <= start and until <= part.until for part in mine)
            require(covers, f"a commit passes rows that its driver did not write: {key} {rows}")
            for other in self.written.get(key, ()):
                if other.epoch != rows.epoch and _overlap(other, rows):
                    require(other.timestamp < rows.timestamp, f"rows of another driver win: {other} over {rows}")

    def _in_order(self, row: FenceRow, key: str) -> None:
        """Look whether records of a partition that is newer than others come after all that is older than it."""
        older = self.grown.get(row.topic_ids.get(split_offset_key(key)[0], ""), {}).get(key)
        if older is None:
            return
        behind = {old: (row.offsets.get(old, 0), end) for old, end in older.items() if row.offsets.get(old, 0) < end}
        require(not behind, f"a new partition is read before older records: {key} with {behind}")
        self.met["new partition read"] += 1

    def forget(self, topic: str, timestamp: int) -> None:
        """Begin the offsets of a topic again, as when it was recreated."""
        self.codes.begin_again(timestamp, topic)
        for found in (self.written, self.committed):
            for key in [key for key in found if split_offset_key(key)[0] == topic]:
                del found[key]


def _overlap(one: Written, other: Written) -> bool:
    return one.start < other.until and other.start < one.until


@dataclass(frozen=True, slots=True)
class Target:
    """Where a rewind goes back to, as far as it says: offsets, or the first ones that are not before a time."""

    offsets: Callable[[], Mapping[str, int]]
    delete_output: bool
    is_time: bool = False

    def fits(self, before: FenceRow, row: FenceRow, begins: Mapping[str, int]) -> bool:
        """Return whether a rewind to here may set these offsets; a partition that is held leaves them.

        The barrier has its start; without one the driver discovers it again, at 0.
        """
        back = self.offsets()
        for key, committed in before.offsets.items():
            to = row.offsets.get(key)
            if to is None:
                start = begins.get(key, 0) if self.is_time else back.get(key, committed)
                if row.growth_barrier.get(key, 0) != start:
                    return False
            elif self.is_time:
                if to > min(committed, back.get(key, committed)):
                    return False
            elif to != back.get(key, committed):
                return False
        return row.offsets.keys() <= before.offsets.keys()


@dataclass(slots=True)
class FenceRows:
    """The fence's history: one row after another, each by one lawful change."""

    output: Output
    last: FenceRow | None = None
    claimed: dict[int, str] = field(default_factory=dict)
    """Who claimed each epoch."""
    targets: list[Target] = field(default_factory=list)
    table: MemoryFenceTable = field(default_factory=MemoryFenceTable)
    """With the losses, their acceptances, and what was skipped."""
    ends: Mapping[str, int] = field(default_factory=dict)
    begins: Mapping[str, int] = field(default_factory=dict)
    """Of Kafka's log; partitions that are not in `begins` begin at 0."""
    opened: dict[str, int] = field(default_factory=dict)
    """Up to where whatever retention deletes is accepted: the log's ends when a run claimed under it."""

    def put(self, row: FenceRow) -> None:
        """Look at a change of the row."""
        before, self.last = self.last, row
        if before is None:
            require(row.epoch == 0 and row.driver is None, f"a first row that is not empty: {row}")
            return
        require(row.version == before.version + 1, f"versions jump: {before.version} to {row.version}")
        require(row.epoch - before.epoch in {0, 1}, f"epochs jump: {before.epoch} to {row.epoch}")
        require(row.clock >= before.clock, f"the clock goes back: {before.clock} to {row.clock}")
        if row.is_released:
            self.output.codes.begin_again(before.write_timestamp)
            self.output.grown.clear()
            self.opened.clear()
        if row.is_released or before.is_released:
            return
        if row.epoch > before.epoch:
            require(row.driver is None, "a takeover that names a driver")
            require(row.offsets == before.offsets, "a takeover moves offsets")
        elif row.driver is None:
            self._rewind(before, row)
        elif before.driver is None:
            self._claim(before, row)
        else:
            require(row.driver == before.driver, f"two drivers commit under epoch {row.epoch}")
            require(_at_least(row.offsets, before.offsets), f"offsets go back: {before.offsets} to {row.offsets}")
            self._admit(before, row)
            if row.committed_at == before.committed_at:
                self._skip(before, row, before.offsets)
            else:
                self.output.commit(before, row)

    def _rewind(self, before: FenceRow, row: FenceRow) -> None:
        """Look at offsets that are set. Who keeps the output wants the rows to be written again, by any code."""
        asked = [each for each in self.targets if each.fits(before, row, self.begins)]
        require(row.offsets == before.offsets or asked, f"offsets {row.offsets} of {before.offsets} were not asked for")
        self.opened.clear()
        starts = {**row.growth_barrier, **row.offsets}
        moved = {key: starts.get(key, 0) for key, at in before.offsets.items() if row.offsets.get(key) != at}
        if before.offsets.keys() - row.offsets.keys():
            self.output.met["held again by a rewind"] += 1
        if any(not target.delete_output for target in asked):
            again = {key: (offset, NO_END) for key, offset in moved.items()}
            self.output.codes.delete(again, before.write_timestamp)

    def _claim(self, before: FenceRow, row: FenceRow) -> None:
        driver = str(row.driver)
        require(self.claimed.setdefault(row.epoch, driver) == driver, f"epoch {row.epoch} is claimed twice")
        again = {topic for topic, known in row.topic_ids.items() if before.topic_ids.get(topic) != known}
        self._begin(before, row, again)
        self._open(before)
        kept = [key for key in before.offsets if split_offset_key(key)[0] not in again]
        self._skip(before, row, kept)
        self._admit(before, row, again)

    def _begin(self, before: FenceRow, row: FenceRow, topics: Iterable[str]) -> None:
        """Look at topics that a claim reads from a start: all partitions that they have are equally old then."""
        for topic in topics:
            is_accepted = any(topic in loss.topics for loss, _ in self._accepted(before))
            require(topic not in before.topic_ids or is_accepted, f"topic {topic} was recreated, which is not accepted")
            self.output.grown.pop(row.topic_ids[topic], None)
            for key in [key for key in self.opened if split_offset_key(key)[0] == topic]:
                del self.opened[key]

    def _open(self, before: FenceRow) -> None:
        """Note up to where a claim accepts whatever is gone when it is read."""
        for loss, choice in self._accepted(before):
            if _is_open(loss, choice):
                self.opened |= {key: end for key, end in self.ends.items() if split_offset_key(key)[0] in loss.topics}
                self.output.met["claim under an open acceptance"] += 1

    def _accepted(self, row: FenceRow) -> list[tuple[Loss, str]]:
        """Return the losses of a row that a user has accepted, and how to continue."""
        return [
            (report.loss, report.acceptance.choice)
            for report in self.table.losses.values()
            if report.acceptance is not None
            and report.loss.committed_ms == commit_ms(row.committed_at)
            and all(row.topic_ids.get(topic) == change.old_id for topic, change in report.loss.topics.items())
        ]

    def _skip(self, before: FenceRow, row: FenceRow, keys: Iterable[str]) -> None:
        """Look at offsets that move without a commit: past what is gone from the log, was accepted and is recorded."""
        for key in keys:
            start, until = before.offsets[key], row.offsets.get(key, -1)
            if start == until:
                continue
            require(start < until, f"offsets move back without a rewind: {key} from {start} to {until}")
            begin = self.begins.get(key, 0)
            require(until <= begin, f"records that Kafka holds are skipped: {key} [{start}, {until}) of [{begin}, …)")
            reached = start
            while reached < until:
                ends = [
                    end
                    for (_, partition, first), end in self.table.skipped.items()
                    if partition == key and first <= reached < end
                ]
                require(ends, f"what is skipped is not recorded: {key} [{reached}, {until})")
                reached = max(ends)
            self.output.met["skip at a claim" if before.driver is None else "skip by a run"] += 1

    def _admit(self, before: FenceRow, row: FenceRow, topics: Iterable[str] = ()) -> None:
        """Look where partitions start that the row gets; those of `topics` start where these are read from."""
        for key in row.offsets.keys() - before.offsets.keys():
            start, begin = row.offsets[key], self.begins.get(key, 0)
            if split_offset_key(key)[0] not in topics:
                require(start <= begin, f"a new partition starts after its records do: {key} at {start}, not {begin}")

    def report(self, report: ReportedLoss) -> None:
        """Look at a loss that a run of the present epoch finds: Kafka has lost it, and it is not accepted yet."""
        loss, row = report.loss, self.last
        if loss.reason is not RunReason.OFFSET_OUT_OF_RANGE or row is None or report.epoch != row.epoch:
            return
        for key, (start, until) in loss.ranges.items():
            begin = self.begins.get(key, 0)
            require(until <= begin, f"a loss of records that Kafka holds: {key} [{start}, {until}) of [{begin}, …)")
        opened = {key: end for key, end in self.opened.items() if self._is_still_open(split_offset_key(key)[0])}
        is_news = any(until > opened.get(key, 0) for key, (_, until) in loss.ranges.items())
        require(is_news, f"an accepted loss is reported again: {dict(loss.ranges)}, accepted up to {opened}")

    def _is_still_open(self, topic: str) -> bool:
        """Return whether an open acceptance is left of the topic's losses: a later one, of ranges, replaces it."""
        return any(
            _is_open(report.loss, report.acceptance.choice)
            for report in self.table.losses.values()
            if report.acceptance is not None and topic in report.loss.topics
        )


def _is_open(loss: Loss, choice: str) -> bool:
    """Return whether an acceptance covers what retention deletes later as well."""
    return loss.reason is RunReason.OFFSET_OUT_OF_RANGE and choice == EARLIEST


def _at_least(after: Mapping[str, int], before: Mapping[str, int]) -> bool:
    return all(after.get(key, -1) >= offset for key, offset in before.items())


@dataclass(slots=True)
class Pass:
    """What one operator saw and did in one pass."""

    unseen: set[str] = field(default_factory=set)
    dangerous: list[str] = field(default_factory=list)
    is_paused: bool = False

    def read(self, pipeline: Pipeline | None) -> None:
        """Note whether the pipeline that the pass is about is paused."""
        self.is_paused = pipeline is not None and is_paused(pipeline)

    def read_failed(self, fact: str) -> None:
        """Note a fact that is unknown in this pass."""
        self.unseen.add(fact)

    def write(self, call: str) -> None:
        """Look at a write before it is made."""
        require(not self.is_paused or call == "write_status", f"a paused pipeline is written to: {call}")
        if call in DANGEROUS:
            self.dangerous.append(call)
        require(len(self.dangerous) <= 1, f"more than one dangerous action in a pass: {self.dangerous}")
        unseen = self.unseen & FACTS_OF_A_START
        require(call != "start" or not unseen, f"a start on Unknown: {sorted(unseen)}")


@dataclass(slots=True)
class Statuses:
    """The statuses of one pipeline object, one after another. `skew` is between the operators' clocks."""

    skew: timedelta = timedelta(0)
    resolve_after: timedelta = timedelta(0)
    """For how long the cause of an incident is gone until the incident is over."""
    rolled_back: set[tuple[str, int, str]] = field(default_factory=set)
    """Uids, generations and retry tokens of the specs that were rolled back."""
    handoffs: dict[tuple[str, str, int], datetime] = field(default_factory=dict)
    """When next runs were recorded, by the world's clock: by the uid, their name and their cluster's generation."""
    unpermitted: set[datetime] = field(default_factory=set)
    """When restarts began that had no permit."""
    while_stalled: Counter[str] = field(default_factory=Counter)
    """Successful writes since the pipeline stalled for its present reason."""

    def put(self, pipeline: Pipeline, after: Status, now: datetime, ended: Collection[int]) -> None:
        """Look at a status that replaces the pipeline's; `ended` are the epochs of drivers that have ended."""
        before = pipeline.status
        if after.handoff is not None:
            self.handoffs.setdefault(_next_run(pipeline, after.handoff), now)
        _conditions(after)
        if is_paused(pipeline):
            _left_alone(before, after)
        earlier = {condition.type: condition for condition in before.conditions}
        for condition in after.conditions:
            if condition.type in earlier:
                self._transition(earlier[condition.type], condition)
            require(condition.observed_generation <= pipeline.generation, "a condition of a generation to come")
        require((after.epoch or 0) >= (before.epoch or 0), f"status.epoch goes back: {before.epoch} to {after.epoch}")
        require(after.restarts >= before.restarts, "status.restarts goes back")
        _paged(pipeline, after)
        self._ended(pipeline, after)
        self._rollback(pipeline, after, now, ended)
        began, since = after.planned_restart_since, before.planned_restart_since
        if began in self.unpermitted and (since is None or since < began):
            self.unpermitted.discard(began)  # a step of the clock and back shows the same moment once more
            require(AHEAD in after.message, "a healthy run is replaced without a permit")
        if (before.state, _reason(before)) != (after.state, _reason(after)):
            self.while_stalled.clear()

    def _ended(self, pipeline: Pipeline, after: Status) -> None:
        """Look whether an incident is over only when its cause has been gone for a while."""
        open_before = {page.reason: page for page in pipeline.status.pages if page.resolved_at is None}
        for page in after.pages:
            if page.resolved_at is None or page.reason not in open_before or page.renewed_at is not None:
                continue
            lasted = page.resolved_at - page.quiet_since if page.quiet_since is not None else timedelta(0)
            enough = lasted >= self.resolve_after - self.skew
            require(enough or pipeline.deleting_since is not None, f"{page.reason} is over after {lasted}")

    def _rollback(self, pipeline: Pipeline, after: Status, now: datetime, ended: Collection[int]) -> None:
        """Look whether a spec is rolled back once, and to the stable one."""
        rollback, stable = after.rolled_back, after.stable
        if rollback is None or pipeline.status.rolled_back is not None:
            return
        spec = (pipeline.uid, pipeline.generation, rollback.retry)
        require(spec not in self.rolled_back, f"a spec is rolled back twice: {spec}")
        self.rolled_back.add(spec)
        run, handoff = after.run, pipeline.status.handoff
        works = handoff is not None and run is not None and run.is_active and run.revision == rollback.revision
        is_stable = stable is not None and stable.revision == rollback.revision
        require(is_stable or works, "a rollback to a spec that neither is stable nor runs")
        require(rollback.failed != rollback.revision, "a rollback to the spec that failed")
        require(after.loss is None, "a rollback while a loss is to be accepted")
        if works and handoff is not None:
            self._backed_out(pipeline, handoff, rollback.reason, now, ended)

    def _backed_out(
        self, pipeline: Pipeline, handoff: HandoffStatus, reason: str, now: datetime, ended: Collection[int]
    ) -> None:
        """Look whether a next run has ended for a cause of its own, or has had all its time to get warm."""
        require(reason not in ENVIRONMENT, f"{handoff.name} is backed out for its surroundings: {reason}")
        if reason not in {Reason.NEVER_CLAIMED, *BY_THE_IMAGE}:
            require(handoff.epoch in ended, f"{handoff.name} is backed out as {reason}, and its driver lives")
            return
        waited = now - self.handoffs[_next_run(pipeline, handoff)]
        least = START_PATIENCE
        if reason == Reason.NEVER_CLAIMED and isinstance(pipeline.spec, Spec):
            least += timedelta(seconds=pipeline.spec.restart.start_timeout)
        require(waited >= least - MEASURED, f"{handoff.name} is backed out as {reason} after {waited}")

    def written(self, pipeline: Pipeline | None, call: str, *, is_misled: bool) -> None:
        """Count what took effect while the pipeline is stalled.

        Where a spec is in effect, an operator that is shown old facts (`is_misled`) may repair what they show.
        """
        if pipeline is None or pipeline.status.state is not State.STALLED or call not in NOT_REPEATED:
            return
        reason = _reason(pipeline.status)
        if is_misled and reason in INSTEAD:
            return
        self.while_stalled[call] += 1
        limit = RUNS_WHILE_INVALID if reason in INSTEAD else 3
        require(self.while_stalled[call] < limit, f"a stalled pipeline loops: {call} {reason}")

    def _transition(self, before: Condition, after: Condition) -> None:
        moved, kind = after.last_transition_time - before.last_transition_time, after.type
        if before.status == after.status:
            require(not moved, f"{kind} did not change, and its transition time moves")
        else:
            require(moved >= -self.skew, f"the transition time of {kind} goes back")


def _left_alone(before: Status, after: Status) -> None:
    """Look whether a paused pipeline's status says so, and else is as it was."""
    others = [condition for condition in after.conditions if condition.type != RETENTION_RISK]
    added = [condition for condition in others if condition not in before.conditions]
    old = tuple(condition for condition in others if condition not in added)
    require(_apart_from_news(before, before.conditions) == _apart_from_news(after, old), "a paused pipeline changes")
    require(all(condition.reason == Reason.PAUSED for condition in added), f"not about the pause: {added}")


def _apart_from_news(status: Status, conditions: tuple[Condition, ...]) -> Status:
    """Return a status without what a pause does not hold: unread records in danger, and who knows of an incident."""
    return replace(
        status,
        data_risk=None,
        conditions=tuple(condition for condition in conditions if condition.type != RETENTION_RISK),
        pages=tuple(replace(page, sent=()) for page in status.pages if page.condition not in WHILE_PAUSED),
    )


def _reason(status: Status) -> str:
    return next((condition.reason for condition in status.conditions if condition.type == "Ready"), "")


def _paged(pipeline: Pipeline, after: Status) -> None:
    """Look whether what needs an action is recorded for paging in the very write that says so."""
    stalled = next((condition.reason for condition in after.conditions if condition.type == "Stalled"), None)
    open_now = [page.reason for page in after.pages if page.resolved_at is None]
    require(len(set(open_now)) == len(open_now), "two open incidents of one reason")
    require(len({(page.reason, page.opened_at) for page in after.pages}) == len(after.pages), "an incident twice")
    if pipeline.deleting_since is None and stalled is not None:
        require(stalled in open_now, f"stalled for {stalled} without a page")


def _conditions(status: Status) -> None:
    """Look whether the conditions have kstatus' shape and say what to do."""
    found = {condition.type: condition for condition in status.conditions}
    require(len(found) == len(status.conditions), "a condition is there twice")
    require(found.keys() <= TYPES, f"unknown conditions: {sorted(found.keys() - TYPES)}")
    require({"Ready", "Streaming"} <= found.keys(), "Ready or Streaming is missing")
    require(not {"Stalled", "Reconciling"} <= found.keys(), "both Stalled and Reconciling")
    is_ready, is_stalled = found["Ready"].status == "True", "Stalled" in found
    require(is_ready != bool({"Stalled", "Reconciling"} & found.keys()), "Ready agrees with Stalled or Reconciling")
    require(is_stalled == (status.state is State.STALLED), f"state {status.state} with Stalled {is_stalled}")
    for condition in status.conditions:
        require(condition.reason in REASONS, f"{condition.type} has reason {condition.reason!r}")
        require(condition.message.isprintable() and condition.message, f"{condition.type} says nothing")
    if is_stalled:
        require(". " in found["Stalled"].message, f"Stalled names no remedy: {found['Stalled'].message}")


@dataclass(slots=True)
class Invariants:
    """All of them for one history."""

    statuses: Statuses
    output: Output = field(default_factory=Output)
    rows: FenceRows = field(init=False)

    def __post_init__(self) -> None:
        self.rows = FenceRows(self.output)

    def start(
        self,
        epoch: int,
        generation: int,
        row: FenceRow | None,
        status: Status | None,
        living: list[tuple[int, int, str]],
    ) -> None:
        """Look at a Job that is created: `living` are (epoch, generation, pod uid) of the drivers that live."""
        recorded, handoff = (status.run, status.handoff) if status is not None else (None, None)
        if handoff is not None and handoff.epoch == epoch and row is not None and row.epoch < epoch:
            failed = status.standby if status is not None and handoff.standby else None
            if failed is not None and failed.revision == handoff.revision and failed.next_attempt_at is not None:
                require(
                    failed.next_attempt_at - self.statuses.skew <= handoff.since,
                    "a standby starts too soon after one that failed",
                )
            require(
                all(cluster != generation or not cluster for _, cluster, _ in living), "a next run shares a cluster"
            )
            return  # it waits
        require(recorded is not None and recorded.epoch >= epoch, f"run {epoch} starts before it is recorded")
        require(row is not None and row.epoch >= epoch, f"run {epoch} starts before its epoch")
        if status is not None and recorded is not None and recorded.epoch == epoch and status.rolled_back is not None:
            is_stable = recorded.finishes or recorded.revision == status.rolled_back.revision
            require(is_stable, f"run {epoch} starts with revision {recorded.revision} after a rollback")
        if row is not None and row.epoch > epoch:
            return  # a request that arrived late: the run ends at its first look at the fence, without executors
        for other, cluster, uid in living:
            require(
                other == epoch or cluster != generation,
                f"run {epoch} starts on cluster generation {generation}, where {uid} of run {other} still lives",
            )


def _next_run(pipeline: Pipeline, handoff: HandoffStatus) -> tuple[str, str, int]:
    return pipeline.uid, handoff.name, handoff.cluster_generation


def transition_skew(*skews: float) -> timedelta:
    """Return by how much one operator's clock may be behind another's; times are whole seconds."""
    return timedelta(seconds=max(skews) - min(skews) + 1)
