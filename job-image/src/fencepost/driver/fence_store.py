"""The fence of a run, and what the run keeps beside it, in whichever database the spec names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fencepost.contract import ContractError, DriverConfig
from fencepost.driver.environment import Environment
from fencepost.fence import Fenced, FenceRow
from fencepost.fence.patience import Patience

if TYPE_CHECKING:
    from cassandra.cluster import Session

    from fencepost.fence.cassandra.table import CassandraFenceTable
    from fencepost.fence.letters import DeadLetter
    from fencepost.fence.postgresql.table import PostgresqlFenceTable
    from fencepost.fence.table import FenceTable
    from fencepost.fence.tls import TlsMaterial


class FenceStore(Protocol):
    """One database. Methods raise FenceError."""

    @property
    def table(self) -> FenceTable:
        """The table of fence rows."""
        ...

    @property
    def cassandra(self) -> Session | None:
        """The session for sinks and states; None where the fence is not in Cassandra."""
        ...

    @property
    def postgresql(self) -> PostgresqlFenceTable | None:
        """The table that commits rows of sinks with the fence; None where the fence is not in PostgreSQL."""
        ...

    def require_output_token(self) -> None:
        """Raise FenceSchemaInvalid where the row cannot keep the token of the last commit."""
        ...

    def left_out(self, topic_ids: Mapping[str, str]) -> Mapping[str, frozenset[tuple[int, int]]]:
        """Return the records to leave out: offsets and leader epochs by 'topic/partition', of topics with these ids."""
        ...

    def write_letter(self, one: DeadLetter, row: FenceRow, *, retention: float) -> None:
        """Write a dead letter of the batch after `row`, to expire after `retention` seconds."""
        ...

    def remove_letters(self, row: FenceRow) -> None:
        """Remove the letters of what the run that has claimed `row` reads again."""
        ...

    def finish_history(self) -> None:
        """Wait until the history has the last change."""
        ...


def open_store(config: DriverConfig, environment: Environment) -> FenceStore:
    """Connect to the database of the fence. Raises FenceError, ContractError."""
    return _in_postgresql(config, environment) if config.postgresql is not None else _in_cassandra(config, environment)


def open_cassandra(config: DriverConfig, environment: Environment, *, request_timeout: float) -> Session:
    """Return a session with the run's Cassandra; `request_timeout` is in seconds. Raises FenceError, ContractError."""
    from fencepost.fence.cassandra.session import connect  # noqa: PLC0415 - a run has one of the two clients

    return connect(
        config.cluster,
        credentials=environment.credentials,
        request_timeout=request_timeout,
        consistency=config.consistency,
        tls=fence_tls(config, environment),
    )


def fence_tls(config: DriverConfig, environment: Environment) -> TlsMaterial | None:
    """Return what the pod mounts for the fence's database, None without TLS. Raises FenceTlsFailed naming the key."""
    from fencepost.fence import tls  # noqa: PLC0415

    if config.cassandra is not None and config.cassandra.tls is not None:
        return tls.of_folder(environment.cassandra_tls)
    if config.postgresql is not None and config.postgresql.tls is not None:
        return tls.of_folder(environment.postgresql_tls, tls.POSTGRESQL_PLACE)
    return None


def cassandra_of(store: FenceStore) -> Session:
    """Return the session of what only Cassandra keeps. Raises ContractError without one."""
    if store.cassandra is None:
        raise ContractError("a state needs a fence in Cassandra, where its files are")
    return store.cassandra


def _in_cassandra(config: DriverConfig, environment: Environment) -> FenceStore:
    from fencepost.fence.cassandra.table import CassandraFenceTable  # noqa: PLC0415

    table = CassandraFenceTable.connect(
        config.cluster,
        keyspace=config.fence_keyspace,
        credentials=environment.credentials,
        consistency=config.consistency,
        tls=fence_tls(config, environment),
    )
    return CassandraStore(table, config)


def _in_postgresql(config: DriverConfig, environment: Environment) -> FenceStore:
    from fencepost.fence.postgresql.session import Session  # noqa: PLC0415 - a run has one of the two clients
    from fencepost.fence.postgresql.table import PostgresqlFenceTable  # noqa: PLC0415

    if config.postgresql is None:
        raise ContractError("the configuration has no `postgresql`")
    session = Session(
        config.postgresql,
        credentials=environment.credentials or ("", ""),
        tls=fence_tls(config, environment),
    )
    session.open()
    return PostgresqlStore(PostgresqlFenceTable(session, config.fence_keyspace), config)


