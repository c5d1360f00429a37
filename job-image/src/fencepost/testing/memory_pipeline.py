"""A stateful pipeline across its runs: the driver's own, on local Spark, with log, fence row and state in memory.

A run that is cut ends as a process does: from some call to the fence on, no call to the fence or the state has an
effect.
"""

from __future__ import annotations

import enum
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from fencepost.contract import DriverConfig, KafkaSource, StateConfig
from fencepost.driver.reporting.commit_report import Report
from fencepost.driver.stateful.run import StatefulRun
from fencepost.fence import Fence, FenceError, FenceRow
from fencepost.fence.memory import MemoryFenceTable, no_fault
from fencepost.local.record_log import NoRecords
from fencepost.spark.session import state_settings
from fencepost.spark.stateful.query import StatefulQuery
from fencepost.state.checkpoint import Checkpoint
from fencepost.state.chunks import ChunkStore
from fencepost.state.memory import MemoryChunks, MemoryFileIndex
from fencepost.state.webhdfs.authentication import Keys
from fencepost.state.webhdfs.client_settings import client_settings
from fencepost.state.webhdfs.file_cache import FileCache
from fencepost.state.webhdfs.name_service import scope_of
from fencepost.state.webhdfs.serving import Listening, Scope, serving
from fencepost.testing.arrivals import Arrivals, BatchLog, read
from fencepost.testing.row_files import RowFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fencepost.context import Finish, Stream

PIPELINE: Final = "test/test/test"
STATE_BYTES: Final = 1 << 30
EMPTY_BATCHES: Final = 10
"""Batches without records in a row after which a run ends: timers of processing time would have one after the other."""


class Step(enum.IntEnum):
    """What of a batch has an effect."""

    PLANNED = 1
    WRITTEN = 2
    COMMITTED = 3


class Cut(NamedTuple):
    """The end of a run: after a step of a batch, whose number is from 0."""

    batch: int
    step: Step

    def __str__(self) -> str:
        return f"batch {self.batch + 1} was {self.step.name.lower()}"


class _CutHere(FenceError):
    """The process ends. A FenceError, because the checkpoint's server does not log what it expects."""


