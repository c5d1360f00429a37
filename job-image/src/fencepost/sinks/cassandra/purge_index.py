"""The purge index of a table: which keys the records of a range of offsets wrote.

A table whose partition key does not hold topic and partition cannot say which of its rows come from an offset.  Beside
`orders` the table `orders_by_offset` can: for each row that is written, an entry of the record's coordinates and the
row's primary key.  The entry is acknowledged before the row is sent, so no crash leaves a row without one.

Entries expire after the index's retention.  Marks say what is still complete: a mark at offset o, written at time t,
means that each row of the records from o on has an entry that was written at t or later.  A run without the index
removes the marks before it writes its first row.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fencepost.contract import Reason
from fencepost.contract.sinks import finds_records, index_name, is_of_records_alone
from fencepost.errors import BadSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

BUCKET: Final = 10_000
"""Offsets of one Cassandra partition of the index."""
MARKS: Final = -1
"""The bucket of the marks."""
COORDINATES: Final = ("topic", "partition", "offset")
PARTITION_KEY: Final = ("pipeline", "topic", "partition", "bucket")
PRIMARY_KEY: Final = (*PARTITION_KEY, "offset", "key")
COLUMNS: Final = {
    "pipeline": "text",
    "topic": "text",
    "partition": "int",
    "bucket": "bigint",
    "offset": "bigint",
    "key": "blob",
    "retention": "int",
}

PLACE_KEY: Final = {"topic": "text", "partition": "int", "offset": "bigint"}
"""Columns of a primary key that is the record's place in Kafka, and their types."""


def create_statement(keyspace: str, table: str) -> str:
    """Return the CQL that creates the index of a table."""
    columns = ", ".join(f'"{name}" {kind}' for name, kind in COLUMNS.items())
    partition = ", ".join(f'"{name}"' for name in PARTITION_KEY)
    return f'CREATE TABLE "{keyspace}"."{index_name(table)}" ({columns}, PRIMARY KEY (({partition}), "offset", "key"))'


def is_index(found: Any) -> bool:  # noqa: ANN401 - the library is untyped
    """Return whether a table, as the cluster describes it, has the shape of an index."""
    key = tuple(column.name for column in found.primary_key)
    shape = {name: column.cql_type for name, column in found.columns.items()}
    return key == PRIMARY_KEY and len(found.partition_key) == len(PARTITION_KEY) and shape == COLUMNS


def check(tables: Mapping[str, Any], *, sink: str, keyspace: str, table: str) -> None:
    """Raise BadSpec where the index of a table does not exist, or is another table."""
    found = tables.get(index_name(table))
    if found is None or not is_index(found):
        what = "does not exist" if found is None else "has other columns or another key"
        raise BadSpec(
            f"sink {sink!r}: its purge index, table {keyspace}.{index_name(table)}, {what}",
            reason=Reason.SINK_NOT_FOUND if found is None else Reason.SINK_INVALID,
            remedy=f"{create_statement(keyspace, table)}; or remove cassandra.purgeIndex from the sink.",
        )


@dataclass(frozen=True, slots=True)
class Index:
    """What a task needs to write entries."""

    pipeline: str
    retention: int
    """Seconds for which an entry lives."""


def split_key(key: bytes, *, columns: int) -> Sequence[bytes]:
    """Return the values of an entry's key as CQL's bytes. Raises BadSpec where it does not have so many."""
    found = list(_parts(key))
    if len(found) != columns:
        raise BadSpec(
            f"an entry of the purge index has {len(found)} key columns, and the table {columns}: that was replaced",
            reason=Reason.SINK_INVALID,
            remedy="Truncate the index, and set deleteOutput to false.",
        )
    return found


def _parts(key: bytes) -> Iterator[bytes]:
    place = 0
    while place + 4 <= len(key):
        (length,) = struct.unpack_from(">i", key, place)
        place += 4
        yield key[place : place + length]
        place += length


def needs_no_index(table: Any) -> bool:  # noqa: ANN401 - the library is untyped
    """Return whether the key finds the rows of an offset, and has no column that may distinguish pipelines."""
    return finds_rows(table) and is_of_records_alone([column.name for column in table.partition_key])


def finds_rows(table: Any) -> bool:  # noqa: ANN401 - the library is untyped
    """Return whether the key of a table, as the cluster describes it, finds the rows of an offset."""
    partition_key = [column.name for column in table.partition_key]
    clustering = [column.name for column in table.clustering_key]
    kinds = {column.name: column.cql_type for column in table.primary_key}
    return finds_records(partition_key, clustering) and all(kinds.get(name) == kind for name, kind in PLACE_KEY.items())
