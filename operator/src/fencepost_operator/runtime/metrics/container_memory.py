"""Memory of the operator's container: with its own processes also those of helm and of what sends pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from fencepost.memory_use import ContainerMemory


class MemoryCollector(Collector):
    """Reads it at a scrape."""

    def __init__(self, memory: Callable[[], ContainerMemory] = ContainerMemory.here) -> None:
        self._memory = memory

    def collect(self) -> Iterator[Metric]:
        """Yield each metric that is known."""
        return self._memory().metrics("operator")
