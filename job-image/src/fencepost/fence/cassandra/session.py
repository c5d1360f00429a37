"""Sessions with Cassandra whose requests are tried once.

The driver's default retry policy repeats a request on another host, whatever it was; a repeated conditional update
would report 'not applied' for a change that was.  So: FallthroughRetryPolicy, no speculative execution, and every error
of a conditional statement is an unknown outcome for `Fence` to settle.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from cassandra import ConsistencyLevel, DriverException, ProtocolVersion
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    DefaultConnection,
    ExecutionProfile,
    NoHostAvailable,
    Session,
)
from cassandra.connection import Connection
from cassandra.policies import (
    ConstantReconnectionPolicy,
    DCAwareRoundRobinPolicy,
    FallthroughRetryPolicy,
    HostFilterPolicy,
    LoadBalancingPolicy,
    RoundRobinPolicy,
    TokenAwarePolicy,
)
from cassandra.query import named_tuple_factory

from fencepost.contract import CassandraEndpoint, CassandraTls
from fencepost.fence.cassandra.errors import translated
from fencepost.fence.cassandra.tls import NamedEndPoint, NamedEndPoints
from fencepost.fence.errors import FenceDatacenterUnknown, FenceTlsFailed
from fencepost.fence.tls import TlsMaterial

OLDEST_PROTOCOL: Final = ProtocolVersion.V4
"""Of ScyllaDB and of databases like it. The fence needs nothing of v5, which checks each frame's integrity besides."""

MOST_ADDRESSES: Final = 4
"""Addresses of an untrusted cluster that one attempt to connect tries."""

MOST_KEPT_NAMES: Final = 2_000
"""Characters of an answer's column names whose class is kept: a tenant's own Cassandra sends names of any length."""


class WideConnection(DefaultConnection):  # type: ignore[misc] # the library is untyped
    """Sends and receives the chunks of a state's files in few system calls.

    With the library's 4 KiB each chunk of 512 KiB takes 128, each with a lock, and a quarter more CPU time.

    A request waits where the socket takes no more bytes at the moment.  The library refuses it as if the server were
    overloaded, which eight chunks at once make likely; whoever asks bounds what is in progress.
    """

    in_buffer_size = out_buffer_size = 256 * 1024

    @property
    def _socket_writable(self) -> bool:
        return True

    @_socket_writable.setter
    def _socket_writable(self, is_writable: bool) -> None:
        """Ignore what the library notes."""


def connect(
    endpoint: CassandraEndpoint,
    *,
    credentials: tuple[str, str] | None,
    request_timeout: float = 5.0,
    consistency: str = "LOCAL_QUORUM",
    discover: bool = True,
    permits: Callable[[str, str], bool] = lambda _name, _address: True,
    connection_class: type[Connection] | None = None,
    tls: TlsMaterial | None = None,
) -> Session:
    """Return a session whose requests are tried once. Times in seconds.

    `tls` is needed where the endpoint has TLS.  The certificate of a contact point is checked for the point's name,
    whichever of its addresses is dialled.

    Without `discover`, only addresses of the contact points are dialled, MOST_ADDRESSES at most, whatever nodes the
    cluster lists, and no schema is read: for clusters that the process does not trust. Of those only the addresses that
    `permits` accepts, asked with the contact point and its address, are dialled.  `connection_class` replaces
    `WideConnection`, which sets no limit on what a server sends.
    Raises FenceUnavailable when no contact point answers, FenceCredentialsRejected when the user is refused,
    FenceTlsFailed, FenceDatacenterUnknown.
    """
    balancing: LoadBalancingPolicy = (
        DCAwareRoundRobinPolicy(local_dc=endpoint.local_datacenter) if endpoint.local_datacenter else RoundRobinPolicy()
    )
    with translated(f"cassandra at {endpoint.address}"):
        points: list[Any] = list(endpoint.contact_points)
        names: Mapping[str, str] = {}
        if not discover:
            names = _addresses(endpoint, permits, most=MOST_ADDRESSES)
            points = list(names)
            allowed = frozenset(points)
            balancing = HostFilterPolicy(balancing, lambda host: host.address in allowed)
        security: dict[str, Any] = {}
        if endpoint.tls is not None:
            names = names or _addresses(endpoint, permits)
            points, security = _secured(endpoint, endpoint.tls, names, tls)
        cluster = _Negotiating(  # resolves the contact points, and raises when none has an address
            contact_points=points,
            port=endpoint.port,
            **security,
            auth_provider=PlainTextAuthProvider(*credentials) if credentials else None,
            connection_class=connection_class or WideConnection,
            connect_timeout=request_timeout,
            # The default backs off to ten minutes; a database that is back should be used within a second.
            reconnection_policy=ConstantReconnectionPolicy(delay=1.0, max_attempts=None),
            idle_heartbeat_interval=5,
            idle_heartbeat_timeout=5,
            control_connection_timeout=request_timeout,
            protocol_version=ProtocolVersion.V5,
            schema_metadata_enabled=discover,
            token_metadata_enabled=discover,
            execution_profiles={
                EXEC_PROFILE_DEFAULT: ExecutionProfile(
                    load_balancing_policy=TokenAwarePolicy(balancing) if discover else balancing,
                    retry_policy=FallthroughRetryPolicy(),
                    consistency_level=getattr(ConsistencyLevel, consistency),
                    serial_consistency_level=getattr(ConsistencyLevel, endpoint.serial_consistency),
                    request_timeout=request_timeout,
                    row_factory=rows,
                )
            },
        )
        try:
            return cluster.connect()
        except BaseException as error:
            elsewhere = _datacenters_elsewhere(cluster, endpoint)
            cluster.shutdown()
            if elsewhere and isinstance(error, NoHostAvailable):
                raise FenceDatacenterUnknown(
                    f"no node is in datacenter {endpoint.local_datacenter!r}; the nodes are in {', '.join(elsewhere)}",
                    remedy="correct spec.checkpoint.cassandra.localDatacenter",
                ) from error
            raise


