"""A driver: the real claim, checkpoint, services and collector, and the query and executors of `spark` on them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from uuid import UUID

from fencepost.batch import Watermarks
from fencepost.driver.recovery import lost_ranges
from fencepost.driver.stateful import plan
from fencepost.errors import DataLoss
from fencepost.fence import Fence, Fenced, FenceError, FenceMissing, FenceRow, Starting
from fencepost.fence.patience import Patience
from fencepost.spark.stateful.stream_source import end_of, offsets_text, with_end
from fencepost.state.checkpoint import Checkpoint
from fencepost.state.chunks import PatientChunks
from fencepost.state.collector import Collector
from fencepost.state.errors import CheckpointDamaged, CheckpointError
from fencepost.state.fence_committer import FenceCommitter, PlannedBatch, WrittenBatch, reopened
from fencepost.state.file_ids import FileIds
from fencepost.state.webhdfs.authentication import Keys
from fencepost.state.webhdfs.http_server import Answer, Request
from fencepost.state.webhdfs.name_service import NameService
from present import present
from simulation.failure import require
from simulation.stateful.hadoop import Client, RequestFailed, Server, SimulatedDataService
from simulation.stateful.job import KEYS, TOPIC, Ends, Past, Row, ends_of, store_of
from simulation.stateful.spark import Executor, Query, QueryEnded, Task
from simulation.stateful.stage import Killed, Process, Stage, Steps

if TYPE_CHECKING:
    from simulation.stateful.world import World

PIPELINE: Final = "scope/shop/orders"
OWNER: Final = "cluster/pipeline"
PATIENCE: Final = 5.0
"""Seconds."""
COLLECTS_EVERY: Final = 60.0
"""Seconds."""
LONGEST_END: Final = 30
"""Turns from the end of the query to that of the process, in which executors still ask."""
LOOKS_EVERY: Final = 60.0
"""Seconds after which an idle driver looks whether it holds the fence, as `fencepost.driver.watchdogs` does."""


class Driver:
    """One run. It is the BatchFacts of its committer, and the application that Spark knows."""

    def __init__(self, world: World, epoch: int, number: int, code: str) -> None:
        self.world = world
        self.stage: Stage = world.stage
        self.dice: random.Random = world.dice
        self.met: Counter[str] = world.met
        self.epoch = epoch
        self.uid = f"pod-{number}"
        self.code = code
        self.process = Process(f"driver {number} of epoch {epoch}", "driver", world.skew("driver"))
        self.address = f"driver-{number}:1"
        self.checkpoint: Checkpoint | None = None
        self.committer: FenceCommitter | None = None
        self.collector: Collector | None = None
        self.names: NameService | None = None
        self.executors: dict[int, Executor] = {}
        self.is_stopping = False
        self.is_ending = False
        """Its query has ended, and executors may still ask."""
        self._is_written = False
        self._ids: FileIds | None = None
        self._watches = self.dice.random() < 0.5
        self._left_out = world.left_out
        self.stage.start(self.process, self._live())
        self.met["driver started"] += 1

    @property
    def is_newest(self) -> bool:
        """Whether it holds the fence."""
        row = self.world.row
        return (row.epoch, row.driver) == (self.epoch, self.uid)

    @property
    def serves(self) -> bool:
        """Whether it holds the fence, and its services listen."""
        return self.is_newest and self.names is not None

    @property
    def serving(self) -> frozenset[UUID]:
        """The files that it keeps, as `fencepost.driver.stateful.run` says it."""
        checkpoint, committer = present(self.checkpoint), present(self.committer)
        unused = present(self._ids).unused
        return unused | checkpoint.reached | committer.reached

    # its life

    def _live(self) -> Steps:
        world, stage = self.world, self.stage
        fence = world.fence()
        yield None
        try:
            row = fence.claim(epoch=self.epoch, driver=self.uid, code=self.code, start=self._start, owner=OWNER)
            self.met["batch repeated by a successor"] += row.planned_log is not None
            yield None
            self._serve(fence, row)
        except (FenceError, CheckpointError, DataLoss) as error:
            self._end(error)
            return
        world.note(f"{self.process.name} runs from {dict(row.offsets)}")
        stage.start(self.process, self._query())
        stage.start(self.process, self._collect())
        stage.start(self.process, self._watch(fence))

    def _start(self, row: FenceRow) -> Starting:
        world = self.world
        begins = dict(zip(KEYS, world.begins, strict=True))
        log = Watermarks(begins=begins, ends=dict.fromkeys(KEYS, world.log_end), topic_ids={TOPIC: "id"})
        after = lost_ranges.without_accepted(row, world.losses, log).row
        if after.offsets:
            try:
                lost_ranges.check_ranges(after.offsets, row.topic_ids, log, [TOPIC])
            except DataLoss as error:
                world.accept(lost_ranges.completed(error, row), row.epoch)
                raise
        self.met["claim after an accepted loss"] += after.offsets != row.offsets
        found = Starting(offsets=after.offsets or begins, planned=after.planned, topic_ids={TOPIC: "id"})
        return plan.starting(after, found, [TOPIC])

    def _serve(self, fence: Fence, row: FenceRow) -> None:
        world = self.world
        patience = Patience(PATIENCE, world.clock.monotonic, world.sleep)
        chunks = PatientChunks(world.chunks, patience)
        self._ids = ids = FileIds(world.index, patience, random=lambda: UUID(int=self.dice.getrandbits(128)))
        self.checkpoint, self.committer = reopened(
            fence, row, facts=self, chunks=chunks, ids=ids, now=lambda: self.stage.micros() // 1000, ended=self._ended
        )
        self.collector = Collector(
            fence,
            row,
            chunks=world.chunks,
            index=world.index,
            serving=lambda: self.serving,
            snapshots=world.snapshots.checkpoints,
        )
        keys = Keys("secret", now=world.clock.monotonic)
        self.names = NameService(
            self.checkpoint,
            keys=keys,
            scope=PIPELINE,
            epoch=self.epoch,
            address=self.address,
            data_service=self._data_service,
            failed=self._failed,
            patience=PATIENCE,
        )
        data = SimulatedDataService(self.process, world.chunks, keys, world.wires)
        world.wires.servers[self.address] = Server(self.process, self._handle, self._is_blocked)
        world.wires.servers[self._own_data] = Server(self.process, data.handle)

    def _query(self) -> Steps:
        query = Query(self, self.world.setup, lambda: self.is_stopping)
        try:
            yield from query.run()
        except (RequestFailed, QueryEnded) as error:
            self.is_ending = True
            due = self.stage.turn + self.dice.randrange(LONGEST_END)
            yield lambda: self.stage.turn >= due
            self._end(error)

    def _collect(self) -> Steps:
        while True:
            due = self.world.clock.seconds + COLLECTS_EVERY
            yield lambda due=due: self.world.clock.seconds >= due  # type: ignore[misc]
            try:
                self.collect()
            except Fenced:
                return
            except (FenceError, CheckpointError):
                continue

    def collect(self) -> None:
        """Collect once; what was due must be gone then. Raises FenceError, CheckpointDamaged."""
        world = self.world
        unreached, began = world.unreached(self) if self.is_newest else set(), world.clock.seconds
        present(self.collector).collect()
        if self.is_newest:
            left = world.growth.left(unreached, world.ids, began=began, ended=world.clock.seconds)
            require(not left, f"a collection leaves what nothing has reached for the grace period: {len(left)}")

    def _watch(self, fence: Fence) -> Steps:
        """End once another driver holds the fence; some are frozen or busy wherever they would look."""
        yield lambda: self._watches or self.world.network.is_calm
        while True:
            due = self.world.clock.seconds + LOOKS_EVERY
            yield lambda due=due: self.world.clock.seconds >= due  # type: ignore[misc]
            try:
                row = fence.read()
            except FenceError:
                continue
            if row is None or (row.epoch, row.driver) != (self.epoch, self.uid):
                raise Killed(self.process)

    def _end(self, error: Exception) -> None:
        self.world.note(f"{self.process.name} ends: {error}")
        self.stage.kill(self.process)

    def _ended(self, error: BaseException) -> None:
        if isinstance(error, Fenced | FenceMissing):
            self.met["driver fenced"] += 1
            raise Killed(self.process)

    def _failed(self, error: Exception) -> None:
        require(
            not (isinstance(error, CheckpointDamaged) and self.is_newest),
            f"a file of the newest epoch is gone: {error}",
        )

    # its services

    @property
    def _own_data(self) -> str:
        return self.address.replace(":1", ":2")

    def _handle(self, request: Request) -> Answer:
        names, checkpoint = present(self.names), present(self.checkpoint)
        answer = names.handle(request)
        self.met["request refused after the epoch"] += answer.status == HTTPStatus.FORBIDDEN
        if request.parameters.get("op") == "RENAME" and not checkpoint._is_over and self.is_newest:
            committer = present(self.committer)
            if committer.coming is committer.row:
                self.world.check_visible(checkpoint)
        return answer

    def _is_blocked(self, request: Request) -> bool:
        """Return whether a request waits for a plan or a commit."""
        asks = request.parameters.get("op") in {"RENAME", "CREATE"}
        return asks and present(self.checkpoint)._committing.locked()

    def _data_service(self, sender: str) -> str:
        """Return the data service beside the client if it lives, else the driver's."""
        server = self.world.wires.servers.get(f"{sender}:2")
        return self._own_data if server is None or server.process.is_dead else f"{sender}:2"

    # what the committer asks

    def planned(self, offset_log: str, row: FenceRow) -> PlannedBatch:
        """Return the ranges of the batch."""
        self._is_written, end = False, end_of(offset_log)
        self.met["batch without records"] += end == row.offsets
        return PlannedBatch(offsets=row.offsets, planned=end)

    def written(self, batch: int) -> WrittenBatch:
        """Return what is known of the batch."""
        require(self._is_written, f"a batch is committed before it is written: {batch}")
        return WrittenBatch(records=1, duration_ms=1)

    def committed(self, row: FenceRow) -> None:
        """Compare the list that was stored with the files in memory."""
        self.met["batch committed"] += 1
        self.world.note(f"commit {dict(row.offsets)} under epoch {self.epoch}")
        stored = self.world.reached_by(present(row.checkpoint))
        require(stored == present(self.committer).reached, "the stored tree is not the one in memory")

    def logged(self, offset_log: str, offsets: Mapping[str, int]) -> str:
        """Return the offset log with these offsets."""
        return with_end(offset_log, offsets)

    # what Spark asks

    @property
    def client(self) -> Client:
        """The driver's file system."""
        return self._client(self.address.partition(":")[0])

    def _client(self, sender: str) -> Client:
        return Client(self.world.wires, self.address, f"/e{self.epoch}", present(self.names).header, sender)

    def start_of(self) -> Ends:
        """Return where a query without a checkpoint starts."""
        return ends_of(present(self.committer).row.offsets)

    @property
    def past(self) -> Past:
        """What the state that this run has found is made of."""
        return self.world.pasts.claimed[self.uid]

    def read(self, task: Task, store: int) -> None:
        """Read the records of a task. Raises RequestFailed where one is lost, or fails and is not left out."""
        starts, begins = zip(task.start, task.end, strict=True), self.world.begins
        if any(start < min(end, begin) for (start, end), begin in zip(starts, begins, strict=True)):
            raise RequestFailed("records are lost")
        for partition, offset in self.world.pasts.poison - self._left_out:
            if task.start[partition] <= offset < task.end[partition] and store_of(partition, offset) == store:
                self.world.leave_out(partition, offset)
                raise RequestFailed("a record fails")

    def next_end(self, start: Ends) -> Ends:
        """Return where the next batch ends; the second partition is ahead by one at most."""
        log = self.world.log_end
        if start == (log, log):
            return start
        first = min(start[0] + self.dice.randint(1, self.world.setup.largest), log)
        return first, max(start[1], min(first + self.dice.randint(0, 1), log))

    def is_behind(self, end: Ends) -> bool:
        """Return whether there is anything to read beyond."""
        return min(end) < self.world.log_end

    def text_of(self, end: Ends) -> str:
        """Return offsets as Spark writes them."""
        return offsets_text(dict(zip(KEYS, end, strict=True)))

    def end_of(self, log: str) -> Ends:
        """Return where the batch of an offset log ends."""
        return ends_of(end_of(log))

    def begin(self) -> None:
        """Let the batch whose offsets have appeared be planned. Raises QueryEnded."""
        checkpoint = present(self.checkpoint)
        try:
            checkpoint.begin()
        except (FenceError, CheckpointError) as error:
            raise QueryEnded(f"no batch is planned: {error}") from error
        if self.is_newest:
            self.world.check_visible(checkpoint)

    def token(self) -> int:
        """Return the write timestamp of the batch that is planned."""
        return present(self.committer).row.write_timestamp

    def write(self, rows: Mapping[Row, int], token: int) -> None:
        """Write output; of what is not planned nothing may be written."""
        self.world.write(rows, token, self)

    def written_task(self, task: Task) -> None:
        """The rows of the batch are written."""
        del task
        self._is_written = True

    def executor(self) -> Executor:
        """Return an executor of a worker at random, a new one where it has ended."""
        worker = self.dice.randrange(len(self.world.workers))
        found = self.executors.get(worker)
        if found is None or found.process.is_dead:
            process = Process(f"executor on worker {worker} of epoch {self.epoch}", "executor")
            found = Executor(self, process, self._client(f"worker-{worker}"), self.world.setup.full_every)
            self.executors[worker] = found
            self.stage.start(process, found.maintain())
        return found
