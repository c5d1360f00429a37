"""Which types fit, and the bytes they become: as the Cassandra driver itself serializes them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pytest
from cassandra.cqltypes import lookup_casstype

from fakes.spark_types import spark_type
from fencepost.sinks.cassandra.cql import parsed, quoted
from fencepost.sinks.cassandra.encoding.columns import NullInCollection, encoder
from fencepost.sinks.cassandra.type_fit import problems

ID = "5132b130-ae79-11e4-ab27-0800200c9a66"
AT = datetime(2013, 1, 1, 10, 15, 30, 123456, tzinfo=UTC)


ADDRESS: Final = {"street": "text", "zip": "int", "phones": "set<text>"}
TYPES: Final = {"address": ADDRESS, "person": {"name": "text", "home": "frozen<address>"}, "text": {"a": "int"}}


@pytest.mark.parametrize("text", ["010.0.0.1", "10.1", "1", "10.0.0.1 trailing", "10.0.0.0/8", "fe80::1%eth0", ""])
def test_an_address_that_could_mean_two_things_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"does not appear to be|names an interface"):
        encoder(lookup_casstype("InetAddressType"), 5)(pa.array([text]))


def test_an_address_has_one_spelling() -> None:
    encode = encoder(lookup_casstype("InetAddressType"), 5)
    assert encode(pa.array(["10.0.0.1", "2001:DB8::0:1", None])).to_pylist() == [
        bytes([10, 0, 0, 1]),
        bytes.fromhex("20010db8000000000000000000000001"),
        None,
    ]


def found(spark: str, cql: str) -> list[str]:
    """What is said about a column named c."""
    return list(problems("c", spark_type(spark), parsed(cql, TYPES)))


@pytest.mark.parametrize(
    ("spark", "cql"),
    [
        ("string", "text"), ("string", "uuid"), ("int", "int"), ("smallint", "int"), ("int", "bigint"),
        ("bigint", "bigint"), ("float", "double"), ("decimal(10,2)", "decimal"), ("timestamp", "timestamp"),
        ("date", "date"), ("binary", "blob"), ("boolean", "boolean"), ("array<string>", "set<text>"),
        ("map<string,int>", "map<text, bigint>"), ("array<int>", "frozen<list<int>>"),
        ("map<string,array<int>>", "map<text, frozen<list<int>>>"),
        ("struct<street:string,zip:int,phones:array<string>>", "frozen<address>"),
        ("struct<zip:smallint,street:string>", "address"),
        ("struct<home:struct<zip:int>,name:string>", "frozen<person>"),
        ("struct<x:int,y:string>", "tuple<int, text>"),
        ("struct<x:int,y:struct<z:string>>", "frozen<tuple<bigint, frozen<tuple<text>>>>"),
        ("array<struct<zip:int>>", "frozen<list<frozen<address>>>"),
        ("map<struct<a:int>,array<struct<home:struct<zip:int>>>>",
         "map<frozen<tuple<int>>, frozen<list<frozen<person>>>>"),
        ("struct<a:int>", 'frozen<"text">'),
    ],
)  # fmt: skip
def test_fits(spark: str, cql: str) -> None:
    assert found(spark, cql) == []


@pytest.mark.parametrize(
    ("spark", "cql", "why"),
    [
        ("bigint", "int", "column 'c': int takes int or smallint or tinyint, not bigint; cast it"),
        ("string", "timestamp", "not string"),
        ("int", "counter", "cannot be written twice"),
        ("array<int>", "list<int>", "make it frozen"),
        ("string", "set<text>", "takes an array"),
        ("map<string,string>", "map<text, int>", "field c.value: int takes int or smallint or tinyint, not string"),
        ("array<float>", "vector<float, 3>", "type vector<float, 3> is not supported"),
        ("struct<a:int>", "frozen<elsewhere>", "type frozen<elsewhere> is not supported"),
        ("string", "frozen<address>", "frozen<address> takes a struct, not string; make one with struct"),
        ("struct<zip:bigint>", "address", "field c.zip: int takes int or smallint or tinyint, not bigint; cast"),
        ("struct<zip:int,town:string>", "address",
         "field c.town: type address has no such field, it has street, zip, phones; rename or drop it"),
        ("struct<Zip:int>", "address", "field c.Zip: type address has no such field"),
        ("struct<home:struct<phones:array<int>>>", "frozen<person>", "field c.home.phones.element: text takes string"),
        ("struct<x:int>", "tuple<int, text>", "has 2 elements, and the struct 1: struct<x:int>; give the struct"),
        ("struct<x:int,y:int>", "tuple<int, text>", "field c.y: text takes string"),
        ("array<struct<zip:string>>", "frozen<list<frozen<address>>>", "field c.element.zip: int takes"),
    ],
)  # fmt: skip
def test_does_not_fit(spark: str, cql: str, why: str) -> None:
    (problem,) = found(spark, cql)
    assert why in problem
    assert problem.startswith("column 'c'")


def test_every_field_that_does_not_fit_is_named() -> None:
    assert len(found("struct<street:int,zip:string,town:string>", "address")) == 3


def test_names_in_quotes_may_hold_any_character() -> None:
    types = {'a "b", <c>': {"x": "int"}}
    kind = parsed('map<text, frozen<"a ""b"", <c>">>', types)
    assert [part.kind for part in kind.parts] == ["text", "udt"]
    assert kind.parts[1].fields == ("x",)
    assert quoted('a "b"') == '"a ""b"""'


