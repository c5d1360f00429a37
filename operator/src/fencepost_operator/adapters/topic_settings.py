"""Asks Kafka for what decides whether the records of a topic survive a broker that fails."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ResourceType,
)

from fencepost_operator.observation import TopicSettings

_NUMBER: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_TRUTH: Final = {"true": True, "false": False}


async def read_topic_settings(
    admin: AdminClient, topics: Iterable[str], *, answer_within: float
) -> Mapping[str, TopicSettings]:
    """Return the settings of each topic; what Kafka does not say, or not to this account, is None.

    `answer_within` is in seconds.  Each topic is asked for by itself, so that the limit on an answer's size
    holds for one topic.
    """
    replicas: dict[str, Future[Any]] = {}
    settings: dict[str, Future[Any]] = {}
    for topic in topics:
        replicas |= admin.describe_topics(TopicCollection([topic]), request_timeout=answer_within)
        resource = ConfigResource(ResourceType.TOPIC, topic)
        (settings[topic],) = admin.describe_configs([resource], request_timeout=answer_within).values()
    answers = (*replicas.values(), *settings.values())
    await asyncio.gather(*(asyncio.wrap_future(answer) for answer in answers), return_exceptions=True)
    return {topic: _settings(replicas.get(topic), answer) for topic, answer in settings.items()}


def _settings(replicas: Future[Any] | None, settings: Future[Any]) -> TopicSettings:
    entries = _said(settings) or {}
    values = {name: entry.value for name, entry in entries.items()}
    minimum = values.get("min.insync.replicas") or ""
    partitions = found.partitions if (found := _said(replicas)) else ()
    return TopicSettings(
        replicas=min((len(part.replicas) for part in partitions), default=None),
        min_insync_replicas=int(minimum) if _NUMBER.fullmatch(minimum) else None,
        unclean_leader_election=_TRUTH.get(values.get("unclean.leader.election.enable") or ""),
    )


def _said(answer: Future[Any] | None) -> Any:  # noqa: ANN401 - the library is untyped
    """Return a finished answer, None where it is a refusal or did not come."""
    if answer is None:
        return None
    try:
        return answer.result()
    except KafkaException:
        return None
