"""The worker's half of the Cassandra sink: Arrow batches in, unlogged batches of one partition out.

Rows are written at the batch's own timestamp, so whoever writes them again (a repeated task, a successor, a zombie)
leaves the table the same: the highest timestamp wins whatever arrives last.  Nulls are written as nulls: an earlier
attempt by other code may have left a value there, and UNSET would keep it.  Leave a column out of the frame to leave
it alone in the table.

Source of the shape: `execute_concurrent` wrote 4,400 rows/s, 500-row batches of one partition, four in flight,
29,000 to 65,000 (one node, 2 cores).  Cassandra's limits on batch size hold for batches of several partitions only.
`fencepost.sinks.cassandra.encoding.requests` makes the requests; this module sends them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Final

import pyarrow as pa
from cassandra import AuthenticationFailed, InvalidRequest, Unauthorized, Unavailable, WriteFailure
from cassandra.cluster import ResponseFuture, Session

from fencepost.context import WARM_TOKEN
from fencepost.contract import LONGEST_REQUEST, CassandraEndpoint, Reason
from fencepost.contract.sinks import index_name
from fencepost.errors import BadSpec, DependencyDown, PoisonRecord
from fencepost.fence import FenceCredentialsRejected, FenceEndpointInvalid, FenceUnavailable
from fencepost.fence.cassandra.errors import UNANSWERED, is_disk_full
from fencepost.fence.cassandra.session import connect
from fencepost.fence.tls import TlsMaterial
from fencepost.sinks.cassandra.cql import full_name
from fencepost.sinks.cassandra.encoding.columns import encoder
from fencepost.sinks.cassandra.encoding.requests import Change, Request, send_encoded, steps
from fencepost.sinks.cassandra.index_entries import entries
from fencepost.sinks.cassandra.purge_index import COORDINATES, PARTITION_KEY, PRIMARY_KEY, Index
from fencepost.sinks.cassandra.row_changes import Rules, Shape, changes, insert, parted
from fencepost.sinks.retries import retried

IN_FLIGHT: Final = 8
"""Requests in flight in one task."""
MOST_OF_A_MUTATION: Final = 16 * 1024 * 1024
"""Bytes: Cassandra's own limit of a mutation, half a segment of its commit log of the usual size."""
LARGE_ROW: Final = 1024 * 1024
"""Bytes of a row that may be why a replica fails to apply it, which is not silence: its limits may be lower."""
REQUEST_TIMEOUT: Final = LONGEST_REQUEST
"""Seconds for one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A table, and how to reach it. Password and key travel in the task's closure, over Spark's encrypted RPC."""

    cassandra: CassandraEndpoint
    credentials: tuple[str, str] | None
    consistency: str
    keyspace: str
    table: str
    primary_key: tuple[str, ...]
    partition_key: tuple[str, ...]
    patience: float
    """Seconds for which one request is repeated."""
    rules: Rules = field(default_factory=Rules)
    tls: TlsMaterial | None = None
    index: Index | None = None
    """The purge index that is written beside the table."""


_sessions: dict[tuple[CassandraEndpoint, tuple[str, str] | None, TlsMaterial | None, str], Session] = {}
_connecting: Final = Lock()
_statements: dict[tuple[Target, Shape], Change] = {}


def write(
    target: Target, timestamp: int, batches: Iterable[pa.RecordBatch], *, rehearsal: bool = False
) -> Iterator[int]:
    """Write all rows at `timestamp` (µs); yield numbers of rows, which add up to what is written.

    At WARM_TOKEN it connects and prepares, as far as batches show the columns, and writes nothing; in a
    `rehearsal` of records it makes the requests as well, so that it fails for rows that it could not write.
    Raises BadSpec for a column that does not fit, PoisonRecord for a key that is null or a value that does not fit (the
    message names the row), DependencyDown when Cassandra does not answer, or refuses the user, for `target.patience`
    seconds.
    """
    session = _session(target)
    requests = _Requests(session)
    for batch in batches:
        if batch.num_rows or timestamp == WARM_TOKEN:
            yield from _write_batch(session, requests, target, timestamp, batch, rehearsal=rehearsal)
    requests.finish()


