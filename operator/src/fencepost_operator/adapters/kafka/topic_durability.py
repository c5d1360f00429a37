"""Asks Kafka for what decides whether the records of a topic survive a broker that fails."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from fencepost_operator.adapters.kafka.list_offsets import all_done
from fencepost_operator.adapters.kafka.topic_configs import TopicConfig, describe_topic_configs
from fencepost_operator.observation import TopicSettings

_NUMBER: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_TRUTH: Final = {"true": True, "false": False}


async def read_topic_settings(
    admin: AdminClient, topics: Iterable[str], *, answer_within: float
) -> Mapping[str, TopicSettings]:
    """Return the settings of each topic; what Kafka does not say, or not to this account, is None.

    `answer_within` is in seconds.  Each topic has its own request, so that the limit on an answer's size
    holds for one topic.
    """
    asked = list(topics)
    replicas: dict[str, Future[Any]] = {}
    for topic in asked:
        replicas |= admin.describe_topics(TopicCollection([topic]), request_timeout=answer_within)
    configs, _ = await asyncio.gather(
        describe_topic_configs(admin, asked, answer_within=answer_within), all_done(replicas.values())
    )
    return {topic: _settings(replicas.get(topic), config) for topic, config in configs.items()}


def _settings(replicas: Future[Any] | None, config: TopicConfig | KafkaException) -> TopicSettings:
    values: TopicConfig = {} if isinstance(config, KafkaException) else config
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
