"""What the operator sees of a log, by a real Kafka: as the driver reads it, and where a transaction is open."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka import Producer

from fakes.secrets import Secrets
from fencepost_operator.adapters.kafka.offsets import KafkaOffsets
from fencepost_operator.api import KafkaConnection
from fencepost_operator.endpoints import EndpointPolicy, parse_entries
from fencepost_operator.errors import Rejected, Unreachable
from fencepost_operator.observation import Watermarks
from harness.waiting import answered
from integration.driver.support import Kafka
from present import present
from testbed.environment import Environment

pytestmark = pytest.mark.integration


@pytest.fixture
def topic(environment: Environment) -> Iterator[str]:
    """Three committed records, a marker, and two records of a transaction that stays open."""
    kafka, name = Kafka(environment.kafka_host), f"open-{uuid.uuid4().hex[:8]}"
    kafka.create(name, 1)
    producer = Producer({"bootstrap.servers": environment.kafka_host, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(3):
        producer.produce(name, str(number))
    producer.commit_transaction(30)
    producer.begin_transaction()
    for number in range(2):
        producer.produce(name, str(number))
    producer.flush(30)
    yield name
    producer.abort_transaction(30)
    kafka.delete(name)


async def seen(
    environment: Environment, topic: str, properties: Mapping[str, str], policy: EndpointPolicy | None = None
) -> Watermarks | None:
    offsets = KafkaOffsets(Secrets(), policy)
    connection = KafkaConnection(
        namespace="n", bootstrap_servers=environment.kafka_host, topics=(topic,), properties=properties
    )
    try:
        return await answered(lambda: offsets.ends(connection), Unreachable)
    finally:
        await offsets.close()


async def test_committed_reads_end_before_the_open_transaction(environment: Environment, topic: str) -> None:
    found = present(await seen(environment, topic, {}))
    assert (found.ends, found.high_watermarks) == ({f"{topic}/0": 4}, {f"{topic}/0": 6})


async def test_uncommitted_reads_end_at_the_high_watermark(environment: Environment, topic: str) -> None:
    """History of the audit: the operator reported no lag where the driver read on."""
    found = present(await seen(environment, topic, {"isolation.level": "read_uncommitted"}))
    assert found.ends == found.high_watermarks == {f"{topic}/0": 6}


async def test_an_allowed_kafka_is_read_with_its_brokers_checked(environment: Environment, topic: str) -> None:
    policy = EndpointPolicy(entries=parse_entries(["127.0.0.0/8:*"]))
    assert await seen(environment, topic, {}, policy) is not None
    with pytest.raises(Rejected, match="may not connect"):
        await seen(environment, topic, {}, EndpointPolicy(entries=parse_entries(["kafka.example:9092"])))
