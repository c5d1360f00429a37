"""From a pipeline's spec to the ways to its fence and its Kafka, with addresses of this machine's where given."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from fencepost.contract import CassandraEndpoint, CassandraTls, PostgresqlEndpoint, PostgresqlTls, kafka_properties
from fencepost.fence import FenceTlsFailed
from fencepost.fence.tls import PLACE, POSTGRESQL_PLACE, TlsMaterial
from fencepost_cli.errors import CliError
from fencepost_cli.ports import CassandraAccess, FenceAccess, Forwards, Found, KafkaAccess, PostgresqlAccess
from fencepost_operator.api import CassandraSpec, PostgresqlSpec
from fencepost_operator.desired.names import fence_key
from fencepost_operator.settings import Settings

POSTGRESQL_PORT: Final = 5432
CASSANDRA_PORT: Final = 9042
"""Of the native protocol, where none is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """What the command line says in place of the spec; addresses are 'host:port', that of the registry a URL."""

    scope: str | None = None
    cassandra: str | None = None
    postgresql: str | None = None
    kafka: str | None = None
    registry: str | None = None


def split_reference(text: str, namespace: str | None, *, kind: str = "pipeline") -> tuple[str | None, str]:
    """Return (namespace, name) of 'NAMESPACE/NAME' or 'NAME'. Raises CliError."""
    before, slash, name = text.rpartition("/")
    if not name or (slash and not before) or "/" in before:
        raise CliError(f"{text!r} names no {kind}", remedy="write NAMESPACE/NAME, or NAME with -n NAMESPACE")
    if before and namespace and before != namespace:
        raise CliError(
            f"{text!r} is in namespace {before}, and -n says {namespace}", remedy="leave one of the two namespaces out"
        )
    return before or namespace, name


def fence_access(found: Found, overrides: Overrides, forwards: Forwards) -> FenceAccess:
    """Return the way to the fence. Raises CliError."""
    match found.spec.checkpoint.database:
        case CassandraSpec() as checkpoint:
            return _cassandra_access(found, checkpoint, overrides, forwards)
        case PostgresqlSpec() as checkpoint:
            return _postgresql_access(found, checkpoint, overrides, forwards)


def _postgresql_access(
    found: Found, checkpoint: PostgresqlSpec, overrides: Overrides, forwards: Forwards
) -> PostgresqlAccess:
    _refuse(overrides.cassandra, "--cassandra", "--postgresql")
    endpoint, place = checkpoint.endpoint, "spec.checkpoint.postgresql.hosts"
    if overrides.postgresql is not None:
        host, port = _host_and_port(overrides.postgresql, "--postgresql")
        tls = postgresql_tls_by_name(endpoint, endpoint.hosts[0])
        endpoint, place = replace(endpoint, hosts=(host,), port=port, tls=tls), "--postgresql"
    return PostgresqlAccess(
        pipeline=_row_key(found, overrides),
        schema=checkpoint.schema,
        endpoint=endpoint,
        credentials=_credentials(found, checkpoint.credentials_secret),
        tls=_tls(found),
        dial=forwards.dial(place, "--postgresql"),
    )


def _refuse(given: str | None, option: str, other: str) -> None:
    if given is not None:
        raise CliError(f"{option} is given, and the pipeline's fence is elsewhere", remedy=f"pass {other} instead")


def _row_key(found: Found, overrides: Overrides) -> str:
    return fence_key(overrides.scope or found.scope or Settings().scope, found.key)


def _cassandra_access(
    found: Found, checkpoint: CassandraSpec, overrides: Overrides, forwards: Forwards
) -> CassandraAccess:
    _refuse(overrides.postgresql, "--postgresql", "--cassandra")
    endpoint, place = checkpoint.endpoint, "spec.checkpoint.cassandra.contactPoints"
    if overrides.cassandra is not None:
        host, port = _host_and_port(overrides.cassandra, "--cassandra")
        endpoint, place = replace(endpoint, contact_points=(host,), port=port, tls=tls_by_name(endpoint)), "--cassandra"
    secret = checkpoint.credentials_secret
    return CassandraAccess(
        pipeline=_row_key(found, overrides),
        keyspace=checkpoint.keyspace,
        endpoint=endpoint,
        consistency=checkpoint.consistency,
        credentials=_credentials(found, secret) if secret is not None else None,
        tls=_tls(found),
        dial=forwards.dial(place, "--cassandra"),
    )


