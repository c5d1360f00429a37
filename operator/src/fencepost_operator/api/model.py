"""The base of objects that are read and written as JSON, and their fields.

Objects of this API are plain frozen dataclasses with `CONFIG`. Only reading validates: `dataclasses.replace` in a
decision costs what it costs for any dataclass.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Hashable
from dataclasses import MISSING, dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Final, cast

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel


def name_in_json(name: str) -> str:
    """Return the name that a field has in JSON; a name that Python reserves ends in `_`."""
    return to_camel(name).rstrip("_")


CONFIG: Final = ConfigDict(alias_generator=name_in_json, strict=True, extra="ignore")
"""camelCase in JSON, no conversion between JSON's types, unknown fields ignored."""


class Model:
    """Base of the objects that are read and written as JSON.

    The CRDs are generated from the fields: a field's type and the marks of its `Annotated` make its schema, and the
    first paragraph of its docstring its description, or that of its class. `MARKS` are the object's own.
    """

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = CONFIG
    MARKS: ClassVar[tuple[object, ...]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelField:
    """A field of a model: its name in Python and in JSON, its type without marks and None, and the marks.

    `default` is MISSING, which equals no value, where the field has none.
    """

    name: str
    in_json: str
    kind: Any
    marks: tuple[object, ...]
    default: object


def fields_of(model: object) -> tuple[ModelField, ...]:
    """Return the fields of a model, or of an object of one, in their order."""
    return _fields_of(cast("Hashable", model if isinstance(model, type) else type(model)))


@cache
def _fields_of(model: type) -> tuple[ModelField, ...]:
    hints = typing.get_type_hints(model, include_extras=True)
    found = ((field, *without_marks(hints[field.name])) for field in dataclasses.fields(model))
    return tuple(
        ModelField(
            name=field.name,
            in_json=name_in_json(field.name),
            kind=kind,
            marks=marks,
            default=field.default if field.default_factory is MISSING else field.default_factory(),
        )
        for field, kind, marks in found
    )


def without_marks(hint: Any) -> tuple[Any, tuple[object, ...]]:  # noqa: ANN401 - a type
    """Return a type without `Annotated` and `| None`, and what these were annotated with, the innermost first."""
    parts = typing.get_args(hint)
    if typing.get_origin(hint) is Annotated:
        kind, marks = without_marks(parts[0])
        return kind, (*marks, *hint.__metadata__)
    if typing.get_origin(hint) in {types.UnionType, typing.Union}:
        (only,) = (part for part in parts if part is not types.NoneType)
        return without_marks(only)
    return hint, ()
