"""The test session's PostgreSQL as these suites reach it."""

from __future__ import annotations

from fencepost.contract import PostgresqlEndpoint, PostgresqlTls
from fencepost.fence.postgresql.session import Session
from fencepost.fence.tls import TlsMaterial
from postgresql_server import USER, Server


def endpoint_of(server: Server, *, host: str | None = None, tls: PostgresqlTls | None = None) -> PostgresqlEndpoint:
    """Return its address, by its socket or at a host."""
    return PostgresqlEndpoint(
        hosts=(host or str(server.folder),), port=server.port or 5432, database="postgres", tls=tls
    )


def session_with(
    server: Server,
    *,
    user: str = USER,
    password: str = "",
    host: str | None = None,
    tls: tuple[PostgresqlTls, TlsMaterial] | None = None,
    request_timeout: float = 30.0,
) -> Session:
    """Return a session that is not open yet."""
    endpoint = endpoint_of(server, host=host, tls=tls[0] if tls else None)
    return Session(endpoint, credentials=(user, password), tls=tls[1] if tls else None, request_timeout=request_timeout)
