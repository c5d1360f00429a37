"""An operator in a world: runs the loop, dies and comes back, and looks whether what must hold still holds."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest

from fakes.gate import Gate
from fakes.manifests import KEY, body
from fakes.paging import Paging
from fakes.ports import ports_of
from fakes.world import World
from fencepost.fence import FenceRow
from fencepost_operator.api import Condition, ObjectKey, Pipeline, ReconcileConfig, State, condition_of, read_pipeline
from fencepost_operator.errors import PortError, Unreachable
from fencepost_operator.runtime.passes.reconciler import Reconciler

POLICY = ReconcileConfig(cluster_uid="cluster-1")
ROW = "default/shop/orders"


class Died(BaseException):
    """The operator was killed with -9."""


FAULTS: Final = (pytest.param(Died, id="killed"), pytest.param(Unreachable, id="no answer", marks=pytest.mark.long))
"""What strikes at a write: a kill in `make test`, and in `make soak` also a request without an answer."""


@dataclass(slots=True)
class Stage:
    """A world and its operator. `deaths` counts how often the operator died and was started again."""

    world: World = field(default_factory=World)
    gate: Gate = field(default_factory=Gate)
    key: ObjectKey = KEY
    config: ReconcileConfig = POLICY
    deaths: int = 0
    passes: int = 0
    woken: bool = True
    """Whether an event asks for each pass."""
    begins: Callable[[], object] = lambda: None
    """Is called before each pass."""
    has_census: bool = True
    """Whether all objects can be listed, now and then, for changes without an event; none is found here."""
    paging: Paging | None = None
    """Receivers of pages; without any, no page is sent."""
    _operator: Reconciler | None = None
    _read: tuple[str, Pipeline] | None = None
    """The object as it was read last, as JSON and whole: it is asked for several times a pass."""

    @classmethod
    async def streaming(cls, stage: Stage | None = None, **spec: Any) -> Stage:
        """Return a stage, a new one by default, whose pipeline of this spec runs."""
        stage = stage or cls()
        stage.world.apply(body(**spec))
        await stage.running()
        return stage

    async def turn(self) -> float | None:
        """Make one pass, by a new operator when the last one died."""
        if self._operator is None:
            ports = ports_of(self.world, self.gate)
            if self.paging is not None:
                ports = replace(ports, pager=self.paging.begin())
            self._operator = Reconciler(ports=ports, config=self.config)
        if self.has_census:
            self._operator.note_census()
        self.passes += 1
        self.begins()
        again: float | None = 1.0
        try:
            again = await self._operator.reconcile(self.key, woken=self.woken)
            if self.paging is not None:
                await self.paging.settle()
        except* Died:  # in a group where it died while it asked for several facts at once
            self.deaths += 1
            self._operator = None
        except* PortError:
            again = 1.0
        return again

    async def until(self, reached: Callable[[], bool], *, seconds: float = 300.0) -> None:
        """Run the loop until something holds; fails when it does not within that time."""
        left, at_once = seconds, 0
        while not reached():
            if left <= 0:
                status = self.pipeline.status if self.key in self.world.objects else None
                raise AssertionError(f"not reached in {seconds} s: {status}; events {self.world.events[-8:]}")
            again = await self.turn()
            self.check()
            at_once = at_once + 1 if again == 0 else 0
            assert at_once < 50, f"a hot loop: {self.gate.writes[-10:]} {self.world.events[-5:]}"
            pause = min(again or 0.5, 1.0) if again != 0 else 0.0
            self.world.advance(pause)
            left -= pause

    async def run(self, seconds: float) -> None:
        """Run the loop for some time."""
        end = self.world.now.timestamp() + seconds
        await self.until(lambda: self.world.now.timestamp() >= end, seconds=seconds + 10)

    async def running(self, *, seconds: float = 300.0) -> None:
        """Run the loop until the pipeline runs and is ready."""
        await self.until(self.is_running, seconds=seconds)

    async def replaced(self, epoch: int = 2, *, seconds: float = 300.0) -> None:
        """Run the loop until the run of this epoch runs."""
        await self.until(lambda: self.is_running() and self.epoch == epoch, seconds=seconds)

    async def suspended(self, *, seconds: float = 300.0) -> None:
        """Suspend the pipeline, and run the loop until it is."""
        self.world.change(self.key, suspend=True)
        await self.until(lambda: self.ready() == "Suspended", seconds=seconds)

    async def deleted(self, *, seconds: float = 300.0) -> None:
        """Delete the pipeline, and run the loop until it is gone."""
        self.world.delete(self.key)
        await self.until(self.is_gone, seconds=seconds)

    def annotate(self, name: str, value: str) -> None:
        """Annotate the pipeline."""
        self.world.objects[self.key]["metadata"].setdefault("annotations", {})[name] = value
        self.world.touch(self.key)

    def is_gone(self) -> bool:
        """Whether the object is gone."""
        return self.key not in self.world.objects

    def is_running(self) -> bool:
        """Whether a driver holds the fence and the pipeline says Running."""
        if self.key not in self.world.objects:
            return False
        status = self.pipeline.status
        spec_seen = status.observed_generation == self.pipeline.generation
        row = self.world.table.rows.get(ROW)
        held = row is not None and row.driver is not None and row.epoch == (status.run.epoch if status.run else None)
        return spec_seen and held and status.state in {State.RUNNING, State.CATCHING_UP}

    @property
    def pipeline(self) -> Pipeline:
        """The object as it is now."""
        body = json.dumps(self.world.objects[self.key])
        if self._read is None or self._read[0] != body:
            self._read = (body, read_pipeline(json.loads(body)))
        return self._read[1]

    @property
    def row(self) -> FenceRow:
        """The fence row as it is now."""
        return self.world.table.rows[ROW]

    @property
    def epoch(self) -> int:
        """The fence row's epoch."""
        return self.row.epoch

    @property
    def generation(self) -> int:
        """The generation of the Spark cluster that Helm installed last."""
        generation: int = self.world.releases[self.key].values["generation"]
        return generation

    @property
    def reported(self) -> list[str]:
        """The reasons of all Events."""
        return [reason for reason, _ in self.world.events]

    def condition(self, kind: str) -> Condition | None:
        """Return a condition of the pipeline."""
        return condition_of(self.pipeline.status.conditions, kind)

    def status_of(self, kind: str) -> str | None:
        """Return the status of a condition."""
        found = self.condition(kind)
        return found.status if found else None

    def ready(self) -> str:
        """Return the reason of the Ready condition, '' before there is one."""
        found = self.condition("Ready")
        return found.reason if found else ""

    def check(self) -> None:
        """Look at all that must hold at every moment."""
        names = self.world.created_jobs
        assert len(names) == len(set(names)), f"an epoch had two Jobs: {names}"
        epochs = [row.epoch for row in self.world.table.history]
        for earlier, later in itertools.pairwise(epochs):
            assert later in {earlier, earlier + 1}, f"epochs jumped: {epochs}"
        self.check_commits()
        if self.key in self.world.objects:
            self.check_conditions()

    def check_commits(self) -> None:
        """Commits are contiguous but for accepted losses, and none is of an older epoch than one before it."""
        moved = [driver.moved for driver in self.world.drivers]
        commits = sorted(
            (commit for driver in self.world.drivers for commit in driver.commits),
            key=lambda commit: (sum(commit[1].values()), commit[0]),
        )
        for earlier, later in itertools.pairwise(commits):
            assert earlier[2] == later[1] or (earlier[2], later[1]) in moved, (
                f"commits are not contiguous: {earlier} {later}"
            )
            assert earlier[0] <= later[0], "an older epoch committed after a newer one"

    def check_conditions(self) -> None:
        """The conditions have kstatus' shape."""
        conditions = [c.type for c in self.pipeline.status.conditions]
        if conditions:
            assert conditions.count("Ready") == 1
            assert not {"Stalled", "Reconciling"} <= set(conditions)