@pytest.mark.parametrize(
    ("cql", "arrow", "values", "plain"),
    [
        ("Int32Type", pa.int16(), [1, None, -7], None),
        ("LongType", pa.int64(), [2**40, None, -1], None),
        ("ShortType", pa.int16(), [3, -3], None),
        ("ByteType", pa.int8(), [3, -3], None),
        ("DoubleType", pa.float32(), [0.5, None], None),
        ("FloatType", pa.float32(), [0.5, -2.25], None),
        ("BooleanType", pa.bool_(), [True, None, False], None),
        ("UTF8Type", pa.string(), ["a", None, "ü"], None),
        ("BytesType", pa.binary(), [b"\x00", None], None),
        ("TimestampType", pa.timestamp("us", tz="UTC"), [AT, None], [AT.replace(microsecond=123000), None]),
        ("TimestampType", pa.timestamp("us"), [datetime(1969, 12, 31, 23, 59, 59)], None),  # noqa: DTZ001 - ntz
        ("SimpleDateType", pa.date32(), [date(2013, 1, 1), None, date(1969, 1, 1)], None),
        ("DecimalType", pa.decimal128(10, 2), [Decimal("1.50"), None], None),
        ("IntegerType", pa.int64(), [2**40, -1], None),
        ("UUIDType", pa.string(), [ID], [UUID(ID)]),
        ("SetType(UTF8Type)", pa.list_(pa.string()), [["b", "a"], None], [{"a", "b"}, None]),
        ("MapType(UTF8Type, Int32Type)", pa.map_(pa.string(), pa.int32()), [[("a", 1)]], [{"a": 1}]),
        ("FrozenType(ListType(Int32Type))", pa.list_(pa.int32()), [[1, 2]], None),
    ],
)  # fmt: skip
def test_bytes_are_those_of_the_driver(cql: str, arrow: Any, values: list[Any], plain: list[Any] | None) -> None:
    kind = lookup_casstype(cql)
    expected = [None if value is None else kind.serialize(value, 5) for value in plain or values]
    encoded = encoder(kind, 5)(pa.array(values, arrow)).to_pylist()
    if cql.startswith("SetType"):
        assert [None if e is None else kind.deserialize(e, 5) for e in encoded] == plain
    else:
        assert encoded == expected


def test_a_number_out_of_range_is_refused() -> None:
    with pytest.raises(pa.ArrowInvalid):
        encoder(lookup_casstype("Int32Type"), 5)(pa.array([2**40]))


@pytest.mark.parametrize(
    ("cql", "arrow", "value", "place"),
    [
        ("SetType(UTF8Type)", pa.list_(pa.string()), ["a", None], "an element of a set"),
        ("SetType(Int32Type)", pa.list_(pa.int32()), [1, None], "an element of a set"),
        ("FrozenType(ListType(Int32Type))", pa.list_(pa.int32()), [None], "an element of a list"),
        ("MapType(UTF8Type, Int32Type)", pa.map_(pa.string(), pa.int32()), [("a", None)], "a value of a map"),
        (
            "MapType(UTF8Type, FrozenType(SetType(UTF8Type)))",
            pa.map_(pa.string(), pa.list_(pa.string())),
            [("a", ["b"]), ("c", [None])],
            "an element of a set",
        ),
        (
            "FrozenType(ListType(FrozenType(ListType(Int32Type))))",
            pa.list_(pa.list_(pa.int32())),
            [[1], None],
            "an element of a list",
        ),
    ],
)
def test_a_null_inside_a_collection_is_refused(cql: str, arrow: Any, value: Any, place: str) -> None:
    """The Cassandra driver would write an empty text or a number of no bytes."""
    with pytest.raises(NullInCollection, match=place):
        encoder(lookup_casstype(cql), 5)(pa.array([value], arrow))
