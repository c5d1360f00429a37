"""A sink of another package, on a real database: rows by their coordinates, each with the token that wrote it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fencepost.errors import BadSpec
from fencepost.sinks import BatchToken, Sink, SinkContext

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


class SqliteSink(Sink):
    """The option `path` names the database."""

    def __init__(self, options: Mapping[str, str], context: SinkContext) -> None:
        if "path" not in options:
            raise BadSpec(f"sink {context.name!r}: the option path is missing")
        self._path = options["path"]
        with closing(sqlite3.connect(self._path)) as database:
            database.execute(TABLE)

    def check(self, schema: StructType) -> None:
        found = {field.name: field.dataType.simpleString() for field in schema.fields}
        wrong = [name for name in sorted({*found, *TYPES}) if found.get(name) != TYPES.get(name)]
        if wrong:
            raise BadSpec(f"these columns do not fit: {', '.join(wrong)}")

    def task(self) -> SqliteTask:
        return SqliteTask(self._path)


@dataclass(frozen=True)
class SqliteTask:
    """Writes a task's rows in one transaction."""

    path: str

    def write(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> Iterator[int]:
        with closing(sqlite3.connect(self.path)) as database, database:
            for rows in batches:
                if batch.is_warm_up:
                    continue
                found = [tuple(row[name] for name in TYPES) for row in rows.to_pylist()]
                database.executemany(UPSERT, [(*row, batch.token) for row in found])
                yield len(found)
