"""The sink's worker half against a real Cassandra: what its wire format cannot hold is refused, never changed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from cassandra.cluster import Session

from fencepost.contract import CassandraEndpoint
from fencepost.errors import PoisonRecord, WorkerError, from_text
from fencepost.sinks.writer import Target, write
from testbed.environment import Environment

pytestmark = pytest.mark.integration

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

    def rows(self) -> list[Any]:
        """What is in the table."""
        return list(self.session.execute(f"SELECT * FROM driver_tests.{self.target.table}"))  # noqa: S608


@pytest.fixture(scope="module")
def table(environment: Environment, session: Session) -> Iterator[Table]:
    name = f"t{uuid.uuid4().hex[:10]}"
    columns = ", ".join(f"{field} {kind}" for field, (kind, _) in FIELDS.items())
    session.execute(
        f"CREATE TABLE driver_tests.{name} (topic text, partition int, offset bigint, {columns},"
        " PRIMARY KEY ((topic, partition), offset))"
    )
    credentials = (environment.cassandra_username, environment.cassandra_password)
    address = CassandraEndpoint(contact_points=(environment.cassandra_host,), port=environment.cassandra_port)
    yield Table(
        session,
        Target(
            sink="rows",
            cassandra=address,
            credentials=credentials,
            consistency="LOCAL_QUORUM",
            keyspace="driver_tests",
            table=name,
            partition_key=("topic", "partition"),
            patience=30.0,
        ),
    )
    session.execute(f"DROP TABLE driver_tests.{name}", timeout=30)


@pytest.mark.parametrize(
    ("field", "value"), [("names", ["x", None]), ("sizes", [("x", 1), ("y", None)]), ("steps", [1, None])]
)
def test_a_null_inside_a_collection_is_poison_and_nothing_is_stored(table: Table, field: str, value: Any) -> None:
    with pytest.raises(WorkerError) as caught:
        table.write(**{field: value})
    found = from_text(str(caught.value))
    assert isinstance(found, PoisonRecord)
    assert f"{table.target.table}.{field}: null is " in found.message
    assert found.message.endswith("row topic=a, partition=3, offset=7")
    assert table.rows() == []


def test_a_collection_without_nulls_arrives_as_it_is(table: Table) -> None:
    table.write(names=["x", "y"], sizes=[("x", 1)], steps=[1, 2])
    (row,) = table.rows()
    assert (set(row.names), dict(row.sizes), list(row.steps)) == ({"x", "y"}, {"x": 1}, [1, 2])
