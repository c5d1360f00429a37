"""Two topics into two tables: the flights of an airport and a day, and the weather of an airport and a month.

Flights have times in New York's local time (1545 is 15:45); the weather has instants and American units.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from fencepost.context import BatchContext

FLIGHT = """
    id BIGINT, year INT, month INT, day INT, sched_dep_time INT, dep_time INT,
    carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING
"""
WEATHER = """
    id BIGINT, time_hour STRING, origin STRING,
    temp DOUBLE, wind_speed DOUBLE, wind_dir INT, precip DOUBLE, visib DOUBLE
"""
ZONE = "America/New_York"


def transform(batch: DataFrame, context: BatchContext) -> Mapping[str, DataFrame]:  # noqa: ARG001 - the batch says it all
    """Return a frame for each sink of the spec, by its name."""
    return {
        "flights": flights(records(batch, "flights", FLIGHT)),
        "weather": weather(records(batch, "weather", WEATHER)),
    }


def records(batch: DataFrame, topic: str, schema: str) -> DataFrame:
    """Return one topic's records: their coordinates and their fields. One that is not JSON stops the pipeline."""
    event = f.from_json(f.col("value").cast("string"), schema, {"mode": "FAILFAST"})
    return (
        batch.where(f.col("topic") == topic)
        .select("topic", "partition", "offset", event.alias("event"))
        .select("topic", "partition", "offset", "event.*")
    )


def flights(events: DataFrame) -> DataFrame:
    """Return the rows of flights.departures_by_airport; the key ends with the record's coordinates, so it is unique."""
    hour = f.floor(f.col("sched_dep_time") / 100).cast("int")
    minute = f.col("sched_dep_time") % 100
    return events.select(
        "origin",
        f.make_date("year", "month", "day").alias("day"),
        # With the zone given, neither the cluster's time zone nor summer time moves the result.
        f.make_timestamp("year", "month", "day", hour, minute, f.lit(0), f.lit(ZONE)).alias("scheduled_at"),
        "topic",
        "partition",
        "offset",
        "id",
        "carrier",
        "flight",
        "tailnum",
        "dest",
        f.col("dep_time").isNull().alias("cancelled"),
    )


def weather(events: DataFrame) -> DataFrame:
    """Return the rows of flights.weather, in metric units. With its business key, an hour sent again replaces it."""
    return newest(events, "origin", "time_hour").select(
        "origin",
        f.substring("time_hour", 1, 7).alias("month"),
        f.to_timestamp("time_hour").alias("observed_at"),
        "topic",
        "partition",
        "offset",
        "id",
        ((f.col("temp") - 32) / 1.8).alias("temperature_celsius"),
        (f.col("wind_speed") * 0.44704).alias("wind_metres_per_second"),
        f.col("wind_dir").alias("wind_degrees"),
        (f.col("precip") * 25.4).alias("precipitation_millimetres"),
        (f.col("visib") * 1.609344).alias("visibility_kilometres"),
    )


def newest(events: DataFrame, *key: str) -> DataFrame:
    """Return the newest record of each key. All rows of a batch have one timestamp, so each key may have only one row.

    The records' Kafka key is the airport: all its records are in one partition, where offsets show which is newer.
    """
    record = f.max_by(f.struct(*events.columns), "offset").alias("record")
    return events.groupBy(*key).agg(record).select("record.*")
