"""A log that was truncated and grew again beyond the committed offset: found, with the exact range, and never skipped.

The offsets alone look healthy: the committed one lies inside the log. Only the leader epochs show it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from brokers.campaign import USERS
from fencepost.batch import Batch, Range, Sighting, Watermarks, between
from fencepost.driver.planning.leader_epochs import Committed, LeaderEpochs
from fencepost.errors import DataLoss, DependencyDown, WorkerError, from_text
from fencepost.kafka.log import KafkaLog
from fencepost.kafka.reader import read
from fencepost.kafka.record import KafkaRecords
from harness.waiting import eventually
from integration.kafka.brokers import Broker, Cluster
from present import present
from testbed.environment import Environment

pytestmark = pytest.mark.integration

TOPIC = "t"


def produce(cluster: Cluster, records: Mapping[int, int], *, name: str) -> None:
    """Produce {partition: number of records}, each in a batch of its own, so that the log can be truncated anywhere."""
    # The offsets are counted: a repeated request must neither store a record twice nor overtake another one.
    exactly = {"enable.idempotence": True, "max.in.flight.requests.per.connection": 1}
    producer = Producer({"bootstrap.servers": cluster.servers, "batch.num.messages": 1, "log_level": 0, **exactly})
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    for partition, count in records.items():
        for number in range(count):
            producer.produce(TOPIC, value=f"{name}-{number}", partition=partition, on_delivery=delivered)
    assert producer.flush(60) == 0
    assert not refused


def look(cluster: Cluster) -> Watermarks:
    return KafkaLog({"bootstrap.servers": cluster.servers}, [TOPIC], patience=60).state()


def values(cluster: Cluster, offsets: Mapping[str, int], now: Watermarks, epochs: Mapping[str, int]) -> list[bytes]:
    """Read from `offsets`, seen under `epochs`, to the log's ends, as the next batch does."""
    batch = between(offsets, now.ends, epochs)
    found = read(batch.ranges, {"bootstrap.servers": cluster.servers}, patience=60)
    return [value for records in found for value in records.column("value").to_pylist()]


def read_after(
    servers: str, committed: Committed, start: int, now: Watermarks, until: int | None = None
) -> tuple[list[str], Committed]:
    """Read from an offset of partition 0; return the values and what is committed, as a batch of the driver's does."""
    key, properties = f"{TOPIC}/0", {"bootstrap.servers": servers}
    end = {key: now.ends[key] if until is None else until}
    batch = between({key: start}, end, committed.leader_epochs, epoch_starts=committed.epoch_starts)
    seen: list[Sighting] = []
    found = read(
        batch.ranges, properties, patience=60, seen=lambda _, offset, epoch: seen.append(Sighting(offset, epoch))
    )
    values = [value.decode() for records in found for value in records.column("value").to_pylist()]
    planned = Batch(ranges=batch.ranges, until=batch.until, leader_epochs=now.leader_epochs)
    return values, LeaderEpochs(KafkaRecords(properties, patience=60)).after(planned, {key: seen})


def position(committed: Committed, at: int) -> Range:
    """Return the next record of partition 0."""
    key = f"{TOPIC}/0"
    return Range(TOPIC, 0, at, at + 1, committed.leader_epochs[key], epoch_start=committed.epoch_starts.get(key))


def lost(servers: str, part: Range) -> Mapping[str, tuple[int, int]]:
    with pytest.raises(DataLoss) as caught:
        KafkaRecords({"bootstrap.servers": servers}, patience=60).check([part])
    return present(caught.value.loss).ranges


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
    assert found.loss is not None
    assert present(caught.value.loss).ranges == found.loss.ranges
    records.check(next_records({f"{TOPIC}/0": 60, f"{TOPIC}/1": 41}, before.leader_epochs))  # what was not lost

    # Accepted, the pipeline continues from the log's own offsets, and what is new is read whole.
    accepted = {f"{TOPIC}/0": 60, f"{TOPIC}/1": 41, f"{TOPIC}/2": 30}
    new = values(kafka, accepted, now, now.leader_epochs)
    assert sorted(new) == sorted(f"new-{number}".encode() for number in range(80) for _ in range(3))


