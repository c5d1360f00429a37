"""Loops that run nothing and note who was woken."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fencepost_operator.adapters.clock import SystemClock
from fencepost_operator.api import ObjectKey
from fencepost_operator.runtime.controller import Controller
from fencepost_operator.runtime.metrics.registry import PrometheusMetrics


async def _never(key: ObjectKey, *, woken: bool) -> float | None:
    raise AssertionError(f"no loop runs here: {key}, {woken}")


class Woken(Controller):
    """Notes whose loop was woken, and whose was begun."""

    def __init__(self) -> None:
        super().__init__(_never, metrics=PrometheusMetrics(), clock=SystemClock())
        self.woken: set[ObjectKey] = set()
        self.begun: set[ObjectKey] = set()
        self.ended: list[ObjectKey] = []
        """Those whose loops run, as a test says."""
        self.asked: Callable[[ObjectKey], bool] | None = None
        """Which ones were ended."""

    @property
    def keys(self) -> set[ObjectKey]:
        """All of these."""
        return self.woken | self.begun

    def wake(self, key: ObjectKey) -> None:
        self.woken.add(key)

    def ensure(self, key: ObjectKey) -> None:
        self.begun.add(key)

    async def end(self, which: Callable[[ObjectKey], bool]) -> Sequence[ObjectKey]:
        self.asked = which
        return [key for key in self.ended if which(key)]
