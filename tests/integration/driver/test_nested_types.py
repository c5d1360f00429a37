"""Tuples and user-defined types on a real Cassandra: what is stored, and what is left when a type is altered."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from cassandra.cluster import Session

from fakes.driver_configs import USUAL
from fakes.spark_types import frame
from fencepost.contract import CassandraEndpoint, CassandraSink, DriverConfig
from fencepost.errors import BadSpec, PoisonRecord
from fencepost.sinks import BatchToken
from fencepost.sinks.cassandra import cassandra_sink
from fencepost.sinks.cassandra.cassandra_sink import TableSink
from testbed.environment import Environment

pytestmark = pytest.mark.integration

ADDRESS = pa.struct([("zip", pa.int32()), ("street", pa.string()), ("phones", pa.list_(pa.string()))])
"""Of the type's fields in another order, without `floor`."""
COLUMNS: dict[str, tuple[str, pa.DataType]] = {
    "home": ("{address}", ADDRESS),
    "work": ("frozen<{address}>", ADDRESS),
    "place": ("tuple<double, text>", pa.struct([("x", pa.float64()), ("name", pa.string())])),
    "all": ("frozen<list<frozen<{address}>>>", pa.list_(ADDRESS)),
    "by_name": ("map<text, frozen<{address}>>", pa.map_(pa.string(), ADDRESS)),
    "steps": (
        "set<frozen<tuple<int, frozen<list<text>>>>>",
        pa.list_(pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])),
    ),
}
SCHEMA = pa.schema([("id", pa.int32()), *((name, kind) for name, (_, kind) in COLUMNS.items())])
SPARK_ADDRESS = "struct<zip:int,street:string,phones:array<string>>"


class Table:
    """A table and a type of its own."""

    def __init__(self, session: Session, config: DriverConfig, credentials: tuple[str, str]) -> None:
        self.session, self.config, self.credentials = session, config, credentials
        self.name = f"t{uuid.uuid4().hex[:10]}"
        self.type = f"{self.name}_address"
        session.execute(
            f"CREATE TYPE driver_tests.{self.type} (street text, zip int, floor int, phones frozen<set<text>>)",
            timeout=30,
        )
        columns = ", ".join(f'"{name}" {kind.format(address=self.type)}' for name, (kind, _) in COLUMNS.items())
        session.execute(f"CREATE TABLE driver_tests.{self.name} (id int PRIMARY KEY, {columns})", timeout=30)

    def sink(self) -> TableSink:
        self.session.cluster.refresh_schema_metadata()
        sink = CassandraSink(name="rows", keyspace="driver_tests", table=self.name)
        return cassandra_sink.bind(self.config, sink, self.session, self.credentials)

    def write(self, *rows: dict[str, Any], token: int = 1_000, schema: pa.Schema = SCHEMA) -> None:
        batch = BatchToken(pipeline="p", epoch=1, version=1, token=token, offsets={})
        list(self.sink().task().write(iter([pa.RecordBatch.from_pylist(list(rows), schema)]), batch))

    def row(self, number: int) -> Any:
        return self.session.execute(f"SELECT * FROM driver_tests.{self.name} WHERE id = %s", [number]).one()  # noqa: S608


@pytest.fixture
def table(environment: Environment, session: Session) -> Iterator[Table]:
    address = CassandraEndpoint(contact_points=(environment.cassandra_host,), port=environment.cassandra_port)
    credentials = (environment.cassandra_username, environment.cassandra_password)
    config = replace(USUAL, pipeline="test/test/nested", cassandra=address, fence_keyspace="driver_tests")
    made = Table(session, config, credentials)
    yield made
    session.execute(f"DROP TABLE driver_tests.{made.name}", timeout=30)
    session.execute(f"DROP TYPE driver_tests.{made.type}", timeout=30)


def address(zip_code: int | None, street: str | None, *phones: str) -> dict[str, Any]:
    return {"zip": zip_code, "street": street, "phones": list(phones)}


