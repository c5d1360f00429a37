"""A sink of another package, on a real database: rows by their coordinates, each with the token that wrote it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fencepost.errors import BadSpec, BatchFailed
from fencepost.sinks import BatchToken, PurgeableSink, PurgeToken, SinkContext

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

TYPES = {"topic": "string", "partition": "int", "offset": "bigint", "value": "string"}
TABLE = (
    "CREATE TABLE IF NOT EXISTS rows (topic, partition, offset, value, token, PRIMARY KEY (topic, partition, offset))"
)
UPSERT = (
    "INSERT INTO rows VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value, token = excluded.token"
    " WHERE excluded.token >= token"
)


class SqliteSink(PurgeableSink):
    """The option `path` names the database."""

    def __init__(self, options: Mapping[str, str], context: SinkContext) -> None:
        if "path" not in options:
            raise BadSpec(f"sink {context.name!r}: the option path is missing")
        self._path = options["path"]
        with closing(sqlite3.connect(self._path)) as database:
            database.execute(TABLE)
            database.execute("CREATE TABLE IF NOT EXISTS purges (token)")

    def check(self, schema: StructType) -> None:
        found = {field.name: field.dataType.simpleString() for field in schema.fields}
        wrong = [name for name in sorted({*found, *TYPES}) if found.get(name) != TYPES.get(name)]
        if wrong:
            raise BadSpec(f"these columns do not fit: {', '.join(wrong)}")

    def task(self) -> SqliteTask:
        return SqliteTask(self._path)

    def count(self, offsets: Mapping[str, tuple[int, int]]) -> int:
        with closing(sqlite3.connect(self._path)) as database:
            query = f"SELECT count(*) FROM rows {PLACE}"  # noqa: S608
            return sum(int(database.execute(query, place).fetchone()[0]) for place in places(offsets))

    def purge(self, purge: PurgeToken) -> None:
        with closing(sqlite3.connect(self._path)) as database, database:
            database.execute("INSERT INTO purges VALUES (?)", (purge.token,))
            for place in places(purge.offsets):
                database.execute(f"DELETE FROM rows {PLACE}", place)  # noqa: S608


PLACE = "WHERE topic = ? AND partition = ? AND offset >= ? AND offset < ?"


def places(offsets: Mapping[str, tuple[int, int]]) -> list[tuple[str, int, int, int]]:
    split = ((key.rpartition("/"), bounds) for key, bounds in offsets.items())
    return [(topic, int(partition), *bounds) for (topic, _, partition), bounds in split]


@dataclass(frozen=True)
class SqliteTask:
    """Writes a task's rows in one transaction."""

    path: str

    def write(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> Iterator[int]:
        with closing(sqlite3.connect(self.path)) as database, database:
            (purged,) = database.execute("SELECT max(token) FROM purges").fetchone()
            if not batch.is_warm_up and purged is not None and batch.token < purged:
                raise BatchFailed("a driver that was replaced before a purge")
            for rows in batches:
                if batch.is_warm_up:
                    continue
                found = [tuple(row[name] for name in TYPES) for row in rows.to_pylist()]
                database.executemany(UPSERT, [(*row, batch.token) for row in found])
                yield len(found)