def rows(columns: Sequence[str], values: Sequence[Sequence[Any]]) -> list[Any]:
    """Return an answer's rows as named tuples, as the library does, which makes a class for each answer.

    That class takes more CPU time than all else of a short answer.
    """
    names = tuple(columns)
    row = _row_class(names) if sum(map(len, names)) <= MOST_KEPT_NAMES else _row_class.__wrapped__(names)
    return [row(*found) for found in values]


@lru_cache(maxsize=64)
def _row_class(columns: tuple[str, ...]) -> Callable[..., Any]:
    (row,) = named_tuple_factory(columns, [[None] * len(columns)])
    return type(row)


def is_applied(answer: Any) -> bool:  # noqa: ANN401 - the library's ResultSet
    """Return whether a conditional statement was applied, which its answer's first column says.

    The library's `was_applied` knows only its own kinds of rows.
    """
    return bool(answer.one()[0])


class _Negotiating(Cluster):  # type: ignore[misc] # the library is untyped
    """Begins with the given version of the protocol, and speaks v4 where the server does not know that one.

    The driver's own negotiation begins with versions of DataStax Enterprise, a connection for each, and ends below v3,
    which has no timestamps.
    """

    def protocol_downgrade(self, host_endpoint: object, previous_version: int) -> None:
        """Choose the version after a refusal. Raises DriverException when none is left."""
        if previous_version <= OLDEST_PROTOCOL:
            raise DriverException(f"{host_endpoint} speaks no native protocol from v{OLDEST_PROTOCOL} to v5")
        self.protocol_version = OLDEST_PROTOCOL


def _addresses(
    endpoint: CassandraEndpoint, permits: Callable[[str, str], bool], *, most: int | None = None
) -> Mapping[str, str]:
    """Return addresses of the contact points, each with its name, in any order.

    With `most`, only so many: each silent one costs a connecting thread its timeout.
    """
    found: dict[str, str] = {}
    failure: OSError | None = None
    names = endpoint.contact_points
    for name in random.sample(names, k=min(len(names), most or len(names))):
        try:
            answers = socket.getaddrinfo(name, endpoint.port, type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:  # ValueError: a name that cannot be one, such as 'a..b'
            failure = OSError(f"{name}: {error}")
            continue
        for *_, address in answers:
            if permits(name, str(address[0])):
                found.setdefault(str(address[0]), name)
    if not found:
        raise failure or PermissionError("no address of the contact points may be dialled")
    return {address: found[address] for address in random.sample(sorted(found), k=min(len(found), most or len(found)))}


def _secured(
    endpoint: CassandraEndpoint, options: CassandraTls, names: Mapping[str, str], material: TlsMaterial | None
) -> tuple[list[NamedEndPoint], dict[str, Any]]:
    """Return the contact points and the cluster's further options for TLS. Raises FenceTlsFailed."""
    if material is None:
        raise FenceTlsFailed(
            "no certificate authority is configured", remedy="give spec.checkpoint.cassandra.tls a Secret"
        )
    points = [
        NamedEndPoint(address, endpoint.port, options.server_name or name) for address, name in sorted(names.items())
    ]
    further: dict[str, Any] = {"ssl_context": material.context(verify_hostname=options.verify_hostname)}
    if options.server_name:
        further["endpoint_factory"] = NamedEndPoints(endpoint.port, options.server_name)
    return points, further


def _datacenters_elsewhere(cluster: Cluster, endpoint: CassandraEndpoint) -> tuple[str, ...]:
    """Return some datacenters of the cluster where none of all is the local one, which makes every node unusable."""
    found = {host.datacenter for host in cluster.metadata.all_hosts() if host.datacenter}
    return () if endpoint.local_datacenter in {None, *found} else tuple(sorted(found)[:MOST_ADDRESSES])
