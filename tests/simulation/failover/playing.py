"""Plays a history of two regions: trouble first, then calm, until one region runs the pipeline and the other waits."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from fakes.manifests import KEY, body
from fakes.world import START
from fencepost.fence import FenceRow
from fencepost_operator.api import FAIL_OVER_ANNOTATION, FINISHED_LABEL, State
from fencepost_operator.decision.failover import MISSED, SIGN_INTERVAL
from fencepost_operator.desired.names import sign_key
from fencepost_operator.observation import PodIssue
from fencepost_operator.runtime.passes.signs_of_life import LONGEST_GAP
from simulation.failover.history import (
    REGIONS,
    CutOff,
    Delete,
    Event,
    Flap,
    FreezeRegion,
    History,
    KillDriver,
    LoseAnswer,
    LoseRegion,
    LoseStore,
    Move,
    NoPods,
    Rewind,
    Suspend,
)
from simulation.failure import Broken, Failure, require
from simulation.invariants import Invariants, Statuses, Target
from simulation.operators import Operator
from simulation.scheduling import without_event_loop
from simulation.world import RecordedTable, SimulatedWorld

TAKE_OVER_AFTER: Final = timedelta(seconds=30)
SIGN: Final = timedelta(seconds=SIGN_INTERVAL)
LOOK: Final = TAKE_OVER_AFTER / 10
OLDEST_SIGN: Final = timedelta(seconds=MISSED) + SIGN + LOOK
"""Of a cluster to which the pipeline is moved: it was seen up to a pass later."""
CALM: Final = timedelta(hours=1)
LONGEST_PAUSE: Final = timedelta(minutes=30)
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
    suspended_since: datetime | None = None
    taken: list[datetime] = field(default_factory=list)
    """When it took over, each less than an hour after the one before."""

    @property
    def pipeline(self) -> dict[str, Any] | None:
        """Its pipeline, as long as a user wants it."""
        found = self.world.objects.get(KEY)
        return None if found is None or "deletionTimestamp" in found["metadata"] else found

    @property
    def is_well(self) -> bool:
        """Return whether its operator works for the pipeline and reaches the fence."""
        return not (self.lost or self.frozen or self.cut_off) and self.pipeline is not None

    @property
    def can_start(self) -> bool:
        """Return whether pods start in it, and a user wants them."""
        is_rewinding = any(
            FINISHED_LABEL not in one["metadata"].get("labels", {}) for one in self.world.rewinds.values()
        )
        return self.world.issue is None and self.suspended_since is None and not is_rewinding

    @property
    def may_take(self) -> datetime:
        """When it may take over again: docs/fence-protocol.md#failover."""
        if not self.taken:
            return START
        return self.taken[-1] + min(TAKE_OVER_AFTER * (1 << len(self.taken)), LONGEST_PAUSE)

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
    created: int = REGIONS
    """Pipeline objects so far."""
    rewinds: int = 0
    is_calm: bool = False
    _noted: dict[str, tuple[str, str]] = field(default_factory=dict)
    _row: FenceRow | None = None
    _moved_since: datetime = START
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
        world.apply(self._body("uid-1" if first is None else "uid-2"))
        return world

    def _body(self, uid: str, policy: str = "Retain") -> dict[str, Any]:
        """Return the manifest of a user in one region."""
        setup = self.history.setup
        return body(
            uid=uid,
            failover={"takeOverAfter": f"{TAKE_OVER_AFTER.total_seconds():.0f}s"},
            restart={"standby": "Warm"} if setup.stands_by else {},
            upgrade={"strategy": "Handoff"} if setup.hands_over else {},
            checkpoint={"cassandra": {"contactPoints": ["cassandra"], "consistency": "QUORUM"}},
            deletionPolicy=policy,
        )

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
            self._look()
            self._wake()
        self._until(START + timedelta(seconds=self.history.troubled))
        self.note("calm")
        endings, self.over, self.is_calm = self.over, [], True
        for _, ending in endings:
            ending()
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
            case Flap():
                self._flap(self.regions[event.region], event, START + timedelta(seconds=event.at + event.seconds))
            case FreezeRegion():
                self._freeze(self.regions[event.region], event.seconds)
            case KillDriver():
                self._kill(self.regions[event.region])
            case NoPods():
                self._keep_from_starting(self.regions[event.region], event.seconds)
            case LoseAnswer():
                self.regions[event.region].world.lose_answers.append((event.call, event.applied))
                self.lost_answers = True
            case Move() | Suspend() | Rewind() | Delete():
                self._ask(event)

    def _ask(self, event: Move | Suspend | Rewind | Delete) -> None:
        """Do what a user does."""
        match event:
            case Move():
                self._move()
            case Suspend():
                self._suspend([self.regions[number] for number in event.regions], event.seconds)
            case Rewind():
                self._rewind(event.records)
            case Delete():
                for number in event.regions:
                    self._delete(self.regions[number], event)

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

    def _flap(self, region: Region, event: Flap, until: datetime) -> None:
        """Cut a region off, and again after a while."""

        def again() -> None:
            if self.time < until and not self.is_calm:
                self._flap(region, event, until)

        self._cut_off([region], event.away)
        self.over.append((self.time + timedelta(seconds=event.away + event.there), again))

    def _suspend(self, regions: list[Region], seconds: float) -> None:
        def end() -> None:
            for region in suspended:
                region.suspended_since, region.able_since = None, self.time
                if region.pipeline is not None:
                    region.world.change(KEY, suspend=False)
                    region.operator.wake()

        suspended = [region for region in regions if region.pipeline is not None and not region.lost]
        for region in suspended:
            region.suspended_since = region.suspended_since or self.time
            region.world.change(KEY, suspend=True)
        self._later(seconds, end)

    def _rewind(self, records: int) -> None:
        row, owner = self._row, self._owner(self._row)
        if row is None or owner is None or owner.lost or owner.pipeline is None or row.committed_at is None:
            return  # nothing is there to go back from
        key, committed = next(iter(row.offsets.items()))
        offsets = {key: max(0, committed - records)}
        self.rewinds += 1
        self.regions[0].world.invariants.rows.targets.append(Target(lambda: offsets, delete_output=False))
        owner.world.ask_for_rewind(f"back-{self.rewinds}", {"offsets": offsets}, pipeline=KEY)

    def _delete(self, region: Region, event: Delete) -> None:
        """Delete the pipeline. An API server that is lost takes no request."""

        def end() -> None:
            if region.lost or KEY in region.world.objects:
                self._later(5.0, end)  # its deletion is not over
                return
            self.created += 1
            region.suspended_since, region.able_since, region.taken = None, self.time, []
            region.world.apply(self._body(f"uid-{self.created}"))
            region.operator.wake()

        if region.lost or region.pipeline is None:
            return
        region.world.change(KEY, deletionPolicy=event.policy)
        region.world.delete(KEY)
        if event.seconds:
            self._later(event.seconds, end)

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
        if row is None or owner is None or owner.lost or owner.pipeline is None:
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
        self._watch_moved()

    def _watch_moved(self) -> None:
        """Look whether what was moved to a cluster that cannot run it is taken back by one that can."""
        row, here = self._row, self._owner(self._row)
        is_moved = row is not None and here is not None and row.owner == f"{here.uid}/"
        others = [one for one in self.regions if one is not here and one.is_well and one.can_start]
        if not is_moved or here is None or here.suspended_since is None or not here.is_well or not others:
            self._moved_since = self.time
        lasted = self.time - self._moved_since
        require(lasted <= 3 * SIGN + STARTS_IN or self.lost_answers, "moved to a cluster that cannot run it, and stays")

    def _watch_bound(self) -> None:
        """Look whether a region that is well runs the pipeline in time while the other one is gone."""
        row = self._row
        gone = [one for one in self.regions if (one.lost or KEY not in one.world.objects) and not one.living()]
        well = [region for region in self.regions if region.is_well and region.can_start and not self.lost_answers]
        runs = row is not None and any(row.driver in region.living() for region in self.regions)
        if row is None or row.is_released or len(gone) != 1 or len(well) != 1 or runs:
            self._due_since = None
            return
        self._due_since = max(self._due_since or self.time, well[0].well_since, well[0].able_since, well[0].may_take)
        require(self.time - self._due_since <= RUNS_IN, f"{well[0].uid} does not run though {gone[0].uid} is lost")

    # what changes the row

    def _changed(self, row: FenceRow) -> None:
        before, self._row = self._row, row
        self.regions[0].world.invariants.rows.put(row)
        was, now = self._owner(before), self._owner(row)
        if before is not None and any(row.offsets.get(key, at) < at for key, at in before.offsets.items()):
            self.met["rewound"] += 1
        if row.is_released and was is not None:
            require(was.pipeline is None, f"the row of {was.uid} is released, and its pipeline is not deleted")
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
            self._check_sign(now, row.pipeline)
            if self.met["moved"] <= self.history.setup.suspends_moved:
                self._suspend([now], 100.0)
            return
        if before.owner == f"{was.uid}/" and was.suspended_since is not None and was.is_well:
            self.met["taken back"] += 1
            return
        self.met["taken over"] += 1
        self._taken(was, now)
        if before.owner != f"{was.uid}/":  # it was moved, and not run there
            self._space(now)

    def _check_sign(self, target: Region, row: str) -> None:
        """Look how old what is known of a cluster is to which the pipeline is moved."""
        sign = self.regions[0].world.table.progress.get(sign_key(row, target.uid))
        age = self.time - sign.at if sign is not None else CALM
        require(age <= OLDEST_SIGN or self.lost_answers, f"moved to {target.uid}, whose last sign is {age} old")
        is_new = target.suspended_since is None or self.time - target.suspended_since <= OLDEST_SIGN
        require(is_new or self.lost_answers, f"moved to {target.uid}, which is suspended")

    def _space(self, now: Region) -> None:
        """Look whether takeovers by one cluster that follow each other are further apart each time."""
        if now.taken and self.time - now.taken[-1] >= CALM:
            now.taken.clear()
        require(self.time >= now.may_take - TICK, f"{now.uid} takes over again, {len(now.taken)} times in a row")
        now.taken.append(self.time)

    def _taken(self, was: Region, now: Region) -> None:
        """Look whether the owner was silent for as long as it takes, and could have been heard."""
        least = TAKE_OVER_AFTER - SIGN - 2 * LOOK
        require(now.suspended_since is None or now.frozen, f"{now.uid} takes over though it is suspended")
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
        require(row is None or (self._row is not None and self._row.epoch == row.epoch), "not quiet: a new epoch")
        require(self._has_arrived(), "arrived, and left again")

    def _has_arrived(self) -> bool:
        """Return whether one region has committed all records, and the other one waits and has nothing left."""
        row, owner = self._row, self._owner(self._row)
        here = [region for region in self.regions if KEY in region.world.objects]
        if not here or (row is not None and row.is_released):
            return self._rests(here)
        if row is None or owner is None or row.driver not in owner.living() or not owner.can_start:
            return False
        if any(row.offsets.get(key, 0) < end for key, end in owner.world.ends.items()):
            return False
        waiting = next(region for region in self.regions if region is not owner)
        if waiting in here and f"{waiting.uid}@{row.epoch}" in self.moves:
            return False  # it is to move
        is_left = waiting.living() or KEY in waiting.world.releases
        return (waiting not in here or self._state(waiting) is State.STANDBY) and not is_left

    def _rests(self, here: list[Region]) -> bool:
        """Return whether nothing is left of deleted pipelines, and one that waited for the row says that it is gone."""
        is_left = any(region.living() or KEY in region.world.releases for region in self.regions)
        return not is_left and all(self._state(region) is State.STALLED for region in here)

    def _state(self, region: Region) -> State | None:
        pipeline = region.world.pipelines.get(KEY)
        return pipeline.status.state if pipeline is not None else None


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
