"""The example without Cassandra: its transform, its table and the sink of its manifest, on a real PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import yaml

from fencepost.contract import PostgresqlSink
from fencepost.errors import PoisonRecord
from integration.postgresql.batches_beside import batches_beside
from unit.examples.conftest import EXAMPLES, example

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

orders = example("orders-postgresql", "orders")
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.fixture
def database(postgresql: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection; the example's table is empty."""
    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute((EXAMPLES / "orders-postgresql" / "schema.sql").read_bytes())
        yield connection
        connection.execute("DROP TABLE orders; DROP SCHEMA fencepost CASCADE")


def declared() -> PostgresqlSink:
    """Return the sink of the manifest."""
    manifest = yaml.safe_load((EXAMPLES / "orders-postgresql" / "pipeline.yaml").read_text())
    (sink,) = manifest["spec"]["sinks"]
    return PostgresqlSink(name=sink["name"], schema="public", **sink["postgresql"])


def order(partition: int, offset: int) -> dict[str, Any]:
    placed = (NOON + timedelta(seconds=offset)).isoformat()
    return {"id": f"o-{partition}-{offset}", "customer": "c", "cents": offset * 5, "placedAt": placed}


def test_a_batch_that_is_written_again_is_there_once_and_not_before_its_commit(
    spark: SparkSession, postgresql: str, database: psycopg.Connection[Any]
) -> None:
    def value(partition: int, offset: int) -> bytes:
        return json.dumps(order(partition, offset)).encode()

    select = 'SELECT partition, "offset", id, customer, cents, placed_at FROM orders ORDER BY partition, "offset"'
    with batches_beside(spark, postgresql, declared(), orders.transform, fences="fencepost", value=value) as batches:
        batches.commit(20)
        batches.write(30)  # injected: the driver does not come to its commit
        assert database.execute("SELECT count(*) FROM orders").fetchall() == [(40,)]
        batches.commit(30)
    found = [(part, at, order(part, at)) for part in (0, 1) for at in range(30)]
    assert database.execute(select.encode()).fetchall() == [
        (part, at, one["id"], one["customer"], one["cents"], datetime.fromisoformat(one["placedAt"]))
        for part, at, one in found
    ]


def test_an_order_without_an_id_is_a_bad_record(
    spark: SparkSession, postgresql: str, database: psycopg.Connection[Any]
) -> None:
    def value(partition: int, offset: int) -> bytes:
        one = order(partition, offset)
        return json.dumps({**one, "id": None} if offset == 7 else one).encode()

    with batches_beside(spark, postgresql, declared(), orders.transform, fences="fencepost", value=value) as batches:
        batches.commit(5)
        with pytest.raises(PoisonRecord, match='null value in column "id"'):
            batches.write(10)
    assert database.execute("SELECT count(*) FROM orders").fetchall() == [(10,)]
