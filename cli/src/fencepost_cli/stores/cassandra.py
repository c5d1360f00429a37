"""The pipeline's Cassandra: the fence row at SERIAL, its history by the hour, and the positions in sinks' tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice, pairwise
from typing import Any, Final, TypeVar

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Session
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.query import SimpleStatement, tuple_factory

from fencepost.contract import CassandraEndpoint, offset_key
from fencepost.fence import FenceRow, FenceUnauthorized
from fencepost.fence.cassandra import schema
from fencepost.fence.cassandra.dead_letters import DeadLetters
from fencepost.fence.cassandra.errors import translated
from fencepost.fence.cassandra.history import changes_after, changes_of_hour
from fencepost.fence.cassandra.left_out import LeftOutRecords
from fencepost.fence.cassandra.session import connect
from fencepost.fence.cassandra.snapshots import SnapshotTable
from fencepost.fence.cassandra.table import CassandraFenceTable
from fencepost.fence.history import NO_CHANGE, Change
from fencepost.fence.left_out import LeftOut
from fencepost.fence.letters import DeadLetter
from fencepost.fence.patience import Patience
from fencepost.fence.snapshots import Snapshot
from fencepost.state.cassandra import CassandraChunks
from fencepost.state.chunks import ChunkStore, PatientChunks
from fencepost_cli.accepted_loss import AcceptedLoss
from fencepost_cli.access import tls_by_name
from fencepost_cli.errors import CliError
from fencepost_cli.ports import CassandraAccess, Column
from fencepost_cli.stores.bounded_history import bounded
from fencepost_cli.stores.fence_errors import Remedies, explained
from fencepost_cli.stores.kubernetes.cluster_names import dialled
from fencepost_operator.adapters.cassandra.guarded_connection import BoundedConnection

REQUEST_TIMEOUT: Final = 20.0
"""Seconds for one request; a page of a table's scan is the longest."""
PATIENCE: Final = 20.0
"""Seconds for which a read is tried again: a SERIAL read may time out while the driver commits."""
LARGEST_ANSWER: Final = 64 * 1024 * 1024
"""Bytes of one answer: the server may be whatever a pipeline's author names."""
PAGE: Final = 500
"""Rows of one answer, of tables with maps: a change of a thousand partitions has 0.1 MB."""
CONCURRENCY: Final = 50
"""Rows that are asked for at the same time."""
MOST_ACCEPTED: Final = 100_000
"""Accepted ranges of one pipeline that are read."""
_ACCEPTED: Final = ("topic", "partition", "from_offset", "until_offset", "reason", "choice", "at", "topic_id")
SLICES: Final = 16
PAGE_ROWS: Final = 5_000
_REFUSED: Final = re.compile(
    r"has no (SELECT|MODIFY) permission on <(table|keyspace) ([A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)?)>"
)
_RING: Final = (-(2**63), 2**63 - 1)

T = TypeVar("T")


class _Connection(BoundedConnection):
    """Closes itself on what no table of ours has."""

    largest_frame = LARGEST_ANSWER


@contextmanager
def open_store(access: CassandraAccess) -> Iterator[CassandraStore]:
    """Connect for the block. Raises CliError.

    Only the addresses that the spec or the command line names are dialled: those that the cluster lists are not
    reached through a forwarded port.
    """
    endpoint = _reached(access)
    with _explained(access):
        session = connect(
            endpoint,
            credentials=access.credentials,
            consistency=access.consistency,
            request_timeout=REQUEST_TIMEOUT,
            discover=False,
            tls=access.tls,
            connection_class=_Connection,
        )
    session.default_fetch_size = PAGE
    try:
        yield CassandraStore(session, access)
    finally:
        session.cluster.shutdown()


def _reached(access: CassandraAccess) -> CassandraEndpoint:
    """Return the endpoint as this machine reaches it, by one contact point where none has an address here.

    Raises CliError, for the first of them.
    """
    endpoint = access.endpoint
    unnamed = CliError("no contact point is named", remedy="name one with --cassandra HOST:PORT")
    found = dialled(endpoint.contact_points, endpoint.port, access.dial, without_names=unnamed)
    if found is None:
        return endpoint
    point, host, port = found
    return replace(endpoint, contact_points=(host,), port=port, tls=tls_by_name(endpoint, point))


