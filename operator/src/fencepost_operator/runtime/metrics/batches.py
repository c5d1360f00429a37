"""How long batches take and how large they are, by the figures that a commit leaves in the fence row.

The operator looks every few seconds, so of short batches it counts those that it sees: a sample.  The driver's own
metrics have every batch.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from fencepost.fence import FenceRow
from fencepost_operator.api import ObjectKey
from fencepost_operator.runtime.metrics.series import HistogramSeries, Series

SECONDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
RECORDS: Final = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
MOST_SECONDS: Final = 7 * 86_400
"""A longer batch counts as this long: the row is in the tenant's Cassandra."""
MOST_RECORDS: Final = 10**12


class BatchHistograms:
    """`fencepost_pipeline_batch_duration_seconds` and `fencepost_pipeline_batch_records`."""

    def __init__(self, series: list[Series]) -> None:
        labels = ("namespace", "name")
        self._seconds = HistogramSeries(
            "fencepost_pipeline_batch_duration_seconds",
            "Time from the plan of a batch to its commit, of the batches that the operator saw committed.",
            labels, buckets=SECONDS,
        )  # fmt: skip
        self._records = HistogramSeries(
            "fencepost_pipeline_batch_records",
            "Records of a batch, of the batches that the operator saw committed.",
            labels, buckets=RECORDS,
        )  # fmt: skip
        series += [self._seconds, self._records]
        self._newest: dict[ObjectKey, datetime | None] = {}

    def observed(self, key: ObjectKey, row: FenceRow) -> None:
        """Count the row's last commit, once; one from before the first observation does not count."""
        is_first = key not in self._newest
        before, self._newest[key] = self._newest.get(key), row.committed_at
        if is_first or row.committed_at is None or row.committed_at == before:
            return
        labels = (key.namespace, key.name)
        if row.duration_ms is not None:
            self._seconds.observe(labels, min(max(row.duration_ms / 1000, 0.0), MOST_SECONDS))
        if row.records is not None:
            self._records.observe(labels, min(max(row.records, 0), MOST_RECORDS))

    def forget(self, key: ObjectKey) -> None:
        """Drop the pipeline's series."""
        self._newest.pop(key, None)
        for histogram in (self._seconds, self._records):
            histogram.remove((key.namespace, key.name))
