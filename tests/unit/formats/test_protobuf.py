"""Protobuf: columns, evolution by the numbers of fields, and bytes that are something else."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as F

from fencepost.contract import Reason
from fencepost.contract.formats import Format
from fencepost.errors import BadSpec, RecordFailed
from unit.formats.conftest import Served, failure, framed

PROTOBUF = Format.PROTOBUF


def field(
    name: str, number: int, kind: Any, *, repeated: bool = False, type_name: str = "", oneof: int | None = None
) -> F:
    found = F(name=name, number=number, type=kind, label=F.LABEL_REPEATED if repeated else F.LABEL_OPTIONAL)
    if type_name:
        found.type_name = type_name
    if oneof is not None:
        found.oneof_index = oneof
        found.proto3_optional = True
    return found


def message(
    name: str, *fields: F, nested: tuple[DescriptorProto, ...] = (), optional: tuple[str, ...] = ()
) -> DescriptorProto:
    found = DescriptorProto(name=name, field=fields, nested_type=nested)
    for each in optional:
        found.oneof_decl.add(name=f"_{each}")
    return found


def file(*messages: DescriptorProto, imports: tuple[str, ...] = (), package: str = "air") -> FileDescriptorProto:
    return FileDescriptorProto(
        name="default", package=package, syntax="proto3", message_type=messages, dependency=imports
    )


def text(found: FileDescriptorProto) -> str:
    return base64.b64encode(found.SerializeToString()).decode()


def made(found: FileDescriptorProto, name: str, others: tuple[FileDescriptorProto, ...] = ()) -> Any:
    """Return the class of a message."""
    from google.protobuf import timestamp_pb2, wrappers_pb2  # noqa: PLC0415

    pool = descriptor_pool.DescriptorPool()
    for module in (timestamp_pb2, wrappers_pb2):
        googles = FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(googles)
        pool.Add(googles)
    for each in (*others, found):
        pool.Add(each)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


FLIGHT = file(
    message(
        "Flight",
        field("id", 1, F.TYPE_INT64),
        field("origin", 2, F.TYPE_STRING, oneof=0),
        field("stops", 3, F.TYPE_STRING, repeated=True),
        field("at", 4, F.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp"),
        field("price", 5, F.TYPE_MESSAGE, type_name=".google.protobuf.DoubleValue"),
        field("counts", 6, F.TYPE_MESSAGE, repeated=True, type_name=".air.Flight.CountsEntry"),
        field("state", 7, F.TYPE_ENUM, type_name=".air.State"),
        field("big", 8, F.TYPE_UINT64),
        field("legs", 9, F.TYPE_MESSAGE, repeated=True, type_name=".air.Flight.Leg"),
        nested=(
            message("Leg", field("to", 1, F.TYPE_STRING)),
            message("CountsEntry", field("key", 1, F.TYPE_STRING), field("value", 2, F.TYPE_INT32)),
        ),
        optional=("origin",),
    ),
    imports=("google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"),
)
FLIGHT.message_type[0].nested_type[1].options.map_entry = True
FLIGHT.enum_type.append(EnumDescriptorProto(name="State"))
FLIGHT.enum_type[0].value.add(name="PLANNED", number=0)
FLIGHT.enum_type[0].value.add(name="FLOWN", number=1)


def test_types_of_columns(registry: Served) -> None:
    number = registry.register("value", text(FLIGHT), "PROTOBUF")
    flight = made(FLIGHT, "air.Flight")(
        id=7, stops=["a", "b"], price={"value": 1.5}, counts={"x": 1}, state=5, big=2**64 - 1, legs=[{"to": "EWR"}]
    )
    flight.at.FromDatetime(datetime(2026, 1, 2, 3, 4, 5, 6, UTC))
    empty = made(FLIGHT, "air.Flight")()
    records = [framed(number, b"\0" + each.SerializeToString()) for each in (flight, empty)]
    assert registry.rows(PROTOBUF, 1, records) == [
        {
            "id": 7, "origin": None, "stops": ["a", "b"], "at": datetime(2026, 1, 2, 3, 4, 5, 6, UTC), "price": 1.5,
            "counts": [("x", 1)], "state": "5", "big": Decimal(2**64 - 1), "legs": [{"to": "EWR"}],
        },
        {
            "id": 0, "origin": None, "stops": [], "at": None, "price": None,
            "counts": [], "state": "PLANNED", "big": Decimal(0), "legs": [],
        },
    ]  # fmt: skip


def test_fields_are_matched_by_their_numbers(registry: Served) -> None:
    old = file(message("Flight", field("from", 1, F.TYPE_STRING), field("gone", 2, F.TYPE_STRING)))
    new = file(
        message(
            "Flight", field("origin", 1, F.TYPE_STRING), field("added", 3, F.TYPE_INT32, oneof=0), optional=("added",)
        )
    )
    number = registry.register("value", text(old), "PROTOBUF")
    registry.register("value", text(new), "PROTOBUF")
    record = made(old, "air.Flight")(**{"from": "EWR", "gone": "x"}).SerializeToString()
    assert registry.rows(PROTOBUF, 2, [framed(number, b"\0" + record)]) == [{"origin": "EWR", "added": None}]


def test_the_message_is_the_one_that_is_declared(registry: Served) -> None:
    two = file(message("Other", field("x", 1, F.TYPE_STRING)), message("Flight", field("id", 1, F.TYPE_INT64)))
    number = registry.register("value", text(two), "PROTOBUF")
    record = made(two, "air.Flight")(id=7).SerializeToString()
    assert registry.rows(PROTOBUF, 1, [framed(number, b"\2\2" + record)], message="air.Flight") == [{"id": 7}]
    found = failure(registry.decoding(PROTOBUF, message="air.Flight"), [framed(number, b"\0" + record)])
    assert "it is a message air.Other, and not air.Flight" in found.message


def test_a_message_may_be_within_another(registry: Served) -> None:
    number = registry.register("value", text(FLIGHT), "PROTOBUF")
    record = made(FLIGHT, "air.Flight.Leg")(to="EWR").SerializeToString()
    assert registry.rows(PROTOBUF, 1, [framed(number, b"\4\0\0" + record)], message="air.Flight.Leg") == [{"to": "EWR"}]


def test_files_import_others(registry: Served) -> None:
    place = file(message("Place", field("code", 1, F.TYPE_STRING)))
    place.name = "air/place.proto"
    registry.register("place", text(place), "PROTOBUF")
    flight = file(message("Flight", field("origin", 1, F.TYPE_MESSAGE, type_name=".air.Place")), imports=(place.name,))
    references = [{"name": place.name, "subject": "place", "version": 1}]
    number = registry.register("value", text(flight), "PROTOBUF", references)
    record = made(flight, "air.Flight", (place,))(origin={"code": "EWR"}).SerializeToString()
    assert registry.rows(PROTOBUF, 1, [framed(number, b"\0" + record)]) == [{"origin": {"code": "EWR"}}]


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"\2", b"\2\x10", b"\1\0", b"\xff\xff\xff\xff\xff\xff\xff", b"\0\x0a\x05abc", b"\0\xff",
        b"\x02\x01\x00",
    ],
    ids=["empty", "no place", "no such message", "depth -1", "endless", "truncated", "no tag", "index -1"],
)  # fmt: skip
def test_a_record_that_cannot_be_decoded_is_named(registry: Served, payload: bytes) -> None:
    schema = file(message("Flight", field("origin", 1, F.TYPE_STRING)))
    number = registry.register("value", text(schema), "PROTOBUF")
    found = failure(registry.decoding(PROTOBUF), [framed(number, payload)])
    assert type(found) is RecordFailed
    assert found.message.startswith("flights/3@40: the value cannot be decoded as protobuf: ")


@pytest.mark.parametrize(
    ("schema", "name", "problem"),
    [
        (text(file(message("A", field("a", 1, F.TYPE_MESSAGE, type_name=".air.A")))), "", "contains itself"),
        (text(file(message("A", field("x", 1, F.TYPE_STRING)))), "air.B", "it has air.A"),
        (text(file()), "", "it has none"),
        ('syntax = "proto3"; message A { string x = 1; }', "", "gives no descriptor"),
        (text(file(message("A"))), "", "has no fields"),
    ],
)
def test_a_schema_without_columns_is_refused_before_any_record(
    registry: Served, schema: str, name: str, problem: str
) -> None:
    registry.register("value", schema, "PROTOBUF")
    with pytest.raises(BadSpec, match=problem) as raised:
        registry.decoding(PROTOBUF, message=name)
    assert raised.value.reason is Reason.SCHEMA_INVALID
