"""The operator as an actor: the real reconciler, one step at a time, interrupted where a history says so."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar, cast

from fakes.gate import Gate
from fakes.objects_ports import FakePipelines
from fakes.ports import ports_of
from fencepost_operator.api import ObjectKey, Pipeline, ReconcileConfig, Status
from fencepost_operator.errors import PortError, Unreachable
from fencepost_operator.ports import Ports
from fencepost_operator.runtime.passes.reconciler import Reconciler
from fencepost_operator.runtime.permits.replacement import ReplacementPermits
from fencepost_operator.runtime.permits.restart import RestartPermits
from simulation import events as e
from simulation.failure import require
from simulation.invariants import HOT_LOOP, Pass
from simulation.pages import Inbox, SimulatedPager
from simulation.scheduling import Pause
from simulation.world import SimulatedWorld

T = TypeVar("T")

AFTER_ERROR: Final = 1.0
"""Seconds until the loop tries again when the API server could not be asked."""
WAKES_IN: Final = timedelta(seconds=0.5)
DEATH: Final = 2.0
"""Seconds until an operator that died is there again."""
CONFIG: Final = ReconcileConfig(
    cluster_uid="cluster-1",
    poll_interval=3.0,
    resync_interval=60.0,
    refresh_interval=30.0,
    look_interval=150.0,
    page_resolve_after=45.0,
)
"""Seldom passes make short histories.

`wake` stands for the watches, at each event of a history.  What time alone does to Kubernetes wakes nothing: what an
operator knows of a pipeline at rest may be up to three minutes old.
"""
KAFKA: Final = frozenset({"source", "unread", "at", "topic_settings"})
CASSANDRA: Final = frozenset(
    {
        "fence", "progress", "loss", "snapshots", "cassandra_settings",
        "create", "take_over", "accept_loss", "take_snapshot", "drop_snapshots", "rewind", "delete_fence",
    }
)  # fmt: skip
LATE: Final = frozenset({"start", "stop", "install", "uninstall", "prune", "write_status", "set_finalizer"})
"""Writes that may take effect long after their caller gave up; the next read settles a late write to the fence."""


class Died(BaseException):
    """The operator's process ended."""


@dataclass(frozen=True, slots=True)
class SkewedClock:
    """An operator's clocks: the wall's may step, the monotonic one does not."""

    operator: Operator

    def now(self) -> datetime:
        return self.operator.world.now + timedelta(seconds=self.operator.skew + self.operator.stepped)

    def monotonic(self) -> float:
        return self.operator.world.now.timestamp()


@dataclass(slots=True)
class SimulatedPipelines(FakePipelines):
    """The pipeline object, as the world keeps it."""

    world: SimulatedWorld

    def _read(self, key: ObjectKey) -> Pipeline | None:
        return self.world.pipeline(key)

    async def write_status(self, pipeline: Pipeline, status: Status) -> Pipeline:
        written: list[Pipeline] = []

        def effect() -> None:
            self._check(pipeline)
            written.append(self.world.write_status(pipeline.key, status))

        await self.gate.write("write_status", effect)
        return written[0]


class SimulatedGate(Gate):
    """Where an operator's calls are answered late, from a cache, or not at all, and where it stops and dies."""

    def __init__(self, operator: Operator) -> None:
        super().__init__()
        self._operator = operator

    async def read(self, name: str, fact: Callable[[], T]) -> T:
        """Read, and note what could not be seen in this pass."""
        operator = self._operator
        if operator.interrupts:
            await operator.interrupted(name, "before")
        try:
            found = operator.answer(name, fact)
        except PortError:
            operator.turn.read_failed(name)
            raise
        if name == "pipeline":
            operator.turn.read(cast("Pipeline | None", found))
        if operator.interrupts:
            await operator.interrupted(name, "after")
        return found

    async def write(self, name: str, effect: Callable[[], object]) -> None:
        """Write, unless the operator dies before, or the request is lost."""
        operator = self._operator
        operator.writes.append(name)
        if operator.interrupts:
            await operator.interrupted(name, "before", effect)
        operator.check_answers(name)
        operator.turn.write(name)
        effect()
        operator.wrote(name)
        if operator.interrupts:
            await operator.interrupted(name, "after")


