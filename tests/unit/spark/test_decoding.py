"""Decoded keys and values on a real Spark session, for functions of DataFrames, of record batches and of streams."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from fencepost import record_batches
from fencepost.batch import Batch, Range
from fencepost.contract import KafkaSource, Reason
from fencepost.contract.formats import Format, RecordFormat, RegistryEndpoint
from fencepost.errors import DependencyDown, DriverError, RecordFailed, suspects_record
from fencepost.formats.decoding import Decoding
from fencepost.formats.opening import open_decoding
from fencepost.kafka.reader import ARROW_SCHEMA
from fencepost.spark.engine import SparkEngine
from fencepost.spark.stateful.stream_source import StreamSource
from fencepost.testing import context, frame, record_batch, record_context
from harness.schema_registry import Schemas, handler
from harness.web_server import serving
from unit.formats.conftest import avro, framed
from unit.spark.conftest import CONFIG
from unit.spark.test_engine import Counting, row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fencepost.context import BatchContext, RecordContext

FLIGHT: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
        {"name": "tags", "type": {"type": "map", "values": "string"}, "default": {}},
    ],
}
OLD = {**FLIGHT, "fields": FLIGHT["fields"][:1]}
BATCH = Batch(ranges=(Range("t", 0, 0, 3), Range("t", 1, 0, 3)), until={"t/0": 3, "t/1": 3})
RECORDS = [avro(1, OLD, {"id": 1}), avro(2, FLIGHT, {"id": 2, "at": 1000, "tags": {"a": "b"}}), None]


def reading(records: Sequence[bytes | None], ranges: Sequence[Range], **_: object) -> Iterator[pa.RecordBatch]:
    for part in ranges:
        rows = [
            {"topic": part.topic, "partition": part.partition, "offset": at, "timestamp": 0, "value": records[at]}
            for at in range(part.start, part.until)
        ]
        yield pa.RecordBatch.from_pylist(rows, ARROW_SCHEMA)


@contextmanager
def registered() -> Iterator[tuple[Schemas, Decoding]]:
    schemas = Schemas()
    for schema in (OLD, FLIGHT):
        schemas.register("t-value", json.dumps(schema))
    with serving(handler(schemas)) as port:
        source = KafkaSource(
            bootstrap_servers="",
            topics=("t",),
            schema_registry=RegistryEndpoint(url=f"http://127.0.0.1:{port}"),
            value=RecordFormat(format=Format.AVRO, subject="t-value", version=2),
        )
        yield schemas, open_decoding(source, Path("none"), patience=0.0, task_patience=0.0)


def engine(spark: SparkSession, transform: Any, decoding: Decoding, records: Sequence[bytes | None]) -> SparkEngine:
    made = SparkEngine(
        spark=spark,
        config=replace(CONFIG, start_timeout=60.0),
        transform=transform,
        sinks={"rows": Counting(expecting)},
        properties={},
        records=partial(reading, records),
        decoding=decoding,
    )
    made.warm()
    return made


def expecting(batches: Any) -> Iterator[int]:
    for batch in batches:
        for found in batch.to_pylist():
            assert (found["id"], found["ms"]) in {(1, None), (2, 1000), (None, None)}, found
        yield batch.num_rows


def of_frames(batch: DataFrame, _context: BatchContext) -> DataFrame:
    return batch.selectExpr("value.id", "unix_millis(value.at) AS ms", "value.tags['a'] AS tag")


@record_batches
def of_batches(batch: pa.RecordBatch, _context: RecordContext) -> pa.RecordBatch:
    value = batch.column("value")
    moments = value.field("at").view(pa.int64()).to_pylist()
    ids = [None if each is None else each["id"] for each in value.to_pylist()]
    made = [
        None if moment is None or number is None else moment // 1000
        for moment, number in zip(moments, ids, strict=True)
    ]
    return pa.RecordBatch.from_arrays([pa.array(ids, pa.int64()), pa.array(made, pa.int64())], names=["id", "ms"])


@pytest.mark.parametrize("transform", [of_frames, of_batches])
def test_a_function_gets_typed_columns(spark: SparkSession, transform: Any) -> None:
    with registered() as (_, decoding):
        written = engine(spark, transform, decoding, RECORDS).write(BATCH, row())
    assert (written.rows, written.records) == ({"rows": 6}, 6)
    assert written.size == 2 * sum(len(record or b"") for record in RECORDS)  # of what Kafka gave


def failure(spark: SparkSession, transform: Any, decoding: Decoding, record: bytes) -> DriverError:
    made = engine(spark, transform, decoding, [*RECORDS[:2], record])
    with pytest.raises(DriverError) as raised:
        made.write(replace(BATCH, ranges=BATCH.ranges[:1]), row())
    return raised.value


@pytest.mark.parametrize("transform", [of_frames, of_batches])
def test_a_record_that_cannot_be_decoded_is_a_suspect_and_an_unknown_schema_is_an_outage(
    spark: SparkSession, transform: Any
) -> None:
    with registered() as (_, decoding):
        found = failure(spark, transform, decoding, b"no wire format")
        assert (type(found), found.reason) == (RecordFailed, Reason.RECORD_UNDECODABLE)
        assert suspects_record(found)
        assert found.message.startswith("t/0@2: the value cannot be decoded as avro: ")
        found = failure(spark, transform, decoding, framed(9, b"\2"))
        assert (type(found), found.reason) == (DependencyDown, Reason.SCHEMA_NOT_FOUND)


def test_a_stream_gets_typed_columns(spark: SparkSession) -> None:
    with registered() as (_, decoding):
        plans: Any = None
        source = StreamSource(spark, plans, read=partial(reading, RECORDS), decoding=decoding, name="decoded")
        assert source.frame().schema == source.batch(BATCH).schema
        found = source.batch(BATCH).selectExpr("offset", "value.id", "value.tags").collect()
    assert sorted(map(tuple, found), key=str) == sorted([(0, 1, {}), (1, 2, {"a": "b"}), (2, None, None)] * 2, key=str)


def test_a_test_of_a_function_makes_decoded_values(spark: SparkSession) -> None:
    records = [{"value": {"id": 5, "tags": {"a": "x"}}}, {}]
    batch = frame(spark, records, value="struct<id: bigint, at: timestamp, tags: map<string, string>>")
    assert [tuple(each) for each in of_frames(batch, context(spark)).collect()] == [(5, None, "x"), (None, None, None)]
    kind = pa.struct([("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
    found = of_batches(record_batch(records, value=kind), record_context())
    assert found.to_pylist() == [{"id": 5, "ms": None}, {"id": None, "ms": None}]
