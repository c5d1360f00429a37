"""A PostgreSQL of the test session's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from postgresql_server import running


@pytest.fixture(scope="session")
def postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its dsn; it listens on a Unix socket alone."""
    with running(tmp_path_factory.mktemp("install") / "log", fsync="off") as server:
        yield server.dsn
