"""Real Kafka and Cassandra of the testbed; local Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cassandra.cluster import Session

from integration.driver.support import Pipeline, make, open_session
from integration.postgresql.conftest import postgresql
from testbed.environment import Environment, load
from unit.spark.conftest import spark

__all__ = ["postgresql", "spark"]


@pytest.fixture(scope="session")
def environment() -> Environment:
    return load()


@pytest.fixture(scope="session")
def session(environment: Environment) -> Iterator[Session]:
    session = open_session(environment)
    yield session
    session.cluster.shutdown()


@pytest.fixture
def pipeline(environment: Environment, session: Session, tmp_path: Path) -> Iterator[Callable[..., Pipeline]]:
    """Make pipelines; their runs are ended and their topics and tables dropped afterwards."""
    made: list[Pipeline] = []

    def build(**source: Any) -> Pipeline:
        made.append(make(environment, session, tmp_path, **source))
        return made[-1]

    yield build
    for one in made:
        for run in one.runs:
            run.end()
        session.execute(f"DROP TABLE IF EXISTS driver_tests.{one.topic}", timeout=30)
        one.kafka.admin.delete_topics([one.topic])
