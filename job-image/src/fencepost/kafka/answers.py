"""What Kafka's answers mean, for the driver and the operator alike: librdkafka's futures in, plain facts out.

A future that is not done is waited for; an asynchronous caller awaits them first. Needs neither Spark nor pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from fencepost.contract import offset_key

REFUSALS: Final = frozenset({
    KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED,  # noqa: SLF001 - librdkafka's own spelling
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED,
})  # fmt: skip
"""Kafka does not accept the credentials, or they lack a right that reading needs. Rights on a group are not among them:
Fencepost uses no group."""

MISSING: Final = frozenset({
    KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
})  # fmt: skip
"""The topic or partition does not exist. A broker that has just started says so too, so one answer proves nothing."""

LEADERLESS: Final = frozenset({
    KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE, KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.KAFKA_STORAGE_ERROR, KafkaError.BROKER_NOT_AVAILABLE, KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
})  # fmt: skip
"""No leader answers for the partition; another partition's may."""

MOVED: Final = frozenset({
    KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH,
})  # fmt: skip
"""Another broker leads the partition by now, or is about to: the next request finds it."""

OFFSET_NONE: Final = -1
"""In place of an offset: no record has the timestamp or a later one. A smaller one: the leader did not answer."""


@dataclass(frozen=True, slots=True)
class Topics:
    """What Kafka says about topics: an id for each that exists, and its partitions."""

    ids: Mapping[str, str]
    partitions: tuple[TopicPartition, ...]
    """Those with a leader."""
    leaderless: tuple[str, ...]
    """'topic/partition' of those without."""
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """An offset of a partition, and the epoch of the leader that named it, where that is known."""

    offset: int
    leader_epoch: int | None


def topics_of(answers: Mapping[str, Future[Any]]) -> Topics:
    """Return what the futures of `AdminClient.describe_topics` say. Raises KafkaException."""
    ids: dict[str, str] = {}
    partitions: list[TopicPartition] = []
    leaderless: list[str] = []
    missing: list[str] = []
    for topic, answer in answers.items():
        try:
            found = answer.result()
        except KafkaException as error:
            if error.args[0].code() not in MISSING:
                raise
            missing.append(topic)
            continue
        ids[topic] = str(found.topic_id)
        for part in found.partitions:
            if part.leader is None:
                leaderless.append(offset_key(topic, part.id))
            else:
                partitions.append(TopicPartition(topic, part.id))
    return Topics(ids, tuple(partitions), tuple(leaderless), tuple(missing))


def positions_of(answers: Mapping[TopicPartition, Future[Any]]) -> dict[str, Position]:
    """Return what the futures of `AdminClient.list_offsets` say; a partition whose leader does not answer is absent.

    Raises KafkaException for any other error, and where no leader answers at all.
    """
    found: dict[str, Position] = {}
    silence = KafkaException(KafkaError(KafkaError._TIMED_OUT, "no partition's leader answered"))  # noqa: SLF001
    for partition, answer in answers.items():
        try:
            at = answer.result()
        except KafkaException as error:
            if error.args[0].code() not in LEADERLESS | MISSING:
                raise
            silence = error
            continue
        # librdkafka reports no error for a leader that did not answer in time, only an offset that cannot be.
        if at.offset >= 0:
            epoch = at.leader_epoch if at.leader_epoch is not None and at.leader_epoch >= 0 else None
            found[offset_key(partition.topic, partition.partition)] = Position(at.offset, epoch)
    if answers and not found:
        raise silence
    return found


def first_offsets_of(answers: Mapping[TopicPartition, Future[Any]]) -> dict[str, int | None]:
    """Return what the futures of `AdminClient.list_offsets` say of a timestamp: None where no record is as new.

    A partition whose leader does not answer is absent.  Raises KafkaException for any other error.
    """
    found: dict[str, int | None] = {}
    for partition, answer in answers.items():
        try:
            offset = answer.result().offset
        except KafkaException as error:
            if error.args[0].code() not in LEADERLESS | MISSING:
                raise
            continue
        if offset >= OFFSET_NONE:
            found[offset_key(partition.topic, partition.partition)] = None if offset == OFFSET_NONE else offset
    return found


def moved_of(answers: Mapping[TopicPartition, Future[Any]]) -> list[TopicPartition]:
    """Return the partitions of which a broker answered that another one leads them."""
    failures = ((partition, answer.exception()) for partition, answer in answers.items())
    return [
        partition
        for partition, error in failures
        if isinstance(error, KafkaException) and error.args[0].code() in MOVED
    ]


def refusal(errors: Iterable[KafkaError]) -> KafkaError | None:
    """Return the first of `errors` that is a refusal."""
    return next((error for error in errors if error.code() in REFUSALS), None)
