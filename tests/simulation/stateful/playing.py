"""Plays a history: trouble first, then calm, until everything is read; then output, state and tables are compared."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Final

from fencepost.fence import Fence, FenceError
from fencepost.fence.patience import Patience
from fencepost.fence.snapshots import snapshot_id, take
from fencepost.state import chunks, directory, fence_committer, file_ids, tree
from fencepost.state.collector import GRACE
from fencepost.state.errors import CheckpointError
from fencepost.state.progress import unpack_committed, unpack_planned
from fencepost.state.webhdfs import data_service
from fencepost.state.webhdfs.authentication import Keys
from fencepost_operator.adapters import fence_store
from simulation.failure import Broken, Failure, require
from simulation.shortcuts import quick_copies, swapped
from simulation.stateful import events as e
from simulation.stateful import world as world_module
from simulation.stateful.drivers import Driver
from simulation.stateful.hadoop import Asking, RequestFailed
from simulation.stateful.history import TROUBLED, History
from simulation.stateful.job import STORES, expected_state, watermark_after
from simulation.stateful.operators import Back
from simulation.stateful.stage import Process
from simulation.stateful.tickets import Tickets
from simulation.stateful.world import World

ARRIVES_IN: Final = 6000
"""Turns after the last fault."""
SMALL_CHUNK: Final = 96
"""Bytes: most files have several chunks."""
SMALL_RANGE: Final = 8
"""Ids of a range."""


@dataclass(slots=True)
class Play:
    """One history in progress."""

    history: History
    world: World = field(init=False)
    _coming: list[e.Event] = field(init=False)

    def __post_init__(self) -> None:
        self.world = World(self.history.seed, self.history.setup)
        self._coming = list(reversed(self.history.events))
        self.world.stage.begins = self._happen

    def run(self) -> None:
        """Play all of it. Raises Broken."""
        stage = self.world.stage
        while stage.turn < TROUBLED:
            stage.play()
        self._calm()
        self._arrive()
        self._compare()
        self._collect()

    def _happen(self) -> None:
        """Begin what is due."""
        while self._coming and self._coming[-1].at <= self.world.stage.turn and not self.world.network.is_calm:
            self._apply(self._coming.pop())

    def _apply(self, event: e.Event) -> None:
        world, turn = self.world, self.world.stage.turn
        world.note(str(event))
        match event:
            case e.Interrupt() | e.Outage():
                world.network.expect(event)
            case e.Kill(who=who):
                for process in self._one_of(who):
                    world.stage.kill(process)
            case e.Freeze(who=who, seconds=seconds):
                for process in self._one_of(who):
                    process.frozen_until = max(process.frozen_until, turn + seconds)
            case e.Lose(partition=partition, records=records):
                world.lose(partition, records)
            case e.Pass(jump=jump):
                world.clock.sleep(jump)
            case e.StepClock(who=who, ahead=ahead, seconds=seconds):
                self._step(who, ahead)
                world.network.later(seconds, partial(self._step, who, -ahead))
            case _:
                self._ask(event)
        self._restart()

    def _ask(self, event: e.Wish) -> None:
        """Do, or note for the operator, what users and Kubernetes ask for."""
        world, turn, status = self.world, self.world.stage.turn, self.world.status
        match event:
            case e.Replace():
                status.is_replacing = True
            case e.Twin():
                world.start_twin()
            case e.NewCode():
                world.code = f"code-{turn}"
                if driver := self._driver():
                    driver.is_stopping = True
            case e.Snapshot():
                status.snapshots.append(str(snapshot_id(world.clock.now(), str(turn), "on demand")))
            case e.DropSnapshot(number=number):
                status.drops.append(number)
            case e.Rewind(number=number):
                found = [str(one) for one in world.snapshots.sound]
                wanted = found[number % len(found)] if found else None
                status.rewinds.append(Back(event, str(turn), turn, wanted))
            case e.CancelRewinds():
                status.rewinds = [back for back in status.rewinds if not back.asked.same]
                status.version += 1

    def _one_of(self, who: e.Kind) -> list[Process]:
        """Return a process of a kind, none where none lives."""
        found = self.world.processes(who)
        return [self.world.dice.choice(found)] if found else []

    def _step(self, who: e.Kind, ahead: float) -> None:
        self.world.steps[who] = self.world.steps.get(who, 0.0) + ahead
        for process in self.world.processes(who):
            process.skew += ahead

    def _restart(self) -> None:
        """Start replicas of the operator and workers again that have ended."""
        for number, operator in enumerate(self.world.operators):
            if operator.process.is_dead:
                self.world.start_operator(number)
        for number, worker in enumerate(self.world.workers):
            if worker.is_dead:
                self.world.start_worker(number)

    def _driver(self) -> Driver | None:
        return self.world.jobs.get(self.world.status.epoch)

    # after the last fault

    def _calm(self) -> None:
        world = self.world
        world.note("calm")
        world.network.calm()
        for process in world.processes("any"):
            process.frozen_until = 0
        self._restart()

    def _arrive(self) -> None:
        world = self.world
        end = world.stage.turn + ARRIVES_IN
        while not self._has_arrived():
            require(world.stage.turn < end, f"not arrived: {dict(world.row.offsets)}, {world.status}")
            world.stage.play()
            self._restart()

    def _has_arrived(self) -> bool:
        world, row, driver = self.world, self.world.row, self._driver()
        records = self.history.setup.records
        if driver is None or driver.process.is_dead or not driver.serves or row.planned_log is not None:
            return False
        if driver.is_stopping or driver.is_ending or world.status.is_replacing:
            return False
        if any(operator.is_acting for operator in world.operators):
            return False
        if set(row.offsets.values()) != {records} or world.status.rewinds or world.status.snapshots:
            return False
        return self._is_closed() and not self._is_anything_left(driver)

    def _is_anything_left(self, driver: Driver) -> bool:
        """Return whether an older process still runs, or a request is on its way."""
        current = {driver.process, *(each.process for each in driver.executors.values())}
        return any(
            actor.process.kind in {"driver", "executor", "network"} and actor.process not in current
            for actor in self.world.stage.actors
        )

    def _is_closed(self) -> bool:
        """Return whether no batch without records follows."""
        last = watermark_after(0, (self.history.setup.records,) * 2)
        return self.world.watermark_of(self.world.row.checkpoint) == last

    def _compare(self) -> None:
        """Compare output and state with those of an undisturbed run."""
        world, end = self.world, (self.history.setup.records,) * 2
        last = watermark_after(0, end)
        other = world.pasts.differing(world.row, world.output.rows, end, last)
        require(not other, f"the output is not that of an undisturbed run: {other[:3]}")
        world.check_files()
        for store in range(STORES):
            require(
                self._state(store) == expected_state(store, world.pasts.of(world.row), end, last),
                "the state is not that of an undisturbed run",
            )

    def _state(self, store: int) -> object:
        """Return a store, read as a task of the next batch reads it."""
        driver = self._driver()
        assert driver is not None
        done = unpack_committed(self.world.row.checkpoint)
        assert done is not None
        unique = json.loads(done.commit_log.partition("\n")[2])["stateUniqueIds"][str(store)]
        reading, found = driver.executor()._load(store, done.batch + 1, unique), []

        def read() -> Asking[None]:
            found.append((yield from reading))

        actor = self.world.stage.start(driver.process, read())
        try:
            while not actor.is_over:
                self.world.stage.play()
        except RequestFailed as error:
            raise Broken(f"the state cannot be read: {error}") from error
        return found[0] if found else None

    def _collect(self) -> None:
        """Let everything go that nothing reaches, and look what is left."""
        world, driver = self.world, self._driver()
        assert driver is not None
        world.stage.actors = [actor for actor in world.stage.actors if actor.process.kind == "network"]
        for _ in range(3):  # keep what the driver began with, see what is unreached, delete it
            try:
                world.stage.call(driver.process, driver.collect)
            except (FenceError, CheckpointError) as error:
                raise Broken(f"the collector fails: {error}") from error
            world.clock.sleep(GRACE + 1)
        world.check_files()
        left = world.unreached(driver)
        require(not left, f"files or ids stay that nothing reaches: {len(left)}")


@contextmanager
def small(world: World) -> Generator[None]:
    """Let chunks and ranges be small, and the operator's adapter use the tables and the clock of a world."""
    places = [
        (chunks, "CHUNK", SMALL_CHUNK),
        (file_ids, "RANGE", SMALL_RANGE),
        (data_service, "Patience", partial(Patience, monotonic=world.clock.monotonic, sleep=world.sleep)),
        (fence_store, "take", partial(take, monotonic=world.clock.monotonic)),
        (
            fence_store,
            "Fence",
            partial(Fence, now=world.stage.micros, monotonic=world.clock.monotonic, sleep=world.sleep),
        ),
        *quick_copies(),
        *_kept_results(),
    ]
    with swapped(places):
        yield


