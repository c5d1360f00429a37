"""The fence table in Cassandra: lightweight transactions and SERIAL reads, nothing else touches the row.

The driver's default retry policy repeats a request on another host, whatever it was; a repeated conditional update
would report 'not applied' for a change that was.  So: FallthroughRetryPolicy, no speculative execution, and every error
of a conditional statement is an unknown outcome for `Fence` to settle.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
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
from cassandra.connection import ConnectionException
from cassandra.policies import (
    ConstantReconnectionPolicy,
    DCAwareRoundRobinPolicy,
    FallthroughRetryPolicy,
    LoadBalancingPolicy,
    RoundRobinPolicy,
    TokenAwarePolicy,
)
from cassandra.protocol import ErrorMessage

from fencepost.contract import CassandraEndpoint
from fencepost.fence import (
    BatchProgress,
    FenceCredentialsRejected,
    FenceRow,
    FenceSchemaMissing,
    FenceUnavailable,
)

log = logging.getLogger(__name__)

HISTORY_DAYS: Final = 7
"""Days that `fence_history` keeps a change; each day of a pipeline is a partition of its own."""

UNANSWERED: Final = (DriverException, NoHostAvailable, ConnectionException, ErrorMessage)
"""What the driver raises for a request whose outcome is open; catch its refusals first, they are DriverExceptions too.

ConnectionException: the connection died in flight.  ErrorMessage: an answer that the driver has no exception for, as
overloaded, bootstrapping, server error and CAS_WRITE_UNKNOWN.
"""

_COLUMNS: Final = (
    "pipeline",
    "owner",
    "epoch",
    "driver",
    "version",
    "clock",
    "offsets",
    "planned",
    "topic_ids",
    "code",
    "committed_at",
    "records",
    "duration_ms",
)

_COLUMN_TYPES: Final = """owner text, epoch bigint, driver text, clock bigint,
    offsets frozen<map<text, bigint>>, planned frozen<map<text, bigint>>, topic_ids frozen<map<text, text>>,
    code text, committed_at timestamp, records bigint, duration_ms bigint"""

_TABLES: Final = (
    f"fence (pipeline text PRIMARY KEY, version bigint, {_COLUMN_TYPES})",
    (
        f"fence_history (pipeline text, day date, version bigint, {_COLUMN_TYPES},"
        " PRIMARY KEY ((pipeline, day), epoch, version)) WITH CLUSTERING ORDER BY (epoch DESC, version DESC)"
        f" AND default_time_to_live = {HISTORY_DAYS * 24 * 3600}"
        " AND compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'DAYS',"
        " 'compaction_window_size': '1'}"
    ),
    "fence_progress (pipeline text PRIMARY KEY, epoch bigint, version bigint, done bigint)",
    (
        "snapshots (pipeline text, id timeuuid, reason text, epoch bigint, version bigint,"
        " offsets frozen<map<text, bigint>>, topic_ids frozen<map<text, text>>, PRIMARY KEY (pipeline, id))"
        " WITH CLUSTERING ORDER BY (id DESC)"
    ),
    (
        "dead_letters (pipeline text, topic text, partition int, offset bigint, epoch bigint, error text,"
        " key blob, value blob, at timestamp, PRIMARY KEY ((pipeline, topic, partition), offset))"
    ),
    (
        "accepted_losses (pipeline text, topic text, partition int, from_offset bigint, until_offset bigint,"
        " accepted_by text, at timestamp, PRIMARY KEY (pipeline, topic, partition, from_offset))"
    ),
)


def connect(
    endpoint: CassandraEndpoint,
    *,
    credentials: tuple[str, str] | None,
    request_timeout: float = 5.0,
    consistency: str = "LOCAL_QUORUM",
) -> Session:
    """Return a session whose requests are tried once. Times in seconds.

    Raises FenceUnavailable when no contact point answers, FenceCredentialsRejected when the user is refused.
    """
    balancing: LoadBalancingPolicy = (
        DCAwareRoundRobinPolicy(local_dc=endpoint.local_datacenter) if endpoint.local_datacenter else RoundRobinPolicy()
    )
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(balancing),
        retry_policy=FallthroughRetryPolicy(),
        consistency_level=getattr(ConsistencyLevel, consistency),
        serial_consistency_level=ConsistencyLevel.SERIAL,
        request_timeout=request_timeout,
    )
    with _translated(f"cassandra at {endpoint.address}"):
        cluster = Cluster(  # resolves the contact points, and raises when none has an address
            contact_points=list(endpoint.contact_points),
            port=endpoint.port,
            auth_provider=PlainTextAuthProvider(*credentials) if credentials else None,
            connect_timeout=request_timeout,
            # The default backs off to ten minutes; a database that is back should be used within a second.
            reconnection_policy=ConstantReconnectionPolicy(delay=1.0, max_attempts=None),
            idle_heartbeat_interval=5,
            idle_heartbeat_timeout=5,
            control_connection_timeout=request_timeout,
            protocol_version=5,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        )
        try:
            return cluster.connect()
        except BaseException:
            cluster.shutdown()
            raise


def create_schema(session: Session, keyspace: str, replication: Mapping[str, str | int]) -> None:
    """Make the keyspace and the fence's tables unless they are there. `replication` is CQL's map."""
    options = ", ".join(f"'{key}': '{value}'" for key, value in replication.items())
    with _translated(f"the schema of keyspace {keyspace}"):
        session.execute(f'CREATE KEYSPACE IF NOT EXISTS "{keyspace}" WITH replication = {{{options}}}')
        for statement in table_statements(f'"{keyspace}"'):
            session.execute(statement)


def table_statements(keyspace: str) -> list[str]:
    """Return the CQL that makes the fence's tables in a keyspace, which is named as CQL writes it."""
    return [f"CREATE TABLE IF NOT EXISTS {keyspace}.{table}" for table in _TABLES]


