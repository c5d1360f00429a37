"""A namespace for pipelines, with keyspaces of tables and of fences: made for a suite, and gone after it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from e2e.stream import cassandra
from harness.kubernetes.kubectl import Kubectl
from harness.pipelines import KIND, SECRET, Place, code
from testbed.environment import Environment
from testbed.services.kafka_and_cassandra import restricted_namespace


@contextmanager
def prepared(environment: Environment, suite: str, *, waits: bool) -> Iterator[Place]:
    """Make a namespace that enforces Pod Security `restricted`, with the credentials and the example's code in it.

    `waits` until the namespace is gone.
    """
    mark = f"{suite}-{secrets.token_hex(3)}"
    keyspaces = mark.replace("-", "_")
    made = Place(environment=environment, namespace=mark, tables=f"{keyspaces}_tables", fences=f"{keyspaces}_fences")
    kubectl = Kubectl.of(environment, made.namespace)
    kubectl.run("apply", "--filename=-", text=restricted_namespace(made.namespace))
    account = {"username": environment.cassandra_username, "password": environment.cassandra_password}
    kubectl.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "stringData": account}, code())
    yield made
    # The pipelines first: a namespace that ends takes the Secrets with it that their clean-up needs.
    kubectl.run("delete", KIND, "--all", "--timeout=90s", seconds=100)
    kubectl.run("delete", "namespace", made.namespace, "--timeout=120s" if waits else "--wait=false", seconds=130)
    with cassandra(made) as opened:
        for keyspace in (made.tables, made.fences):
            opened.execute(f"DROP KEYSPACE IF EXISTS {keyspace}")
