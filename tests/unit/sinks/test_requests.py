"""The messages that Cassandra gets are, byte for byte, those that its driver would have written."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pytest
from cassandra import ConsistencyLevel
from cassandra.cqltypes import ListType, MapType, SetType, TupleType, UserType, lookup_casstype
from cassandra.protocol import BatchMessage
from cassandra.query import BatchStatement, BatchType, BoundStatement, PreparedStatement
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fencepost.errors import BadSpec
from fencepost.sinks.cassandra.encoding import requests
from fencepost.sinks.cassandra.encoding.columns import encoder
from fencepost.sinks.cassandra.encoding.requests import Change, EncodedRows, Request, send_encoded

TIMESTAMP: Final = 1_700_000_000_123_456
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


MOMENTS: Final = st.integers(-(10**14), 10**14).map(lambda ms: EPOCH + timedelta(milliseconds=ms % 10**13))
TEXTS: Final = st.text(max_size=20)

KINDS: Final[dict[str, tuple[str, pa.DataType, st.SearchStrategy[Any]]]] = {
    "text": ("UTF8Type", pa.string(), TEXTS),
    "large": ("UTF8Type", pa.large_string(), TEXTS),
    "ascii": ("AsciiType", pa.string(), st.text(st.characters(codec="ascii"), max_size=9)),
    "inet": ("InetAddressType", pa.string(), st.ip_addresses().map(str)),
    "uuid": ("UUIDType", pa.string(), st.uuids().map(str)),
    "timeuuid": ("TimeUUIDType", pa.string(), st.just("5132b130-ae79-11e4-ab27-0800200c9a66")),
    "blob": ("BytesType", pa.binary(), st.binary(max_size=20)),
    "boolean": ("BooleanType", pa.bool_(), st.booleans()),
    "tinyint": ("ByteType", pa.int8(), integers(8)),
    "smallint": ("ShortType", pa.int8(), integers(8)),
    "int": ("Int32Type", pa.int32(), integers(32)),
    "bigint": ("LongType", pa.int64(), integers(64)),
    "varint": ("IntegerType", pa.int64(), integers(64)),
    "float": ("FloatType", pa.float32(), st.floats(width=32)),
    "double": ("DoubleType", pa.float64(), st.floats()),
    "decimal": ("DecimalType", pa.decimal128(20, 4), st.decimals(-(10**9), 10**9, places=4)),
    "timestamp": ("TimestampType", pa.timestamp("us", tz="UTC"), MOMENTS),
    "date": ("SimpleDateType", pa.date32(), st.dates(date(1, 1, 2), date(9999, 12, 30))),
    "time": ("TimeType", pa.int64(), st.integers(0, 24 * 3600 * 10**9 - 1)),
    "set": ("SetType(UTF8Type)", pa.list_(pa.string()), st.lists(TEXTS, max_size=3, unique=True)),
    "map": (
        "MapType(UTF8Type, Int32Type)",
        pa.map_(pa.string(), pa.int32()),
        st.dictionaries(TEXTS, integers(32), max_size=3).map(lambda found: list(found.items())),
    ),
    "list": ("FrozenType(ListType(LongType))", pa.list_(pa.int64()), st.lists(integers(64), max_size=3)),
}
"""By a column's name: its type at Cassandra, its type in a frame, and values."""


def driver_value(name: str, value: Any) -> Any:
    """What an author of the Cassandra driver would bind."""
    if value is None:
        return None
    match name:
        case "uuid" | "timeuuid":
            return UUID(value)
        case "map":
            return dict(value)
        case _:
            return value


def insert(names: Sequence[str], key: tuple[int, ...]) -> Change:
    kinds = [lookup_casstype(KINDS[name][0]) for name in names]
    columns = [
        SimpleNamespace(keyspace_name="k", table_name="t", name=f"c{place}", type=kind)
        for place, kind in enumerate([*kinds, lookup_casstype("LongType")])
    ]
    prepared = PreparedStatement(columns, b"sixteen bytes id", list(key), "INSERT", "k", 5, columns, b"")
    return Change(
        prepared=prepared,
        keyspace="k",
        columns=tuple(f"c{place}" for place in range(len(names))),
        key=key,
        primary=tuple(f"c{place}" for place in key),
        encoders=tuple(encoder(kind, 5) for kind in kinds),
        table="k.t",
        patience=1.0,
    )


