"""The sink's worker half against a real Cassandra: what its wire format cannot hold is refused, never changed."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from cassandra.cluster import Session
from cassandra.util import Date, Time

from fakes.protocol_v4 import v4_in_front_of
from fencepost.errors import PoisonRecord
from fencepost.sinks.cassandra.writer import Target, write
from harness.sink_targets import target_of
from testbed.environment import Environment

pytestmark = pytest.mark.integration

ID = "5132b130-ae79-11e4-ab27-0800200c9a66"
AT = datetime(2013, 1, 1, 10, 15, 30, 123456, tzinfo=UTC)

SCALARS: dict[str, tuple[str, pa.DataType, Any, Any]] = {
    "a_text": ("text", pa.string(), "ü", "ü"),
    "an_ascii": ("ascii", pa.string(), "a", "a"),
    "an_inet": ("inet", pa.string(), "10.0.0.1", "10.0.0.1"),
    "a_uuid": ("uuid", pa.string(), ID, uuid.UUID(ID)),
    "a_timeuuid": ("timeuuid", pa.string(), ID, uuid.UUID(ID)),
    "a_blob": ("blob", pa.binary(), b"\x00\xff", b"\x00\xff"),
    "a_boolean": ("boolean", pa.bool_(), True, True),
    "a_tinyint": ("tinyint", pa.int8(), -8, -8),
    "a_smallint": ("smallint", pa.int16(), -300, -300),
    "an_int": ("int", pa.int32(), -70_000, -70_000),
    "a_bigint": ("bigint", pa.int64(), -(2**40), -(2**40)),
    "a_varint": ("varint", pa.int64(), 2**40, 2**40),
    "a_float": ("float", pa.float32(), 0.5, 0.5),
    "a_double": ("double", pa.float64(), 0.1, 0.1),
    "a_decimal": ("decimal", pa.decimal128(10, 2), Decimal("-1.50"), Decimal("-1.50")),
    "a_timestamp": ("timestamp", pa.timestamp("us", tz="UTC"), AT, AT.replace(microsecond=123_000, tzinfo=None)),
    "a_date": ("date", pa.date32(), AT.date(), Date(AT.date())),
    "a_time": ("time", pa.int64(), 3_600_000_000_001, Time(3_600_000_000_001)),
}
"""By a column's name: its type, the frame's, a value of the frame, and what Cassandra's driver reads."""
FIELDS: dict[str, tuple[str, pa.DataType]] = {
    "names": ("set<text>", pa.list_(pa.string())),
    "sizes": ("map<text, int>", pa.map_(pa.string(), pa.int32())),
    "steps": ("frozen<list<int>>", pa.list_(pa.int32())),
}


