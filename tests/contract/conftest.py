"""What the suites share: one session with the testbed's Cassandra."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cassandra.cluster import Session

from contract.cassandra import open_session


@pytest.fixture(scope="package")
def session() -> Iterator[Session]:
    session = open_session()
    yield session
    session.cluster.shutdown()
