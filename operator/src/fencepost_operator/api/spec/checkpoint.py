"""`spec.checkpoint`: where the fence row is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from pydantic import Field

from fencepost.contract import (
    LOCAL_SERIAL,
    SERIAL,
    CassandraEndpoint,
    CassandraTls,
    PostgresqlEndpoint,
    PostgresqlTls,
)
from fencepost_operator.api.checks import EXACTLY_ONE, SET, Rule
from fencepost_operator.api.effects import Effect
from fencepost_operator.api.fields import HostName, Identifier, Line, ObjectName
from fencepost_operator.api.model import Model
from fencepost_operator.api.spec.pods import SecretReference


@dataclass(frozen=True, slots=True, kw_only=True)
class CassandraTlsSpec(Model, CassandraTls):
    """Encrypts every connection of the operator, the driver and the workers to Cassandra. Without it they are in clear
    text.
    """

    secret_name: ObjectName
    """Name of a Secret in the same namespace with the key ca.crt, the authorities of the nodes' certificates, and for a
    client certificate tls.crt and tls.key, all PEM, as cert-manager writes them."""
    server_name: HostName | None = None
    """Name that the certificate of every node must have. By default the name of the contact point, and for the other
    nodes their address."""
    verify_hostname: bool = True
    """Check that a node's certificate has its name. Without it, any certificate of the authorities in ca.crt is
    accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationSpec(Model):
    """Replication of the keyspace if Fencepost creates it. An existing keyspace is not changed."""

    class_: Literal["SimpleStrategy", "NetworkTopologyStrategy"] = "NetworkTopologyStrategy"
    """Cassandra's replication strategy."""
    replication_factor: Annotated[int, Field(ge=1, le=9)] | None = None
    """Number of replicas, in each datacenter with NetworkTopologyStrategy. By default 3, or as many as there are
    nodes."""


SURVIVING: Final = ("QUORUM", "ALL")
"""Consistency levels at which a write is in more than one of three datacenters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CassandraSpec(Model, CassandraEndpoint):
    """The Cassandra cluster of the fence row and of the sinks' tables."""

    MARKS = (
        Rule(
            f"self.serialConsistency == '{SERIAL}' || self.localDatacenter == oldSelf.localDatacenter",
            f"is immutable with serialConsistency {LOCAL_SERIAL}, because the transactions of two datacenters do not"
            " see each other; set it back, or follow docs/operations.md#serial-or-local_serial",
            field_path=".localDatacenter",
        ),
    )

    contact_points: Annotated[tuple[HostName, ...], Field(min_length=1, max_length=10), SET]
    """Host names or addresses of some nodes, without a port."""
    port: Annotated[int, Field(ge=1, le=65535)] = 9042
    """Port of the native protocol on every node."""
    local_datacenter: Annotated[Line, Field(min_length=1, max_length=100)] | None = "datacenter1"
    """Datacenter whose nodes coordinate the requests."""
    keyspace: Annotated[
        Identifier,
        Rule(
            "self == oldSelf",
            "is immutable, because it holds the fence row; set it back, or create a pipeline under another name with"
            " source.kafka.startingOffsets.partitions",
        ),
    ] = "fencepost"
    """Keyspace of the fence row. It is immutable, because the committed offsets are stored there."""
    consistency: Literal["LOCAL_QUORUM", "QUORUM", "EACH_QUORUM", "ALL", "LOCAL_ONE", "ONE"] = "LOCAL_QUORUM"
    """Consistency level of the sinks' writes and of the fence's commits. With several replicas, choose a level that a
    majority must answer."""
    serial_consistency: Annotated[
        Literal["SERIAL", "LOCAL_SERIAL"],
        Rule(
            "self == oldSelf",
            f"is immutable, because transactions at {SERIAL} and {LOCAL_SERIAL} do not see each other; set it back, or"
            " follow docs/operations.md#serial-or-local_serial",
        ),
    ] = SERIAL
    """Consistency level of the fence's lightweight transactions. SERIAL: a majority of the replicas of all datacenters
    decides. LOCAL_SERIAL: a majority in localDatacenter decides, which is faster, and safe only while every operator
    and driver uses that datacenter. It is immutable, because transactions at the two levels do not see each other."""
    tls: CassandraTlsSpec | None = None
    create_schema: Annotated[bool, Effect.AT_ONCE] = True
    """Create the keyspace and Fencepost's tables if they do not exist. Set it to false if the account may not create
    them; docs/operations.md has the CQL to run."""
    replication: Annotated[ReplicationSpec, Effect.AT_ONCE] = field(default_factory=ReplicationSpec)
    credentials_from: SecretReference | None = None
    """Credentials for the fence and the sinks from a Secret with the keys username and password. Anonymous by
    default."""

    @property
    def credentials_secret(self) -> str | None:
        """The Secret with the user name and the password."""
        return self.credentials_from.secret_name if self.credentials_from else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresqlTlsSpec(Model, PostgresqlTls):
    """Requires TLS for every connection of the operator and the driver to PostgreSQL, and checks the server's
    certificate. Without it a connection is encrypted only where the server offers it.
    """

    secret_name: ObjectName
    """Name of a Secret in the same namespace with the key ca.crt, the authorities of the servers' certificates, and for
    a client certificate tls.crt and tls.key, all PEM, as cert-manager writes them."""
    server_name: HostName | None = None
    """Name that the certificate of every server must have. By default the name of the host."""
    verify_hostname: bool = True
    """Check that a server's certificate has its name. Without it, any certificate of the authorities in ca.crt is
    accepted."""


