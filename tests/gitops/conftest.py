"""What the tests of alerts and GitOps stand on: the testbed, and a namespace and keyspaces of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.places import prepared
from harness.kubectl import Kubectl
from harness.pipelines import Place
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
