"""Avro: columns, resolution to another schema, and bytes that are something else."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from fencepost.contract import Reason
from fencepost.contract.formats import Format
from fencepost.errors import BadSpec, RecordFailed
from unit.formats.conftest import Served, avro, failure, framed

AVRO = Format.AVRO


def record(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Flight", "namespace": "air", "fields": list(fields), **more}


def named(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


EVOLUTIONS = {
    "a field is added with a default": (
        record(named("id", "long")),
        record(named("id", "long"), named("origin", "string", default="?")),
        {"id": 1},
        {"id": 1, "origin": "?"},
    ),
    "a field is removed": (
        record(named("old", "string"), named("id", "long")),
        record(named("id", "long")),
        {"old": "x", "id": 2},
        {"id": 2},
    ),
    "a field is renamed": (
        record(named("from", "string")),
        record(named("origin", "string", aliases=["from"])),
        {"from": "EWR"},
        {"origin": "EWR"},
    ),
    "int becomes long": (record(named("n", "int")), record(named("n", "long")), {"n": 3}, {"n": 3}),
    "int becomes double": (record(named("n", "int")), record(named("n", "double")), {"n": 3}, {"n": 3.0}),
    "float becomes double": (record(named("n", "float")), record(named("n", "double")), {"n": 0.5}, {"n": 0.5}),
    "a field becomes optional": (
        record(named("n", "long")),
        record(named("n", ["null", "long"], default=None)),
        {"n": 4},
        {"n": 4},
    ),
    "fields change places": (
        record(named("a", "string"), named("b", "long")),
        record(named("b", "long"), named("a", "string")),
        {"a": "x", "b": 5},
        {"b": 5, "a": "x"},
    ),
    "a symbol has a default": (
        record(named("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]})),
        record(named("e", {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"})),
        {"e": "B"},
        {"e": "A"},
    ),
    "bytes have a default": (
        record(named("id", "long")),
        record(named("id", "long"), named("raw", "bytes", default="\u00ff")),
        {"id": 6},
        {"id": 6, "raw": b"\xff"},
    ),
}


@pytest.mark.parametrize(("writer", "reader", "value", "found"), EVOLUTIONS.values(), ids=EVOLUTIONS)
def test_records_are_resolved_to_the_schema_of_the_columns(
    registry: Served, writer: Any, reader: Any, value: Any, found: Any
) -> None:
    old = registry.register("value", writer)
    registry.register("value", reader)
    assert registry.rows(AVRO, 2, [avro(old, writer, value)]) == [found]


def test_one_batch_may_have_records_of_several_schemas(registry: Served) -> None:
    old, new = record(named("id", "long")), record(named("id", "long"), named("n", "int", default=7))
    ids = registry.register("value", old), registry.register("value", new)
    records = [avro(ids[0], old, {"id": 1}), avro(ids[1], new, {"id": 2, "n": 3}), None, avro(ids[0], old, {"id": 4})]
    assert registry.rows(AVRO, 2, records) == [{"id": 1, "n": 7}, {"id": 2, "n": 3}, None, {"id": 4, "n": 7}]


def test_a_writers_schema_is_asked_for_once(registry: Served) -> None:
    schema = record(named("id", "long"))
    one = avro(registry.register("value", schema), schema, {"id": 1})
    for _ in range(3):
        registry.rows(AVRO, 1, [one, one])
    assert registry.schemas.asked.count("/schemas/ids/1") == 1


def test_types_of_columns(registry: Served) -> None:
    schema = record(
        named("day", {"type": "int", "logicalType": "date"}),
        named("ms", {"type": "long", "logicalType": "timestamp-millis"}),
        named("us", ["null", {"type": "long", "logicalType": "timestamp-micros"}]),
        named("local", {"type": "long", "logicalType": "local-timestamp-millis"}),
        named("time", {"type": "int", "logicalType": "time-millis"}),
        named("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
        named("uuid", {"type": "string", "logicalType": "uuid"}),
        named("fixed", {"type": "fixed", "name": "Two", "size": 2}),
        named("tags", {"type": "array", "items": "string"}),
        named("days", {"type": "array", "items": {"type": "int", "logicalType": "date"}}),
        named("counts", {"type": "map", "values": "long"}),
        named("moments", {"type": "map", "values": {"type": "long", "logicalType": "timestamp-millis"}}),
        named("inner", ["null", {"type": "record", "name": "Inner", "fields": [named("x", "boolean")]}]),
        named("again", ["null", "Inner"]),
    )
    number = registry.register("value", schema)
    moment = datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
    value = {
        "day": date(2026, 1, 2), "ms": moment, "us": None, "local": moment.replace(tzinfo=None),
        "time": 1500, "price": Decimal("12.34"), "uuid": str(UUID(int=7)), "fixed": b"ab", "tags": ["a"],
        "days": [date(1970, 1, 2)], "counts": {"a": 1}, "moments": {"m": moment}, "inner": {"x": True}, "again": None,
    }  # fmt: skip
    decoding = registry.decoding(AVRO)
    (found,) = registry.rows(AVRO, 1, [avro(number, schema, value)])
    assert found == {
        **value, "time": 1_500_000_000, "counts": [("a", 1)], "moments": [("m", moment)],
    }  # fmt: skip
    assert [str(field.type) for field in decoding.columns[0].type][:6] == [
        "date32[day]", "timestamp[us, tz=UTC]", "timestamp[us, tz=UTC]", "timestamp[us]", "int64", "decimal128(9, 2)",
    ]  # fmt: skip


def test_a_date_may_be_of_a_year_that_python_lacks(registry: Served) -> None:
    schema = record(named("day", {"type": "int", "logicalType": "date"}))
    number = registry.register("value", schema)
    found = registry.decoding(AVRO)
    from unit.formats.conftest import batch  # noqa: PLC0415

    plain = record(named("day", "int"))
    values = found(batch([avro(number, plain, {"day": 4_000_000})])).column("value")
    assert values.field("day").cast("int32").to_pylist() == [4_000_000]


def test_schemas_refer_to_others(registry: Served) -> None:
    place = {"type": "record", "name": "air.Place", "fields": [named("code", "string")]}
    registry.register("place", place)
    schema = record(named("origin", "air.Place"))
    references = [{"name": "air.Place", "subject": "place", "version": 1}]
    number = registry.register("value", schema, references=references)
    whole = record(named("origin", place))
    assert registry.rows(AVRO, 1, [avro(number, whole, {"origin": {"code": "EWR"}})]) == [{"origin": {"code": "EWR"}}]


SCHEMA = record(named("id", "long"), named("text", "string"))
GOOD = {"id": 1, "text": "abc"}


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (b"", "it has 0 bytes"),
        (b"\0\0\0", "it has 3 bytes"),
        (b'{"id": 1}', "begins with the byte 0x7b"),
        (b"\1\0\0\0\1", "begins with the byte 0x01"),
        (framed(1, b""), ""),
        (avro(1, SCHEMA, GOOD)[:-1], ""),
        (avro(1, SCHEMA, GOOD) + b"x", "has 1 bytes more"),
        (framed(1, b"\2\x80\x80\x80\x80\x80\x80\x80\x80\x01"), ""),  # a text of 2**55 bytes
        (framed(1, b"\2\1abc"), ""),  # a text of -1 bytes
        (framed(1, b"\2\4\xff\xff"), ""),  # a text that is not UTF-8
    ],
)
def test_a_record_that_cannot_be_decoded_is_named(registry: Served, broken: bytes, why: str) -> None:
    number = registry.register("value", SCHEMA)
    found = failure(registry.decoding(AVRO), [avro(number, SCHEMA, GOOD), broken, avro(number, SCHEMA, GOOD)])
    assert type(found) is RecordFailed
    assert found.reason is Reason.RECORD_UNDECODABLE
    assert found.message.startswith("flights/3@41: the value cannot be decoded as avro: ")
    assert why in found.message


def test_a_value_that_its_column_cannot_hold_is_named(registry: Served) -> None:
    schema = record(named("ms", {"type": "long", "logicalType": "timestamp-millis"}))
    number, plain = registry.register("value", schema), record(named("ms", "long"))
    records = [avro(number, plain, {"ms": 0}), avro(number, plain, {"ms": 2**62})]
    assert failure(registry.decoding(AVRO), records).message.startswith("flights/3@41: ")


def test_a_schema_that_cannot_be_resolved_makes_its_records_undecodable(registry: Served) -> None:
    other = record(named("id", "string"))
    registry.register("value", SCHEMA)
    number = registry.register("other", other)
    assert type(failure(registry.decoding(AVRO), [avro(number, other, {"id": "x"})])) is RecordFailed


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        (record(named("u", ["string", "long"])), "field u"),
        (record(named("r", ["null", "Flight"])), "field r"),
        (record(named("a", {"type": "array", "items": ["string", "long"]})), "field a[]"),
        (record(named("d", {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 0})), "field d"),
        ("nonsense", "is not Avro"),
    ],
)
def test_a_schema_without_columns_is_refused_before_any_record(registry: Served, schema: Any, place: str) -> None:
    registry.register("value", schema)
    with pytest.raises(BadSpec, match=r"the schema to read with") as raised:
        registry.decoding(AVRO)
    assert place in raised.value.message
    assert raised.value.reason is Reason.SCHEMA_INVALID
