"""Addresses of Kafka and Cassandra: one shape of each, for the spec, the operator's clients and the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class CassandraEndpoint:
    """The address of a Cassandra cluster. Credentials are never part of it.

    `local_datacenter` None means that nodes of every datacenter are used.
    """

    contact_points: tuple[str, ...]
    port: int = 9042
    local_datacenter: str | None = None

    @property
    def endpoint(self) -> CassandraEndpoint:
        """The address alone, also of an object that extends it; two equal addresses compare equal."""
        return CassandraEndpoint(
            contact_points=self.contact_points, port=self.port, local_datacenter=self.local_datacenter
        )

    @property
    def address(self) -> str:
        """The address for a message: 'host1,host2:9042'."""
        return f"{','.join(self.contact_points)}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaEndpoint:
    """The address of a Kafka cluster and the client properties written in the spec.

    `bootstrap_servers` is 'host:port', or several separated by commas. `properties` are librdkafka's, see
    `fencepost.contract.kafka_properties`; those of the Secret are never part of it.
    """

    bootstrap_servers: str
    properties: Mapping[str, str] = field(default_factory=dict)
