"""A trial as its pod runs it, on real Kafka and Cassandra: what it finds, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fencepost.contract import CassandraSink
from integration.driver.support import Pipeline
from integration.driver.trials import tried

pytestmark = pytest.mark.integration

Make = Callable[..., Pipeline]
NO = -1
"""The n of no record."""


def with_table(one: Pipeline) -> Pipeline:
    """Give the pipeline a table that is keyed by the record's place."""
    one.session.execute(f"DROP TABLE driver_tests.{one.topic}", timeout=60)
    columns = "topic text, partition int, offset bigint, bucket bigint, n bigint, x double, city text"
    one.session.execute(f"CREATE TABLE driver_tests.{one.topic} ({columns}, PRIMARY KEY ((topic, partition), offset))")
    sink = CassandraSink(name="rows", keyspace="driver_tests", table=one.topic)
    one.config = replace(one.config, sinks=(sink,), entrypoint="parse:priced", args=codes())
    return one


def codes(*, changed: int = NO, left_out: int = NO, added: int = NO, refused: int = NO) -> tuple[str, ...]:
    return tuple(str(number) for number in (changed, left_out, added, refused))


def stored(one: Pipeline) -> list[Any]:
    """Everything that a trial may not change: the row, its history, and the table with its write times."""
    keyspace, key = one.config.fence_keyspace, one.config.pipeline
    queries = [
        f"SELECT JSON * FROM {keyspace}.fence WHERE pipeline = '{key}'",  # noqa: S608
        f"SELECT JSON topic, partition, offset, n, x, city, writetime(x) FROM driver_tests.{one.topic}",  # noqa: S608
    ]
    rows = [sorted(row[0] for row in one.session.execute(query, timeout=60)) for query in queries]
    return [*rows, [str(change) for change in one.history()]]


def test_a_trial_finds_each_kind_of_row_and_changes_nothing(pipeline: Make, tmp_path: Path) -> None:
    one = with_table(pipeline(max_records_per_batch=4000))
    one.kafka.produce(one.topic, 4000)
    run = one.start()
    one.wait_committed(4000)
    run.stop()
    before = stored(one)
    found = tried(one, tmp_path / "other", codes(changed=1700, left_out=2000, added=5, refused=3100), {})
    assert stored(one) == before
    (sink,) = found.sinks
    assert (found.records, found.total, found.is_complete) == (4000, 4000, True)
    assert (sink.equal, sink.changed, sink.added, sink.missing) == (3997, 1, 1, 2)
    assert (found.poison, found.first_poison) == (1, f"{one.topic}/0@775")
    samples = {sample.kind: sample for sample in found.samples if sample.kind != "Missing"}
    assert samples["Changed"].columns == "x"
    assert "offset=425" in samples["Changed"].key
    assert "offset=1000001" in samples["Added"].key
    missing = [sample.key for sample in found.samples if sample.kind == "Missing"]
    assert len(missing) == 2
    assert any("offset=500" in key for key in missing)
    used = {each.name: each for each in found.processes}
    assert used["jvm"].peak_memory > 0
    assert used["jvm"].cpu_seconds > 0
    assert used["workers"].peak_memory > 0


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("records", [1_000_000, 10_000_000])
def test_one_changed_row_of_millions_is_found(pipeline: Make, tmp_path: Path, records: int) -> None:
    one = with_table(pipeline(max_records_per_batch=100_000))
    one.kafka.produce(one.topic, records)
    run = one.start()
    one.wait_committed(records, timeout=3600)
    run.stop()
    found = tried(one, tmp_path / "other", codes(changed=777_777), {}, rows_per_second=1_000_000, timeout=3600)
    (sink,) = found.sinks
    assert (sink.equal, sink.changed, sink.added, sink.missing) == (records - 1, 1, 0, 0)
    assert found.samples[0].columns == "x"
