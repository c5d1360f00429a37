"""Our own sinks keep to the contract that other packages' must keep to: a real Cassandra and a real Kafka."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cassandra.cluster import Session
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from pyarrow import parquet

from fencepost.contract import CassandraSink, DriverConfig, FilesSink, KafkaSink
from fencepost.errors import PoisonRecord
from fencepost.sinks import BatchToken
from fencepost.sinks.cassandra import cassandra_sink
from fencepost.sinks.dedup import newest
from fencepost.sinks.files import visible_files
from fencepost.sinks.kafka import kafka_sink
from fencepost.testing.sinks import SinkContract, Subject
from integration.driver.support import Kafka, Pipeline
from present import present
from testbed.environment import Environment

pytestmark = pytest.mark.integration

COORDINATES = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64()}


def batch(topic: str, *values: str) -> pa.RecordBatch:
    rows = [{"topic": topic, "partition": 0, "offset": 5 + i, "value": value} for i, value in enumerate(values)]
    return pa.RecordBatch.from_pylist(rows, pa.schema({**COORDINATES, "value": pa.string()}))


def misfits(rows: pa.RecordBatch) -> dict[str, pa.Schema]:
    return {
        "town": rows.schema.append(pa.field("town", pa.string())),
        "offset": rows.schema.remove(2),
        "value": rows.schema.set(3, pa.field("value", pa.int64())),
    }


@pytest.fixture(scope="module")
def table(session: Session) -> Iterator[str]:
    name = f"t{uuid.uuid4().hex[:10]}"
    session.execute(
        f"CREATE TABLE driver_tests.{name} (topic text, partition int, offset bigint, value text,"
        " PRIMARY KEY ((topic, partition), offset))"
    )
    session.cluster.refresh_table_metadata("driver_tests", name)
    yield name
    session.execute(f"DROP TABLE driver_tests.{name}", timeout=30)


class TestCassandraTable(SinkContract):
    """A table."""

    @pytest.fixture
    def subject(
        self, environment: Environment, session: Session, table: str, pipeline: Callable[..., Pipeline]
    ) -> Subject:
        part = uuid.uuid4().hex
        config: DriverConfig = pipeline().config
        credentials = (environment.cassandra_username, environment.cassandra_password)
        sink = CassandraSink(name="rows", keyspace="driver_tests", table=table)

        def read() -> list[dict[str, Any]]:
            query = f"SELECT * FROM driver_tests.{table} WHERE topic = %s AND partition = 0"  # noqa: S608
            return [row._asdict() for row in session.execute(query, [part])]

        rows = batch(part, "a", "b", "c")
        return Subject(
            open=lambda: cassandra_sink.bind(config, sink, session, credentials),
            rows=rows,
            changed=batch(part, "x", "y", "z"),
            read=read,
            misfits=misfits(rows),
        )


def records(servers: str, topic: str) -> list[Message]:
    """Return every record of committed transactions in a topic's only partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers, "group.id": "none", "enable.partition.eof": True,
            "isolation.level": "read_committed", "enable.auto.commit": False,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while True:
        message = consumer.poll(60)
        assert message is not None, "the topic is not read to its end"
        error = message.error()
        if error is None:
            found.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            consumer.close()
            return found
        else:
            raise AssertionError(error)


def marks(message: Message) -> dict[str, str]:
    """Return the headers of a record of the sink."""
    return {name: value.decode() for name, value in dict(message.headers() or ()).items() if isinstance(value, bytes)}


@pytest.fixture
def topic(environment: Environment) -> Iterator[str]:
    name = f"out-{uuid.uuid4().hex[:10]}"
    cluster = Kafka(environment.kafka_host)
    cluster.create(name, partitions=1)
    yield name
    cluster.delete(name)


class TestKafkaTopic(SinkContract):
    """A topic whose readers keep the newest copy of each record."""

    @pytest.fixture
    def subject(self, environment: Environment, topic: str) -> Subject:
        properties = {"bootstrap.servers": environment.kafka_host}

        def read() -> list[dict[str, Any]]:
            found = []
            for message in newest(records(environment.kafka_host, topic), lambda message: message.headers()):
                name, partition, offset = marks(message)["fencepost-coordinates"].split("/")
                value = present(message.value())
                found.append(
                    {"topic": name, "partition": int(partition), "offset": int(offset), "value": value.decode()}
                )
            return found

        rows = batch("t", "a", "b", "c")
        return Subject(
            open=lambda: kafka_sink.bind(KafkaSink(name="out", topics=(topic,)), properties, patience=30.0),
            rows=rows,
            changed=batch("t", "x", "y", "z"),
            read=read,
            misfits=misfits(rows),
        )


