"""The ends of the log, asked of Kafka with the pipeline's own properties."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from fencepost.batch import Watermarks
from fencepost.contract import Reason
from fencepost.errors import DependencyDown
from fencepost.kafka.log import QUIET, KafkaLog
from fencepost_cli.cluster_names import resolves
from fencepost_cli.errors import CliError
from fencepost_cli.ports import KafkaAccess

PATIENCE: Final = 10.0
"""Seconds to wait for Kafka, and one request more."""
LARGEST_ANSWER: Final = 16 * 1024 * 1024
"""Bytes of one answer: the brokers may be whatever a pipeline's author names."""
MOST_PARTITIONS: Final = 100_000
_METADATA_WITHIN: Final = 5.0


def watermarks(access: KafkaAccess) -> Watermarks:
    """Return the bounds of each partition's log. Raises CliError."""
    properties = connection_properties(access)
    try:
        found = KafkaLog(properties, access.topics, patience=PATIENCE).state()
    except DependencyDown as error:
        if error.reason == Reason.KAFKA_UNREACHABLE:
            _explain_names(properties)
            raise CliError(
                error, remedy="see whether Kafka answers at this address; --kafka names another one"
            ) from error
        raise CliError(error, remedy=error.remedy) from error
    if len(found.begins) > MOST_PARTITIONS:
        raise CliError(
            f"the topics have {len(found.begins):,} partitions, and no more than {MOST_PARTITIONS:,} are shown",
            remedy="`fencepost fence show` has those that the pipeline has committed",
        )
    return found


def connection_properties(access: KafkaAccess) -> dict[str, str]:
    """Return librdkafka's properties. Raises CliError where no server has an address on this machine."""
    servers = access.endpoint.bootstrap_servers
    hosts = [server.rpartition(":")[0].rpartition("//")[2] for server in servers.split(",")]
    if not any(resolves(host) for host in hosts):
        raise CliError(
            f"{hosts[0]} has no address on this machine: it is a name inside the Kubernetes cluster",
            remedy="forward a port (kubectl port-forward svc/KAFKA 9092) and add --kafka localhost:9092",
        )
    return {**access.properties, "bootstrap.servers": servers, "receive.message.max.bytes": str(LARGEST_ANSWER)}


def _explain_names(properties: dict[str, str]) -> None:
    """Raise CliError when Kafka answers, and names brokers that this machine cannot look up."""
    own: dict[str, str | int | float | bool] = {k: v for k, v in properties.items() if k != "isolation.level"}
    try:
        brokers = AdminClient(own, logger=QUIET).list_topics(timeout=_METADATA_WITHIN).brokers.values()
    except KafkaException:
        return
    unknown = _unknown(str(broker.host) for broker in brokers)
    if unknown:
        raise CliError(
            f"Kafka at {properties['bootstrap.servers']} answers, and names its brokers {', '.join(unknown)}, which"
            " have no address on this machine",
            remedy="use a listener that advertises names known here, or add the names to /etc/hosts beside the"
            " forwarded port",
        )


def _unknown(hosts: Iterable[str]) -> list[str]:
    return sorted({host for host in hosts if not resolves(host)})