class SimulatedPermits(RestartPermits):
    """Permits that other pipelines have for some time."""

    def __init__(self, world: SimulatedWorld) -> None:
        super().__init__(limit=1, timeout=CONFIG.restart_timeout)
        self._world = world

    def may_restart(self, key: ObjectKey, now: float) -> bool:
        """Return whether the pipeline's turn has come."""
        return not self._is_busy and RestartPermits.may_restart(self, key, now)

    def note(self, key: ObjectKey, *, since: datetime | None, queued: bool, wall: datetime, now: float) -> None:
        """Note whether a restart begins without a permit: its status then says why.

        One that began earlier has another moment where the clock has stepped, also the other operator's.
        """
        if since == wall and since not in self._world.restarts and not self._is_held(key, now):
            if self._is_busy:
                self._world.invariants.statuses.unpermitted.add(since)
            self._world.restarts.add(since)
        RestartPermits.note(self, key, since=since, queued=queued, wall=wall, now=now)

    @property
    def _is_busy(self) -> bool:
        return self._world.busy_until > self._world.now


class SimulatedReplacements(ReplacementPermits):
    """Permits that other pipelines have for some time."""

    def __init__(self, world: SimulatedWorld) -> None:
        super().__init__()
        self._world = world

    def take(self, key: ObjectKey, epoch: int, now: float) -> bool:
        """Return whether a silent driver may be replaced now."""
        return self._world.lost_until <= self._world.now and ReplacementPermits.take(self, key, epoch, now)