@dataclass(slots=True)
class CassandraFenceTable:
    """Fence rows in one keyspace, through a session made by `connect`; `close` ends the session."""

    session: Session
    keyspace: str
    _prepared: dict[str, Any] = field(default_factory=dict)
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
    ) -> Self:
        """Connect and return the table; see `connect` for the errors."""
        session = connect(endpoint, credentials=credentials, consistency=consistency)
        return cls.over(session, keyspace)

    def finish_history(self) -> None:
        """Wait until the changes made so far are in the history, or told as lost."""
        self._historian.submit(lambda: None).result()

    def close(self) -> None:
        """End the session and its connections."""
        self._historian.shutdown()
        self.session.cluster.shutdown()

    def read(self, pipeline: str) -> FenceRow | None:
        """Return the row at SERIAL, which settles a change in flight."""
        columns = ", ".join(_COLUMNS)
        with _translated("reading the fence row"):
            select = self._prepare(f"SELECT {columns} FROM {self._table('fence')} WHERE pipeline = ?")
            select.consistency_level = ConsistencyLevel.SERIAL
            found = self.session.execute(select, (pipeline,)).one()
        return _row(found) if found is not None else None

    def insert(self, row: FenceRow) -> bool:
        """Insert IF NOT EXISTS."""
        marks = ", ".join("?" * len(_COLUMNS))
        with _translated("creating the fence row"):
            insert = self._prepare(
                f"INSERT INTO {self._table('fence')} ({', '.join(_COLUMNS)}) VALUES ({marks}) IF NOT EXISTS"
            )
            applied = self.session.execute(insert, _values(row)).was_applied
        return self._recorded(row, applied=applied)

    def swap(self, before: FenceRow, after: FenceRow) -> bool:
        """Update IF epoch, version and driver are those of `before`."""
        assignments = ", ".join(f"{column} = ?" for column in _COLUMNS[1:])
        with _translated("changing the fence row"):
            update = self._prepare(
                f"UPDATE {self._table('fence')} SET {assignments} WHERE pipeline = ?"
                " IF epoch = ? AND version = ? AND driver = ?"
            )
            values = (*_values(after)[1:], before.pipeline, before.epoch, before.version, before.driver)
            applied = self.session.execute(update, values).was_applied
        return self._recorded(after, applied=applied)

    def forget(self, pipeline: str) -> None:
        """Delete the history, snapshots, accepted losses and progress."""
        self.finish_history()
        with _translated("deleting what belongs to the fence row"):
            delete = self._prepare(f"DELETE FROM {self._table('fence_history')} WHERE pipeline = ? AND day IN ?")
            self.session.execute(delete, (pipeline, history_days()))
            for table in ("snapshots", "accepted_losses", "fence_progress"):
                delete = self._prepare(f"DELETE FROM {self._table(table)} WHERE pipeline = ?")
                self.session.execute(delete, (pipeline,))

    def report_progress(self, progress: BatchProgress) -> None:
        """Overwrite the progress: a plain write, to a table that no conditional update touches."""
        columns = ("pipeline", "epoch", "version", "done")
        with _translated("reporting progress"):
            insert = self._prepare(
                f"INSERT INTO {self._table('fence_progress')} ({', '.join(columns)}) VALUES (?, ?, ?, ?)"
            )
            self.session.execute(insert, tuple(getattr(progress, column) for column in columns))

    def server_time(self) -> int:
        """Return the coordinator's time, to a millisecond."""
        with _translated("reading Cassandra's time"):
            select = self._prepare("SELECT toUnixTimestamp(now()) AS now FROM system.local")
            return int(self.session.execute(select, ()).one().now) * 1000

    def _recorded(self, row: FenceRow, *, applied: bool) -> bool:
        """Append an applied change to the history, without waiting: it is for people, no decision reads it."""
        if applied:
            try:
                self._historian.submit(self._append, row, datetime.now(UTC).date())
            except RuntimeError as error:  # the process is ending
                _history_lost(error)  # the change itself is applied, and that is what the caller must hear
        return bool(applied)

    def _append(self, row: FenceRow, day: date) -> None:
        marks = ", ".join("?" * len(_COLUMNS))
        statement = f"INSERT INTO {self._table('fence_history')} (day, {', '.join(_COLUMNS)}) VALUES (?, {marks})"
        try:
            self.session.execute(self._prepare(statement), (day, *_values(row)))
        except Exception as error:  # noqa: BLE001 - nobody waits for this thread's result, so it tells by itself
            _history_lost(error)

    def _table(self, name: str) -> str:
        return f'"{self.keyspace}".{name}'

    def _prepare(self, statement: str) -> Any:  # noqa: ANN401 - the library is untyped
        if statement not in self._prepared:
            self._prepared[statement] = self.session.prepare(statement)
        return self._prepared[statement]


