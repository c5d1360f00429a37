"""What watches a run from its session to its end: each watch has a thread of its own, and knows how to end the run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from fencepost.contract import DriverConfig
from fencepost.driver import watchdogs
from fencepost.driver.crash_loop import CrashLoop
from fencepost.driver.reporting import logs
from fencepost.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fencepost.driver.loop import InProgress, Loop
    from fencepost.driver.stateful.run import StatefulRun
    from fencepost.fence import Fence
    from fencepost.spark.jvm.log import JvmLog

log = logging.getLogger(__name__)

JVM_LOG_LIMIT: Final = 1.0
"""Seconds for the JVM's last lines."""


class Supervision:
    """The watches of one run. `end` ends the process for an error; `lap` logs that a part is ready."""

    def __init__(self, config: DriverConfig, *, end: watchdogs.End, lap: Callable[[str], None]) -> None:
        self._config = config
        self._end = end
        self._lap = lap
        self._jvm_log: JvmLog | None = None
        self._has_executor = threading.Event()

    def fence(self, check: Callable[[], object]) -> None:
        """Watch that this driver holds the fence: `check` raises when it does not."""
        watchdogs.start("fence", lambda: watchdogs.watch_fence(check, end=self._end))

    def executors(self, spark: SparkSession) -> None:
        """Watch that there are executors; a local run has none of its own."""
        if session.is_local(self._config):
            return
        watchdogs.start(
            "executors",
            lambda: watchdogs.watch_executors(
                lambda: session.executors(spark),
                arrived=self._arrived,
                end=self._end,
                limit=self._config.executor_patience,
            ),
        )

    def jvm(self, spark: SparkSession) -> None:
        """Watch the JVM's log, and what the JVM uses."""
        watchdogs.start("log", partial(self._follow_log, spark))
        watchdogs.start("resources", lambda: watchdogs.watch_resources(lambda: session.jvm_resources(spark)))

    def loop(self, loop: Loop | StatefulRun, progress: Callable[[], int], fence: Fence) -> None:
        """Report the progress of long batches, and give signs of life."""

        def report(batch: InProgress, done: int) -> None:
            fence.report_progress(batch.row, done)

        timeout = self._config.stall_timeout
        watchdogs.start("progress", lambda: watchdogs.watch_progress(lambda: loop.in_progress, progress, report=report))
        watchdogs.start(
            "life", lambda: watchdogs.watch_life(lambda: loop.life, sign=fence.give_sign, stall_timeout=timeout)
        )
        if interval := self._config.heartbeat:
            idle, beat = self._config.idle_heartbeat, watchdogs.beside(fence.beat, partial(watchdogs.start, "beat"))
            watchdogs.start(
                "heartbeat",
                lambda: watchdogs.watch_heartbeat(lambda: loop.life, beat=beat, interval=interval, idle_interval=idle),
            )

    def files(self, collect: Callable[[], bool]) -> None:
        """Delete the files of a state that nothing reaches."""
        watchdogs.start("files", lambda: watchdogs.watch_files(collect, end=self._end))

    def await_executor(self) -> None:
        """Wait for the first executor, where there is one to wait for."""
        if not session.is_local(self._config):
            self._has_executor.wait()

    def read_last_lines(self) -> None:
        """Read what the JVM logged since the watch looked last; a JVM that hangs is not waited for."""
        if (jvm_log := self._jvm_log) is None:
            return

        def read() -> None:
            with suppress(Exception):
                logs.LAST.add(jvm_log.read())

        reading = threading.Thread(target=read, daemon=True)
        reading.start()
        reading.join(JVM_LOG_LIMIT)

    def _arrived(self) -> None:
        self._lap("executor")
        self._has_executor.set()

    def _follow_log(self, spark: SparkSession) -> None:
        """Follow the JVM's log, beside the start, which that would delay; an author's class path may break it."""
        from fencepost.spark.jvm.log import JvmLog  # noqa: PLC0415 - Spark's imports overlap the JVM's start

        try:
            found = self._jvm_log = JvmLog(spark)
        except Exception as error:  # noqa: BLE001 - Py4J raises many kinds
            log.warning("the JVM's log cannot be read: %s", error)
            return
        loop = CrashLoop(self._config.executors)
        watchdogs.watch_log(found.read, show=logs.LAST.add, judge=loop.see, end=self._end)
