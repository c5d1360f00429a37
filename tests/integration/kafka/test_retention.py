"""What the operator learns of retention and of the age of unread records, from a real Kafka and without reading any."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType  # type: ignore[attr-defined]

from fakes.secrets import Secrets
from fencepost_operator.adapters.kafka.offsets import KafkaOffsets
from fencepost_operator.adapters.kafka.record_ages import FRACTION, PRECISION
from fencepost_operator.api import KafkaConnection, ObjectKey
from fencepost_operator.errors import Unreachable
from fencepost_operator.observation import Known, Retention, Unknown, UnreadRecords
from harness.waiting import answered, eventually_async
from integration.driver.support import Kafka
from integration.kafka.accounts import Topic, properties_of, wait_granted
from present import present
from testbed.environment import Environment

pytestmark = pytest.mark.integration

DAY = 86_400
READER = ObjectKey("n", "orders")


@dataclass(slots=True)
class Watcher:
    """An operator's view of topics."""

    offsets: KafkaOffsets
    connection: KafkaConnection

    async def look(self, positions: Mapping[str, int]) -> UnreadRecords:
        """Look once, as one pass of the loop does."""
        source = present(await answered(lambda: self.offsets.ends(self.connection), Unreachable))
        return await answered(lambda: self.offsets.unread(READER, self.connection, source, positions), Unreachable)

    async def find(self, positions: Mapping[str, int]) -> UnreadRecords:
        """Look until nothing is left to ask."""
        found: list[UnreadRecords] = []

        async def is_complete() -> bool:
            found.append(await self.look(positions))
            return not self.offsets._readers[READER].wants_answers()

        await eventually_async(is_complete, seconds=60, pause=0.1)
        return found[-1]


def watcher(servers: str, *topics: str, properties: Mapping[str, str] | None = None) -> Watcher:
    return Watcher(
        KafkaOffsets(Secrets(properties or {})),
        KafkaConnection(
            namespace="n", bootstrap_servers=servers, topics=topics, properties_secret="kafka" if properties else None
        ),
    )


@pytest.fixture
def kafka(environment: Environment) -> Kafka:
    return Kafka(environment.kafka_host)


@pytest.fixture
def topic(kafka: Kafka) -> Iterator[str]:
    """Three partitions, kept for thirty days."""
    name = f"kept-{uuid.uuid4().hex[:8]}"
    kafka.create(name, 3, **{"retention.ms": str(30 * DAY * 1000), "retention.bytes": "1073741824"})
    yield name
    kafka.delete(name)


@pytest.fixture
async def watching(kafka: Kafka, topic: str) -> AsyncIterator[Watcher]:
    made = watcher(kafka.servers, topic)
    yield made
    await made.offsets.close()


def produce(kafka: Kafka, topic: str, partition: int, ages: Sequence[float]) -> None:
    """Produce one record per age, in seconds; negative ones come from the future."""
    producer, now = Producer({"bootstrap.servers": kafka.servers, "linger.ms": 20}), time.time()
    for age in ages:
        producer.produce(topic, b"x", partition=partition, timestamp=round(1000 * (now - age)))
    assert producer.flush(60) == 0


def age_of(found: UnreadRecords, key: str) -> float:
    return (datetime.now(UTC) - found.oldest[key]).total_seconds()


def tolerance(age: float) -> float:
    return max(PRECISION / 1000, FRACTION * age) + 60


async def test_the_age_of_the_oldest_uncommitted_record(kafka: Kafka, topic: str, watching: Watcher) -> None:
    """In order; out of order, where the youngest before the offset keeps its segment; and from the future."""
    produce(kafka, topic, 0, [DAY * days for days in range(20, 0, -1)])
    produce(kafka, topic, 1, [9 * DAY, 2 * DAY, 8 * DAY, 1 * DAY])
    produce(kafka, topic, 2, [3 * DAY, -1800, 2 * DAY])
    found = await watching.find({f"{topic}/0": 5, f"{topic}/1": 2, f"{topic}/2": 0})
    for partition, days in ((0, 15), (1, 2), (2, 3)):
        age = age_of(found, f"{topic}/{partition}")
        assert days * DAY <= age <= days * DAY + tolerance(days * DAY)
    rewound = await watching.find({f"{topic}/0": 0})
    assert 20 * DAY <= age_of(rewound, f"{topic}/0") <= 20 * DAY + tolerance(20 * DAY)
    for offset in (1, 2):
        ahead = await watching.find({f"{topic}/2": offset})
        assert age_of(ahead, f"{topic}/2") <= tolerance(0), "the record from the future keeps those behind it"


