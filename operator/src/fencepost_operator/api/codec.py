"""Objects of the API to JSON in Kubernetes' manner (camelCase, nothing that is None) and back, by pydantic."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, MutableMapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

T = TypeVar("T")


def encode(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the plain JSON of a dataclass, a mapping, a sequence or a scalar; times become RFC 3339 in UTC."""
    if is_dataclass(value):
        return _adapter(cast("Hashable", type(value))).dump_python(value, mode="json", by_alias=True, exclude_none=True)
    if isinstance(value, Mapping):
        return {key: encode(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [encode(part) for part in value]
    return to_jsonable_python(value)


def decode(kind: type[T], raw: object) -> T:
    """Return the `kind` that `raw` is the JSON of. Raises pydantic.ValidationError, RecursionError."""
    found: T = _adapter(cast("Hashable", kind)).validate_json(json.dumps(raw), by_alias=True)
    return found


def decode_leniently(kind: type[T], raw: object) -> T:
    """Return the `kind` in `raw`, every field of which has a default; what cannot be understood is read as absent.

    An older or newer operator may have written it: a field of another type is left out, and so is an object without a
    field that it must have.
    """
    left = raw if isinstance(raw, Mapping) else {}
    try:
        while True:
            try:
                return decode(kind, left)
            except ValidationError as error:
                before = json.dumps(left)
                left = json.loads(before)
                for problem in error.errors(include_url=False, include_context=False, include_input=False):
                    steps = problem["loc"]
                    _remove(left, steps[:-1] if problem["type"] == "missing" else steps)
                if json.dumps(left) == before:
                    return kind()
    except (ValueError, RecursionError):
        return kind()


def _remove(raw: Any, steps: Sequence[int | str]) -> None:  # noqa: ANN401 - JSON
    """Remove what is at a path, if it is there.

    An item of a list takes the list along, because its place may mean something.
    """
    for index, step in enumerate(steps):
        if not isinstance(raw, MutableMapping) or not isinstance(step, str) or step not in raw:
            return
        if index == len(steps) - 1 or isinstance(raw[step], list):
            del raw[step]
            return
        raw = raw[step]


@cache
def _adapter(kind: Hashable) -> TypeAdapter[Any]:
    """Return the reader and writer of a type; building one takes some ms."""
    return TypeAdapter(cast("type[Any]", kind))
