"""Python workers that start while the driver plans, and executors have nothing to do.

A worker takes about a second of CPU time until it can run a function, and the first batch would wait for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def begin(spark: SparkSession, *, ended: Callable[[], object]) -> None:
    """Start a worker for each core in a thread of its own, which calls `ended` once they have run.

    Before there are executors, Spark counts two cores; the task waits for those that come.  Nothing is raised: the
    first batch shows whatever is wrong.
    """

    def run() -> None:
        from py4j.protocol import Py4JError  # noqa: PLC0415 - Spark's imports overlap the JVM's start
        from pyspark.errors import PySparkException  # noqa: PLC0415

        with suppress(PySparkException, Py4JError):
            nothing(spark, cores_of(spark), "id long").write.format("noop").mode("append").save()
            ended()

    threading.Thread(target=run, name="python-workers", daemon=True).start()


def nothing(spark: SparkSession, cores: int, schema: StructType | str) -> DataFrame:
    """Return an empty frame that a Python worker on each core makes. A query of an RDD would start others."""
    return spark.range(0, cores, 1, cores).mapInArrow(_nothing, schema)


def cores_of(spark: SparkSession) -> int:
    """Return the cores of the executors that are there now."""
    return max(1, int(spark.sparkContext.defaultParallelism))


def _nothing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Make no rows of these."""
    for _ in batches:
        pass
    return iter(())