def kafka_access(found: Found, overrides: Overrides, forwards: Forwards) -> KafkaAccess:
    """Return the way to the topics. Raises CliError when only the driver may use the properties."""
    source, place = found.spec.source.kafka, "spec.source.kafka.bootstrapServers"
    if overrides.kafka is not None:
        for server in overrides.kafka.split(","):
            _host_and_port(server, "--kafka")
        source, place = replace(source, bootstrap_servers=overrides.kafka), "--kafka"
    properties = {**source.properties, **kafka_properties.of_secret(found.kafka_secret or {})}
    dial = forwards.dial(place, "--kafka")
    return KafkaAccess(endpoint=source, topics=source.topics, properties=_allowed(properties), dial=dial)


def _allowed(properties: Mapping[str, str]) -> dict[str, str]:
    """Return what this process may load: a pipeline's author must not run commands on the reader's machine."""
    if problems := kafka_properties.problems(properties):
        first = problems[0]
        raise CliError(f"the pipeline's Kafka property {first.key} {first.problem}", remedy=first.remedy)
    if reason := kafka_properties.why_driver_only(properties):
        raise CliError(
            f"the command cannot ask Kafka: {reason}",
            remedy="`fencepost fence show` has the ends of the log as the driver last saw them",
        )
    return kafka_properties.for_operator(properties)


def _credentials(found: Found, name: str) -> tuple[str, str]:
    data = found.fence_secret or {}
    missing = [key for key in ("username", "password") if key not in data]
    if missing:
        raise CliError(
            f"Secret {found.key.namespace}/{name} has no key {' and no key '.join(missing)}",
            remedy=f"give Secret {name} the keys username and password",
        )
    return data["username"], data["password"]


def _tls(found: Found) -> TlsMaterial | None:
    tls = found.spec.checkpoint.database.tls
    if tls is None:
        return None
    try:
        place = PLACE if found.spec.checkpoint.cassandra is not None else POSTGRESQL_PLACE
        return TlsMaterial.of(found.tls_secret or {}, place)
    except FenceTlsFailed as error:
        raise CliError(f"Secret {found.key.namespace}/{tls.secret_name}: {error}", remedy=error.remedy) from error


def tls_by_name(endpoint: CassandraEndpoint, name: str | None = None) -> CassandraTls | None:
    """Return the TLS options for a forwarded port: the node's certificate still has the name of the contact point."""
    tls = endpoint.tls
    return replace(tls, server_name=tls.server_name or name or endpoint.contact_points[0]) if tls else None


def postgresql_tls_by_name(endpoint: PostgresqlEndpoint, name: str) -> PostgresqlTls | None:
    """Return the TLS options for a forwarded port: the server's certificate still has the name of the host."""
    tls = endpoint.tls
    return replace(tls, server_name=tls.server_name or name) if tls else None


def store_endpoint(
    text: str, *, local_datacenter: str | None, serial: str, tls: CassandraTls | None
) -> CassandraEndpoint:
    """Return the endpoint of 'HOST', 'HOST:PORT', or several of them with commas. Raises CliError."""
    hosts, port = _hosts_and_port(text, "--cassandra", default_port=CASSANDRA_PORT)
    return CassandraEndpoint(
        contact_points=hosts, port=port, local_datacenter=local_datacenter, serial_consistency=serial, tls=tls
    )


def postgresql_endpoint(text: str, *, database: str, tls: PostgresqlTls | None) -> PostgresqlEndpoint:
    """Return the endpoint of 'HOST', 'HOST:PORT', or several of them with commas. Raises CliError."""
    hosts, port = _hosts_and_port(text, "--postgresql", default_port=POSTGRESQL_PORT)
    return PostgresqlEndpoint(hosts=hosts, port=port, database=database, tls=tls)


def _hosts_and_port(text: str, option: str, *, default_port: int) -> tuple[tuple[str, ...], int]:
    points = [_host_and_port(part, option, default_port=default_port) for part in text.split(",")]
    ports = sorted({port for _, port in points})
    if len(ports) > 1:
        raise CliError(
            f"{option} {text!r} has the ports {ports[0]} and {ports[1]}",
            remedy="name nodes with one port: all nodes of a cluster share it",
        )
    return tuple(host for host, _ in points), ports[0]


def _host_and_port(text: str, option: str, *, default_port: int | None = None) -> tuple[str, int]:
    bracketed = re.fullmatch(r"\[([0-9A-Fa-f:.]+)\](?::([0-9]{1,5}))?", text)
    plain = re.fullmatch(r"([^\s:/]+)(?::([0-9]{1,5}))?", text)
    found = bracketed or plain
    port = int(found[2]) if found and found[2] else default_port
    if found is None or port is None or not 1 <= port <= 65535:  # noqa: PLR2004 - TCP's bounds
        raise CliError(
            f"{option} {text!r} is not an address", remedy=f"write HOST:PORT, such as {option} localhost:9042"
        )
    return found[1], port