class MemoryPipeline:
    """One pipeline. `sinks` has the rows that its runs have written; `folder` exists as long as it is used."""

    def __init__(
        self,
        *,
        spark: SparkSession,
        stream: Stream,
        finish: Finish | None,
        sinks: Sequence[str],
        args: tuple[str, ...],
        output_mode: str,
        partitions: int,
        states: Mapping[str, DataFrame],
        arrivals: Arrivals,
        cuts: Iterable[Cut],
        folder: Path,
    ) -> None:
        self._spark = spark
        self._stream = stream
        self._finish = finish
        self._args = args
        self._states = states
        self._state = StateConfig(partitions=partitions, max_bytes=STATE_BYTES, data_port=0, output_mode=output_mode)
        self._arrivals = arrivals
        self._cuts = set(cuts)
        self._folder = folder
        self._keys = Keys(PIPELINE)
        self._table = MemoryFenceTable()
        self._fence = Fence(self._table, PIPELINE, patience=1)
        self._chunks = MemoryChunks()
        self._index = MemoryFileIndex()
        self.sinks = {name: RowFiles(folder / str(number)) for number, name in enumerate(sinks)}
        for number in range(len(sinks)):
            (folder / str(number)).mkdir()

    def run(self) -> bool:
        """Take over, and run until everything is read; return False where the run was cut. Raises DriverError."""
        row = self._fence.read() or self._fence.create("test")
        config = self._config(self._fence.take_over(row, owner="test").epoch)
        process = _Process(self._table, self._arrivals, self._cuts)
        for store in (self._table, self._chunks, self._index):
            store.before, store.after = process.before, process.after
        try:
            self._started(config, process).run()
        except Exception:
            if not process.is_dead:
                raise
        finally:
            for store in (self._table, self._chunks, self._index):
                store.before = store.after = no_fault
        return not process.is_dead

    def _started(self, config: DriverConfig, process: _Process) -> StatefulRun:
        query = StatefulQuery(
            spark=self._session(config),
            config=config,
            state=self._state,
            stream=self._stream,
            finish=self._finish,
            sinks=self.sinks,
            properties={},
            records=partial(read, self._arrivals.records),
            states=self._states,
        )
        query.check()
        return StatefulRun(
            config=config,
            driver=f"driver-{config.epoch}",
            fence=self._fence,
            source=BatchLog(self._arrivals, lambda: self._table.rows[PIPELINE].planned),
            records=NoRecords(),
            query=query,
            serve=partial(self._serve, config),
            chunks=self._chunks,
            index=self._index,
            snapshots=lambda: (),
            stop=process.stop,
            report=process.committed,
            end=process.ended,
            claimed=process.claimed,
            wait=process.idle,
        )

    def _config(self, epoch: int) -> DriverConfig:
        begins, ends = self._arrivals.begins, self._arrivals.ends[-1]
        return DriverConfig(
            pipeline=PIPELINE,
            epoch=epoch,
            entrypoint="test:stream",
            args=self._args,
            code="test",
            source=KafkaSource(
                bootstrap_servers="",
                topics=self._arrivals.topics,
                max_records_per_batch=sum(end - begins[key] for key, end in ends.items()),
            ),
            sinks=(),
            fence_keyspace="",
            consistency="LOCAL_QUORUM",
            batch_interval=0.0,
            spark_master="local",
            spark_conf={},
            executors=1,
            termination_grace=30.0,
            state=self._state,
        )

    def _session(self, config: DriverConfig) -> SparkSession:
        """Return a session with the settings of the author's, and those of the state."""
        session = self._spark.newSession()
        # Workers import this package. The `python3` of the PATH, which PySpark takes otherwise, may not have it.
        session.sparkContext.pythonExec = sys.executable
        authors = {
            name: value
            for name, value in self._spark.conf.getAll.items()
            if name.startswith("spark.sql.") and self._spark.conf.isModifiable(name)
        }
        client = client_settings(self._keys.header(scope_of(PIPELINE, config.epoch)), patience=config.patience)
        of_hadoop = {name.removeprefix("spark.hadoop."): value for name, value in client.items()}
        for name, value in {**authors, **state_settings(self._state), **of_hadoop}.items():
            session.conf.set(name, value)
        return session

    @contextmanager
    def _serve(
        self, config: DriverConfig, checkpoint: Checkpoint, chunks: ChunkStore, failed: Callable[[Exception], object]
    ) -> Iterator[str]:
        with serving(
            checkpoint,
            chunks,
            keys=self._keys,
            scope=Scope(pipeline=PIPELINE, epoch=config.epoch),
            listening=Listening(address="127.0.0.1", host="127.0.0.1"),
            cache=FileCache(self._folder / "cache", most=STATE_BYTES),
            failed=failed,
        ) as location:
            yield location


class _Process:
    """What ends a run: the end of the records, or the first of the `cuts` that it reaches, which is then taken out."""

    def __init__(self, table: MemoryFenceTable, arrivals: Arrivals, cuts: set[Cut]) -> None:
        self._table = table
        self._arrivals = arrivals
        self._cuts = cuts
        self._is_claimed = False
        self._commits = 0
        self._empty = 0
        self._commits_when_idle = -1
        self.stop = threading.Event()
        self.is_dead = False

    def claimed(self, _row: FenceRow) -> None:
        """Begin to cut."""
        self._is_claimed = True

    def committed(self, report: Report) -> None:
        """Count a batch."""
        self._commits += 1
        self._empty = 0 if report.records else self._empty + 1

    def idle(self, _seconds: float) -> None:
        """Stop, unless Spark may add a batch without records: it does where the watermark has moved."""
        if self._commits == self._commits_when_idle or self._empty >= EMPTY_BATCHES:
            self.stop.set()
        self._commits_when_idle = self._commits

    def ended(self, _error: BaseException) -> None:
        """Do nothing: no other driver takes over."""

    def before(self, call: str) -> None:
        """End before a call has its effect."""
        if call == "swap" and self._is_open:
            self._reach(Step.WRITTEN)
        self._check()

    def after(self, call: str) -> None:
        """End before the answer to a call."""
        if call == "swap":
            self._reach(Step.PLANNED if self._is_open else Step.COMMITTED)
        self._check()

    @property
    def _row(self) -> FenceRow:
        return self._table.rows[PIPELINE]

    @property
    def _is_open(self) -> bool:
        return self._row.planned != self._row.offsets

    def _reach(self, step: Step) -> None:
        if not self._is_claimed:
            return
        cut = Cut(self._arrivals.done(self._row.offsets) - (step is Step.COMMITTED), step)
        if cut in self._cuts and not self.is_dead:
            self._cuts.remove(cut)
            self.is_dead = True

    def _check(self) -> None:
        if self.is_dead:
            raise _CutHere
