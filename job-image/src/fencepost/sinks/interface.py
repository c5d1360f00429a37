"""What a sink is: a driver's half, which is opened once per run, and a task's half, which writes in Python workers.

A sink of another package is a function or a class `(options, context) -> Sink`, an `OpenSink`, under the entry-point
group `fencepost.sinks`:

    [project.entry-points."fencepost.sinks"]
    postgresql = "my_package.sink:PostgresqlSink"

What every sink keeps to, so that a record is in it once (`fencepost.testing.sinks` has the tests):

- a batch that is written again leaves the same: a driver may end between the write and the commit, and its successor
  repeats the records, perhaps cut into other batches and tasks;
- what a replaced driver writes late changes nothing: `BatchToken.token` grows with every batch and every takeover;
- nothing is written during a warm-up, whatever rows come.

Imports without Spark, pyarrow and clients.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fencepost.context import WARM_TOKEN

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchToken:
    """The batch that is written, and the right to write it.

    `token` is the fencing token, in µs: it grows with every batch and every takeover, so a store that keeps the highest
    one it saw refuses a replaced driver.  A batch that is repeated by a successor has a higher token, epoch and version
    than its first attempt.  `offsets` maps 'topic/partition' to [start, until).
    """

    pipeline: str
    epoch: int
    version: int
    token: int
    offsets: Mapping[str, tuple[int, int]]
    is_repeated: bool = False
    """Whether an earlier run planned some of the batch, and may have written it."""
    committed: int = 0
    """The token of the last batch that is committed, 0 before the first one. Known to `begin` and `finish` alone: what
    has a higher token is not committed, and its records come again."""
    rows: int = 0
    """How many rows the sink's tasks have reported. Known to `finish` alone."""

    @property
    def is_warm_up(self) -> bool:
        """Whether nothing may be written: the run holds no fence yet, or exercises its workers."""
        return self.token == WARM_TOKEN

    @property
    def is_rehearsal(self) -> bool:
        """Whether the warm-up has records: a row that cannot be written is to fail as it would in a batch."""
        return self.is_warm_up and bool(self.offsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkContext:
    """What a sink gets when it is opened."""

    name: str
    """The sink's name in the spec."""
    pipeline: str
    """The fence row's key, `<scope>/<namespace>/<name>`."""
    epoch: int
    patience: float
    """Seconds for which a task repeats a request before it raises DependencyDown."""


class SinkTask(Protocol):
    """The task's half. It is pickled, and should hold what is needed to connect, not the connection."""

    def write(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> Iterator[int]:
        """Write all rows of one Spark task; yield numbers of rows, which add up to what is written.

        Yield at least every few seconds: it shows that the task makes progress. All rows must be stored when the
        iterator ends. Raises DriverError: PoisonRecord for a row that no retry can write, DependencyDown when the
        store does not answer, BadSpec when it cannot take such columns. Spark repeats a task that raises.
        A task that repeats a request may say so with `retried`, for the driver's metrics.
        """
        ...


class Sink(ABC):
    """The driver's half of one declared sink."""

    @abstractmethod
    def check(self, schema: StructType) -> None:
        """Raise BadSpec naming every column of the frame that does not fit. Called once, before the first batch."""

    @abstractmethod
    def task(self) -> SinkTask:
        """Return the task's half."""

    def begin(self, batch: BatchToken) -> None:  # noqa: B027 - optional
        """Prepare for a batch, in the driver, before its first task. Not called for a warm-up. Raises DriverError."""

    def finish(self, batch: BatchToken) -> None:  # noqa: B027 - optional
        """Complete a batch, in the driver, after its last task and before the fence's commit. Raises DriverError.

        The run may end between this and the commit: a successor then repeats the batch.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeToken:
    """What a purge deletes, and the right to do it: no driver runs in `epoch`.

    `token` is higher than that of each batch that was written, and lower than that of each batch to come.  `offsets`
    maps 'topic/partition' to [start, until): the records whose rows go.
    """

    pipeline: str
    epoch: int
    token: int
    offsets: Mapping[str, tuple[int, int]]
    committed: int = 0
    """The token of the last batch that is committed, 0 before the first one, and where a restored fence lacks it: then
    delete by `offsets` alone."""


class PurgeableSink(Sink):
    """A sink of which a PipelineRewind can delete the output of offsets. Other sinks are refused by name.

    It is opened in a pod of its own, without Spark; `check`, `task`, `begin` and `finish` are not called.
    """

    @abstractmethod
    def count(self, offsets: Mapping[str, tuple[int, int]]) -> int:
        """Return how many rows there are of these records, 'topic/partition' to [start, until).

        Also called while a driver writes. Raises BadSpec where the store cannot know, DependencyDown.
        """

    @abstractmethod
    def purge(self, purge: PurgeToken) -> None:
        """Delete these rows, and forget that the records were stored: they come again. Raises DriverError.

        A second call leaves the same, also after a process that was killed in the first one.  What a driver with a
        lower epoch or token writes later must stay without effect.
        """


class OpenSink(Protocol):
    """What the entry point names: it makes a sink, connected as far as needed. Called once per run, in the driver."""

    def __call__(self, options: Mapping[str, str], context: SinkContext) -> Sink:
        """Return the sink of `options`: those of the spec, and over them those of the Secret.

        Raises BadSpec naming an option that is missing, wrong or unknown, DependencyDown when the store does not
        answer.
        """
        ...
