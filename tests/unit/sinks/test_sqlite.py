"""The sink of a local run, held to the suite of all sinks, and what its table does beyond it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from fencepost.contract import SqliteSink
from fencepost.errors import BadSpec, DependencyDown, PoisonRecord
from fencepost.fence.sqlite import database as sqlite_database
from fencepost.sinks.sqlite import TableSink
from fencepost.testing.sinks import SinkContract, Subject, token_of, write_task

PLACED = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.string())])


def placed(*values: str) -> pa.RecordBatch:
    rows = [{"topic": "t", "partition": 0, "offset": 7 + place, "value": value} for place, value in enumerate(values)]
    return pa.RecordBatch.from_pylist(rows, PLACED)


@dataclass(frozen=True)
class Table:
    """A sink's table in a file."""

    path: Path
    key: tuple[str, ...] | None = None
    delete_where: str | None = None

    @property
    def declared(self) -> SqliteSink:
        return SqliteSink(
            name="rows", path=str(self.path), table="rows", key=self.key, delete_where=self.delete_where,
            ttl_column="lives" if self.delete_where else None,
        )  # fmt: skip

    def open(self, schema: pa.Schema = PLACED) -> TableSink:
        sink = TableSink(self.declared)
        sink.check(from_arrow_schema(schema))
        return sink

    def write(self, rows: pa.RecordBatch, *, token: int) -> int:
        return write_task(self.open(rows.schema), token_of(rows, token=token), [rows])

    def read(self, columns: Sequence[str] = tuple(PLACED.names)) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(self.path)) as database:
            found = database.execute(f"SELECT {', '.join(columns)} FROM rows").fetchall()  # noqa: S608
        return [dict(zip(columns, row, strict=True)) for row in found]


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    table = Table(tmp_path / "rows.sqlite")
    return Subject(
        open=table.open,
        rows=placed("a", "b", "c"),
        changed=placed("x", "y", "z"),
        read=table.read,
        misfits={"offset": PLACED.remove(2), "value": PLACED.set(3, pa.field("value", pa.int64()))},
    )


class TestSqliteSink(SinkContract):
    """A sink that keeps to the contract."""


ORDERS = pa.schema([("shop", pa.string()), ("id", pa.int64()), ("town", pa.string()), ("gone", pa.bool_())])


def orders(*rows: tuple[str, int | None, str | None, bool | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(ORDERS.names, row, strict=True)) for row in rows], ORDERS)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "rows.sqlite", ("shop", "id"), "gone")


def towns(table: Table) -> dict[tuple[str, int], str]:
    return {(row["shop"], row["id"]): row["town"] for row in table.read(["shop", "id", "town"])}


def test_an_older_write_does_not_replace_a_newer_row(table: Table) -> None:
    table.write(orders(("a", 1, "new", False)), token=20)
    table.write(orders(("a", 1, "old", None), ("a", 2, "old", None)), token=10)
    assert towns(table) == {("a", 1): "new", ("a", 2): "old"}


def test_a_deletion_hides_the_writes_before_it_and_wins_over_those_of_its_batch(table: Table) -> None:
    table.write(orders(("a", 1, "x", False), ("a", 2, "x", False)), token=10)
    table.write(orders(("a", 1, "same batch", False), ("a", 1, None, True)), token=20)
    table.write(orders(("a", 1, "late", False)), token=15)
    assert towns(table) == {("a", 2): "x"}
    table.write(orders(("a", 1, "later", False)), token=30)
    assert towns(table) == {("a", 1): "later", ("a", 2): "x"}


def test_nulls_at_the_end_of_the_key_delete_all_rows_with_its_beginning(table: Table) -> None:
    table.write(orders(("a", 1, "x", False), ("a", 2, "x", False), ("b", 1, "x", False)), token=10)
    table.write(orders(("a", None, None, True)), token=20)
    table.write(orders(("a", 3, "late", False)), token=20)
    assert towns(table) == {("b", 1): "x"}


@pytest.mark.parametrize("row", [("a", None, "x", False), (None, 1, None, True)], ids=["insert", "delete"])
def test_a_row_without_its_key_is_poison(table: Table, row: tuple[str, int | None, str | None, bool]) -> None:
    sink, rows = table.open(ORDERS), orders(row)
    with pytest.raises(PoisonRecord, match=r"rows|key"):
        write_task(sink, token_of(rows, token=10), [rows])


def test_values_are_readable(tmp_path: Path) -> None:
    table = Table(tmp_path / "rows.sqlite", ("id",))
    at = datetime(2026, 1, 2, 3, 4, 5, 678_999, tzinfo=UTC)
    row = {
        "id": 1, "at": at, "day": date(2026, 1, 2), "price": Decimal("1.50"), "yes": True, "raw": b"\0",
        "ratio": 0.5, "tags": ["a", "ü"], "home": {"zip": "1"}, "none": None,
    }  # fmt: skip
    schema = pa.schema(
        [
            ("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("day", pa.date32()),
            ("price", pa.decimal128(9, 2)), ("yes", pa.bool_()), ("raw", pa.binary()), ("ratio", pa.float64()),
            ("tags", pa.list_(pa.string())), ("home", pa.struct([("zip", pa.string())])), ("none", pa.string()),
        ]
    )  # fmt: skip
    table.write(pa.RecordBatch.from_pylist([row, {**row, "id": 2, "at": at - timedelta(days=99_999)}], schema), token=1)
    assert table.read(list(row))[0] == {
        "id": 1, "at": "2026-01-02 03:04:05.678", "day": "2026-01-02", "price": "1.50", "yes": 1, "raw": b"\0",
        "ratio": 0.5, "tags": '["a", "ü"]', "home": '{"zip": "1"}', "none": None,
    }  # fmt: skip


def test_a_frame_with_more_columns_extends_the_table(table: Table) -> None:
    table.write(orders(("a", 1, "x", False)), token=10)
    more = orders(("a", 2, "y", False)).append_column("zip", pa.array(["1"])).append_column("lives", pa.array([9]))
    table.write(more, token=20)
    assert [row["zip"] for row in table.read(["zip"])] == [None, "1"]
    with pytest.raises(sqlite3.OperationalError, match="lives"):
        table.read(["lives"])


def test_a_table_with_another_key_is_refused(table: Table) -> None:
    table.open(ORDERS)
    with pytest.raises(BadSpec, match="its key is shop, id, and not id"):
        Table(table.path, ("id",)).open(ORDERS)


def test_rows_without_a_known_key_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSpec, match="its primary key is not known") as refused:
        Table(tmp_path / "rows.sqlite").open(ORDERS)
    assert "--key rows=" in refused.value.remedy


def test_the_rows_of_one_record_are_told_apart_by_their_index(tmp_path: Path) -> None:
    table, rows = Table(tmp_path / "rows.sqlite"), placed("a", "b")
    several = rows.set_column(2, "offset", pa.array([7, 7])).append_column("i", pa.array([0, 1]))
    table.write(several, token=1)
    assert [row["value"] for row in table.read()] == ["a", "b"]


def test_a_locked_file_is_unreachable(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, rows = table.open(ORDERS), orders(("a", 1, "x", False))
    monkeypatch.setattr(sqlite_database, "BUSY", 0.05)
    with closing(sqlite3.connect(table.path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DependencyDown, match="locked"):
            write_task(sink, token_of(rows, token=10), [rows])
