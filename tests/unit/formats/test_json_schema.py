"""JSON Schema: columns by properties, and values of other types."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fencepost.contract.formats import Format
from fencepost.errors import BadSpec, RecordFailed
from unit.formats.conftest import Served, failure, framed

JSON = Format.JSON_SCHEMA
SCHEMA = {
    "type": "object",
    "definitions": {
        "place": {"type": "object", "properties": {"code": {"type": "string"}}},
        "node": {"type": "object", "properties": {"next": {"$ref": "#/definitions/node"}, "n": {"type": "integer"}}},
    },
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": ["number", "null"]},
        "ok": {"oneOf": [{"type": "null"}, {"type": "boolean"}]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "origin": {"$ref": "#/definitions/place"},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "kind": {"enum": ["a", "b"]},
        "any": {},
        "mixed": {"type": ["string", "integer"]},
        "node": {"$ref": "#/definitions/node"},
    },
}


def encoded(schema_id: int, value: Any) -> bytes:
    return framed(schema_id, json.dumps(value).encode())


def test_columns_follow_the_properties(registry: Served) -> None:
    number = registry.register("value", SCHEMA, "JSON")
    value = {
        "id": 1, "price": 2, "ok": True, "tags": ["x"], "origin": {"code": "EWR", "more": 1}, "counts": {"a": 1},
        "kind": "a", "any": {"b": [1]}, "mixed": 5, "node": {"n": 1, "next": {"n": 2}}, "unknown": 1,
    }  # fmt: skip
    assert registry.rows(JSON, 1, [encoded(number, value), encoded(number, {})]) == [
        {
            "id": 1, "price": 2.0, "ok": True, "tags": ["x"], "origin": {"code": "EWR"}, "counts": [("a", 1)],
            "kind": "a", "any": '{"b":[1]}', "mixed": "5", "node": {"next": '{"n":2}', "n": 1},
        },
        dict.fromkeys(SCHEMA["properties"]),
    ]  # fmt: skip


def test_schemas_refer_to_others(registry: Served) -> None:
    registry.register("place", SCHEMA["definitions"]["place"], "JSON")  # type: ignore[index]
    schema = {"type": "object", "properties": {"origin": {"$ref": "place.json"}}}
    number = registry.register("value", schema, "JSON", [{"name": "place.json", "subject": "place", "version": 1}])
    assert registry.rows(JSON, 1, [encoded(number, {"origin": {"code": "EWR"}})]) == [{"origin": {"code": "EWR"}}]


@pytest.mark.parametrize(
    "value",
    [
        {"id": "1"}, {"id": 1.5}, {"id": True}, {"id": 2**63}, {"price": "x"}, {"ok": 1}, {"tags": "x"}, {"tags": [1]},
        {"origin": []}, {"counts": [["a", 1]]}, {"counts": {"a": "x"}}, {"kind": 1}, [], "text", 1,
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_named(registry: Served, value: Any) -> None:
    number = registry.register("value", SCHEMA, "JSON")
    found = failure(registry.decoding(JSON), [encoded(number, {"id": 1}), encoded(number, value)])
    assert type(found) is RecordFailed
    assert found.message.startswith("flights/3@41: the value cannot be decoded as jsonSchema: ")


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff", b"NaN", b"{} {}", b"[" * 100_000])
def test_what_is_not_json_is_named(registry: Served, payload: bytes) -> None:
    number = registry.register("value", SCHEMA, "JSON")
    assert failure(registry.decoding(JSON), [framed(number, payload)]).message.startswith("flights/3@40: ")


@pytest.mark.parametrize(
    "schema", ["{", {"type": "object", "properties": {"x": {"$ref": "#/definitions/none"}}}, {"$ref": 1}]
)
def test_a_schema_without_columns_is_refused_before_any_record(registry: Served, schema: Any) -> None:
    registry.register("value", schema, "JSON")
    with pytest.raises(BadSpec, match="is not JSON Schema"):
        registry.decoding(JSON)
