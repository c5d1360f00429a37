"""The tasks of a job that failed: Spark stops them in the background, and a Python worker lives on for some seconds.

A sink that ignores its token must not get their rows after those of the next attempt.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from fencepost.sinks import writers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

LOOK_EVERY: Final = 0.1
"""Seconds between two looks."""
_RUNNING: Final = re.compile(r" -> (\d+)")


def have_ended(spark: SparkSession, *, patience: float) -> bool:
    """Wait until no executor that is connected runs a task, and no Python worker of theirs writes.

    Return False when `patience` seconds did not suffice.  The scheduler is asked: the status store may be behind.
    """
    deadline = time.monotonic() + patience
    while _running(spark):
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_EVERY)
    return _no_worker_writes(spark, patience=max(0.0, deadline - time.monotonic()))


def _running(spark: SparkSession) -> int:
    scheduler = spark.sparkContext._jsc.sc().taskScheduler()  # noqa: SLF001 - Spark's JVM API
    return sum(map(int, _RUNNING.findall(scheduler.runningTasksByExecutors().mkString(","))))


def _no_worker_writes(spark: SparkSession, *, patience: float) -> bool:
    """Ask from a task on each core: they are free, and Spark spreads the tasks of a job over them at once."""
    cores = max(1, int(spark.sparkContext.defaultParallelism))
    looks = spark.range(0, cores, 1, cores).mapInArrow(partial(_look, patience), "ended boolean")
    return all(row.ended for row in looks.collect())


def _look(patience: float, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa  # noqa: PLC0415 - a driver needs none of it here

    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"ended": [writers.others_have_ended(patience=patience)]})
