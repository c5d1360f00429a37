"""Plays a history: trouble first, then calm, until the pipeline has arrived and nothing is written any more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from fakes.manifests import KEY
from fakes.world import START
from fencepost.driver.sizing.batch_limit import RAISE_LIMIT
from fencepost_operator.api import FINISHED_LABEL, Condition, Reason, Spec, State, Status
from fencepost_operator.autoscaling.policy import UNMEASURED_AFTER
from fencepost_operator.backoff import JITTER
from fencepost_operator.decision.reporting.incidents import MOMENT
from fencepost_operator.decision.reporting.standby_condition import STANDBY_READY
from fencepost_operator.decision.run.restart_loop import LOOP, WINDOW
from simulation import events as e
from simulation.coverage import Coverage, counted
from simulation.failure import Broken, Failure, require
from simulation.faults import Faults
from simulation.history import History
from simulation.invariants import INSTEAD, Invariants, Statuses, transition_skew
from simulation.minutes import Minutes
from simulation.operators import CONFIG, Operator
from simulation.pages import Inbox
from simulation.scheduling import without_event_loop
from simulation.world import SimulatedWorld

ARRIVES_IN: Final = 1200.0
"""Seconds after the last fault, or after a run committed a piece of the batch that it has to finish for another code,
within which a pipeline runs, or says what the user has to do."""
PASSES: Final = 400
"""Passes of one operator in ARRIVES_IN."""
RUNNING: Final = frozenset({State.RUNNING, State.CATCHING_UP})
CATCHES_UP_IN: Final = 12 * RAISE_LIMIT
"""Seconds: after batches that were too large, a run begins with a few records, and doubles them once in RAISE_LIMIT.