@pytest.mark.long
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


@pytest.mark.long
def test_a_new_leader_that_has_all_records_is_not_a_data_loss(cluster: Callable[..., Cluster]) -> None:
    """Each restart raises the leader epoch; without truncation the reader continues."""
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


@pytest.mark.long
def test_where_a_log_was_truncated_is_found_also_before_it_has_grown_to_the_offset(
    cluster: Callable[..., Cluster],
) -> None:
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
    assert present(caught.value.loss).ranges == {f"{TOPIC}/0": (40, 100)}
    records.check(next_records({f"{TOPIC}/0": 40}, before.leader_epochs))  # what the older leader had is there


@pytest.mark.long
@pytest.mark.parametrize("settings", [{}, {"compression.type": "lz4"}, {"transactional.id": "t"}], ids=str)
def test_a_record_has_the_epoch_under_which_it_was_written_whoever_serves_it(
    cluster: Callable[..., Cluster], settings: dict[str, str]
) -> None:
    """So a plain restart of the broker is not another log, and neither are markers and aborted records."""
    kafka = cluster()
    kafka.create(TOPIC, [[1]])
    (broker,) = kafka.brokers
    epochs: list[int] = []
    is_transactional = "transactional.id" in settings
    for name in ("first", "second"):
        producer = Producer({"bootstrap.servers": kafka.servers, "log_level": 0, **settings})
        if is_transactional:
            producer.init_transactions(60)
            producer.begin_transaction()
            producer.produce(TOPIC, value="aborted", partition=0)
            producer.flush(60)
            producer.abort_transaction(60)
            producer.begin_transaction()
        for number in range(5):
            producer.produce(TOPIC, value=f"{name}-{number}", partition=0)
        assert producer.flush(60) == 0
        if is_transactional:
            producer.commit_transaction(60)
        epochs.append(look(kafka).leader_epochs[f"{TOPIC}/0"])
        broker.crash()
        broker.start()
        kafka.wait()
    # A transaction's marker may follow the producer's answer.
    eventually("every transaction to end", lambda: (now := look(kafka)).ends == now.high, seconds=60)
    now = look(kafka)
    assert epochs[0] < epochs[1] < now.leader_epochs[f"{TOPIC}/0"]
    end, part = now.ends[f"{TOPIC}/0"], Range(TOPIC, 0, 0, now.ends[f"{TOPIC}/0"])
    seen: list[tuple[int, int]] = []
    list(read([part], {"bootstrap.servers": kafka.servers}, patience=60, seen=lambda _, *place: seen.append(place)))
    assert sorted({epoch for _, epoch in seen}) == epochs
    values, committed = read_after(kafka.servers, Committed(), 0, now)
    assert values == [f"{name}-{number}" for name in ("first", "second") for number in range(5)]
    assert epochs[1] <= committed.leader_epochs[f"{TOPIC}/0"] <= now.leader_epochs[f"{TOPIC}/0"]
    produce(kafka, {0: 3}, name="third")
    values, committed = read_after(kafka.servers, committed, end, look(kafka))
    assert values == ["third-0", "third-1", "third-2"]
    assert committed.leader_epochs == look(kafka).leader_epochs
    assert committed.epoch_starts == {f"{TOPIC}/0": end}


