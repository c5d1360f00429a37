"""A Kafka with users: rights on the topics alone suffice, and an error names those that are missing.

The user may Describe and Read one topic, and nothing else: no group, no cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from fakes.secrets import Secrets
from fencepost.batch import Range
from fencepost.errors import DependencyDown, WorkerError, from_text
from fencepost.kafka.log import KafkaLog
from fencepost.kafka.reader import read
from fencepost_operator.adapters.kafka.offsets import KafkaOffsets
from fencepost_operator.api import KafkaConnection
from fencepost_operator.errors import Denied, Unreachable
from harness.waiting import answered
from integration.kafka.accounts import RECORDS, Topic, properties_of, topic_of, wait_granted
from present import present
from testbed.environment import Environment

pytestmark = pytest.mark.integration


@pytest.fixture
def topic(environment: Environment) -> Iterator[Topic]:
    with topic_of(environment) as topic:
        yield topic


@pytest.fixture(params=["SCRAM-SHA-512", "PLAIN", "mTLS"])
def properties(environment: Environment, request: pytest.FixtureRequest) -> dict[str, str]:
    return properties_of(environment, request.param)


def all_of(topic: Topic) -> list[Range]:
    return [Range(topic.name, partition, 0, RECORDS // 4) for partition in range(4)]


def refused_to_read(topic: Topic, properties: Mapping[str, str]) -> None:
    with pytest.raises(WorkerError) as raised:
        list(read(all_of(topic), properties, patience=60))
    failure = from_text(str(raised.value))
    assert isinstance(failure, DependencyDown)
    assert failure.reason == "KafkaCredentialsRejected"


def test_describe_and_read_on_the_topic_suffice_for_the_driver(
    environment: Environment, topic: Topic, properties: dict[str, str]
) -> None:
    topic.grant(environment.kafka_username, AclOperation.DESCRIBE, AclOperation.READ)
    wait_granted(topic, properties)
    state = KafkaLog(properties, [topic.name], patience=60).state()
    assert state.ends == {f"{topic.name}/{partition}": RECORDS // 4 for partition in range(4)}
    for _ in range(3):  # the answer about the group comes beside the records, and is kept for the next batch
        found = [batch.num_rows for batch in read(all_of(topic), properties, patience=60)]
        assert sum(found) == RECORDS


def test_read_without_describe_suffices_too(environment: Environment, topic: Topic) -> None:
    """Kafka lets whoever may read a topic describe it."""
    properties = properties_of(environment, "SCRAM-SHA-512")
    topic.grant(environment.kafka_username, AclOperation.READ)
    wait_granted(topic, properties)
    assert KafkaLog(properties, [topic.name], patience=60).state().topic_ids
    assert sum(batch.num_rows for batch in read(all_of(topic), properties, patience=60)) == RECORDS


def connection(topic: Topic, properties: Mapping[str, str]) -> tuple[Secrets, KafkaConnection]:
    secrets = Secrets({key: value for key, value in properties.items() if key != "bootstrap.servers"})
    place = KafkaConnection(
        namespace="n",
        bootstrap_servers=properties["bootstrap.servers"],
        topics=(topic.name,),
        properties_secret="kafka",  # noqa: S106 - a name
    )
    return secrets, place


async def test_describe_on_the_topic_suffices_for_the_operator(
    environment: Environment, topic: Topic, properties: dict[str, str]
) -> None:
    topic.grant(environment.kafka_username, AclOperation.DESCRIBE)
    wait_granted(topic, properties)
    secrets, place = connection(topic, properties)
    offsets = KafkaOffsets(secrets)
    try:
        found = present(await answered(lambda: offsets.ends(place), Unreachable))
        assert found.ends == {f"{topic.name}/{partition}": RECORDS // 4 for partition in range(4)}
    finally:
        await offsets.close()


async def test_a_topic_without_rights_is_a_refusal_for_all_three(topic: Topic, properties: dict[str, str]) -> None:
    with pytest.raises(DependencyDown) as caught:
        KafkaLog(properties, [topic.name], patience=60).state()
    assert caught.value.reason == "KafkaCredentialsRejected"
    refused_to_read(topic, properties)
    secrets, place = connection(topic, properties)
    offsets = KafkaOffsets(secrets)
    try:
        with pytest.raises(Denied):
            await answered(lambda: offsets.ends(place), Unreachable)
    finally:
        await offsets.close()


def test_rights_that_are_taken_away_stop_the_reader(environment: Environment, topic: Topic) -> None:
    """Describe is left: only Read is missed, and only by the fetch."""
    properties = properties_of(environment, "SCRAM-SHA-512")
    topic.grant(environment.kafka_username, AclOperation.DESCRIBE)
    wait_granted(topic, properties)
    refused_to_read(topic, properties)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
def test_a_wrong_password_is_a_refusal_and_not_silence(environment: Environment, topic: Topic, mechanism: str) -> None:
    properties = {**properties_of(environment, mechanism), "sasl.password": "wrong"}
    with pytest.raises(DependencyDown) as caught:
        KafkaLog(properties, [topic.name], patience=60).state()
    assert caught.value.reason == "KafkaCredentialsRejected"
    assert "wrong" not in caught.value.message
    refused_to_read(topic, properties)
