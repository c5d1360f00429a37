"""Pinned states: rows of a snapshot on real Spark, in functions of both kinds; log, fence and chunks are in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fencepost.context import StreamContext
from fencepost.contract import PinnedState, Reason
from fencepost.driver import pinned_states
from fencepost.driver.stateful import checkpoint_service
from fencepost.errors import BadSpec
from fencepost.spark.stateful.stored_state import TooManyBytes, collected
from fencepost.state.webhdfs.authentication import Keys
from fencepost.testing import context, frame
from fencepost.testing.streams import StreamTest
from present import present
from unit.driver.loop_world import config
from unit.spark.stateful.test_state_reader import by_value, counts
from unit.spark.stateful.test_stateful_run import ENDS, Pipeline, made  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PIN = PinnedState(name="values", pipeline="default/shop/values", snapshot="of before")
KEYS = Keys("of this test")


def pinned(pipeline: Pipeline, checkpoint: bytes | None, pin: PinnedState = PIN) -> DataFrame:
    """Read it as a run of another pipeline does."""
    spark = pipeline.spark
    run = replace(config(1), pipeline="default/shop/another", pinned_states=(pin,))
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
    for name, value in checkpoint_service.client(run, KEYS).items():
        hadoop.set(name.removeprefix("spark.hadoop."), value)
    chunks = {PIN.pipeline: pipeline.chunks}
    found = pinned_states.read_all(
        spark, run, KEYS, host=None, checkpoint=lambda _: checkpoint, chunks=lambda one: chunks[one.pipeline]
    )
    return found[pin.name]


def table(rows: DataFrame) -> dict[str, int]:
    return {bytes(row.key.value).decode(): row.value["count"] for row in rows.collect()}


def test_a_replay_sees_the_rows_of_the_snapshot_after_its_pipeline_has_committed_more(
    made: Callable[[], Pipeline],  # noqa: F811
) -> None:
    pipeline = made()
    pipeline.function = by_value
    pipeline.run()
    snapshot = present(pipeline.world.row().checkpoint)
    first = pinned(pipeline, snapshot)
    assert first.columns == ["key", "value"]
    assert table(first) == counts(ENDS)

    pipeline.world.log.ends = {key: end + 10 for key, end in ENDS.items()}
    pipeline.run()
    assert pipeline.world.row().checkpoint != snapshot
    assert table(pinned(pipeline, snapshot)) == counts(ENDS)
    assert table(pinned(pipeline, pipeline.world.row().checkpoint)) == counts(pipeline.world.log.ends)

    reads = list(pipeline.calls)
    assert table(first) == counts(ENDS)
    assert pipeline.calls == reads  # the rows are held

    def enriched(events: DataFrame, found: StreamContext) -> DataFrame:
        known = found.state("values").selectExpr("cast(key.value as string) v", "value.count known")
        return events.selectExpr("cast(value as string) v", "offset").join(known, "v").groupBy("v", "known").count()

    batches = [[{"value": b"0"}, {"value": b"1"}], [{"value": b"0"}, {"value": b"unknown"}]]
    rows = StreamTest(pipeline.spark, enriched, states={"values": first}).check_restarts(batches, keys=["v"])
    assert rows["rows"][-1] == {"v": "0", "known": counts(ENDS)["0"], "count": 2}


@pytest.mark.parametrize(
    ("changes", "checkpoint", "message", "remedy"),
    [
        ({}, None, "the snapshot does not exist, or has no state", "Name a snapshot"),
        ({}, b"nonsense", "unreadable", "Name a snapshot"),
        ({"operator": 7}, b"", "the state has no operator 7; it has: 0 (stateStoreSave)", "Set operator of the entry"),
        ({"store": "left"}, b"", "has no store 'left'; it has: default", "Set store of the entry"),
    ],
)
def test_what_cannot_be_pinned_is_named(
    made: Callable[[], Pipeline],  # noqa: F811
    changes: dict[str, Any],
    checkpoint: bytes | None,
    message: str,
    remedy: str,
) -> None:
    pipeline = made()
    if checkpoint == b"":
        pipeline.function = by_value
        pipeline.run()
        checkpoint = pipeline.world.row().checkpoint
    with pytest.raises(BadSpec, match="pinned state 'values', snapshot of before of default/shop/values: ") as raised:
        pinned(pipeline, checkpoint, replace(PIN, **changes))
    assert message in raised.value.message
    assert raised.value.reason is Reason.PINNED_STATE_UNREADABLE
    assert raised.value.remedy.startswith(remedy)


def test_rows_beyond_the_limit_are_refused_and_none_are_an_empty_frame(spark: SparkSession) -> None:
    rows = spark.range(0, 100_000, 1, 4)
    assert collected(rows, 2 << 20).count() == 100_000
    with pytest.raises(TooManyBytes, match="the rows take more than 0 MiB"):
        collected(rows, 1 << 16)
    empty = collected(rows.where("id < 0"), 1 << 16)
    assert (empty.schema, empty.count()) == (rows.schema, 0)


def test_a_function_gets_a_state_by_its_name(spark: SparkSession) -> None:
    known = spark.createDataFrame([(b"a", 1)], "value binary, known int")
    found = context(spark, states={"values": known})
    joined = frame(spark, [{"value": b"a"}, {"value": b"b"}]).join(found.state("values"), "value")
    assert [row.known for row in joined.collect()] == [1]
    with pytest.raises(BadSpec, match="pinnedStates has no 'orders'; it has: values"):
        found.state("orders")
