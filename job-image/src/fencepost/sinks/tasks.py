"""Runs a sink's task half inside a Spark task: rows in, counts out, errors in a form that reaches the driver."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from fencepost.errors import DriverError, as_worker_error
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

    Raises WorkerError of the DriverError that the sink raised.
    """
    rows, reported = 0, time.monotonic()
    try:
        for written in task.write(batches, batch):
            rows += written
            if time.monotonic() - reported >= REPORT_INTERVAL:
                yield _report(sink, rows, FILLER)
                rows, reported = 0, time.monotonic()
    except DriverError as error:
        raise as_worker_error(error) from error
    yield _report(sink, rows)


def _report(sink: str, rows: int, filler: bytes = b"") -> pa.RecordBatch:
    columns = [pa.array([sink]), pa.array([rows], pa.int64()), pa.array([filler])]
    return pa.RecordBatch.from_arrays(columns, schema=RESULT_SCHEMA)
