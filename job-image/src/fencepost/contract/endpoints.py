"""Addresses of Kafka and of databases: one shape of each, for the spec, the operator's clients and the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

SERIAL: Final = "SERIAL"
LOCAL_SERIAL: Final = "LOCAL_SERIAL"


@dataclass(frozen=True, slots=True, kw_only=True)
class CassandraTls:
    """How the nodes' certificates are checked. Certificates and keys are never part of it.

    `server_name` is the name that the certificate of every node must have; None means the name of the contact point, or
    the address of a node that the cluster named.
    """

    server_name: str | None = None
    verify_hostname: bool = True

    @property
    def options(self) -> CassandraTls:
        """These options alone, also of an object that extends them."""
        return CassandraTls(server_name=self.server_name, verify_hostname=self.verify_hostname)


@dataclass(frozen=True, slots=True, kw_only=True)
class CassandraEndpoint:
    """The address of a Cassandra cluster, and how every client talks to it. Credentials are never part of it.

    `local_datacenter` None means that nodes of every datacenter are used, `tls` None a connection without TLS.
    `serial_consistency` is SERIAL or LOCAL_SERIAL, and the same for all who use one fence row: lightweight transactions
    at both levels do not see each other.
    """

    contact_points: tuple[str, ...]
    port: int = 9042
    local_datacenter: str | None = None
    serial_consistency: str = SERIAL
    tls: CassandraTls | None = None

    @property
    def endpoint(self) -> CassandraEndpoint:
        """The endpoint alone, also of an object that extends it; two equal endpoints compare equal."""
        return CassandraEndpoint(
            contact_points=self.contact_points,
            port=self.port,
            local_datacenter=self.local_datacenter,
            serial_consistency=self.serial_consistency,
            tls=self.tls.options if self.tls is not None else None,
        )

    @property
    def address(self) -> str:
        """The address for a message: 'host1,host2:9042'."""
        return f"{','.join(self.contact_points)}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresqlTls:
    """How the servers' certificates are checked. Certificates and keys are never part of it.

    `server_name` is the name that the certificate of every server must have; None means the host that is dialled.
    """

    server_name: str | None = None
    verify_hostname: bool = True

    @property
    def options(self) -> PostgresqlTls:
        """These options alone, also of an object that extends them."""
        return PostgresqlTls(server_name=self.server_name, verify_hostname=self.verify_hostname)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresqlEndpoint:
    """The address of a PostgreSQL database. Credentials are never part of it.

    Of several `hosts` the one that takes writes is used.  `tls` None means that certificates are not checked: a
    connection is encrypted only where the server offers it.
    """

    hosts: tuple[str, ...]
    port: int = 5432
    database: str = "fencepost"
    tls: PostgresqlTls | None = None

    @property
    def endpoint(self) -> PostgresqlEndpoint:
        """The endpoint alone, also of an object that extends it; two equal endpoints compare equal."""
        return PostgresqlEndpoint(
            hosts=self.hosts,
            port=self.port,
            database=self.database,
            tls=self.tls.options if self.tls is not None else None,
        )

    @property
    def address(self) -> str:
        """The address for a message: 'host1,host2:5432/database'."""
        return f"{','.join(self.hosts)}:{self.port}/{self.database}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaEndpoint:
    """The address of a Kafka cluster and the client properties written in the spec.

    `bootstrap_servers` is 'host:port', or several separated by commas. `properties` are librdkafka's, see
    `fencepost.contract.kafka_properties`; those of the Secret are never part of it.
    """

    bootstrap_servers: str
    properties: Mapping[str, str] = field(default_factory=dict)
