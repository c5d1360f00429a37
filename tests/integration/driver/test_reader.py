"""The reader on a log with transactions: what was committed once, what was aborted never, and no wait for markers."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Producer

from fencepost.batch import Range
from fencepost.contract import ExitCode
from fencepost.driver.planning.plan import next_batch
from fencepost.kafka import reader
from fencepost.kafka.log import KafkaLog
from fencepost.kafka.reader import read
from fencepost_cli.history.checks import check_history
from harness.waiting import eventually
from integration.driver.support import Kafka, Pipeline
from testbed.environment import Environment

pytestmark = pytest.mark.integration

Record = tuple[int, bytes]
"""Partition and value."""


@dataclass
class Transactions:
    """A producer of transactions on one topic; `ends` are the last stable offsets that they leave."""

    producer: Producer
    topic: str
    ends: dict[str, int]
    committed: list[Record] = field(default_factory=list)
    count: int = 0

    def begin(self, records: Mapping[int, int]) -> list[Record]:
        """Send {partition: number of records} in a new transaction; all of them are in the log when it returns."""
        self.count += 1
        self.producer.begin_transaction()
        sent = [
            (partition, f"{self.count}/{partition}/{number}".encode())
            for partition, many in records.items()
            for number in range(many)
        ]
        for partition, value in sent:
            self.producer.produce(self.topic, value=value, partition=partition)
        assert self.producer.flush(60) == 0  # an abort would drop what is not sent yet
        return sent

    def end(self, sent: list[Record], *, is_committed: bool) -> None:
        """Commit or abort; either leaves a marker in each partition."""
        if is_committed:
            self.producer.commit_transaction(60)
            self.committed += sent
        else:
            self.producer.abort_transaction(60)
        for partition in {partition for partition, _ in sent}:
            self.ends[f"{self.topic}/{partition}"] += 1 + sum(one == partition for one, _ in sent)


@pytest.fixture
def transactions(environment: Environment) -> Iterator[Transactions]:
    kafka = Kafka(environment.kafka_host)
    topic = f"t{uuid.uuid4().hex[:10]}"
    kafka.create(topic)
    producer = Producer({"bootstrap.servers": environment.kafka_host, "transactional.id": topic, "linger.ms": 5})
    producer.init_transactions(60)
    yield Transactions(producer, topic, {f"{topic}/{partition}": 0 for partition in range(4)})
    kafka.delete(topic)


@pytest.mark.parametrize("limit", [7, 40, 1000])
def test_each_committed_record_is_read_once_and_no_aborted_one(
    environment: Environment, transactions: Transactions, limit: int
) -> None:
    properties = {"bootstrap.servers": environment.kafka_host}
    log = KafkaLog(properties, [transactions.topic], patience=60)
    offsets = dict.fromkeys(transactions.ends, 0)
    found: list[Record] = []

    def read_what_is_stable() -> None:
        """Batch after batch, as the loop does; ranges begin and end at markers and among aborted records too."""
        # The broker writes the markers after it has answered the producer.
        eventually(f"the log ends at {transactions.ends}", lambda: log.state().ends == transactions.ends, seconds=30)
        state = log.state()
        while not (batch := next_batch(offsets, state, [transactions.topic], limit)).is_empty:
            for records in read(batch.ranges, properties, patience=60):
                partitions, values = records.column("partition").to_pylist(), records.column("value").to_pylist()
                found.extend(zip(partitions, values, strict=True))
            offsets.update(batch.until)

    for records, is_committed in (
        ({0: 25, 1: 25, 2: 3}, True),
        ({0: 10, 1: 1, 3: 12}, False),  # partition 3 has nothing but what was aborted
        ({0: 1, 2: 5}, True),
        ({0: 4, 1: 9}, False),  # and the log of two ends with that
    ):
        transactions.end(transactions.begin(records), is_committed=is_committed)
    pending = transactions.begin({0: 6, 3: 2})
    read_what_is_stable()
    assert sorted(found) == sorted(transactions.committed)
    transactions.end(pending, is_committed=True)
    read_what_is_stable()
    assert sorted(found) == sorted(transactions.committed)
    for partition in range(4):
        in_order = [value for one, value in found if one == partition]
        assert in_order == [value for one, value in transactions.committed if one == partition]


def test_an_open_transaction_shows_as_the_high_watermark_beyond_the_end(
    environment: Environment, transactions: Transactions
) -> None:
    """A producer that neither commits nor aborts holds the last stable offset, and the lag to that is 0 for good."""
    log = KafkaLog({"bootstrap.servers": environment.kafka_host}, [transactions.topic], patience=60)
    key = f"{transactions.topic}/0"
    transactions.end(transactions.begin({0: 5}), is_committed=True)
    eventually("the commit's marker", lambda: log.state().ends == transactions.ends, seconds=30)
    assert log.state().high == transactions.ends

    open_one = transactions.begin({0: 7})
    other = Producer({"bootstrap.servers": environment.kafka_host, "enable.idempotence": True, "linger.ms": 5})
    for _ in range(3):  # committed without a transaction, and withheld with the transaction before them
        other.produce(transactions.topic, value=b"plain", partition=0)
    assert other.flush(60) == 0
    stalled = log.state()
    assert stalled.ends == transactions.ends
    assert stalled.high[key] - stalled.ends[key] == 7 + 3
    assert all(stalled.high[other] == end for other, end in stalled.ends.items() if other != key)
    uncommitted = KafkaLog(
        {"bootstrap.servers": environment.kafka_host, "isolation.level": "READ_UNCOMMITTED"},
        [transactions.topic],
        patience=60,
    )
    assert uncommitted.state().ends == stalled.high

    transactions.end(open_one, is_committed=False)
    eventually("the transaction to end", lambda: log.state().ends == log.state().high, seconds=30)


def abort(servers: str, topic: str, size: int) -> int:
    """Abort one transaction of `size` bytes in partition 0; return the number of its records."""
    settings = {"transactional.id": f"{topic}-aborted", "transaction.timeout.ms": 600_000, "batch.size": 15_000}
    producer = Producer({"bootstrap.servers": servers, **settings})
    producer.init_transactions(60)
    producer.begin_transaction()
    value, count = bytes(10_000), size // 10_000
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, value=value, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(300) == 0
    producer.abort_transaction(60)
    return count


@pytest.mark.long
def test_a_stretch_of_aborted_records_that_takes_longer_than_the_patience_is_read_through(
    environment: Environment, transactions: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the speed of a distant broker, where each fetch gets one batch of the producer's, it takes four seconds."""
    monkeypatch.setattr(reader, "ASK_AFTER", 0.3)
    monkeypatch.setattr(reader, "INTERVAL", 0.2)
    slow = {"message.max.bytes": "12000", "fetch.max.bytes": "12000"}
    properties = {"bootstrap.servers": environment.kafka_host, **slow}
    patience, topic = 2.0, transactions.topic
    transactions.end(transactions.begin({0: 3}), is_committed=True)
    aborted = abort(environment.kafka_host, topic, 80_000_000)
    transactions.end(transactions.begin({0: 2}), is_committed=True)
    reached: dict[str, int] = {}
    (short,) = read([Range(topic, 0, 0, 10)], properties, patience=patience, reached=reached.__setitem__)
    assert short.column("offset").to_pylist() == [0, 1, 2]
    assert 10 < reached[f"{topic}/0"] <= 4 + aborted + 1
    until = 4 + aborted + 1 + 2
    whole = list(read([Range(topic, 0, 0, until)], properties, patience=patience))
    assert sum(records.num_rows for records in whole) == 5


@pytest.mark.long
def test_a_gigabyte_of_aborted_records_is_passed_by_one_run(pipeline: Callable[..., Pipeline]) -> None:
    """Small batches: each of a million would read up to the next record."""
    one = pipeline(max_records_per_batch=100)
    one.kafka.produce(one.topic, 40)
    aborted = abort(one.kafka.servers, one.topic, 1_000_000_000)
    one.kafka.produce(one.topic, 40, start=40)
    run = one.start()
    one.wait_committed(80 + aborted + 1, timeout=600)
    run.signal(signal.SIGTERM)
    assert run.wait() == ExitCode.STOPPED
    assert sorted(row.n for row in one.rows()) == list(range(80))
    assert check_history(one.history()).violations == ()
    assert len(one.history()) < 60
