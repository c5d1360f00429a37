"""What Kafka holds, asked of librdkafka's admin client: log begins and ends, topic ids. No connector jars."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from fencepost.batch import Watermarks
from fencepost.contract import KafkaEndpoint, Reason, kafka_properties, offset_key
from fencepost.errors import BadSpec, DependencyDown

PATIENCE: Final = 120.0
"""Seconds without an answer before the run gives up: longer than a broker's restart."""

REQUEST_TIMEOUT: Final = 10.0
"""Seconds for one answer."""

REFUSALS: Final = frozenset({
    KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED,  # noqa: SLF001 - the library's own spelling
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
})  # fmt: skip

_EARLIEST: Final[Any] = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Final[Any] = OffsetSpec.latest()  # type: ignore[no-untyped-call]


def client_properties(source: KafkaEndpoint, folder: Path) -> dict[str, str]:
    """Return librdkafka's properties: the spec's, over them one file per property from `folder` (a mounted Secret).

    Raises BadSpec naming each property that is not allowed and where it is set.
    """
    files = [path for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []
    secret = kafka_properties.of_secret(
        {path.name: path.read_text(errors="replace") for path in files if not path.name.startswith(".")}
    )
    places = {
        "spec.source.kafka.properties": source.properties,
        "the Secret of spec.source.kafka.propertiesFrom": secret,
    }
    found = [
        f"{place}: {problem.key} {problem.problem}; {problem.remedy}"
        for place, properties in places.items()
        for problem in kafka_properties.problems(properties)
    ]
    if found:
        raise BadSpec(". ".join(found), reason=Reason.KAFKA_PROPERTIES_INVALID)
    return {**source.properties, **secret, "bootstrap.servers": source.bootstrap_servers}


class KafkaLog:
    """The topics of one pipeline. Synchronous; each look takes two round trips."""

    def __init__(
        self,
        properties: Mapping[str, str],
        topics: Sequence[str],
        *,
        patience: float = PATIENCE,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        consumer_only = ("isolation.level",)
        admin = {key: value for key, value in properties.items() if key not in consumer_only}
        uncommitted = properties.get("isolation.level") == "read_uncommitted"
        self._isolation = IsolationLevel.READ_UNCOMMITTED if uncommitted else IsolationLevel.READ_COMMITTED
        self._admin = AdminClient({"socket.timeout.ms": int(REQUEST_TIMEOUT * 1000), **admin}, logger=_QUIET)
        self._servers = properties["bootstrap.servers"]
        self._topics = list(topics)
        self._patience = patience
        self._stopping = stopping

    def state(self) -> Watermarks:
        """Return begins, ends and ids now; the ends are the last stable offsets unless uncommitted reads are asked for.

        Raises DependencyDown when Kafka does not answer within the patience, or refuses the credentials.
        """
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return self._look()
            except KafkaException as error:
                cause = error.args[0]
                if cause.code() in REFUSALS:
                    raise refused(self._servers, cause) from error
                if time.monotonic() > deadline or self._stopping():
                    raise DependencyDown(
                        f"kafka at {self._servers} did not answer: {cause}", reason=Reason.KAFKA_UNREACHABLE
                    ) from error
                time.sleep(0.5)

    def _look(self) -> Watermarks:
        """List the offsets, then ask the ids: an id that is still the same proves that the offsets were of it."""
        partitions = self._describe()[1]
        if not partitions:
            return Watermarks(begins={}, ends={}, topic_ids={})
        options: dict[str, Any] = {"isolation_level": self._isolation, "request_timeout": REQUEST_TIMEOUT}
        begins = self._admin.list_offsets(dict.fromkeys(partitions, _EARLIEST), **options)
        ends = self._admin.list_offsets(dict.fromkeys(partitions, _LATEST), **options)
        begin = {offset_key(p.topic, p.partition): f.result().offset for p, f in begins.items()}
        end = {offset_key(p.topic, p.partition): f.result().offset for p, f in ends.items()}
        return Watermarks(begins=begin, ends=end, topic_ids=self._describe()[0])

    def _describe(self) -> tuple[dict[str, str], list[TopicPartition]]:
        ids: dict[str, str] = {}
        partitions: list[TopicPartition] = []
        futures = self._admin.describe_topics(TopicCollection(self._topics), request_timeout=REQUEST_TIMEOUT)
        for topic, future in futures.items():
            try:
                found = future.result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise
            ids[topic] = str(found.topic_id)
            partitions += [TopicPartition(topic, part.id) for part in found.partitions]
        return ids, partitions


def refused(servers: str, cause: object) -> DependencyDown:
    """Return the error for credentials that Kafka does not take."""
    return DependencyDown(
        f"kafka at {servers} refused: {cause}",
        reason=Reason.KAFKA_CREDENTIALS_REJECTED,
        remedy="Correct the Secret of spec.source.kafka.propertiesFrom, or the user's rights.",
    )


class _Quiet:
    """librdkafka's own log lines repeat what the errors say."""

    def log(self, *_args: object, **_kwargs: object) -> None:
        """Say nothing."""


_QUIET = _Quiet()
