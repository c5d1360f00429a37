"""Where a log ends an epoch's records, and who may serve them: asked of the brokers that librdkafka has for tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from fencepost.batch import Range
from fencepost.errors import DataLoss, DependencyDown, WorkerError, from_text
from fencepost.kafka import reader


@pytest.fixture(scope="module")
def producer() -> Producer:
    """A topic `t` of 50 records in each of two partitions, whose leaders have epoch 0. The brokers end with it."""
    producer = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 2, "log_level": 0})
    for partition in (0, 1):
        for number in range(50):
            producer.produce("t", value=str(number), partition=partition)
    assert producer.flush(60) == 0
    return producer


@pytest.fixture
def servers(producer: Producer) -> str:
    brokers = producer.list_topics(timeout=60).brokers.values()
    return ",".join(f"{broker.host}:{broker.port}" for broker in brokers)


@pytest.fixture(autouse=True)
def _new_clients() -> Iterator[None]:
    yield
    reader._clients.clear()
    reader._topic_ids.clear()


def read(servers: str, part: Range, patience: float) -> list[int]:
    batches = reader.read([part], {"bootstrap.servers": servers}, patience=patience)
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_what_the_log_still_holds_is_found_for_each_partition(servers: str) -> None:
    parts = [Range("t", 0, 50, 51, 0, seen_epoch=0), Range("t", 1, 20, 21, 0, seen_epoch=0)]
    reader.check(parts, {"bootstrap.servers": servers}, patience=60)


def test_a_log_that_ends_before_what_was_read_is_data_loss(servers: str) -> None:
    parts = [Range("t", 0, 80, 81, 0, seen_epoch=0), Range("t", 1, 50, 51, 0, seen_epoch=0)]
    with pytest.raises(DataLoss) as caught:
        reader.check(parts, {"bootstrap.servers": servers}, patience=60)
    assert caught.value.loss is not None
    assert caught.value.loss.ranges == {"t/0": (50, 80)}


def test_a_leader_that_does_not_know_the_epoch_that_was_seen_is_not_believed(servers: str) -> None:
    """It was cut off before that leader was elected, and says that it holds all that was read."""
    with pytest.raises(DependencyDown, match="t/0"):
        reader.check([Range("t", 0, 20, 21, 0, seen_epoch=1)], {"bootstrap.servers": servers}, patience=1)


def test_a_consumer_that_read_from_a_leader_reads_no_more_of_it_once_a_later_one_was_seen(servers: str) -> None:
    read(servers, Range("t", 1, 0, 1, seen_epoch=0), 60)  # from now on the size of a record is known
    assert read(servers, Range("t", 0, 10, 20, 0, seen_epoch=0), 60) == list(range(10, 20))
    clients = dict(reader._clients)
    with pytest.raises(WorkerError) as caught:
        read(servers, Range("t", 0, 20, 30, 0, seen_epoch=1), 3)
    assert reader._clients == clients  # it was the consumer that had read there
    assert isinstance(from_text(str(caught.value)), DependencyDown)
    assert read(servers, Range("t", 0, 20, 30, 0, seen_epoch=0), 60) == list(range(20, 30))
