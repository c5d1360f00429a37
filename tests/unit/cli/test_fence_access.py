"""The way to a fence follows from the database that the spec names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fakes.manifests import KEY, spec_of
from fencepost.contract import PostgresqlEndpoint, PostgresqlTls
from fencepost_cli.access import Overrides, fence_access
from fencepost_cli.errors import CliError
from fencepost_cli.ports import CassandraAccess, Dial, Found, PostgresqlAccess
from fencepost_cli.stores.postgresql import _reached
from present import present

DATABASE: dict[str, Any] = {"hosts": ["gone.data.svc", "db-1.db.data.svc"], "credentialsFrom": {"secretName": "s"}}
SINKS = [{"name": "s", "plugin": {"kind": "k"}}]


class Forwards:
    """Names that this machine cannot look up."""

    def dial(self, place: str, option: str) -> Dial:
        def reach(host: str, port: int) -> tuple[str, int]:
            if host.startswith("gone"):
                raise CliError(f"{place}: {host}", remedy=option)
            return "127.0.0.1", port + 1

        return reach


def found(checkpoint: dict[str, Any]) -> Found:
    changes: dict[str, Any] = {"checkpoint": checkpoint, **({"sinks": SINKS} if "postgresql" in checkpoint else {})}
    account = {"username": "kim", "password": "secret"}
    return Found(key=KEY, spec=spec_of(**changes), scope="default", fence_secret=account)


def in_postgresql(overrides: Overrides | None = None, **changes: Any) -> PostgresqlAccess:
    one = found({"postgresql": {**DATABASE, **changes}})
    tls = {"ca.crt": "a certificate"} if "tls" in changes else None
    access = fence_access(replace(one, tls_secret=tls), overrides or Overrides(), Forwards())
    assert isinstance(access, PostgresqlAccess)
    return access


def test_a_fence_in_postgresql_is_reached_by_its_hosts_with_the_account_of_its_secret() -> None:
    access = in_postgresql(schema="fences")
    assert (access.pipeline, access.place) == (f"default/{KEY}", "schema fences")
    assert access.credentials == ("kim", "secret")
    assert "secret" not in repr(access)
    assert access.endpoint == PostgresqlEndpoint(hosts=("gone.data.svc", "db-1.db.data.svc"))


def test_a_forwarded_host_keeps_its_name_for_tls() -> None:
    """The certificate is that of the name, whatever is dialled; the second host is tried where the first fails."""
    reached = _reached(in_postgresql(tls={"secretName": "t"}))
    assert (reached.hosts, reached.port) == (("127.0.0.1",), 5433)
    assert reached.tls == PostgresqlTls(server_name="db-1.db.data.svc")
    with pytest.raises(CliError) as refused:
        _reached(in_postgresql(hosts=["gone"]))
    assert "spec.checkpoint.postgresql.hosts: gone" in str(refused.value)
    assert refused.value.remedy == "--postgresql"


def test_another_address_is_of_the_same_kind_of_database() -> None:
    access = in_postgresql(Overrides(postgresql="localhost:15432"), tls={"secretName": "t"})
    assert (access.endpoint.hosts, access.endpoint.port) == (("localhost",), 15432)
    assert present(access.endpoint.tls).server_name == "gone.data.svc"
    refused: dict[str, Callable[[], object]] = {
        "--postgresql": lambda: in_postgresql(Overrides(cassandra="localhost:9042")),
        "--cassandra": lambda: fence_access(
            found({"cassandra": {"contactPoints": ["c"]}}), Overrides(postgresql="localhost:5432"), Forwards()
        ),
    }
    for option, ask in refused.items():
        with pytest.raises(CliError) as wrong:
            ask()
        assert option in wrong.value.remedy
    assert isinstance(
        fence_access(found({"cassandra": {"contactPoints": ["c"]}}), Overrides(), Forwards()), CassandraAccess
    )
