"""Write the CRDs from the types of the API; `make reference` runs it.

The files are in the chart, because Flux leaves symbolic links out; crds/ links to them.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, is_dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import annotated_types
import yaml
from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from fencepost_operator.api.checks import Check, Keywords, Matching, Rule
from fencepost_operator.api.crd_fields import KINDS
from fencepost_operator.api.model import ModelField, fields_of, without_marks
from fencepost_operator.api.vocabulary import GROUP, SERVED_TOO
from generators.yaml_text import yaml_text

Schema = dict[str, Any]

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "charts/fencepost/files/crds"
HEAD: Final = """\
# Written by `make reference` from the types in operator/src/fencepost_operator/api.
# Needs Kubernetes 1.31 or newer.
"""
TYPES: Final[Mapping[object, Schema]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    datetime: {"type": "string", "format": "date-time"},
}
LENGTHS: Final = {"string": "Length", "array": "Items", "object": "Properties"}
LARGEST_INT32: Final = 2**31 - 1
FIRST: Final = ("description", "type", "format")
LAST: Final = ("default", "required", "x-kubernetes-validations", "properties", "items", "additionalProperties")
"""The order of the keywords; the others are between these."""


def crd(plural: str) -> str:
    """Return the text of a kind's CRD: its template, with the schemas of its spec and its status, in each version."""
    found = yaml.safe_load(Path(__file__).with_name(f"{plural}.template.yaml").read_text())
    properties = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    for part, kind in KINDS[plural].items():
        # Any operator writes the status, also one of another release: its words are open, and no field is required.
        schema = Schemas(is_open=part == "status").of(kind, (), part)
        schema |= {"description": _paragraph(kind.__doc__), **properties[part]}
        properties[part] = _in_order(schema)
    found["spec"]["versions"] += [_served_too(found["spec"]["versions"][0], name) for name in SERVED_TOO]
    return HEAD + yaml_text(found)


def _served_too(version: Schema, name: str) -> Schema:
    """Return a version with the same schema that is not stored; its descriptions would double the size of the CRD.

    They stay where a field is selectable: Kubernetes refuses equal selectableFields of schemas that are not equal.
    """
    schema = version["schema"]["openAPIV3Schema"]
    if "selectableFields" not in version:
        schema = _without_descriptions(schema)
    return {**version, "name": name, "storage": False, "schema": {"openAPIV3Schema": schema}}


def _without_descriptions(schema: Schema) -> Schema:
    found = {keyword: part for keyword, part in schema.items() if keyword != "description"}
    if "properties" in found:
        found["properties"] = {name: _without_descriptions(part) for name, part in found["properties"].items()}
    for keyword in ("items", "additionalProperties"):
        if keyword in found:
            found[keyword] = _without_descriptions(found[keyword])
    return found


class Schemas:
    """Schemas of types. In an open one each word is allowed, and no field is required or has a default."""

    def __init__(self, *, is_open: bool) -> None:
        self.is_open = is_open

    def of(self, kind: Any, marks: Iterable[object], name: str) -> Schema:
        """Return the schema of a type with its marks, as the field `name` has it."""
        schema = self._of_type(kind, name)
        for mark in marks:
            _apply(mark, schema, name)
        if schema.get("type") == "integer":
            schema["format"] = "int32" if schema.get("maximum", LARGEST_INT32 + 1) <= LARGEST_INT32 else "int64"
        return _in_order(schema)

    def _of_type(self, kind: Any, name: str) -> Schema:
        origin, parts = typing.get_origin(kind), typing.get_args(kind)
        if is_dataclass(kind):
            return self._of_object(kind, name)
        if origin is tuple:
            return {"type": "array", "items": self.of(*without_marks(parts[0]), name)}
        if origin is Literal:
            return {"type": "string", "enum": list(parts)}
        if origin is not None:
            key, value = (without_marks(part) for part in parts)
            schema = {"type": "object", "additionalProperties": self.of(*value, name)}
            for mark in key[1]:
                _apply_to_keys(mark, schema, name)
            return schema
        if issubclass(kind, StrEnum):
            return {"type": "string"} | ({} if self.is_open else {"enum": [word.value for word in kind]})
        return dict(TYPES[kind])

    def _of_object(self, kind: Any, name: str) -> Schema:
        fields = fields_of(kind)
        schema: Schema = {"type": "object"}
        for mark in kind.MARKS:
            _apply(mark, schema, name)
        required = [field.in_json for field in fields if field.default is MISSING]
        if required and not self.is_open:
            schema.setdefault("required", required)
        return {**schema, "properties": {field.in_json: self._of_field(kind, field) for field in fields}}

    def _of_field(self, kind: type, field: ModelField) -> Schema:
        schema = self.of(field.kind, field.marks, field.in_json)
        if not self.is_open and (default := _default(field)) is not None:
            schema["default"] = default
        text = descriptions(kind).get(field.name) or (field.kind.__doc__ if is_dataclass(field.kind) else "")
        return _in_order({"description": _paragraph(text), **schema})


