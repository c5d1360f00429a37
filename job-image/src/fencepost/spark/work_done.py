"""How much work the running jobs have done: a number that grows while they work and stands still while they hang.

Executors send the metrics of running tasks with each heartbeat, also in local mode, and Spark's live status store adds
them up. Counted are the rows that operators and Python workers have produced, and the tasks that have ended. A sink
that writes slowly within one task reports its rows every few seconds (`fencepost.sinks.task_half`).

An executor's first tasks show nothing while its Python workers start and import the author's code. For as long as a
start may take, that these tasks run counts as work.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTER: Final = re.compile(r"SQLPlanMetric\([^,]*,(\d+),sum\)")
"""A metric that counts; times and sizes may change without work, or are rounded."""
VALUE: Final = re.compile(r"(\d+) -> ([\d,]+)$", re.MULTILINE)


class WorkDone:
    """Reads Spark's live status store. Any thread may poll it; a poll takes a few calls to the JVM."""

    def __init__(self, spark: SparkSession, *, start_timeout: float, now: Callable[[], float] = time.monotonic) -> None:
        self._start_timeout = start_timeout
        self._now = now
        self._executors = spark.sparkContext._jsc.sc().statusStore()  # noqa: SLF001 - Spark's JVM API
        self._queries = spark._jsparkSession.sharedState().statusStore()  # noqa: SLF001 - Spark's JVM API
        self._tracker = spark.sparkContext.statusTracker()
        self._lock = threading.Lock()
        self._total = 0
        self._seen: dict[str, int] = {}
        """What was counted of each query and stage that was live at the last poll."""
        self._first_tasks: dict[str, float] = {}
        """Since when each executor that has ended no task yet was seen to work on some."""
        self._left_out: dict[str, int] = {}
        """How many tasks of each executor were none of a batch."""

    def poll(self) -> int:
        """Return a number that never falls; it grows by the work that became visible since the last poll."""
        with self._lock:
            live = {**self._rows(), **self._tasks()}
            self._total += sum(max(0, value - self._seen.get(key, 0)) for key, value in live.items())
            # The largest seen: a value may fall when failed tasks are not counted any more.
            self._seen = {key: max(value, self._seen.get(key, 0)) for key, value in live.items()}
            self._total += self._executors_start()
            return self._total

    def leave_out_ended_tasks(self) -> None:
        """Take the tasks that have ended so far for none of a batch: the next ones are their executors' first."""
        with self._lock:
            self._left_out = {executor.id(): executor.completedTasks() for executor in self._executors_now()}

    def _rows(self) -> dict[str, int]:
        """Return the sum of the counting metrics of the latest query."""
        count = self._queries.executionsCount()
        if count == 0:
            return {}
        latest = self._queries.executionsList(max(0, count - 1), 1)
        if latest.isEmpty():  # removed meanwhile
            return {}
        query = latest.head()
        number = query.executionId()
        counters = set(COUNTER.findall(query.metrics().mkString("\n")))
        values = self._queries.executionMetrics(number).mkString("\n")
        found = (int(value.replace(",", "")) for key, value in VALUE.findall(values) if key in counters)
        return {f"query {number}": sum(found)}

    def _tasks(self) -> dict[str, int]:
        """Return the ended tasks of each active stage."""
        stages = (self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds())
        return {f"stage {stage.stageId}": stage.numCompletedTasks for stage in stages if stage is not None}

    def _executors_start(self) -> bool:
        """Return whether an executor works on its first tasks, and not for longer than a start may take."""
        now = self._now()
        starting = {
            executor.id()
            for executor in self._executors_now()
            if executor.activeTasks()
            and executor.completedTasks() <= self._left_out.get(executor.id(), 0)
            and not executor.failedTasks()
        }
        self._first_tasks = {name: self._first_tasks.get(name, now) for name in starting}
        return any(now - since < self._start_timeout for since in self._first_tasks.values())

    def _executors_now(self) -> Iterator[Any]:
        executors = self._executors.executorList(True)
        return (executors.apply(number) for number in range(executors.size()))
