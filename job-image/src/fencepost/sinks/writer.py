"""The worker's half of the Cassandra sink: Arrow batches in, unlogged batches of one partition out.

Rows are written at the batch's own timestamp, so whoever writes them again (a repeated task, a successor, a zombie)
leaves the table the same: the highest timestamp wins whatever arrives last.  Nulls are written as nulls: an earlier
attempt by other code may have left a value there, and UNSET would keep it.  Leave a column out of the frame to leave
it alone in the table.

Source of the shape: `execute_concurrent` wrote 4,400 rows/s, 500-row batches of one partition, four in flight,
29,000 to 65,000 (one node, 2 cores).  Cassandra's limits on batch size hold for batches of several partitions only.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from cassandra import AuthenticationFailed, InvalidRequest, Unauthorized
from cassandra.cluster import ResponseFuture, Session
from cassandra.query import BatchStatement, BatchType, BoundStatement

from fencepost.context import WARM_TOKEN
from fencepost.contract import CassandraEndpoint, Reason
from fencepost.errors import BadSpec, DependencyDown, DriverError, PoisonRecord, as_worker_error
from fencepost.fence import FenceCredentialsRejected, FenceUnavailable
from fencepost.fence.cassandra import UNANSWERED, connect
from fencepost.sinks.types import Encoded, Encoder, encoder

BATCH_ROWS: Final = 200
BATCH_BYTES: Final = 256 * 1024
IN_FLIGHT: Final = 8
"""Requests under way in one task."""
KEY_BYTES: Final = 65_535
"""Longest value of a partition key's column: its length has two bytes in Cassandra and in the driver's routing."""
REQUEST_TIMEOUT: Final = 12.0
"""Seconds for one request."""
PATIENCE: Final = 120.0
"""Seconds for which one request is repeated: longer than a node's restart."""

