"""New code on the state of other code, on real Spark: what fits resumes, what does not ends with nothing planned."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fencepost.context import StreamContext
from fencepost.contract import Reason
from fencepost.errors import BadSpec
from unit.spark.stateful.test_stateful_run import STATE, Pipeline, as_they_are, made  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ENDS: Mapping[str, int] = {"t/0": 8, "t/1": 4}
Function = Callable[["DataFrame", StreamContext], "DataFrame"]


def counted(
    count: str, events: DataFrame, _: StreamContext, *, name: str = "count", delay: str = "2 minutes"
) -> DataFrame:
    """Aggregate by minute and value."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and slow to import

    groups = events.withWatermark("timestamp", delay).groupBy(F.window("timestamp", "1 minute"), "value")
    found = groups.agg(F.expr(count).alias(name))
    return found.selectExpr(
        "cast(window.start as long) minute", "cast(value as string) key", f"cast({name} as long) count"
    )


def processed(
    schema: str, events: DataFrame, _: StreamContext, *, mode: str = "None", ttl: int | None = None, lists: bool = False
) -> DataFrame:
    """Keep the last value of a key, or a list of them."""
    from pyspark.sql import Row  # noqa: PLC0415 - slow to import
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor  # noqa: PLC0415 - slow to import

    class Last(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._last = (handle.getListState if lists else handle.getValueState)("last", schema, ttl)

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: ARG002, N802, N803 - PySpark's names
            values = tuple(kind("1") for kind in ([str] if "string" in schema else [int] * schema.count("long")))
            self._last.appendValue(values) if lists else self._last.update(values)
            yield Row(minute=0, key=key[0], count=sum(1 for _ in rows))

        def close(self) -> None:
            pass

    keyed = events.selectExpr("cast(value as string) key").groupBy("key")
    return keyed.transformWithState(Last(), "minute long, key string, count long", outputMode="Update", timeMode=mode)


COUNT = partial(counted, "count(1)")
LAST = partial(processed, "n long")
TIMED = partial(processed, "n long", mode="ProcessingTime")


ONE_OF_EACH_KIND = [
    (COUNT, partial(counted, "count(1) + max(offset)"), "operator StateStoreSave.*value_schema"),
    (LAST, partial(processed, "n long", lists=True), "last to ListState"),
    (LAST, TIMED, "timeMode from NoTime to ProcessingTime"),
]
MORE = [
    (COUNT, as_they_are, "stateStoreSave.*current batch: \\[\\]"),
    (as_they_are, COUNT, "state directory is empty"),
    (LAST, partial(processed, "n string"), "operator TransformWithState.*value_schema"),
    (LAST, partial(processed, "n long, m long"), "operator TransformWithState.*value_schema"),
    (TIMED, partial(processed, "n long", mode="ProcessingTime", ttl=60_000), "value_schema"),
]


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [*ONE_OF_EACH_KIND, *(pytest.param(*each, marks=pytest.mark.long) for each in MORE)],
)
def test_code_that_does_not_fit_its_state_plans_nothing(
    made: Callable[[], Pipeline],  # noqa: F811 - the fixture
    before: Function,
    after: Function,
    named: str,
) -> None:
    pipeline = ran(made(), before)
    row = pipeline.world.row()
    with pytest.raises(BadSpec, match=f"(?s){named}") as refused:
        go_on(pipeline, after)
    assert refused.value.reason is Reason.STATE_INCOMPATIBLE
    left = pipeline.world.row()
    assert (left.offsets, left.planned, left.planned_log, left.checkpoint) == (
        row.offsets,
        row.offsets,
        None,
        row.checkpoint,
    )


