"""A driver and a Kafka of the test's own, which dies and loses records."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from fencepost.contract import ExitCode
from integration.driver.support import Kafka, Pipeline
from integration.kafka.brokers import Cluster
from testbed.environment import Environment

pytestmark = pytest.mark.integration


@pytest.fixture
def kafka(environment: Environment, tmp_path: Path) -> Iterator[Cluster]:
    one = Cluster.start(str(environment.docker), tmp_path / "kafka")
    yield one
    one.remove()


@pytest.fixture
def one(pipeline: Callable[..., Pipeline], kafka: Cluster) -> Pipeline:
    """A pipeline whose topic, of one partition, is on that broker."""
    made = pipeline()
    made.kafka.delete(made.topic)
    made.kafka = Kafka(kafka.servers)
    made.kafka.create(made.topic, partitions=1)
    made.config = replace(made.config, source=replace(made.config.source, bootstrap_servers=kafka.servers))
    return made


def produce(one: Pipeline, count: int, **options: Any) -> None:
    """Produce each record in a batch of its own, so that the log can be truncated anywhere."""
    producer = Producer({"bootstrap.servers": one.kafka.servers, "batch.num.messages": 1, "log_level": 0})
    for number in range(count):
        producer.produce(one.topic, value=f'{{"n": {number}, "x": 0.5, "city": "c"}}', partition=0, **options)
    assert producer.flush(60) == 0


@pytest.mark.long
def test_a_stop_while_kafka_is_down_exits_0_and_keeps_what_was_committed(one: Pipeline, kafka: Cluster) -> None:
    produce(one, 100)
    run = one.start()
    one.wait_committed(100)
    (broker,) = kafka.brokers
    broker.crash()
    time.sleep(3)  # so that the driver waits for an answer about the log
    run.signal(signal.SIGTERM)
    assert run.wait(20) == ExitCode.STOPPED
    assert run.verdict().reason == "Stopped"
    assert one.committed_records() == 100


@pytest.mark.long
def test_a_log_that_was_truncated_and_grew_again_stops_the_next_run_with_the_range(
    one: Pipeline, kafka: Cluster
) -> None:
    """Injected: a power failure takes 40 committed records, and the broker then takes 80 new ones at their offsets."""
    produce(one, 100)
    run = one.start()
    one.wait_committed(100)
    run.signal(signal.SIGTERM)
    assert run.wait() == ExitCode.STOPPED
    key = f"{one.topic}/0"
    assert key in one.row().leader_epochs
    (broker,) = kafka.brokers
    broker.crash()
    broker.truncate(one.topic, 0, until=60)
    broker.start()
    kafka.wait()
    produce(one, 80)
    again = one.start()
    assert again.wait() == ExitCode.DATA_LOSS
    verdict = again.verdict()
    assert verdict.reason == "LogTruncated"
    assert f"{key} [60, 100)" in verdict.message
    assert one.committed_records() == 100
    loss = one.recorded(verdict.loss).loss
    assert loss.ranges == {key: (60, 100)}
    one.accept(loss)
    last = one.start()
    one.wait_committed(140)
    last.signal(signal.SIGTERM)
    assert last.wait() == ExitCode.STOPPED
    numbers = {row.offset: row.n for row in one.rows()}
    assert numbers == {**{at: at for at in range(60)}, **{60 + number: number for number in range(80)}}


def test_a_broker_that_restarts_is_not_a_data_loss(one: Pipeline, kafka: Cluster) -> None:
    produce(one, 100)
    run = one.start(replace(one.take_over(), stall_timeout=240.0))
    one.wait_committed(100)
    (broker,) = kafka.brokers
    broker.crash()
    broker.start()
    kafka.wait()
    produce(one, 50)
    one.wait_committed(150)
    run.signal(signal.SIGTERM)
    assert run.wait() == ExitCode.STOPPED