@dataclass(frozen=True, slots=True)
class CassandraStore:
    """Implements the Store port."""

    session: Session
    access: CassandraAccess

    def row(self) -> FenceRow | None:
        """Return the fence row by a SERIAL read. Raises CliError."""
        table = CassandraFenceTable.over(self.session, self.access.keyspace)
        return self._patiently(lambda: table.read(self.access.pipeline))

    def changes(self, hour: datetime, *, after: tuple[int, int] = NO_CHANGE) -> Sequence[Change]:
        """Return the changes of an hour that came after this epoch and version. Raises CliError."""
        access = self.access

        def read() -> list[Change]:
            return bounded(changes_of_hour(self.session, access.keyspace, access.pipeline, hour, after=after))

        return self._patiently(read)

    def first_change(self, hour: datetime, *, epoch: int = 0) -> Change | None:
        """Return the first change of an hour, of this epoch or a later one. Raises CliError."""
        access = self.access

        def read() -> Sequence[Change]:
            return changes_after(
                self.session, access.keyspace, access.pipeline, hour, epoch=epoch, version=NO_CHANGE[1], limit=1
            )

        return next(iter(self._patiently(read)), None)

    def accepted(self) -> Sequence[AcceptedLoss]:
        """Return the ranges that users accepted as lost, and the records that they left out. Raises CliError."""
        table, keyspace = schema.ACCEPTED_LOSSES.name, self.access.keyspace

        def read() -> list[AcceptedLoss]:
            with translated(f"reading {keyspace}.{table}"):
                there = schema.columns_of(self.session, keyspace, table)
                if not there:
                    return []
                wanted = ", ".join(name for name in _ACCEPTED if name in there)
                select = f'SELECT {wanted} FROM "{keyspace}".{table} WHERE pipeline = %s LIMIT {MOST_ACCEPTED}'  # noqa: S608 - constants, and a name that cannot be bound
                found = islice(self.session.execute(select, (self.access.pipeline,)), MOST_ACCEPTED)
                return [
                    AcceptedLoss(
                        partition=offset_key(row.topic, row.partition),
                        start=row.from_offset,
                        until=row.until_offset,
                        reason=getattr(row, "reason", None),
                        choice=getattr(row, "choice", None),
                        at=getattr(row, "at", None),
                        topic_id=getattr(row, "topic_id", None),
                    )
                    for row in found
                ]

        return self._patiently(read) + self._left_out()

    def _left_out(self) -> list[AcceptedLoss]:
        records = LeftOutRecords(self.session, self.access.keyspace, self.access.pipeline)
        return [AcceptedLoss.of_left_out(one) for one in self._patiently(records.all)]

    def snapshots(self) -> Sequence[Snapshot]:
        """Return the pipeline's snapshots with their offsets, the newest first. Raises CliError."""
        table = SnapshotTable(self.session, self.access.keyspace)
        return self._patiently(lambda: table.newest(self.access.pipeline, with_offsets=True))

    def snapshot(self, found: Snapshot) -> Snapshot | None:
        """Return one of them with all that it holds; None when it is gone. Raises CliError."""
        table = SnapshotTable(self.session, self.access.keyspace)
        return self._patiently(lambda: table.read(self.access.pipeline, found.id))

    def chunks(self) -> ChunkStore:
        """Return the files of the pipeline's state, which are asked for again while Cassandra is unavailable."""
        chunks = CassandraChunks(self.session, self.access.keyspace, self.access.pipeline)
        return PatientChunks(chunks, Patience(PATIENCE))

    def columns(self, keyspace: str, table: str) -> Sequence[Column]:
        """Return the columns of a table, none when it does not exist. Raises CliError."""
        select = (
            "SELECT column_name, kind, position, type FROM system_schema.columns"
            " WHERE keyspace_name = %s AND table_name = %s"
        )

        def read() -> list[Column]:
            with translated(f"reading the columns of {keyspace}.{table}"):
                found = self.session.execute(select, (keyspace, table))
                return [Column(row.column_name, row.kind, row.position, row.type) for row in found]

        return self._patiently(read)

    def positions(self, keyspace: str, table: str, partition_key: Sequence[str]) -> Iterator[tuple[str, int, int]]:
        """Yield (topic, partition, offset) of every row. Raises CliError."""
        with _explained(self.access), translated(f"reading {keyspace}.{table}"):
            yield from scan(
                self.session,
                f'"{keyspace}"."{table}"',
                [f'"{name}"' for name in partition_key],
                ("topic", "partition", "offset"),
            )

    def rows(
        self,
        keyspace: str,
        table: str,
        *,
        key: Sequence[str],
        columns: Sequence[str],
        timed: str | None,
        keys: Iterable[Sequence[Any]],
    ) -> Iterator[tuple[int | None, Sequence[Any]] | None]:
        """Yield for each key the time of a write, and the columns; None for an absent row. Raises CliError."""
        wanted = [f'WRITETIME("{timed}")' if timed else '"' + key[0] + '"', *(f'"{name}"' for name in columns)]
        place = " AND ".join(f'"{name}" = ?' for name in key)
        with _explained(self.access), translated(f"reading {keyspace}.{table}"):
            select = self.session.prepare(
                f'SELECT {", ".join(wanted)} FROM "{keyspace}"."{table}" WHERE {place}'  # noqa: S608 - names cannot be bound
            )
            profile = self.session.execution_profile_clone_update(EXEC_PROFILE_DEFAULT, row_factory=tuple_factory)
            for _, answer in execute_concurrent_with_args(
                self.session, select, keys, CONCURRENCY, results_generator=True, execution_profile=profile
            ):
                found = answer.one()
                yield None if found is None else (found[0] if timed else None, found[1:])

    def letters(self, topic: str, partition: int, *, start: int, until: int) -> Iterator[DeadLetter]:
        """Yield the dead letters of offsets [start, until), as a list has them. Raises CliError."""
        with _explained(self.access):
            yield from self._letters.of_partition(topic, partition, start=start, until=until)

    def letter(self, listed: DeadLetter) -> DeadLetter | None:
        """Return one with all that it holds, None when it is gone. Raises CliError."""
        return self._patiently(lambda: self._letters.read(listed))

    def mark_retried(self, letter: DeadLetter, *, by: str, at: datetime, to: str) -> None:
        """Record who sent its record to Kafka again, when, and to where. Raises CliError."""
        self._patiently(lambda: self._letters.mark_retried(letter, by=by, at=at, to=to))

    def leave_out(self, record: LeftOut) -> None:
        """Let the pipeline's next runs leave out a record. Raises CliError."""
        records = LeftOutRecords(self.session, self.access.keyspace, self.access.pipeline)
        self._patiently(lambda: records.add(record))

    @property
    def _letters(self) -> DeadLetters:
        return DeadLetters(self.session, self.access.keyspace, self.access.pipeline)

    def _patiently(self, read: Callable[[], T]) -> T:
        with _explained(self.access):
            return Patience(PATIENCE).ask(read, final=FenceUnauthorized)  # waiting does not grant a permission


