"""Runs a sink's task half inside a Spark task: rows in, counts out, errors in a form that reaches the driver."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import astuple
from time import time_ns
from typing import Final

import pyarrow as pa

from fencepost.contract import Reason
from fencepost.errors import BatchFailed, DriverError, as_worker_error
from fencepost.sinks import task_memory
from fencepost.sinks.interface import BatchToken, SinkTask
from fencepost.sinks.retries import take_retries
from fencepost.sinks.writers import writing

REPORT_INTERVAL: Final = 2.0
"""Seconds between two reports of a task's rows."""
FILLER: Final = bytes(65_536)
"""As large as a Python worker's output buffer (spark.buffer.size), so that a report leaves it at once."""
WORK: Final = ("rows", "size", "reading", "writing", "retries", "read_until", "wrote_from")
"""As in `fencepost.batch.SinkWork`, with microseconds in place of seconds."""
MEMORY: Final = ("container", "limit", "python", "jvm")
"""As in `fencepost.batch.WorkerMemory`."""
_FIGURES: Final = (*WORK, *MEMORY)
RESULT_SCHEMA: Final = pa.schema(
    [("sink", pa.string()), *((name, pa.int64()) for name in _FIGURES), ("filler", pa.binary())]
)
RESULT_COLUMNS: Final = f"sink string, {', '.join(f'{name} long' for name in _FIGURES)}, filler binary"
"""RESULT_SCHEMA as Spark's DDL."""
REPORTED: Final = ("sink", *_FIGURES)
"""What the driver reads of it."""


def write(task: SinkTask, batch: BatchToken, sink: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write all rows; yield rows of RESULT_SCHEMA whose `rows` add up to what is written.

    Raises WorkerError of the DriverError that the sink raised, or of BatchFailed when it left rows unread.
    """
    with writing():
        yield from _written(task, batch, sink, batches)


def _written(
    task: SinkTask, batch: BatchToken, sink: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    take_retries()  # of a task that failed
    stream = _Measured(batches)
    try:
        for written in task.write(stream, batch):
            stream.rows += written
            if time.monotonic() - stream.since >= REPORT_INTERVAL:
                yield stream.report(sink, FILLER)
        for left in stream:  # in a warm-up a sink need not read: the transform is to run nevertheless
            if left.num_rows and not batch.is_warm_up:
                raise BatchFailed(
                    f"sink {sink!r} ended before it had read all rows",
                    reason=Reason.SINK_FAILED,
                    remedy="Correct the sink's package: `write` reads `batches` to the end, and stores each row.",
                )
    except DriverError as error:
        raise as_worker_error(error) from error
    yield stream.report(sink)


class _Measured:
    """The rows of a task, with what is to be reported of them: two looks at the clock for each Arrow batch."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self.rows = self._size = 0
        self._reading = 0.0
        self._read_until = self._wrote_from = 0
        self.since = time.monotonic()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        before = time.monotonic()
        try:
            batch = next(self._batches)
        finally:
            self._reading += time.monotonic() - before
            self._read_until = time_ns() // 1000
        self._wrote_from = self._wrote_from or self._read_until
        self._size += batch.nbytes
        return batch

    def report(self, sink: str, filler: bytes = b"") -> pa.RecordBatch:
        """Return a row of RESULT_SCHEMA for what was done since the last one."""
        now = time.monotonic()
        writing = max(0.0, now - self.since - self._reading)
        memory = astuple(task_memory.seen())
        moments = (self._read_until, self._wrote_from)
        spent = (int(self._reading * 1e6), int(writing * 1e6))
        figures = (self.rows, self._size, *spent, take_retries(), *moments, *memory)
        self.rows, self._size, self._reading, self.since = 0, 0, 0.0, now
        columns = [pa.array([sink]), *(pa.array([figure], pa.int64()) for figure in figures), pa.array([filler])]
        return pa.RecordBatch.from_arrays(columns, schema=RESULT_SCHEMA)
