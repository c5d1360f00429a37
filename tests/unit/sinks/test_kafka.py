"""What the Kafka sink checks without Kafka: columns, records and headers, and which copy a reader keeps."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from fencepost.context import WARM_TOKEN
from fencepost.errors import BadSpec, PoisonRecord
from fencepost.kafka.log import QUIET
from fencepost.sinks import BatchToken
from fencepost.sinks.dedup import newest
from fencepost.sinks.kafka.kafka_sink import TopicSink
from fencepost.sinks.kafka.producer import ProducerTask, _records, settings

TASK = ProducerTask(sink="out", topics=("out",), properties={"bootstrap.servers": "kafka:9092"}, patience=5.0)
COORDINATES = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64()}
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def check(columns: dict[str, pa.DataType]) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - an import of a second

    TopicSink("out", TASK).check(from_arrow_schema(pa.schema(columns)))


@pytest.mark.parametrize(
    "columns",
    [
        {"value": pa.binary()},
        {"key": pa.string(), "value": pa.string()},
        {**COORDINATES, "key": pa.binary(), "value": pa.string(), "headers": HEADERS},
        {**COORDINATES, "i": pa.int32(), "value": pa.string()},
    ],
)
def test_columns_of_a_record_are_accepted(columns: dict[str, pa.DataType]) -> None:
    check(columns)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": pa.string()}, "column 'value' is missing"),
        ({"value": pa.int32()}, "column 'value' is int, and a record's value is binary or string"),
        ({"value": pa.string(), "town": pa.string()}, "column 'town' is not one of a record's"),
        ({"value": pa.string(), "offset": pa.int64()}, "'topic', 'partition' is missing"),
        ({"value": pa.string(), "i": pa.int32()}, "column 'i' numbers the rows of one record"),
        ({**COORDINATES, "partition": pa.int64(), "value": pa.string()}, "column 'partition' is bigint"),
    ],
)
def test_columns_that_are_no_records_are_refused_by_name(columns: dict[str, pa.DataType], message: str) -> None:
    with pytest.raises(BadSpec, match=message) as caught:
        check(columns)
    assert caught.value.reason == "SinkMismatch"


def test_a_record_has_its_coordinates_and_the_authors_headers_alone() -> None:
    headers = [{"key": "trace", "value": b"1"}, {"key": "fencepost-epoch", "value": b"99"}]
    rows = pa.RecordBatch.from_pylist(
        [{"topic": "t", "partition": 2, "offset": 7, "i": 1, "key": "k", "value": None, "headers": headers}]
    )
    coordinates = ("fencepost-coordinates", b"t/2/7/1")
    assert list(_records(rows)) == [(b"k", None, [coordinates, ("trace", b"1")])]
    assert list(_records(pa.RecordBatch.from_pydict({"value": ["a", "b"]}))) == [(None, b"a", []), (None, b"b", [])]


ROUTED = replace(TASK, topics=("eu", "us"), topic_column="region")


def test_a_column_names_the_topic_of_each_row_and_is_not_written() -> None:
    rows = pa.RecordBatch.from_pydict({"region": ["us", "eu"], "value": ["a", "b"]})
    assert list(ROUTED.records(rows)) == [("us", None, b"a", []), ("eu", None, b"b", [])]


@pytest.mark.parametrize("topic", ["asia", "EU", "", None])
def test_a_topic_that_is_not_listed_is_poison_also_in_a_rehearsal(topic: str | None) -> None:
    schema = pa.schema({**COORDINATES, "region": pa.string(), "value": pa.string()})
    row = {"topic": "t", "partition": 2, "offset": 7, "region": topic, "value": "v"}
    rows = pa.RecordBatch.from_pylist([row], schema)
    rehearsal = BatchToken(pipeline="p", epoch=1, version=0, token=WARM_TOKEN, offsets={"t/2": (7, 8)})
    with pytest.raises(PoisonRecord, match=f"names the topic {topic!r}, in the row of t/2/7, which is not"):
        list(ROUTED.write(iter([rows]), rehearsal))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"value": pa.string(), "region": pa.string()}, ""),
        ({"value": pa.string()}, "column 'region', which names the topic, is missing"),
        ({"value": pa.string(), "region": pa.int32()}, "column 'region', which names the topic, is int"),
    ],
)
def test_the_column_of_the_topic_is_checked(columns: dict[str, pa.DataType], message: str) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - an import of a second

    with pytest.raises(BadSpec, match=message) if message else nullcontext():
        TopicSink("out", ROUTED).check(from_arrow_schema(pa.schema(columns)))


@pytest.mark.parametrize("column", ["key", "value", "headers", "topic", "partition", "offset", "i"])
def test_a_column_of_the_record_cannot_name_the_topic(column: str) -> None:
    """Its rows would lose their key or their coordinates."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - an import of a second

    columns = pa.schema({"value": pa.binary(), "topic": pa.string(), column: pa.string()})
    with pytest.raises(BadSpec, match=f"topicColumn '{column}' is a column of the record itself"):
        TopicSink("out", replace(ROUTED, topic_column=column)).check(from_arrow_schema(columns))