def scan(
    session: Session, table: str, partition_key: Sequence[str], columns: Sequence[str]
) -> Iterator[tuple[Any, ...]]:
    """Yield these columns of every row: the token ring in slices, page by page, never all in memory at once.

    Names are written as in CQL; a column may be a function of one, such as WRITETIME(id).
    Raises the Cassandra driver's errors.
    """
    key = ", ".join(partition_key)
    statement = f"SELECT {', '.join(columns)} FROM {table} WHERE token({key}) > %s AND token({key}) <= %s"  # noqa: S608 - names cannot be bound
    tuples = session.execution_profile_clone_update(EXEC_PROFILE_DEFAULT, row_factory=tuple_factory)
    lowest, highest = _RING
    step = (highest - lowest) // SLICES
    bounds = [lowest + step * slice_ for slice_ in range(SLICES)] + [highest]
    # The next slice is asked for while this one is read.
    asked = None
    for low, high in [*pairwise(bounds), (None, None)]:
        following = (
            session.execute_async(
                SimpleStatement(statement, fetch_size=PAGE_ROWS), (low, high), execution_profile=tuples
            )
            if low is not None
            else None
        )
        if asked is not None:
            yield from asked.result()
        asked = following


def _explained(access: CassandraAccess) -> AbstractContextManager[None]:
    remedies = Remedies(
        unauthorized=_grant,
        credentials_rejected="correct the Secret in checkpoint.cassandra.credentialsFrom",
        unavailable="see whether Cassandra answers at this address; --cassandra names another one",
        schema_missing="wait until the operator has created it, or check checkpoint.cassandra.keyspace",
        other="compare the table with docs/fence-schema.cql, or with what the sink needs",
    )
    return explained(f"Cassandra at {access.endpoint.address}", access.credentials, remedies)


def _grant(refusal: str) -> str:
    """Return how to give the right that Cassandra misses: "User U has no SELECT permission on <table k.t> or …"."""
    found = _REFUSED.search(refusal)
    right = f"GRANT {found[1]} ON {found[2].upper()} {found[3]}" if found else "GRANT SELECT ON that table"
    return f"as a superuser: {right} TO the role in the pipeline's Secret (checkpoint.cassandra.credentialsFrom)"
