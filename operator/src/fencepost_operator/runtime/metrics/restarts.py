"""Restarts of a pipeline by reason, as a counter that continues from the status after a restart of the operator."""

from __future__ import annotations

from collections import Counter
from typing import Final

from fencepost_operator.api import ObjectKey, Reason, Status
from fencepost_operator.runtime.metrics.series import Series

EARLIER: Final = "Earlier"
"""The reason of restarts from before this process: the status has their number alone."""


class RestartCounter:
    """`fencepost_pipeline_restarts_total` by reason. The sum over the reasons is the count of the status.

    A lost status counts from zero again, which Prometheus takes for the reset of a counter.  Drains are counted from
    zero on: FencepostRestartLoop leaves them out, and cannot see how far a series grew before it was there.
    """

    def __init__(self, series: list[Series]) -> None:
        self._series = Series(
            "fencepost_pipeline_restarts_total",
            "Runs started to replace one that failed, by the reason of the failure. The sum is the status' count.",
            ("namespace", "name", "reason"),
            kind="counter",
        )
        series.append(self._series)
        self._counted: dict[ObjectKey, int] = {}
        self._totals: dict[ObjectKey, Counter[str]] = {}

    def observed(self, key: ObjectKey, status: Status) -> None:
        """Count what the status has more than at the last look."""
        before = self._counted.get(key)
        if before is None or status.restarts < before:
            self.forget(key)
            self._add(key, EARLIER, status.restarts)
            self._add(key, Reason.DRAINED, 0)
        elif status.restarts > before:
            self._add(key, reason_of(status), status.restarts - before)
        self._counted[key] = status.restarts

    def forget(self, key: ObjectKey) -> None:
        """Drop the pipeline's series."""
        self._counted.pop(key, None)
        for reason in self._totals.pop(key, ()):
            self._series.remove((key.namespace, key.name, reason))

    def _add(self, key: ObjectKey, reason: str, count: int) -> None:
        totals = self._totals.setdefault(key, Counter())
        totals[reason] += count
        self._series.set((key.namespace, key.name, reason), totals[reason])


def reason_of(status: Status) -> Reason:
    """Return why the newest failed run ended."""
    return status.failure.reason if status.failure is not None else Reason.FAILED