@pytest.mark.parametrize("patience", [0.5, 12.0, 3_600.0])
def test_librdkafka_takes_the_settings_whatever_the_stall_timeout(patience: float) -> None:
    token = BatchToken(pipeline="p", epoch=1, version=1, token=5, offsets={})
    Producer(settings(replace(TASK, patience=patience), token), logger=QUIET)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"offset": None},
            "column offset is null in a row with the coordinates topic=t, partition=2, offset=None, i=0",
        ),
        ({"i": None}, "column i is null"),
        ({"headers": [{"key": None, "value": b"1"}]}, "a header without a name, of the row with the coordinates"),
        ({"headers": [None]}, "a header without a name"),
    ],
)
def test_a_row_without_its_coordinates_or_a_headers_name_is_poison(changed: dict[str, Any], message: str) -> None:
    schema = pa.schema({**COORDINATES, "i": pa.int32(), "value": pa.string(), "headers": HEADERS})
    right = {"topic": "t", "partition": 2, "offset": 7, "i": 0, "value": "v", "headers": None}
    rows = pa.RecordBatch.from_pylist([right, {**right, **changed}], schema)
    with pytest.raises(PoisonRecord, match=message):
        list(_records(rows))
    rehearsal = BatchToken(pipeline="p", epoch=1, version=0, token=WARM_TOKEN, offsets={"t/2": (7, 8)})
    with pytest.raises(PoisonRecord, match=message):
        list(TASK.write(iter([rows]), rehearsal))


def copy(name: str, *, epoch: int, version: int, pipeline: str = "p", text: str = "") -> dict[str, Any]:
    headers = {"pipeline": pipeline, "coordinates": name, "epoch": str(epoch), "version": str(version)}
    return {"text": text, "headers": [(f"fencepost-{key}", value.encode()) for key, value in headers.items()]}


def test_a_reader_keeps_the_copy_of_the_highest_epoch_and_version() -> None:
    records = [
        copy("t/0/1", epoch=1, version=5, text="first"),
        copy("t/0/2", epoch=1, version=5, text="once"),
        copy("t/0/1", epoch=2, version=4, text="newest"),
        copy("t/0/1", epoch=1, version=9, text="late"),
        copy("t/0/1", epoch=2, version=4, text="repeated task"),
        copy("t/0/1", epoch=1, version=1, pipeline="q", text="another pipeline"),
        {"text": "no headers", "headers": None},
        {"text": "no headers", "headers": None},
    ]
    kept = [record["text"] for record in newest(records, lambda record: record["headers"])]
    assert kept == ["newest", "once", "another pipeline", "no headers", "no headers"]
