"""What the suites share: one session with the testbed's Cassandra, and the tables of fence rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cassandra.cluster import Session

from contract.cassandra import open_session
from contract.postgresql import session_with
from fencepost.fence.cassandra.table import CassandraFenceTable, create_schema
from fencepost.fence.memory import MemoryFenceTable
from fencepost.fence.postgresql.schema import create_schema as create_tables
from fencepost.fence.postgresql.session import Session as PostgresqlSession
from fencepost.fence.postgresql.table import PostgresqlFenceTable
from fencepost.fence.sqlite.database import Database
from fencepost.fence.sqlite.table import SCHEMA, SqliteFenceTable
from fencepost.fence.table import FenceTable
from postgresql_server import Server, free_port, running

POSTGRESQL_SCHEMA = "fencepost"


@pytest.fixture(scope="package")
def session() -> Iterator[Session]:
    session = open_session()
    yield session
    session.cluster.shutdown()


@pytest.fixture(scope="module")
def cassandra(request: pytest.FixtureRequest, session: Session) -> Iterator[CassandraFenceTable]:
    """Return the real table, in the keyspace that the module names."""
    keyspace: str = request.module.KEYSPACE
    create_schema(session, keyspace, {"class": "SimpleStrategy", "replication_factor": 1})
    table = CassandraFenceTable.over(session, keyspace)
    yield table
    table.finish_history()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a PostgreSQL of the test session's own."""
    with running(tmp_path_factory.mktemp("postgresql") / "log", port=free_port()) as found:
        yield found


@pytest.fixture(scope="session")
def postgresql_session(server: Server) -> Iterator[PostgresqlSession]:
    with closing(session_with(server)) as session:
        create_tables(session, POSTGRESQL_SCHEMA)
        yield session


@pytest.fixture
def postgresql(postgresql_session: PostgresqlSession) -> PostgresqlFenceTable:
    """Return the real table, in a schema of this session's."""
    return PostgresqlFenceTable(postgresql_session, POSTGRESQL_SCHEMA)


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        *(pytest.param(name, marks=pytest.mark.integration) for name in ("cassandra", "postgresql")),
    ]
)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FenceTable]:
    """Return each table in turn: what holds of one holds of the others."""
    match request.param:
        case "memory":
            yield MemoryFenceTable()
        case "sqlite":
            with closing(Database(tmp_path / "fence.sqlite", SCHEMA)) as database:
                yield SqliteFenceTable(database)
        case name:
            yield request.getfixturevalue(name)
