"""The fence table in Cassandra: lightweight transactions and serial reads, nothing else touches the row.

The driver's default retry policy repeats a request on another host, whatever it was; a repeated conditional update
would report 'not applied' for a change that was.  So: FallthroughRetryPolicy, no speculative execution, and every error
of a conditional statement is an unknown outcome for `Fence` to settle.
"""

from __future__ import annotations

import logging
import random
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

from cassandra import (
    AuthenticationFailed,
    ConsistencyLevel,
    DriverException,
    InvalidRequest,
    Unauthorized,
)
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, Session
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.connection import Connection, ConnectionException
from cassandra.policies import (
    ConstantReconnectionPolicy,
    DCAwareRoundRobinPolicy,
    FallthroughRetryPolicy,
    HostFilterPolicy,
    LoadBalancingPolicy,
    RoundRobinPolicy,
    TokenAwarePolicy,
)
from cassandra.protocol import ConfigurationException, ErrorMessage
from cassandra.query import UNSET_VALUE

from fencepost.contract import Acceptance, CassandraEndpoint, CassandraTls, Loss, ReportedLoss
from fencepost.fence import (
    BatchProgress,
    FenceCredentialsRejected,
    FenceDatacenterUnknown,
    FenceRow,
    FenceSchemaInvalid,
    FenceSchemaMissing,
    FenceTlsFailed,
    FenceUnauthorized,
    FenceUnavailable,
    schema,
    stored_losses,
)
from fencepost.fence.changes import MAPS, Change, change, history_hours, hour_of
from fencepost.fence.epochs import sealed
from fencepost.fence.protocol import MOST_LOSSES
from fencepost.fence.stored_rows import fence_row
from fencepost.fence.tls import NamedEndPoint, NamedEndPoints, TlsMaterial, tls_failure

log = logging.getLogger(__name__)

MOST_ADDRESSES: Final = 4
"""Addresses of an untrusted cluster that one attempt to connect tries."""

PROGRESS_KEPT: Final = 3600
"""Seconds after which a report of progress expires."""

HISTORY_ATTEMPTS: Final = 3
HISTORY_PAUSE: Final = 0.5
"""Seconds between two attempts to append a change to the history."""

UNANSWERED: Final = (DriverException, NoHostAvailable, ConnectionException, ErrorMessage)
"""What the driver raises for a request whose outcome is open; catch its refusals first, they are DriverExceptions too.

ConnectionException: the connection died in flight.  ErrorMessage: an answer that the driver has no exception for, as
overloaded, bootstrapping, server error and CAS_WRITE_UNKNOWN.
"""
_ABSENT: Final = re.compile(r"does not exist|unconfigured table|undefined column", re.IGNORECASE)
"""How Cassandra 3 to 5 refuse a request that names a table or a column that the asked node does not know."""
_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def connect(
    endpoint: CassandraEndpoint,
    *,
    credentials: tuple[str, str] | None,
    request_timeout: float = 5.0,
    consistency: str = "LOCAL_QUORUM",
    discover: bool = True,
    permits: Callable[[str, str], bool] = lambda _name, _address: True,
    connection_class: type[Connection] | None = None,
    tls: TlsMaterial | None = None,
) -> Session:
    """Return a session whose requests are tried once. Times in seconds.

    `tls` is needed where the endpoint has TLS.  The certificate of a contact point is checked for the point's name,
    whichever of its addresses is dialled.

    Without `discover`, only addresses of the contact points are dialled, MOST_ADDRESSES at most, whatever nodes the
    cluster lists, and no schema is read: for clusters that the process does not trust. Of those only the addresses that
    `permits` accepts, asked with the contact point and its address, are dialled.  `connection_class` replaces the
    driver's, which sets no limit on what a server sends.
    Raises FenceUnavailable when no contact point answers, FenceCredentialsRejected when the user is refused,
    FenceTlsFailed, FenceDatacenterUnknown.
    """
    balancing: LoadBalancingPolicy = (
        DCAwareRoundRobinPolicy(local_dc=endpoint.local_datacenter) if endpoint.local_datacenter else RoundRobinPolicy()
    )
    with translated(f"cassandra at {endpoint.address}"):
        points: list[Any] = list(endpoint.contact_points)
        names: Mapping[str, str] = {}
        if not discover:
            names = _addresses(endpoint, permits, most=MOST_ADDRESSES)
            points = list(names)
            allowed = frozenset(points)
            balancing = HostFilterPolicy(balancing, lambda host: host.address in allowed)
        security: dict[str, Any] = {}
        if endpoint.tls is not None:
            names = names or _addresses(endpoint, permits)
            points, security = _secured(endpoint, endpoint.tls, names, tls)
        cluster = Cluster(  # resolves the contact points, and raises when none has an address
            contact_points=points,
            port=endpoint.port,
            **security,
            auth_provider=PlainTextAuthProvider(*credentials) if credentials else None,
            connection_class=connection_class,
            connect_timeout=request_timeout,
            # The default backs off to ten minutes; a database that is back should be used within a second.
            reconnection_policy=ConstantReconnectionPolicy(delay=1.0, max_attempts=None),
            idle_heartbeat_interval=5,
            idle_heartbeat_timeout=5,
            control_connection_timeout=request_timeout,
            protocol_version=5,
            schema_metadata_enabled=discover,
            token_metadata_enabled=discover,
            execution_profiles={
                EXEC_PROFILE_DEFAULT: ExecutionProfile(
                    load_balancing_policy=TokenAwarePolicy(balancing) if discover else balancing,
                    retry_policy=FallthroughRetryPolicy(),
                    consistency_level=getattr(ConsistencyLevel, consistency),
                    serial_consistency_level=getattr(ConsistencyLevel, endpoint.serial_consistency),
                    request_timeout=request_timeout,
                )
            },
        )
        try:
            return cluster.connect()
        except BaseException as error:
            elsewhere = _datacenters_elsewhere(cluster, endpoint)
            cluster.shutdown()
            if elsewhere and isinstance(error, NoHostAvailable):
                raise FenceDatacenterUnknown(
                    f"no node is in datacenter {endpoint.local_datacenter!r}; the nodes are in {', '.join(elsewhere)}",
                    remedy="correct spec.checkpoint.cassandra.localDatacenter",
                ) from error
            raise