@dataclass(frozen=True, slots=True)
class CassandraStore:
    """A keyspace of Cassandra."""

    table: CassandraFenceTable
    config: DriverConfig
    postgresql: None = None

    @property
    def cassandra(self) -> Session:
        """Its session."""
        return self.table.session

    def require_output_token(self) -> None:
        """Raise FenceSchemaInvalid for a table of an older release."""
        self.table.require("output_token")

    def left_out(self, topic_ids: Mapping[str, str]) -> Mapping[str, frozenset[tuple[int, int]]]:
        """Read them at a quorum."""
        from fencepost.fence.cassandra.left_out import LeftOutRecords  # noqa: PLC0415 - the client is there by now

        records = LeftOutRecords(self.cassandra, self.table.keyspace, self.config.pipeline)
        return Patience(self.config.patience).ask(lambda: records.of_topics(topic_ids))

    def write_letter(self, one: DeadLetter, row: FenceRow, *, retention: float) -> None:
        """Write at the batch's write timestamp."""
        from fencepost.fence.cassandra.dead_letters import DeadLetters  # noqa: PLC0415

        config = self.config
        DeadLetters(self.cassandra, self.table.keyspace, config.pipeline).write(
            one,
            write_timestamp=row.write_timestamp,
            retention=retention,
            consistency=config.consistency,
            patience=config.patience,
        )

    def remove_letters(self, row: FenceRow) -> None:
        """Delete after each timestamp of an earlier epoch, and before each of this one."""
        from fencepost.fence.cassandra.dead_letters import DeadLetters  # noqa: PLC0415

        config = self.config
        DeadLetters(self.cassandra, self.table.keyspace, config.pipeline).remove_from(
            row.offsets,
            row.topic_ids,
            write_timestamp=row.clock,
            consistency=config.consistency,
            patience=config.patience,
        )

    def finish_history(self) -> None:
        """Wait for the write in flight."""
        self.table.finish_history()


@dataclass(frozen=True, slots=True)
class PostgresqlStore:
    """A schema of PostgreSQL."""

    table: PostgresqlFenceTable
    config: DriverConfig
    cassandra: None = None

    @property
    def postgresql(self) -> PostgresqlFenceTable:
        """Its table."""
        return self.table

    def require_output_token(self) -> None:
        """Return: each table has the column."""

    def left_out(self, topic_ids: Mapping[str, str]) -> Mapping[str, frozenset[tuple[int, int]]]:
        """Read them."""
        from fencepost.fence.postgresql.left_out import LeftOutRecords  # noqa: PLC0415 - the client is there by now

        records = LeftOutRecords(self.table.session, self.table.schema, self.config.pipeline)
        return Patience(self.config.patience).ask(lambda: records.of_topics(topic_ids))

    def write_letter(self, one: DeadLetter, row: FenceRow, *, retention: float) -> None:
        """Write while the fence row has the letter's epoch. Raises Fenced otherwise."""
        from fencepost.fence.postgresql.dead_letters import DeadLetters  # noqa: PLC0415

        letters = DeadLetters(self.table.session, self.table.schema, self.config.pipeline)
        self._held(row, lambda: letters.write(one, retention=retention))

    def remove_letters(self, row: FenceRow) -> None:
        """Remove while the fence row has this epoch. Raises Fenced otherwise."""
        from fencepost.fence.postgresql.dead_letters import DeadLetters  # noqa: PLC0415

        letters = DeadLetters(self.table.session, self.table.schema, self.config.pipeline)
        self._held(row, lambda: letters.remove_from(row.offsets, row.topic_ids, epoch=row.epoch))

    def finish_history(self) -> None:
        """Return: the history has each change already."""

    def _held(self, row: FenceRow, change: Callable[[], bool]) -> None:
        asking = Patience(self.config.patience)
        if not asking.ask(change):
            seen = asking.ask(lambda: self.table.read(self.config.pipeline))
            raise Fenced(f"epoch {row.epoch} of {self.config.pipeline} is over", seen=seen)
