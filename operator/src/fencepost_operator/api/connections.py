"""How the operator reaches what a pipeline uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from fencepost.contract import CassandraEndpoint, KafkaEndpoint, PostgresqlEndpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class CassandraConnection(CassandraEndpoint):
    """Where the fence row lives and how it may be reached from the pipeline's namespace."""

    namespace: str
    keyspace: str
    consistency: str
    credentials_secret: str | None
    create_schema: bool
    replication_class: str
    replication_factor: int | None
    """Replicas in each datacenter, in total with SimpleStrategy; None for as many as is usual and there are nodes."""
    tls_secret: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresqlConnection(PostgresqlEndpoint):
    """The database of the fence row, and how it may be reached from the pipeline's namespace."""

    namespace: str
    schema: str
    credentials_secret: str | None
    create_schema: bool
    tls_secret: str | None = None


FenceConnection: TypeAlias = CassandraConnection | PostgresqlConnection
"""The way to a fence row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConnection(KafkaEndpoint):
    """Which topics to look at, and how Kafka may be reached from the pipeline's namespace."""

    namespace: str
    topics: tuple[str, ...]
    properties_secret: str | None = None
