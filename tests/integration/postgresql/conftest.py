"""A PostgreSQL of the test session's own, and a Spark session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from fencepost.spark import session
from integration.postgresql.batches_beside import RETRYING
from postgresql_server import running
from unit.spark.conftest import connect_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its dsn; it listens on a Unix socket alone."""
    with running(tmp_path_factory.mktemp("install") / "log", fsync="off") as server:
        yield server.dsn


@pytest.fixture
def spark() -> Iterator[SparkSession]:
    """A session whose tasks are tried three times."""
    connect_jvm()
    found = session.create(session.settings(RETRYING, {}))
    found.sparkContext.setLogLevel("OFF")
    yield found
    found.stop()
