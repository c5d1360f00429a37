"""The committed offsets as a consumer group, on a real Kafka: what its tools see, and what the account needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from fencepost.kafka.mirror import ConsumerGroup, GroupMirror
from harness.waiting import eventually
from integration.driver.support import Kafka
from integration.kafka.accounts import Topic, properties_of, topic_of, wait_granted
from testbed.environment import Environment

pytestmark = pytest.mark.integration


@pytest.fixture
def topic(environment: Environment) -> Iterator[Topic]:
    with topic_of(environment, records=40) as made:
        yield made


def shown(kafka: Kafka, group: str) -> dict[str, int]:
    """What kafka-consumer-groups --describe asks for."""
    asked = kafka.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    return {f"{part.topic}/{part.partition}": part.offset for part in asked[group].result(30).topic_partitions}


def test_kafkas_tools_see_what_was_committed_last(environment: Environment, topic: Topic) -> None:
    group = f"mirror-{topic.name}"
    properties = {"bootstrap.servers": environment.kafka_host, "isolation.level": "read_uncommitted"}
    mirror = GroupMirror(ConsumerGroup(group, properties), group, interval=0)
    for offset in range(1, 11):
        mirror.show({f"{topic.name}/{partition}": offset for partition in range(4)})
    expected = {f"{topic.name}/{partition}": 10 for partition in range(4)}
    eventually("the group shows the newest offsets", lambda: shown(topic.kafka, group) == expected, seconds=30)
    mirror.show({f"{topic.name}/0": 4})  # as after a rewind
    eventually("the group follows", lambda: shown(topic.kafka, group)[f"{topic.name}/0"] == 4, seconds=30)
    mirror.end()


def test_a_group_with_consumers_is_left_to_them(environment: Environment, topic: Topic) -> None:
    group = f"used-{topic.name}"
    consumer = Consumer({"bootstrap.servers": environment.kafka_host, "group.id": group, "enable.auto.commit": False})
    consumer.subscribe([topic.name])
    eventually("the consumer has joined", lambda: consumer.poll(1) is None and bool(consumer.assignment()), seconds=60)
    mirrored = ConsumerGroup(group, {"bootstrap.servers": environment.kafka_host})
    with pytest.raises(KafkaException):
        mirrored.commit({f"{topic.name}/0": 4})
    assert shown(topic.kafka, group) == {}
    consumer.close()
    mirrored.commit({f"{topic.name}/0": 4})
    assert shown(topic.kafka, group) == {f"{topic.name}/0": 4}


def test_the_account_needs_read_on_the_group(environment: Environment, topic: Topic) -> None:
    group, user = f"guarded-{topic.name}", environment.kafka_username
    properties = properties_of(environment, "SCRAM-SHA-512")
    topic.grant(user, AclOperation.READ)
    wait_granted(topic, properties)
    mirrored = ConsumerGroup(group, properties)
    with pytest.raises(KafkaException, match=r"GROUP_AUTHORIZATION_FAILED|Group authorization failed"):
        mirrored.commit({f"{topic.name}/0": 4})
    allow = (
        ResourceType.GROUP, group, ResourcePatternType.LITERAL, f"User:{user}", "*", AclOperation.READ,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    for future in topic.kafka.admin.create_acls([AclBinding(*allow)]).values():
        future.result(30)

    def is_written() -> bool:
        try:
            mirrored.commit({f"{topic.name}/0": 4})
        except KafkaException:
            return False
        return shown(topic.kafka, group) == {f"{topic.name}/0": 4}

    eventually("the group takes the offset once the ACL is known", is_written, seconds=30)
    for future in topic.kafka.admin.delete_acls([AclBindingFilter(*allow)]).values():
        future.result(30)
