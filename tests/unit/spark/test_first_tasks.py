"""An executor that imports the author's code for long has done nothing yet, and does not hang.

In a module of its own: its session's executor has ended no task before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fencepost.spark import python_workers
from fencepost.spark.work_done import WorkDone
from harness.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_TIMEOUT = 100.0


class Job:
    """A Spark job whose Python worker does not get further than its first lines until `end`."""

    def __init__(self, spark: SparkSession, gate: Path) -> None:
        self._gate = gate
        self._thread = threading.Thread(target=self._run, args=[spark, str(gate)], daemon=True)
        self._thread.start()
        eventually("a Python worker imports", Path(f"{gate}.reached").exists, seconds=120)

    @staticmethod
    def _run(spark: SparkSession, gate: str) -> None:
        def imports(batches: Any) -> Iterator[Any]:
            import os  # noqa: PLC0415
            import time  # noqa: PLC0415

            with open(f"{gate}.reached", "w", encoding="utf-8"):  # noqa: PTH123
                pass
            while not os.path.exists(gate):  # noqa: PTH110
                time.sleep(0.05)
            yield from batches

        spark.range(0, 4, 1, 1).mapInArrow(imports, "id long").collect()

    def end(self) -> None:
        self._gate.touch()
        self._thread.join(60)
        assert not self._thread.is_alive()


@pytest.fixture
def jobs(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[], Job]]:
    begun: list[Job] = []

    def begin() -> Job:
        begun.append(Job(spark, tmp_path / f"gate-{len(begun)}"))
        return begun[-1]

    yield begin
    for job in begun:
        job.end()


def test_the_first_tasks_of_an_executor_count_as_progress_for_as_long_as_a_start_may_take(
    spark: SparkSession, jobs: Callable[[], Job]
) -> None:
    """Injected: imports that take longer than stallTimeout, in a run that has claimed; it was replaced again and again.

    The driver's clock is the test's.
    """
    clock = 0.0
    progress = WorkDone(spark, start_timeout=START_TIMEOUT, now=lambda: clock)
    warm = threading.Event()

    def ended() -> None:
        progress.leave_out_ended_tasks()
        warm.set()

    python_workers.begin(spark, ended=ended)
    assert warm.wait(120), "the workers have begun, by a task that is none of a batch"

    def grows() -> bool:
        before = progress.poll()
        return progress.poll() > before

    first = jobs()
    eventually("Spark reports the task", grows, seconds=30)
    clock = START_TIMEOUT - 1
    assert grows()
    clock = START_TIMEOUT
    # What was done before is reported by the next heartbeats, one per second here.
    eventually("a task that does nothing for longer than a start may take hangs", lambda: not grows(), seconds=30)
    first.end()
    jobs()
    time.sleep(3)
    eventually("its imports are done: a task without output hangs", lambda: not grows(), seconds=30)