@dataclass(slots=True)
class Operator:
    """One operator process and its loop over one pipeline. `due` is when it moves next."""

    world: SimulatedWorld
    key: ObjectKey
    number: int
    skew: float
    due: datetime
    passes: int = 0
    deaths: int = 0
    chart: str = "60e6ba1d926a"
    cluster_uid: str = CONFIG.cluster_uid
    inbox: Inbox = field(default_factory=Inbox)
    """Of the receiver of pages, to which all operators send."""
    turn: Pass = field(default_factory=Pass)
    interrupts: list[e.Interrupt] = field(default_factory=list)
    stale: dict[str, datetime] = field(default_factory=dict)
    """Until when a fact is answered as it was last."""
    unseen: dict[str, datetime] = field(default_factory=dict)
    """Until when a fact is not answered."""
    stepped: float = 0.0
    """Seconds by which its wall clock was set ahead since it began."""
    blind: frozenset[str] = frozenset()
    """Calls of what does not answer it."""
    note: Callable[[str], None] = lambda _line: None
    writes: list[str] = field(default_factory=list)
    _last: dict[str, tuple[str, Any]] = field(default_factory=dict)
    """The last answer about each fact, and the uid of the pipeline object that it was for."""
    _at_once: int = 0
    _woken: bool = True
    """Whether an event has asked for a pass since the last one began."""
    _reconciler: Reconciler | None = None
    _pass: Coroutine[Any, Any, float | None] | None = None

    def step(self) -> None:
        """Make a pass, or as much of it as comes before the next interruption."""
        if self._reconciler is None:
            self._reconciler = Reconciler(
                ports=self._ports(), config=replace(CONFIG, chart=self.chart, cluster_uid=self.cluster_uid)
            )
            self._reconciler.permits = SimulatedPermits(self.world)
            self._reconciler.replacements = SimulatedReplacements(self.world)
        if self._pass is None:
            self.passes += 1
            self.turn = Pass()
            self._reconciler.note_census()
            self._pass = self._reconciler.reconcile(self.key, woken=self._woken)
            self._woken = False
        again = self._send()
        self._at_once = self._at_once + 1 if again == 0 else 0
        require(self._at_once < HOT_LOOP, f"a hot loop of operator {self.number}: {self.writes[-6:]}")
        self.due = self.world.now + timedelta(seconds=again)

    def end(self) -> None:
        """Kill it, wherever it is."""
        if self._pass is not None:
            self._pass.close()
        self._pass = self._reconciler = None

    def wake(self) -> None:
        """Let it look soon, unless it stands still in a pass."""
        self._woken = True
        if self._pass is None:
            self.due = min(self.due, self.world.now + WAKES_IN)

    def thaw(self) -> None:
        """Let it run again, and let each dependency answer."""
        self.interrupts.clear()
        self.stale.clear()
        self.blind, self.stepped = frozenset(), 0.0
        self.unseen.clear()
        self.due = self.world.now

    def _send(self) -> float:
        """Return the seconds until it moves again."""
        assert self._pass is not None
        try:
            pause: Pause = self._pass.send(None)
        except StopIteration as done:
            self._pass = None
            return CONFIG.resync_interval if done.value is None else float(done.value)
        except PortError:
            self._pass = None
            return AFTER_ERROR
        except Died:
            self._pass = self._reconciler = None
            self.deaths += 1
            return DEATH
        return pause.seconds

    def _ports(self) -> Ports:
        gate = SimulatedGate(self)
        return replace(
            ports_of(self.world, gate),
            pipelines=SimulatedPipelines(world=self.world, gate=gate),
            pager=SimulatedPager(self.world, self.inbox),
            clock=SkewedClock(self),
        )

    # what its gate asks

    def answer(self, name: str, fact: Callable[[], T]) -> T:
        """Return a fact as this operator sees it."""
        now, pipeline = self.world.now, self.world.pipelines.get(self.key)
        uid = pipeline.uid if pipeline is not None else ""
        self.check_answers(name)
        if name in self.unseen and self.unseen[name] > now:
            raise Unreachable(f"no answer about {name}", remedy="look at the API server")
        if name in self.stale and self.stale[name] > now and self._last.get(name, ("",))[0] == uid:
            found: T = self._last[name][1]
            return found
        found = fact()
        self._last[name] = (uid, found)
        return found

    def check_answers(self, name: str) -> None:
        """Raise Unreachable for a call of what does not answer this operator."""
        if name in self.blind:
            raise Unreachable(f"{name}: no answer", remedy="look at the network")

    @property
    def is_disturbed(self) -> bool:
        """Whether it stands still, or is shown old facts or none for a while, apart from blindness."""
        now = self.world.now
        return self._pass is not None or any(end > now for end in (*self.stale.values(), *self.unseen.values()))

    def wrote(self, name: str) -> None:
        """Note a write that took effect."""
        if name != "write_status":
            self.note(f"operator {self.number}: {name}")
        is_misled = any(end > self.world.now for end in self.stale.values())
        self.world.invariants.statuses.written(self.world.pipelines.get(self.key), name, is_misled=is_misled)

    async def interrupted(self, name: str, when: str, effect: Callable[[], object] | None = None) -> None:
        """Suffer the first interruption that is about this call. `effect` is that of a write that comes next."""
        found = next((one for one in self.interrupts if (one.call, one.when) == (name, when)), None)
        if found is None:
            return
        self.interrupts.remove(found)
        self.note(f"operator {self.number}: {found.how} {when} {name}")
        match found.how:
            case "crash":
                raise Died
            case "freeze":
                await Pause(found.seconds)
            case "lost":
                raise Unreachable(f"{name}: no answer")
            case "late":
                if effect is not None and name in LATE:
                    self.turn.write(name)
                    self.world.late.append((self.world.now + timedelta(seconds=found.seconds), effect))
                raise Unreachable(f"{name}: no answer yet")
