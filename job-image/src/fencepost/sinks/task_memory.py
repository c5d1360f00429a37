"""What the processes around a task have in memory, for the report of the task: some ten reads of files in a second."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from fencepost.batch import WorkerMemory
from fencepost.memory_use import PROC, ContainerMemory, ProcessMemory

EVERY: Final = 1.0
"""Seconds between two looks of a Python worker: small batches end many tasks in one."""


class TaskMemory:
    """Looks from a Python worker, which Spark's daemon forked, which its executor's JVM started."""

    def __init__(self, *, proc: Path = PROC) -> None:
        self._proc = proc
        self._looked = -EVERY
        self._seen = WorkerMemory()

    def seen(self, now: float, process: int) -> WorkerMemory:
        """Return what was seen at the last look, which is of now if that is EVERY seconds ago; `now` is monotonic."""
        if now - self._looked >= EVERY:
            self._looked, self._seen = now, self._look(process)
        return self._seen

    def _look(self, process: int) -> WorkerMemory:
        container = ContainerMemory.here()
        own = ProcessMemory.of(process, self._proc)
        daemon = ProcessMemory.of(own.parent, self._proc) if own else None
        jvm = ProcessMemory.of(daemon.parent, self._proc) if daemon else None
        return WorkerMemory(
            container=container.unreclaimable or 0,
            limit=container.limit or 0,
            python=own.peak if own else 0,
            jvm=jvm.peak if jvm and jvm.program == "java" else 0,
        )


_MEMORY: Final = TaskMemory()


def seen() -> WorkerMemory:
    """Return what this task's worker has in memory."""
    return _MEMORY.seen(time.monotonic(), os.getpid())
