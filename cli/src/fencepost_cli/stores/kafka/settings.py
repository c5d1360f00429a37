"""Retention settings of topics, read and changed with the pipeline's own properties."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from fencepost.kafka.answers import MISSING, refusal
from fencepost_cli.errors import CliError
from fencepost_cli.ports import KafkaAccess
from fencepost_cli.retention import SETTINGS, Change, Setting, TopicSettings
from fencepost_cli.stores.kafka.log import admin_of, connection_properties

ANSWER_WITHIN: Final = 10.0
"""Seconds of one request."""
KNOWN_WITHIN: Final = 30.0
"""Seconds until every broker should say what was set."""
PAUSE: Final = 0.2
_NUMBER: Final = re.compile(r"-1|[0-9]{1,19}", re.ASCII)


@contextmanager
def open_settings(access: KafkaAccess) -> Iterator[KafkaSettings]:
    """Open an admin client for the block. Raises CliError."""
    complaints: deque[KafkaError] = deque(maxlen=20)
    own: dict[str, Any] = {**connection_properties(access), "error_cb": complaints.append}
    yield KafkaSettings(admin_of(own, access.dial), complaints)


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Implements the TopicConfigs port."""

    admin: AdminClient
    complaints: deque[KafkaError]

    def read(self, topic: str) -> TopicSettings:
        """Return when Kafka deletes the topic's records. Raises CliError."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        (answer,) = self.admin.describe_configs([resource], request_timeout=ANSWER_WITHIN).values()
        entries: Mapping[str, ConfigEntry] = self._answered(answer, topic, "DescribeConfigs")
        try:
            policy = str(entries["cleanup.policy"].value)
            settings = {name: _setting(entries[name]) for name in SETTINGS}
        except (KeyError, ValueError) as error:
            raise CliError(
                f"Kafka's answer has no usable retention of topic {topic}",
                remedy=f"see kafka-configs.sh --describe --entity-type topics --entity-name {topic}",
            ) from error
        return TopicSettings(deletes="delete" in {part.strip() for part in policy.split(",")}, settings=settings)

    def check(self, change: Change) -> None:
        """Ask Kafka whether it would take a change. Raises CliError."""
        self._alter(change, validate_only=True)

    def write(self, change: Change) -> None:
        """Change a topic, and wait until Kafka says so. Raises CliError."""
        self._alter(change, validate_only=False)
        deadline = time.monotonic() + KNOWN_WITHIN
        while not all(_is_as(self.read(change.topic).settings[name], value) for name, value in change.values.items()):
            if time.monotonic() > deadline:
                raise CliError(
                    f"Kafka took the change of topic {change.topic} and does not show it",
                    remedy="start the command again",
                )
            time.sleep(PAUSE)

    def _alter(self, change: Change, *, validate_only: bool) -> None:
        entries = [
            ConfigEntry(
                name,
                None if value is None else str(value),
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for name, value in change.values.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, change.topic, incremental_configs=entries)
        (answer,) = self.admin.incremental_alter_configs(
            [resource], request_timeout=ANSWER_WITHIN, validate_only=validate_only
        ).values()
        self._answered(answer, change.topic, "AlterConfigs")

    def _answered(self, answer: Future[Any], topic: str, operation: str) -> Any:  # noqa: ANN401 - the library is untyped
        try:
            return answer.result()
        except KafkaException as error:
            self.admin.poll(0)
            cause = error.args[0]
            if refusal((cause, *self.complaints)) is not None:
                raise CliError(
                    f"the pipeline's account may not {operation} topic {topic}: {cause}",
                    remedy=f"kafka-acls.sh --bootstrap-server SERVER --add --allow-principal User:NAME"
                    f" --operation {operation} --topic {topic}; or let an account that may do it by hand",
                ) from error
            remedy = "see whether Kafka answers at this address; --kafka names another one"
            if cause.code() in MISSING:
                remedy = "choose topics that exist with --topic"
            elif cause.code() in {KafkaError.POLICY_VIOLATION, KafkaError.INVALID_CONFIG}:
                remedy = "choose a value that the brokers' policy allows"
            raise CliError(f"Kafka did not answer about topic {topic}: {cause}", remedy=remedy) from error


def _setting(entry: ConfigEntry) -> Setting:
    if entry.value is None or not _NUMBER.fullmatch(entry.value):
        raise ValueError
    return Setting(int(entry.value), is_own=ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG)


def _is_as(found: Setting, value: int | None) -> bool:
    return not found.is_own if value is None else found == Setting(value, is_own=True)
