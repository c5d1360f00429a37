"""The driver's half of the PostgreSQL sink: rows are staged by the tasks, and moved by the commit of their batch.

The table is in the database of the fence.  A reader sees the rows of a batch when its offsets are committed, and each
record's rows once, also in a table without a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fencepost.contract import DriverConfig, PostgresqlSink, Reason
from fencepost.errors import BadSpec, BatchFailed, DependencyDown
from fencepost.fence import FenceError
from fencepost.fence.patience import Patience
from fencepost.fence.postgresql.schema import name_of, quoted
from fencepost.fence.postgresql.staging import (
    Column,
    StagedRows,
    StagedTable,
    clear,
    columns_of,
    create,
    staged_table,
    tables_of,
)
from fencepost.fence.postgresql.table import PostgresqlFenceTable
from fencepost.sinks.interface import BatchToken, PurgeableSink, PurgeToken
from fencepost.sinks.postgresql.column_fit import problems
from fencepost.sinks.postgresql.staging_task import Access, StagingTask, unreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.types import StructType

    from fencepost.fence.tls import TlsMaterial

T = TypeVar("T")

COORDINATES: Final = ("topic", "partition", "offset")
_OF_RECORDS: Final = 'WHERE topic = %s AND partition = %s AND "offset" >= %s AND "offset" < %s'


class TableSink(PurgeableSink):
    """One declared sink, beside the fence; `check` creates its staging table."""

    def __init__(self, sink: PostgresqlSink, fences: PostgresqlFenceTable, pipeline: str, access: Access) -> None:
        self._sink = sink
        self._fences = fences
        self._session = fences.session
        self._pipeline = pipeline
        self._access = access
        self._target = f"{quoted(sink.schema)}.{quoted(sink.table)}"
        self._staged: StagedTable | None = None
        self._has_begun = False

    def check(self, schema: StructType) -> None:
        """Raise BadSpec naming every column that does not fit; then create the staging table. Raises DependencyDown."""
        with self._reached():
            table = self._columns()
            found = [*problems(schema, table)]
            if found:
                raise BadSpec(
                    f"sink {self._sink.name!r} ({self._sink.schema}.{self._sink.table}): {'; '.join(found)}",
                    reason=Reason.SINK_MISMATCH,
                    remedy="Make the transform's columns and the table agree.",
                )
            self._check_rights()
            by_name = {column.name: column for column in table}
            columns = [by_name[field.name] for field in schema.fields]
            staged = staged_table(
                self._fences.schema,
                self._pipeline,
                self._sink.name,
                target=self._target,
                columns=columns,
            )
            create(self._session, staged, self._fences.schema, columns)
        self._staged = staged
        self._fences.awaits_rows(staged)

    def task(self) -> StagingTask:
        """Return the task's half, after `check`."""
        return StagingTask(self._access, self._of_batches, self._sink.name)

    def begin(self, batch: BatchToken) -> None:
        """Delete what earlier attempts have staged, and once per run those of other columns. Raises DependencyDown."""
        others = () if self._has_begun else self._tables_of_other_columns()
        for name in (self._of_batches.name, *others):
            self._asked(partial(clear, self._session, name, batch.epoch))
        self._has_begun = True

    def finish(self, batch: BatchToken) -> None:
        """Let the commit of the batch move its rows."""
        self._fences.stage(StagedRows(self._of_batches, batch.epoch, batch.version, batch.rows))

    def count(self, offsets: Mapping[str, tuple[int, int]]) -> int:
        """Return how many rows the records have. Raises BadSpec where the table does not have their coordinates."""
        with self._reached():
            self._check_purgeable(self._columns())
        return sum(int(self._of_records("SELECT count(*) FROM", place)[0][0]) for place in _places(offsets))

    def purge(self, purge: PurgeToken) -> None:
        """Delete the rows, while the fence has the epoch and no driver. Raises BatchFailed otherwise, DriverError.

        What a replaced driver has staged never moves: its epoch is over.
        """
        with self._reached():
            self._check_purgeable(self._columns())
        fence = name_of(self._fences.schema, "fence")
        delete = (
            f"WITH held AS (SELECT 1 AS is_held FROM {fence}"
            " WHERE pipeline = %s AND epoch = %s AND driver IS NULL FOR SHARE),"
            f" gone AS (DELETE FROM {self._target} USING held {_OF_RECORDS}) SELECT count(*) FROM held"
        )
        for place in _places(purge.offsets):
            values = (self._pipeline, purge.epoch, *place)
            ((held,),) = self._asked(partial(self._ask, f"deleting from {self._target}", delete, values))
            if not held:
                raise BatchFailed(
                    f"sink {self._sink.name!r}: nothing is deleted: epoch {purge.epoch} is over, or has a driver",
                    reason=Reason.SINK_FAILED,
                )

    @property
    def _of_batches(self) -> StagedTable:
        if self._staged is None:
            raise RuntimeError(f"sink {self._sink.name!r}: its columns are known after `check`, which was not called")
        return self._staged

    def _columns(self) -> tuple[Column, ...]:
        """Return the table's columns. Raises BadSpec where it does not exist."""
        sink = self._sink
        found = columns_of(self._session, sink.schema, sink.table)
        if not found:
            raise BadSpec(
                f"sink {sink.name!r}: table {sink.schema}.{sink.table} does not exist",
                reason=Reason.SINK_NOT_FOUND,
                remedy="Create the table, or correct spec.sinks.",
            )
        return found

    def _check_rights(self) -> None:
        """Raise DependencyDown where the account may not insert: the commit would be refused."""
        select = "SELECT has_table_privilege(%s, 'INSERT'), current_user"
        ((may_insert, user),) = self._session.run("reading the rights on the table", select, (self._target,))
        if not may_insert:
            sink = self._sink
            raise DependencyDown(
                f"sink {sink.name!r}: user {user} must not insert into {sink.schema}.{sink.table}",
                reason=Reason.SINK_UNREACHABLE,
                remedy=f"GRANT INSERT ON {sink.schema}.{sink.table} TO the user of"
                " spec.checkpoint.postgresql.credentialsFrom.",
            )

    def _check_purgeable(self, table: tuple[Column, ...]) -> None:
        missing = [name for name in COORDINATES if name not in {column.name for column in table}]
        if missing:
            raise BadSpec(
                f"sink {self._sink.name!r}: the output of an offset cannot be found in table"
                f" {self._sink.schema}.{self._sink.table}: it has no column {missing[0]}",
                reason=Reason.SINK_INVALID,
                remedy="Set deleteOutput to false. In a table with topic, partition and offset it can be found.",
            )

    def _of_records(self, verb: str, place: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        doing = f"looking for rows in {self._sink.schema}.{self._sink.table}"
        return self._asked(partial(self._ask, doing, f"{verb} {self._target} {_OF_RECORDS}", place))

    def _ask(self, doing: str, statement: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return self._session.run(doing, statement, values, limit=self._access.patience)

    def _tables_of_other_columns(self) -> list[str]:
        """Return the staging tables that earlier runs had for other columns: empty ones stay until a deletion."""
        schema = self._fences.schema
        found = self._asked(lambda: tables_of(self._session, schema, self._pipeline, self._sink.name))
        return [name for name in (name_of(schema, quoted(one)) for one in found) if name != self._of_batches.name]

    def _asked(self, request: Callable[[], T]) -> T:
        with self._reached():
            return Patience(self._access.patience, longest=self._access.patience).ask(request)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except FenceError as error:
            raise unreachable(self._sink.name, error) from error


def _places(offsets: Mapping[str, tuple[int, int]]) -> Iterator[tuple[Any, ...]]:
    """Yield topic, partition, start and until."""
    for key, (start, until) in sorted(offsets.items()):
        topic, _, partition = key.rpartition("/")
        yield topic, int(partition), start, until


def open_beside(
    sink: PostgresqlSink,
    config: DriverConfig,
    fences: object,
    credentials: tuple[str, str] | None,
    tls: TlsMaterial | None,
) -> TableSink:
    """Return a declared sink beside the fences. Raises ValueError where these are not in PostgreSQL."""
    if config.postgresql is None or not isinstance(fences, PostgresqlFenceTable):
        raise ValueError(f"sink {sink.name!r} needs a fence in PostgreSQL")
    access = Access(
        endpoint=config.postgresql, credentials=credentials or ("", ""), tls=tls, patience=config.task_patience
    )
    return TableSink(sink, fences, config.pipeline, access)
