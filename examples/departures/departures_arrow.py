"""The same rows as departures.py, from a function of record batches: a quarter of Spark's CPU time.

`spec.job.entrypoint: departures_arrow:transform`. The function runs in the Python workers, on a part of a batch at a
time, between the read from Kafka and the write to Cassandra.
"""

from __future__ import annotations

import io
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json

import fencepost

if TYPE_CHECKING:
    from fencepost import RecordContext

EVENT = pa.schema(
    [
        *((name, pa.int64()) for name in ("id", "year", "month", "day", "sched_dep_time", "dep_time")),
        ("carrier", pa.string()), ("flight", pa.int32()), ("tailnum", pa.string()),
        ("origin", pa.string()), ("dest", pa.string()), ("distance", pa.int32()),
    ]
)  # fmt: skip
"""The fields that are used; the others are ignored."""

ZONE = ZoneInfo("America/New_York")
DAY = 24 * 60
EARLIEST = 60
"""Minutes. A flight leaves an hour early at most, so a reading further back is the next day's."""
ROWS_PER_BUCKET = 10_000
"""Offsets that share a Cassandra partition; schema.cql says why."""
UTC = pa.timestamp("us", tz="UTC")


@fencepost.record_batches
def transform(batch: pa.RecordBatch, context: RecordContext) -> pa.RecordBatch:  # noqa: ARG001 - the batch says it all
    """Return one row per record. Its key is the record's place in Kafka, so a repeated record writes the same row."""
    flights = events(batch.column("value"))
    date = midnight(flights)
    planned = minutes_after_midnight(flights["sched_dep_time"])
    # The departure is from 60 minutes before the plan to 23 hours after it, on either side of midnight.
    early = pc.subtract(minutes_after_midnight(flights["dep_time"]), pc.subtract(planned, EARLIEST))
    behind = pc.subtract(pc.subtract(early, pc.multiply(floor(early, DAY), DAY)), EARLIEST)
    scheduled_at = new_york(pc.add(date, planned))
    departed_at = new_york(pc.add(date, pc.add(planned, behind)))
    delay = pc.divide(pc.subtract(departed_at, scheduled_at), 60 * 1_000_000)
    return pa.RecordBatch.from_pydict(
        {
            "topic": batch.column("topic"),
            "partition": batch.column("partition"),
            "bucket": floor(batch.column("offset"), ROWS_PER_BUCKET),
            "offset": batch.column("offset"),
            "id": flights["id"],
            "carrier": flights["carrier"],
            "flight": flights["flight"],
            "tailnum": flights["tailnum"],
            "origin": flights["origin"],
            "dest": flights["dest"],
            "distance_miles": flights["distance"],
            "scheduled_at": scheduled_at.view(UTC),
            "departed_at": departed_at.view(UTC),
            "delay_minutes": delay.cast(pa.int32()),
        }
    )


def events(values: pa.Array) -> dict[str, pa.Array]:
    """Return the fields of JSON events, one per value. A record that is not JSON stops the pipeline and pages."""
    if not len(values):
        return {field.name: pa.array([], field.type) for field in EVENT}
    lines = pc.binary_join(pa.ListArray.from_arrays([0, len(values)], values.fill_null(b"{}")), b"\n")[0].as_py()
    try:
        found = json.read_json(
            io.BytesIO(lines),
            json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            json.ParseOptions(explicit_schema=EVENT, unexpected_field_behavior="ignore", newlines_in_values=True),
        )
    except pa.ArrowInvalid as error:
        raise fencepost.PoisonRecord(f"a record is not the JSON of a flight: {error}") from error
    if found.num_rows != len(values):
        raise fencepost.PoisonRecord(f"{len(values)} records hold {found.num_rows} JSON values")
    return {name: found.column(name).combine_chunks() for name in EVENT.names}


def midnight(flights: dict[str, pa.Array]) -> pa.Array:
    """Minutes from 1970 to the midnight that begins the date, by the local clock; null without a date."""
    months = pc.add(pc.multiply(pc.subtract(flights["year"], 1970), 12), pc.subtract(flights["month"], 1))
    begins = months.fill_null(0).to_numpy().astype("M8[M]").astype("M8[D]").astype(np.int64)
    days = pc.add(pa.array(begins, mask=months.is_null().to_numpy(zero_copy_only=False)), flights["day"])
    return pc.multiply(pc.subtract(days, 1), DAY)


def minutes_after_midnight(clock: pa.Array) -> pa.Array:
    """Minutes after midnight of a reading such as 1545."""
    hours = floor(clock, 100)
    return pc.add(pc.multiply(hours, 60), pc.subtract(clock, pc.multiply(hours, 100)))


def floor(number: pa.Array, by: int) -> pa.Array:
    """Divide whole numbers, rounding down."""
    return pc.floor(pc.divide(number.cast(pa.float64()), by)).cast(pa.int64())


def new_york(minutes: pa.Array) -> pa.Array:
    """Return the instants (µs since 1970) of local times, minutes since 1970.

    The offset from UTC is looked up once per hour, because summer time begins and ends at a full hour. A local time
    that summer time skips is read as winter time, and of one that occurs twice the first is used, as Spark's
    make_timestamp does.
    """
    local = minutes.fill_null(0).to_numpy()
    hours, where = np.unique(local // 60, return_inverse=True)
    offsets = np.array([offset(int(hour)) for hour in hours], dtype=np.int64)
    instants = (local - offsets[where]) * 60 * 1_000_000
    return pa.array(instants, mask=minutes.is_null().to_numpy(zero_copy_only=False))


def offset(hour: int) -> int:
    """Minutes by which the local clock is ahead of UTC in an hour of the local clock since 1970."""
    reading = datetime(1970, 1, 1, tzinfo=ZONE) + timedelta(hours=hour)
    ahead = reading.utcoffset()
    return 0 if ahead is None else int(ahead.total_seconds()) // 60
