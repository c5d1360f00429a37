"""A topic that is recreated between the plan of a batch and its read: the offsets fit, the records are others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from fencepost.batch import Range
from fencepost.contract import Reason
from fencepost.errors import DataLoss, DependencyDown, WorkerError, from_text
from fencepost.kafka.log import KafkaLog
from fencepost.kafka.reader import read
from fencepost.kafka.record import KafkaRecords
from harness.waiting import eventually
from integration.kafka.brokers import Cluster

pytestmark = pytest.mark.integration

TOPIC = "t"
RECORDS = 20


def create(cluster: Cluster, *, name: str) -> str:
    """Create the topic with RECORDS records, and return its id."""
    cluster.create(TOPIC, [[1]])
    producer = Producer({"bootstrap.servers": cluster.servers, "log_level": 0})
    for number in range(RECORDS):
        producer.produce(TOPIC, value=f"{name}-{number}", partition=0)
    assert producer.flush(60) == 0
    return KafkaLog({"bootstrap.servers": cluster.servers}, [TOPIC], patience=60).state().topic_ids[TOPIC]


def delete(cluster: Cluster) -> None:
    cluster.admin.delete_topics([TOPIC])[TOPIC].result()
    eventually("the topic is gone", lambda: TOPIC not in cluster.admin.list_topics(timeout=10).topics, seconds=60)


def values(cluster: Cluster, ranges: Sequence[Range], *, patience: float = 60) -> list[bytes]:
    found = read(ranges, {"bootstrap.servers": cluster.servers}, patience=patience)
    return [value for records in found for value in records.column("value").to_pylist()]


def test_nothing_of_a_topic_that_was_recreated_is_read_as_the_planned_one(cluster: Callable[..., Cluster]) -> None:
    kafka = cluster()
    planned = Range(TOPIC, 0, 0, RECORDS, None, create(kafka, name="old"))
    assert values(kafka, [planned]) == [f"old-{number}".encode() for number in range(RECORDS)]
    delete(kafka)
    renewed = replace(planned, topic_id=create(kafka, name="new"))

    batches = read([planned], {"bootstrap.servers": kafka.servers}, patience=60)
    with pytest.raises(WorkerError) as caught:
        next(batches)
    found = from_text(str(caught.value))
    assert isinstance(found, DataLoss)
    assert found.reason is Reason.TOPIC_RECREATED
    assert f"{TOPIC} has id {renewed.topic_id}, not {planned.topic_id}" in found.message
    with pytest.raises(DataLoss, match="recreated"):
        KafkaRecords({"bootstrap.servers": kafka.servers}, patience=60).first(planned)

    assert values(kafka, [renewed]) == [f"new-{number}".encode() for number in range(RECORDS)]


@pytest.mark.long
def test_a_topic_that_was_deleted_confirms_nothing(cluster: Callable[..., Cluster]) -> None:
    """Whether it is gone for good is for the next run's plan to decide."""
    kafka = cluster()
    planned = Range(TOPIC, 0, 0, RECORDS, None, create(kafka, name="old"))
    delete(kafka)
    with pytest.raises(WorkerError) as caught:
        values(kafka, [planned], patience=5)
    found = from_text(str(caught.value))
    assert isinstance(found, DependencyDown)
    assert found.reason is Reason.KAFKA_UNREACHABLE