def _addresses(
    endpoint: CassandraEndpoint, permits: Callable[[str, str], bool], *, most: int | None = None
) -> Mapping[str, str]:
    """Return addresses of the contact points, each with its name, in any order.

    With `most`, only so many: each silent one costs a connecting thread its timeout.
    """
    found: dict[str, str] = {}
    failure: OSError | None = None
    names = endpoint.contact_points
    for name in random.sample(names, k=min(len(names), most or len(names))):
        try:
            answers = socket.getaddrinfo(name, endpoint.port, type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:  # ValueError: a name that cannot be one, such as 'a..b'
            failure = OSError(f"{name}: {error}")
            continue
        for *_, address in answers:
            if permits(name, str(address[0])):
                found.setdefault(str(address[0]), name)
    if not found:
        raise failure or PermissionError("no address of the contact points may be dialled")
    return {address: found[address] for address in random.sample(sorted(found), k=min(len(found), most or len(found)))}


def _secured(
    endpoint: CassandraEndpoint, options: CassandraTls, names: Mapping[str, str], material: TlsMaterial | None
) -> tuple[list[NamedEndPoint], dict[str, Any]]:
    """Return the contact points and the cluster's further options for TLS. Raises FenceTlsFailed."""
    if material is None:
        raise FenceTlsFailed("there is no certificate authority", remedy="give spec.checkpoint.cassandra.tls a Secret")
    points = [
        NamedEndPoint(address, endpoint.port, options.server_name or name) for address, name in sorted(names.items())
    ]
    further: dict[str, Any] = {"ssl_context": material.context(options)}
    if options.server_name:
        further["endpoint_factory"] = NamedEndPoints(endpoint.port, options.server_name)
    return points, further


def _datacenters_elsewhere(cluster: Cluster, endpoint: CassandraEndpoint) -> tuple[str, ...]:
    """Return some datacenters of the cluster where none of all is the local one, which makes every node unusable."""
    found = {host.datacenter for host in cluster.metadata.all_hosts() if host.datacenter}
    return () if endpoint.local_datacenter in {None, *found} else tuple(sorted(found)[:MOST_ADDRESSES])


def new_replication(session: Session, *, strategy: str, factor: int | None) -> Mapping[str, str | int]:
    """Return the replication for a keyspace that has to be created. Raises FenceUnavailable, FenceUnauthorized."""
    with translated("counting the nodes"):
        nodes = schema.nodes(session) if factor is None else {}
    return schema.replication(nodes, strategy=strategy, factor=factor)


def create_schema(session: Session, keyspace: str, replication: Mapping[str, str | int]) -> None:
    """Create the keyspace and the fence's tables, and add columns, where Cassandra says that they are missing.

    `replication` is CQL's map.  Concurrent calls for one keyspace can corrupt it: let one thread in at a time.
    Raises FenceUnavailable, FenceUnauthorized, FenceSchemaInvalid.
    """
    with translated(f"creating the schema of keyspace {keyspace}"):
        schema.apply_missing(session, keyspace, replication)


def is_current(session: Session, keyspace: str) -> bool:
    """Return whether nothing has to be added: the schema is of this release, or there is none at all."""
    with translated(f"reading the schema of keyspace {keyspace}"):
        if not schema.columns_of(session, keyspace, schema.FENCE.name):
            return True
        return next(schema.missing_statements(session, keyspace, {}), None) is None


@dataclass(slots=True)
class CassandraFenceTable:
    """Fence rows in one keyspace, through a session made by `connect`; `close` ends the session.

    A table of an older release lacks columns.  What they hold is then neither read nor written, so that a new job image
    works before the operator has migrated the schema.
    """

    session: Session
    keyspace: str
    _prepared: dict[str, Any] = field(default_factory=dict)
    _columns: tuple[str, ...] = ()
    _recorded_last: tuple[FenceRow, datetime] | None = None
    _historian: ThreadPoolExecutor = field(
        # A thread of its own: encoded and sent by the caller's, the history was a tenth of a commit's time.
        default_factory=lambda: ThreadPoolExecutor(max_workers=1, thread_name_prefix="fence-history")
    )

    @classmethod
    def over(cls, session: Session, keyspace: str) -> Self:
        """Return the table of a keyspace; statements are prepared when first used, so the schema may come later."""
        return cls(session=session, keyspace=keyspace)

    @classmethod
    def connect(
        cls,
        endpoint: CassandraEndpoint,
        *,
        keyspace: str,
        credentials: tuple[str, str] | None,
        consistency: str = "LOCAL_QUORUM",
        tls: TlsMaterial | None = None,
    ) -> Self:
        """Connect and return the table; see `connect` for the errors."""
        session = connect(endpoint, credentials=credentials, consistency=consistency, tls=tls)
        return cls.over(session, keyspace)

    def finish_history(self) -> None:
        """Wait until the changes made so far are in the history, or logged as lost."""
        self._historian.submit(lambda: None).result()

    def close(self) -> None:
        """End the session and its connections."""
        self._historian.shutdown()
        self.session.cluster.shutdown()

    def read(self, pipeline: str) -> FenceRow | None:
        """Return the row at the serial level, which settles a change in flight. Raises FenceError."""
        with self._asking("reading the fence row", schema.FENCE):
            columns = ", ".join(self._fence_columns())
            select = self._prepare(f"SELECT {columns} FROM {self._table(schema.FENCE)} WHERE pipeline = ?")
            select.consistency_level = self._serial
            found = self.session.execute(select, (pipeline,)).one()
        return fence_row(found) if found is not None else None

    @property
    def _serial(self) -> int:
        """The level of the session's lightweight transactions: a read at the other one does not settle them."""
        level: int = self.session.get_execution_profile(EXEC_PROFILE_DEFAULT).serial_consistency_level
        return level

    def insert(self, row: FenceRow) -> bool:
        """Insert IF NOT EXISTS."""
        with self._asking("creating the fence row", schema.FENCE):
            columns = self._fence_columns()
            insert = self._prepare(
                f"INSERT INTO {self._table(schema.FENCE)} ({', '.join(columns)}) VALUES ({_marks(columns)})"
                " IF NOT EXISTS"
            )
            applied = bool(self.session.execute(insert, _values(_stored(row), columns)).was_applied)
        if applied:
            self._record(None, row)
        return applied

    def swap(self, before: FenceRow, after: FenceRow) -> bool:
        """Update IF epoch, version and driver are those of `before`; only the columns that differ are sent."""
        with self._asking("changing the fence row", schema.FENCE):
            # A row of the same version has the same columns, and a map of 100 partitions is worth leaving out.
            old, new = _stored(before), _stored(after)
            columns = [name for name in self._fence_columns()[1:] if getattr(old, name) != getattr(new, name)]
            assignments = ", ".join(f"{column} = ?" for column in columns)
            update = self._prepare(
                f"UPDATE {self._table(schema.FENCE)} SET {assignments} WHERE pipeline = ?"
                " IF epoch = ? AND version = ? AND driver = ?"
            )
            values = (*_values(new, columns), before.pipeline, before.epoch, before.version, before.driver)
            applied = bool(self.session.execute(update, values).was_applied)
        if applied:
            self._record(before, after)
        return applied

    def forget(self, pipeline: str) -> None:
        """Delete everything of the pipeline but its row."""
        self.finish_history()
        hours = history_hours()
        for table, extra, values in (
            (schema.CHANGES.name, " AND hour IN ?", (pipeline, hours)),
            (schema.PROGRESS.name, "", (pipeline,)),
            (schema.SNAPSHOTS.name, "", (pipeline,)),
            (schema.LOSSES.name, "", (pipeline,)),
            (schema.ACCEPTED_LOSSES.name, "", (pipeline,)),
        ):
            with translated(f"deleting from {self.keyspace}.{table}"):
                if schema.columns_of(self.session, self.keyspace, table):
                    forget = self._prepare(f'DELETE FROM "{self.keyspace}".{table} WHERE pipeline = ?{extra}')
                    self.session.execute(forget, values)

    def report_progress(self, pipeline: str, *, epoch: int, version: int, done: int) -> None:
        """Record how many records of the batch in progress are finished; the record expires after an hour.

        Raises FenceError; the batch goes on without it.
        """
        with self._asking("reporting the progress of a batch", schema.PROGRESS):
            insert = self._prepare(
                f"INSERT INTO {self._table(schema.PROGRESS)} (pipeline, epoch, version, done, at)"
                f" VALUES (?, ?, ?, ?, toTimestamp(now())) USING TTL {PROGRESS_KEPT}"
            )
            self.session.execute(insert, (pipeline, epoch, version, done))

    def read_progress(self, pipeline: str) -> BatchProgress | None:
        """Return the newest report, None when there is none or its table does not exist yet."""
        try:
            with self._asking("reading the progress of a batch", schema.PROGRESS):
                select = self._prepare(
                    f"SELECT epoch, version, done, at FROM {self._table(schema.PROGRESS)} WHERE pipeline = ?"
                )
                found = self.session.execute(select, (pipeline,)).one()
        except FenceSchemaMissing:
            return None
        if found is None or None in {found.epoch, found.version, found.done, found.at}:
            return None  # a column set to null by hand: there is no report
        return BatchProgress(epoch=found.epoch, version=found.version, done=found.done, at=found.at.replace(tzinfo=UTC))

    def report_loss(self, pipeline: str, report: ReportedLoss) -> None:
        """Insert the loss without the columns of its acceptance, so that one that is there stays."""
        with self._asking("recording a loss", schema.LOSSES):
            values = stored_losses.report_values(pipeline, report)
            insert = self._prepare(
                f"INSERT INTO {self._table(schema.LOSSES)} ({', '.join(values)}) VALUES ({_marks(tuple(values))})"
            )
            self.session.execute(insert, tuple(values.values()))

    def read_losses(self, pipeline: str, committed_ms: int) -> tuple[ReportedLoss, ...]:
        """Return the losses of that commit, none when their table does not exist yet; what is no loss is left out."""
        try:
            with self._asking("reading the losses", schema.LOSSES):
                columns = ", ".join(schema.LOSSES.all_columns)
                select = self._prepare(
                    f"SELECT {columns} FROM {self._table(schema.LOSSES)} WHERE pipeline = ? AND committed_ms = ?"
                    f" LIMIT {MOST_LOSSES}"
                )
                # One page: a Cassandra that a tenant runs could go on with pages forever.
                found = self.session.execute(select, (pipeline, committed_ms)).current_rows[:MOST_LOSSES]
        except FenceSchemaMissing:
            return ()
        reports = (stored_losses.reported_loss(row) for row in found)
        return tuple(report for report in reports if report is not None)

    def accept_loss(self, pipeline: str, loss: Loss, acceptance: Acceptance) -> None:
        """Insert a row for each range, then mark the loss; done again, it is done once.

        The mark is one write, and what a driver reads: the rows before it are too many for one batch.
        """
        with self._asking("recording an acceptance", schema.ACCEPTED_LOSSES):
            found = self._checked(schema.ACCEPTED_LOSSES)
            columns = tuple(name for name in schema.ACCEPTED_LOSSES.all_columns if name in found)
            insert = self._prepare(
                f"INSERT INTO {self._table(schema.ACCEPTED_LOSSES)} ({', '.join(columns)}) VALUES ({_marks(columns)})"
            )
            rows = stored_losses.accepted_rows(pipeline, loss, acceptance)
            execute_concurrent_with_args(
                self.session, insert, [tuple(row[name] for name in columns) for row in rows], concurrency=16
            )
        with self._asking("recording an acceptance", schema.LOSSES):
            mark = self._prepare(
                f"INSERT INTO {self._table(schema.LOSSES)}"
                " (pipeline, committed_ms, id, accepted_by, accepted_at, choice) VALUES (?, ?, ?, ?, ?, ?)"
            )
            key = (pipeline, loss.committed_ms, loss.id)
            self.session.execute(mark, (*key, acceptance.by, acceptance.at, acceptance.choice))

    def server_time(self) -> int:
        """Return the time of a Cassandra node in µs since 1970, as precise as a millisecond."""
        with translated("reading Cassandra's time"):
            select = self._prepare("SELECT toTimestamp(now()) AS now FROM system.local")
            now: datetime = self.session.execute(select, ()).one().now
        return (now.replace(tzinfo=UTC) - _UNIX_EPOCH) // timedelta(microseconds=1)

    def _record(self, before: FenceRow | None, after: FenceRow) -> None:
        """Append an applied change to the history, without waiting: it is for people, no decision reads it."""
        try:
            self._historian.submit(self._append, before, after, datetime.now(UTC))
        except RuntimeError as error:  # the process is ending
            _history_lost(error)  # the change itself is applied, and that is what the caller must hear

    def _append(self, before: FenceRow | None, after: FenceRow, now: datetime) -> None:
        last, self._recorded_last = self._recorded_last, None
        follows = before is not None and last == (before, hour_of(now))
        record = change(before if follows else None, after, now)
        try:
            self._insert_change(after.pipeline, record)
        except Exception as error:  # noqa: BLE001 - nobody waits for this thread's result, so it logs by itself
            _history_lost(error)
        else:
            self._recorded_last = after, hour_of(now)

    def _insert_change(self, pipeline: str, record: Change) -> None:
        """Append to the history, again when Cassandra does not answer: the same row twice is one row."""
        columns = tuple(schema.CHANGES.all_columns)
        values = {name: getattr(record, name) for name in columns if name != "pipeline"}
        # UNSET, not null: a null is a tombstone.
        bound = [values[name] if values[name] not in ({}, None) else UNSET_VALUE for name in columns[1:]]
        text = f"INSERT INTO {self._table(schema.CHANGES)} ({', '.join(columns)}) VALUES ({_marks(columns)})"
        for attempt in range(HISTORY_ATTEMPTS):
            try:
                with translated("appending to the history"):
                    self.session.execute(self._prepare(text), (pipeline, *bound))
            except FenceUnavailable:
                if attempt == HISTORY_ATTEMPTS - 1:
                    raise
                time.sleep(HISTORY_PAUSE)
            else:
                return

    def _fence_columns(self) -> tuple[str, ...]:
        """Return the columns of the fence row that the table has. Raises FenceSchemaMissing, FenceSchemaInvalid."""
        if not self._columns:
            found = self._checked(schema.FENCE)
            self._columns = tuple(name for name in schema.FENCE.all_columns if name in found)
        return self._columns

    def _checked(self, table: schema.Table) -> Mapping[str, str]:
        """Return the columns that a table has now. Raises FenceSchemaMissing, FenceSchemaInvalid."""
        place = f"{self.keyspace}.{table.name}"
        found = schema.columns_of(self.session, self.keyspace, table.name)
        if not found:
            there = schema.has_keyspace(self.session, self.keyspace)
            missing = f"table {place}" if there else f"keyspace {self.keyspace}"
            raise FenceSchemaMissing(f"{missing} does not exist (looking for {place})")
        for name, kind in table.all_columns.items():
            if name not in found and name in table.columns:
                raise FenceSchemaInvalid(f"{place} has no column {name} ({kind})")
            if name in found and found[name] != kind:
                raise FenceSchemaInvalid(f"{place}: column {name} is of type {found[name]}, not {kind}")
        return found

    @contextmanager
    def _asking(self, doing: str, table: schema.Table) -> Iterator[None]:
        """Translate errors; a refused request is a missing table only when Cassandra's schema says so now.

        A node that refuses what the schema has is one that the schema reaches this moment: the request is tried again.
        """
        with translated(doing):
            try:
                yield
            except InvalidRequest as error:
                self._prepared.clear()
                self._columns = ()
                self._checked(table)
                kind = FenceUnavailable if _ABSENT.search(str(error)) else FenceSchemaInvalid
                raise kind(f"{doing} in {self.keyspace}.{table.name}: {error}") from error

    def _table(self, table: schema.Table) -> str:
        return f'"{self.keyspace}".{table.name}'

    def _prepare(self, statement: str) -> Any:  # noqa: ANN401 - the library is untyped
        prepared = self._prepared.get(statement)
        if prepared is None:
            prepared = self._prepared[statement] = self.session.prepare(statement)
        return prepared


def read_changes(session: Session, keyspace: str, pipeline: str) -> Sequence[Change]:
    """Return the history that the table still holds, in any order."""
    return _read_changes(session, keyspace, pipeline, history_hours())


def changes_of_hour(session: Session, keyspace: str, pipeline: str, hour: datetime) -> Sequence[Change]:
    """Return what the history holds of one hour, in any order. Raises FenceError."""
    with translated("reading the history"):
        return _read_changes(session, keyspace, pipeline, [hour])


def _read_changes(session: Session, keyspace: str, pipeline: str, hours: Sequence[datetime]) -> Sequence[Change]:
    columns = tuple(schema.CHANGES.all_columns)[1:]
    select = session.prepare(
        f"SELECT {', '.join(columns)}, WRITETIME(clock) AS written_at"
        f' FROM "{keyspace}".{schema.CHANGES.name} WHERE pipeline = ? AND hour IN ?'
    )
    return [_change(row) for row in session.execute(select, (pipeline, hours))]


def changes_after(
    session: Session, keyspace: str, pipeline: str, hour: datetime, *, epoch: int, version: int, limit: int
) -> Sequence[Change]:
    """Return the first changes of an hour that came after this one, oldest first. Raises FenceError."""
    with translated("reading the history"):
        select = session.prepare(
            f"SELECT {', '.join(tuple(schema.CHANGES.all_columns)[1:])}, WRITETIME(clock) AS written_at"
            f' FROM "{keyspace}".{schema.CHANGES.name} WHERE pipeline = ? AND hour = ?'
            " AND (epoch, version) > (?, ?) ORDER BY epoch ASC, version ASC LIMIT ?"
        )
        return [_change(row) for row in session.execute(select, (pipeline, hour, epoch, version, limit))]


def _history_lost(error: Exception) -> None:
    log.warning("a change of the fence row is missing in the history: %s", error)


def _marks(columns: Sequence[str]) -> str:
    return ", ".join("?" * len(columns))


def _values(row: FenceRow, columns: Sequence[str]) -> tuple[Any, ...]:
    return tuple(dict(value) if isinstance(value, Mapping) else value for value in (getattr(row, c) for c in columns))


def _stored(row: FenceRow) -> FenceRow:
    """Return the row as its columns have it."""
    return replace(row, leader_epochs=sealed(row.leader_epochs, row.offsets, row.topic_ids))


def _change(found: Any) -> Change:  # noqa: ANN401 - a driver's named tuple
    values = {name: getattr(found, name) for name in (*schema.CHANGES.all_columns, "written_at") if name != "pipeline"}
    for name in MAPS:
        values[name] = dict(values[name].items()) if values[name] else {}
    for name in ("hour", "committed_at"):
        values[name] = _in_utc(values[name])
    return Change(**{**values, "base": bool(values["base"]), "committed": bool(values["committed"])})


def _in_utc(moment: datetime | None) -> datetime | None:
    return moment.replace(tzinfo=UTC) if moment else None


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn the driver's errors into the fence's; anything that is no refusal is an unknown outcome."""
    try:
        yield
    except AuthenticationFailed as error:
        raise FenceCredentialsRejected(f"{doing}: {error}") from error
    except Unauthorized as error:
        raise FenceUnauthorized(f"{doing}: {error}") from error
    except (InvalidRequest, ConfigurationException) as error:
        raise FenceSchemaInvalid(f"{doing}: {error}") from error
    except NoHostAvailable as error:
        causes = tuple(error.errors.values()) if isinstance(error.errors, Mapping) else tuple(error.errors)
        if any(isinstance(cause, AuthenticationFailed) for cause in causes):
            raise FenceCredentialsRejected(f"{doing}: {causes[0]}") from error
        if failed := tls_failure(doing, causes):
            raise failed from error
        raise FenceUnavailable(f"{doing}: {error}") from error
    except (*UNANSWERED, OSError) as error:
        raise FenceUnavailable(f"{doing}: {error}") from error
