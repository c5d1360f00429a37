"""The metrics of a worker's container: docs/metrics.md has each one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from fencepost.memory_use import ContainerMemory
from fencepost.worker.processes import Kind, Process


@dataclass(slots=True)
class Counted:
    """What the loop beside the worker counts."""

    scratch: int = 0
    swept: int = 0
    started: int = 0
    lines: int = 0


class WorkerCollector:
    """Reads the processes at a scrape; the rest was counted before."""

    def __init__(
        self,
        counted: Counted,
        processes: Callable[[], Iterator[Process]],
        *,
        memory: Callable[[], ContainerMemory] = ContainerMemory.here,
    ) -> None:
        self._counted = counted
        self._processes = processes
        self._memory = memory

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
        yield from self._memory().metrics("worker")
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