def bound(made: Change, names: Sequence[str], row: Sequence[Any]) -> BoundStatement:
    values = [driver_value(name, value) for name, value in zip(names, row, strict=True)]
    return BoundStatement(made.prepared).bind([*values, TIMESTAMP])


def body(queries: Any, message: type[BatchMessage] = BatchMessage) -> bytes:
    written = io.BytesIO()
    plain = message(BatchType.UNLOGGED, queries, ConsistencyLevel.LOCAL_QUORUM, ConsistencyLevel.SERIAL, 77, "k")
    plain.send_body(written, 5)
    return written.getvalue()


def sent(request: Request) -> bytes:
    """The body of the message that a session sends for a request of several rows."""
    plain = BatchMessage(BatchType.UNLOGGED, [], ConsistencyLevel.LOCAL_QUORUM, ConsistencyLevel.SERIAL, 77, "k")
    future = SimpleNamespace(query=request.statement, message=plain)
    send_encoded(future)
    written = io.BytesIO()
    future.message.send_body(written, 5)
    return written.getvalue()


def expected(made: Change, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> tuple[bytes, bytes]:
    """The body and the routing key of the Cassandra driver's own batch of these rows."""
    batch = BatchStatement(BatchType.UNLOGGED)
    for row in rows:
        batch.add(bound(made, names, row))
    return body(batch._statements_and_parameters), batch.routing_key


@st.composite
def frames(draw: st.DrawFn) -> tuple[list[str], tuple[int, ...], list[list[Any]]]:
    """Columns, the positions of the partition key's, and rows of few partitions."""
    simple = sorted(set(KINDS) - {"set", "map", "list"})
    key_names = draw(st.lists(st.sampled_from(simple), min_size=1, max_size=3))
    others = draw(st.lists(st.sampled_from(sorted(KINDS)), max_size=6))
    names = draw(st.permutations([*((name, True) for name in key_names), *((name, False) for name in others)]))
    key = tuple(place for place, (_, is_key) in enumerate(names) if is_key)
    keys = [[draw(KINDS[names[place][0]][2]) for place in key] for _ in range(2)]
    rows = []
    for _ in range(draw(st.integers(1, 6))):
        chosen = dict(zip(key, draw(st.sampled_from(keys)), strict=True))
        rows.append(
            [
                chosen[place] if is_key else draw(st.none() | KINDS[name][2])
                for place, (name, is_key) in enumerate(names)
            ]
        )
    return [name for name, _ in names], key, rows


def frame(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    columns = [pa.array([row[place] for row in rows], KINDS[name][1]) for place, name in enumerate(names)]
    return pa.RecordBatch.from_arrays(columns, names=[f"c{place}" for place in range(len(names))])


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(frames())
def test_messages_are_those_of_the_cassandra_driver(made: tuple[list[str], tuple[int, ...], list[list[Any]]]) -> None:
    names, key, rows = made
    one = insert(names, key)
    seen = []
    for request in one.requests(frame(names, rows), TIMESTAMP):
        positions = [int(place) for place in request.rows.positions[request.first : request.last]]
        seen += positions
        chosen = [rows[place] for place in positions]
        if isinstance(request.statement, EncodedRows):
            assert (sent(request), request.statement.routing_key or None) == expected(one, names, chosen)
            assert request.statement.keyspace == "k"
        else:
            (row,) = chosen
            own = bound(one, names, row)
            assert request.statement.values == own.values
            assert request.statement.routing_key == own.routing_key
        for single, place in zip(request.singles(), positions, strict=True):
            assert single.statement.values == bound(one, names, rows[place]).values
    assert sorted(seen) == list(range(len(rows)))


@dataclass(frozen=True)
class Nested:
    """A type of any depth: Cassandra's, the frame's, values of the frame, and what its driver takes for them."""

    cql: Any
    arrow: pa.DataType
    values: st.SearchStrategy[Any]
    plain: Callable[[Any], Any]

    def or_null(self) -> st.SearchStrategy[Any]:
        return st.none() | self.values


def simple(name: str) -> Nested:
    cql, arrow, values = KINDS[name]
    return Nested(lookup_casstype(cql), arrow, values, lambda value: driver_value(name, value))


def collection(name: str, inner: Nested) -> Nested:
    return Nested(
        {"list": ListType, "set": SetType}[name].apply_parameters([inner.cql]),
        pa.list_(inner.arrow),
        st.lists(inner.values, max_size=3),
        lambda values: [inner.plain(value) for value in values],
    )


class Pairs:
    """A map as the Cassandra driver takes it, with keys that Python may not hash."""

    def __init__(self, pairs: list[tuple[Any, Any]]) -> None:
        self.pairs = pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def items(self) -> list[tuple[Any, Any]]:
        return self.pairs


def mapping(key: Nested, value: Nested) -> Nested:
    return Nested(
        MapType.apply_parameters([key.cql, value.cql]),
        pa.map_(key.arrow, value.arrow),
        st.lists(st.tuples(key.values, value.values), max_size=3),
        lambda pairs: Pairs([(key.plain(k), value.plain(v)) for k, v in pairs]),
    )


def values_in_order(parts: list[Nested], names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    def plain(row: Any) -> tuple[Any, ...]:
        found = [row.get(name) for name in names]
        return tuple(None if value is None else part.plain(value) for value, part in zip(found, parts, strict=True))

    return plain


def tuple_of(parts: list[Nested]) -> Nested:
    names = [f"_{place}" for place in range(len(parts))]
    return Nested(
        TupleType.apply_parameters([part.cql for part in parts]),
        pa.struct([(name, part.arrow) for name, part in zip(names, parts, strict=True)]),
        st.fixed_dictionaries({name: part.or_null() for name, part in zip(names, parts, strict=True)}),
        values_in_order(parts, names),
    )


def user_type(parts: list[Nested], there: list[int]) -> Nested:
    """A type of which the frame has the fields at the places `there`, in that order."""
    names = tuple(f"f{place}" for place in range(len(parts)))
    return Nested(
        UserType.make_udt_class("k", "text", names, tuple(part.cql for part in parts)),
        pa.struct([(names[place], parts[place].arrow) for place in there]),
        st.fixed_dictionaries({names[place]: parts[place].or_null() for place in there}),
        values_in_order(parts, names),
    )


@st.composite
def user_types(draw: st.DrawFn, inner: st.SearchStrategy[Nested]) -> Nested:
    parts = draw(st.lists(inner, min_size=1, max_size=4))
    return user_type(parts, draw(st.lists(st.sampled_from(range(len(parts))), min_size=1, unique=True)))


SIMPLE: Final = st.sampled_from(sorted(set(KINDS) - {"set", "map", "list"})).map(simple)
NESTED: Final = st.recursive(
    SIMPLE,
    lambda inner: (
        st.builds(collection, st.sampled_from(["list", "set"]), inner)
        | st.builds(mapping, inner, inner)
        | st.lists(inner, min_size=1, max_size=4).map(tuple_of)
        | user_types(inner)
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_types_of_any_depth_become_the_bytes_of_the_cassandra_driver(data: st.DataObject) -> None:
    kind = data.draw(NESTED)
    rows = data.draw(st.lists(kind.or_null(), min_size=1, max_size=6))
    own = [None if row is None else kind.cql.serialize(kind.plain(row), 5) for row in rows]
    column = pa.array(rows, kind.arrow)
    encode = encoder(kind.cql, 5)
    start = data.draw(st.integers(0, len(rows)))
    assert encode(column).cast(pa.binary()).to_pylist() == own
    assert encode(column.slice(start)).cast(pa.binary()).to_pylist() == own[start:]
    assert encode(pa.concat_arrays([column, column]).slice(len(rows) - start)).cast(pa.binary()).to_pylist() == (
        own[len(rows) - start :] + own
    )


def test_lists_of_a_fixed_size_are_lists() -> None:
    column = pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32(), 2))
    kind = collection("list", simple("float")).cql
    own = [kind.serialize(row, 5) if row else None for row in column.to_pylist()]
    assert encoder(kind, 5)(column).cast(pa.binary()).to_pylist() == own
    assert encoder(kind, 5)(column.slice(1)).cast(pa.binary()).to_pylist() == own[1:]


def test_what_lies_below_a_null_is_not_written_nor_checked() -> None:
    """Arrow leaves open what the children of a null hold: here a null element, and a number that does not fit."""
    numbers = pa.array([1, 2**40, 3])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3, 3], pa.int32()), pa.array(["a", None, "c"]))
    rows = pa.StructArray.from_arrays([numbers, lists], names=["f0", "f1"], mask=pa.array([False, True, False]))
    kind = user_type([simple("int"), collection("set", simple("text"))], [0, 1])
    own = [kind.cql.serialize(row, 5) if row else None for row in [(1, ["a"]), None, (3, [])]]
    assert encoder(kind.cql, 5)(rows).to_pylist() == own