async def test_the_brokers_own_time_counts_where_the_topic_says_so(kafka: Kafka) -> None:
    name = f"appended-{uuid.uuid4().hex[:8]}"
    kafka.create(name, 1, **{"message.timestamp.type": "LogAppendTime"})
    watching = watcher(kafka.servers, name)
    try:
        produce(kafka, name, 0, [10 * DAY] * 5)
        found = await watching.find({f"{name}/0": 3})
        assert age_of(found, f"{name}/0") <= tolerance(0)
    finally:
        await watching.offsets.close()
        kafka.delete(name)


async def test_an_idle_pipeline_asks_no_broker(kafka: Kafka, topic: str, watching: Watcher) -> None:
    produce(kafka, topic, 0, [DAY] * 3)
    await watching.find({f"{topic}/0": 1})
    source = present(await answered(lambda: watching.offsets.ends(watching.connection), Unreachable))
    unreachable = KafkaConnection(namespace="n", bootstrap_servers="127.0.0.1:1", topics=(topic,))
    reader = watching.offsets._readers[READER]
    reader.connection = unreachable
    found = await watching.offsets.unread(READER, unreachable, source, {f"{topic}/0": 1})
    assert f"{topic}/0" in found.oldest


async def test_retention_is_read_from_the_topics_configuration(kafka: Kafka, topic: str) -> None:
    compacted = f"compacted-{uuid.uuid4().hex[:8]}"
    kafka.create(compacted, 1, **{"cleanup.policy": "compact", "retention.ms": "3600000"})
    watching = watcher(kafka.servers, topic, compacted)
    try:
        found = await watching.look({})
    finally:
        await watching.offsets.close()
        kafka.delete(compacted)
    assert found.retention == {
        topic: Known(Retention(time=timedelta(days=30), size=1 << 30)),
        compacted: Known(Retention()),
    }


async def test_a_retention_that_was_extended_is_seen_after_a_minute(kafka: Kafka, topic: str) -> None:
    now = 0.0
    watching = Watcher(
        KafkaOffsets(Secrets(), monotonic=lambda: now),
        KafkaConnection(namespace="n", bootstrap_servers=kafka.servers, topics=(topic,)),
    )
    try:
        before = await watching.look({})
        entry = ConfigEntry("retention.ms", str(90 * DAY * 1000), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        kafka.admin.incremental_alter_configs([resource])[resource].result(30)
        assert await watching.look({}) == before

        async def extended() -> bool:
            nonlocal now
            now += 61
            return (await watching.look({})).retention == {
                topic: Known(Retention(time=timedelta(days=90), size=1 << 30))
            }

        await eventually_async(extended, seconds=30)
    finally:
        await watching.offsets.close()


async def test_records_that_are_gone_have_no_age(kafka: Kafka, topic: str, watching: Watcher) -> None:
    produce(kafka, topic, 0, [DAY] * 10)
    kafka.delete_records(topic, partition=0, before=6)
    found = await watching.find({f"{topic}/0": 2})
    assert found.oldest == {}


async def test_an_account_that_may_not_describe_the_configuration_gets_the_name_of_the_right(
    environment: Environment, kafka: Kafka
) -> None:
    topic = Topic(kafka, f"t{uuid.uuid4().hex[:10]}")
    kafka.create(topic.name)
    properties = properties_of(environment, "SCRAM-SHA-512")
    secrets = {key: value for key, value in properties.items() if key != "bootstrap.servers"}
    watching = watcher(properties["bootstrap.servers"], topic.name, properties=secrets)
    try:
        kafka.produce(topic.name, 8)
        topic.grant(environment.kafka_username, AclOperation.DESCRIBE, AclOperation.READ)
        wait_granted(topic, properties)
        found = await watching.find({f"{topic.name}/0": 0})
        unknown = found.retention[topic.name]
        assert isinstance(unknown, Unknown)
        assert f"--operation DescribeConfigs --topic {topic.name}" in unknown.remedy
        assert f"{topic.name}/0" in found.oldest, "its records' age needs no right but Describe"
        topic.grant(environment.kafka_username, AclOperation.DESCRIBE_CONFIGS)

        async def known() -> bool:
            watching.offsets._readers.clear()
            return isinstance((await watching.look({})).retention[topic.name], Known)

        await eventually_async(known, seconds=30)
    finally:
        await watching.offsets.close()
        topic.remove()
