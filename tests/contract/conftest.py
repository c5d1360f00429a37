"""What the suites share: one session with the testbed's Cassandra, and the tables of fence rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cassandra.cluster import Session

from contract.cassandra import open_session
from fencepost.fence.cassandra.table import CassandraFenceTable, create_schema
from fencepost.fence.memory import MemoryFenceTable
from fencepost.fence.sqlite.database import Database
from fencepost.fence.sqlite.table import SCHEMA, SqliteFenceTable
from fencepost.fence.table import FenceTable


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


@pytest.fixture(params=["memory", "sqlite", pytest.param("cassandra", marks=pytest.mark.integration)])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FenceTable]:
    """Return each table in turn: what holds of one holds of the others."""
    match request.param:
        case "memory":
            yield MemoryFenceTable()
        case "sqlite":
            with closing(Database(tmp_path / "fence.sqlite", SCHEMA)) as database:
                yield SqliteFenceTable(database)
        case _:
            yield request.getfixturevalue("cassandra")
