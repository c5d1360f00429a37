"""How the operator reaches what a pipeline uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class CassandraConnection:
    """Where the fence row lives and how it may be reached from the pipeline's namespace."""

    namespace: str
    contact_points: tuple[str, ...]
    port: int
    local_datacenter: str
    keyspace: str
    consistency: str
    credentials_secret: str | None
    create_schema: bool
    replication_class: str
    replication_factor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConnection:
    """Which topics to look at, and how Kafka may be reached from the pipeline's namespace."""

    namespace: str
    bootstrap_servers: str
    topics: tuple[str, ...]
    properties: Mapping[str, str] = field(default_factory=dict)
    properties_secret: str | None = None
