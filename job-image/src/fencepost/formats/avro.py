"""Avro: each record is read with the schema that wrote it, and resolved to the one of the columns.

fastavro does both. Dates and times stay the integers that they are on the wire, which Arrow takes as they are: Python's
datetime ends at the year 9999, and costs more than all the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any, Final

import pyarrow as pa
from fastavro import schemaless_reader
from fastavro.schema import parse_schema

from fencepost.formats.schema import Convert, Part, Schema, unsupported

_PRIMITIVES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_MOMENT: Final = pa.timestamp("us", tz="UTC")
_LOCAL: Final = pa.timestamp("us")
_INTEGERS: Final[Mapping[str, tuple[pa.DataType, float]]] = {
    "date": (pa.date32(), 1),
    "timestamp-millis": (_MOMENT, 1000),
    "timestamp-micros": (_MOMENT, 1),
    "timestamp-nanos": (_MOMENT, 1 / 1000),
    "local-timestamp-millis": (_LOCAL, 1000),
    "local-timestamp-micros": (_LOCAL, 1),
    "local-timestamp-nanos": (_LOCAL, 1 / 1000),
    "time-millis": (pa.int64(), 1_000_000),
    "time-micros": (pa.int64(), 1000),
}
"""Logical types that are read as integers: the column's type, and by what the integer is multiplied."""
_MOST_DIGITS: Final = 38
"""Digits of a decimal in Arrow's 128 bits, and in Spark."""
_GUARD: Final = b"\0" * 16
"""Stands behind a payload: a decoder that wants more than there is reads some of it, which `tell` shows."""


class AvroReader:
    """Reads any schema's records as this one's. Raises BadSpec for a schema that has no columns."""

    def __init__(self, schema: Schema) -> None:
        names: dict[str, Any] = {}
        try:
            parsed = _parsed(schema, names, lambda found: found)
            self._schema = _parsed(schema, {}, _without_times)
        except Exception as error:
            raise unsupported(
                "", f"is not Avro: {type(error).__name__}: {error}", "Register a schema that Avro's own tools accept."
            ) from error
        part = _part(parsed, names, "", ())
        self.type, self._convert = part.type, part.convert

    def decoder(self, writer: Schema) -> Callable[[bytes], object]:
        """Return what decodes a payload of the writer's schema."""
        written = _parsed(writer, {}, _without_times)
        wanted, convert = (None if written == self._schema else self._schema), self._convert

        def decode(payload: bytes) -> object:
            file = BytesIO(payload + _GUARD)
            found = schemaless_reader(file, written, wanted)
            if (end := file.tell()) != len(payload):
                difference = "ends within a value" if end > len(payload) else f"has {len(payload) - end} bytes more"
                raise ValueError(f"the payload {difference}")
            return found if convert is None or found is None else convert(found)

        return decode


def _parsed(schema: Schema, names: dict[str, Any], prepare: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - Avro's JSON
    for _, text in schema.references:
        parse_schema(prepare(json.loads(text)), named_schemas=names)
    return parse_schema(prepare(json.loads(schema.text)), named_schemas=names)


def _without_times(schema: Any) -> Any:  # noqa: ANN401 - Avro's JSON
    """Return a schema in which dates and times are the integers that stand for them."""
    if isinstance(schema, list):
        return [_without_times(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: value if name in {"default", "doc"} else _without_times(value)
        for name, value in schema.items()
        if not (name == "logicalType" and value in _INTEGERS)
    }


def _part(schema: Any, names: Mapping[str, Any], place: str, within: tuple[str, ...]) -> Part:  # noqa: ANN401 - JSON
    """Return the type of a schema that fastavro has parsed; `within` has the records around it."""
    match schema:
        case list():
            return _union(schema, names, place, within)
        case str() if schema in names:
            return _part(names[schema], names, place, within)
        case str():
            return _simple(schema, {}, place)
        case {"type": str(name)}:
            return _nested(schema, names, place, within) or _simple(name, schema, place)
        case _:
            return _part(schema["type"], names, place, within)


def _nested(schema: Mapping[str, Any], names: Mapping[str, Any], place: str, within: tuple[str, ...]) -> Part | None:
    """Return the type of a schema that has others in it, None for one without."""
    match schema["type"]:
        case "record" | "error":
            return _record(schema, names, place, within)
        case "array":
            return _part(schema["items"], names, f"{place}[]", within).listed()
        case "map":
            return _part(schema["values"], names, f"{place}[]", within).mapped()
        case _:
            return None


def _union(schema: list[Any], names: Mapping[str, Any], place: str, within: tuple[str, ...]) -> Part:
    others = [each for each in schema if each not in ("null", {"type": "null"})]
    if len(others) != 1:
        raise unsupported(
            place,
            "is a union of several types",
            "A column has one type: read a version with a field for each type, or leave the value undecoded.",
        )
    return _part(others[0], names, place, within)


def _record(schema: Mapping[str, Any], names: Mapping[str, Any], place: str, within: tuple[str, ...]) -> Part:
    if schema["name"] in within:
        raise unsupported(
            place,
            f"record {schema['name']} contains itself",
            "Columns have a fixed depth: read a version without the recursion, or leave the value undecoded.",
        )
    inner = (*within, schema["name"])
    parts = {
        field["name"]: _defaulted(
            field, _part(field["type"], names, f"{place}.{field['name']}" if place else field["name"], inner)
        )
        for field in schema["fields"]
    }
    kind = pa.struct([(name, part.type) for name, part in parts.items()])
    converts = [(name, part.convert) for name, part in parts.items() if part.convert is not None]
    if not converts:
        return Part(kind)

    def convert(record: Any) -> object:  # noqa: ANN401 - a dict of fastavro's
        for name, each in converts:
            if record[name] is not None:
                record[name] = each(record[name])
        return record

    return Part(kind, convert)


def _simple(name: str, schema: Mapping[str, Any], place: str) -> Part:
    if name not in _PRIMITIVES:
        raise unsupported(place, f"is {name}", "Remove it, or read another version.")
    logical = str(schema.get("logicalType"))
    if name in {"int", "long"} and logical in _INTEGERS:
        kind, factor = _INTEGERS[logical]
        return Part(kind, _scaled(factor))
    if name in {"bytes", "fixed"} and logical == "decimal":
        precision, scale = int(schema["precision"]), int(schema.get("scale", 0))
        if precision > _MOST_DIGITS:
            raise unsupported(place, f"has {precision} digits", f"Spark's decimals have {_MOST_DIGITS} at most.")
        return Part(pa.decimal128(precision, scale))
    if logical == "uuid":
        return Part(pa.string(), str)
    return Part(_PRIMITIVES[name])


def _scaled(factor: float) -> Convert | None:
    if factor == 1:
        return None
    if factor < 1:
        divisor = round(1 / factor)
        return lambda value: value // divisor  # type: ignore[operator]
    by = int(factor)
    return lambda value: value * by  # type: ignore[operator]


def _defaulted(field: Mapping[str, Any], part: Part) -> Part:
    """Return the part of a field whose default may come as it stands in the schema: bytes as a text of Latin-1."""
    if not isinstance(field.get("default"), str) or not pa.types.is_binary(part.type):
        return part
    return Part(part.type, lambda value: value.encode("latin-1") if isinstance(value, str) else value)
