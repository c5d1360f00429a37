"""One pipeline and all around it: Cassandra, Kafka's log, workers, drivers, operators, and what must hold of them."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import count
from typing import Final
from uuid import UUID

from fencepost.contract import Acceptance, ReportedLoss
from fencepost.errors import DataLoss
from fencepost.fence import EMPTY, Fence, FenceRow
from fencepost.fence.row import UNCLAIMED
from fencepost.fence.snapshots import WRITTEN_WITHIN, Snapshot
from fencepost.spark.stateful.stream_source import end_of
from fencepost.state.checkpoint import Checkpoint
from fencepost.state.errors import CheckpointDamaged
from fencepost.state.fence_committer import reached_by
from fencepost.state.memory import MemoryChunks
from fencepost.state.progress import unpack_committed, unpack_planned
from fencepost.state.webhdfs.authentication import Keys
from fencepost_operator.api import ResolvedTarget
from present import present
from simulation.failure import require
from simulation.stateful import job
from simulation.stateful.drivers import OWNER, PATIENCE, PIPELINE, Driver
from simulation.stateful.events import Kind
from simulation.stateful.growth import Growth
from simulation.stateful.hadoop import Server, SimulatedDataService, Wires
from simulation.stateful.history import Setup
from simulation.stateful.job import Ends, Record, Row, ends_of
from simulation.stateful.operators import Operator, Status
from simulation.stateful.pasts import Pasts
from simulation.stateful.stage import Process, Stage
from simulation.stateful.stores import Chunks, Index, Network, Output, Snapshots, Table

WORKERS: Final = 2
GROWS_EVERY: Final = 12
"""Turns in which the log grows by a record."""
SKIPPED_WITHIN: Final = 60
"""Turns from the failure of a record to the command that leaves it out."""
MARGIN: Final = 30.0
"""Seconds that a request may take in addition to what a snapshot's writer measures."""