def test_dictionaries_inside_structs_are_written_as_their_values() -> None:
    inner = pa.array(["a", None, "a"]).dictionary_encode()
    rows = pa.StructArray.from_arrays([inner], names=["f0"])
    kind = user_type([simple("text")], [0])
    assert encoder(kind.cql, 5)(rows).to_pylist() == [kind.cql.serialize((text,), 5) for text in ("a", None, "a")]


@pytest.mark.parametrize(
    ("kind", "names"), [(user_type([simple("int")], [0]), ["f0", "town"]), (tuple_of([simple("int")]), ["a", "b"])]
)
def test_a_type_that_was_altered_under_a_run_does_not_blame_the_records(kind: Nested, names: list[str]) -> None:
    rows = pa.StructArray.from_arrays([pa.array([1], pa.int32())] * len(names), names=names)
    with pytest.raises(BadSpec):
        encoder(kind.cql, 5)(rows)


def test_rows_of_a_slice_are_its_own() -> None:
    """A slice shares its buffers with the batch that it is cut from."""
    rows = [[place // 4, f"v{place}" if place % 3 else None, place % 5 == 0, place] for place in range(40)]
    one, names = insert(["int", "text", "boolean", "smallint"], (0,)), ["int", "text", "boolean", "smallint"]
    cut = frame(names, rows).slice(13, 10)
    found = list(one.requests(cut, TIMESTAMP))
    assert [(sent(request), request.statement.routing_key) for request in found] == [
        expected(one, names, rows[start:end]) for start, end in ((13, 16), (16, 20), (20, 23))
    ]


def test_dictionaries_are_written_as_their_values() -> None:
    one = insert(["int", "text"], (0,))
    plain = frame(["int", "text"], [[1, "a"], [1, None], [1, "a"]])
    encoded = plain.set_column(1, "c1", plain.column(1).dictionary_encode())
    assert [sent(r) for r in one.requests(encoded, 7)] == [sent(r) for r in one.requests(plain, 7)]


def test_a_batch_larger_than_a_step_is_encoded_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "STEP_BYTES", 1_000)
    one, rows = insert(["int", "text"], (0,)), [[1, "x" * 100] for _ in range(40)]
    steps = list(one.requests(frame(["int", "text"], rows), TIMESTAMP))
    assert sum(request.count for request in steps) == 40
    assert len({id(request.rows) for request in steps}) > 3


def test_a_decimal_keeps_its_scale() -> None:
    one = insert(["int", "decimal"], (0,))
    rows = [[1, Decimal("1.5000")], [1, Decimal("-2.2500")]]
    (request,) = one.requests(frame(["int", "decimal"], rows), TIMESTAMP)
    assert sent(request) == expected(one, ["int", "decimal"], rows)[0]
