"""CPU-µs per row of the sink's worker half up to the bytes of its requests: a batch of the departures example.

In process, without Cassandra: `python -m bench.costs.encoding`, for a column per value and for one user-defined type.
All of it is counted, grouping and messages included.  `bench cells` writes both to Cassandra.
"""

from __future__ import annotations

import io
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, Final

import pyarrow as pa
from cassandra import ConsistencyLevel
from cassandra.cqltypes import UserType, lookup_casstype
from cassandra.protocol import BatchMessage, ExecuteMessage
from cassandra.query import BatchType, BoundStatement, PreparedStatement

from fencepost.sinks.cassandra.encoding.columns import encoder
from fencepost.sinks.cassandra.encoding.requests import Change, Request, send_encoded
from fencepost.sinks.cassandra.index_entries import entries
from fencepost.sinks.cassandra.purge_index import COORDINATES, PARTITION_KEY, PRIMARY_KEY, Index

ROWS: Final = 10_000
"""Rows in one Arrow batch, as the reader makes them."""
ROUNDS: Final = 30
ROWS_PER_BUCKET: Final = 10_000

KEY: Final = (("topic", "UTF8Type"), ("partition", "Int32Type"), ("bucket", "LongType"), ("offset", "LongType"))
DETAILS: Final = (
    ("id", "LongType"), ("carrier", "UTF8Type"), ("flight", "Int32Type"), ("tailnum", "UTF8Type"),
    ("origin", "UTF8Type"), ("dest", "UTF8Type"), ("distance_miles", "Int32Type"),
    ("scheduled_at", "TimestampType"), ("departed_at", "TimestampType"), ("delay_minutes", "Int32Type"),
)  # fmt: skip
COLUMNS: Final = (*KEY, *DETAILS)


