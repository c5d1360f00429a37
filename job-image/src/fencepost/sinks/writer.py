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

import numpy as np
import pyarrow as pa
from cassandra import AuthenticationFailed, InvalidRequest, Unauthorized
from cassandra.cluster import ResponseFuture, Session
from cassandra.query import BatchStatement, BatchType, BoundStatement

from fencepost.context import WARM_TOKEN
from fencepost.contract import LONGEST_REQUEST, CassandraEndpoint, Reason
from fencepost.errors import BadSpec, DependencyDown, DriverError, PoisonRecord, as_worker_error
from fencepost.fence import FenceCredentialsRejected, FenceUnavailable
from fencepost.fence.cassandra import UNANSWERED, connect
from fencepost.sinks.types import Encoded, Encoder, NullInCollection, encoder

BATCH_ROWS: Final = 200
BATCH_BYTES: Final = 256 * 1024
IN_FLIGHT: Final = 8
"""Requests in flight in one task."""
KEY_BYTES: Final = 65_535
"""Longest value of a partition key's column: its length has two bytes in Cassandra and in the driver's routing."""
REQUEST_TIMEOUT: Final = LONGEST_REQUEST
"""Seconds for one request."""
SOURCE_COLUMNS: Final = ("topic", "partition", "offset")
"""Columns of the author's input; a message about a row gives those that the frame keeps under these names."""
SHOWN: Final = 100
"""Characters of one value in a message."""
NULL_REMEDY: Final = (
    "Remove the nulls in the transform, for example with array_compact or map_filter, or drop such records."
)
MISFITS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)
"""What an encoder raises for a value that does not fit."""

REPORT_INTERVAL: Final = 2.0
"""Seconds between two reports of a task's rows."""
FILLER: Final = bytes(65_536)
"""As large as a Python worker's output buffer (spark.buffer.size), so that a report leaves it at once."""
RESULT_SCHEMA: Final = pa.schema([("sink", pa.string()), ("rows", pa.int64()), ("filler", pa.binary())])
RESULT_COLUMNS: Final = "sink string, rows long, filler binary"
"""RESULT_SCHEMA as Spark's DDL."""


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
    patience: float
    """Seconds for which one request is repeated."""


_sessions: dict[tuple[CassandraEndpoint, tuple[str, str] | None, str], Session] = {}
_statements: dict[tuple[Target, tuple[str, ...]], _Insert] = {}


