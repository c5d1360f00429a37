"""The ends of the log, asked of Kafka with the pipeline's own properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from fencepost.batch import Watermarks
from fencepost.contract import Reason
from fencepost.errors import DependencyDown
from fencepost.kafka.log import QUIET, KafkaLog
from fencepost_cli.errors import CliError
from fencepost_cli.ports import Dial, KafkaAccess
from fencepost_cli.stores.kafka.names import client_of, servers_of

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
        found = KafkaLog(
            properties, access.topics, patience=PATIENCE, make=lambda settings: admin_of(settings, access.dial)
        ).state()
    except DependencyDown as error:
        if error.reason == Reason.KAFKA_UNREACHABLE:
            _explain_names(properties, access.dial)
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
    """Return librdkafka's properties. Raises CliError where none of the servers can be reached from this machine."""
    servers = access.endpoint.bootstrap_servers
    failures = list[CliError]()
    for host, port in (named := servers_of(servers)):
        try:
            access.dial(host, port)
        except CliError as error:
            failures.append(error)
    if len(failures) == len(named):
        raise failures[0]
    return {**access.properties, "bootstrap.servers": servers, "receive.message.max.bytes": str(LARGEST_ANSWER)}


def admin_of(settings: Mapping[str, Any], dial: Dial) -> AdminClient:
    """Return an admin client whose connections go where `dial` says."""
    own = {key: value for key, value in settings.items() if key != "isolation.level"}  # of consumers
    return client_of(lambda last: AdminClient(last, logger=QUIET), own, dial)


def _explain_names(properties: Mapping[str, str], dial: Dial) -> None:
    """Raise CliError when Kafka answers, and names brokers that this machine cannot reach."""
    try:
        brokers = admin_of(properties, dial).list_topics(timeout=_METADATA_WITHIN).brokers.values()
    except KafkaException:
        return
    for host, port in sorted({(str(broker.host), int(broker.port)) for broker in brokers}):
        try:
            dial(host, port)
        except CliError as error:
            raise CliError(
                f"Kafka at {properties['bootstrap.servers']} answers, and names a broker {host}:{port}. {error}",
                remedy=f"{error.remedy}; that must be a listener that advertises names known here",
            ) from error
