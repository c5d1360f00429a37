"""Rows in a table of a SQLite file: the sinks of a local run.

A row has the write timestamp of its batch, as in Cassandra: an older write does not replace a newer row, and where an
insert and a delete have the same timestamp, the delete wins.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from fencepost.contract import Reason, SqliteSink
from fencepost.errors import BadSpec, DependencyDown, PoisonRecord
from fencepost.fence.sqlite.database import connect, transaction
from fencepost.sinks.interface import BatchToken, Sink

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

WRITTEN_AT: Final = "fencepost_written_at"
"""The column with the write timestamp, in µs."""
COORDINATES: Final = ("topic", "partition", "offset")
_INDEX: Final = "i"
"""Numbers the rows of one record."""
_TYPES: Final = {
    "INTEGER": ("tinyint", "smallint", "int", "bigint", "boolean"),
    "REAL": ("float", "double"),
    "BLOB": ("binary",),
}
"""SQLite's types and the Spark types that they take; each other one is stored as TEXT."""
DELETIONS: Final = """
CREATE TABLE IF NOT EXISTS fencepost_deletions (
  "table" TEXT, key TEXT, at INTEGER NOT NULL, PRIMARY KEY ("table", key)
) STRICT, WITHOUT ROWID
"""
"""What was deleted: the JSON of a key, or of the beginning of keys."""


class TableSink(Sink):
    """One declared sink; `check` creates its table, and adds the columns that an earlier frame did not have."""

    def __init__(self, sink: SqliteSink) -> None:
        self._sink = sink
        self._key: tuple[str, ...] | None = sink.key

    def check(self, schema: StructType) -> None:
        """Raise BadSpec for a frame without the key, and for a table of another shape."""
        sink = self._sink
        columns = {each.name: _type(each.dataType.simpleString()) for each in schema.fields}
        if self._key is None:
            self._key = self._coordinates(columns)
        missing = [name for name in (*self._key, *filter(None, [sink.delete_where])) if name not in columns]
        stored = {name: kind for name, kind in columns.items() if name not in _unstored(sink)}
        problems = [f"column {name!r} is missing" for name in missing]
        if not problems:
            with _reached(sink), closing(connect(sink.path)) as database, transaction(database):
                problems = list(_adapted(database, sink.table, stored, self._key))
        if problems:
            raise BadSpec(
                f"sink {sink.name!r} (table {sink.table} of {sink.path}): {'; '.join(problems)}",
                reason=Reason.SINK_MISMATCH,
                remedy="Correct the transform's columns or --key, or start over with --fresh.",
            )

    def task(self) -> TableTask:
        """Return the task's half, after `check`."""
        if self._key is None:
            raise RuntimeError(f"sink {self._sink.name!r}: its key is known after `check`, which was not called")
        return TableTask(self._sink, self._key)

    def _coordinates(self, columns: Iterable[str]) -> tuple[str, ...]:
        """Return the record's place as the key."""
        found = set(columns)
        if not found.issuperset(COORDINATES):
            raise BadSpec(
                f"sink {self._sink.name!r}: its primary key is not known, and its rows have no topic, partition and"
                " offset",
                reason=Reason.SINK_MISMATCH,
                remedy=f"Name the key's columns: --key {self._sink.name}=COLUMN,COLUMN.",
            )
        return (*COORDINATES, _INDEX) if _INDEX in found else COORDINATES


