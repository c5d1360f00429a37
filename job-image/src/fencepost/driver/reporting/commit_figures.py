"""The figures of a commit: what its batch did, and the most memory that driver and workers have had in the run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from fencepost.batch import Written
from fencepost.fence.figures import Figure
from fencepost.memory_use import PROC, ContainerMemory, ProcessMemory

EVERY: Final = 1.0
"""Seconds between two looks: a busy pipeline commits several times in one."""

Measure: TypeAlias = Callable[[], Mapping[str, int]]
"""Returns the figures of the driver's memory so far."""


def unmeasured() -> Mapping[str, int]:
    """Measure nothing."""
    return {}


def of_batch(written: Written, *, limit: int, driver: Mapping[str, int]) -> dict[str, int]:
    """Return the figures of a batch, after which the next one may have `limit` records."""
    memory = written.memory
    workers = {
        Figure.WORKER_CONTAINER: memory.container,
        Figure.WORKER_LIMIT: memory.limit,
        Figure.WORKER_PYTHON: memory.python,
        Figure.WORKER_JVM: memory.jvm,
        Figure.CORES: written.cores,
    }
    known = {str(name): figure for name, figure in workers.items() if figure}
    rows = sum(written.rows.values())
    return {str(Figure.BYTES): written.size, str(Figure.ROWS): rows, str(Figure.LIMIT): limit, **known, **driver}


class DriverMemory:
    """Looks at the driver's Python, its JVM and its container; call it at commits, from one thread."""

    def __init__(
        self,
        jvm: int,
        *,
        proc: Path = PROC,
        container: Callable[[], ContainerMemory] = ContainerMemory.here,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._processes = {Figure.DRIVER_PYTHON: os.getpid(), Figure.DRIVER_JVM: jvm}
        self._proc = proc
        self._container = container
        self._now = now
        self._looked: float | None = None
        self._seen: dict[str, int] = {}

    def __call__(self) -> Mapping[str, int]:
        """Return the largest figures so far, without those that the kernel does not report."""
        now = self._now()
        if self._looked is None or now - self._looked >= EVERY:
            self._looked = now
            for name, figure in self._look().items():
                if figure:
                    self._seen[str(name)] = max(figure, self._seen.get(name, 0))
        return self._seen

    def _look(self) -> Mapping[Figure, int | None]:
        processes = {name: ProcessMemory.of(process, self._proc) for name, process in self._processes.items()}
        container = self._container()
        return {
            **{name: found.peak if found else None for name, found in processes.items()},
            Figure.DRIVER_CONTAINER: container.unreclaimable,
            Figure.DRIVER_LIMIT: container.limit,
        }
