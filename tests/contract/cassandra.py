"""The testbed's Cassandra as these suites reach it."""

from __future__ import annotations

from cassandra.cluster import Session

from fencepost.contract import CassandraEndpoint
from fencepost.fence.cassandra.session import connect
from testbed import environment


def open_session(username: str | None = None, password: str | None = None) -> Session:
    """Connect as this account, or as the testbed's, with a minute for each request. Raises FenceError."""
    place = environment.load()
    endpoint = CassandraEndpoint(
        contact_points=(place.cassandra_host,), port=place.cassandra_port, local_datacenter="datacenter1"
    )
    account = (username or place.cassandra_username, password or place.cassandra_password)
    return connect(endpoint, credentials=account, consistency="ONE", request_timeout=60.0)
