"""A Kafka with users: topics with rights on them, and the ways in which a tenant's account connects."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from harness.waiting import eventually
from integration.driver.support import Kafka
from testbed.environment import Environment

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


@contextmanager
def topic_of(environment: Environment, records: int = RECORDS) -> Iterator[Topic]:
    """A topic with records, on which no account has a right."""
    kafka = Kafka(environment.kafka_host)
    topic = Topic(kafka, f"t{uuid.uuid4().hex[:10]}")
    kafka.create(topic.name)
    kafka.produce(topic.name, records)
    try:
        yield topic
    finally:
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


def wait_granted(topic: Topic, properties: Mapping[str, str]) -> None:
    """The broker learns of an ACL from the metadata log, a moment after the controller took it."""
    admin = AdminClient({**properties, "log_level": 0})
    eventually(
        "the ACL is known",
        lambda: admin.list_topics(topic.name, timeout=10).topics[topic.name].error is None,
        seconds=30,
    )
