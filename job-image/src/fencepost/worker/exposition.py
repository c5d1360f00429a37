"""The metrics of a worker's container: docs/metrics.md has each one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from fencepost.worker.processes import Kind, Process

CGROUP: Final = Path("/sys/fs/cgroup")
UNLIMITED: Final = 1 << 60
"""Bytes. With cgroup v1 a container without a limit has a larger one."""


@dataclass(slots=True)
class Counted:
    """What the loop beside the worker counts."""

    scratch: int = 0
    swept: int = 0
    started: int = 0
    lines: int = 0


def number_in(path: Path) -> int | None:
    """Return the number that a file holds; None where there is none, or one that says that there is no limit."""
    try:
        found = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return found if found < UNLIMITED else None


class WorkerCollector:
    """Reads the processes at a scrape; the rest was counted before."""

    def __init__(
        self,
        counted: Counted,
        processes: Callable[[], Iterator[Process]],
        *,
        number: Callable[[Path], int | None] = number_in,
    ) -> None:
        self._counted = counted
        self._processes = processes
        self._number = number

    def collect(self) -> Iterator[Metric]:
        """Yield each metric."""
        found = list(self._processes())
        memory = GaugeMetricFamily(
            "fencepost_worker_resident_memory_bytes", "Resident memory of the processes of a kind.", labels=["process"]
        )
        largest = GaugeMetricFamily(
            "fencepost_worker_largest_process_bytes", "Resident memory of the largest of them.", labels=["process"]
        )
        count = GaugeMetricFamily("fencepost_worker_processes", "Processes of a kind.", labels=["process"])
        for kind in Kind:
            sizes = [process.resident for process in found if process.kind is kind]
            memory.add_metric([kind], sum(sizes))
            largest.add_metric([kind], max(sizes, default=0))
            count.add_metric([kind], len(sizes))
        yield from (memory, largest, count)
        for name, words, files in _CONTAINER:
            known = (self._number(CGROUP / file) for file in files)
            if (figure := next((number for number in known if number is not None), None)) is not None:
                yield GaugeMetricFamily(name, words, value=figure)
        counted = self._counted
        yield GaugeMetricFamily(
            "fencepost_worker_scratch_bytes", "Disk space that the scratch volume takes.", value=counted.scratch
        )
        yield CounterMetricFamily(
            "fencepost_worker_executors_started", "Executors that this worker has started.", value=counted.started
        )
        yield CounterMetricFamily(
            "fencepost_worker_executor_folders_removed",
            "Folders of executors that ended, removed to bound the scratch volume.",
            value=counted.swept,
        )
        yield CounterMetricFamily(
            "fencepost_worker_log_entries", "Entries of executors' logs, written to stdout.", value=counted.lines
        )


def exposition(collector: WorkerCollector) -> Callable[[], bytes]:
    """Return what makes the text of a scrape."""
    registry = CollectorRegistry()
    registry.register(collector)
    return lambda: generate_latest(registry)


_CONTAINER: Final = (
    (
        "fencepost_worker_container_memory_bytes",
        "Memory of the container, with the page cache.",
        ("memory.current", "memory/memory.usage_in_bytes"),
    ),
    (
        "fencepost_worker_container_memory_limit_bytes",
        "The container's limit.",
        ("memory.max", "memory/memory.limit_in_bytes"),
    ),
)
"""Files of cgroup v2, and of v1."""
