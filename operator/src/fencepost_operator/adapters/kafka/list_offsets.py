"""Asks Kafka for offsets, in requests of bounded size."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from fencepost.contract import offset_key, split_offset_key
from fencepost.kafka.answers import positions_of
from fencepost_operator.observation import NO_RECORD

_PARTITIONS_AT_ONCE: Final = 1000
"""Partitions of one request, before which librdkafka asks for the metadata of their topics."""
LEADER_WITHIN: Final = 2.0
"""Seconds of one request: a leader that is silent must not take the time of the others."""


async def positions(
    admin: AdminClient,
    partitions: Iterable[TopicPartition],
    spec: OffsetSpec,
    isolation: IsolationLevel,
    *,
    answer_within: float,
) -> dict[str, int]:
    """Return the offset of each partition whose leader answers; `answer_within` is in seconds.

    Raises KafkaException for a refusal, and where no leader answers.
    """
    answers = await _ask(admin, dict.fromkeys(partitions, spec), isolation, answer_within)
    return {key: position.offset for key, position in positions_of(answers).items()} if answers else {}


async def first_offsets(admin: AdminClient, timestamps: Mapping[str, int]) -> Mapping[str, int]:
    """Return the offset that Kafka names for each timestamp; a partition without an answer is absent."""
    asked = {
        TopicPartition(*split_offset_key(key)): OffsetSpec.for_timestamp(timestamp)
        for key, timestamp in timestamps.items()
    }
    answers = await _ask(admin, asked, IsolationLevel.READ_UNCOMMITTED, LEADER_WITHIN)
    return {
        offset_key(partition.topic, partition.partition): answer.result().offset
        for partition, answer in answers.items()
        if answer.exception() is None and answer.result().offset >= NO_RECORD
    }


async def all_done(futures: Iterable[Future[Any]]) -> None:
    """Wait for all futures, whatever comes of them."""
    await asyncio.gather(*(asyncio.wrap_future(future) for future in futures), return_exceptions=True)


async def _ask(
    admin: AdminClient, asked: Mapping[TopicPartition, OffsetSpec], isolation: IsolationLevel, answer_within: float
) -> dict[TopicPartition, Future[Any]]:
    wanted = list(asked.items())
    answers: dict[TopicPartition, Future[Any]] = {}
    for start in range(0, len(wanted), _PARTITIONS_AT_ONCE):
        request = dict(wanted[start : start + _PARTITIONS_AT_ONCE])
        answers |= admin.list_offsets(request, isolation_level=isolation, request_timeout=answer_within)
    await all_done(answers.values())
    return answers