def test_structs_arrive_by_name_in_types_and_by_position_in_tuples(table: Table) -> None:
    table.write(
        {
            "id": 1,
            "home": address(1, "a", "2", "1"),
            "work": {"zip": None, "street": "b", "phones": None},
            "place": {"x": 0.5, "name": None},
            "all": [address(1, "c"), address(2, "d", "3")],
            "by_name": [("x", address(5, "ü"))],
            "steps": [{"a": 2, "b": ["x", "y"]}, {"a": 1, "b": []}],
        },
        {"id": 2},
    )
    row = table.row(1)
    assert (row.home.street, row.home.zip, row.home.floor, set(row.home.phones)) == ("a", 1, None, {"1", "2"})
    assert tuple(row.work) == ("b", None, None, None)
    assert row.place == (0.5, None)
    assert [(one.street, one.zip, one.floor) for one in row.all] == [("c", 1, None), ("d", 2, None)]
    assert {name: (one.street, one.zip) for name, one in row.by_name.items()} == {"x": ("ü", 5)}
    assert [(a, list(b)) for a, b in row.steps] == [(1, []), (2, ["x", "y"])]
    assert tuple(table.row(2)) == (2, *[None] * len(COLUMNS))


def test_a_struct_replaces_the_whole_value_and_an_older_one_changes_nothing(table: Table) -> None:
    table.session.execute(
        f"UPDATE driver_tests.{table.name} USING TIMESTAMP 900 SET home.floor = 7, home.street = 'old' WHERE id = 1"  # noqa: S608
    )
    for token in (1_000, 1_000, 999):
        rows = {"id": 1, "home": address(token, None), "work": address(token, "w")}
        table.write(rows, token=token, schema=pa.schema([SCHEMA.field(name) for name in ("id", "home", "work")]))
    row = table.row(1)
    assert (row.home.street, row.home.zip, row.home.floor) == (None, 1_000, None)
    assert (row.work.street, row.work.zip) == ("w", 1_000)


def test_a_null_in_a_list_of_structs_is_poison_and_names_the_column(table: Table) -> None:
    with pytest.raises(PoisonRecord, match=r"\.all: null is an element of a list"):
        table.write({"id": 1, "all": [address(1, "a"), None]})
    assert table.row(1) is None


def test_a_type_that_gets_a_field_during_a_run_stays_writable(table: Table) -> None:
    """Values without the new field are shorter than the type: Cassandra reads the rest as null."""
    table.write({"id": 1, "home": address(1, "a"), "all": [address(1, "a")]})
    table.session.execute(f"ALTER TYPE driver_tests.{table.type} ADD town text", timeout=30)
    table.write({"id": 2, "home": address(2, "b"), "all": [address(2, "b")]})
    for number, street in ((1, "a"), (2, "b")):
        row = table.row(number)
        assert (row.home.street, row.home.town, row.all[0].street, row.all[0].town) == (street, None, street, None)
    table.sink().check(frame(id="int", home="struct<town:string>"))


def test_a_frame_that_does_not_fit_is_refused_by_the_path_of_each_field(table: Table) -> None:
    sink = table.sink()
    sink.check(frame(id="int", home=SPARK_ADDRESS, work=SPARK_ADDRESS, all=f"array<{SPARK_ADDRESS}>"))
    with pytest.raises(BadSpec) as caught:
        sink.check(
            frame(
                id="int", home="struct<zip:bigint,town:string>", work="string", place="struct<x:double>",
                by_name="map<string,struct<phones:array<int>>>",
            )
        )  # fmt: skip
    for part in ("home.zip", "home.town", "'work'", "'place'", "by_name.value.phones.element"):
        assert part in caught.value.message


def test_a_set_inside_a_frozen_value_keeps_what_the_frame_has(table: Table) -> None:
    """Cassandra sorts the elements of a column, and takes those inside a frozen value as they come."""
    table.write({"id": 1, "home": address(1, "a", "2", "1", "2"), "work": address(1, "a", "2", "1", "2")})
    stored = table.session.execute(f"SELECT toJson(work) AS work FROM driver_tests.{table.name} WHERE id = 1").one()  # noqa: S608
    assert '"phones": ["2", "1", "2"]' in stored.work
