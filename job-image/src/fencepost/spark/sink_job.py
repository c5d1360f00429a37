"""The part of a batch that writes: its frames go to the sinks in one Spark job, whatever the number of sinks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Final

from fencepost.batch import SinkWork, WorkerMemory
from fencepost.contract import Reason
from fencepost.errors import BatchFailed, DriverError, PoisonRecord
from fencepost.sinks import task_half
from fencepost.spark import failures
from fencepost.spark.outputs import named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from fencepost.context import BatchContext, Finish, Transform
    from fencepost.sinks import BatchToken, Sink, SinkTask
    from fencepost.spark.tasks.fan_out import Write

SPANS: Final = 5
"""Partitions of a batch that a message names; the verdict has all of them."""
_REPORT: Final = re.compile(r"\[([^\[\],]+)" + r",(\d+)" * len((*task_half.WORK, *task_half.MEMORY)) + r"\]")
"""A report of a task as Spark prints it. The CRD admits no comma and no bracket in a sink's name."""


class SinkJob:
    """Writes to the sinks of a run. Each method raises DriverError."""

    def __init__(self, sinks: Mapping[str, Sink]) -> None:
        self._sinks = dict(sinks)
        self.memory = WorkerMemory()
        """The most that the tasks' reports have said."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the sinks."""
        return tuple(self._sinks)

    def begin(self, token: BatchToken) -> None:
        """Prepare the sinks for a batch."""
        for name, sink in self._sinks.items():
            _guarded(name, partial(sink.begin, token))

    def finish(self, token: BatchToken, work: Mapping[str, SinkWork]) -> None:
        """Complete a batch in the sinks, before the fence's commit; `work` is what its tasks did for each."""
        for name, sink in self._sinks.items():
            _guarded(name, partial(sink.finish, replace(token, rows=work[name].rows)))

    def check(self, name: str, columns: StructType) -> None:
        """Raise BadSpec when the columns do not fit the sink."""
        _guarded(name, partial(self._sinks[name].check, columns))

    def writes(self, name: str, token: BatchToken) -> Write:
        """Return the function of a Python worker that writes rows to a sink and reports them."""
        return partial(task_half.write, self._sinks[name].task(), token, name)

    def reports(self, outputs: Mapping[str, DataFrame], token: BatchToken) -> DataFrame:
        """Return the lazy frame that writes the rows of each sink, and has the tasks' reports."""
        written = [
            frame.mapInArrow(self.writes(name, token), task_half.RESULT_COLUMNS).select(*task_half.REPORTED)
            for name, frame in outputs.items()
        ]
        return reduce(lambda left, right: left.union(right), written)

    def run(self, reports: DataFrame) -> dict[str, SinkWork]:
        """Run the job; return what its tasks did for each sink.

        Not by `collect`: for each one the JVM opens a Unix domain socket and keeps its path until it ends
        (java.io.File's deleteOnExit). Here the few rows of counts come over Py4J's own connection, as text.
        """
        text = str(reports._jdf.collectAsList().toString())  # noqa: SLF001 - Spark's public JVM API
        work = dict.fromkeys(self._sinks, SinkWork())
        for name, *figures in _REPORT.findall(text):
            rows, size, reading, writing, retries, read_until, wrote_from, *memory = map(int, figures)
            work[name] += SinkWork(
                rows, size, reading / 1e6, writing / 1e6, retries, read_until / 1e6, wrote_from / 1e6
            )
            self.memory = self.memory.largest(WorkerMemory(*memory))
        return work

    def tasks(self) -> dict[str, SinkTask]:
        """Return the tasks' half of each sink."""
        return {name: sink.task() for name, sink in self._sinks.items()}


def outputs(
    function: Transform | Finish, rows: DataFrame, context: BatchContext, sinks: Sequence[str], *, is_warm_up: bool
) -> dict[str, DataFrame]:
    """Call an author's function of a batch and name its frames. Raises DriverError."""
    from pyspark.sql import DataFrame  # noqa: PLC0415 - Spark's imports overlap the JVM's start

    try:
        result = function(rows, context)
    except Exception as error:
        raise located(failures.of_transform(error, is_warm_up=is_warm_up), context) from error
    return named(result, sinks, DataFrame)


@contextmanager
def translated(context: BatchContext, *, is_warm_up: bool) -> Iterator[None]:
    """Raise what Spark raises as a DriverError."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - Spark's imports overlap the JVM's start
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise located(failures.of_job(error, is_warm_up=is_warm_up), context) from error


def located(error: DriverError, context: BatchContext) -> DriverError:
    """Add the batch's ranges to what went wrong with a record."""
    if not context.offsets or not isinstance(error, PoisonRecord | BatchFailed):
        return error
    spans = [f"{key} [{start}, {until})" for key, (start, until) in sorted(context.offsets.items())]
    shown = ", ".join(spans[:SPANS]) + (f" and {len(spans) - SPANS} more" if len(spans) > SPANS else "")
    return type(error)(f"{error.message}; the batch is {shown}", reason=error.reason, remedy=error.remedy)


def _guarded(name: str, act: Callable[[], None]) -> None:
    """Call a sink's driver half. Raises DriverError: of anything else that it raises, with the sink's name."""
    try:
        act()
    except DriverError:
        raise
    except Exception as error:
        raise BatchFailed(
            f"sink {name!r} raised {type(error).__name__}: {failures.short(error)}", reason=Reason.SINK_FAILED
        ) from error