def _write_batch(
    session: Session,
    requests: _Requests,
    target: Target,
    timestamp: int,
    batch: pa.RecordBatch,
    *,
    rehearsal: bool,
) -> Iterator[int]:
    if target.index is not None:
        yield from _index(session, target.index, target, timestamp, batch, rehearsal=rehearsal)
    parts = changes(batch, target.rules, primary_key=target.primary_key, partition_key=target.partition_key)
    for shape, rows in parts:
        change = _change(session, target, shape)
        if timestamp == WARM_TOKEN and not rehearsal:
            continue
        for request in change.requests(rows, timestamp):
            if rehearsal:
                continue
            requests.send(request)
            yield request.count


def _index(
    session: Session, index: Index, target: Target, timestamp: int, batch: pa.RecordBatch, *, rehearsal: bool
) -> Iterator[int]:
    """Write the entries of the rows that are inserted, and wait for all: no row is sent before its entry is stored.

    Yields zeros, for progress.
    """
    inserted, _ = parted(batch, target.rules)
    shape = insert(batch.schema.names, target.rules)
    rows, entry = _change(session, target, shape), _entry(session, index, target)
    if timestamp == WARM_TOKEN and not rehearsal:
        return
    requests = _Requests(session)
    for part in steps(inserted):
        key = rows.encoded(part.select(list(shape.columns)), target.primary_key)
        for request in entry.requests(entries(index, part.select(list(COORDINATES)), key), timestamp):
            if not rehearsal:
                requests.send(request)
                yield 0
    requests.finish()


def _session(target: Target) -> Session:
    """Return this worker's session; it outlives the task. Several sinks of a task may ask at once."""
    key = (target.cassandra, target.credentials, target.tls, target.consistency)
    with _connecting:
        if key not in _sessions:
            _sessions[key] = connected(target)
        return _sessions[key]


def connected(target: Target) -> Session:
    """Return a session with the target's Cassandra. Raises DependencyDown."""
    deadline = time.monotonic() + target.patience
    while True:
        try:
            session = connect(
                target.cassandra,
                credentials=target.credentials,
                request_timeout=REQUEST_TIMEOUT,
                consistency=target.consistency,
                tls=target.tls,
            )
        except FenceEndpointInvalid as error:
            raise DependencyDown(str(error), reason=Reason.CASSANDRA_REJECTED, remedy=error.remedy) from error
        except FenceCredentialsRejected as error:
            raise DependencyDown(str(error), reason=Reason.CASSANDRA_CREDENTIALS_REJECTED) from error
        except FenceUnavailable as error:
            if time.monotonic() > deadline:
                raise DependencyDown(str(error), reason=Reason.SINK_UNREACHABLE) from error
            retried()
            time.sleep(1.0)
        else:
            session.add_request_init_listener(send_encoded)
            return session


def _change(session: Session, target: Target, shape: Shape) -> Change:
    """Prepare a statement once per worker, table and set of columns."""
    key = (target, shape)
    if key not in _statements:
        text = shape.text(full_name(target.keyspace, target.table), target.rules.ttl)
        _statements[key] = _prepared(
            session, target, shape, text, target.table, primary=target.primary_key, partition=target.partition_key
        )
    return _statements[key]


def _entry(session: Session, index: Index, target: Target) -> Change:
    """Prepare the statement of the purge index once per worker and table."""
    shape, name = Shape(PRIMARY_KEY), index_name(target.table)
    key = (replace(target, table=name), shape)
    if key not in _statements:
        text = shape.text(full_name(target.keyspace, name), index.retention)
        _statements[key] = _prepared(session, target, shape, text, name, primary=PRIMARY_KEY, partition=PARTITION_KEY)
    return _statements[key]