def write(target: Target, timestamp: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write all rows at `timestamp` (µs); yield rows of RESULT_SCHEMA whose `rows` add up to what is written.

    At WARM_TOKEN it connects and prepares, as far as there are rows to tell the columns, and writes nothing.
    Raises WorkerError: of BadSpec for a column that does not fit, PoisonRecord for a key that is null or a value that
    does not fit (the message names the row), DependencyDown when Cassandra does not answer, or refuses the user, for
    `target.patience` seconds.
    """
    try:
        session = _session(target)
        requests = _Requests(session)
        counter = _Counter(target.sink)
        for batch in batches:
            if batch.num_rows:
                insert = _insert(session, target, tuple(batch.schema.names))
                if timestamp == WARM_TOKEN:
                    continue
                for request in insert.requests(batch, timestamp):
                    requests.send(request)
                    counter.rows += len(request.indices)
                    if counter.is_due():
                        yield counter.report(FILLER)
        requests.finish()
    except DriverError as error:
        raise as_worker_error(error) from error
    yield counter.report()


class _Counter:
    """Rows since the last report. A report every REPORT_INTERVAL shows the driver that this task makes progress."""

    def __init__(self, sink: str) -> None:
        self.rows = 0
        self._sink = sink
        self._last = time.monotonic()

    def is_due(self) -> bool:
        return time.monotonic() - self._last >= REPORT_INTERVAL

    def report(self, filler: bytes = b"") -> pa.RecordBatch:
        """Return one row of RESULT_SCHEMA and begin again at zero."""
        columns = [pa.array([self._sink]), pa.array([self.rows], pa.int64()), pa.array([filler])]
        self.rows, self._last = 0, time.monotonic()
        return pa.RecordBatch.from_arrays(columns, schema=RESULT_SCHEMA)


def _session(target: Target) -> Session:
    """Return this worker's session; it outlives the task."""
    key = (target.cassandra, target.credentials, target.consistency)
    if key not in _sessions:
        deadline = time.monotonic() + target.patience
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


_Row = tuple[bytes | None, ...]
"""The values of one row as CQL's bytes, with the write timestamp last."""


@dataclass(frozen=True, slots=True)
class _Request:
    """Some rows of one Arrow batch that have one partition key, as one statement."""

    insert: _Insert
    source: pa.RecordBatch
    indices: Sequence[int]
    """Positions of the rows in `source`."""
    rows: Sequence[_Row]
    statement: BatchStatement | BoundStatement

    def singles(self) -> Iterator[_Request]:
        """Yield each row as a request of its own."""
        for index, row in zip(self.indices, self.rows, strict=True):
            yield _Request(self.insert, self.source, [index], [row], self.insert.bound(row))


@dataclass(frozen=True, slots=True)
class _Insert:
    """A prepared INSERT for one set of columns, with one encoder per column."""

    prepared: Any
    columns: tuple[str, ...]
    key: tuple[int, ...]
    """Positions of the partition key's columns."""
    primary: tuple[str, ...]
    """Columns of the primary key."""
    encoders: tuple[Encoder, ...]
    table: str
    patience: float

    def requests(self, batch: pa.RecordBatch, timestamp: int) -> Iterator[_Request]:
        """Yield the batch's rows as requests of one partition each, bounded in rows and bytes.

        Raises PoisonRecord naming the column and the row of a value that does not fit.
        """
        stamp = timestamp.to_bytes(8, "big", signed=True)
        columns = [self._encode(batch, index) for index in range(len(self.columns))]
        self._check_keys(batch, columns)
        rows = list(zip(*columns, [stamp] * batch.num_rows, strict=True))
        for group in self._groups(rows):
            for indices in _bounded(group, rows):
                chosen = [rows[index] for index in indices]
                yield _Request(self, batch, indices, chosen, self._statement(chosen))

    def bound(self, row: _Row) -> BoundStatement:
        """Return the statement that writes one row."""
        statement = BoundStatement(self.prepared)
        statement.values = row
        return statement

    def describe(self, batch: pa.RecordBatch, index: int) -> str:
        """Return 'topic=…, partition=…, offset=…' and the primary key of a row, as far as the frame has the columns."""
        wanted = dict.fromkeys((*SOURCE_COLUMNS, *self.primary))
        found = [f"{name}={_shown(batch.column(name)[index])}" for name in wanted if name in self.columns]
        return f"row {', '.join(found)}"

    def _encode(self, batch: pa.RecordBatch, index: int) -> Encoded:
        name, one, column = self.columns[index], self.encoders[index], batch.column(index)
        if name in self.primary and column.null_count:
            raise PoisonRecord(
                f"{self.table}.{name} is part of the primary key, and null in {column.null_count} of {len(column)} rows"
                f"; the first is {self.describe(batch, _first_null(column))}"
            )
        try:
            return one(column)
        except MISFITS:
            position, error = _first_misfit(one, column)
            where = self.describe(batch, position)
            if isinstance(error, NullInCollection):
                raise PoisonRecord(f"{self.table}.{name}: {error}; {where}", remedy=NULL_REMEDY) from error
            raise PoisonRecord(
                f"{self.table}.{name}: a value of type {column.type} does not fit: {error}; {where}"
            ) from error

    def _check_keys(self, batch: pa.RecordBatch, columns: Sequence[Encoded]) -> None:
        for position in self.key:
            sizes = [len(value or b"") for value in columns[position]]
            longest = max(sizes, default=0)
            if longest > KEY_BYTES:
                raise PoisonRecord(
                    f"{self.table}.{self.columns[position]} is part of the partition key, and takes {longest} bytes in"
                    f" a row; Cassandra takes {KEY_BYTES}; {self.describe(batch, sizes.index(longest))}"
                )

    def _groups(self, rows: Sequence[_Row]) -> Iterable[list[int]]:
        """Return the positions of the rows of each Cassandra partition."""
        groups: dict[Any, list[int]] = {}
        if len(self.key) == 1:
            position = self.key[0]
            for index, row in enumerate(rows):
                groups.setdefault(row[position], []).append(index)
        else:
            for index, row in enumerate(rows):
                groups.setdefault(tuple([row[position] for position in self.key]), []).append(index)
        return groups.values()

    def _statement(self, rows: Sequence[_Row]) -> BatchStatement | BoundStatement:
        bound = self.bound(rows[0])
        if len(rows) == 1:
            return bound
        batch = BatchStatement(BatchType.UNLOGGED)
        for row in rows:
            bound.values = row  # one object for all rows of a batch, which keeps the values and not the statement
            batch.add(bound)
        return batch


def _bounded(indices: Sequence[int], rows: Sequence[_Row]) -> Iterator[list[int]]:
    """Cut the rows of one partition into pieces of at most BATCH_ROWS rows and BATCH_BYTES bytes."""
    piece: list[int] = []
    size = 0
    for index in indices:
        length = sum([len(value) for value in rows[index] if value is not None])
        if piece and (len(piece) >= BATCH_ROWS or size + length > BATCH_BYTES):
            yield piece
            piece, size = [], 0
        piece.append(index)
        size += length
    yield piece


def _first_null(column: pa.Array) -> int:
    return int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])


