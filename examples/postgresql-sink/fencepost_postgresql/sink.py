"""Rows are staged by the tasks, and moved to the table together with the offsets, in one transaction of the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql

from fencepost import BadSpec, DependencyDown
from fencepost.errors import BatchFailed
from fencepost.sinks import BatchToken, PurgeableSink, PurgeToken, SinkContext

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

COORDINATES: Final = ("topic", "partition", "offset")
NO_TASK: Final = -1
"""The task of a row with a number of its own, which is the same in each task."""
OPTIONS: Final = frozenset({"dsn", "table"})
TABLES: Final = """
CREATE TABLE IF NOT EXISTS fencepost_epochs (
  pipeline text, sink text, epoch bigint NOT NULL, PRIMARY KEY (pipeline, sink));
CREATE TABLE IF NOT EXISTS fencepost_offsets (
  pipeline text, sink text, topic text, partition int, until bigint NOT NULL,
  PRIMARY KEY (pipeline, sink, topic, partition))
"""
STAGING: Final = """
CREATE TABLE IF NOT EXISTS {staging} (
  LIKE {table}, fencepost_pipeline text, fencepost_sink text, fencepost_epoch bigint, fencepost_version bigint,
  fencepost_topic text, fencepost_partition int, fencepost_offset bigint, fencepost_task int, fencepost_i bigint,
  PRIMARY KEY (fencepost_pipeline, fencepost_sink, fencepost_epoch, fencepost_version,
    fencepost_topic, fencepost_partition, fencepost_offset, fencepost_task, fencepost_i))
"""
MOVE: Final = """
INSERT INTO {table} ({columns})
SELECT {columns} FROM {staging} LEFT JOIN fencepost_offsets stored
  ON stored.pipeline = fencepost_pipeline AND stored.sink = fencepost_sink
  AND stored.topic = fencepost_topic AND stored.partition = fencepost_partition
WHERE fencepost_pipeline = %s AND fencepost_sink = %s AND fencepost_epoch = %s AND fencepost_version = %s
  AND fencepost_offset >= coalesce(stored.until, 0)
"""
ADVANCE: Final = """
INSERT INTO fencepost_offsets AS stored VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (pipeline, sink, topic, partition) DO UPDATE SET until = greatest(stored.until, excluded.until)
"""

COUNT: Final = """
SELECT count(*) FROM {table} WHERE topic = %s AND partition = %s AND "offset" >= %s AND "offset" < %s
"""
DELETE: Final = """
DELETE FROM {table} WHERE topic = %s AND partition = %s AND "offset" >= %s AND "offset" < %s
"""
SET_BACK: Final = """
UPDATE fencepost_offsets SET until = least(until, %s)
WHERE pipeline = %s AND sink = %s AND topic = %s AND partition = %s
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A table, and how to reach it."""

    dsn: str
    table: str
    columns: tuple[str, ...]
    sink: str

    def compose(self, query: str) -> sql.Composed:
        """Return a query with the names of the table, its columns and its staging table."""
        own = sql.SQL(", ").join(sql.SQL("{}.{}").format(self.staging, sql.Identifier(name)) for name in self.columns)
        plain = sql.SQL(", ").join(map(sql.Identifier, self.columns))
        head, _, tail = query.partition("SELECT {columns}")
        first = sql.SQL(head).format(table=sql.Identifier(self.table), staging=self.staging, columns=plain)
        if not tail:
            return first
        return first + sql.SQL("SELECT {columns}" + tail).format(staging=self.staging, columns=own)

    @property
    def staging(self) -> sql.Identifier:
        """The staging table, which is this sink's."""
        return sql.Identifier(f"fencepost_staging_{self.table}")

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Cursor[Any]]:
        """Open a connection for one transaction. Raises DependencyDown when PostgreSQL does not answer."""
        try:
            with psycopg.connect(self.dsn, connect_timeout=10) as connection, connection.cursor() as cursor:
                yield cursor
        except psycopg.OperationalError as error:
            raise DependencyDown(f"sink {self.sink!r}: PostgreSQL: {error}") from error


