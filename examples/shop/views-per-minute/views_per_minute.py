"""How often each page is viewed in each minute, and the views that arrive after their minute was closed.

An aggregation of Spark drops late rows. A processor gets them as well, and can write them to a table of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, StatefulProcessorHandle, TimerValues

    from fencepost import BatchContext, StreamContext

VIEW = "user STRING, page STRING, at TIMESTAMP"
MINUTE = 60_000
"""Milliseconds, as all times of the processor."""

LATEST = "5 minutes"
"""How long a minute is open after its end, by the newest view of all pages."""

FOUND = "page STRING, minute BIGINT, views BIGINT, user STRING, topic STRING, partition INT, offset BIGINT"
"""Rows of the processor: with `views` a count, without it a late view."""


def stream(events: DataFrame, context: StreamContext) -> DataFrame:  # noqa: ARG001 - the records say it all
    """Return the counts that a batch changes, and its late views."""
    view = f.from_json(f.col("value").cast("string"), VIEW, {"mode": "FAILFAST"})
    views = events.select("topic", "partition", "offset", view.alias("view")).select("*", "view.*")
    minute = f.unix_millis(f.date_trunc("minute", "at")).alias("minute")
    # `at` moves the watermark and is left out then: as long as it is there, Spark drops late rows.
    minutes = views.withWatermark("at", LATEST).select("page", minute, "user", "topic", "partition", "offset")
    return minutes.groupBy("page", "minute").transformWithState(Minute(), FOUND, "Update", "EventTime")


def finish(rows: DataFrame, context: BatchContext) -> Mapping[str, DataFrame]:  # noqa: ARG001 - the rows say it all
    """Return a frame for each sink of the spec, by its name."""
    rows = rows.withColumn("minute", f.timestamp_millis("minute"))
    return {
        "views_per_minute": rows.where("views IS NOT NULL").select("page", "minute", "views"),
        "late_views": rows.where("views IS NULL").drop("views"),
    }


class Minute(StatefulProcessor):
    """The views of one page in one minute. Its state is kept until the watermark has passed the minute's end."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._handle = handle
        self._views = handle.getValueState("views", "views BIGINT")

    def handleInputRows(self, key: tuple[str, int], rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Row]:
        """Count the views of a batch, or return them as late."""
        page, minute = key
        end = minute + MINUTE
        if end <= timerValues.getCurrentWatermarkInMs():
            yield from (Row(**row.asDict(), views=None) for row in rows)
            return
        (before,) = self._views.get() or (0,)
        if not before:
            self._handle.registerTimer(end)
        views = before + sum(1 for _ in rows)
        self._views.update((views,))
        yield Row(page=page, minute=minute, views=views, user=None, topic=None, partition=None, offset=None)

    def handleExpiredTimer(
        self, key: tuple[str, int], timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        """Forget a minute that is closed; its last count is written."""
        self._views.clear()
        return iter(())
