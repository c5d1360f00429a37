"""A log that was truncated and grew again beyond the committed offset: found, with the exact range, and never skipped.

The offsets alone look healthy: the committed one lies inside the log. Only the leader epochs tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest
from confluent_kafka import KafkaError, Message, Producer

from fencepost.batch import Range, Watermarks, between
from fencepost.errors import DataLoss, WorkerError, from_text
from fencepost.kafka.log import KafkaLog
from fencepost.kafka.reader import read
from fencepost.kafka.record import KafkaRecords
from harness.waiting import eventually
from integration.kafka.brokers import Cluster

pytestmark = pytest.mark.integration

TOPIC = "t"


def produce(cluster: Cluster, records: Mapping[int, int], *, name: str) -> None:
    """Produce {partition: number of records}, each in a batch of its own, so that the log can be truncated anywhere."""
    # The offsets are counted: a repeated request must neither store a record twice nor overtake another one.
    exactly = {"enable.idempotence": True, "max.in.flight.requests.per.connection": 1}
    producer = Producer({"bootstrap.servers": cluster.servers, "batch.num.messages": 1, "log_level": 0, **exactly})
    refused: list[KafkaError] = []

    def told(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    for partition, count in records.items():
        for number in range(count):
            producer.produce(TOPIC, value=f"{name}-{number}", partition=partition, on_delivery=told)
    assert producer.flush(60) == 0
    assert not refused


def look(cluster: Cluster) -> Watermarks:
    return KafkaLog({"bootstrap.servers": cluster.servers}, [TOPIC], patience=60).state()


def values(cluster: Cluster, offsets: Mapping[str, int], now: Watermarks, epochs: Mapping[str, int]) -> list[bytes]:
    """Read from `offsets`, seen under `epochs`, to the log's ends, as the next batch does."""
    batch = between(offsets, now.ends, epochs)
    found = read(batch.ranges, {"bootstrap.servers": cluster.servers}, patience=60)
    return [value for records in found for value in records.column("value").to_pylist()]


def data_loss(cluster: Cluster, offsets: Mapping[str, int], now: Watermarks, epochs: Mapping[str, int]) -> DataLoss:
    with pytest.raises(WorkerError) as caught:
        values(cluster, offsets, now, epochs)
    found = from_text(str(caught.value))
    assert isinstance(found, DataLoss)
    return found


def next_records(offsets: Mapping[str, int], epochs: Mapping[str, int]) -> Sequence[Range]:
    return between(offsets, {key: at + 1 for key, at in offsets.items()}, epochs).ranges


def test_a_log_that_lost_its_tail_and_grew_again_is_data_loss_with_the_range(cluster: Callable[..., Cluster]) -> None:
    """A power failure takes what was not flushed; the broker comes back and takes new records."""
    kafka = cluster()
    kafka.create(TOPIC, [[1], [1], [1]])
    produce(kafka, {0: 100, 1: 50, 2: 30}, name="old")
    before = look(kafka)
    committed = before.ends
    assert committed == {f"{TOPIC}/0": 100, f"{TOPIC}/1": 50, f"{TOPIC}/2": 30}
    (broker,) = kafka.brokers
    broker.crash()
    broker.truncate(TOPIC, 0, until=60)
    broker.truncate(TOPIC, 1, until=41)
    broker.start()
    kafka.wait()
    produce(kafka, {0: 80, 1: 80, 2: 80}, name="new")
    now = look(kafka)
    assert all(now.leader_epochs[key] > before.leader_epochs[key] for key in committed)
    assert all(now.begins[key] <= committed[key] < now.ends[key] for key in committed)  # nothing looks wrong

    found = data_loss(kafka, committed, now, before.leader_epochs)
    assert found.reason == "LogTruncated"
    assert f"{TOPIC}/0 [60, 100), {TOPIC}/1 [41, 50)" in found.message
    assert f"{TOPIC}/2" not in found.message

    # A task whose consumer has seen the new leader reads on, so the driver asks before the first batch after a change.
    values(kafka, committed, now, before.leader_epochs)
    records = KafkaRecords({"bootstrap.servers": kafka.servers}, patience=60)
    with pytest.raises(DataLoss) as caught:
        records.check(next_records(committed, before.leader_epochs))
    assert caught.value.loss is not None
    assert found.loss is not None
    assert caught.value.loss.ranges == found.loss.ranges
    records.check(next_records({f"{TOPIC}/0": 60, f"{TOPIC}/1": 41}, before.leader_epochs))  # what was not lost

    # Accepted, the pipeline continues from the log's own offsets, and what is new is read whole.
    accepted = {f"{TOPIC}/0": 60, f"{TOPIC}/1": 41, f"{TOPIC}/2": 30}
    new = values(kafka, accepted, now, now.leader_epochs)
    assert sorted(new) == sorted(f"new-{number}".encode() for number in range(80) for _ in range(3))


