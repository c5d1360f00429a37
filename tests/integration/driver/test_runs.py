"""Driver processes on real Kafka and Cassandra: what is in the table, the row and the last words after each end."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from fencepost.contract import CassandraSink, DriverConfig, ExitCode
from integration.driver.support import CODE, TABLE, Pipeline, Run, spans

pytestmark = pytest.mark.integration

Make = Callable[..., Pipeline]
EACH_TIME = {"records_failing", "wrong_column", "null_key"}
"""Cases in `make test`; `make soak` has all."""
CODES = {
    "records_wrong_column": (
        "parse_records:wrong_column",
        ExitCode.BAD_SPEC,
        "SinkMismatch",
        "column 'town' is not in",
    ),
    "records_null_key": ("parse_records:null_key", ExitCode.POISON_RECORD, "PoisonRecord", "bucket is part of the"),
    "records_failing": ("parse_records:failing", ExitCode.FAILED, "TransformFailed", "the author's own mistake (/opt"),
    "wrong_column": ("parse:wrong_column", ExitCode.BAD_SPEC, "SinkMismatch", "column 'town' is not in the table"),
    "no_module": (
        "absent:transform",
        ExitCode.BAD_SPEC,
        "EntrypointNotFound",
        "module 'absent' is not on the Python path",
    ),
    "null_key": ("parse:null_key", ExitCode.POISON_RECORD, "PoisonRecord", "bucket is part of the primary key"),
    "failing": ("parse:failing", ExitCode.FAILED, "TransformFailed", "ArithmeticError: the author's own mistake"),
}


def assert_once(pipeline: Pipeline, count: int) -> None:
    rows = pipeline.rows()
    assert len(rows) == count
    assert {row.n for row in rows} == set(range(count))
    assert all(row.x == row.n / 2 and row.city == f"c{row.n % 7}" for row in rows)


def test_killed_at_any_point_every_row_is_there_once(pipeline: Make) -> None:
    """SIGKILL three times under load, then SIGTERM: rows once, commits contiguous, epochs monotone."""
    one = pipeline(max_records_per_batch=1500)
    one.kafka.produce(one.topic, 12_000)
    for number, pause in enumerate((0.0, 0.35)):
        run = one.start()
        one.wait_committed(3000 * (number + 1))
        time.sleep(pause)
        run.kill()
    one.kafka.produce(one.topic, 3000, start=12_000)
    run = one.start()
    one.wait_committed(15_000)
    run.signal(signal.SIGTERM)
    assert run.wait() == ExitCode.STOPPED
    assert run.verdict().reason == "Stopped"
    assert_once(one, 15_000)
    history = one.history()
    assert [change.epoch for change in history] == sorted(change.epoch for change in history)
    for before, after in spans(history):
        assert all(after.get(key, 0) >= offset for key, offset in before.items())


def test_record_batches_are_written_once_to_each_sink_also_after_a_kill(pipeline: Make) -> None:
    one = pipeline(max_records_per_batch=1500)
    name = one.topic
    one.session.execute(TABLE.format(keyspace="driver_tests", table=f"{name}_even"))
    one.kafka.produce(one.topic, 9000)
    sinks = (*one.config.sinks, CassandraSink(name="even", keyspace="driver_tests", table=f"{name}_even"))
    one.config = replace(one.config, sinks=sinks, entrypoint="parse_records:two")
    run = one.start()
    one.wait_committed(1500)
    run.kill()
    one.kafka.produce(one.topic, 1500, start=9000)  # on busy CPUs all else may be committed by now
    run = one.start()
    one.wait_committed(10500)
    run.signal(signal.SIGTERM)
    assert run.wait() == ExitCode.STOPPED
    even = list(one.session.execute(f"SELECT n FROM driver_tests.{name}_even"))  # noqa: S608
    one.session.execute(f"DROP TABLE driver_tests.{name}_even", timeout=30)
    assert_once(one, 10500)
    assert sorted(row.n for row in even) == list(range(0, 10500, 2))


@pytest.mark.long
def test_a_twin_and_a_replaced_run_are_fenced_within_a_batch(pipeline: Make) -> None:
    one = pipeline()
    one.kafka.produce(one.topic, 2000)
    first = one.start()
    one.wait_committed(2000)
    twin = one.start(one.config)
    assert twin.wait() == ExitCode.FENCED
    one.take_over()
    assert first.wait(60) == ExitCode.FENCED  # it is idle: the look at the fence shows it
    assert first.verdict().reason == "FencedOut"
    again = one.start(replace(one.config, epoch=one.config.epoch - 1))
    assert again.wait() == ExitCode.FENCED
    assert_once(one, 2000)


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case in EACH_TIME else pytest.mark.long) for case in CODES]
)
def test_what_the_author_can_do_wrong(pipeline: Make, case: str) -> None:
    entrypoint, code, reason, message = CODES[case]
    one = pipeline()
    one.kafka.produce(one.topic, 100)
    one.take_over()
    run = one.start(replace(one.config, entrypoint=entrypoint))
    assert run.wait() == code
    verdict = run.verdict()
    assert verdict.reason == reason
    assert message in verdict.message
    assert verdict.remedy
    assert one.rows() == []
    if code != ExitCode.BAD_SPEC:
        assert sum(high - low for low, high in verdict.batch.values()) == 100


@pytest.mark.long
def test_a_transform_that_makes_a_row_of_an_empty_batch_starts_and_writes_its_batches_alone(pipeline: Make) -> None:
    one = pipeline()
    one.kafka.produce(one.topic, 1000)
    run = one.start(replace(one.take_over(), entrypoint="parse:summary"))
    one.wait_committed(1000)
    run.signal(signal.SIGTERM)
    assert run.wait() == ExitCode.STOPPED
    assert [(row.partition, row.offset, row.n) for row in one.rows()] == [(3, 249, 1000)]


def test_a_record_that_breaks_the_transform_is_reported_with_the_author_s_line(pipeline: Make) -> None:
    """A later batch of a run is built without call sites; the run after it meets the same batch first, and has them."""
    one = pipeline()
    one.kafka.produce(one.topic, 2000)
    lines = (CODE / "parse.py").read_text().splitlines()
    place = "parse.py:{}".format(next(number for number, line in enumerate(lines, 1) if '("city").cast' in line))
    for is_named in (False, True):
        run = one.start(replace(one.take_over(), entrypoint="parse:brittle"))
        assert run.wait() == ExitCode.FAILED
        verdict = run.verdict()
        assert "CAST_INVALID_INPUT" in verdict.message
        assert (place in verdict.message) == is_named
        assert set(verdict.batch.values()) == {(250, 500)}
    assert one.committed_records() == 1000


def test_wrong_password_wrong_table_and_absent_topic_end_quickly_with_their_reason(pipeline: Make) -> None:
    one = pipeline()
    one.take_over()

    def ends(config: DriverConfig, **variables: str) -> Run:
        run = one.start(config, **variables)
        run.wait()
        return run

    wrong = ends(one.config, FENCEPOST_CASSANDRA_PASSWORD="wrong")  # noqa: S106 - it is wrong
    assert (wrong.process.returncode, wrong.verdict().reason) == (54, "CassandraCredentialsRejected")
    sinks = (CassandraSink(name="rows", keyspace="driver_tests", table="absent"),)
    assert ends(replace(one.config, sinks=sinks)).verdict().reason == "SinkNotFound"
    absent = replace(one.config, source=replace(one.config.source, topics=("absent-topic",)))
    assert ends(absent).verdict().reason == "TopicNotFound"


def test_two_sinks_in_one_job_and_a_stop_in_the_middle_of_a_batch(pipeline: Make) -> None:
    one = pipeline(max_records_per_batch=500)
    name = one.topic
    one.session.execute(TABLE.format(keyspace="driver_tests", table=f"{name}_even"))
    one.kafka.produce(one.topic, 1000)
    one.take_over()
    sinks = (*one.config.sinks, CassandraSink(name="even", keyspace="driver_tests", table=f"{name}_even"))
    one.config = replace(one.config, sinks=sinks, entrypoint="parse:two")
    run = one.start(one.config)
    one.wait_committed(500)
    run.signal(signal.SIGTERM)
    assert run.wait() == ExitCode.STOPPED
    done = one.committed_records()
    assert done in {500, 1000}
    even = list(one.session.execute(f"SELECT n FROM driver_tests.{name}_even"))  # noqa: S608
    one.session.execute(f"DROP TABLE driver_tests.{name}_even", timeout=30)
    assert len(one.rows()) == done
    assert len(even) == done // 2