@pytest.mark.long
def test_a_leader_that_is_elected_again_with_its_old_log_has_records_that_were_not_read(
    cluster: Callable[..., Cluster],
) -> None:
    """Found: its log ends the earlier epoch beyond the committed offset, so its answer shows nothing."""
    kafka = cluster(3)
    kafka.create(TOPIC, [[2, 3]], **{"unclean.leader.election.enable": "true", "min.insync.replicas": "1"})
    _, old, new = kafka.brokers
    produce(kafka, {0: 100}, name="both")
    new.crash()
    produce(kafka, {0: 60}, name="old")
    old.crash()
    new.start()
    eventually("the replica that lags to lead", lambda: look(kafka).ends == {f"{TOPIC}/0": 100}, seconds=180)
    produce(kafka, {0: 50}, name="new")
    values, committed = read_after(kafka.servers, Committed(), 0, look(kafka))
    assert values[99:] == ["both-99", *(f"new-{number}" for number in range(50))]
    assert committed.epoch_starts == {f"{TOPIC}/0": 100}
    new.crash()
    old.start()
    eventually("the first leader to lead again", lambda: look(kafka).ends == {f"{TOPIC}/0": 160}, seconds=180)

    assert lost(kafka.servers, position(committed, 150)) == {f"{TOPIC}/0": (100, 150)}
    with pytest.raises(WorkerError, match=r"t/0 \[100, 150\)"):
        read_after(kafka.servers, committed, 150, look(kafka))
    accepted = Committed(leader_epochs=committed.leader_epochs)
    values, _ = read_after(kafka.servers, accepted, 100, look(kafka))
    assert values == [f"old-{number}" for number in range(60)]


@contextmanager
def unreachable(broker: Broker) -> Iterator[None]:
    """Refuse what clients of this process send to a broker: they learn of it from others, and would ask it as well."""
    rule = ["OUTPUT", "-p", "tcp", "--dport", str(broker.port), "-m", "owner", "--uid-owner", str(os.getuid())]
    refusing = [*rule, "-j", "REJECT", "--reject-with", "tcp-reset"]
    subprocess.run(["iptables", "-w", "--append", *refusing], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["iptables", "-w", "--delete", *refusing], check=True, capture_output=True)


def is_led_elsewhere(cluster: Cluster, ends: Mapping[str, int]) -> bool:
    """Return whether another leader answers, whose log ends there; the first leader may still be the one in mind."""
    try:
        return look(cluster).ends == ends
    except DependencyDown:
        return False


@pytest.mark.long
def test_what_is_read_from_a_leader_that_was_cut_off_is_lost_under_the_next_leader(
    environment: Environment, tmp_path: Path
) -> None:
    """It leads on for a consumer that knows no other, and holds what it alone acknowledged."""
    kafka = Cluster.start_apart(str(environment.docker), tmp_path / "kafka", USERS[:2], replica_lag_time_max_ms="3000")
    old, new = kafka.brokers
    key = f"{TOPIC}/0"
    try:
        kafka.create(TOPIC, [[1, 2]], **{"unclean.leader.election.enable": "true", "min.insync.replicas": "1"})
        produce(kafka, {0: 40}, name="both")
        read_after(old.address, Committed(), 0, look(kafka))  # its consumer knows the old leader
        new.cut(to=old.port)
        produce(kafka, {0: 60}, name="old")
        old.cut(to=old.controller[1])
        with unreachable(old):
            other = Cluster([new])
            eventually("another leader", lambda: is_led_elsewhere(other, {key: 40}), seconds=120)
            produce(other, {0: 90}, name="new")
            now = look(other)
        start = 40
        assert now.ends == {key: start + 90}

        with unreachable(new):
            _, before = read_after(old.address, Committed(), 0, now, until=start)
            values, committed = read_after(old.address, before, start, now, until=90)
            assert values == [f"old-{number}" for number in range(50)]
            assert committed.leader_epochs[key] < now.leader_epochs[key]  # it is not that of the driver's look
            rise = replace(position(committed, 90), epoch_start=None)
            with pytest.raises(DependencyDown):
                KafkaRecords({"bootstrap.servers": old.address}, patience=3).check([rise], now.leader_epochs)

        with unreachable(old):
            assert lost(new.address, position(committed, 90)) == {key: (start, 90)}
            accepted = Committed(leader_epochs=committed.leader_epochs)
            values, _ = read_after(new.address, accepted, start, now)
            assert values == [f"new-{number}" for number in range(90)]
    finally:
        kafka.remove()