def history_days() -> list[date]:
    """Return every day, in UTC, of which `fence_history` may still hold changes, the newest first."""
    today = datetime.now(UTC).date()
    return [today - timedelta(days=ago) for ago in range(HISTORY_DAYS + 1)]


def _history_lost(error: Exception) -> None:
    log.warning("a change of the fence row is missing in fence_history: %s", error)


def _values(row: FenceRow) -> tuple[Any, ...]:
    return tuple(dict(value) if isinstance(value, Mapping) else value for value in (getattr(row, c) for c in _COLUMNS))


def _row(found: Any) -> FenceRow:  # noqa: ANN401 - a driver's named tuple
    values = {column: getattr(found, column) for column in _COLUMNS}
    for column in ("offsets", "planned", "topic_ids"):
        values[column] = dict(values[column].items()) if values[column] else {}
    committed: datetime | None = values["committed_at"]
    values["committed_at"] = committed.replace(tzinfo=UTC) if committed else None
    return FenceRow(**values)


@contextmanager
def _translated(doing: str) -> Iterator[None]:
    """Turn the driver's errors into the fence's; anything that is no refusal is an unknown outcome."""
    try:
        yield
    except (AuthenticationFailed, Unauthorized) as error:
        raise FenceCredentialsRejected(f"{doing}: {error}") from error
    except InvalidRequest as error:
        raise FenceSchemaMissing(f"{doing}: {error}") from error
    except NoHostAvailable as error:
        causes = tuple(error.errors.values()) if isinstance(error.errors, Mapping) else tuple(error.errors)
        if any(isinstance(cause, AuthenticationFailed) for cause in causes):
            raise FenceCredentialsRejected(f"{doing}: {causes[0]}") from error
        raise FenceUnavailable(f"{doing}: {error}") from error
    except (*UNANSWERED, OSError) as error:
        raise FenceUnavailable(f"{doing}: {error}") from error
