"""Some brokers down, or just started: what answers is read, and what does not is not taken for lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from fencepost.kafka.log import KafkaLog
from harness.waiting import eventually
from integration.driver.support import Kafka
from integration.kafka.brokers import Cluster

pytestmark = pytest.mark.integration


def test_partitions_without_a_leader_are_left_out_and_the_others_are_read(cluster: Callable[..., Cluster]) -> None:
    kafka = cluster(2)
    kafka.create("t", [[1], [2], [1]])
    producer = Producer({"bootstrap.servers": kafka.servers, "log_level": 0})
    for partition in range(3):
        producer.produce("t", value=b"v", partition=partition)
    assert producer.flush(60) == 0
    log = KafkaLog({"bootstrap.servers": kafka.servers}, ["t"], patience=60)
    whole = log.state()
    assert whole.ends == {"t/0": 1, "t/1": 1, "t/2": 1}
    assert whole.leaderless == frozenset()

    kafka.brokers[1].crash()
    # At once its partition still has a leader, one that does not answer; librdkafka gives it the offset -1001.
    for _ in range(3):
        found = log.state()
        assert found.ends == {"t/0": 1, "t/2": 1}
        assert found.begins == {"t/0": 0, "t/2": 0}
        assert found.leaderless == {"t/1"}
        assert found.topic_ids == whole.topic_ids
    kafka.brokers[1].start()
    eventually("the partition to be led again", lambda: log.state().ends == whole.ends, seconds=90)
    assert log.state().leaderless == frozenset()


def test_a_topic_counts_as_missing_for_as_long_as_every_answer_says_so(cluster: Callable[..., Cluster]) -> None:
    kafka = cluster()
    kafka.create("t", [[1]])
    topics = Kafka(kafka.servers)
    clock = [0.0]
    log = KafkaLog({"bootstrap.servers": kafka.servers}, ["t"], patience=60, now=lambda: clock[0])
    assert log.state().missing == {}
    topics.delete("t")
    eventually("the topic to be deleted", lambda: bool(log.state().missing), seconds=30)
    for seconds in (20.0, 31.0):
        clock[0] = seconds
        found = log.state()
        assert found.missing == {"t": seconds}
        assert found.topic_ids == {}
    kafka.create("t", [[1]])
    eventually("the topic to be known again", lambda: not log.state().missing, seconds=30)
    topics.delete("t")
    eventually("the topic to be deleted", lambda: bool(log.state().missing), seconds=30)
    assert log.state().missing == {"t": 0.0}  # counted from the first answer after the last one to the contrary
