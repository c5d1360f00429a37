"""The fence's protocol as a real driver follows it, on real Kafka and Cassandra."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import pytest
from confluent_kafka import TopicCollection

from fencepost.contract import ExitCode
from fencepost.fence import Fence, FenceRow, Starting
from fencepost.fence.cassandra.table import CassandraFenceTable
from harness.waiting import eventually
from integration.driver.support import Pipeline
from integration.driver.test_runs import assert_once

pytestmark = pytest.mark.integration

Make = Callable[..., Pipeline]


def table(pipeline: Pipeline) -> CassandraFenceTable:
    return CassandraFenceTable.over(pipeline.session, pipeline.config.fence_keyspace)


def test_a_batch_that_was_too_large_is_cut_by_the_claim_and_the_next_ones_too(pipeline: Make) -> None:
    """Injected: a predecessor that planned 8,000 records and died on them."""
    one = pipeline(max_records_per_batch=8000)
    one.kafka.produce(one.topic, 16_000)
    config = one.take_over()
    keys = [f"{one.topic}/{number}" for number in range(4)]
    ids = {one.topic: str(one.kafka.admin.describe_topics(TopicCollection([one.topic]))[one.topic].result(30).topic_id)}

    def start(_row: FenceRow) -> Starting:
        return Starting(offsets=dict.fromkeys(keys, 0), planned=dict.fromkeys(keys, 2000), topic_ids=ids)

    one.fence.claim(epoch=config.epoch, driver="predecessor", code="c", start=start)
    run = one.start(replace(one.take_over(), first_batch_limit=1000))
    one.wait_committed(16_000)
    run.end()
    assert [line["records"] for line in run.committed()] == [1000] * 16
    assert_once(one, 16_000)


def test_a_new_partition_is_read_after_the_old_ones_as_they_were(pipeline: Make) -> None:
    one = pipeline(max_records_per_batch=400)
    one.kafka.produce(one.topic, 4000)
    config = one.take_over()
    run = one.start(config)
    one.wait_committed(400)
    one.kafka.grow(one.topic, 8)
    one.kafka.produce(one.topic, 800, partitions=8, start=4000)
    one.wait_committed(4800)
    run.end()
    rows = one.history()
    old, new = [f"{one.topic}/{n}" for n in range(4)], [f"{one.topic}/{n}" for n in range(4, 8)]
    first = next(row for row in rows if any(row.offsets.get(key, 0) for key in new))
    assert all(first.offsets[key] >= 1000 for key in old)
    assert set(one.row().growth_barrier) == {*old, *new}  # passed, and kept for a rewind
    assert_once(one, 4800)


@pytest.mark.long
def test_a_long_batch_reports_its_progress_and_an_idle_run_that_it_lives(pipeline: Make) -> None:
    """Two of its four tasks run at a time, and what a task has done shows when it ends: 15 s before the batch does."""
    one = pipeline(max_records_per_batch=300)
    one.kafka.produce(one.topic, 300)
    run = one.start(replace(one.take_over(), entrypoint="parse:trickle"))
    seen: list[int] = []

    def look() -> bool:
        found = table(one).read_progress(one.config.pipeline)
        if found is not None and found.done:
            assert found.epoch == one.config.epoch
            seen.append(found.done)
        return len(set(seen)) >= 2 or run.process.poll() is not None or one.committed_records() > 0

    eventually("two different reports of progress", look, seconds=240)
    assert len(set(seen)) >= 2, run.log.read_text()[-3000:]
    assert seen == sorted(seen)
    assert one.committed_records() == 0  # all in one batch
    one.wait_committed(300)
    signs: set[datetime] = set()

    def lives() -> bool:
        found = table(one).read_progress(one.config.pipeline)
        if found is not None and (found.version, found.done) == (one.row().version, 0):
            signs.add(found.at)
        return len(signs) >= 2

    eventually("two signs of life of the idle run", lives, seconds=120)


@pytest.mark.long
def test_executors_that_import_for_long_report_progress_in_the_first_batch_of_a_restart(pipeline: Make) -> None:
    """A restart runs no empty batch first: nothing was reported, and after stallTimeout the run was replaced."""
    one = pipeline(max_records_per_batch=400)
    one.kafka.produce(one.topic, 400)
    first = one.start(replace(one.take_over(), entrypoint="parse:transform"))
    one.wait_committed(400)
    first.stop()
    one.kafka.produce(one.topic, 400, start=400)
    run = one.start(replace(one.take_over(), entrypoint="parse:importing"))
    seen: set[int] = set()

    def look() -> bool:
        found = table(one).read_progress(one.config.pipeline)
        if found is not None and found.epoch == one.config.epoch:
            seen.add(found.done)
        return one.committed_records() >= 800 or run.process.poll() is not None

    eventually("the second run's batch", look, seconds=240, pause=0.5)
    assert len(seen) >= 3, run.log.read_text()[-3000:]
    assert_once(one, 800)


@pytest.mark.long
def test_a_row_whose_clock_is_far_ahead_ends_the_run_with_the_way_out(pipeline: Make) -> None:
    """Injected: a node whose clock was a day ahead wrote the row."""
    one = pipeline()
    config = one.take_over()
    row = one.row()
    day = 24 * 3600 * 1_000_000
    assert table(one).swap(row, replace(row, version=row.version + 1, clock=int(time.time() * 1e6) + day))
    run = one.start(config)
    assert run.wait() == ExitCode.DEPENDENCY_DOWN
    verdict = run.verdict()
    assert verdict.reason == "ClockSkew"
    assert "ahead of Cassandra's time" in verdict.message
    assert "set the row's clock back" in verdict.remedy
    assert one.row().driver is None


@pytest.mark.long
def test_a_run_of_a_deleted_pipeline_neither_commits_nor_claims_in_the_new_one(pipeline: Make) -> None:
    one = pipeline()
    one.kafka.produce(one.topic, 2000)
    zombie = one.start(replace(one.take_over(), owner="test/test"))
    one.wait_committed(2000)
    fence = Fence(table(one), one.config.pipeline)
    fence.release(one.row())
    assert zombie.wait(60) == ExitCode.FENCED
    adopted = fence.create("test/new")
    taken = fence.take_over(adopted, owner="test/new")
    assert taken.epoch > one.config.epoch
    assert taken.offsets == {}
    again = one.start(replace(one.config, epoch=taken.epoch, owner="test/test"))
    assert again.wait() == ExitCode.FENCED
    assert "belongs to" in again.verdict().message
    rightful = one.start(replace(one.config, epoch=taken.epoch, owner="test/new"))
    one.wait_committed(2000)
    rightful.end()
    assert_once(one, 2000)
