"""Sessions of users: views of pages with at most 30 minutes between one and the next.

A late view may begin a session earlier, make it longer, or join two. So a session is written once, when no such view is
expected any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fencepost import StreamContext

VIEW = "user STRING, page STRING, at TIMESTAMP"
TIMEOUT = "30 minutes"
LATEST = "1 hour"
"""How far a view may be behind the newest one of all users. One that is further behind does not count."""


def stream(events: DataFrame, context: StreamContext) -> DataFrame:  # noqa: ARG001 - the records say it all
    """Return the sessions that are over, one row for each."""
    # FAILFAST: a record that is not JSON stops the pipeline and pages. The default would not count it.
    view = f.from_json(f.col("value").cast("string"), VIEW, {"mode": "FAILFAST"})
    views = events.select(view.alias("view")).select("view.*").withWatermark("at", LATEST)
    sessions = views.groupBy("user", f.session_window("at", TIMEOUT).alias("session"))
    return sessions.agg(
        f.count("*").alias("views"),
        f.min(f.struct("at", "page")).alias("first"),
        f.max("at").alias("ended_at"),
    ).select(
        "user", f.col("first.at").alias("started_at"), "ended_at", "views", f.col("first.page").alias("first_page")
    )
