"""How an operator of a test reaches a pipeline's Cassandra."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from fencepost_operator.api import CassandraConnection

_PLAIN: Final = CassandraConnection(
    namespace="n",
    contact_points=("127.0.0.1",),
    port=9042,
    local_datacenter="datacenter1",
    keyspace="k",
    consistency="ONE",
    credentials_secret=None,
    create_schema=False,
    replication_class="SimpleStrategy",
    replication_factor=1,
)


def connection_to(*contact_points: str, **changes: Any) -> CassandraConnection:
    """Return a connection without an account that changes no schema, apart from `changes`."""
    return replace(_PLAIN, contact_points=contact_points, **changes)
