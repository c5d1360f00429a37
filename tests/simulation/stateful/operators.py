"""The operator as an actor: the real adapter of the fence, and the steps of a run and of a rewind in their order.

What it has decided is in `Status`, as the Kubernetes API keeps it: recorded before it is done, and there for another
replica.  Where a rewind goes back to is what `fencepost_operator.decision.rewind.target` says.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar
from uuid import UUID

from fakes.connections import connection_to
from fakes.fence_stores import NoFences
from fencepost.fence import FenceError, FenceRow
from fencepost.fence.snapshots import Trigger, snapshot_id
from fencepost.fence.table import FenceTable
from fencepost_operator.adapters.fence_store import DatabaseFenceStore, Snapshots, Work
from fencepost_operator.api import CassandraConnection, ResolvedTarget, RewindSpec, RewindTarget
from fencepost_operator.decision.rewind.purge_jobs import deleted_at
from fencepost_operator.decision.rewind.target import resolve
from fencepost_operator.errors import Conflict, FencepostError
from fencepost_operator.observation import Known, RewindFacts, Watermarks
from present import present
from simulation.stateful.drivers import OWNER, PIPELINE
from simulation.stateful.job import KEYS, TOPIC, ends_of
from simulation.stateful.stage import Process, Steps

if TYPE_CHECKING:
    from simulation.stateful.events import Rewind
    from simulation.stateful.world import World

T = TypeVar("T")
AGAIN: Final = 2.0
"""Seconds after an error."""
STOPS_WITHIN: Final = 60
"""Turns for a driver to stop before it is replaced."""
CONNECTION: Final = connection_to("cassandra")


@dataclass(frozen=True, slots=True)
class Place:
    """The tables in memory, with the files of the state."""

    world: World
    changes_at_once: int = 2_000

    @property
    def table(self) -> FenceTable:
        return self.world.table

    @property
    def snapshots(self) -> Snapshots:
        return self.world.snapshots

    def changes_after(self, *_: object, **__: object) -> NoReturn:
        raise AssertionError("no history is read")

    check_state = forget_state = changes_after


@dataclass(frozen=True, slots=True)
class Tables:
    """The adapter's database."""

    place: Place

    async def run(self, connection: CassandraConnection, work: Work[T]) -> T:
        del connection
        return work(self.place)

    async def migrate(self, connection: CassandraConnection) -> None:
        """The tables are there."""

    async def create_schema(self, connection: CassandraConnection) -> None:
        """The tables are there."""

    async def settings(self, *_: object) -> NoReturn:
        raise AssertionError("no settings are read")

    async def close(self) -> None:
        """Nothing is open."""


@dataclass(slots=True)
class Back:
    """A rewind in progress."""

    asked: Rewind
    uid: str
    since: int
    wanted: str | None = None
    """The snapshot that it names."""
    epoch: int | None = None
    backup: str | None = None
    version: int | None = None
    target: ResolvedTarget | None = None
    held_state: str | None = None
    is_purged: bool = False


@dataclass(slots=True)
class Status:
    """What is recorded, and what users ask for."""

    epoch: int = -1
    """Of the newest run."""
    is_replacing: bool = False
    snapshots: list[str] = field(default_factory=list)
    """The ids of those to be taken."""
    drops: list[int] = field(default_factory=list)
    rewinds: list[Back] = field(default_factory=list)
    version: int = 0
    """The resourceVersion."""


