"""A Kafka with users: rights on the topics alone suffice, and whoever lacks them hears it.

The user may Describe and Read one topic, and nothing else: no group, no cluster.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from fencepost.batch import Range
from fencepost.errors import DependencyDown, WorkerError, from_text
from fencepost.kafka.log import KafkaLog
from fencepost.kafka.reader import read
from fencepost_operator.adapters.offsets import KafkaOffsets
from fencepost_operator.api import KafkaConnection, ObjectKey
from fencepost_operator.errors import Denied, Unreachable
from harness.waiting import answered, eventually
from integration.driver.support import Kafka
from testbed.environment import Environment

pytestmark = pytest.mark.integration

RECORDS = 40


@dataclass
class Topic:
    """A topic with records."""

    kafka: Kafka
    name: str
    granted: list[AclBinding] = field(default_factory=list)

    def grant(self, user: str, *operations: AclOperation) -> None:
        bindings = [
            AclBinding(
                ResourceType.TOPIC, self.name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation,
                AclPermissionType.ALLOW,
            )
            for operation in operations
        ]  # fmt: skip
        for future in self.kafka.admin.create_acls(bindings).values():
            future.result(30)
        self.granted += bindings

    def remove(self) -> None:
        filters = [
            AclBindingFilter(
                ResourceType.TOPIC, self.name, ResourcePatternType.LITERAL, one.principal, "*", one.operation,
                AclPermissionType.ALLOW,
            )
            for one in self.granted
        ]  # fmt: skip
        for future in self.kafka.admin.delete_acls(filters).values() if filters else ():
            future.result(30)
        self.kafka.delete(self.name)


@pytest.fixture
def topic(environment: Environment) -> Iterator[Topic]:
    kafka = Kafka(environment.kafka_host)
    topic = Topic(kafka, f"t{uuid.uuid4().hex[:10]}")
    kafka.create(topic.name)
    kafka.produce(topic.name, RECORDS)
    yield topic
    topic.remove()


def properties_of(environment: Environment, how: str) -> dict[str, str]:
    """What a tenant writes: PEM by content, since a file would have to be in every pod."""
    authority = (environment.kafka_tls / "ca.crt").read_text()
    if how == "mTLS":
        return {
            "bootstrap.servers": environment.kafka_mtls_host,
            "security.protocol": "SSL",
            "ssl.ca.pem": authority,
            "ssl.certificate.pem": (environment.kafka_tls / "client.crt").read_text(),
            "ssl.key.pem": (environment.kafka_tls / "client.key").read_text(),
        }
    return {
        "bootstrap.servers": environment.kafka_sasl_host,
        "security.protocol": "SASL_SSL",
        "ssl.ca.pem": authority,
        "sasl.mechanism": how,
        "sasl.username": environment.kafka_username,
        "sasl.password": environment.kafka_password,
    }


@pytest.fixture(params=["SCRAM-SHA-512", "PLAIN", "mTLS"])
def properties(environment: Environment, request: pytest.FixtureRequest) -> dict[str, str]:
    return properties_of(environment, request.param)


def all_of(topic: Topic) -> list[Range]:
    return [Range(topic.name, partition, 0, RECORDS // 4) for partition in range(4)]


def wait_granted(topic: Topic, properties: Mapping[str, str]) -> None:
    """The broker hears of an ACL from the metadata log, a moment after the controller took it."""
    admin = AdminClient({**properties, "log_level": 0})
    eventually(
        "the ACL is known",
        lambda: admin.list_topics(topic.name, timeout=10).topics[topic.name].error is None,
        seconds=30,
    )


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


@dataclass
class Secrets:
    """One Secret, for the operator."""

    content: Mapping[str, str]

    async def secret(self, _key: ObjectKey, _name: str) -> Mapping[str, str]:
        return self.content


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
        found = await answered(lambda: offsets.ends(place), Unreachable)
        assert found is not None
        assert found.ends == {f"{topic.name}/{partition}": RECORDS // 4 for partition in range(4)}
    finally:
        await offsets.close()


async def test_a_topic_without_rights_is_a_refusal_for_all_three(topic: Topic, properties: dict[str, str]) -> None:
    with pytest.raises(DependencyDown) as caught:
        KafkaLog(properties, [topic.name], patience=60).state()
    assert caught.value.reason == "KafkaCredentialsRejected"
    with pytest.raises(WorkerError) as raised:
        list(read(all_of(topic), properties, patience=60))
    told = from_text(str(raised.value))
    assert isinstance(told, DependencyDown)
    assert told.reason == "KafkaCredentialsRejected"
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
    with pytest.raises(WorkerError) as raised:
        list(read(all_of(topic), properties, patience=60))
    told = from_text(str(raised.value))
    assert isinstance(told, DependencyDown)
    assert told.reason == "KafkaCredentialsRejected"


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
def test_a_wrong_password_is_a_refusal_and_not_silence(environment: Environment, topic: Topic, mechanism: str) -> None:
    properties = {**properties_of(environment, mechanism), "sasl.password": "wrong"}
    with pytest.raises(DependencyDown) as caught:
        KafkaLog(properties, [topic.name], patience=60).state()
    assert caught.value.reason == "KafkaCredentialsRejected"
    assert "wrong" not in caught.value.message
    with pytest.raises(WorkerError) as raised:
        list(read(all_of(topic), properties, patience=60))
    told = from_text(str(raised.value))
    assert isinstance(told, DependencyDown)
    assert told.reason == "KafkaCredentialsRejected"