def _in_order(schema: Schema) -> Schema:
    return {key: schema[key] for key in sorted(schema, key=_place)}


def _place(keyword: str) -> int:
    """Return where a keyword is in a schema, less for an earlier one."""
    return FIRST.index(keyword) - len(FIRST) if keyword in FIRST else LAST.index(keyword) + 1 if keyword in LAST else 0


def _default(field: ModelField) -> object:
    """Return a field's default in JSON, None where the field is then absent."""
    if field.default is MISSING or field.default in (None, "", (), {}):
        return None
    if is_dataclass(field.default):
        return {}
    hint: Any = Annotated[(field.kind, *field.marks)] if field.marks else field.kind
    return TypeAdapter(hint).dump_python(field.default, mode="json")


def _apply(mark: object, schema: Schema, name: str) -> None:
    match mark:
        case FieldInfo():
            for bound in mark.metadata:
                schema |= _bound(bound, schema)
        case Keywords():
            if mark.instead:
                schema.clear()
            schema |= mark.content
        case Matching(in_words=False):
            schema["pattern"] = f"^{mark.pattern}$"
        case Check():
            _add_rule(schema, name, mark.cel("self"), mark.demand)
        case Rule(field_path=""):
            _add_rule(schema, name, mark.cel, mark.message)
        case Rule():
            field = mark.field_path.rpartition(".")[2]
            _add_rule(schema, field, mark.cel, mark.message, fieldPath=mark.field_path)


def _bound(bound: object, schema: Schema) -> Schema:
    match bound:
        case annotated_types.Ge():
            return {"minimum": bound.ge}
        case annotated_types.Le():
            return {"maximum": bound.le}
        case annotated_types.MinLen():
            return {f"min{LENGTHS[schema['type']]}": bound.min_length}
        case annotated_types.MaxLen():
            return {f"max{LENGTHS[schema['type']]}": bound.max_length}
    raise TypeError(f"{bound} has no keyword")


def _apply_to_keys(mark: object, schema: Schema, name: str) -> None:
    """Say in a rule what a key must be: a schema has no keyword for that."""
    match mark:
        case FieldInfo(metadata=[annotated_types.MaxLen() as bound]):
            cel = f"self.all(k, k.size() <= {bound.max_length})"
            _add_rule(schema, name, cel, f"every key must have at most {bound.max_length} characters")
        case Check():
            _add_rule(schema, name, f"self.all(k, {mark.cel('k')})", f"every key {mark.demand}")


def _add_rule(schema: Schema, name: str, cel: str, message: str, **more: str) -> None:
    rules = schema.setdefault("x-kubernetes-validations", [])
    rules.append({**more, "rule": cel, "message": f"{name}: {message}"})


@cache
def descriptions(model: type) -> Mapping[str, str]:
    """Return the docstring below each field of a class that has one."""
    (found,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(found, ast.ClassDef)
    return dict(_docstrings(found.body))


def _docstrings(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for pair in itertools.pairwise(body):
        match pair:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                yield name, words


def _paragraph(text: str | None) -> str:
    """Return the first paragraph of a docstring; what follows is for developers."""
    return " ".join(inspect.cleandoc(text or "").split("\n\n")[0].split())


def main() -> None:
    """Write the files."""
    for plural in KINDS:
        (FOLDER / f"{plural}.{GROUP}.yaml").write_text(crd(plural))


if __name__ == "__main__":
    main()