RESULT_SCHEMA: Final = pa.schema([("sink", pa.string()), ("rows", pa.int64())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A table, and how to reach it. The password travels in the task's closure, over Spark's encrypted RPC."""

    sink: str
    cassandra: CassandraEndpoint
    credentials: tuple[str, str] | None
    consistency: str
    keyspace: str
    table: str
    partition_key: tuple[str, ...]


_sessions: dict[tuple[CassandraEndpoint, tuple[str, str] | None, str], Session] = {}
_statements: dict[tuple[Target, tuple[str, ...]], _Insert] = {}


def write(target: Target, timestamp: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write all rows at `timestamp` (µs) and yield one row of RESULT_SCHEMA.

    At WARM_TOKEN it connects and prepares, as far as there are rows to tell the columns, and writes nothing.
    Raises WorkerError: of BadSpec for a column that does not fit, PoisonRecord for a key that is null or a value that
    does not fit, DependencyDown when Cassandra does not answer, or refuses the user, for PATIENCE seconds.
    """
    try:
        session = _session(target)
        requests = _Requests(session)
        rows = 0
        for batch in batches:
            if batch.num_rows:
                insert = _insert(session, target, tuple(batch.schema.names))
                if timestamp == WARM_TOKEN:
                    continue
                rows += batch.num_rows
                for request in insert.requests(batch, timestamp):
                    requests.send(insert, request)
        requests.finish()
    except DriverError as error:
        raise as_worker_error(error) from error
    yield pa.RecordBatch.from_arrays([pa.array([target.sink]), pa.array([rows], pa.int64())], schema=RESULT_SCHEMA)


def _session(target: Target) -> Session:
    """Return this worker's session; it outlives the task."""
    key = (target.cassandra, target.credentials, target.consistency)
    if key not in _sessions:
        deadline = time.monotonic() + PATIENCE
        while key not in _sessions:
            try:
                _sessions[key] = connect(
                    target.cassandra,
                    credentials=target.credentials,
                    request_timeout=REQUEST_TIMEOUT,
                    consistency=target.consistency,
                )
            except FenceCredentialsRejected as error:
                raise DependencyDown(str(error), reason=Reason.CASSANDRA_CREDENTIALS_REJECTED) from error
            except FenceUnavailable as error:
                if time.monotonic() > deadline:
                    raise DependencyDown(str(error), reason=Reason.CASSANDRA_UNREACHABLE) from error
                time.sleep(1.0)
    return _sessions[key]


@dataclass(frozen=True, slots=True)
class _Insert:
    """A prepared INSERT for one set of columns, with an encoder a column."""

    prepared: Any
    columns: tuple[str, ...]
    key: tuple[int, ...]
    """Positions of the partition key's columns."""
    primary: frozenset[str]
    encoders: tuple[Encoder, ...]
    table: str

    def requests(self, batch: pa.RecordBatch, timestamp: int) -> Iterator[BatchStatement | BoundStatement]:
        """Yield the batch's rows as requests of one partition each, bounded in rows and bytes."""
        stamp = timestamp.to_bytes(8, "big", signed=True)
        columns = [self._encode(name, one, batch.column(index)) for index, (name, one) in enumerate(self._pairs())]
        self._check_keys(columns)
        rows = list(zip(*columns, [stamp] * batch.num_rows, strict=True))
        for group in self._groups(rows):
            yield from self._bounded(group)

    def _pairs(self) -> Iterator[tuple[str, Encoder]]:
        return zip(self.columns, self.encoders, strict=True)

    def _encode(self, name: str, one: Encoder, column: pa.Array) -> Encoded:
        if name in self.primary and column.null_count:
            raise PoisonRecord(
                f"{self.table}.{name} is part of the primary key, and null in {column.null_count} of {len(column)} rows"
            )
        try:
            return one(column)
        except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise PoisonRecord(f"{self.table}.{name}: a value of type {column.type} does not fit: {error}") from error

    def _check_keys(self, columns: Sequence[Encoded]) -> None:
        for position in self.key:
            longest = max([len(value) for value in columns[position] if value is not None], default=0)
            if longest > KEY_BYTES:
                raise PoisonRecord(
                    f"{self.table}.{self.columns[position]} is part of the partition key, and takes {longest} bytes in"
                    f" a row; Cassandra takes {KEY_BYTES}"
                )

    def _groups(self, rows: Sequence[tuple[bytes | None, ...]]) -> Iterable[list[tuple[bytes | None, ...]]]:
        groups: dict[Any, list[tuple[bytes | None, ...]]] = {}
        if len(self.key) == 1:
            position = self.key[0]
            for row in rows:
                groups.setdefault(row[position], []).append(row)
        else:
            for row in rows:
                groups.setdefault(tuple([row[position] for position in self.key]), []).append(row)
        return groups.values()

    def _bounded(self, rows: Sequence[tuple[bytes | None, ...]]) -> Iterator[BatchStatement | BoundStatement]:
        if len(rows) == 1:
            yield self._bound(rows[0])
            return
        batch, size = None, 0
        for row in rows:
            length = sum([len(value) for value in row if value is not None])
            if batch is None or len(batch) >= BATCH_ROWS or size + length > BATCH_BYTES:
                if batch is not None:
                    yield batch
                batch, size, bound = BatchStatement(BatchType.UNLOGGED), 0, self._bound(row)
            bound.values = row  # one object for all rows of a batch: it keeps the values, not the statement
            batch.add(bound)
            size += length
        if batch is not None:
            yield batch

    def _bound(self, row: tuple[bytes | None, ...]) -> BoundStatement:
        bound = BoundStatement(self.prepared)
        bound.values = row
        return bound


def _insert(session: Session, target: Target, columns: tuple[str, ...]) -> _Insert:
    """Prepare once a worker, table and set of columns."""
    key = (target, columns)
    if key not in _statements:
        quoted = f'"{target.keyspace}"."{target.table}"'
        names = ", ".join(f'"{name}"' for name in columns)
        text = f"INSERT INTO {quoted} ({names}) VALUES ({', '.join('?' * len(columns))}) USING TIMESTAMP ?"  # noqa: S608
        table = f"{target.keyspace}.{target.table}"
        prepared = _prepare(session, table, text)
        known = session.cluster.metadata.keyspaces[target.keyspace].tables[target.table]
        version = session.cluster.protocol_version
        _statements[key] = _Insert(
            prepared=prepared,
            columns=columns,
            key=tuple(columns.index(name) for name in target.partition_key),
            primary=frozenset(column.name for column in known.primary_key),
            encoders=tuple(encoder(column.type, version) for column in prepared.column_metadata[: len(columns)]),
            table=table,
        )
    return _statements[key]


def _prepare(session: Session, table: str, text: str) -> Any:  # noqa: ANN401 - the library is untyped
    """Return the prepared statement. Raises BadSpec when it does not fit the table as it is now, DependencyDown."""
    patience = _Patience(table)
    while True:
        try:
            return session.prepare(text)
        except InvalidRequest as error:
            raise BadSpec(f"{table}: {error}", reason=Reason.SINK_INVALID) from error
        except UNANSWERED as error:
            patience.pause_or_raise(error)


class _Patience:
    """Doubling pauses between the tries of one request, until PATIENCE ends."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._deadline = time.monotonic() + PATIENCE
        self._pause = 0.1

    def pause_or_raise(self, error: Exception) -> None:
        """Wait before the next try. Raises DependencyDown when there is no time for it."""
        if time.monotonic() + self._pause > self._deadline:
            raise self._given_up(error) from error
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, 2.0)

    def _given_up(self, error: Exception) -> DependencyDown:
        if isinstance(error, Unauthorized):
            # Not at once: Cassandra says so too while no replica of its own permissions answers.
            return DependencyDown(
                f"{self._table}: {error}",
                reason=Reason.CASSANDRA_CREDENTIALS_REJECTED,
                remedy=f"GRANT MODIFY ON {self._table} to the user of spec.checkpoint.cassandra.credentialsFrom.",
            )
        return DependencyDown(
            f"{self._table} took no writes for {PATIENCE:.0f} s: {error}", reason=Reason.CASSANDRA_UNREACHABLE
        )


class _Requests:
    """Requests under way, at most IN_FLIGHT; a failed one is repeated: its rows carry their timestamp."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._under_way: deque[tuple[ResponseFuture, _Insert, Any]] = deque()

    def send(self, insert: _Insert, request: BatchStatement | BoundStatement) -> None:
        """Start a request, having waited for the oldest when there are enough."""
        if len(self._under_way) >= IN_FLIGHT:
            self._settle(*self._under_way.popleft())
        self._under_way.append((self._session.execute_async(request), insert, request))

    def finish(self) -> None:
        """Wait for all."""
        while self._under_way:
            self._settle(*self._under_way.popleft())

    def _settle(self, future: ResponseFuture, insert: _Insert, request: BatchStatement | BoundStatement) -> None:
        patience = _Patience(insert.table)
        while True:
            try:
                future.result()
                return
            except InvalidRequest as error:
                # The table or the row: only the former makes preparing the same statement fail as well.
                _prepare(self._session, insert.table, insert.prepared.query_string)
                raise PoisonRecord(f"{insert.table} refuses the values of a row: {error}") from error
            except AuthenticationFailed as error:
                raise DependencyDown(
                    f"{insert.table}: {error}", reason=Reason.CASSANDRA_CREDENTIALS_REJECTED
                ) from error
            except UNANSWERED as error:
                patience.pause_or_raise(error)
                future = self._session.execute_async(request)
