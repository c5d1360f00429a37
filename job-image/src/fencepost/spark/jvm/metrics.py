"""What the driver's JVM and the executors use, as the JVM's beans and Spark's status store say. Times in seconds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_POOLS: Final = 16
"""Memory pools and collectors that are read; the JVMs have 8 and 2. An author's agent may add any number."""
MOST_EXECUTORS: Final = 50
"""Executors that are read, and not only counted: some ten round trips for each one."""
HEAP: Final = "JVMHeapMemory"
COLLECTIONS: Final = (("minor", "MinorGCCount", "MinorGCTime"), ("major", "MajorGCCount", "MajorGCTime"))
"""Of Spark's executor metrics, which come with each heartbeat. It keeps the largest of each, and these only grow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """Bytes of a part of a JVM's memory; `limit` is None when it is unlimited."""

    used: int
    committed: int
    limit: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Collections:
    """How often a collector ran, and for how long."""

    count: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """An executor that is there. `heap_peak` and `collections` are of the last heartbeat at which they grew."""

    id: str
    host: str
    heap_peak: int
    collections: dict[str, Collections]
    tasks_completed: int
    tasks_failed: int
    task_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JvmMetrics:
    """The driver's JVM at one moment, and the executors."""

    areas: dict[str, Area]
    pools: dict[str, Area]
    collections: dict[str, Collections]
    threads: int
    classes: int
    executors: tuple[Executor, ...]
    """The first MOST_EXECUTORS of them."""
    executor_count: int


class JvmBeans:
    """The beans, looked up once. `read` takes some 40 round trips of Py4J, and ten for each executor."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm  # noqa: SLF001 - Spark's JVM API
        management = jvm.java.lang.management.ManagementFactory
        self._memory = management.getMemoryMXBean()
        self._pools = {str(pool.getName()): pool for pool in list(management.getMemoryPoolMXBeans())[:MOST_POOLS]}
        collectors = list(management.getGarbageCollectorMXBeans())[:MOST_POOLS]
        self._collectors = {str(collector.getName()): collector for collector in collectors}
        self._threads = management.getThreadMXBean()
        self._classes = management.getClassLoadingMXBean()
        self._store = spark.sparkContext._jsc.sc().statusStore()  # noqa: SLF001 - Spark's JVM API
        self._is_local = str(spark.sparkContext.master).startswith("local")

    def read(self) -> JvmMetrics:
        """Return what is used now. Raises what Py4J raises."""
        executors = self._store.executorList(True)
        count = executors.size()
        return JvmMetrics(
            areas={
                "heap": _area(self._memory.getHeapMemoryUsage()),
                "nonheap": _area(self._memory.getNonHeapMemoryUsage()),
            },
            pools={name: _area(pool.getUsage()) for name, pool in self._pools.items()},
            collections={
                name: Collections(count=bean.getCollectionCount(), seconds=bean.getCollectionTime() / 1000)
                for name, bean in self._collectors.items()
            },
            threads=self._threads.getThreadCount(),
            classes=self._classes.getLoadedClassCount(),
            executors=tuple(itertools.islice(self._of(executors, count), MOST_EXECUTORS)),
            executor_count=count if self._is_local else count - 1,  # the driver is in the list too
        )

    def _of(self, executors: Any, count: int) -> Iterator[Executor]:  # noqa: ANN401 - a sequence of Spark's summaries
        """Yield the executors that are there; each costs some ten round trips."""
        for index in range(count):
            summary = executors.apply(index)
            name = str(summary.id())
            if name != "driver" or self._is_local:
                yield _executor(name, summary)


def _area(usage: Any) -> Area:  # noqa: ANN401 - a MemoryUsage
    limit = usage.getMax()
    return Area(used=usage.getUsed(), committed=usage.getCommitted(), limit=limit if limit >= 0 else None)


def _executor(name: str, summary: Any) -> Executor:  # noqa: ANN401 - Spark's ExecutorSummary
    known = summary.peakMemoryMetrics()
    peaks = known.get() if known.isDefined() else None

    def peak(metric: str) -> int:
        return int(peaks.getMetricValue(metric)) if peaks is not None else 0

    return Executor(
        id=name,
        host=str(summary.hostPort()).rpartition(":")[0][:253],
        heap_peak=peak(HEAP),
        collections={
            kind: Collections(count=peak(count), seconds=peak(time) / 1000) for kind, count, time in COLLECTIONS
        },
        tasks_completed=summary.completedTasks(),
        tasks_failed=summary.failedTasks(),
        task_seconds=summary.totalDuration() / 1000,
    )