def departures(rows: int = ROWS) -> pa.RecordBatch:
    """Return rows like the example's, some of them cancelled flights with nulls."""
    start = datetime(2013, 1, 1, tzinfo=UTC)
    at = [start + timedelta(minutes=place) for place in range(rows)]
    left = [None if place % 40 == 0 else moment for place, moment in enumerate(at)]
    values = {
        "topic": pa.array(["flights"] * rows),
        "partition": pa.array([3] * rows, pa.int32()),
        "bucket": pa.array([place // ROWS_PER_BUCKET for place in range(rows)], pa.int64()),
        "offset": pa.array(range(rows), pa.int64()),
        "id": pa.array(range(rows), pa.int64()),
        "carrier": pa.array(["UA"] * rows),
        "flight": pa.array([place % 6000 for place in range(rows)], pa.int32()),
        "tailnum": pa.array([None if moment is None else "N14228" for moment in left]),
        "origin": pa.array(["EWR"] * rows),
        "dest": pa.array(["IAH"] * rows),
        "distance_miles": pa.array([1400] * rows, pa.int32()),
        "scheduled_at": pa.array(at, pa.timestamp("us", tz="UTC")),
        "departed_at": pa.array(left, pa.timestamp("us", tz="UTC")),
        "delay_minutes": pa.array([None if moment is None else 2 for moment in left], pa.int32()),
    }
    return pa.RecordBatch.from_pydict(values)


def in_one_type(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same rows with all columns but the key's in one struct."""
    names = [name for name, _ in DETAILS]
    details = pa.StructArray.from_arrays([rows.column(name) for name in names], names=names)
    key = {name: rows.column(name) for name, _ in KEY}
    return pa.RecordBatch.from_pydict({**key, "details": details})


def flat() -> Change:
    """Return the INSERT into a table of one column per value."""
    return insert({name: lookup_casstype(kind) for name, kind in COLUMNS})


def frozen() -> Change:
    """Return the INSERT into a table of the key and one user-defined type."""
    names, kinds = zip(*DETAILS, strict=True)
    details = UserType.make_udt_class("k", "details", names, tuple(map(lookup_casstype, kinds)))
    return insert({**{name: lookup_casstype(kind) for name, kind in KEY}, "details": details})


def insert(
    kinds: Mapping[str, Any],
    *,
    primary: tuple[str, ...] = ("topic", "partition", "bucket", "offset"),
    partition: int = 3,
) -> Change:
    """Return the prepared statement, as a session would give it."""
    columns = [
        SimpleNamespace(keyspace_name="k", table_name="t", name=name, type=kind)
        for name, kind in {**kinds, "[timestamp]": lookup_casstype("LongType")}.items()
    ]
    return Change(
        prepared=PreparedStatement(columns, bytes(16), list(range(partition)), "INSERT", "k", 5, columns, bytes(16)),
        keyspace="k",
        columns=tuple(kinds),
        key=tuple(range(partition)),
        primary=primary,
        encoders=tuple(encoder(kind, 5) for kind in kinds.values()),
        table="k.t",
        patience=1.0,
    )


def body(statement: Any) -> bytes:
    """Return what a session would send."""
    written = io.BytesIO()
    message: Any
    if isinstance(statement, BoundStatement):
        message = ExecuteMessage(statement.prepared_statement.query_id, statement.values, ConsistencyLevel.LOCAL_QUORUM)
        message.result_metadata_id = bytes(16)
    else:
        plain = BatchMessage(BatchType.UNLOGGED, [], ConsistencyLevel.LOCAL_QUORUM, None, 1, "k")
        future = SimpleNamespace(query=statement, message=plain)
        send_encoded(future)
        message = future.message
    message.send_body(written, 5)
    return written.getvalue()


def measure(made: Change, batch: pa.RecordBatch) -> dict[str, float]:
    """Return median CPU-µs per row, and rows and bytes per request."""
    spent, bodies = timed(lambda: made.requests(batch, 1))
    requests, size = len(bodies), sum(map(len, bodies))
    return {
        "CPU-µs per row": round(statistics.median(spent), 2),
        "rows per request": round(ROWS / requests),
        "bytes per row": round(size / ROWS),
    }


def measure_index(made: Change, batch: pa.RecordBatch) -> dict[str, float]:
    """Return median CPU-µs per entry, and its bytes in a request."""
    spent, bodies = timed(lambda: index_requests(batch, made))
    return {
        "CPU-µs per row": round(statistics.median(spent), 2),
        "bytes per row": round(sum(map(len, bodies)) / ROWS),
    }


def index_requests(batch: pa.RecordBatch, made: Change) -> Iterator[Request]:
    """Yield the requests of a purge index of a table with the key (carrier, flight, scheduled_at)."""
    index = Index(pipeline="default/flights/departures", retention=604_800)
    kinds = ("UTF8Type", "UTF8Type", "Int32Type", "LongType", "LongType", "BytesType")
    types = {name: lookup_casstype(kind) for name, kind in zip(PRIMARY_KEY, kinds, strict=True)}
    entry = insert(types, primary=PRIMARY_KEY, partition=len(PARTITION_KEY))
    key = made.encoded(batch, ("carrier", "flight", "scheduled_at"))
    return entry.requests(entries(index, batch.select(list(COORDINATES)), key), 1)


def timed(make: Callable[[], Iterable[Request]]) -> tuple[list[float], list[bytes]]:
    """Return CPU-µs per row of each round, and the bodies of the requests."""
    spent, bodies = [], list[bytes]()
    for _ in range(ROUNDS):
        before = time.process_time()
        bodies = [body(request.statement) for request in make()]
        spent.append((time.process_time() - before) / ROWS * 1e6)
    return spent, bodies


if __name__ == "__main__":
    print("14 columns:", measure(flat(), departures()))
    print("4 columns and a type of 10 fields:", measure(frozen(), in_one_type(departures())))
    print("the purge index:", measure_index(flat(), departures()))
