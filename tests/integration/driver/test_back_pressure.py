"""A driver on a backlog of records of 1 MB: bounded batches, order within a task, and a group that shows the fence."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer

from fencepost.contract import ExitCode
from integration.driver.support import Kafka, Pipeline, spans

pytestmark = pytest.mark.integration

RECORDS = 48
RECORD = 990_000
"""Bytes of a record: a producer sends at most 1,000,000 by default, with the headers of a batch."""
FITS = 6 * 1024 * 1024
"""Bytes that a batch may have."""


def produce_large(kafka: Kafka, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": kafka.servers, "enable.idempotence": True, "linger.ms": 0})
    for number in range(count):
        text = f'{{"n": {number}, "x": {number / 2}, "city": "c", "rest": "'
        producer.produce(topic, f"{text:x<{RECORD - 2}}" + '"}', partition=number % 4)
        producer.flush(60)


def test_large_records_are_read_in_batches_that_fit_in_order_and_the_group_shows_the_fence(
    pipeline: Callable[..., Pipeline],
) -> None:
    one = pipeline(
        max_records_per_batch=100_000, max_bytes_per_batch=FITS, target_batch_duration=10.0, split_partitions=False
    )
    group = f"mirror-{one.topic}"
    one.config = replace(
        one.config, entrypoint="parse:numbered", source=replace(one.config.source, mirror_to_group=group)
    )
    produce_large(one.kafka, one.topic, RECORDS)
    run = one.start()
    one.wait_committed(RECORDS)
    run.signal(signal.SIGTERM)
    assert run.wait() == ExitCode.STOPPED

    committed = run.committed()
    assert {line["records"] for line in committed} == {6}  # by the guess first, and by what was measured then
    assert all(line["bytes"] == line["records"] * RECORD <= FITS for line in committed)
    for before, after in spans(one.history()):
        assert sum(after.values()) - sum(before.values()) in {0, 6}

    rows = one.rows()
    assert sorted(row.n for row in rows) == list(range(RECORDS))
    for partition in range(4):
        own = sorted((row for row in rows if row.partition == partition), key=lambda row: row.offset)
        for earlier, later in pairwise(own):
            same_batch = earlier.city.split("/")[0] == later.city.split("/")[0]
            if same_batch:
                assert earlier.city == later.city  # one task
                assert earlier.x < later.x  # and its order

    asked = one.kafka.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    shown = {f"{part.topic}/{part.partition}": part.offset for part in asked[group].result(30).topic_partitions}
    assert shown == dict(one.row().offsets)