@pytest.mark.parametrize(
    ("before", "after", "mode"),
    [
        (COUNT, partial(counted, "count(1)", name="number", delay="10 minutes"), "update"),
        (COUNT, COUNT, "append"),
        (
            partial(processed, "n long", mode="ProcessingTime", ttl=60_000),
            partial(processed, "n long", mode="ProcessingTime", ttl=120_000),
            "update",
        ),
    ],
)
def test_code_that_fits_its_state_resumes(
    made: Callable[[], Pipeline],  # noqa: F811 - the fixture
    before: Function,
    after: Function,
    mode: str,
) -> None:
    """Other names, delays, ages and output modes of an aggregation."""
    pipeline = ran(made(), before)
    pipeline.state = replace(STATE, output_mode=mode)
    go_on(pipeline, after)
    assert pipeline.world.row().offsets == pipeline.world.log.ends


@pytest.mark.long
def test_query_starts_again_where_the_drivers_process_connects_late(
    made: Callable[[], Pipeline],  # noqa: F811 - the fixture
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark waits for 10 s; the batch that it has planned by then is repeated, and its rows are written once."""
    late = tmp_path / "python"
    late.write_text(
        f"""#!/bin/sh
case "$*" in *transform_with_state_driver_worker*) mkdir {tmp_path}/was-late && sleep 11 ;; esac
exec {sys.executable} "$@"
"""
    )
    late.chmod(0o755)
    pipeline = made()
    monkeypatch.setattr(pipeline.spark.sparkContext, "pythonExec", str(late))
    ran(pipeline, LAST)
    assert (tmp_path / "was-late").exists()
    assert pipeline.world.row().offsets == ENDS
    assert pipeline.sink.table() == {(0, "0"): 5, (0, "1"): 4, (0, "2"): 3}


def ran(pipeline: Pipeline, function: Function) -> Pipeline:
    """Run the first code on a few records."""
    from pyspark import cloudpickle  # noqa: PLC0415

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    pipeline.looks, pipeline.function = 1, function
    pipeline.world.log.ends = dict(ENDS)
    pipeline.run()
    return pipeline


def go_on(pipeline: Pipeline, function: Function) -> None:
    pipeline.function = function
    pipeline.world.log.ends = {key: end + 10 for key, end in ENDS.items()}
    pipeline.run()


def totals(known: Mapping[str, int] | None, events: DataFrame, context: StreamContext) -> DataFrame:
    """Count by value, from totals that are known; without them from nothing."""
    from pyspark.sql import Row  # noqa: PLC0415 - slow to import
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor  # noqa: PLC0415 - slow to import

    class Total(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._total = handle.getValueState("total", "n long")

        def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:  # noqa: ARG002, N802, N803 - PySpark's names
            self._total.update((initialState["n"],))

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: ARG002, N802, N803 - PySpark's names
            before = self._total.get()
            total = sum((1 for _ in rows), start=before[0] if before else 0)
            self._total.update((total,))
            yield Row(minute=0, key=key[0], count=total)

        def close(self) -> None:
            pass

    initial = None
    if known is not None:
        initial = context.spark.createDataFrame(list(known.items()), "key string, n long").groupBy("key")
    return (
        events.selectExpr("cast(value as string) key")
        .groupBy("key")
        .transformWithState(
            Total(),
            "minute long, key string, count long",
            outputMode="Update",
            timeMode="None",
            initialState=initial,
        )
    )


def test_a_processor_starts_with_an_initial_state_once(
    made: Callable[[], Pipeline],  # noqa: F811 - the fixture
) -> None:
    """The next run ignores it, and need not be given it."""
    pipeline = ran(made(), partial(totals, {"0": 100, "1": 1000}))
    assert pipeline.sink.table() == {(0, "0"): 105, (0, "1"): 1004, (0, "2"): 3}
    for known, more in (({"0": 7, "1": 7}, 1), (None, 2)):
        pipeline.function = partial(totals, known)
        pipeline.world.log.ends = {"t/0": ENDS["t/0"], "t/1": ENDS["t/1"] + 3 * more}
        pipeline.run()
        assert pipeline.sink.table() == {(0, "0"): 105 + more, (0, "1"): 1004 + more, (0, "2"): 3 + more}