_ROW_MOVES: Final = (
    "is immutable, because it holds the fence row; set it back, or create a pipeline under another name with"
    " source.kafka.startingOffsets.partitions"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresqlSpec(Model, PostgresqlEndpoint):
    """The PostgreSQL database of the fence row. Sinks are not in it by that: they name their own database."""

    hosts: Annotated[tuple[HostName, ...], Field(min_length=1, max_length=10), SET]
    """Host names or addresses of the servers, without a port. Of several servers the one that takes writes is used."""
    port: Annotated[int, Field(ge=1, le=65535)] = 5432
    """Port of every server."""
    database: Annotated[Identifier, Rule("self == oldSelf", _ROW_MOVES)] = "fencepost"
    """Name of the database. It is immutable, because the committed offsets are stored there."""
    schema: Annotated[Identifier, Rule("self == oldSelf", _ROW_MOVES)] = "fencepost"
    """Schema of the fence's tables. It is immutable, because the committed offsets are stored there."""
    tls: PostgresqlTlsSpec | None = None
    create_schema: Annotated[bool, Effect.AT_ONCE] = True
    """Create the schema and Fencepost's tables if they do not exist. Set it to false if the account may not create
    them; docs/fence-schema.sql has the statements to run."""
    credentials_from: SecretReference
    """Account for the fence from a Secret with the keys username and password. The password may be empty where the
    server asks for a client certificate."""

    @property
    def credentials_secret(self) -> str:
        """The Secret with the user name and the password."""
        return self.credentials_from.secret_name


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSpec(Model):
    """Location of the fence row, which holds the committed offsets: in exactly one kind of database."""

    MARKS = (
        EXACTLY_ONE,
        Rule(
            "has(self.cassandra) == has(oldSelf.cassandra)",
            "must stay in the same kind of database, because that holds the fence row; set it back, or create a"
            " pipeline under another name with source.kafka.startingOffsets.partitions",
        ),
    )

    cassandra: CassandraSpec | None = None
    postgresql: PostgresqlSpec | None = None

    @property
    def database(self) -> CassandraSpec | PostgresqlSpec:
        """The database of the fence. Raises ValueError without one, which `parse` refuses."""
        if (found := self.cassandra or self.postgresql) is None:
            raise ValueError("spec.checkpoint names no database")
        return found

    @property
    def cluster(self) -> CassandraSpec:
        """The Cassandra cluster, of what only that keeps. Raises ValueError without one, which `parse` refuses."""
        if self.cassandra is None:
            raise ValueError("spec.checkpoint.cassandra is missing")
        return self.cassandra

    @property
    def place(self) -> str:
        """The keyspace or schema of the fence's tables."""
        found = self.database
        return found.keyspace if isinstance(found, CassandraSpec) else found.schema

    @property
    def secrets(self) -> tuple[str, ...]:
        """The names of the Secrets without which the fence cannot be reached."""
        found = self.database
        names = (found.credentials_secret, found.tls.secret_name if found.tls is not None else None)
        return tuple(name for name in names if name)
