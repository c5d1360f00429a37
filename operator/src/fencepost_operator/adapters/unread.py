"""What threatens a pipeline's unread records, asked for as rarely as it can change: one `Reader` per pipeline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType  # type: ignore[attr-defined]

from fencepost.contract import offset_key, split_offset_key
from fencepost.kafka.answers import Topics
from fencepost_operator.adapters.log_starts import LogStarts
from fencepost_operator.adapters.record_ages import STEPS, RecordAges
from fencepost_operator.adapters.topic_retention import retention_of
from fencepost_operator.api import KafkaConnection
from fencepost_operator.observation import (
    NO_RECORD,
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
_PARTITIONS_AT_ONCE: Final = 1000
"""Partitions of one request for offsets."""
_ANSWER_WITHIN: Final = 2.0
"""Seconds of one request: a leader that is silent must not take the time of the others."""
_REFUSALS: Final = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})


class Reader:
    """What is known for one pipeline; `connection` says of which topics.

    `monotonic` and `wall` are clocks, in seconds; the second one tells the age of records.
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
            self._retention = await self._ask_retention(admin)
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

    async def _ask_retention(self, admin: AdminClient) -> dict[str, Fact[Retention]]:
        answers: dict[str, Future[Any]] = {}
        for topic in self.connection.topics:  # one answer each, so that the limit on its size holds for one topic
            resource = ConfigResource(ResourceType.TOPIC, topic)
            (answers[topic],) = admin.describe_configs([resource], request_timeout=_ANSWER_WITHIN).values()
        await _done(answers.values())
        return {topic: self._retention_in(topic, answer) for topic, answer in answers.items()}

    def _retention_in(self, topic: str, answer: Future[Any]) -> Fact[Retention]:
        """Return what an answer says; one that did not come does not replace what is known."""
        try:
            return Known(retention_of({name: entry.value for name, entry in answer.result().items()}))
        except ValueError as error:
            return Unknown(
                reason=UnknownReason.REJECTED,
                message=f"the retention of topic {topic} is unknown: {error} in its configuration",
                remedy=f"correct it with kafka-configs.sh --alter --entity-type topics --entity-name {topic}",
            )
        except KafkaException as error:
            code = error.args[0].code()
        if code in _REFUSALS:
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


async def first_offsets(admin: AdminClient, timestamps: Mapping[str, int]) -> Mapping[str, int]:
    """Return the offset that Kafka names for each timestamp; a partition without an answer is absent."""
    wanted = list(timestamps.items())
    answers: dict[TopicPartition, Future[Any]] = {}
    for start in range(0, len(wanted), _PARTITIONS_AT_ONCE):
        asked = {
            TopicPartition(*split_offset_key(key)): OffsetSpec.for_timestamp(timestamp)
            for key, timestamp in wanted[start : start + _PARTITIONS_AT_ONCE]
        }
        answers |= admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=_ANSWER_WITHIN
        )
    await _done(answers.values())
    return {
        offset_key(partition.topic, partition.partition): answer.result().offset
        for partition, answer in answers.items()
        if answer.exception() is None and answer.result().offset >= NO_RECORD
    }


async def _done(futures: Iterable[Future[Any]]) -> None:
    """Wait for all futures, whatever comes of them."""
    await asyncio.gather(*(asyncio.wrap_future(future) for future in futures), return_exceptions=True)