def test_an_unclean_election_is_data_loss_with_the_range(cluster: Callable[..., Cluster]) -> None:
    """The leader dies, and a replica that lags is elected: what only the leader had is gone."""
    kafka = cluster(3)
    kafka.create(TOPIC, [[2, 3]], **{"unclean.leader.election.enable": "true", "min.insync.replicas": "1"})
    _, leader, follower = kafka.brokers
    produce(kafka, {0: 40}, name="both")
    follower.crash()
    produce(kafka, {0: 60}, name="leader-only")
    before = look(kafka)
    committed = {f"{TOPIC}/0": 100}
    assert before.ends == committed
    leader.crash()
    follower.start()
    eventually("the replica that lags to lead", lambda: look(kafka).ends == {f"{TOPIC}/0": 40}, seconds=180)
    produce(kafka, {0: 90}, name="new")

    found = data_loss(kafka, committed, look(kafka), before.leader_epochs)
    assert found.reason == "LogTruncated"
    assert f"{TOPIC}/0 [40, 100)" in found.message


def test_a_new_leader_that_has_all_records_is_no_data_loss(cluster: Callable[..., Cluster]) -> None:
    """Each restart raises the leader epoch; without truncation the reader goes on."""
    kafka = cluster()
    kafka.create(TOPIC, [[1]])
    produce(kafka, {0: 20}, name="old")
    before = look(kafka)
    (broker,) = kafka.brokers
    for restart in (broker.crash, broker.stop):
        restart()
        broker.start()
        kafka.wait()
    produce(kafka, {0: 5}, name="new")
    now = look(kafka)
    assert now.leader_epochs[f"{TOPIC}/0"] > before.leader_epochs[f"{TOPIC}/0"]
    assert values(kafka, before.ends, now, before.leader_epochs) == [f"new-{number}".encode() for number in range(5)]


def test_where_a_log_was_cut_is_found_also_before_it_has_grown_to_the_offset(cluster: Callable[..., Cluster]) -> None:
    """Its end would be taken for that place: the new records before the end would never be read."""
    kafka = cluster()
    kafka.create(TOPIC, [[1], [1]])
    produce(kafka, {0: 100, 1: 20}, name="old")
    before = look(kafka)
    (broker,) = kafka.brokers
    broker.crash()
    broker.truncate(TOPIC, 0, until=40)
    broker.start()
    kafka.wait()
    produce(kafka, {0: 30, 1: 30}, name="new")
    assert look(kafka).ends == {f"{TOPIC}/0": 70, f"{TOPIC}/1": 50}
    records = KafkaRecords({"bootstrap.servers": kafka.servers}, patience=60)
    with pytest.raises(DataLoss) as caught:
        records.check(next_records(before.ends, before.leader_epochs))
    assert caught.value.loss is not None
    assert caught.value.loss.ranges == {f"{TOPIC}/0": (40, 100)}
    records.check(next_records({f"{TOPIC}/0": 40}, before.leader_epochs))  # what the older leader had is there
