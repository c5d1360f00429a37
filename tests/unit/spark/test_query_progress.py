"""What of a query's reports counts, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.batch import EventTime
from fencepost.spark.jvm.query_progress import LATEST, QueryProgress


@dataclass(frozen=True)
class Report:
    """One of Spark's reports, as Py4J shows it."""

    batch: int
    late: tuple[int, ...] = (0,)
    watermark: str | None = "1970-01-01T00:00:01.500Z"

    def batchId(self) -> int:  # noqa: N802 - Spark's name
        return self.batch

    def stateOperators(self) -> list[Any]:  # noqa: N802 - Spark's name
        return [SimpleNamespace(numRowsDroppedByWatermark=lambda count=count: count) for count in self.late]

    def eventTime(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        return {} if self.watermark is None else {"watermark": self.watermark}


def progress(reports: list[Report]) -> QueryProgress:
    query: Any = SimpleNamespace(_jsq=SimpleNamespace(recentProgress=lambda: list(reports)))
    return QueryProgress(query)


def test_each_batch_counts_once() -> None:
    reports: list[Report] = []
    found = progress(reports)
    assert found.before(7) is None, "the first batch of a run has none before it"
    reports.append(Report(7, late=(2, 1)))
    assert found.before(8) == EventTime(watermark=1500, late_rows=3)
    assert found.before(8) is None
    reports += [Report(8, late=(4,)), Report(9, late=(5,))]
    assert found.before(10) == EventTime(watermark=1500, late_rows=9)


def test_a_report_of_an_idle_query_counts_nothing_and_hides_nothing() -> None:
    """It has the number of the batch to come."""
    reports = [Report(0, late=(3,)), Report(1, watermark=None), Report(1, watermark=None)]
    found = progress(reports)
    assert found.before(1) == EventTime(watermark=1500, late_rows=3)
    reports.append(Report(1, late=(2,)))
    assert found.before(2) == EventTime(watermark=1500, late_rows=2)


@pytest.mark.parametrize(
    ("watermark", "milliseconds"),
    [(None, None), ("1970-01-01T00:00:00.000Z", 0), ("+31000-01-01T00:00:00.000Z", LATEST)],
)
def test_a_watermark_is_one_that_python_has(watermark: str | None, milliseconds: int | None) -> None:
    assert progress([Report(0, watermark=watermark)]).before(1) == EventTime(watermark=milliseconds)
