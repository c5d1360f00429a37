"""Where a real Kafka finds the first record of a time, and how a backlog is divided by it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence

import pytest
from confluent_kafka import Producer

from fencepost.driver.planning.pacing import Pacing
from fencepost.driver.planning.plan import next_batch
from fencepost.kafka.log import KafkaLog
from integration.driver.support import Kafka
from testbed.environment import Environment
from unit.driver.timed_log import first, reached

pytestmark = pytest.mark.integration

BEGIN = 1_767_225_600_000
"""In ms: 2026-01-01."""


@pytest.fixture
def topic(environment: Environment) -> Iterator[str]:
    kafka, name = Kafka(environment.kafka_host), f"times-{uuid.uuid4().hex[:8]}"
    kafka.create(name, 4, **{"retention.ms": "-1"})
    yield name
    kafka.delete(name)


def send(environment: Environment, topic: str, times: Mapping[int, Sequence[int]], **properties: str) -> None:
    producer = Producer({"bootstrap.servers": environment.kafka_host, "enable.idempotence": True, **properties})
    for partition, moments in times.items():
        for at in moments:
            producer.produce(topic, b"v", partition=partition, timestamp=at)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_the_first_record_of_a_time_or_later_is_found_whatever_the_order(
    environment: Environment, topic: str, codec: str
) -> None:
    times = {0: [1, 5, 3, 5, 9], 1: [7] * 300, 2: list(range(0, 4000, 2))}
    moments = {part: [BEGIN + at for at in each] for part, each in times.items()}
    send(environment, topic, moments, **{"compression.type": codec})
    log = KafkaLog({"bootstrap.servers": environment.kafka_host}, [topic], patience=60)
    keys = [f"{topic}/{partition}" for partition in range(4)]
    for at in (0, 2, 4, 5, 6, 7, 8, 9, 10, 1001, 3998, 3999):
        found = log.offsets_at(BEGIN + at, keys)
        assert found == {f"{topic}/{part}": first(times.get(part, []), at) for part in range(4)}, at
    assert log.offsets_at(0, keys[2:3]) == {keys[2]: 0}


def test_records_of_an_open_transaction_are_not_found(environment: Environment, topic: str) -> None:
    producer = Producer({"bootstrap.servers": environment.kafka_host, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"v", partition=0, timestamp=BEGIN)
    producer.flush(60)
    log = KafkaLog({"bootstrap.servers": environment.kafka_host}, [topic], patience=60)
    assert log.offsets_at(BEGIN, [f"{topic}/0"]) == {f"{topic}/0": None}
    producer.commit_transaction(60)


def test_a_backlog_is_read_in_the_order_of_its_times(environment: Environment, topic: str) -> None:
    """Ten times as many records in one partition, and one that was silent for most of the time."""
    times = {
        f"{topic}/0": [BEGIN + 100 * number for number in range(10_000)],
        f"{topic}/1": [BEGIN + 1000 * number for number in range(1000)],
        f"{topic}/2": [BEGIN, BEGIN + 900_000],
        f"{topic}/3": [BEGIN + 333 * number for number in range(3000)],
    }
    send(environment, topic, {part: times[f"{topic}/{part}"] for part in range(4)})
    log = KafkaLog({"bootstrap.servers": environment.kafka_host}, [topic], patience=60)
    state, requests, began = log.state(), 0, time.monotonic()

    def find(moment: int, keys: Collection[str]) -> Mapping[str, int | None]:
        nonlocal requests
        requests += 1
        return log.offsets_at(moment, keys)

    divide, offsets, batches = Pacing(find), dict.fromkeys(state.ends, 0), 0
    while not (batch := next_batch(offsets, state, [topic], 700, divide=divide)).is_empty:
        offsets, batches = dict(batch.until), batches + 1
        newest = max(reached(times[key], offset) for key, offset in offsets.items())
        waiting = [times[key][offset] for key, offset in offsets.items() if offset < len(times[key])]
        assert newest <= min(waiting, default=newest)
    assert offsets == state.ends == {key: len(each) for key, each in times.items()}
    print(f"{batches} batches, {requests} requests, {(time.monotonic() - began) / requests * 1000:.1f} ms each")
    assert requests <= 12 * batches
