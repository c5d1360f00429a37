"""The function of the example without Cassandra: a repetition changes nothing, and neither does a replaced driver."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from fencepost import DependencyDown
from fencepost.sinks.function import FunctionContext
from unit.examples.conftest import EXAMPLES, example

pytestmark = pytest.mark.integration

orders = example("orders-postgresql", "orders")
PLACED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def socket(postgresql: str) -> Iterator[str]:
    """Return the folder of PostgreSQL's socket; the example's table is empty."""
    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute((EXAMPLES / "orders-postgresql" / "schema.sql").read_bytes())
        connection.execute("TRUNCATE orders")
        yield next(part.removeprefix("host=") for part in postgresql.split() if part.startswith("host="))


def rows(*cents: int) -> pa.RecordBatch:
    found = [
        {
            "topic": "t",
            "partition": 0,
            "offset": at,
            "id": f"o-{at}",
            "customer": "c",
            "cents": paid,
            "placed_at": PLACED,
        }
        for at, paid in enumerate(cents)
    ]
    return pa.RecordBatch.from_pylist(found)


def context(socket: str, token: int) -> FunctionContext:
    options = {"host": socket, "database": "postgres", "username": "postgres"}
    return FunctionContext(pipeline="p", epoch=1, version=1, token=token, offsets={"t/0": (0, 3)}, options=options)


def stored(dsn: str) -> list[tuple[int, int]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute('SELECT "offset", cents FROM orders ORDER BY "offset"').fetchall()


def test_a_repetition_and_a_replaced_driver_change_no_row(postgresql: str, socket: str) -> None:
    for token in (10, 10, 11):
        orders.store(iter([rows(1, 2), rows()]), context(socket, token))
    assert stored(postgresql) == [(0, 1), (1, 2)]
    orders.store(iter([rows(7, 8, 9)]), context(socket, 5))  # injected: late, with other rows
    assert stored(postgresql) == [(0, 1), (1, 2), (2, 9)]
    orders.store(iter([rows(3, 4, 5)]), context(socket, 12))
    assert stored(postgresql) == [(0, 3), (1, 4), (2, 5)]


def test_a_database_that_is_away_is_an_outage(tmp_path: Path) -> None:
    with pytest.raises(DependencyDown, match="does not answer"):
        orders.store(iter([rows(1)]), context(str(tmp_path), 1))
