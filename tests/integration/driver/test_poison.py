"""Records that fail alone, with real Spark, Kafka and Cassandra: each one is found, and everything else is written."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from fakes.raw_headers import RawProducer
from fencepost.contract import CassandraSink, DriverConfig, ExitCode, KafkaSink
from fencepost.fence.cassandra.dead_letters import DeadLetters
from fencepost.sinks.dedup import newest
from fencepost_cli.history.checks import check_history
from fencepost_operator.api import ObjectKey
from integration.cli.scene import SCOPE, Scene, described
from integration.driver.support import Pipeline
from integration.driver.test_sink_contract import records
from present import present
from testbed.environment import Environment

pytestmark = pytest.mark.integration

Make = Callable[..., Pipeline]
NOWHERE = b'{"n": 1, "x": 0.5, "city": "nowhere"}'
UNREADABLE = b"unreadable"
HEADERS: list[tuple[str, str | bytes | None]] = [("from", b"a test")]


def spoil(pipeline: Pipeline, *places: tuple[int, bytes]) -> None:
    """Append a record to a partition each."""
    producer = Producer({"bootstrap.servers": pipeline.kafka.servers, "enable.idempotence": True})
    for partition, value in places:
        producer.produce(pipeline.topic, value=value, key=b"bad", partition=partition, headers=HEADERS)
    assert producer.flush(60) == 0


def isolating(pipeline: Pipeline, retention: float | None) -> DriverConfig:
    return replace(
        pipeline.take_over(),
        entrypoint="parse:picky",
        isolate=True,
        dead_letter_retention=retention,
        batch_interval=0.2,
    )


def test_records_that_fail_are_set_aside_and_all_others_are_written(pipeline: Make) -> None:
    """First the run stops and names the first one; then a run sets all of them aside."""
    one = pipeline()
    one.kafka.produce(one.topic, 20)
    spoil(one, (1, UNREADABLE), (2, NOWHERE), (2, UNREADABLE))
    one.kafka.produce(one.topic, 20, start=20)
    run = one.start(isolating(one, None))
    assert run.wait() == ExitCode.POISON_RECORD
    verdict = run.verdict()
    assert verdict.record == {f"{one.topic}/1": 5}
    assert f"{one.topic}/1@5 fails each time it is tried alone" in verdict.message
    assert "this record is unreadable" in verdict.message
    assert one.committed_records() == 15

    run = one.start(isolating(one, 3600.0))
    one.wait_committed(43)
    run.signal(signal.SIGTERM)
    assert run.wait() == ExitCode.STOPPED
    assert sorted(row.n for row in one.rows()) == list(range(40))
    row = one.row()
    assert (row.dead_letters, row.last_dead_letter) == (3, f"{one.topic}/2@6")
    assert check_history(one.history()).violations == ()
    letters = DeadLetters(one.session, one.config.fence_keyspace, one.config.pipeline)
    (listed,) = letters.of_partition(one.topic, 1)
    assert (listed.offset, listed.topic_id) == (5, row.topic_ids[one.topic])
    others = list(letters.of_partition(one.topic, 2))
    assert [found.offset for found in others] == [5, 6]
    kept = present(letters.read(listed))
    assert (kept.key, kept.value, kept.headers) == (b"bad", UNREADABLE, '[["from", "YSB0ZXN0"]]')
    assert "ValueError: this record is unreadable" in (kept.traceback or "")
    other = present(letters.read(others[0]))
    assert "CAST_INVALID_INPUT" in (other.error or "")


@pytest.mark.long
def test_code_that_always_fails_sets_nothing_aside(pipeline: Make) -> None:
    one = pipeline()
    one.kafka.produce(one.topic, 8)
    run = one.start(replace(isolating(one, 3600.0), entrypoint="parse:failing"))
    assert run.wait() == ExitCode.FAILED
    verdict = run.verdict()
    assert (verdict.suspect, verdict.record) == (True, {})
    assert "others that were tried" in verdict.message
    row = one.row()
    assert (row.dead_letters, one.committed_records()) == (0, 0)


@pytest.mark.long
def test_a_record_that_is_retried_after_the_code_was_repaired_is_one_row(
    pipeline: Make, environment: Environment
) -> None:
    one = pipeline()
    key = ObjectKey(f"test-{one.topic}", "orders")
    one.config = replace(one.config, pipeline=f"{SCOPE}/{key}")
    one.kafka.produce(one.topic, 8)
    spoil(one, (1, b'{"n": 77, "x": 0.5, "city": "nowhere"}'))
    run = one.start(isolating(one, 3600.0))
    one.wait_committed(9)
    run.stop()
    assert sorted(row.n for row in one.rows()) == list(range(8))

    with described(environment, key, one.config):
        scene = Scene(environment, key, one.topic, one.session, one.row())
        (retried,) = scene.json("dead-letters", "retry", str(key), "--all", "--yes")["deadLetters"]
        assert (retried["offset"], retried["to"]) == (2, f"{one.topic}/1@3")
        again = scene.json("dead-letters", "retry", str(key), "--all", "--yes")
        assert (again["retriedBefore"], again["deadLetters"]) == (1, [])

    run = one.start(replace(isolating(one, 3600.0), entrypoint="parse:transform", code="repaired"))
    one.wait_committed(10)
    run.stop()
    assert [(row.partition, row.offset) for row in one.rows() if row.n == 77] == [(1, 3)]
    assert sorted(row.n for row in one.rows()) == [*range(8), 77]
    assert (one.row().dead_letters, one.committed_records()) == (1, 10)


@pytest.mark.long
def test_bytes_that_are_not_utf8_set_aside_the_records_that_cannot_be_written(pipeline: Make) -> None:
    """A text key, a value of a Kafka sink, and names of headers, which are replaced."""
    one = pipeline()
    names, out = f"{one.topic}_names", f"{one.topic}-out"
    one.session.execute(f"CREATE TABLE driver_tests.{names} (name text PRIMARY KEY, offset bigint)")
    one.kafka.create(out, partitions=1)
    producer = RawProducer(one.kafka.servers)
    try:
        one.kafka.produce(one.topic, 8)
        producer.produce(one.topic, b"headers", [(b"na\xe9me", b"1")], partition=0, key=b"a")
        producer.produce(one.topic, b"key", [], partition=1, key=b"\xff\xfe")
        producer.produce(one.topic, b"\xff\xfe", [(b"na\xe9me", b"1")], partition=2, key=b"c")
        table = CassandraSink(name="names", keyspace="driver_tests", table=names)
        sinks = (table, KafkaSink(name="out", topics=(out,)))
        run = one.start(replace(isolating(one, 3600.0), entrypoint="parse:texts", sinks=sinks))
        one.wait_committed(11)
        run.stop()
        row = one.row()
        assert row.dead_letters == 2
        letters = DeadLetters(one.session, one.config.fence_keyspace, one.config.pipeline)
        of_partitions = [list(letters.of_partition(one.topic, number)) for number in range(4)]
        assert [[found.offset for found in each] for each in of_partitions] == [[], [2], [2], []]
        kept = present(letters.read(of_partitions[2][0]))
        assert (kept.value, kept.headers) == (b"\xff\xfe", '[["na\\ufffdme", "MQ=="]]')
        found = {each.name for each in one.session.execute(f"SELECT name FROM driver_tests.{names}")}  # noqa: S608
        assert {*map(str, range(8)), "a"} <= found
        written = newest(records(one.kafka.servers, out), lambda message: message.headers())
        values = {each.value() for each in written}
        assert (len(written), len(values), b"headers" in values) == (9, 9, True)
    finally:
        producer.close()
        one.session.execute(f"DROP TABLE IF EXISTS driver_tests.{names}", timeout=30)
        one.kafka.delete(out)
