"""The testbed's Kafka, and brokers of a test's own where it needs some that crash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.kafka import reader
from integration.kafka.brokers import Cluster
from testbed.environment import Environment, load


@pytest.fixture(scope="session")
def environment() -> Environment:
    return load()


@pytest.fixture
def cluster(environment: Environment, tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Start brokers: `cluster(2)`."""
    started: list[Cluster] = []

    def start(count: int = 1, **properties: Any) -> Cluster:
        started.append(Cluster.start(str(environment.docker), tmp_path / f"kafka-{len(started)}", count, **properties))
        return started[-1]

    yield start
    for one in started:
        one.remove()


@pytest.fixture(autouse=True)
def _consumers_end() -> Iterator[None]:
    """The reader keeps its consumers from batch to batch, and one with a wrong password tries forever."""
    yield
    reader._clients.clear()
    reader._topic_ids.clear()
