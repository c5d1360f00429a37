"""Stateful operators behind the fence, on real Spark: runs that are killed leave what an undisturbed run leaves."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import pytest

from fencepost.context import StreamContext
from unit.spark.stateful.test_stateful_run import ENDS, STATE, Pipeline, dead_from, made

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

__all__ = ["made"]

COLUMNS = "minute long, key string, count long"
COUNTS = Counter(str(offset % 3) for end in ENDS.values() for offset in range(end))
"""How often each value is in the log."""
SESSIONS, WITHIN_WATERMARK, DUPLICATES, INNER, OUTER, STATIC = range(1, 7)
"""What stands in `minute` for the rows of an operator."""


def of_append_mode(events: DataFrame, context: StreamContext) -> DataFrame:
    """Make rows by six operators that do not depend on each other."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and slow to import

    def rows(tag: int, found: DataFrame, key: str, count: str) -> DataFrame:
        return found.select(
            F.lit(tag).cast("long").alias("minute"), F.expr(key).alias("key"), F.expr(count).alias("count")
        )

    timed = events.withWatermark("timestamp", "2 minutes").withColumn("value", F.col("value").cast("string"))
    left = timed.where("partition = 0").selectExpr("offset o", "timestamp t")
    right = timed.where("partition = 1").selectExpr("offset p", "timestamp u")
    during = F.expr("o = p and u between t - interval 1 minute and t + interval 1 minute")
    names = context.spark.createDataFrame([("0", "zero"), ("1", "one")], "value string, name string")
    sessions = timed.groupBy(F.session_window("timestamp", "1 minute"), "value").count()
    return reduce(
        lambda one, other: one.unionByName(other),
        [
            rows(SESSIONS, sessions, "concat(value, ' ', unix_seconds(session_window.start))", "count"),
            rows(WITHIN_WATERMARK, timed.dropDuplicatesWithinWatermark(["value", "partition"]), "value", "1L"),
            rows(DUPLICATES, timed.dropDuplicates(["value"]), "value", "1L"),
            rows(INNER, left.join(right, during), "string(o)", "p"),
            rows(OUTER, left.join(right, during, "leftOuter"), "string(o)", "coalesce(p, -1L)"),
            rows(
                STATIC,
                timed.join(names, "value", "left").dropDuplicates(["name"]),
                "coalesce(name, 'none')",
                "1L",
            ),
        ],
    )


def with_rows(events: DataFrame, _: StreamContext) -> DataFrame:
    """Count by value with a processor that gets rows."""
    from pyspark.sql import Row  # noqa: PLC0415 - slow to import

    found: DataFrame = _keyed(events).transformWithState(
        _counting(lambda _, rows: sum(1 for _row in rows), lambda key, count: Row(minute=0, key=key, count=count)),
        COLUMNS,
        outputMode="Update",
        timeMode="None",
    )
    return found


def with_frames(events: DataFrame, _: StreamContext) -> DataFrame:
    """Count by value with a processor that gets pandas' frames."""
    import pandas as pd  # noqa: PLC0415 - slow to import

    found: DataFrame = _keyed(events).transformWithStateInPandas(
        _counting(
            lambda _, frames: sum(len(frame) for frame in frames),
            lambda key, count: pd.DataFrame([{"minute": 0, "key": key, "count": count}]),
        ),
        COLUMNS,
        outputMode="Update",
        timeMode="None",
    )
    return found


def _counting(counted: Callable[[Any, Iterator[Any]], int], made: Callable[[str, int], Any]) -> Any:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor  # noqa: PLC0415 - slow to import

    class Counting(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._count = handle.getValueState("count", "n long")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: ARG002, N802, N803 - PySpark's names
            before = self._count.get()
            count = (before[0] if before else 0) + counted(key, rows)
            self._count.update((count,))
            yield made(key[0], count)

        def close(self) -> None:
            pass

    return Counting()


def with_group_state(events: DataFrame, _: StreamContext) -> DataFrame:
    """Count by value with a function of pandas' frames and a group's state."""
    import pandas as pd  # noqa: PLC0415 - slow to import

    def count(key: Any, frames: Iterable[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        number = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
        state.update((number,))
        yield pd.DataFrame([{"minute": 0, "key": key[0], "count": number}])

    found: DataFrame = _keyed(events).applyInPandasWithState(count, COLUMNS, "n long", "update", "NoTimeout")
    return found


def _keyed(events: DataFrame) -> Any:
    return events.selectExpr("cast(value as string) key").groupBy("key")


@pytest.mark.parametrize(
    "function", [with_rows, *(pytest.param(other, marks=pytest.mark.long) for other in (with_frames, with_group_state))]
)
def test_state_of_a_function_of_python_is_that_of_the_log_though_runs_are_killed(
    made: Callable[[], Pipeline],
    function: Callable[[DataFrame, StreamContext], DataFrame],
) -> None:
    pipeline = killed(prepared(made(), function, "update"))
    assert pipeline.outcome() == (ENDS, {(0, key): count for key, count in COUNTS.items()})


@pytest.mark.long
def test_operators_of_append_mode_make_the_rows_of_an_undisturbed_run_though_runs_are_killed(
    made: Callable[[], Pipeline],
) -> None:
    """What is late depends on where a batch ends; both runs have the same batches."""
    undisturbed = prepared(made(), of_append_mode, "append")
    undisturbed.run()
    offsets, table = undisturbed.outcome()
    assert offsets == ENDS
    assert {tag for tag, _ in table} == {SESSIONS, WITHIN_WATERMARK, DUPLICATES, INNER, OUTER, STATIC}
    assert {key for tag, key in table if tag == DUPLICATES} == COUNTS.keys()
    assert {key for tag, key in table if tag == STATIC} == {"zero", "one", "none"}
    assert all(key == str(count) for (tag, key), count in table.items() if tag == INNER)
    outer = {key: count for (tag, key), count in table.items() if tag == OUTER}
    assert {count == -1 for count in outer.values()} == {True, False}
    assert killed(prepared(made(), of_append_mode, "append")).outcome() == (offsets, table)


def prepared(pipeline: Pipeline, function: Callable[[DataFrame, StreamContext], DataFrame], mode: str) -> Pipeline:
    from pyspark import cloudpickle  # noqa: PLC0415

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    pipeline.function, pipeline.state, pipeline.looks = function, replace(STATE, output_mode=mode), 2
    return pipeline


def killed(pipeline: Pipeline) -> Pipeline:
    """Kill a run in its first batch, and one in a later one; then run to the end."""
    for at in (5, 12):
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever Spark makes of it
            pipeline.run(fault=partial(dead_from, at))
    pipeline.run()
    return pipeline
