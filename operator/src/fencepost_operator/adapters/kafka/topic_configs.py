"""Asks Kafka for the configuration of topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeAlias

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

from fencepost_operator.adapters.kafka.list_offsets import all_done

TopicConfig: TypeAlias = Mapping[str, str | None]


async def describe_topic_configs(
    admin: AdminClient, topics: Iterable[str], *, answer_within: float
) -> Mapping[str, TopicConfig | KafkaException]:
    """Return each topic's configuration, or Kafka's error; `answer_within` is in seconds.

    Each topic has its own request, so that the limit on an answer's size holds for one topic.
    """
    answers: dict[str, Future[Any]] = {}
    for topic in topics:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        (answers[topic],) = admin.describe_configs([resource], request_timeout=answer_within).values()
    await all_done(answers.values())
    return {topic: _config(answer) for topic, answer in answers.items()}


def _config(answer: Future[Any]) -> TopicConfig | KafkaException:
    try:
        return {name: entry.value for name, entry in answer.result().items()}
    except KafkaException as error:
        return error
