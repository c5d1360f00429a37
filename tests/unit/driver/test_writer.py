"""How rows become requests: one partition each, bounded, stamped."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from cassandra.cqltypes import lookup_casstype
from cassandra.query import BatchStatement, PreparedStatement

from fencepost.errors import PoisonRecord
from fencepost.sinks import writer
from fencepost.sinks.types import encoder

COLUMNS = ("p", "o", "v")
KINDS = [lookup_casstype(name) for name in ("Int32Type", "LongType", "UTF8Type")]


def insert() -> writer._Insert:
    prepared = PreparedStatement([], b"id", None, "INSERT", "k", 5, [], b"")
    return writer._Insert(
        prepared=prepared,
        columns=COLUMNS,
        key=(0,),
        primary=frozenset({"p", "o"}),
        encoders=tuple(encoder(kind, 5) for kind in KINDS),
        table="k.t",
    )


def rows_of(request: Any) -> list[tuple[bytes | None, ...]]:
    if isinstance(request, BatchStatement):
        return [tuple(values) for _, _, values in request._statements_and_parameters]
    return [tuple(request.values)]


def batch(partitions: list[int], values: list[str | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(partitions, pa.int32()), pa.array(range(len(partitions)), pa.int64()), pa.array(values, pa.string())],
        names=list(COLUMNS),
    )


def test_rows_are_grouped_by_partition_and_carry_the_timestamp() -> None:
    requests = list(insert().requests(batch([1, 2, 1], ["a", None, "c"]), 77))
    assert [[row[2] for row in rows_of(request)] for request in requests] == [[b"a", b"c"], [None]]
    assert {row[3] for request in requests for row in rows_of(request)} == {(77).to_bytes(8, "big")}


def test_requests_are_bounded_in_rows_and_in_bytes() -> None:
    many = list(insert().requests(batch([1] * 501, ["x"] * 501), 1))
    assert [len(rows_of(request)) for request in many] == [200, 200, 101]
    big = list(insert().requests(batch([1] * 3, ["x" * 200_000] * 3), 1))
    assert [len(rows_of(request)) for request in big] == [1, 1, 1]


def test_a_null_key_is_poison_and_names_the_column() -> None:
    broken = pa.RecordBatch.from_arrays(
        [pa.array([None, 1], pa.int32()), pa.array([1, 2], pa.int64()), pa.array(["a", "b"])], names=list(COLUMNS)
    )
    with pytest.raises(PoisonRecord, match=r"k\.t\.p is part of the primary key, and null in 1 of 2 rows"):
        list(insert().requests(broken, 1))


def test_a_value_that_does_not_fit_is_poison_and_names_the_column() -> None:
    broken = pa.RecordBatch.from_arrays(
        [pa.array([2**40], pa.int64()), pa.array([1], pa.int64()), pa.array(["a"])], names=list(COLUMNS)
    )
    with pytest.raises(PoisonRecord, match=r"k\.t\.p: a value of type int64 does not fit"):
        list(insert().requests(broken, 1))