class PostgresqlSink(PurgeableSink):
    """The options are `dsn` and `table`; the table exists, and is written by one pipeline."""

    def __init__(self, options: Mapping[str, str], context: SinkContext) -> None:
        if options.keys() != OPTIONS:
            raise BadSpec(f"sink {context.name!r}: the options are dsn and table, not {', '.join(sorted(options))}")
        self._target = Target(dsn=options["dsn"], table=options["table"], columns=(), sink=context.name)
        with self._target.transaction() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext('fencepost'))")  # two at once would collide
            cursor.execute(
                "SELECT column_name FROM information_schema.columns"
                " WHERE table_schema = current_schema() AND table_name = %s ORDER BY ordinal_position",
                [options["table"]],
            )
            columns = tuple(row[0] for row in cursor.fetchall())
            if not columns:
                raise BadSpec(f"sink {context.name!r}: table {options['table']!r} does not exist")
            self._target = Target(dsn=options["dsn"], table=options["table"], columns=columns, sink=context.name)
            cursor.execute(TABLES)
            cursor.execute(self._target.compose(STAGING))

    def check(self, schema: StructType) -> None:
        """Raise BadSpec naming each column that is missing or not the table's; PostgreSQL checks the types."""
        found = {field.name: field.dataType.simpleString() for field in schema.fields}
        types = {"topic": "string", "partition": "int", "offset": "bigint"}
        wrong = [f"{name} must be {kind}" for name, kind in types.items() if found.get(name) != kind]
        extra = found.keys() - set(self._target.columns) - {*COORDINATES, "i"}
        wrong += [f"the table has no column {name}" for name in sorted(extra)]
        wrong += [f"{name} is missing" for name in self._target.columns if name not in found]
        if wrong:
            raise BadSpec(f"sink {self._target.sink!r} (table {self._target.table}): {'; '.join(wrong)}")

    def task(self) -> StagingTask:
        """Return the task's half."""
        return StagingTask(self._target)

    def begin(self, batch: BatchToken) -> None:
        """Fence older drivers, and drop what an earlier attempt has staged."""
        with self._target.transaction() as cursor:
            self._take(cursor, batch)

    def finish(self, batch: BatchToken) -> None:
        """Move the staged rows that are not stored yet, and the offsets, in one transaction."""
        place = [batch.pipeline, self._target.sink]
        with self._target.transaction() as cursor:
            self._hold(cursor, batch)
            cursor.execute(self._target.compose(MOVE), [*place, batch.epoch, batch.version])
            for key, (_, until) in sorted(batch.offsets.items()):
                topic, _, partition = key.rpartition("/")
                cursor.execute(ADVANCE, [*place, topic, int(partition), until])

    def count(self, offsets: Mapping[str, tuple[int, int]]) -> int:
        """Return how many rows the records have. Raises BadSpec where the table does not have their coordinates."""
        self._check_purgeable()
        with self._target.transaction() as cursor:
            return sum(_one(cursor, self._target.compose(COUNT), place) for place in _places(offsets))

    def purge(self, purge: PurgeToken) -> None:
        """Fence older drivers, delete the rows, and set the offsets back, in one transaction."""
        self._check_purgeable()
        owner = [purge.pipeline, self._target.sink]
        with self._target.transaction() as cursor:
            self._take(cursor, purge)
            for place in _places(purge.offsets):
                cursor.execute(self._target.compose(DELETE), place)
                topic, partition, start, _ = place
                cursor.execute(SET_BACK, [start, *owner, topic, partition])

    def _check_purgeable(self) -> None:
        if missing := [name for name in COORDINATES if name not in self._target.columns]:
            raise BadSpec(
                f"sink {self._target.sink!r}: the output of an offset cannot be found in table {self._target.table}:"
                f" it has no column {missing[0]}",
                remedy="Set deleteOutput to false. In a table with topic, partition and offset it can be found.",
            )

    def _take(self, cursor: psycopg.Cursor[Any], batch: BatchToken | PurgeToken) -> None:
        """Write the epoch, so that older drivers move nothing, and drop what an earlier attempt has staged."""
        owner = [batch.pipeline, self._target.sink]
        cursor.execute("INSERT INTO fencepost_epochs VALUES (%s, %s, 0) ON CONFLICT DO NOTHING", owner)
        self._hold(cursor, batch)
        cursor.execute(
            "UPDATE fencepost_epochs SET epoch = %s WHERE pipeline = %s AND sink = %s", [batch.epoch, *owner]
        )
        cursor.execute(
            self._target.compose("DELETE FROM {staging} WHERE fencepost_pipeline = %s AND fencepost_sink = %s"), owner
        )

    def _hold(self, cursor: psycopg.Cursor[Any], batch: BatchToken | PurgeToken) -> None:
        """Lock the pipeline's epoch until the transaction ends. Raises BatchFailed when a newer driver has it."""
        cursor.execute(
            "SELECT epoch FROM fencepost_epochs WHERE pipeline = %s AND sink = %s FOR UPDATE",
            [batch.pipeline, self._target.sink],
        )
        held = cursor.fetchone()
        if held is None or held[0] > batch.epoch:
            raise BatchFailed(
                f"sink {self._target.sink!r}: a driver of a later epoch writes, this one is {batch.epoch}"
            )


