"""What a real JVM says of itself, beside what Java's own tools would."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from fencepost.spark.jvm.metrics import MOST_POOLS, JvmBeans

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_beans_are_read_from_another_thread_and_follow_the_jvm(spark: SparkSession) -> None:
    found = []

    def look() -> None:
        beans = JvmBeans(spark)
        found.append(beans.read())
        spark._jvm.java.lang.System.gc()  # type: ignore[union-attr]
        found.append(beans.read())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join(60)
    before, after = found
    heap = after.areas["heap"]
    assert 0 < heap.used <= heap.committed <= (heap.limit or 0)
    assert after.pools["Metaspace"].used > 10 << 20
    assert len(after.pools) <= MOST_POOLS
    counts = [sum(spent.count for spent in each.collections.values()) for each in (before, after)]
    assert counts[1] > counts[0]
    assert sum(spent.seconds for spent in after.collections.values()) > 0
    assert after.threads > 10
    assert after.classes > 1000


def test_executors_are_read_with_their_tasks(spark: SparkSession) -> None:
    beans = JvmBeans(spark)
    (before,) = beans.read().executors  # of local mode: the driver's own
    spark.range(100, numPartitions=3).count()
    (after,) = beans.read().executors
    assert after.id == "driver"
    assert after.tasks_completed >= before.tasks_completed + 3
    assert set(after.collections) == {"minor", "major"}