def _kept_results() -> list[tuple[object, str, object]]:
    """Return what keeps results of pure functions, of one history: together a third of its time."""
    headers, committed, planned = cache(Keys.header), cache(unpack_committed), cache(unpack_planned)

    def header(keys: Keys, scope: str) -> str:  # a function, so that it is bound as a method is
        return headers(keys, scope)

    readers = (fence_committer, world_module, sys.modules[__name__])
    return [
        (Keys, "header", header),
        *Tickets().places(),
        (directory, "names", cache(directory.names)),
        (fence_committer, "unpack", cache(tree.unpack)),
        *((module, "unpack_committed", committed) for module in readers),
        *((module, "unpack_planned", planned) for module in (fence_committer, world_module)),
    ]


def play(history: History, coverage: Counter[str] | None = None) -> Failure | None:
    """Play a history; return what does not hold, None when everything does."""
    playing = Play(history)
    world = playing.world
    with small(world):
        try:
            playing.run()
        except Broken as broken:
            return Failure(str(broken), world.stage.turn, tuple(world.trace))
        except (AssertionError, LookupError, TypeError, ValueError) as error:
            return Failure(f"{type(error).__name__}: {error}", world.stage.turn, tuple(world.trace))
        finally:
            if coverage is not None:
                coverage.update(world.met)
    return None