def _places(offsets: Mapping[str, tuple[int, int]]) -> Iterator[list[Any]]:
    """Yield topic, partition, start and until."""
    for key, (start, until) in sorted(offsets.items()):
        topic, _, partition = key.rpartition("/")
        yield [topic, int(partition), start, until]


def _one(cursor: psycopg.Cursor[Any], query: sql.Composed, values: list[Any]) -> int:
    found = cursor.execute(query, values).fetchone()
    return int(found[0]) if found is not None else 0


class _Places:
    """The keys of a task's rows: the record, and a number of the row among those of its record.

    The number is the column `i`.  Without it the task counts: its rows are staged in one transaction, so what a
    repeated task numbers in another order is either all there or not at all.  Another task may have rows of the same
    record, which is why the task's own number is part of such a key.
    """

    def __init__(self, task: int) -> None:
        self._task = task
        self._seen: Counter[tuple[Any, ...]] = Counter()

    def of(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return topic, partition, offset, task and number of the next row."""
        record = tuple(row[name] for name in COORDINATES)
        if row.get("i") is not None:
            return (*record, NO_TASK, row["i"])
        number = self._seen[record]
        self._seen[record] += 1
        return (*record, self._task, number)


def _task_number() -> int:
    """Return the number of this Spark task, which a repetition keeps; 0 outside of Spark."""
    from pyspark import TaskContext  # noqa: PLC0415 - an import of a second, in a worker only

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


@dataclass(frozen=True, slots=True)
class StagingTask:
    """Stages a task's rows in one transaction."""

    target: Target

    def write(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> Iterator[int]:
        """Insert into the staging table; rows that another attempt of the task has left there stay."""
        marks = [batch.pipeline, self.target.sink, batch.epoch, batch.version]
        names = sql.SQL(", ").join(map(sql.Identifier, self.target.columns))
        values = sql.SQL(", ").join(sql.Placeholder() * (len(self.target.columns) + len(marks) + 5))
        insert = sql.SQL(
            "INSERT INTO {} ({}, fencepost_pipeline, fencepost_sink, fencepost_epoch, fencepost_version,"
            " fencepost_topic, fencepost_partition, fencepost_offset, fencepost_task, fencepost_i)"
            " VALUES ({}) ON CONFLICT DO NOTHING"
        ).format(self.target.staging, names, values)
        places = _Places(_task_number())
        with self.target.transaction() as cursor:
            for rows in batches:
                if batch.is_warm_up:
                    continue
                found = [
                    [*(row[name] for name in self.target.columns), *marks, *places.of(row)] for row in rows.to_pylist()
                ]
                cursor.executemany(insert, found)
                yield len(found)
