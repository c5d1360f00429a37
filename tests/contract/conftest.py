"""What the suites share: one session with the testbed's Cassandra, and the two tables of fence rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cassandra.cluster import Session

from contract.cassandra import open_session
from fencepost.fence.cassandra.table import CassandraFenceTable, create_schema
from fencepost.fence.memory import MemoryFenceTable
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


@pytest.fixture(params=["memory", pytest.param("cassandra", marks=pytest.mark.integration)])
def table(request: pytest.FixtureRequest) -> FenceTable:
    """Return each table in turn: what holds of one holds of the other."""
    if request.param == "memory":
        return MemoryFenceTable()
    found: CassandraFenceTable = request.getfixturevalue("cassandra")
    return found
