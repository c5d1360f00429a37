"""What the tests of alerts and GitOps stand on: the testbed, and a namespace and keyspaces of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.places import prepared
from e2e.stream import Stream, create_table
from flights.topics import Topics
from gitops.repository import PIPELINE
from harness.kubernetes.kubectl import Kubectl
from harness.load import Load
from harness.pipelines import Pipeline, Place
from testbed.environment import Environment, load


@pytest.fixture(scope="session")
def environment() -> Environment:
    """Return the testbed that is up; without one there is nothing to test."""
    return load()


@pytest.fixture(scope="module")
def place(environment: Environment) -> Iterator[Place]:
    """Return a namespace and keyspaces of the module's own."""
    with prepared(environment, "gitops", waits=False) as made:
        yield made


@pytest.fixture(scope="module")
def kubectl(place: Place) -> Kubectl:
    """Return kubectl for the module's namespace."""
    return Kubectl.of(place.environment, place.namespace)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for the data and logs of programs."""
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="module")
def stream(place: Place, kubectl: Kubectl) -> Iterator[Stream]:
    """The example's pipeline over a topic and a table of its own, not applied yet; a module's tests share it."""
    bootstrap = place.environment.kafka_host
    topic = f"{place.namespace}-{PIPELINE}"
    loaded = Load.to(bootstrap, topic)
    create_table(place, PIPELINE)
    yield Stream(place=place, pipeline=Pipeline(kubectl, PIPELINE), load=loaded, table=PIPELINE)
    Topics(bootstrap).delete(topic)
