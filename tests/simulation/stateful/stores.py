"""Cassandra of one pipeline: the tables in memory, and what happens to a request on its way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from fencepost.fence import FenceRow, FenceUnavailable
from fencepost.fence.memory import MemoryFenceTable
from fencepost.fence.snapshots import Snapshot
from fencepost.state.file_ids import FileRange
from fencepost.state.memory import MemoryChunks, MemoryFileIndex
from simulation.stateful.events import Interrupt, Kind, Outage
from simulation.stateful.job import Row
from simulation.stateful.stage import Killed, Process, Stage

T = TypeVar("T")


@dataclass(slots=True)
class Network:
    """What the armed faults do to the calls of processes, a call each."""

    stage: Stage
    network: Process = field(default_factory=lambda: Process("network", "network"))
    armed: list[Interrupt] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    is_calm: bool = False

    def expect(self, fault: Interrupt | Outage) -> None:
        """Arm a fault."""
        match fault:
            case Interrupt():
                self.armed.append(fault)
            case Outage():
                self.outages.append(fault)

    def calm(self) -> None:
        """End all faults; what is late arrives now."""
        self.is_calm = True
        self.armed.clear()
        self.outages.clear()

    def before(self, call: str) -> None:
        """Meet what happens before the effect. Raises FenceUnavailable, Killed."""
        self._meet(call, "before")
        if any(self.stage.turn < out.at + out.seconds and self._is_of(out.who) for out in self.outages):
            raise FenceUnavailable(f"{call}: no connection")

    def after(self, call: str) -> None:
        """Meet what happens after the effect. Raises FenceUnavailable, Killed."""
        self._meet(call, "after")

    def found(self, call: str, when: str) -> Interrupt | None:
        """Return what happens to this call, once."""
        for armed in self.armed:
            if armed.call in {"any", call} and armed.when == when and self._is_of(armed.who):
                self.armed.remove(armed)
                return armed
        return None

    def is_late(self, call: str, effect: Callable[[], object]) -> bool:
        """Return whether a request has its effect later."""
        armed = next((armed for armed in self.armed if armed.how == "late" and armed.call == call), None)
        if armed is None or not self._is_of(armed.who):
            return False
        self.armed.remove(armed)
        self.later(armed.seconds, effect)
        return True

    @property
    def has_late(self) -> bool:
        """Whether an effect is on its way."""
        return any(actor.process is self.network for actor in self.stage.actors)

    def later(self, turns: int, effect: Callable[[], object]) -> None:
        """Let an effect come after so many turns."""
        due = self.stage.turn + turns

        def arrive() -> Any:
            yield lambda: self.is_calm or self.stage.turn >= due
            effect()

        self.stage.start(self.network, arrive())

    def _meet(self, call: str, when: str) -> None:
        armed = self.found(call, when) if self.armed else None
        if armed is None:
            return
        process = self.stage.running[-1]
        if armed.how == "kill":
            raise Killed(process)
        if armed.how in {"lose", "late"}:
            raise FenceUnavailable(f"{call}: no answer")
        # The ids of a process are locked while a range is stored.
        frozen = armed.how == "freeze" or call == "add_range"
        self.stage.hold(armed.seconds, frozen=frozen)

    def _is_of(self, who: Kind) -> bool:
        return bool(self.stage.running) and who in {"any", self.stage.running[-1].kind}


class Table(MemoryFenceTable):
    """The fence table. `changed` sees each change."""

    def __init__(self, network: Network, changed: Callable[[FenceRow, FenceRow], None]) -> None:
        super().__init__(now=network.stage.clock.micros, before=network.before, after=network.after)
        self._network = network
        self._changed = changed

    def swap(self, before: FenceRow, after: FenceRow) -> bool:
        """Replace on condition, now or later."""
        if self._network.is_late("swap", lambda: self._swap(before, after)):
            raise FenceUnavailable("swap: no answer")
        self.before("swap")
        applied = self._swap(before, after)
        self.after("swap")
        return applied

    def _swap(self, before: FenceRow, after: FenceRow) -> bool:
        applied = self._matches(before)
        if applied:
            self._changed(self.rows[before.pipeline], after)
            self._put(after)
        return applied


class Chunks(MemoryChunks):
    """The chunks. `deleting` sees the files of each deletion."""

    def __init__(self, network: Network, deleting: Callable[[Collection[UUID]], None]) -> None:
        super().__init__(before=network.before, after=network.after)
        self._network = network
        self._deleting = deleting

    def write(self, file: UUID, parts: Mapping[int, bytes]) -> None:
        """Store parts, now or later."""
        if self._network.is_late("write", lambda: self._write(file, parts)):
            raise FenceUnavailable("write: no answer")
        super().write(file, parts)

    def delete(self, files: Collection[UUID]) -> None:
        """Delete files, now or later."""
        if self._network.is_late("delete", lambda: self._delete(files)):
            raise FenceUnavailable("delete: no answer")
        self.before("delete")
        self._delete(files)
        self.after("delete")

    def _write(self, file: UUID, parts: Mapping[int, bytes]) -> None:
        if file not in self.deleted:
            self.chunks |= {(file, part): content for part, content in parts.items()}

    def _delete(self, files: Collection[UUID]) -> None:
        gone = set(files)
        self._deleting(gone & self.files)
        self.deleted |= gone
        self.chunks = {key: content for key, content in self.chunks.items() if key[0] not in gone}


class Index(MemoryFileIndex):
    """The file index."""

    def __init__(self, network: Network) -> None:
        super().__init__(before=network.before, after=network.after)
        self._network = network

    def add(self, found: FileRange) -> None:
        """Store a range, now or later."""
        if self._network.is_late("add_range", lambda: self.rows.setdefault(found.first, found)):
            raise FenceUnavailable("add_range: no answer")
        super().add(found)


@dataclass(slots=True)
class Snapshots:
    """The table of snapshots, as `fencepost.fence.cassandra.snapshots`. `inserting` sees each new one."""

    network: Network
    inserting: Callable[[Snapshot], None]
    rows: dict[UUID, Snapshot] = field(default_factory=dict)

    def insert(self, pipeline: str, snapshot: Snapshot) -> bool:
        """Insert unless it is there."""
        del pipeline
        if self.network.is_late("insert_snapshot", lambda: self._insert(snapshot)):
            raise FenceUnavailable("insert_snapshot: no answer")
        return self._asked("insert_snapshot", lambda: self._insert(snapshot))

    def read(self, pipeline: str, id: UUID) -> Snapshot | None:  # noqa: A002 - the column's name
        """Return one snapshot, or None."""
        del pipeline
        return self._asked("read_snapshot", lambda: self.rows.get(id))

    def newest(self, pipeline: str) -> tuple[Snapshot, ...]:
        """Return all of them, the newest first."""
        del pipeline
        return self._asked("read_snapshot", lambda: tuple(reversed(self.rows.values())))

    def checkpoints(self) -> tuple[bytes, ...]:
        """Return the checkpoints of all of them."""
        return self._asked(
            "checkpoints", lambda: tuple(one.checkpoint for one in self.rows.values() if one.checkpoint is not None)
        )

    def delete(self, pipeline: str, ids: Sequence[UUID]) -> None:
        """Delete snapshots."""
        del pipeline
        if self.network.is_late("delete_snapshot", lambda: self._delete(ids)):
            raise FenceUnavailable("delete_snapshot: no answer")
        self._asked("delete_snapshot", lambda: self._delete(ids))

    def _delete(self, ids: Sequence[UUID]) -> None:
        for one in ids:
            self.rows.pop(one, None)

    def _insert(self, snapshot: Snapshot) -> bool:
        if snapshot.id in self.rows:
            return False
        self.inserting(snapshot)
        self.rows[snapshot.id] = snapshot
        return True

    def _asked(self, call: str, answer: Callable[[], T]) -> T:
        self.network.before(call)
        found = answer()
        self.network.after(call)
        return found


@dataclass(slots=True)
class Output:
    """The sink's table: of two writes or deletions the one with the later timestamp stays."""

    cells: dict[Row, tuple[int, int | None]] = field(default_factory=dict)

    @property
    def rows(self) -> dict[Row, int]:
        """The rows that are there."""
        return {row: value for row, (_, value) in self.cells.items() if value is not None}

    def write(self, rows: Mapping[Row, int | None], at: int) -> str | None:
        """Write or delete rows at a timestamp; return what is wrong with that."""
        for row, value in rows.items():
            there = self.cells.get(row, (-1, None))
            if at > there[0]:
                self.cells[row] = at, value
            elif at == there[0] and value != there[1]:
                return f"two values at one timestamp: {row} {value} {there}"
        return None