From three records at first, that is enough for what comes while a driver hangs during the longest blindness.
"""
UNSEEN: Final = (CONFIG.look_interval + CONFIG.resync_interval) * (1 + JITTER)
"""Seconds for which an operator may not see the end of a run that no event shows."""
SETTLES_IN: Final = UNSEEN + 200.0
"""Seconds in which figures of what happened last are still written, such as the throughput of the last minute."""
QUIET: Final = 130.0
STANDBY_SETTLES_IN: Final = timedelta(hours=2)
"""Standbys that all fail, as of an image that is broken since, are started less and less often: see LONGEST_BACKOFF."""
SLOW_TICK: Final = timedelta(seconds=5)
"""How the world moves while nothing happens."""
STILL: Final = timedelta(seconds=60)
"""Longer than a run waits after some failures."""
REWIND_STILL: Final = timedelta(seconds=150)
"""Longer than two looks at a rewind that waits or counts."""
EXPECTED: Final[dict[type[e.Event], frozenset[str]]] = {
    e.BreakSpec: frozenset({Reason.INVALID_SPEC}),
    e.ExpireRecords: frozenset({Reason.OFFSET_OUT_OF_RANGE}),
    e.HostileRecord: frozenset({Reason.POISON_RECORD}),
    e.KeepExpiring: frozenset({Reason.OFFSET_OUT_OF_RANGE}),
    e.RecreateTopic: frozenset({Reason.TOPIC_RECREATED, Reason.LOG_TRUNCATED, Reason.OFFSET_OUT_OF_RANGE}),
    e.FailingCode: frozenset({Reason.BAD_SPEC, Reason.POISON_RECORD}),
    e.LoseTopic: frozenset({Reason.BAD_SPEC}),
    e.BreakImage: frozenset({Reason.BAD_SPEC}),
}
"""Why a pipeline may be stalled at the end: an event of the history asked for it."""


@dataclass(slots=True)
class Play:
    """One history in progress."""

    history: History
    world: SimulatedWorld = field(init=False)
    faults: Faults = field(init=False)
    minutes: Minutes = field(init=False)
    operators: list[Operator] = field(default_factory=list)
    inbox: Inbox = field(default_factory=Inbox)
    trace: list[str] = field(default_factory=list)
    _noted: tuple[str, str] = ("", "")
    _row_since: tuple[int, datetime] = (0, START)
    """How many changes the fence's rows have had, and since when."""
    _rewinds_since: tuple[tuple[str, ...], datetime] = ((), START)
    """The resourceVersions of the rewinds, and since when."""

    def __post_init__(self) -> None:
        setup = self.history.setup
        skews = [0.0, setup.operator_skew][: setup.operators]
        steps = [each.ahead for each in self.history.events if isinstance(each, e.StepClock)]
        hold = timedelta(seconds=CONFIG.page_resolve_after)
        ahead = [skew + step for skew in skews for step in (0.0, *steps)]
        invariants = Invariants(Statuses(skew=transition_skew(*ahead), resolve_after=hold))
        self.world = SimulatedWorld(
            invariants=invariants,
            rate=setup.rate,
            driver_skew=setup.driver_skew,
            batch_takes=setup.batch_takes,
            volumes=setup.volume,
        )
        self.operators = [
            Operator(self.world, KEY, number, skew, START, note=self.note, inbox=self.inbox)
            for number, skew in enumerate(skews)
        ]
        self.faults = Faults(self.world, self.operators, setup)
        self.minutes = Minutes(self.world)

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return (self.world.now - START).total_seconds()

    def run(self) -> None:
        """Play all of it. Raises Broken."""
        self.faults.begin()
        for event in self.history.events:
            self._until(START + timedelta(seconds=event.at))
            self.note(str(event))
            self.faults.apply(event)
            for operator in self.operators:
                operator.wake()
        self._until(START + timedelta(seconds=self.history.troubled))
        self.note("calm")
        self.faults.calm()
        self._arrive()
        self._catch_up()
        self._be_quiet()

    def end(self) -> None:
        """End every operator."""
        for operator in self.operators:
            operator.end()

    def note(self, line: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.now:7.1f}  {line}")

    def _until(self, end: datetime) -> None:
        while self.world.now < end:
            self._step(end)

    def _step(self, end: datetime) -> None:
        """Let the operators move that are due, then time pass until the next one is."""
        for operator in self.operators:
            if operator.due <= self.world.now:
                operator.step()
                self._note_message()
        moments = [operator.due for operator in self.operators] + [moment for moment, _ in self.faults.over]
        until = min([end, *(moment for moment in moments if moment > self.world.now)])
        if any(operator.due <= self.world.now for operator in self.operators):
            return
        self.world.advance((until - self.world.now).total_seconds())
        self.faults.settle()
        self.minutes.look(disturbed=any(operator.is_disturbed for operator in self.operators))

    def _note_message(self) -> None:
        pipeline = self.world.pipelines.get(KEY)
        if pipeline is None:
            return
        said = (pipeline.status.state, pipeline.status.message)
        if said != self._noted:
            self._noted = said
            self.note(f"    {said[0]}: {said[1]}")

    # after the last fault

    def _arrive(self) -> None:
        began, patience = self.world.now, timedelta(seconds=ARRIVES_IN)
        before = [operator.passes for operator in self.operators]
        while not self._has_arrived():
            pipeline = self.world.pipeline(KEY)
            status = pipeline.status if pipeline is not None else Status()
            end = max(began, self._piece_at()) + patience
            require(self.world.now < end, f"not arrived: {status.state} {status.message}")
            self.faults.confirm_death()
            self._step(end)
        most = PASSES * max(1.0, (self.world.now - began) / patience)
        for operator, passes in zip(self.operators, before, strict=True):
            require(operator.passes - passes <= most, f"too many passes: {operator.passes - passes}")

    def _piece_at(self) -> datetime:
        """Return when a run that finishes an open batch committed last; each commit leaves less of that batch."""
        finishing = [driver for driver in self.world.processes if driver.config.finish_until]
        return max((driver.committed_at for driver in finishing if driver.committed_at), default=START)

    def _has_arrived(self) -> bool:
        pipeline = self.world.pipeline(KEY)
        if pipeline is None:
            return KEY not in self.world.releases
        status, conditions = pipeline.status, {c.type: c for c in pipeline.status.conditions}
        if status.observed_generation != pipeline.generation or pipeline.deleting_since is not None:
            return False
        if status.state is State.STALLED:
            return self._is_lawful(reason := conditions["Stalled"].reason) and (
                reason not in INSTEAD or (self._have_rewinds_stopped() and (self._is_driven() or self._is_still()))
            )
        if conditions["Ready"].reason == Reason.TOPIC_NOT_FOUND:
            return True
        return self._are_rewinds_over() and self._does_as_asked(status, conditions)

    def _are_rewinds_over(self) -> bool:
        """Return whether each rewind is over, or waits for the first run: nothing is there to go back from."""
        over = all(FINISHED_LABEL in body["metadata"].get("labels", {}) for body in self.world.rewinds.values())
        return over or all(row.is_released for row in self.world.table.rows.values())

    def _have_rewinds_stopped(self) -> bool:
        """Return whether rewinds are over, or wait: beside an invalid spec, for a run of the last valid one."""
        versions = tuple(body["metadata"]["resourceVersion"] for body in self.world.rewinds.values())
        if versions != self._rewinds_since[0]:
            self._rewinds_since = (versions, self.world.now)
        return self._are_rewinds_over() or self.world.now - self._rewinds_since[1] >= REWIND_STILL

    def _does_as_asked(self, status: Status, conditions: Mapping[str, Condition]) -> bool:
        is_ready = conditions["Ready"].status == "True"
        if status.state is State.SUSPENDED or not is_ready:
            return is_ready
        return self._is_driven()

    def _is_driven(self) -> bool:
        row = next(iter(self.world.table.rows.values()), None)
        return row is not None and row.driver in {driver.uid for driver in self.world.processes if driver.alive}

    def _is_still(self) -> bool:
        """Return whether the last valid spec has no effect, as where it is suspended: the row stays as it is."""
        changes = len(self.world.table.history)
        if changes != self._row_since[0]:
            self._row_since = (changes, self.world.now)
        return self.world.now - self._row_since[1] >= STILL

    def _catch_up(self) -> None:
        """Let a pipeline that runs read what there is: batches that once were too large are small for minutes."""
        end = self.world.now + timedelta(seconds=CATCHES_UP_IN)
        while not (self._has_arrived() and self._has_caught_up()):
            require(self.world.now < end, f"not caught up: {self._committed()} of {self.world.ends}")
            self.faults.confirm_death()
            self._step(end)

    def _has_caught_up(self) -> bool:
        pipeline = self.world.pipeline(KEY)
        is_running = pipeline is not None and (
            pipeline.status.state in RUNNING or self._streams_last_valid_spec(pipeline.status)
        )
        if not is_running:
            return True
        return all(self._committed().get(key, 0) >= end for key, end in self.world.ends.items())

    def _streams_last_valid_spec(self, status: Status) -> bool:
        """Return whether the last valid spec streams while the pipeline is stalled for an invalid one."""
        return status.state is State.STALLED and self._is_driven()

    def _committed(self) -> Mapping[str, int]:
        row = next(iter(self.world.table.rows.values()), None)
        return row.offsets if row is not None else {}

    def _is_lawful(self, reason: str) -> bool:
        lawful = {Reason.RESTART_BUDGET_EXHAUSTED} if self.history.setup.max_attempts else set()
        if self.history.setup.rolls_back or self.history.setup.hands_over:
            lawful.add(Reason.ROLLED_BACK)
        expected = lawful.union(*(EXPECTED.get(type(event), frozenset()) for event in self.history.events))
        require(reason in expected, f"stalled for no reason: {reason}")
        return True

    def _pages_by(self) -> datetime:
        """Return until when a pipeline that waits, as for a topic, has been paged for it, and incidents have ended."""
        pipeline = self.world.pipeline(KEY)
        if pipeline is None:
            return START
        since, pages = pipeline.status.not_ready_since, pipeline.status.pages
        ready = [each.last_transition_time for each in pipeline.status.conditions if each.type == "Ready"]
        opened = [since + timedelta(seconds=CONFIG.page_not_ready_after)] if since is not None else []
        ended = [
            max(page.quiet_since, *ready) + timedelta(seconds=CONFIG.page_resolve_after)
            for page in pages
            if page.quiet_since is not None
        ]
        moments = [
            page.renewed_at + MOMENT for page in pages if page.renewed_at is not None and page.resolved_at is None
        ]
        near = [over for over in moments if over - self.world.now <= timedelta(seconds=2 * QUIET)]
        return max((*opened, *ended, *near, self._loop_is_over(pipeline.status)), default=START) + timedelta(
            seconds=QUIET
        )

    def _loop_is_over(self, status: Status) -> datetime:
        """Return when failed runs are no longer a loop, where that falls into the quiet time; else START."""
        if len(status.restarted_at) < LOOP:
            return START
        over = status.restarted_at[-LOOP] + WINDOW + timedelta(seconds=CONFIG.page_resolve_after)
        return over if over - self.world.now <= timedelta(seconds=2 * QUIET) else START

    def _snapshot_by(self) -> datetime:
        """Return until when the scheduled snapshot is taken that falls into the quiet time, START where none does."""
        pipeline, row = self.world.pipeline(KEY), next(iter(self.world.table.rows.values()), None)
        if pipeline is None or row is None or not isinstance(pipeline.spec, Spec):
            return START
        known, run = pipeline.status.snapshots, pipeline.status.run
        last = known.last if known is not None else None
        since = last.at if last is not None else run and run.claimed_at
        if not since or (last is not None and last.version == row.version):
            return START
        due = since + timedelta(seconds=pipeline.spec.snapshots.every)
        return due + timedelta(seconds=QUIET) if due - self.world.now <= timedelta(seconds=2 * QUIET) else START

    def _durable_by(self) -> datetime:
        """Return until when a durability that could not be read is read again; START where it is complete."""
        pipeline = self.world.pipeline(KEY)
        durability = pipeline.status.durability if pipeline is not None else None
        if durability is None or durability.complete:
            return START
        return durability.checked_at + timedelta(seconds=CONFIG.durability_retry + UNSEEN + QUIET)

    def _scaled_by(self) -> datetime:
        """Return until when the workers that no load needs are removed, one by one; START where none are."""
        pipeline = self.world.pipeline(KEY)
        chosen = pipeline.status.autoscale if pipeline is not None else None
        if chosen is None or chosen.fewer is None:
            return START
        return self.world.now + chosen.workers * (UNMEASURED_AFTER + timedelta(seconds=QUIET))

    def _await_standby(self) -> None:
        """Let time pass until the standby is warm, or the next one starts after the quiet time: the delay doubles."""
        end = self.world.now + STANDBY_SETTLES_IN
        while self._is_standby_due():
            require(self.world.now < end, "the standby is neither warm nor waits for long")
            self._until(self.world.now + timedelta(seconds=QUIET))

    def _is_standby_due(self) -> bool:
        pipeline = self.world.pipeline(KEY)
        if pipeline is None or not self.history.setup.stands_by:
            return False
        status, conditions = pipeline.status, {each.type: each for each in pipeline.status.conditions}
        found, is_ready = conditions.get(STANDBY_READY), conditions["Ready"].status == "True"
        if status.standby is not None and status.handoff is None and status.standby.next_attempt_at is not None:
            left = status.standby.next_attempt_at - self.world.now
            return is_ready and left <= timedelta(seconds=3 * QUIET)
        return is_ready and found is not None and found.status != "True"

    def _be_quiet(self) -> None:
        self.world.tick = SLOW_TICK
        self._until(self.world.now + timedelta(seconds=SETTLES_IN))
        self._until(max(self._pages_by(), self._snapshot_by(), self._scaled_by(), self._durable_by()))
        self._await_standby()
        before, rows = [len(operator.writes) for operator in self.operators], len(self.world.table.history)
        self._until(self.world.now + timedelta(seconds=QUIET))
        for operator, count in zip(self.operators, before, strict=True):
            require(len(operator.writes) == count, f"not quiet: {operator.writes[count:][:5]}")
        require(len(self.world.table.history) == rows, "not quiet: the fence row changes")
        self._check_inbox()

    def _check_inbox(self) -> None:
        """Look whether the receiver has each open incident, and no other one that this operator could end."""
        pipeline = self.world.pipeline(KEY)
        pages = pipeline.status.pages if pipeline is not None else ()
        open_, known = {(page.reason, page.opened_at) for page in pages if page.resolved_at is None}, self.inbox.open()
        require(open_ <= known, f"not sent: {open_ - known}")
        is_forced = any(isinstance(event, e.RemoveFinalizer) for event in self.history.events)
        if len(self.operators) == 1 and not is_forced:
            require(known <= open_, f"open at the receiver: {known - open_}")


def play(history: History, coverage: Coverage | None = None) -> Failure | None:
    """Play a history; return what does not hold, None when everything does."""
    with without_event_loop(), counted(coverage):
        playing = Play(history)
        try:
            playing.run()
        except Broken as broken:
            return Failure(str(broken), playing.now, tuple(playing.trace))
        except (AssertionError, LookupError, TypeError, ValueError) as error:
            return Failure(f"{type(error).__name__}: {error}", playing.now, tuple(playing.trace))
        finally:
            playing.end()
            if coverage is not None:
                coverage.met.update(playing.world.invariants.output.met)
    return None
