"""Tables that the driver creates, on a real Cassandra."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from cassandra.cluster import Session

from fakes.spark_types import frame
from fencepost.contract import CassandraSink, ClusteringColumn, CreateTable
from fencepost.errors import BadSpec, DependencyDown
from fencepost.sinks import BatchToken
from fencepost.sinks.cassandra import cassandra_sink
from fencepost.sinks.cassandra.cassandra_sink import TableSink
from fencepost.testing.sinks import SinkContract, Subject
from integration.driver.support import Pipeline, open_session
from testbed.environment import Environment

pytestmark = pytest.mark.integration

KEY = CreateTable(
    partition_key=("topic", "partition"), clustering_key=(ClusteringColumn(column="offset", order="DESC"),)
)
FRAME = frame(topic="string", partition="int", offset="bigint", value="string")


_HOME = pa.struct(
    [
        ("street", pa.string()),
        ("at", pa.struct([("x", pa.float64()), ("y", pa.float64())])),
        ("phones", pa.list_(pa.string())),
    ]
)
ARROW_OF_STRUCTS = pa.schema(
    {
        "topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "home": _HOME,
        "by_name": pa.map_(pa.string(), pa.list_(_HOME)),
    }
)  # fmt: skip


class Place:
    """A name for a table that is not there yet."""

    def __init__(self, pipeline: Pipeline, session: Session, table: CreateTable = KEY) -> None:
        self.pipeline, self.session = pipeline, session
        self.sink = CassandraSink(
            name="rows", keyspace="driver_tests", table=f"t{uuid.uuid4().hex[:10]}", create_table=table
        )

    def open(self, session: Session | None = None, **changes: Any) -> TableSink:
        """Open the sink as a new run does, which reads the schema."""
        used = session or self.session
        used.cluster.refresh_schema_metadata()
        sink = msgspec.structs.replace(self.sink, **changes)
        return cassandra_sink.bind(self.pipeline.config, sink, used, self.pipeline.credentials)

    def statement(self) -> str:
        """The table as Cassandra describes it."""
        rows = self.session.execute(f"DESCRIBE TABLE driver_tests.{self.sink.table}")
        return " ".join(rows.one().create_statement.split())


@pytest.fixture
def place(pipeline: Callable[..., Pipeline], session: Session) -> Iterator[Place]:
    made = Place(pipeline(), session)
    yield made
    session.execute(f"DROP TABLE IF EXISTS driver_tests.{made.sink.table}", timeout=30)


class TestCreatedTable(SinkContract):
    """The contract of every sink, in a table that the sink created."""

    @pytest.fixture
    def subject(self, place: Place, session: Session) -> Subject:
        def opened() -> TableSink:
            sink = place.open()
            sink.check(FRAME)
            return sink

        def read() -> list[dict[str, Any]]:
            return [row._asdict() for row in session.execute(f"SELECT * FROM driver_tests.{place.sink.table}")]  # noqa: S608

        schema = pa.schema({"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "value": pa.string()})

        def batch(*values: str) -> pa.RecordBatch:
            rows = [{"topic": "a", "partition": 0, "offset": 5 + i, "value": value} for i, value in enumerate(values)]
            return pa.RecordBatch.from_pylist(rows, schema)

        return Subject(
            open=opened,
            rows=batch("a", "b", "c"),
            changed=batch("x", "y", "z"),
            read=read,
            misfits={"town": schema.append(pa.field("town", pa.string())), "offset": schema.remove(2)},
        )


def test_every_type_of_a_frame_has_a_column_and_the_options_are_those_of_the_spec(place: Place) -> None:
    compaction = {
        "class": "TimeWindowCompactionStrategy",
        "compaction_window_unit": "DAYS",
        "compaction_window_size": "2",
    }
    wanted = replace(KEY, default_time_to_live=86400, compaction=compaction)
    kinds = {
        "a": "string", "b": "binary", "c": "boolean", "d": "tinyint", "e": "smallint", "f": "float", "g": "double",
        "h": "decimal(10,2)", "i": "timestamp", "j": "timestamp_ntz", "k": "date", "l": "array<map<string,int>>",
        "Mixed": "map<string,array<bigint>>",
    }  # fmt: skip
    place.open(create_table=wanted, delete_where="gone").check(
        frame(topic="string", partition="int", offset="bigint", **kinds, gone="boolean")
    )
    text = place.statement()
    for part in (
        "a text", "b blob", "c boolean", "d tinyint", "e smallint", "f float", "g double", "h decimal", "i timestamp",
        "j timestamp", "k date", "l frozen<list<frozen<map<text, int>>>>",
        '"Mixed" frozen<map<text, frozen<list<bigint>>>>',
        "PRIMARY KEY ((topic, partition), offset)", "CLUSTERING ORDER BY (offset DESC)", "default_time_to_live = 86400",
        "TimeWindowCompactionStrategy", "'compaction_window_size': '2'",
    ):  # fmt: skip
        assert part in text
    assert "gone" not in text


def test_drivers_that_race_make_one_table(place: Place, environment: Environment) -> None:
    """Each one with a session of its own, as two runs have; all of them write to what is there in the end."""
    sessions = [open_session(environment) for _ in range(4)]
    try:
        sinks = [place.open(session) for session in sessions]
        with ThreadPoolExecutor(len(sinks)) as pool:
            list(pool.map(lambda sink: sink.check(FRAME), sinks))
        for number, sink in enumerate(sinks):
            rows = {"topic": ["a"], "partition": pa.array([0], pa.int32()), "offset": [number], "value": [str(number)]}
            token = BatchToken(pipeline="p", epoch=1, version=1, token=1_000, offsets={})
            list(sink.task().write(iter([pa.RecordBatch.from_pydict(rows)]), token))
        select = f"SELECT offset FROM driver_tests.{place.sink.table}"  # noqa: S608
        assert sorted(row.offset for row in place.session.execute(select)) == [0, 1, 2, 3]
    finally:
        for session in sessions:
            session.cluster.shutdown()


def test_a_table_that_exists_is_used_as_it_is_and_differences_are_reported(place: Place) -> None:
    table = f"driver_tests.{place.sink.table}"
    place.session.execute(
        f"CREATE TABLE {table} (topic text, partition int, offset bigint, value text, other int,"
        " PRIMARY KEY ((topic, partition), offset))",
        timeout=30,
    )
    same = replace(KEY, clustering_key=(ClusteringColumn(column="offset"),), default_time_to_live=5)
    before = place.statement()
    place.open(create_table=same).check(FRAME)
    with pytest.raises(BadSpec) as caught:
        place.open().check(frame(topic="string", partition="bigint", offset="bigint", town="string"))
    assert "PRIMARY KEY ((topic, partition), offset), and createTable says ((topic, partition), offset DESC)" in (
        caught.value.message
    )
    for part in ("createTable changes no table", "'partition': int takes", "'town' is not in the table"):
        assert part in caught.value.message
    assert place.statement() == before


@pytest.mark.parametrize(
    ("columns", "refusal"),
    [
        ({"topic": "string", "partition": "int", "value": "string"}, "'offset' is part of createTable's key"),
        ({"topic": "string", "partition": "void", "offset": "bigint"}, "'partition': createTable has no type for void"),
        ({"topic": "string", "partition": "int", "offset": "bigint", "a": "struct<x:void>"}, "'a': createTable has no"),
        (
            {"topic": "string", "partition": "int", "offset": "bigint", "a": "struct<x-y:int>"},
            "field 'x-y' of a struct",
        ),
        (
            {
                "topic": "string",
                "partition": "int",
                "offset": "bigint",
                "a": "struct<b:struct<x:int>>",
                "a_b": "struct<x:int>",
            },
            "two structs would have the type",
        ),
        ({"topic": "string", "partition": "int", "offset": "bigint", 'x" int); DROP TABLE y': "int"}, "rename it"),
    ],
)
def test_columns_that_make_no_table_are_refused_and_nothing_is_created(
    place: Place, columns: dict[str, str], refusal: str
) -> None:
    with pytest.raises(BadSpec, match="no table driver_tests") as caught:
        place.open().check(frame(**columns))
    assert refusal in caught.value.message
    assert place.sink.table not in place.session.cluster.metadata.keyspaces["driver_tests"].tables


def test_structs_have_types_of_their_own_in_a_new_table(place: Place) -> None:
    home = "struct<street:string,at:struct<x:double,y:double>,phones:array<string>>"
    columns = {"topic": "string", "partition": "int", "offset": "bigint"}
    schema = frame(**columns, home=home, by_name=f"map<string,array<{home}>>")
    session, name = place.session, place.sink.table
    types = [f"{name}_{part}" for part in ("home", "home_at", "by_name_value", "by_name_value_at")]
    try:
        sink = place.open()
        sink.check(schema)
        place.open().check(schema)  # as the next run does
        assert f"home frozen<{name}_home>" in place.statement()
        row = {
            "topic": "a", "partition": 0, "offset": 1,
            "home": {"street": "s", "at": {"x": 0.5, "y": None}, "phones": ["1"]}, "by_name": [("n", [])],
        }  # fmt: skip
        token = BatchToken(pipeline="p", epoch=1, version=1, token=1_000, offsets={})
        list(sink.task().write(iter([pa.RecordBatch.from_pylist([row], ARROW_OF_STRUCTS)]), token))
        stored = session.execute(f"SELECT home FROM driver_tests.{name}").one().home  # noqa: S608
        assert (stored.street, tuple(stored.at), stored.phones) == ("s", (0.5, None), ["1"])
        session.execute(f"DROP TABLE driver_tests.{name}", timeout=30)
        with pytest.raises(BadSpec, match=rf"field home.at: frozen<.*{name}_home_at.*> takes a struct, not int"):
            place.open().check(frame(**columns, home="struct<at:int>"))
    finally:
        session.execute(f"DROP TABLE IF EXISTS driver_tests.{name}", timeout=30)
        for one in types:
            session.execute(f"DROP TYPE IF EXISTS driver_tests.{one}", timeout=30)


def test_options_that_cassandra_refuses_are_a_bad_spec(place: Place) -> None:
    with pytest.raises(BadSpec, match="refuses to create"):
        place.open(create_table=replace(KEY, compaction={"class": "NoSuchStrategy"})).check(FRAME)


def test_a_refused_creation_names_the_grant(place: Place, environment: Environment) -> None:
    user = f"u{uuid.uuid4().hex[:8]}"
    place.session.execute(f"CREATE ROLE {user} WITH PASSWORD = 'p' AND LOGIN = true")
    place.session.execute(f"GRANT SELECT ON KEYSPACE driver_tests TO {user}")
    try:
        session = open_session(replace(environment, cassandra_username=user, cassandra_password="p"), create=False)  # noqa: S106
        try:
            with pytest.raises(DependencyDown) as caught:
                place.open(session).check(FRAME)
        finally:
            session.cluster.shutdown()
    finally:
        place.session.execute(f"DROP ROLE {user}")
    assert caught.value.reason == "CassandraCredentialsRejected"
    assert "GRANT CREATE ON KEYSPACE driver_tests" in caught.value.remedy


def test_a_run_of_dataframes_creates_its_table_and_writes_structs(place: Place, session: Session) -> None:
    one = place.pipeline
    kind, table = f"{one.topic}_reading", f"{one.topic}_structs"
    session.execute(f"CREATE TYPE driver_tests.{kind} (n bigint, city text, unit text)", timeout=30)
    session.execute(
        f"CREATE TABLE driver_tests.{table} (partition int, offset bigint, reading frozen<{kind}>,"
        " place tuple<text, double>, PRIMARY KEY (partition, offset))",
        timeout=30,
    )
    try:
        created = msgspec.structs.replace(
            place.sink,
            create_table=CreateTable(
                partition_key=("partition", "bucket"), clustering_key=(ClusteringColumn(column="offset"),)
            ),
        )
        structs = CassandraSink(name="structs", keyspace="driver_tests", table=table)
        one.kafka.produce(one.topic, 400)
        one.config = replace(one.config, entrypoint="parse:structs", sinks=(created, structs))
        one.start()
        one.wait_committed(400)
        rows = list(session.execute(f"SELECT * FROM driver_tests.{place.sink.table}"))  # noqa: S608
        assert sorted(row.n for row in rows) == list(range(400))
        found = {row.reading.n: row for row in session.execute(f"SELECT * FROM driver_tests.{table}")}  # noqa: S608
        assert sorted(found) == list(range(400))
        assert all(
            (row.reading.city, row.reading.unit, row.place) == (f"c{n % 7}", None, (f"c{n % 7}", n / 2))
            for n, row in found.items()
        )
    finally:
        session.execute(f"DROP TABLE driver_tests.{table}", timeout=30)
        session.execute(f"DROP TYPE driver_tests.{kind}", timeout=30)
