"""Runs a sink's task half inside a Spark task: rows in, counts out, errors in a form that reaches the driver."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from fencepost.contract import Reason
from fencepost.errors import BatchFailed, DriverError, as_worker_error
from fencepost.sinks.interface import BatchToken, SinkTask

REPORT_INTERVAL: Final = 2.0
"""Seconds between two reports of a task's rows."""
FILLER: Final = bytes(65_536)
"""As large as a Python worker's output buffer (spark.buffer.size), so that a report leaves it at once."""
RESULT_SCHEMA: Final = pa.schema([("sink", pa.string()), ("rows", pa.int64()), ("filler", pa.binary())])
RESULT_COLUMNS: Final = "sink string, rows long, filler binary"
"""RESULT_SCHEMA as Spark's DDL."""


def write(task: SinkTask, batch: BatchToken, sink: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write all rows; yield rows of RESULT_SCHEMA whose `rows` add up to what is written.

    Raises WorkerError of the DriverError that the sink raised, or of BatchFailed when it left rows unread.
    """
    rows, reported = 0, time.monotonic()
    stream = iter(batches)
    try:
        for written in task.write(stream, batch):
            rows += written
            if time.monotonic() - reported >= REPORT_INTERVAL:
                yield _report(sink, rows, FILLER)
                rows, reported = 0, time.monotonic()
        for left in stream:  # in a warm-up a sink need not read: the transform is to run nevertheless
            if left.num_rows and not batch.is_warm_up:
                raise BatchFailed(
                    f"sink {sink!r} ended before it had read all rows",
                    reason=Reason.SINK_FAILED,
                    remedy="Correct the sink's package: `write` reads `batches` to the end, and stores each row.",
                )
    except DriverError as error:
        raise as_worker_error(error) from error
    yield _report(sink, rows)


def _report(sink: str, rows: int, filler: bytes = b"") -> pa.RecordBatch:
    columns = [pa.array([sink]), pa.array([rows], pa.int64()), pa.array([filler])]
    return pa.RecordBatch.from_arrays(columns, schema=RESULT_SCHEMA)
