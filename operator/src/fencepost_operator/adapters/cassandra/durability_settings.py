"""Reads from Cassandra what decides whether an acknowledged write survives a failure."""

from __future__ import annotations

from collections.abc import Iterable

from cassandra import InvalidRequest, Unauthorized
from cassandra.cluster import Session

from fencepost.fence.cassandra.errors import translated
from fencepost.fence.cassandra.schema import nodes
from fencepost_operator.observation import CassandraSettings, KeyspaceSettings


def read_settings(session: Session, keyspaces: Iterable[str]) -> CassandraSettings:
    """Return the settings; how the commit log is synced is None where that may not be read. Raises FenceError."""
    with translated("reading the settings of Cassandra"):
        sync, unreadable = _commitlog_sync(session)
        return CassandraSettings(
            nodes={str(name): count for name, count in nodes(session).items()},
            keyspaces={name: _keyspace(session, name) for name in keyspaces},
            commitlog_sync=sync,
            unreadable=unreadable,
        )


def _keyspace(session: Session, name: str) -> KeyspaceSettings | None:
    select = "SELECT replication, durable_writes FROM system_schema.keyspaces WHERE keyspace_name = %s"
    found = session.execute(select, (name,)).one()
    if found is None:
        return None
    durable = found.durable_writes is not False
    # The types are those that the other side declares: a Cassandra that a tenant runs may send anything.
    replication = {str(name): str(value) for name, value in dict(found.replication or {}).items()}
    return KeyspaceSettings(replication=replication, durable_writes=durable)


def _commitlog_sync(session: Session) -> tuple[str | None, str]:
    """Return the asked node's setting, or None and why it cannot be read."""
    try:
        found = session.execute("SELECT value FROM system_views.settings WHERE name = 'commitlog_sync'").one()
    except Unauthorized:
        return None, "GRANT SELECT ON system_views.settings to the account"
    except InvalidRequest:
        return None, "this database has no table system_views.settings"
    if found is None or not found.value:
        return None, "system_views.settings does not have it"
    return str(found.value), ""