class Operator:
    """One replica. Errors make it look again later."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.status = world.status
        self.process = Process(f"operator {number}", "operator", world.skew("operator"))
        self.store = DatabaseFenceStore(cassandra=Tables(Place(world)), postgresql=NoFences())
        self.is_acting = False
        self._seen = 0
        world.stage.start(self.process, self._live())

    def _live(self) -> Steps:
        world = self.world
        while True:
            self.is_acting = False
            yield self._has_work
            self.is_acting = True
            try:
                yield from self._act()
            except (FenceError, FencepostError) as error:
                world.note(f"{self.process.name}: {type(error).__name__}: {error}")
                due = world.clock.seconds + AGAIN
                yield lambda due=due: world.clock.seconds >= due  # type: ignore[misc]

    def _has_work(self) -> bool:
        status = self.status
        return bool(status.snapshots or status.drops or status.rewinds or status.is_replacing or self._is_down())

    def _is_down(self) -> bool:
        driver = self.world.jobs.get(self.status.epoch)
        return driver is None or driver.process.is_dead

    def _record(self) -> None:
        """Write the status. Raises Conflict where another replica wrote it since this one has read it."""
        if self._seen != self.status.version:
            raise Conflict("the status has changed")
        self.status.version += 1
        self._seen = self.status.version

    def _act(self) -> Steps:
        status = self.status
        self._seen = status.version
        if status.snapshots:
            done(self._take(status.snapshots[0], Trigger.ON_DEMAND))
            self._record()
            del status.snapshots[0]
        elif status.drops and not status.rewinds:  # retention deletes none during a rewind
            found = list(self.world.snapshots.rows)
            number = status.drops.pop()
            if found:
                done(self.store.drop_snapshots(CONNECTION, PIPELINE, [str(found[number % len(found)])]))
        elif status.rewinds:
            yield from self._rewind(status.rewinds[0])
        elif status.is_replacing or self._is_down():
            yield from self._start()
        yield None

    def _row(self) -> FenceRow:
        return present(done(self.store.read(CONNECTION, PIPELINE)))

    def _take(
        self,
        id: str,  # noqa: A002 - the column's name
        trigger: Trigger,
        of: str | None = None,
    ) -> Coroutine[Any, Any, None]:
        return self.store.take_snapshot(CONNECTION, PIPELINE, owner=OWNER, snapshot=id, trigger=trigger, name="", of=of)

    def _start(self) -> Steps:
        """Take over, record the epoch, and create its Job."""
        status, row = self.status, self._row()
        yield None
        epoch = row.epoch
        if row.epoch != status.epoch or row.driver is not None or status.epoch in self.world.jobs:
            self._record()
            epoch, status.is_replacing = row.epoch + 1, False
            status.epoch = epoch
            yield from self._take_over(row)
        self._record()
        yield None
        if epoch not in self.world.jobs:
            self.world.start_driver(epoch)

    def _take_over(self, row: FenceRow) -> Steps:
        version = row.version if row.driver is None else None
        done(self.store.take_over(CONNECTION, PIPELINE, row.epoch, version, OWNER))
        yield None

    def _rewind(self, back: Back) -> Steps:
        """Take the next step of a rewind, as `fencepost_operator.decision.rewind.machine` does."""
        driver = self.world.jobs.get(self.status.epoch)
        if driver is not None and not driver.process.is_dead and back.epoch is None:
            driver.is_stopping = True
            if self.world.stage.turn < back.since + STOPS_WITHIN:
                yield lambda: driver.process.is_dead or self.world.stage.turn >= back.since + STOPS_WITHIN
                return
        row = self._row()
        yield None
        if row.epoch != back.epoch or row.driver is not None:
            self._record()
            back.epoch = self.status.epoch = row.epoch + 1
            back.version = back.target = back.backup = back.held_state = None
            yield from self._take_over(row)
        elif back.target is None and (back.backup is None or UUID(back.backup) not in self.world.snapshots.rows):
            self._record()
            back.backup = back.backup or self._id(f"backup of {back.uid}")
            done(self._take(back.backup, Trigger.REWIND))
        elif back.target is None:
            self._resolve(back, row)
        elif back.version != row.version:
            self._over(back)
        elif back.asked.delete_output and not back.is_purged:
            self.world.prove_deaths(row.epoch)
            self.world.purge(back.target, deleted_at(row))
            back.is_purged = True
        else:
            self._set(back, row)

    def _resolve(self, back: Back, row: FenceRow) -> None:
        wanted = back.backup if back.asked.same else back.wanted
        if wanted is None:
            self._over(back)
            return
        snapshot = done(self.store.find_snapshot(CONNECTION, PIPELINE, wanted))
        log = Watermarks(
            ends=dict.fromkeys(KEYS, self.world.log_end),
            starts=dict(zip(KEYS, self.world.begins, strict=True)),
            topic_ids={TOPIC: "id"},
        )
        # With nothing left to read there would be no state to compare.
        # A topic that the snapshot does not know stays where it is.
        known = {**row.offsets, **snapshot.offsets} if snapshot is not None else row.offsets
        is_open = min(ends_of(known)) < self.world.setup.records
        is_emptied = back.asked.empty and is_open and row.checkpoint is not None
        spec = RewindSpec(pipeline="orders", to=RewindTarget(snapshot=wanted), empty_state=is_emptied)
        target = resolve(spec, row, Known(log), RewindFacts(snapshot=Known(snapshot)))
        if not isinstance(target, ResolvedTarget):
            self.world.note(f"rewind refused: {target}")
            self._over(back)
            return
        self._record()
        if target.snapshot is not None and back.asked.delete_output:
            if back.held_state is None or UUID(back.held_state) not in self.world.snapshots.rows:
                back.held_state = back.held_state or self._id(f"state of {back.uid}")
                done(self._take(back.held_state, Trigger.REWIND, of=target.snapshot))
                return
            target = replace(target, snapshot=back.held_state)
        back.target, back.version, back.is_purged = target, row.version, False

    def _set(self, back: Back, row: FenceRow) -> None:
        target = present(back.target)
        self.world.note(f"rewind to {dict(target.offsets)}")
        try:
            done(
                self.store.rewind(
                    CONNECTION,
                    PIPELINE,
                    epoch=row.epoch,
                    version=row.version,
                    offsets=target.offsets,
                    leader_epochs=target.leader_epochs,
                    growth_barrier=target.growth_barrier,
                    keeps_output=not back.asked.delete_output,
                    snapshot=target.snapshot,
                )
            )
            self.world.met[_kind(row, target)] += 1
            self.world.met["rewind with empty state"] += target.snapshot is None and any(target.offsets.values())
        except Conflict:
            raise
        except FencepostError as error:  # the snapshot is deleted
            self.world.note(f"rewind ends: {error}")
            self._over(back)

    def _over(self, back: Back) -> None:
        self._record()
        self.status.rewinds.remove(back)

    def _id(self, purpose: str) -> str:
        return str(snapshot_id(self.world.clock.now(), purpose))


def _kind(row: FenceRow, target: ResolvedTarget) -> str:
    if not any(target.offsets.values()):
        return "rewind to before the first commit"
    is_older = dict(target.offsets) != dict(row.offsets)
    return "rewind to an older snapshot" if is_older else "rewind to the committed offsets"


def done(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        found: T = stop.value
        return found
    raise AssertionError("the store waits")
