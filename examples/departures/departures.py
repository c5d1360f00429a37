"""One row per flight: when it was due to leave, when it left, both in UTC, and the minutes between.

An event is JSON with times as airports print them: 1545 is 15:45, 2400 is the midnight that ends a day, both in New
York's local time. Only the scheduled departure has a date.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from fencepost.context import BatchContext

EVENT = """
    id BIGINT, year INT, month INT, day INT, sched_dep_time INT, dep_time INT,
    carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, distance INT
"""
"""The fields that are used; from_json ignores the others."""

ZONE = "America/New_York"
DAY = 24 * 60
EARLIEST = 60
"""Minutes. A flight leaves an hour early at most, so a reading further back is the next day's."""

ROWS_PER_BUCKET = 10_000
"""Offsets that share a Cassandra partition; schema.cql says why."""


def transform(batch: DataFrame, context: BatchContext) -> DataFrame:  # noqa: ARG001 - the batch says it all
    """Return one row per record. Its key is the record's place in Kafka, so a repeated record writes the same row."""
    # FAILFAST: a record that is not JSON stops the pipeline and pages. The default would write a row of nulls.
    event = f.from_json(f.col("value").cast("string"), EVENT, {"mode": "FAILFAST"})
    flights = batch.select("topic", "partition", "offset", event.alias("event")).select(
        "topic", "partition", "offset", "event.*"
    )

    date = f.make_date("year", "month", "day")
    planned = minutes_after_midnight(f.col("sched_dep_time"))
    # The departure is from 60 minutes before the plan to 23 hours after it, on either side of midnight.
    behind = f.pmod(minutes_after_midnight(f.col("dep_time")) - planned + EARLIEST, f.lit(DAY)) - EARLIEST

    timed = flights.withColumns(
        {"scheduled_at": new_york(date, planned), "departed_at": new_york(date, planned + behind)}
    )
    return timed.select(
        "topic",
        "partition",
        f.floor(f.col("offset") / ROWS_PER_BUCKET).alias("bucket"),
        "offset",
        "id",
        "carrier",
        "flight",
        "tailnum",
        "origin",
        "dest",
        f.col("distance").alias("distance_miles"),
        "scheduled_at",
        "departed_at",
        f.timestamp_diff("MINUTE", "scheduled_at", "departed_at").cast("int").alias("delay_minutes"),
    )


def minutes_after_midnight(clock: Column) -> Column:
    """Minutes after midnight of a reading such as 1545."""
    return f.floor(clock / 100) * 60 + clock % 100


def new_york(date: Column, minutes: Column) -> Column:
    """Return the instant of a local time, minutes after midnight of a date; it may be on a day before or after.

    The minutes are added to the local time, and the instant is computed last, with a fixed zone. So the result does not
    depend on the cluster's time zone, and is correct at changes of summer time.
    """
    day = f.date_add(date, f.floor(minutes / DAY).cast("int"))
    of_day = f.pmod(minutes, f.lit(DAY)).cast("int")
    return f.make_timestamp(
        f.year(day), f.month(day), f.day(day), f.floor(of_day / 60).cast("int"), of_day % 60, f.lit(0), f.lit(ZONE)
    )
