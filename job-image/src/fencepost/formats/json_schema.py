"""JSON: the columns follow the properties of a JSON Schema, by their names.

A value must have the type of its column. Nothing else of the schema is checked: no patterns, ranges or required
properties, because what a column holds is the transform's business. What has no one type is kept as its JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from fencepost.formats.schema import Part, Schema, unsupported


class JsonReader:
    """Reads any JSON as the columns of a schema. Raises BadSpec for one that is not JSON Schema."""

    def __init__(self, schema: Schema) -> None:
        try:
            documents = {name: json.loads(text) for name, text in (*schema.references, ("", schema.text))}
            part = _Columns(documents).part(documents[""], "", ())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise unsupported(
                "", f"is not JSON Schema: {type(error).__name__}: {error}", "Register a schema that validators accept."
            ) from error
        self.type, self._convert = part.type, part.convert

    def decoder(self, writer: Schema) -> Callable[[bytes], object]:  # noqa: ARG002 - JSON says itself what it has
        """Return what decodes a payload, whatever schema it was written with."""
        load, convert = msgspec.json.decode, self._convert

        def decode(payload: bytes) -> object:
            found: object = load(payload)
            return found if convert is None or found is None else convert(found)

        return decode


class _Columns:
    """The types of schemas. `documents` has the schema under '', and those that it refers to under their names."""

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self._documents = documents

    def part(self, schema: Any, document: str, within: tuple[str, ...]) -> Part:  # noqa: ANN401 - JSON
        """Return the type of a schema in a document; `within` has the references that led to it."""
        if not isinstance(schema, dict):
            return _TEXT
        if reference := schema.get("$ref"):
            return self._referenced(reference, document, within)
        named = _types(schema)
        if choices := schema.get("oneOf") or schema.get("anyOf"):
            others = [each for each in choices if each != {"type": "null"}]
            return self.part(others[0], document, within) if len(others) == 1 and not named else _TEXT
        if named == ["object"]:
            return self._object(schema, document, within)
        if named == ["array"] and isinstance(schema.get("items"), dict):
            part = self.part(schema["items"], document, within).listed()
            return Part(part.type, _only(list, part.convert))
        return _SCALARS[named[0]] if len(named) == 1 and named[0] in _SCALARS else _TEXT

    def _object(self, schema: Mapping[str, Any], document: str, within: tuple[str, ...]) -> Part:
        properties, rest = schema.get("properties"), schema.get("additionalProperties")
        if not properties:
            if not isinstance(rest, dict):
                return _TEXT
            part = self.part(rest, document, within).mapped()
            return Part(part.type, _only(dict, part.convert))
        parts = {name: self.part(each, document, within) for name, each in properties.items()}
        kind = pa.struct([(name, part.type) for name, part in parts.items()])
        converts = [(name, part.convert) for name, part in parts.items() if part.convert is not None]

        def convert(found: Any) -> object:  # noqa: ANN401 - JSON
            for name, each in converts:
                if found.get(name) is not None:
                    found[name] = each(found[name])
            return found

        return Part(kind, _only(dict, convert if converts else None))

    def _referenced(self, reference: str, document: str, within: tuple[str, ...]) -> Part:
        """Return the type of '#/definitions/x' or 'name#/definitions/x'; JSON text for what contains itself."""
        name, _, pointer = reference.partition("#")
        name = name or document
        place = f"{name}#{pointer}"
        if place in within:
            return _TEXT
        found = self._documents[name]
        for step in pointer.split("/")[1:]:
            found = found[unquote(step).replace("~1", "/").replace("~0", "~")]
        return self.part(found, name, (*within, place))


def _types(schema: Mapping[str, Any]) -> list[str]:
    """Return the types that a value may have besides null; those of a schema that names none follow from the rest."""
    kinds = schema.get("type", [])
    if named := [kind for kind in ([kinds] if isinstance(kinds, str) else kinds) if kind != "null"]:
        return named
    if "properties" in schema:
        return ["object"]
    symbols = schema.get("enum", [])
    return ["string"] if symbols and all(isinstance(each, str | None) for each in symbols) else []


def _only(kind: type, convert: Callable[[Any], object] | None) -> Callable[[object], object]:
    """Return what refuses a value of another kind: Arrow takes pairs for an object."""

    def check(found: object) -> object:
        if not isinstance(found, kind):
            raise TypeError(f"{type(found).__name__} in place of {kind.__name__}")
        return found if convert is None else convert(found)

    return check


def _whole(found: object) -> object:
    """Return a whole number, which JSON may write as 1.0: Arrow would cut others off."""
    if isinstance(found, float) and not found.is_integer():
        raise ValueError(f"{found} is not an integer")
    return found


_SCALARS: Final = {
    "string": Part(pa.string()),
    "integer": Part(pa.int64(), _whole),
    "number": Part(pa.float64()),
    "boolean": Part(pa.bool_()),
}
_TEXT: Final = Part(pa.string(), lambda found: msgspec.json.encode(found).decode())