@dataclass(frozen=True, slots=True)
class TableTask:
    """Writes each Arrow batch in a transaction."""

    sink: SqliteSink
    key: tuple[str, ...]

    def write(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> Iterator[int]:
        """Write all rows. Raises PoisonRecord for a row without its key, DependencyDown where the file is locked."""
        if batch.is_warm_up:
            for _ in batches:
                pass
            return
        with _reached(self.sink), closing(connect(self.sink.path)) as database:
            for rows in batches:
                inserted, deleted = self._parted(rows)
                try:
                    with transaction(database):
                        self._insert(database, inserted, batch.token)
                        self._delete(database, deleted, batch.token)
                except sqlite3.IntegrityError as error:
                    raise PoisonRecord(f"a row does not fit table {self.sink.table}: {error}") from error
                yield rows.num_rows

    def _parted(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return the rows that are inserted, and those that delete."""
        if self.sink.delete_where is None:
            return rows, rows.slice(0, 0)
        marked = pc.fill_null(rows.column(self.sink.delete_where), False)
        return rows.filter(pc.invert(marked)), rows.filter(marked)

    def _insert(self, database: sqlite3.Connection, rows: pa.RecordBatch, token: int) -> None:
        names = [name for name in rows.schema.names if name not in _unstored(self.sink)]
        values: Iterable[tuple[Any, ...]] = zip(*(_values(rows.column(name)) for name in names), strict=True)
        if self.sink.delete_where is not None:
            places = [names.index(name) for name in self.key]
            values = [row for row in values if not self._is_deleted(database, [row[place] for place in places], token)]
        database.executemany(self._upsert(names), ((*row, token) for row in values))

    def _upsert(self, names: Sequence[str]) -> str:
        columns = [*names, WRITTEN_AT]
        changed = ", ".join(f"{_quoted(each)} = excluded.{_quoted(each)}" for each in columns if each not in self.key)
        return (
            f"INSERT INTO {_quoted(self.sink.table)} ({', '.join(map(_quoted, columns))})"
            f" VALUES ({', '.join('?' * len(columns))})"
            f" ON CONFLICT ({', '.join(map(_quoted, self.key))}) DO UPDATE SET {changed}"
            f" WHERE excluded.{WRITTEN_AT} >= {_quoted(self.sink.table)}.{WRITTEN_AT}"
        )

    def _delete(self, database: sqlite3.Connection, rows: pa.RecordBatch, token: int) -> None:
        """Delete by the key; nulls at its end stand for all rows that have what is before them."""
        for row in zip(*(_values(rows.column(name)) for name in self.key), strict=True):
            beginning = row[: row.index(None)] if None in row else row
            if not beginning or any(value is not None for value in row[len(beginning) :]):
                raise PoisonRecord(f"a row that deletes has a null before the last columns of its key: {row}")
            place = " AND ".join(f"{_quoted(name)} = ?" for name in self.key[: len(beginning)])
            table = _quoted(self.sink.table)
            database.execute(f"DELETE FROM {table} WHERE {place} AND {WRITTEN_AT} <= ?", (*beginning, token))
            database.execute(
                'INSERT INTO fencepost_deletions ("table", key, at) VALUES (?, ?, ?)'
                " ON CONFLICT DO UPDATE SET at = max(at, excluded.at)",
                (self.sink.table, _text(list(beginning)), token),
            )

    def _is_deleted(self, database: sqlite3.Connection, key: list[Any], token: int) -> bool:
        beginnings = [_text(key[:length]) for length in range(1, len(key) + 1)]
        query = (
            'SELECT 1 FROM fencepost_deletions WHERE "table" = ? AND at >= ?'
            f" AND key IN ({', '.join('?' * len(beginnings))}) LIMIT 1"
        )
        return database.execute(query, (self.sink.table, token, *beginnings)).fetchone() is not None


def _adapted(database: sqlite3.Connection, table: str, columns: dict[str, str], key: tuple[str, ...]) -> Iterator[str]:
    """Create the table or add columns to it; yield what of it does not fit."""
    database.execute(DELETIONS)
    known = {
        name: (kind, place) for _, name, kind, _, _, place in database.execute(f"PRAGMA table_info({_quoted(table)})")
    }
    if not known:
        declared = [f"{_quoted(name)} {kind}{' NOT NULL' if name in key else ''}" for name, kind in columns.items()]
        primary = ", ".join(map(_quoted, key))
        database.execute(
            f"CREATE TABLE {_quoted(table)} ({', '.join(declared)}, {WRITTEN_AT} INTEGER NOT NULL,"
            f" PRIMARY KEY ({primary})) STRICT, WITHOUT ROWID"
        )
        return
    existing = tuple(sorted((name for name, (_, place) in known.items() if place), key=lambda name: known[name][1]))
    if existing != key:
        yield f"its key is {', '.join(existing)}, and not {', '.join(key)}"
    for name, kind in columns.items():
        if name not in known:
            database.execute(f"ALTER TABLE {_quoted(table)} ADD COLUMN {_quoted(name)} {kind}")
        elif known[name][0] != kind:
            yield f"column {name!r} is {known[name][0]}, and not {kind}"


@contextmanager
def _reached(sink: SqliteSink) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise DependencyDown(
            f"sink {sink.name!r}: {sink.path}: {error}",
            reason=Reason.SINK_UNREACHABLE,
            remedy="End what else writes to the file.",
        ) from error


def _unstored(sink: SqliteSink) -> set[str | None]:
    return {sink.delete_where, sink.ttl_column}


def _type(spark: str) -> str:
    return next((kind for kind, accepted in _TYPES.items() if spark in accepted), "TEXT")


def _values(column: pa.Array) -> list[Any]:
    """Return a column as SQLite stores it: times in UTC to the millisecond as in Cassandra, lists and maps as JSON."""
    kind = column.type
    if pa.types.is_nested(kind):
        return [None if value is None else _text(value) for value in column.to_pylist()]
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us")).cast(pa.timestamp("ms"), safe=False).cast(pa.string())
    elif pa.types.is_date(kind) or pa.types.is_decimal(kind):
        column = column.cast(pa.string())
    return column.to_pylist()  # type: ignore[no-any-return]


def _text(value: object) -> str:
    return json.dumps(value, default=_plain, ensure_ascii=False)


def _plain(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
