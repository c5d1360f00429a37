"""The author's own function as a sink: it gets the rows of each task, and the token that fences it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fencepost.contract import Reason
from fencepost.errors import BatchFailed
from fencepost.sinks.interface import BatchToken, Sink

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionContext(BatchToken):
    """The batch, the right to write it, and the sink's options."""

    options: Mapping[str, str]


Write = Callable[[Iterator["pa.RecordBatch"], FunctionContext], None]
"""The author's function: it stores every row of `batches` before it returns. Not called in a warm-up."""


class FunctionSink(Sink):
    """A function of the author's code. It takes any columns."""

    def __init__(self, name: str, function: Write, options: Mapping[str, str]) -> None:
        self._task = FunctionTask(name, function, options)

    def check(self, schema: StructType) -> None:
        """Take any columns."""

    def task(self) -> FunctionTask:
        """Return the task's half."""
        return self._task


@dataclass(frozen=True, slots=True)
class FunctionTask:
    """Calls the function once per task."""

    name: str
    function: Write
    options: Mapping[str, str]

    def write(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> Iterator[int]:
        """Call the function; yield the rows that it took. Raises BatchFailed when it left some, and what it raises."""
        counted = _Counted(batches)
        if batch.is_warm_up:
            for _ in counted:
                pass
            return
        context = FunctionContext(
            pipeline=batch.pipeline,
            epoch=batch.epoch,
            version=batch.version,
            token=batch.token,
            offsets=batch.offsets,
            options=self.options,
        )
        self.function(iter(counted), context)
        taken = counted.rows
        for _ in counted:
            pass
        if counted.rows > taken:
            raise BatchFailed(
                f"the function of sink {self.name!r} returned before it had read all rows",
                reason=Reason.SINK_FAILED,
                remedy="Let it read `batches` to the end, and store each row.",
            )
        yield taken


class _Counted:
    """Batches, and how many of their rows were taken."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield batch
