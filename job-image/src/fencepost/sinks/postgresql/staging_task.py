"""The task's half of the PostgreSQL sink: stages the rows of a Spark task in one transaction."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import psycopg

from fencepost.contract import PostgresqlEndpoint, Reason
from fencepost.errors import DependencyDown, PoisonRecord
from fencepost.fence import FenceError
from fencepost.fence.patience import Patience
from fencepost.fence.postgresql.errors import refuses_a_row
from fencepost.fence.postgresql.session import Connection, Session
from fencepost.fence.postgresql.staging import StagedTable
from fencepost.fence.tls import TlsMaterial
from fencepost.sinks.interface import BatchToken

if TYPE_CHECKING:
    import pyarrow as pa

_ATTEMPTS: Final = 62
"""Bits of an attempt's number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How a task connects; `patience` is how many seconds it waits for the server."""

    endpoint: PostgresqlEndpoint
    credentials: tuple[str, str]
    tls: TlsMaterial | None
    patience: float


@dataclass(frozen=True, slots=True)
class StagingTask:
    """Stages rows for the sink of this name."""

    access: Access
    table: StagedTable
    sink: str

    def write(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> Iterator[int]:
        """Stage all rows, and none in a warm-up.

        Raises PoisonRecord for a row that the table refuses, DependencyDown where the server does not answer.
        """
        marks = (batch.epoch, batch.version, _task_number(), secrets.randbits(_ATTEMPTS))
        with (
            self._translated(),
            self._connected() as connection,
            connection.transaction(force_rollback=batch.is_warm_up),
            connection.cursor().copy(self.table.copied.encode()) as copy,
        ):
            for rows in batches:
                if rows.num_rows:
                    for values in zip(*self._columns(rows), strict=True):
                        copy.write_row((*values, *marks))
                yield rows.num_rows

    def _columns(self, rows: pa.RecordBatch) -> Iterator[list[Any]]:
        for name in self.table.columns:
            try:
                yield rows.column(name).to_pylist()
            except (ValueError, OverflowError) as error:  # a moment that Python's datetime does not have
                raise PoisonRecord(f"sink {self.sink!r}: column {name!r}: {error}") from error

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        access = self.access
        session = Session(
            access.endpoint, credentials=access.credentials, tls=access.tls, request_timeout=access.patience
        )
        connection = Patience(access.patience, longest=access.patience).ask(session.connect)
        try:
            yield connection
        finally:
            connection.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except FenceError as error:
            raise unreachable(self.sink, error) from error
        except psycopg.Error as error:
            if refuses_a_row(error):
                raise PoisonRecord(f"sink {self.sink!r}: {' '.join(str(error).split())}") from error
            raise unreachable(self.sink, error) from error


def unreachable(sink: str, error: Exception) -> DependencyDown:
    """Return the error for a server that does not answer, or refuses the account."""
    text = " ".join(str(error).split()) or type(error).__name__
    return DependencyDown(f"sink {sink!r}: {text}", reason=Reason.SINK_UNREACHABLE)


def _task_number() -> int:
    """Return the number of this Spark task, which a repetition keeps; 0 outside of Spark."""
    pyspark = sys.modules.get("pyspark")
    task = None if pyspark is None else pyspark.TaskContext.get()
    return 0 if task is None else int(task.partitionId())