def _prepared(
    session: Session,
    target: Target,
    shape: Shape,
    text: str,
    name: str,
    *,
    primary: tuple[str, ...],
    partition: tuple[str, ...],
) -> Change:
    table = f"{target.keyspace}.{name}"
    prepared = _prepare(session, table, text, target.patience)
    version = session.cluster.protocol_version
    bound = prepared.column_metadata[int(shape.is_delete) :][: len(shape.columns)]
    return Change(
        prepared=prepared,
        keyspace=target.keyspace,
        columns=shape.columns,
        key=tuple(shape.columns.index(column) for column in partition),
        primary=primary,
        encoders=tuple(encoder(column.type, version) for column in bound),
        table=table,
        patience=target.patience,
        timestamp_first=shape.is_delete,
    )


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
        """Wait before the next try. Raises DependencyDown when the time is too short for it."""
        if time.monotonic() + self._pause > self._deadline:
            raise self._given_up(error) from error
        retried()
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
            f"{self._table} took no writes for {self._seconds:.0f} s: {error}", reason=Reason.SINK_UNREACHABLE
        )


class _Requests:
    """Requests in flight, at most IN_FLIGHT. A failed one is repeated: its rows carry their timestamp."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._under_way: deque[tuple[ResponseFuture, Request]] = deque()

    def send(self, request: Request) -> None:
        """Start a request; if IN_FLIGHT are in flight, wait for the oldest first."""
        if len(self._under_way) >= IN_FLIGHT:
            self._settle(*self._under_way.popleft())
        self._under_way.append((self._session.execute_async(request.statement), request))

    def finish(self) -> None:
        """Wait for all."""
        while self._under_way:
            self._settle(*self._under_way.popleft())

    def _settle(self, future: ResponseFuture, request: Request) -> None:
        table = request.change.table
        patience = _Patience(table, request.change.patience)
        while True:
            try:
                future.result()
                return
            except InvalidRequest as error:
                if is_disk_full(error):
                    patience.pause_or_raise(error)
                    future = self._session.execute_async(request.statement)
                    continue
                # The table or a row: only the former makes preparing the same statement fail as well.
                _prepare(self._session, table, request.change.prepared.query_string, request.change.patience)
                self._blame(request, error)
                return
            except AuthenticationFailed as error:
                raise DependencyDown(f"{table}: {error}", reason=Reason.CASSANDRA_CREDENTIALS_REJECTED) from error
            except UNANSWERED as error:
                try:
                    patience.pause_or_raise(error)
                except DependencyDown as down:
                    raise _too_large(request, error) or down from error
                future = self._session.execute_async(request.statement)

    def _blame(self, request: Request, error: InvalidRequest) -> None:
        """Write the rows of a refused request one by one. Raises PoisonRecord naming a row that is refused alone."""
        if request.count == 1:
            raise PoisonRecord(
                f"{request.change.table} refuses the values of a row: {error}; {request.describe_first()}"
            ) from error
        for single in request.singles():
            self._settle(self._session.execute_async(single.statement), single)


def _too_large(request: Request, error: Exception) -> PoisonRecord | None:
    """Return the suspicion that a row is larger than the nodes take, None where only an outage explains the error.

    Not each release says that a mutation is too large: some replicas fail, and some coordinators stay silent.  The run
    that looks for a record decides: it sets one aside only while others are written.
    """
    size = request.size
    explains_itself = isinstance(error, Unauthorized | Unavailable)
    if (
        explains_itself
        or request.count > 1
        or size < (LARGE_ROW if isinstance(error, WriteFailure) else MOST_OF_A_MUTATION)
    ):
        return None
    return PoisonRecord(
        f"{request.change.table} took no row of {size / 1024**2:.0f} MiB, which may be too large for Cassandra:"
        f" {error}; {request.describe_first()}",
        remedy="Split such rows in the transform, or raise max_mutation_size and commitlog_segment_size in Cassandra.",
    )
