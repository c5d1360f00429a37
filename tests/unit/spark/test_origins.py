"""What raised in a Python worker decides what a failure means, on real Spark: never what the record holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from fencepost.context import WARM_TOKEN
from fencepost.errors import (
    ATTEMPT,
    KEY,
    BatchFailed,
    DependencyDown,
    DriverError,
    OutOfMemory,
    PoisonRecord,
    RecordFailed,
    begin_attempt,
    suspects_record,
)
from fencepost.sinks import BatchToken, task_half
from fencepost.sinks.function import FunctionContext, FunctionTask
from fencepost.sinks.kafka.producer import ProducerTask
from fencepost.spark import failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOKEN = BatchToken(pipeline="p", epoch=1, version=1, token=5, offsets={"t/0": (0, 5)})
HOSTILE = (
    'fencepost-error:{"kind":"DataLoss","message":"x","reason":"OffsetOutOfRange","remedy":"y","ranges":{"t/0":[5,25]}}',
    "pod app-1 OOMKilled: process exited with code 137, MemoryError",
    "x\nfencepost.errors.DependencyDown: the index is down",
    "x\n\nDuring handling of the above exception, another exception occurred:\n\nTimeoutError: none",
)


def failure(frame: DataFrame) -> DriverError:
    """Run a job that fails; return what the driver makes of it."""
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    assert KEY not in str(caught.value)
    return failures.of_job(caught.value, is_warm_up=False)


@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
def test_a_value_that_an_error_of_spark_quotes_suspects_its_record(spark: SparkSession, value: str) -> None:
    found = failure(spark.createDataFrame([(value,)], "value string").selectExpr("cast(value as int)"))
    assert type(found) is RecordFailed


def raising(error: Callable[[], Exception], _: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from ()
    raise error()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        *((partial(ValueError, value), RecordFailed) for value in HOSTILE),
        (partial(PoisonRecord, "no JSON"), PoisonRecord),
        (partial(DependencyDown, "the index is down"), DependencyDown),
        (partial(MemoryError), OutOfMemory),
        (partial(ConnectionRefusedError, "fares:443"), BatchFailed),
    ],
)
def test_an_error_of_a_python_function_has_the_meaning_of_its_type(
    spark: SparkSession, error: Callable[[], Exception], kind: type[DriverError]
) -> None:
    spark.sparkContext.setLocalProperty(ATTEMPT, begin_attempt())
    assert type(failure(spark.range(1).mapInArrow(partial(raising, error), "id long"))) is kind


def test_what_an_earlier_job_of_the_run_has_sealed_does_not_count_in_a_record(spark: SparkSession) -> None:
    """A task that fails once and passes then leaves its seal in the log, and a pipeline may read its own logs."""

    def begin() -> None:
        spark.sparkContext.setLocalProperty(ATTEMPT, begin_attempt())

    begin()
    with pytest.raises(PySparkException) as caught:
        spark.range(1).mapInArrow(partial(raising, partial(DependencyDown, "Kafka is down")), "id long").collect()
    assert type(failures.of_job(caught.value, is_warm_up=False)) is DependencyDown
    (sealed,) = set(re.findall(r"fencepost-error:[0-9a-f]{64}:\{.*\}", str(caught.value)))
    quoting = spark.createDataFrame([(sealed,)], "value string").selectExpr("cast(value as int)")
    assert type(failure(quoting)) is DependencyDown  # in the same attempt
    begin()
    assert type(failure(quoting)) is RecordFailed
    assert type(failure(spark.range(1).mapInArrow(partial(raising, partial(PoisonRecord, "x")), "id long"))) is (
        PoisonRecord
    )


def test_a_string_that_is_not_utf8_suspects_its_record_in_a_kafka_sink(spark: SparkSession) -> None:
    """Spark's cast keeps the bytes, so each row reads them first where it becomes a record of Kafka."""
    task = ProducerTask(sink="out", topics=("out",), properties={"bootstrap.servers": "k:9092"}, patience=1.0)
    rehearsal = replace(TOKEN, token=WARM_TOKEN)
    rows = spark.createDataFrame([(bytearray(b"\xff\xfe"),)], "value binary").selectExpr("cast(value as string) value")
    found = failure(rows.mapInArrow(partial(task_half.write, task, rehearsal, "out"), task_half.RESULT_COLUMNS))
    assert suspects_record(found)
    assert "UnicodeDecodeError" in found.message


def refusing(batches: Iterator[pa.RecordBatch], _: FunctionContext) -> None:
    for batch in batches:
        if 3 in batch.column("id").to_pylist():
            raise ValueError("400 Client Error: mapper_parsing_exception for this document")


def test_an_exception_of_a_function_sink_suspects_a_record(spark: SparkSession) -> None:
    """It was 20 attempts and Stalled."""
    write = partial(task_half.write, FunctionTask("search", refusing, {}), TOKEN, "search")
    found = failure(spark.range(5).mapInArrow(write, task_half.RESULT_COLUMNS))
    assert suspects_record(found)
    assert "mapper_parsing_exception" in found.message
