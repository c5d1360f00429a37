"""Reading a sink's table whole, and running the examples' schemas."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from cassandra import ConsistencyLevel
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, Session
from cassandra.policies import RoundRobinPolicy

from fencepost_cli.stores.cassandra import scan

TIMEOUT_SECONDS: Final = 60.0


class CassandraDownError(OSError):
    """No session could be opened."""


@dataclass(frozen=True, slots=True)
class CassandraAddress:
    """Where a Cassandra answers, and who asks."""

    host: str
    port: int
    username: str
    password: str


@dataclass(frozen=True, slots=True)
class Table:
    """A sink's table."""

    keyspace: str
    name: str

    def __str__(self) -> str:
        return f"{self.keyspace}.{self.name}"


@contextmanager
def session(address: CassandraAddress) -> Iterator[Any]:
    """A session of the Cassandra driver whose rows have attributes, closed at the end. Raises CassandraDownError."""
    cluster = Cluster(
        [address.host],
        port=address.port,
        auth_provider=PlainTextAuthProvider(address.username, address.password),
        connect_timeout=10,
        protocol_version=5,
        execution_profiles={
            EXEC_PROFILE_DEFAULT: ExecutionProfile(
                load_balancing_policy=RoundRobinPolicy(),
                consistency_level=ConsistencyLevel.LOCAL_QUORUM,
                request_timeout=TIMEOUT_SECONDS,
            ),
        },
    )
    try:
        try:
            opened = cluster.connect()
        except NoHostAvailable as error:
            raise CassandraDownError(f"Cassandra at {address.host}:{address.port} does not answer: {error}") from error
        yield opened
    finally:
        cluster.shutdown()


def rows(open_session: Session, table: Table, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Every row of the table as a tuple of these columns (or functions of them, such as WRITETIME(id))."""
    known = open_session.cluster.metadata.keyspaces[table.keyspace].tables[table.name]
    key = [column.name for column in known.partition_key]
    yield from scan(open_session, str(table), key, columns)


def run_script(open_session: Session, text: str) -> None:
    """Run the statements of a .cql file: ended by semicolons, comments from -- to the end of the line."""
    for statement in statements(text):
        open_session.execute(statement)


def statements(text: str) -> list[str]:
    """Cut a .cql file into its statements. The examples' files have no semicolon and no -- inside a literal."""
    bare = "\n".join(line.partition("--")[0] for line in text.splitlines())
    return [statement.strip() for statement in bare.split(";") if statement.strip()]
