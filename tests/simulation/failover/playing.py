"""Plays a history of two regions: trouble first, then calm, until one region runs the pipeline and the other waits."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from fakes.manifests import KEY, body
from fakes.world import START
from fencepost.fence import FenceRow
from fencepost_operator.api import FAIL_OVER_ANNOTATION, State
from fencepost_operator.decision.failover import SIGN_INTERVAL
from fencepost_operator.observation import PodIssue
from fencepost_operator.runtime.signs_of_life import LONGEST_GAP
from simulation.failover.history import (
    TROUBLED,
    CutOff,
    Event,
    FreezeRegion,
    History,
    KillDriver,
    LoseAnswer,
    LoseRegion,
    LoseStore,
    Move,
    NoPods,
)
from simulation.failure import Broken, Failure, require
from simulation.invariants import Invariants, Statuses
from simulation.operators import Operator
from simulation.scheduling import without_event_loop
from simulation.world import RecordedTable, SimulatedWorld

TAKE_OVER_AFTER: Final = timedelta(seconds=30)
SIGN: Final = timedelta(seconds=SIGN_INTERVAL)
LOOK: Final = TAKE_OVER_AFTER / 10
STARTS_IN: Final = timedelta(seconds=40)
"""From a takeover until a driver has claimed, with a Spark cluster that has to be installed first."""
RUNS_IN: Final = TAKE_OVER_AFTER + SIGN + 2 * LOOK + STARTS_IN
"""After a region is lost for good, as far as the one that waits has nothing in its way."""
ARRIVES_IN: Final = timedelta(seconds=600)
TICK: Final = timedelta(seconds=1)


@dataclass(slots=True, kw_only=True)
class Region:
    """One Kubernetes cluster with its operator, and what is wrong with it."""

    uid: str
    world: SimulatedWorld
    operator: Operator
    lost: bool = False
    frozen: bool = False
    cut_off: bool = False
    well_since: datetime = START
    """Since when nothing is wrong with it."""
    able_since: datetime = START
    """Since when pods start in it."""
    troubled_since: datetime = START
    """Since when something has been, without a pause as long as it takes to give a sign."""

    @property
    def is_well(self) -> bool:
        """Return whether its operator works and reaches the fence."""
        return not (self.lost or self.frozen or self.cut_off)

    @property
    def can_start(self) -> bool:
        """Return whether pods start in it."""
        return self.world.issue is None

    def living(self) -> list[str]:
        """Return the uids of its driver processes that live."""
        return [driver.uid for driver in self.world.processes if driver.alive]


@dataclass(slots=True)
class Reached:
    """How often what a promise is about happened."""

    met: Counter[str] = field(default_factory=Counter)

    def update(self, other: Reached) -> None:
        """Add another one's counts."""
        self.met.update(other.met)


