"""What threatens a pipeline's unread records, asked for as rarely as it can change: one `Reader` per pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from fencepost.contract import offset_key
from fencepost.kafka.answers import Topics
from fencepost_operator.adapters.kafka.list_offsets import LEADER_WITHIN, first_offsets
from fencepost_operator.adapters.kafka.log_starts import LogStarts
from fencepost_operator.adapters.kafka.record_ages import STEPS, RecordAges
from fencepost_operator.adapters.kafka.topic_configs import TopicConfig, describe_topic_configs
from fencepost_operator.adapters.kafka.topic_retention import retention_of
from fencepost_operator.api import KafkaConnection
from fencepost_operator.observation import (
    Fact,
    Known,
    Retention,
    Unknown,
    UnknownReason,
    UnreadRecords,
    Watermarks,
)

_RETENTION_RENEWED_AFTER: Final = 60.0
"""Seconds for which a topic's retention is kept, known or not."""
_REFUSALS: Final = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})


class Reader:
    """What is known for one pipeline; `connection` says of which topics.

    `monotonic` and `wall` are clocks, in seconds; the second one gives the age of records.
    """

    def __init__(
        self, connection: KafkaConnection, *, monotonic: Callable[[], float], wall: Callable[[], float]
    ) -> None:
        self.connection = connection
        self.used_at = monotonic()
        self._monotonic, self._wall = monotonic, wall
        self._ages, self._starts = RecordAges(), LogStarts()
        self._topic_ids: Mapping[str, str] = {}
        self._retention: dict[str, Fact[Retention]] = {}
        self._retention_due = 0.0

    def look(self, source: Watermarks, positions: Mapping[str, int]) -> None:
        """Take what was just observed without asking Kafka for more."""
        self.used_at = self._monotonic()
        self._starts.saw(source.starts, self._now())
        self._ages.look_for(
            {key: offset for key, offset in positions.items() if source.starts.get(key, 0) <= offset}, self._now()
        )

    def wants_answers(self) -> bool:
        """Return whether Kafka knows something that is needed now."""
        return bool(self._retention_is_due() or self._ages.questions())

    async def ask(self, admin: AdminClient, topics: Topics) -> None:
        """Ask for what is needed now. A question without an answer is asked again at the next call."""
        recreated = {name for name, known in self._topic_ids.items() if topics.ids.get(name) != known}
        self._ages.forget(recreated)
        self._topic_ids = dict(topics.ids)
        if self._retention_is_due():
            configs = await describe_topic_configs(admin, self.connection.topics, answer_within=LEADER_WITHIN)
            self._retention = {topic: self._retention_in(topic, config) for topic, config in configs.items()}
            self._retention_due = self._monotonic() + _RETENTION_RENEWED_AFTER
        led = {offset_key(partition.topic, partition.partition) for partition in topics.partitions}
        for _ in range(STEPS):
            questions = {key: timestamp for key, timestamp in self._ages.questions().items() if key in led}
            answers = await first_offsets(admin, questions)
            for key, offset in answers.items():
                self._ages.answer(key, questions[key], offset)
            led = {key for key in led if key in answers}
            if not led:
                return

    def facts(self) -> UnreadRecords:
        """Return what is known now."""
        return UnreadRecords(
            retention=dict(self._retention),
            oldest=self._ages.found(),
            log_starts=self._starts.trends(self._now()),
        )

    def _retention_is_due(self) -> bool:
        return not self._retention or self._monotonic() >= self._retention_due

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._wall(), UTC)

    def _retention_in(self, topic: str, config: TopicConfig | KafkaException) -> Fact[Retention]:
        """Return what an answer says; one that did not come does not replace what is known."""
        if isinstance(config, KafkaException):
            return self._retention_unanswered(topic, config)
        try:
            return Known(retention_of(config))
        except ValueError as error:
            return Unknown(
                reason=UnknownReason.REJECTED,
                message=f"the retention of topic {topic} is unknown: {error} in its configuration",
                remedy=f"correct it with kafka-configs.sh --alter --entity-type topics --entity-name {topic}",
            )

    def _retention_unanswered(self, topic: str, error: KafkaException) -> Fact[Retention]:
        if error.args[0].code() in _REFUSALS:
            return Unknown(
                reason=UnknownReason.DENIED,
                message=f"the retention of topic {topic} is unknown: the account may not describe its configuration",
                remedy="kafka-acls.sh --bootstrap-server SERVER --add --allow-principal User:NAME"
                f" --operation DescribeConfigs --topic {topic}",
            )
        return self._retention.get(topic) or Unknown(
            reason=UnknownReason.UNREACHABLE,
            message=f"the retention of topic {topic} is unknown: Kafka did not describe its configuration",
            remedy="the operator asks again",
        )