class World:
    """All processes and tables. `trace` has what happened, by turn and seconds."""

    def __init__(self, seed: int, setup: Setup) -> None:
        self.setup = setup
        self.dice = random.Random(seed)
        self.stage = Stage(self.dice)
        self.clock = self.stage.clock
        self.network = Network(self.stage)
        self.met: Counter[str] = Counter()
        self.wires = Wires(self.stage, self.network, self.met)
        self.table = Table(self.network, self._changing)
        self.chunks = Chunks(self.network, self._deleting)
        self.index = Index(self.network)
        self.snapshots = SoundSnapshots(self)
        self.output = Output()
        self.status = Status()
        self.jobs: dict[int, Driver] = {}
        """The newest driver of each epoch."""
        self.drivers: list[Driver] = []
        self.code = "code-0"
        self.steps: dict[Kind, float] = {}
        """Seconds by which the clocks of a kind of process have stepped."""
        self.trace: list[str] = []
        self._numbers = count(1)
        self._reached: dict[bytes, frozenset[UUID]] = {EMPTY: frozenset()}
        self.pasts = Pasts(frozenset(setup.poison))
        self.growth = Growth()
        self.begins: Ends = (0, 0)
        """Where Kafka's log begins, of each partition."""
        self.losses: list[ReportedLoss] = []
        """What runs have found lost, and a user has accepted."""
        self.left_out: frozenset[Record] = frozenset()
        """The records that a run leaves out that starts now."""
        self._since: dict[int, float] = {}
        """When the row left each version, in seconds."""
        self.fence().create(OWNER)
        self.workers = [self._worker(number) for number in range(WORKERS)]
        self.operators = [Operator(self, number) for number in range(setup.operators)]

    @property
    def row(self) -> FenceRow:
        """The fence row."""
        return self.table.rows[PIPELINE]

    @property
    def log_end(self) -> int:
        """Where Kafka's log ends, of each partition."""
        if self.network.is_calm:
            return self.setup.records
        return min(2 + self.stage.turn // GROWS_EVERY, self.setup.records)

    def fence(self) -> Fence:
        """Return the fence for the process that runs."""
        return Fence(
            self.table,
            PIPELINE,
            patience=PATIENCE,
            now=self.stage.micros,
            monotonic=self.clock.monotonic,
            sleep=self.sleep,
        )

    def sleep(self, seconds: float) -> None:
        """Let others run for a moment."""
        self.clock.sleep(seconds)
        self.stage.hold(1, frozen=False)

    def skew(self, kind: Kind) -> float:
        """Return by how many seconds the clock of a new process is ahead."""
        usual = {"driver": self.setup.driver_skew, "operator": self.setup.operator_skew}.get(kind, 0.0)
        return usual + self.steps.get(kind, 0.0) + self.steps.get("any", 0.0)

    def note(self, line: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.stage.turn:5} {self.clock.seconds:7.0f} s  {line}")

    def start_driver(self, epoch: int) -> None:
        """Create the Job of an epoch, or a second pod of it."""
        driver = Driver(self, epoch, next(self._numbers), self.code)
        self.jobs[epoch] = driver
        self.drivers.append(driver)

    def start_twin(self) -> None:
        """Start a second pod of the newest Job, if there is one."""
        if self.status.epoch in self.jobs:
            self.start_driver(self.status.epoch)

    def start_operator(self, number: int) -> None:
        """Start a replica again that has ended."""
        self.operators[number] = Operator(self, number)

    def start_worker(self, number: int) -> None:
        """Start a worker again, without the files that it had."""
        self.workers[number] = self._worker(number)

    def processes(self, kind: Kind) -> list[Process]:
        """Return the processes of a kind that live."""
        executors = [each.process for driver in self.drivers for each in driver.executors.values()]
        found = [
            *(driver.process for driver in self.drivers),
            *executors,
            *self.workers,
            *(operator.process for operator in self.operators),
        ]
        return [process for process in found if not process.is_dead and kind in {"any", process.kind}]

    def _worker(self, number: int) -> Process:
        process = Process(f"worker {number}", "worker")
        service = SimulatedDataService(process, self.chunks, Keys("secret", now=self.clock.monotonic), self.wires)
        self.wires.servers[f"worker-{number}:2"] = Server(process, service.handle)
        return process

    # rewinds

    def prove_deaths(self, epoch: int) -> None:
        """Let everything that ran under an older epoch be dead: before output is deleted, that has to be proven."""
        for driver in self.drivers:
            if driver.epoch < epoch:
                for process in (driver.process, *(each.process for each in driver.executors.values())):
                    self.stage.kill(process)

    def purge(self, target: ResolvedTarget, at: int) -> None:
        """Delete the rows of the records beyond a target, as far as rows name their record."""
        end = ends_of(target.offsets)
        gone: dict[Row, int | None] = {
            row: None for row in self.output.rows if row[0] == "total" and row[2] >= end[row[1]]
        }
        self.output.write(gone, at)
        self.met["output deleted by a rewind"] += 1

    # records that no run reads

    def lose(self, partition: int, records: int) -> None:
        """Let Kafka delete records behind the committed offsets; some are left, and no window closes before the others.

        Not during a rewind: it goes back to where the log is known to begin.
        """
        busy = bool(self.status.rewinds) or any(operator.is_acting for operator in self.operators)
        ends = ends_of(self.row.offsets)
        most = min(self.log_end, self.setup.records - 1, ends[1 - partition] + job.DELAY + 1)
        begin = min(ends[partition] + records, most)
        if busy or begin <= self.begins[partition] or self.network.has_late:
            return
        self.begins = (begin, self.begins[1]) if partition == 0 else (self.begins[0], begin)
        self.met["records lost"] += 1

    def accept(self, error: DataLoss, epoch: int) -> None:
        """Let a user accept what a run has found."""
        at = self.clock.now()
        accepted = Acceptance(by="ann", choice="", at=at)
        self.losses.append(ReportedLoss(loss=present(error.loss), epoch=epoch, at=at, acceptance=accepted))

    def leave_out(self, partition: int, offset: int) -> None:
        """Let a user leave out a record, some time after a run has failed at it."""
        self.met["record failed"] += 1

        def skip() -> None:
            self.left_out |= {(partition, offset)}

        self.network.later(self.dice.randrange(SKIPPED_WITHIN), skip)

    # what must hold

    def write(self, rows: Mapping[Row, int], token: int, driver: Driver) -> None:
        """Write output. Nothing may be written of what the row does not plan."""
        if rows and driver.is_newest:
            for kind, partition, offset in rows:
                if kind == "total":
                    planned = self.row.planned.get(job.KEYS[partition], 0)
                    require(offset < planned, f"a row is written that is not planned: {offset}")
        wrong = self.output.write(rows, token)
        require(wrong is None, str(wrong))

    def reached_by(self, checkpoint: bytes) -> frozenset[UUID]:
        """Return the files that a checkpoint reaches."""
        if checkpoint not in self._reached:
            try:
                self._reached[checkpoint] = reached_by(checkpoint, MemoryChunks(self.chunks.chunks))
            except CheckpointDamaged as error:
                require(False, f"the list of files of a checkpoint is gone: {error}")
        return self._reached[checkpoint]

    @property
    def ids(self) -> set[UUID]:
        """The files that have chunks, and the ids of the index."""
        return set(self.chunks.files).union(*(found.ids(found.numbers) for found in self.index.rows.values()))

    def unreached(self, driver: Driver) -> set[UUID]:
        """Return what is there and reached neither by the row, a snapshot nor the driver that has the row."""
        late = [one.checkpoint for one in self.snapshots.rows.values() if one.checkpoint is not None]
        return self.ids.difference(self.reached(), driver.serving, *(self.reached_by(each) for each in late))

    def reached(self) -> set[UUID]:
        """Return the files of the row and of the snapshots that were written in time."""
        found = [self.row.checkpoint, *(one.checkpoint for one in self.snapshots.sound.values())]
        return set().union(*(self.reached_by(each) for each in found if each is not None))

    def watermark_of(self, checkpoint: bytes | None) -> int:
        """Return the watermark at which the last batch of a checkpoint closed windows."""
        done = unpack_committed(checkpoint)
        return 0 if done is None else int(done.offset_logs[done.batch].splitlines()[1].partition(":")[2].rstrip("}"))

    def age(self, version: int) -> float:
        """Return the seconds since the row left a version."""
        return self.clock.seconds - self._since.get(version, self.clock.seconds)

    def check_files(self) -> None:
        """Check that what is reached is there."""
        missing = self.reached() - self.chunks.files
        require(not missing, f"files are gone that are reached: {len(missing)}")

    def check_visible(self, checkpoint: Checkpoint) -> None:
        """Check that the directory of the newest epoch shows what the row says."""
        done, planned = unpack_committed(self.row.checkpoint), unpack_planned(self.row.planned_log)
        last = -1 if done is None else done.batch
        shown = [
            max((int(each.name) for each in checkpoint.entries(log) if each.name.isdecimal()), default=-1)
            for log in ("offsets", "commits")
        ]
        said = [last if planned is None else planned.batch, last]
        require(shown == said, f"the directory shows another version than the row says: {shown}, {said}")

    def _changing(self, before: FenceRow, after: FenceRow) -> None:
        self._follow(before, after)
        self._since[before.version] = self.clock.seconds
        require(after.epoch >= before.epoch, "the epoch runs backwards")
        require(after.version > before.version and after.clock >= before.clock, "version or clock runs backwards")
        done, planned = unpack_committed(after.checkpoint), unpack_planned(after.planned_log)
        if done is not None:
            require(self.pasts.is_of_state(after), "the offsets are not those of the state")
        if planned is not None:
            require(planned.batch == (0 if done is None else done.batch + 1), "the planned batch does not follow")
            ends = {key: max(end, after.offsets[key]) for key, end in end_of(planned.offset_log).items()}
            require(after.planned == ends, "the planned ends are not those of the log")
        if before.driver is not UNCLAIMED:
            driver = next(each for each in self.drivers if each.uid == before.driver)
            self.met["driver runs on after a takeover"] += after.epoch > before.epoch and not driver.process.is_dead
        if before.driver is not UNCLAIMED and after.epoch == before.epoch:
            require(driver.epoch == after.epoch, "a driver of an older epoch changes the row")
        if after.checkpoint is not None and after.checkpoint != before.checkpoint:
            missing = self.reached_by(after.checkpoint) - self.chunks.files
            require(not missing, f"files of a new state are not there: {len(missing)}")

    def _follow(self, before: FenceRow, after: FenceRow) -> None:
        """Let the pasts see a change."""
        if before.driver is UNCLAIMED is after.driver and before.epoch == after.epoch:
            self.pasts.rewind(after)
        elif before.driver is UNCLAIMED is not after.driver:
            moved = zip(ends_of(before.offsets), ends_of(after.offsets), self.begins, strict=True)
            require(all(at == was or was < at <= begin for was, at, begin in moved), "a claim moves on without a loss")
            self.pasts.claim(before, after)
        elif after.checkpoint != before.checkpoint:
            self.pasts.commit(before, after)

    def _deleting(self, files: Collection[UUID]) -> None:
        gone = self.reached() & set(files)
        require(not gone, f"files are deleted that are reached: {len(gone)}")
        self.met["file collected"] += len(files)


class SoundSnapshots(Snapshots):
    """The snapshots. Of one that was inserted too late the files may be gone; its writer deletes it, if it lives."""

    def __init__(self, world: World) -> None:
        super().__init__(world.network, self._inserting)
        self._world = world
        self._late: set[UUID] = set()
        self._gone: dict[int, float] = {}
        """When the last sound snapshot of a version was deleted, in seconds."""

    @property
    def sound(self) -> dict[UUID, Snapshot]:
        """Those that were inserted in time."""
        return {key: one for key, one in self.rows.items() if key not in self._late}

    def _delete(self, ids: Sequence[UUID]) -> None:
        sound = self.sound
        self._world.met["snapshot deleted during a rewind"] += any(one in self.rows for one in ids) and any(
            back.target is not None for back in self._world.status.rewinds
        )
        self._gone |= {sound[one].version: self._world.clock.seconds for one in ids if one in sound}
        super()._delete(ids)

    def _age(self, version: int) -> float:
        """Return the seconds since the row, or a snapshot that may be copied, was at a version."""
        if any(one.version == version for one in self.sound.values()):
            return 0.0
        since = self._world.clock.seconds - self._gone.get(version, -math.inf)
        return min(self._world.age(version), since)

    def _inserting(self, snapshot: Snapshot) -> None:
        if self._age(snapshot.version) > WRITTEN_WITHIN + MARGIN:
            self._late.add(snapshot.id)
            self._world.met["snapshot inserted too late"] += 1
            return
        self._world.met["snapshot taken"] += 1
        missing = self._world.reached_by(snapshot.checkpoint or EMPTY) - self._world.chunks.files
        require(not missing, f"a snapshot is taken whose files are gone: {len(missing)}")
