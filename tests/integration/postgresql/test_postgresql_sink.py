"""The example's sink on a real PostgreSQL: the suite for sinks, and a driver that is killed at every step."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from fencepost_postgresql import sink as module
from fencepost_postgresql.sink import PostgresqlSink

from fencepost.errors import BadSpec
from fencepost.sinks import BatchToken, SinkContext
from fencepost.testing.purges import PurgeContract
from fencepost.testing.sinks import SinkContract, Subject
from harness.processes import killed

pytestmark = pytest.mark.integration

SCHEMA = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.string())])
CONTEXT = SinkContext(name="rows", pipeline="test/test/test", epoch=1, patience=5.0)


def batch(start: int, *values: str, partition: int = 0) -> pa.RecordBatch:
    rows = [{"topic": "t", "partition": partition, "offset": start + i, "value": v} for i, v in enumerate(values)]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


@pytest.fixture
def database(postgresql: str) -> Iterator[str]:
    """A schema of the test's own, with the table `orders`, which has no key."""
    name = f"s{uuid.uuid4().hex[:10]}"
    dsn = f"{postgresql} options='-c search_path={name}'"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
        connection.execute('CREATE TABLE orders (topic text, partition int, "offset" bigint, value text)')
    yield dsn
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA {name} CASCADE")


def opened(dsn: str) -> PostgresqlSink:
    return PostgresqlSink({"dsn": dsn, "table": "orders"}, CONTEXT)


def stored(dsn: str) -> list[dict[str, Any]]:
    with psycopg.connect(dsn) as connection:
        found = connection.execute('SELECT topic, partition, "offset", value FROM orders').fetchall()
    return [dict(zip(SCHEMA.names, row, strict=True)) for row in found]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork in a process with threads
class TestPostgresqlSink(SinkContract, PurgeContract):
    """The sink keeps to the contract."""

    @pytest.fixture
    def subject(self, database: str) -> Subject:
        return Subject(
            open=lambda: opened(database),
            rows=batch(5, "a", "b", "c"),
            changed=batch(5, "x", "y", "z"),
            read=lambda: stored(database),
            misfits={
                "town": SCHEMA.append(pa.field("town", pa.string())),
                "offset": SCHEMA.remove(2),
                "value": SCHEMA.remove(3),
            },
        )


def test_options_are_named(database: str) -> None:
    with pytest.raises(BadSpec, match="the options are dsn and table, not dsn"):
        PostgresqlSink({"dsn": database}, CONTEXT)
    with pytest.raises(BadSpec, match="table 'absent' does not exist"):
        PostgresqlSink({"dsn": database, "table": "absent"}, CONTEXT)


def token(version: int = 1) -> BatchToken:
    return BatchToken(pipeline="test/test/test", epoch=1, version=version, token=100, offsets={"t/0": (5, 7)})


def twin_rows(*values: str, i: list[int | None] | None = None) -> pa.RecordBatch:
    """Rows of one record, offset 5."""
    rows = [{"topic": "t", "partition": 0, "offset": 5, "value": value} for value in values]
    found = pa.RecordBatch.from_pylist(rows, SCHEMA)
    return found if i is None else found.append_column("i", pa.array(i, pa.int64()))


@pytest.mark.parametrize("numbers", [None, [0, 1, 2], [None, None, None]], ids=["no i", "i", "null"])
def test_several_rows_of_a_record_are_all_stored(database: str, numbers: list[int | None] | None) -> None:
    """Found: without a column i, all rows of a record but one were dropped in silence."""
    sink = opened(database)
    sink.begin(token())
    for _ in range(2):  # Spark repeats the task
        list(sink.task().write(iter([twin_rows("a", "b", "b", i=numbers), batch(6, "c")]), token()))
    sink.finish(token())
    assert sorted(row["value"] for row in stored(database)) == ["a", "b", "b", "c"]


def test_rows_of_a_record_in_two_tasks_are_all_stored(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Injected: the transform repartitions its rows; the numbers of Spark's tasks."""
    sink = opened(database)
    sink.begin(token())
    for number, value in ((0, "a"), (1, "b"), (1, "b")):
        monkeypatch.setattr(module, "_task_number", lambda number=number: number)
        list(sink.task().write(iter([twin_rows(value)]), token()))
    sink.finish(token())
    assert sorted(row["value"] for row in stored(database)) == ["a", "b"]


BATCHES = ((0, 3), (3, 8))
"""Offsets of both partitions, batch by batch."""
OTHER_CUTS = ((0, 5), (5, 8))


def drive(dsn: str, epoch: int, cuts: tuple[tuple[int, int], ...]) -> None:
    """Write batches as a driver does, each in two tasks."""
    sink = opened(dsn)
    for number, (start, until) in enumerate(cuts):
        offsets = {f"t/{partition}": (start, until) for partition in (0, 1)}
        token = BatchToken(
            pipeline="test/test/test",
            epoch=epoch,
            version=10 * epoch + number,
            token=epoch * 100 + number,
            offsets=offsets,
        )
        sink.begin(token)
        for partition in (0, 1):
            rows = batch(start, *[f"v{offset}" for offset in range(start, until)], partition=partition)
            list(sink.task().write(iter([rows]), token))
        sink.finish(token)


def at_each_statement(step: Callable[[], None]) -> None:
    """Have `step` called before each statement, and before and after each end of a transaction."""

    class Cursor(psycopg.Cursor[Any]):
        def execute(self, *args: Any, **more: Any) -> Any:
            step()
            return super().execute(*args, **more)

        def executemany(self, *args: Any, **more: Any) -> None:
            step()
            super().executemany(*args, **more)

    class Connection(psycopg.Connection[Any]):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            self.cursor_factory = Cursor

        def commit(self) -> None:
            step()
            super().commit()
            step()

    module.psycopg.connect = Connection.connect  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork in a process with threads
def test_every_record_is_stored_once_wherever_the_driver_is_killed(database: str) -> None:
    """The successor repeats everything: more than the fence, which holds some of it, would let it repeat."""
    expected = sorted((partition, offset) for partition in (0, 1) for offset in range(8))
    opened(database)
    at = 0
    while killed(lambda: drive(database, 1, BATCHES), at_each_statement, at=at):
        drive(database, 2, OTHER_CUTS)
        assert sorted((row["partition"], row["offset"]) for row in stored(database)) == expected, f"killed at step {at}"
        with psycopg.connect(database) as connection:
            connection.execute("TRUNCATE orders, fencepost_epochs, fencepost_offsets, fencepost_staging_orders")
        at += 1
    assert at > 25, "the driver was killed at every step"
