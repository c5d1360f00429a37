"""What Spark reports of a streaming query after each batch: its watermark, and the rows that it dropped as late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from fencepost.batch import EventTime

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_BEGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)
LATEST: Final = 253_402_300_799_999
"""The last ms of the year 9999. Spark knows later years, and Python does not."""


class QueryProgress:
    """Reads the reports of one query, each once.

    The newest report alone would not do: while there is nothing to read, Spark adds reports without figures, under the
    number of the batch to come.
    """

    def __init__(self, query: StreamingQuery) -> None:
        self._query: Any = query._jsq  # noqa: SLF001 - Spark's JVM API; PySpark would fetch each report whole
        self._reported = -1

    def before(self, batch: int) -> EventTime | None:
        """Return what the batches before this one add, as far as they are not returned yet; None without one."""
        newest: Any = None
        late = 0
        reports = self._query.recentProgress()
        for index in range(len(reports) - 1, -1, -1):
            number = reports[index].batchId()
            if number <= self._reported:
                break
            if number < batch:
                newest = newest or reports[index]
                late += sum(max(0, part.numRowsDroppedByWatermark()) for part in reports[index].stateOperators())
        if newest is None:
            return None
        self._reported = batch - 1
        return EventTime(watermark=_milliseconds(newest.eventTime().get("watermark")), late_rows=late)


def _milliseconds(moment: str | None) -> int | None:
    """Return a report's moment in ms since 1970, at most LATEST."""
    if moment is None:
        return None
    try:
        return max(0, (datetime.fromisoformat(moment) - _BEGIN) // timedelta(milliseconds=1))
    except ValueError:  # of a later year, which has more digits
        return LATEST
