"""What a transform receives: batches made of Python values, and contexts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from fencepost.context import BatchContext, RecordContext
from fencepost.kafka.reader import ARROW_SCHEMA
from fencepost.local.record_files import read_file
from fencepost.spark.source import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPTIONAL: Final = frozenset({"topic", "offset"})
"""Fields that `frame` fills in."""


def read_records(path: Path | str) -> list[dict[str, Any]]:
    """Return the records of a file, as `fencepost sample` writes them. Raises RecordsInvalid, OSError.

    A topic or an offset that the file leaves out is left out here too.
    """
    found = [{name: getattr(record, name) for name in record.__slots__} for record in read_file(Path(path))]
    return [
        {name: value for name, value in one.items() if value is not None or name not in OPTIONAL}
        | {"headers": list(one["headers"]) or None}
        for one in found
    ]


def frame(
    spark: SparkSession,
    records: Iterable[Mapping[str, Any]],
    *,
    topic: str = "test",
    key: str | None = None,
    value: str | None = None,
) -> DataFrame:
    """Return records as a transform receives them; fields that a record leaves out are filled in.

    Fields: topic, partition (0), offset (its position), timestamp (1970, UTC), key, value, headers ([(str, bytes)]).
    `key` and `value` are the types of decoded ones, as Spark's DDL: 'struct<id: bigint, origin: string>'.
    """
    return spark.createDataFrame([tuple(row.values()) for row in _filled(records, topic)], _columns(key, value))


def _columns(key: str | None, value: str | None) -> str:
    return SCHEMA.replace(" key binary, value binary,", f" key {key or 'binary'}, value {value or 'binary'},")


def record_batch(
    records: Iterable[Mapping[str, Any]],
    *,
    topic: str = "test",
    key: pa.DataType | None = None,
    value: pa.DataType | None = None,
) -> pa.RecordBatch:
    """Return records as a transform of record batches receives them; the same fields as of `frame`.

    `key` and `value` are the types of decoded ones.
    """
    rows = [
        {**row, "headers": [{"key": key, "value": value} for key, value in row["headers"] or ()] or None}
        for row in _filled(records, topic)
    ]
    schema = ARROW_SCHEMA
    for name, kind in (("key", key), ("value", value)):
        if kind is not None:
            schema = schema.set(schema.get_field_index(name), pa.field(name, kind))
    return pa.RecordBatch.from_pylist(rows, schema)


def _filled(records: Iterable[Mapping[str, Any]], topic: str) -> Iterator[dict[str, Any]]:
    """Yield the records with all fields, in the order of the columns."""
    for position, record in enumerate(records):
        yield {
            "topic": record.get("topic", topic),
            "partition": record.get("partition", 0),
            "offset": record.get("offset", position),
            "timestamp": record.get("timestamp", datetime.fromtimestamp(0, UTC)),
            "key": record.get("key"),
            "value": record.get("value"),
            "headers": record.get("headers"),
        }


def context(
    spark: SparkSession,
    *,
    args: tuple[str, ...] = (),
    offsets: Mapping[str, tuple[int, int]] | None = None,
    token: int = 1,
    states: Mapping[str, DataFrame] | None = None,
) -> BatchContext:
    """Return a context as for the first batch of a first run; `context.state` returns one of `states`."""
    return BatchContext(
        pipeline="test/test/test",
        epoch=1,
        version=1,
        token=token,
        offsets=offsets or {},
        args=args,
        spark=spark,
        states=states or {},
    )


def record_context(
    *, args: tuple[str, ...] = (), offsets: Mapping[str, tuple[int, int]] | None = None, token: int = 1
) -> RecordContext:
    """Return a context as for the first batch of a first run, for a transform of record batches."""
    return RecordContext(pipeline="test/test/test", epoch=1, version=1, token=token, offsets=offsets or {}, args=args)
