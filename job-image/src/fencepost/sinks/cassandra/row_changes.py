"""What a frame's rows do to a table: inserts with or without a time to live, row deletes and range deletes.

All have the batch's write timestamp. Where an insert and a delete of one batch meet, the delete wins: Cassandra decides
ties so, whatever arrives first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fencepost.errors import PoisonRecord
from fencepost.sinks.cassandra.cql import quoted


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How a declared sink reads its frame."""

    ttl: int | None = None
    """Seconds for which each inserted cell lives; None for the table's default."""
    ttl_column: str | None = None
    """The column with the seconds of each row, instead; it is not stored."""
    delete_where: str | None = None
    """The boolean column of rows that delete; it is not stored."""
    unstored: frozenset[str] = frozenset()
    """Columns that are for the purge index alone."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A statement: an INSERT of these columns, or a DELETE by them. With a TTL column, that is the last one."""

    columns: tuple[str, ...]
    is_delete: bool = False
    has_ttl: bool = False

    def text(self, table: str, ttl: int | None) -> str:
        """Return the CQL; an INSERT's write timestamp is its last marker, a DELETE's the first."""
        if self.is_delete:
            key = " AND ".join(f"{quoted(name)} = ?" for name in self.columns)
            return f"DELETE FROM {table} USING TIMESTAMP ? WHERE {key}"  # noqa: S608
        stored = self.columns[:-1] if self.has_ttl else self.columns
        names, marks = ", ".join(map(quoted, stored)), ", ".join("?" * len(stored))
        lifetime = "TTL ? AND " if self.has_ttl else f"TTL {ttl} AND " if ttl is not None else ""
        return f"INSERT INTO {table} ({names}) VALUES ({marks}) USING {lifetime}TIMESTAMP ?"  # noqa: S608


def changes(
    batch: pa.RecordBatch, rules: Rules, *, primary_key: tuple[str, ...], partition_key: tuple[str, ...]
) -> Iterator[tuple[Shape, pa.RecordBatch]]:
    """Yield the rows of a batch by their statement, each part with the statement's columns; an empty batch inserts.

    A row that deletes needs the key alone: with the whole key it deletes a row, with nulls at the key's end the range
    of all rows that have what is before them.  Raises PoisonRecord for a null before the end of the clustering columns.
    """
    inserted, deleted = parted(batch, rules)
    shape = insert(batch.schema.names, rules)
    if inserted.num_rows or not batch.num_rows:
        yield shape, inserted.select(list(shape.columns))
    if deleted is not None and deleted.num_rows:
        yield from _deletes(deleted.select(list(primary_key)), primary_key[len(partition_key) :], partition_key)


def parted(batch: pa.RecordBatch, rules: Rules) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Return the rows that are inserted, and those that delete; None where no column marks such."""
    if rules.delete_where is None:
        return batch, None
    marked = pc.fill_null(batch.column(rules.delete_where), False)
    return batch.filter(pc.invert(marked)), batch.filter(marked)


def insert(names: Sequence[str], rules: Rules) -> Shape:
    """Return the statement for the rows of a frame with these columns that are inserted."""
    stored = [name for name in names if name not in {rules.ttl_column, rules.delete_where, *rules.unstored}]
    columns = (*stored, rules.ttl_column) if rules.ttl_column else tuple(stored)
    return Shape(columns, has_ttl=rules.ttl_column is not None)


def _deletes(
    rows: pa.RecordBatch, clustering: tuple[str, ...], partition: tuple[str, ...]
) -> Iterator[tuple[Shape, pa.RecordBatch]]:
    """Yield the rows by the number of clustering columns before the first null."""
    there = [rows.column(name).is_valid().to_numpy(zero_copy_only=False) for name in clustering]
    leading = np.zeros(rows.num_rows, np.int64)
    going_on = np.ones(rows.num_rows, bool)
    for column in there:
        going_on &= column
        leading += going_on
    total = sum((column.astype(np.int64) for column in there), np.zeros(rows.num_rows, np.int64))
    if (gaps := np.flatnonzero(total != leading)).size:
        row = rows.slice(int(gaps[0]), 1).to_pylist()[0]
        raise PoisonRecord(f"a row that deletes has a null before the last of its clustering columns: {row}")
    for length in np.unique(leading):
        columns = (*partition, *clustering[: int(length)])
        yield Shape(columns, is_delete=True), rows.filter(pa.array(leading == length)).select(list(columns))