@dataclass
class Table:
    """A table with one column per kind of collection, keyed by the record's coordinates."""

    session: Session
    target: Target

    def write(self, **values: Any) -> None:
        """Write one row, of offset 7 in partition 3 of topic a."""
        columns = {"topic": pa.array(["a"]), "partition": pa.array([3], pa.int32()), "offset": pa.array([7])}
        columns |= {name: pa.array([value], FIELDS[name][1]) for name, value in values.items()}
        list(write(self.target, 1_000, iter([pa.RecordBatch.from_pydict(columns)])))

    def write_scalars(self, offsets: Sequence[int], *, timestamp: int = 1_000) -> None:
        """Write rows of topic b: every other one has a value in each column, the others nulls."""
        columns = {
            "topic": pa.array(["b"] * len(offsets)),
            "partition": pa.array([0] * len(offsets), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
        }
        for name, (_, kind, value, _) in SCALARS.items():
            columns[name] = pa.array([None if offset % 2 else value for offset in offsets], kind)
        assert sum(write(self.target, timestamp, iter([pa.RecordBatch.from_pydict(columns)]))) == len(offsets)

    def rows(self) -> list[Any]:
        """What is in the table."""
        return list(self.session.execute(f"SELECT * FROM driver_tests.{self.target.table}"))  # noqa: S608


@pytest.fixture(scope="module", params=["v5", "v4"])
def place(request: pytest.FixtureRequest, environment: Environment) -> Iterator[Environment]:
    """The testbed, with Cassandra by either version of its native protocol."""
    if request.param == "v5":
        yield environment
        return
    with v4_in_front_of(environment.cassandra_host, environment.cassandra_port) as port:
        yield replace(environment, cassandra_host="127.0.0.1", cassandra_port=port)


@pytest.fixture(scope="module")
def table(place: Environment, session: Session) -> Iterator[Table]:
    name = f"t{uuid.uuid4().hex[:10]}"
    columns = ", ".join(f"{field} {kind}" for field, (kind, *_) in (FIELDS | SCALARS).items())
    columns += ", steps_of_many_cells list<int>"
    session.execute(
        f"CREATE TABLE driver_tests.{name} (topic text, partition int, offset bigint, {columns},"
        " PRIMARY KEY ((topic, partition), offset))"
    )
    yield Table(session, target_of(place, keyspace="driver_tests", table=name))
    session.execute(f"DROP TABLE driver_tests.{name}", timeout=30)


@pytest.mark.parametrize(
    ("field", "value"), [("names", ["x", None]), ("sizes", [("x", 1), ("y", None)]), ("steps", [1, None])]
)
def test_a_null_inside_a_collection_is_poison_and_nothing_is_stored(table: Table, field: str, value: Any) -> None:
    with pytest.raises(PoisonRecord) as caught:
        table.write(**{field: value})
    assert f"{table.target.table}.{field}: null is " in caught.value.message
    assert caught.value.message.endswith("row topic=a, partition=3, offset=7")
    assert table.rows() == []


def test_a_collection_without_nulls_arrives_as_it_is(table: Table) -> None:
    table.write(names=["x", "y"], sizes=[("x", 1)], steps=[1, 2])
    (row,) = table.rows()
    assert (set(row.names), dict(row.sizes), list(row.steps)) == ({"x", "y"}, {"x": 1}, [1, 2])


def test_every_type_arrives_as_it_is_also_after_the_table_has_changed(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    """An ALTER TABLE makes Cassandra forget its prepared statements: the driver prepares again and repeats."""
    table.write_scalars(range(4))
    table.session.execute(f"ALTER TABLE driver_tests.{table.target.table} ADD added int", timeout=30)
    with caplog.at_level(logging.DEBUG, logger="cassandra.cluster"):
        table.write_scalars(range(4, 8))
        table.write_scalars([8])
    assert "Re-preparing unrecognized prepared statement" in caplog.text
    select = f"SELECT offset, {', '.join(SCALARS)} FROM driver_tests.{table.target.table} WHERE topic = 'b'"  # noqa: S608
    found = {row.offset: tuple(row)[1:] for row in table.session.execute(f"{select} AND partition = 0")}
    values = tuple(expected for *_, expected in SCALARS.values())
    assert found == {offset: (None,) * len(values) if offset % 2 else values for offset in range(9)}


def test_an_older_timestamp_changes_nothing(table: Table) -> None:
    table.write_scalars([100, 102], timestamp=2_000)
    table.write_scalars([100, 101, 102], timestamp=1_999)  # 100 and 102 are there already, newer
    table.write_scalars([101, 103], timestamp=2_000)
    select = f"SELECT offset, writetime(a_text) AS at FROM driver_tests.{table.target.table} WHERE topic = 'b'"  # noqa: S608
    found = table.session.execute(f"{select} AND partition = 0 AND offset >= 100")
    assert {row.offset: row.at for row in found} == {100: 2_000, 101: None, 102: 2_000, 103: None}


def test_a_row_that_cassandra_refuses_is_named_and_its_neighbours_are_written(table: Table) -> None:
    """Among rows of one request; an ascii column takes no other characters, and only Cassandra checks that."""
    columns = {
        "topic": pa.array(["c"] * 3),
        "partition": pa.array([0] * 3, pa.int32()),
        "offset": pa.array([1, 2, 3]),
        "an_ascii": pa.array(["a", "ü", "c"]),
    }
    with pytest.raises(PoisonRecord) as caught:
        list(write(table.target, 1_000, iter([pa.RecordBatch.from_pydict(columns)])))
    assert caught.value.message.endswith("row topic=c, partition=0, offset=2")
    select = f"SELECT offset FROM driver_tests.{table.target.table} WHERE topic = 'c' AND partition = 0"  # noqa: S608
    assert [row.offset for row in table.session.execute(select)] == [1]


@pytest.mark.parametrize(
    ("name", "value"),
    [("a_blob", b"x" * 17 * 1024 * 1024), ("steps_of_many_cells", list(range(900_000)))],
    ids=["message", "mutation"],
)
def test_a_row_that_is_too_large_for_cassandra_suspects_a_record(table: Table, name: str, value: Any) -> None:
    """By its request, and by the mutation that the nodes make of it: each element of a list is a cell there."""
    kind = pa.binary() if name == "a_blob" else pa.list_(pa.int32())
    columns = {
        "topic": pa.array(["d"]),
        "partition": pa.array([0], pa.int32()),
        "offset": pa.array([1]),
        name: pa.array([value], kind),
    }
    with pytest.raises(PoisonRecord) as caught:
        list(write(table.target, 1_000, iter([pa.RecordBatch.from_pydict(columns)])))
    assert caught.value.message.endswith("row topic=d, partition=0, offset=1")
