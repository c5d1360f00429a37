"""The task's half of the PostgreSQL sink: stages the rows of a Spark task in one transaction.

A Python worker keeps the connection of its last task for the next one: a login costs the server a process.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
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
LONGEST_IDLE: Final = 60.0
"""Seconds after which a kept connection is not used again: firewalls forget one in minutes, without a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How a task connects; `patience` is how many seconds it waits for the server."""

    endpoint: PostgresqlEndpoint
    credentials: tuple[str, str]
    tls: TlsMaterial | None
    patience: float


@dataclass(frozen=True, slots=True)
class _Kept:
    """A connection without a task, of the process `pid`, since the time `since` of the monotonic clock."""

    access: Access
    connection: Connection
    pid: int
    since: float


_kept: Final = list[_Kept]()
"""At most one: all PostgreSQL sinks of a pipeline have the same access."""


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
        connection = _taken(access) or Patience(access.patience, longest=access.patience).ask(session.connect)
        try:
            yield connection
        except BaseException:  # also when Spark ends the task: what is left of this one must not reach the next one
            connection.close()
            raise
        _keep(access, connection)

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


def _taken(access: Access) -> Connection | None:
    """Return the kept connection if it still answers. Others are closed, but those of a process that forked this."""
    try:
        kept = _kept.pop()
    except IndexError:
        return None
    if kept.pid != os.getpid():
        return None
    if kept.access == access and time.monotonic() - kept.since < LONGEST_IDLE:
        with suppress(psycopg.Error, OSError):
            kept.connection.execute("SELECT 1")
            return kept.connection
    kept.connection.close()
    return None


def _keep(access: Access, connection: Connection) -> None:
    """Keep a connection for the next task, unless another thread's is kept."""
    if _kept:
        connection.close()
    else:
        _kept.append(_Kept(access, connection, os.getpid(), time.monotonic()))


def unreachable(sink: str, error: Exception) -> DependencyDown:
    """Return the error for a server that does not answer, or refuses the account."""
    text = " ".join(str(error).split()) or type(error).__name__
    return DependencyDown(f"sink {sink!r}: {text}", reason=Reason.SINK_UNREACHABLE)


def _task_number() -> int:
    """Return the number of this Spark task, which a repetition keeps; 0 outside of Spark."""
    pyspark = sys.modules.get("pyspark")
    task = None if pyspark is None else pyspark.TaskContext.get()
    return 0 if task is None else int(task.partitionId())
