"""The tasks of a job that failed: Spark stops them in the background, and a Python worker lives on for some seconds.

A sink that ignores its token must not get their rows after those of the next attempt.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_EVERY: Final = 0.1
"""Seconds between two looks."""
_RUNNING: Final = re.compile(r" -> (\d+)")


def have_ended(spark: SparkSession, *, patience: float) -> bool:
    """Wait until no executor that is connected runs a task; return False when `patience` seconds did not suffice.

    The scheduler is asked: the status store may be behind.
    """
    deadline = time.monotonic() + patience
    while _running(spark):
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_EVERY)
    return True


def _running(spark: SparkSession) -> int:
    scheduler = spark.sparkContext._jsc.sc().taskScheduler()  # noqa: SLF001 - Spark's JVM API
    return sum(map(int, _RUNNING.findall(scheduler.runningTasksByExecutors().mkString(","))))
