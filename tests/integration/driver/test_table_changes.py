"""Times to live and deletes, on a real Cassandra: what a table holds after batches that insert and delete."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from cassandra.cluster import Session

from fencepost.errors import PoisonRecord
from fencepost.sinks.cassandra.row_changes import Rules
from fencepost.sinks.cassandra.writer import Target, write
from harness.sink_targets import target_of
from present import present
from testbed.environment import Environment

pytestmark = pytest.mark.integration

SCHEMA = pa.schema(
    [("account", pa.string()), ("day", pa.int32()), ("entry", pa.int32()), ("amount", pa.int32()), ("gone", pa.bool_())]
)
DELETES = Rules(delete_where="gone")


class Table:
    """A table of one account per test."""

    def __init__(self, session: Session, target: Target, account: str) -> None:
        self.session, self.target, self.account = session, target, account

    def write(self, timestamp: int, *rows: tuple[Any, ...], rules: Rules = DELETES) -> int:
        found = [dict(zip(SCHEMA.names, (self.account, *row), strict=True)) for row in rows]
        batch = pa.RecordBatch.from_pylist(found, SCHEMA)
        return sum(write(replace(self.target, rules=rules), timestamp, iter([batch])))

    def rows(self) -> list[tuple[int, int, int]]:
        query = f"SELECT day, entry, amount FROM driver_tests.{self.target.table} WHERE account = %s"  # noqa: S608
        return [tuple(row) for row in self.session.execute(query, [self.account])]


@pytest.fixture(scope="module")
def target(environment: Environment, session: Session) -> Iterator[Target]:
    name = f"t{uuid.uuid4().hex[:10]}"
    session.execute(
        f"CREATE TABLE driver_tests.{name} (account text, day int, entry int, amount int,"
        " PRIMARY KEY (account, day, entry))"
    )
    yield target_of(
        environment,
        keyspace="driver_tests",
        table=name,
        primary_key=("account", "day", "entry"),
        partition_key=("account",),
    )
    session.execute(f"DROP TABLE driver_tests.{name}", timeout=30)


@pytest.fixture
def table(session: Session, target: Target) -> Table:
    made = Table(session, target, uuid.uuid4().hex)
    made.write(100, (1, 1, 11, False), (1, 2, 12, False), (2, 1, 21, None), (2, 2, 22, False), (3, 1, 31, False))
    return made


def test_a_row_is_deleted_by_its_key(table: Table) -> None:
    assert table.write(200, (1, 2, None, True), (3, 2, 32, False)) == 2
    assert table.rows() == [(1, 1, 11), (2, 1, 21), (2, 2, 22), (3, 1, 31), (3, 2, 32)]


def test_a_range_is_deleted_by_the_beginning_of_its_key(table: Table) -> None:
    table.write(200, (1, None, None, True), (2, 2, None, True), (3, 1, None, True))
    assert table.rows() == [(2, 1, 21)]


def test_a_partition_is_deleted_where_the_clustering_columns_are_null(table: Table) -> None:
    table.write(200, (None, None, None, True))
    assert table.rows() == []


def test_many_rows_of_a_partition_are_deleted_in_few_requests(table: Table) -> None:
    table.write(150, *[(9, entry, entry, False) for entry in range(3000)])
    assert table.write(200, *[(9, entry, None, True) for entry in range(2999)]) == 2999
    assert table.rows()[-1] == (9, 2999, 2999)
    assert len(table.rows()) == 6


def test_a_repeated_delete_and_a_late_insert_leave_the_same(table: Table) -> None:
    table.write(200, (1, 1, None, True))
    table.write(150, (1, 1, 99, False))
    table.write(203, (1, 1, None, True))
    assert (1, 1) not in [row[:2] for row in table.rows()]
    table.write(300, (1, 1, 7, False))
    assert (1, 1, 7) in table.rows()


def test_of_an_insert_and_a_delete_in_one_batch_the_delete_wins(table: Table) -> None:
    table.write(200, (1, 1, None, True), (1, 1, 5, False), (1, 2, 6, False), (1, 2, None, True))
    assert [row[0] for row in table.rows()] == [2, 2, 3]


def test_a_null_within_the_key_is_poison_and_deletes_nothing(table: Table) -> None:
    with pytest.raises(PoisonRecord, match=r"has a null before the last of its clustering columns: .*'entry': 2"):
        table.write(200, (1, 1, None, True), (None, 2, None, True))
    assert len(table.rows()) == 5


def ttls(table: Table) -> list[int | None]:
    query = f"SELECT TTL(amount) FROM driver_tests.{table.target.table} WHERE account = %s AND day = 8"  # noqa: S608
    return [row[0] for row in table.session.execute(query, [table.account])]


def test_rows_live_for_the_seconds_of_the_sink(table: Table) -> None:
    table.write(200, (8, 1, 1, False), rules=Rules(ttl=5000, delete_where="gone"))
    (left,) = ttls(table)
    assert 0 < present(left) <= 5000


def test_rows_live_for_the_seconds_of_a_column(table: Table) -> None:
    rules = Rules(ttl_column="seconds", delete_where="gone")
    values = [(table.account, 8, entry, 1, False) for entry in range(3)]
    batch = pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in values], SCHEMA)
    batch = batch.append_column("seconds", pa.array([5000, None, 0], pa.int32()))
    assert sum(write(replace(table.target, rules=rules), 200, iter([batch]))) == 3
    first, *others = ttls(table)
    assert 0 < present(first) <= 5000
    assert others == [None, None], "null and 0 are forever"