def test_a_failed_task_leaves_nothing_that_readers_of_committed_records_see(
    environment: Environment, topic: str
) -> None:
    properties = {"bootstrap.servers": environment.kafka_host}
    sink = kafka_sink.bind(KafkaSink(name="out", topics=(topic,)), properties, patience=30.0)
    token = BatchToken(pipeline=f"test/test/{topic}", epoch=1, version=3, token=9, offsets={})

    def breaking() -> Iterator[pa.RecordBatch]:
        yield batch("t", "a", "b")
        raise RuntimeError("the executor's disk is full")

    with pytest.raises(RuntimeError):
        list(sink.task().write(breaking(), token))
    list(sink.task().write(iter([batch("t", "c")]), token))
    assert [message.value() for message in records(environment.kafka_host, topic)] == [b"c"]


def test_a_transaction_spans_the_topics_that_rows_name(environment: Environment, topic: str) -> None:
    """A row of a topic that is not listed ends the task; what it wrote to the others is not visible."""
    cluster, other = Kafka(environment.kafka_host), f"{topic}-other"
    cluster.create(other, partitions=1)
    properties = {"bootstrap.servers": environment.kafka_host}
    declared = KafkaSink(name="out", topics=(topic, other), topic_column="to")
    sink = kafka_sink.bind(declared, properties, patience=30.0)
    token = BatchToken(pipeline=f"test/test/{topic}", epoch=1, version=3, token=9, offsets={})
    try:
        for names in ((topic, other, "elsewhere"), (other, topic, other)):
            rows = batch("t", "a", "b", "c").append_column("to", pa.array(names))
            with pytest.raises(PoisonRecord, match="elsewhere") if "elsewhere" in names else nullcontext():
                list(sink.task().write(iter([rows]), token))
        assert [message.value() for message in records(environment.kafka_host, topic)] == [b"b"]
        assert [message.value() for message in records(environment.kafka_host, other)] == [b"a", b"c"]
    finally:
        cluster.delete(other)


def test_a_topic_has_every_record_once_for_its_readers_after_a_kill(
    pipeline: Callable[..., Pipeline], environment: Environment, topic: str
) -> None:
    one = pipeline(max_records_per_batch=250)
    one.kafka.produce(one.topic, 2000)
    one.config = replace(one.config, entrypoint="parse:to_topic", sinks=(KafkaSink(name="out", topics=(topic,)),))
    run = one.start()
    one.wait_committed(250)
    run.kill()
    one.start()
    one.wait_committed(2000)
    copies = records(environment.kafka_host, topic)
    kept = newest(copies, lambda message: message.headers())
    numbers = [json.loads(message.value() or b"")["n"] for message in kept]
    assert sorted(numbers) == list(range(2000))
    assert {marks(message)["fencepost-pipeline"] for message in kept} == {one.config.pipeline}


@pytest.mark.long
def test_files_have_every_record_once_for_their_readers_after_kills(
    pipeline: Callable[..., Pipeline], tmp_path: Path
) -> None:
    """Injected: SIGKILL of three drivers in a row, each while it writes."""
    one = pipeline(max_records_per_batch=250)
    one.kafka.produce(one.topic, 2000)
    lake = tmp_path / "lake"
    lake.mkdir()
    lake.chmod(0o777)
    one.writable = (lake,)
    sink = FilesSink(name="files", path=f"file://{lake}", folders=("city",))
    one.config = replace(one.config, sinks=(sink,))
    for committed in (250, 750, 1250):
        run = one.start()
        one.wait_committed(committed)
        run.kill()
    one.start()
    one.wait_committed(2000)
    files = [name.removeprefix("file://") for name in visible_files(f"file://{lake}")]
    found = [(name, row) for name in files for row in parquet.read_table(name, partitioning=None).to_pylist()]
    assert sorted(row["n"] for _, row in found) == list(range(2000))
    assert all(f"/city={row['city']}/" in name for name, row in found)
