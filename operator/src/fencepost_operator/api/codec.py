"""Dataclasses to plain JSON in Kubernetes' manner (camelCase, nothing that is None) and back.

Reading is forgiving: what an older or newer operator wrote differently is read as if it were not there, because all
of a status can be observed anew.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Hashable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from typing import Any, TypeVar, get_args, get_origin

T = TypeVar("T")


def camel(name: str) -> str:
    """Return a field's name in JSON: 'pod_uid' becomes 'podUid'."""
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def encode(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the plain JSON of a dataclass, a mapping, a sequence or a scalar; times become RFC 3339 in UTC."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if is_dataclass(value):
        pairs = ((camel(part.name), getattr(value, part.name)) for part in fields(value))
        return {name: encode(part) for name, part in pairs if part is not None}
    if isinstance(value, Mapping):
        return {key: encode(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [encode(part) for part in value]
    return value


def decode(kind: type[T], raw: Any) -> T:  # noqa: ANN401 - JSON
    """Return the dataclass that `raw` is the JSON of. Raises ValueError when a field without default is missing."""
    if not isinstance(raw, Mapping):
        raise ValueError(f"not an object: {raw!r}")
    values: dict[str, Any] = {}
    hints = _hints(typing.cast("Hashable", kind))
    for part in fields(kind):  # type: ignore[arg-type]
        found = raw.get(camel(part.name))
        try:
            if found is not None:
                values[part.name] = _value(hints[part.name], found)
                continue
        except (ValueError, TypeError):
            pass
        if part.default is MISSING and part.default_factory is MISSING:
            raise ValueError(f"{camel(part.name)} is missing")
    return kind(**values)


@cache
def _hints(kind: Hashable) -> Mapping[str, Any]:
    return typing.get_type_hints(kind)


def _value(hint: Any, raw: Any) -> Any:  # noqa: ANN401 - JSON
    origin, parts = get_origin(hint), get_args(hint)
    if origin is types.UnionType or origin is typing.Union:
        (inner,) = (part for part in parts if part is not types.NoneType)
        return _value(inner, raw)
    if origin is tuple:
        return tuple(_value(parts[0], part) for part in raw)
    if origin is not None and issubclass(origin, Mapping):
        return {str(key): _value(parts[1], part) for key, part in raw.items()}
    if hint is datetime:
        return datetime.fromisoformat(raw)
    if is_dataclass(hint):
        return decode(typing.cast("type[Any]", hint), raw)
    return hint(raw)
