"""What the processes of a trial use, by kind: the driver's Python, its JVM, and the JVM's Python workers."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fencepost.contract.trial import ProcessFigures
from fencepost.memory_use import PROC, ContainerMemory, resident

EVERY: Final = 1.0
"""Seconds between two looks."""
WINDOW: Final = 5
"""Looks over which the CPU is a mean."""
DRIVER: Final = "driver"
JVM: Final = "jvm"
WORKERS: Final = "workers"


@dataclass(frozen=True, slots=True)
class _Stat:
    """A process: its parent, and its CPU seconds with those of children that have ended."""

    parent: int
    seconds: float


@dataclass(slots=True)
class _Use:
    peak_memory: int = 0
    seconds: float = 0.0
    peak_cpu: float = 0.0
    window: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=WINDOW + 1))
    """Moments, and the CPU seconds until then."""

    def see(self, now: float, memory: int, seconds: float) -> None:
        self.peak_memory = max(self.peak_memory, memory)
        self.seconds = max(self.seconds, seconds)  # of processes that ended, some may be missing
        self.window.append((now, self.seconds))
        (first, before), span = self.window[0], now - self.window[0][0]
        if first < now:
            self.peak_cpu = max(self.peak_cpu, (self.seconds - before) / span)


class Processes:
    """Follows them in a thread of its own until the process ends."""

    def __init__(self, jvm: int, *, proc: Path = PROC, driver: int | None = None) -> None:
        self._jvm = jvm
        self._driver = driver or os.getpid()
        self._proc = proc
        self._uses = {name: _Use() for name in (DRIVER, JVM, WORKERS)}
        self._peak: int | None = None
        self._limit: int | None = None

    def follow(self) -> None:
        """Begin to look, every EVERY seconds."""

        def look() -> None:
            while True:
                self.look(time.monotonic())
                time.sleep(EVERY)

        threading.Thread(target=look, name="processes", daemon=True).start()

    def look(self, now: float) -> None:
        """Look once; `now` in monotonic seconds."""
        stats = dict(_stats(self._proc))
        kinds = {DRIVER: {self._driver}, JVM: {self._jvm}, WORKERS: _below(self._jvm, stats)}
        for name, processes in kinds.items():
            memory = sum(resident(process, self._proc) or 0 for process in processes)
            self._uses[name].see(now, memory, sum(stats[each].seconds for each in processes & stats.keys()))
        container = ContainerMemory.here()
        if container.unreclaimable is not None:
            self._peak = max(self._peak or 0, container.unreclaimable)
        self._limit = container.limit

    def figures(self) -> tuple[ProcessFigures, ...]:
        """Return what each kind has used so far."""
        return tuple(
            ProcessFigures(
                name=name,
                peak_memory=use.peak_memory,
                cpu_seconds=round(use.seconds, 1),
                peak_cpu=round(use.peak_cpu, 2),
            )
            for name, use in self._uses.items()
        )

    @property
    def container(self) -> tuple[int | None, int | None]:
        """Most bytes of the container without the page cache, and its limit."""
        return self._peak, self._limit


def _stats(proc: Path) -> Iterator[tuple[int, _Stat]]:
    ticks = os.sysconf("SC_CLK_TCK")
    for path in proc.iterdir():
        if not path.name.isdecimal():
            continue
        try:
            # The name of the command, in brackets, may hold anything.
            fields = (path / "stat").read_text(errors="replace").rpartition(")")[2].split()
            # From the third field on: state, parent, …, utime, stime, cutime, cstime.
            yield int(path.name), _Stat(int(fields[1]), sum(map(int, fields[11:15])) / ticks)
        except (OSError, ValueError, IndexError):
            continue


def _below(root: int, stats: dict[int, _Stat]) -> set[int]:
    """Return all processes that a process has started, and that these have."""
    found: set[int] = set()
    reached = {root}
    while reached:
        reached = {process for process, stat in stats.items() if stat.parent in reached} - found
        found |= reached
    return found
