"""How many flights left each airport in each hour.

The records are in the order in which flights were due. They are counted by when they left, up to 22 hours later, so an
hour is complete only some time after its first record was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from fencepost import StreamContext

EVENT = "year INT, month INT, day INT, sched_dep_time INT, dep_time INT, origin STRING"
"""The fields that are used; from_json ignores the others."""

ZONE = "America/New_York"
DAY = 24 * 60
EARLIEST = 60
"""Minutes. A flight leaves an hour early at most, so a reading further back is the next day's."""

LATEST = "7 days"
"""How long an hour is kept after the newest departure that was read. A later record for that hour does not count.

A day is enough for late flights. The rest is for records that are out of order in Kafka. A backlog needs none of it:
its partitions are read in the order of the records' timestamps.
"""


def stream(events: DataFrame, context: StreamContext) -> DataFrame:  # noqa: ARG001 - the records say it all
    """Return the counts that a batch changes, one row for each airport and hour."""
    # FAILFAST: a record that is not JSON stops the pipeline and pages. The default would not count it.
    event = f.from_json(f.col("value").cast("string"), EVENT, {"mode": "FAILFAST"})
    flights = events.select(event.alias("event")).select("event.*").withColumn("departed_at", departed_at())
    left = flights.where("departed_at IS NOT NULL").withWatermark("departed_at", LATEST)
    hours = left.groupBy("origin", f.window("departed_at", "1 hour").alias("hour"))
    return hours.agg(f.count("*").alias("departures")).withColumn("hour", f.col("hour.start"))


def departed_at() -> Column:
    """Return when a flight left, null for one that did not: from 60 minutes before the plan to 23 hours after it."""
    planned = minutes_after_midnight(f.col("sched_dep_time"))
    behind = f.pmod(minutes_after_midnight(f.col("dep_time")) - planned + EARLIEST, f.lit(DAY)) - EARLIEST
    return new_york(f.make_date("year", "month", "day"), planned + behind)


def minutes_after_midnight(clock: Column) -> Column:
    """Minutes after midnight of a reading such as 1545."""
    return f.floor(clock / 100) * 60 + clock % 100


def new_york(date: Column, minutes: Column) -> Column:
    """Return the instant of a local time, minutes after midnight of a date; it may be on a day before or after."""
    day = f.date_add(date, f.floor(minutes / DAY).cast("int"))
    of_day = f.pmod(minutes, f.lit(DAY)).cast("int")
    return f.make_timestamp(
        f.year(day), f.month(day), f.day(day), f.floor(of_day / 60).cast("int"), of_day % 60, f.lit(0), f.lit(ZONE)
    )
