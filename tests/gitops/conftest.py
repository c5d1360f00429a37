"""What the tests of alerts and GitOps stand on: the testbed, and a namespace and keyspaces of their own."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.stream import cassandra
from harness.kubectl import Kubectl
from harness.pipelines import KIND, SECRET, Place, code
from testbed.dataservices import restricted_namespace
from testbed.environment import Environment, load


@pytest.fixture(scope="session")
def environment() -> Environment:
    """Return the testbed that is up; without one there is nothing to test."""
    return load()


@pytest.fixture(scope="module")
def place(environment: Environment) -> Iterator[Place]:
    """Make a namespace that enforces Pod Security `restricted`, with the credentials and the example's code in it."""
    mark = secrets.token_hex(3)
    made = Place(
        environment=environment, namespace=f"gitops-{mark}", tables=f"gitops_{mark}_t", fences=f"gitops_{mark}_f"
    )
    kubectl = Kubectl.of(environment, made.namespace)
    kubectl.run("apply", "--filename=-", text=restricted_namespace(made.namespace))
    account = {"username": environment.cassandra_username, "password": environment.cassandra_password}
    kubectl.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "stringData": account}, code())
    yield made
    # The pipelines first: a namespace that ends takes the Secrets with it that their clean-up needs.
    kubectl.run("delete", KIND, "--all", "--timeout=90s", seconds=100)
    kubectl.run("delete", "namespace", made.namespace, "--wait=false")
    with cassandra(made) as opened:
        for keyspace in (made.tables, made.fences):
            opened.execute(f"DROP KEYSPACE IF EXISTS {keyspace}")


@pytest.fixture(scope="module")
def kubectl(place: Place) -> Kubectl:
    """Return kubectl for the module's namespace."""
    return Kubectl.of(place.environment, place.namespace)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for the data and logs of programs."""
    return tmp_path_factory.mktemp("programs")