@dataclass(slots=True)
class Play:
    """One history in progress."""

    history: History
    met: Counter[str] = field(default_factory=Counter)
    trace: list[str] = field(default_factory=list)
    regions: list[Region] = field(init=False)
    over: list[tuple[datetime, Callable[[], None]]] = field(default_factory=list)
    moves: set[str] = field(default_factory=set)
    """The values of the annotations that asked for a move."""
    lost_answers: bool = False
    _noted: dict[str, tuple[str, str]] = field(default_factory=dict)
    _row: FenceRow | None = None
    _due_since: datetime | None = None
    """Since when a region that is well could have run the pipeline, and none does."""

    def __post_init__(self) -> None:
        setup = self.history.setup
        first = self._world(None)
        second = self._world(first)
        self.regions = [
            Region(uid=uid, world=world, operator=Operator(world, KEY, number, skew, START, cluster_uid=uid))
            for number, (uid, world, skew) in enumerate((("east", first, 0.0), ("west", second, setup.skew)))
        ]
        for region in self.regions:
            region.world.table.seen = self._changed
            region.operator.note = self.note

    def _world(self, first: SimulatedWorld | None) -> SimulatedWorld:
        """Return a region's world. Kafka and the rows are the first one's; whether they can be reached is its own."""
        setup = self.history.setup
        invariants = Invariants(Statuses(skew=timedelta(seconds=1)))
        if first is None:
            world = SimulatedWorld(invariants=invariants, rate=setup.rate, batch_takes=setup.batch_takes)
        else:
            shared = first.table
            invariants.output, invariants.rows = first.invariants.output, first.invariants.rows
            table = RecordedTable(
                rows=shared.rows,
                history=shared.history,
                progress=shared.progress,
                losses=shared.losses,
                skipped=shared.skipped,
            )
            world = SimulatedWorld(
                invariants=invariants,
                table=table,
                ends=first.ends,
                growth=first.growth,
                rate=0.0,  # the first one lets Kafka grow
                batch_takes=setup.batch_takes,
                uids=itertools.count(10_001),
            )
        restart = {"standby": "Warm"} if setup.stands_by else {}
        upgrade = {"strategy": "Handoff"} if setup.hands_over else {}
        store = {"cassandra": {"contactPoints": ["cassandra"], "consistency": "QUORUM"}}
        failover = {"takeOverAfter": f"{TAKE_OVER_AFTER.total_seconds():.0f}s"}
        world.apply(
            body(
                uid="uid-1" if first is None else "uid-2",
                failover=failover,
                restart=restart,
                checkpoint=store,
                upgrade=upgrade,
            )
        )
        return world

    @property
    def time(self) -> datetime:
        """The present moment."""
        return self.regions[0].world.now

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return (self.time - START).total_seconds()

    def note(self, line: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.now:7.1f}  {line}")

    def run(self) -> None:
        """Play all of it. Raises Broken."""
        for event in self.history.events:
            self._until(START + timedelta(seconds=event.at))
            self.note(str(event))
            self._apply(event)
            self._wake()
        self._until(START + timedelta(seconds=TROUBLED))
        self.note("calm")
        for _, ending in self.over:
            ending()
        self.over.clear()
        for region in self.regions:
            region.world.rate, region.world.lose_answers = 0.0, []
        self._wake()
        self._arrive()

    def end(self) -> None:
        """End every operator."""
        for region in self.regions:
            region.operator.end()

    # what happens

    def _apply(self, event: Event) -> None:
        match event:
            case LoseRegion():
                self._lose(self.regions[event.region], event)
            case CutOff():
                self._cut_off([self.regions[event.region]], event.seconds)
            case LoseStore():
                self._cut_off(self.regions, event.seconds)
            case FreezeRegion():
                self._freeze(self.regions[event.region], event.seconds)
            case KillDriver():
                self._kill(self.regions[event.region])
            case NoPods():
                self._keep_from_starting(self.regions[event.region], event.seconds)
            case LoseAnswer():
                self.regions[event.region].world.lose_answers.append((event.call, event.applied))
                self.lost_answers = True
            case Move():
                self._move()

    def _lose(self, region: Region, event: LoseRegion) -> None:
        region.lost = True
        region.operator.end()
        if event.drivers:
            self._kill(region)
        self._later(event.seconds, lambda: self._find(region))

    def _kill(self, region: Region) -> None:
        for driver in region.world.processes:
            if driver.alive:
                driver.end(self.time, 137)

    def _keep_from_starting(self, region: Region, seconds: float) -> None:
        def end() -> None:
            region.world.issue, region.able_since = None, self.time

        region.world.issue = PodIssue(pod="orders-pod", reason="Unschedulable", message="no node fits")
        self._kill(region)
        self._later(seconds, end)

    def _find(self, region: Region) -> None:
        region.lost, region.operator.due = False, self.time

    def _cut_off(self, regions: list[Region], seconds: float) -> None:
        def end() -> None:
            for region in regions:
                region.cut_off = region.world.cassandra_down = False

        for region in regions:
            region.cut_off = region.world.cassandra_down = True
        self._later(seconds, end)

    def _freeze(self, region: Region, seconds: float) -> None:
        def end() -> None:
            region.frozen = False
            for driver in region.world.processes:
                driver.frozen = False

        region.frozen = True
        for driver in region.world.processes:
            driver.frozen = True
        self._later(seconds, end)

    def _move(self) -> None:
        """Ask the region that owns the row for a move, as `fencepost failover` does."""
        row = self._row
        owner = self._owner(row)
        if row is None or owner is None or owner.lost:
            return
        target = next(region for region in self.regions if region is not owner)
        value = f"{target.uid}@{row.epoch}"
        self.moves.add(value)
        owner.world.objects[KEY]["metadata"].setdefault("annotations", {})[FAIL_OVER_ANNOTATION] = value
        owner.world.touch(KEY)

    def _later(self, seconds: float, ending: Callable[[], None]) -> None:
        self.over.append((self.time + timedelta(seconds=seconds), ending))

    def _wake(self) -> None:
        for region in self.regions:
            if not (region.lost or region.frozen):
                region.operator.wake()

    # how time passes

    def _until(self, end: datetime) -> None:
        while self.time < end:
            self._step()

    def _step(self) -> None:
        """Let the operators move that are due, then a second pass. A region that is lost does not move."""
        for region in self.regions:
            while not (region.lost or region.frozen) and region.operator.due <= self.time:
                region.operator.step()
                self._note_message(region)
        for region in self.regions:
            if region.lost:
                self._pass_without(region)
            else:
                region.world.advance(TICK.total_seconds())
        for ending in [one for one in self.over if one[0] <= self.time]:
            self.over.remove(ending)
            ending[1]()
        self._look()

    def _pass_without(self, region: Region) -> None:
        """Let a second pass in a region whose API server is lost: only the drivers that live continue."""
        world = region.world
        world.now += TICK
        world._produce(TICK.total_seconds())
        for driver in world.processes:
            driver.step(world.now, executors=True)

    def _look(self) -> None:
        for region in self.regions:
            if region.is_well:
                continue
            if self.time - region.well_since > SIGN or region.troubled_since == START:
                region.troubled_since = self.time
            region.well_since = self.time
        self._watch_bound()

    def _watch_bound(self) -> None:
        """Look whether a region that is well runs the pipeline in time while the other one is gone."""
        row = self._row
        gone = [region for region in self.regions if region.lost and not region.living()]
        well = [region for region in self.regions if region.is_well and region.can_start and not self.lost_answers]
        runs = row is not None and any(row.driver in region.living() for region in self.regions)
        if row is None or len(gone) != 1 or len(well) != 1 or runs:
            self._due_since = None
            return
        self._due_since = max(self._due_since or self.time, well[0].well_since, well[0].able_since)
        require(self.time - self._due_since <= RUNS_IN, f"{well[0].uid} does not run though {gone[0].uid} is lost")

    # what changes the row

    def _changed(self, row: FenceRow) -> None:
        before, self._row = self._row, row
        self.regions[0].world.invariants.rows.put(row)
        was, now = self._owner(before), self._owner(row)
        if before is None or was is None or now is None or was is now:
            return
        self.note(f"epoch {row.epoch}: from {was.uid} to {now.uid}")
        require(row.epoch == before.epoch + 1, "another cluster owns an epoch that had begun")
        asked = {
            f"{now.uid}@{epoch}" for epoch in (before.epoch, before.epoch - 1)
        }  # a driver may end its epoch itself
        if asked & self.moves and row.owner == f"{now.uid}/":
            self.met["moved"] += 1
            living = [uid for uid in was.living() if uid == before.driver]
            require(not living, f"moved while {living} holds the fence")
            is_near = now.is_well or self.time - now.troubled_since < TAKE_OVER_AFTER + LOOK
            require(is_near or self.lost_answers, f"moved to {now.uid}, which is lost")
            return
        self.met["taken over"] += 1
        self._taken(was, now)

    def _taken(self, was: Region, now: Region) -> None:
        """Look whether the owner was silent for as long as it takes, and could have been heard."""
        least = TAKE_OVER_AFTER - SIGN - 2 * LOOK
        is_silent = self.time - was.well_since <= LOOK * 2 and self.time - was.troubled_since >= least
        require(is_silent or self.lost_answers, f"{now.uid} takes over though {was.uid} gives signs of life")
        heard = self.time - now.well_since
        is_short = now.well_since - now.troubled_since <= LONGEST_GAP * TAKE_OVER_AFTER + LOOK
        is_heard = heard >= least or is_short or now.frozen
        require(is_heard or self.lost_answers, f"{now.uid} was deaf {heard} ago and takes over")

    def _owner(self, row: FenceRow | None) -> Region | None:
        cluster = row.owner.partition("/")[0] if row is not None else ""
        return next((region for region in self.regions if region.uid == cluster), None)

    def _note_message(self, region: Region) -> None:
        pipeline = region.world.pipelines.get(KEY)
        if pipeline is None:
            return
        said = (str(pipeline.status.state), pipeline.status.message)
        if said != self._noted.get(region.uid):
            self._noted[region.uid] = said
            self.note(f"    {region.uid} {said[0]}: {said[1]}")

    # after the last fault

    def _arrive(self) -> None:
        end = self.time + ARRIVES_IN
        while not self._has_arrived():
            require(self.time < end, f"not arrived: {[self._noted.get(region.uid) for region in self.regions]}")
            self._step()
        row = self._row
        self._until(self.time + 3 * TAKE_OVER_AFTER)
        require(self._row is not None and row is not None and self._row.epoch == row.epoch, "not quiet: a new epoch")
        require(self._has_arrived(), "arrived, and left again")

    def _has_arrived(self) -> bool:
        """Return whether one region has committed all records, and the other one waits and has nothing left."""
        row, owner = self._row, self._owner(self._row)
        if row is None or owner is None or row.driver not in owner.living():
            return False
        if any(row.offsets.get(key, 0) < end for key, end in owner.world.ends.items()):
            return False
        waiting = next(region for region in self.regions if region is not owner)
        if f"{waiting.uid}@{row.epoch}" in self.moves:
            return False  # it is to move
        pipeline = waiting.world.pipelines.get(KEY)
        is_left = waiting.living() or KEY in waiting.world.releases
        return pipeline is not None and pipeline.status.state is State.STANDBY and not is_left


def play(history: History, reached: Reached | None = None) -> Failure | None:
    """Play a history; return what does not hold, None when everything does."""
    with without_event_loop():
        playing = Play(history)
        try:
            playing.run()
        except Broken as broken:
            return Failure(str(broken), playing.now, tuple(playing.trace))
        except (AssertionError, LookupError, TypeError, ValueError) as error:
            return Failure(f"{type(error).__name__}: {error}", playing.now, tuple(playing.trace))
        finally:
            playing.end()
            if reached is not None:
                reached.met.update(playing.met)
    return None