def _first_misfit(one: Encoder, column: pa.Array) -> tuple[int, Exception]:
    """Return the position of the first value that cannot be encoded, and why."""
    for index in range(len(column)):
        try:
            one(column.slice(index, 1))
        except MISFITS as error:
            return index, error
    raise RuntimeError("each value fits alone, and the column does not")


def _shown(value: pa.Scalar) -> str:
    text = str(value.as_py())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _insert(session: Session, target: Target, columns: tuple[str, ...]) -> _Insert:
    """Prepare a statement once per worker, table and set of columns."""
    key = (target, columns)
    if key not in _statements:
        quoted = f'"{target.keyspace}"."{target.table}"'
        names = ", ".join(f'"{name}"' for name in columns)
        text = f"INSERT INTO {quoted} ({names}) VALUES ({', '.join('?' * len(columns))}) USING TIMESTAMP ?"  # noqa: S608
        table = f"{target.keyspace}.{target.table}"
        prepared = _prepare(session, table, text, target.patience)
        known = session.cluster.metadata.keyspaces[target.keyspace].tables[target.table]
        version = session.cluster.protocol_version
        _statements[key] = _Insert(
            prepared=prepared,
            columns=columns,
            key=tuple(columns.index(name) for name in target.partition_key),
            primary=tuple(column.name for column in known.primary_key),
            encoders=tuple(encoder(column.type, version) for column in prepared.column_metadata[: len(columns)]),
            table=table,
            patience=target.patience,
        )
    return _statements[key]


def _prepare(session: Session, table: str, text: str, seconds: float) -> Any:  # noqa: ANN401 - the library is untyped
    """Return the prepared statement. Raises BadSpec when it does not fit the table as it is now, DependencyDown."""
    patience = _Patience(table, seconds)
    while True:
        try:
            return session.prepare(text)
        except InvalidRequest as error:
            raise BadSpec(f"{table}: {error}", reason=Reason.SINK_INVALID) from error
        except UNANSWERED as error:
            patience.pause_or_raise(error)


class _Patience:
    """Doubling pauses between the attempts of one request, for a number of seconds."""

    def __init__(self, table: str, seconds: float) -> None:
        self._table = table
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._pause = 0.1

    def pause_or_raise(self, error: Exception) -> None:
        """Wait before the next try. Raises DependencyDown when there is no time for it."""
        if time.monotonic() + self._pause > self._deadline:
            raise self._given_up(error) from error
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, 2.0)

    def _given_up(self, error: Exception) -> DependencyDown:
        if isinstance(error, Unauthorized):
            # Not at once: Cassandra also answers so while no replica of its permissions answers.
            return DependencyDown(
                f"{self._table}: {error}",
                reason=Reason.CASSANDRA_CREDENTIALS_REJECTED,
                remedy=f"GRANT MODIFY ON {self._table} to the user of spec.checkpoint.cassandra.credentialsFrom.",
            )
        return DependencyDown(
            f"{self._table} took no writes for {self._seconds:.0f} s: {error}", reason=Reason.CASSANDRA_UNREACHABLE
        )


class _Requests:
    """Requests in flight, at most IN_FLIGHT. A failed one is repeated: its rows carry their timestamp."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._under_way: deque[tuple[ResponseFuture, _Request]] = deque()

    def send(self, request: _Request) -> None:
        """Start a request; if IN_FLIGHT are in flight, wait for the oldest first."""
        if len(self._under_way) >= IN_FLIGHT:
            self._settle(*self._under_way.popleft())
        self._under_way.append((self._session.execute_async(request.statement), request))

    def finish(self) -> None:
        """Wait for all."""
        while self._under_way:
            self._settle(*self._under_way.popleft())

    def _settle(self, future: ResponseFuture, request: _Request) -> None:
        table = request.insert.table
        patience = _Patience(table, request.insert.patience)
        while True:
            try:
                future.result()
                return
            except InvalidRequest as error:
                # The table or a row: only the former makes preparing the same statement fail as well.
                _prepare(self._session, table, request.insert.prepared.query_string, request.insert.patience)
                self._blame(request, error)
                return
            except AuthenticationFailed as error:
                raise DependencyDown(f"{table}: {error}", reason=Reason.CASSANDRA_CREDENTIALS_REJECTED) from error
            except UNANSWERED as error:
                patience.pause_or_raise(error)
                future = self._session.execute_async(request.statement)

    def _blame(self, request: _Request, error: InvalidRequest) -> None:
        """Write the rows of a refused request one by one. Raises PoisonRecord naming a row that is refused alone."""
        if len(request.indices) == 1:
            where = request.insert.describe(request.source, request.indices[0])
            raise PoisonRecord(f"{request.insert.table} refuses the values of a row: {error}; {where}") from error
        for single in request.singles():
            self._settle(self._session.execute_async(single.statement), single)
