"""Moments by the operator's own clock, in what it records: how long something lasts is measured from them.

Other moments are of another clock, identify something, or are for people only; they stay as they were recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Annotated, Any, TypeAlias, TypeVar, cast, get_args

from fencepost_operator.api.model import Model, fields_of

M = TypeVar("M", bound=Model)


class Moment(Enum):
    """The mark of a field with such moments."""

    PAST = "past"
    """Since when something has lasted."""
    DUE = "due"
    """Until when something waits."""


Since: TypeAlias = Annotated[datetime, Moment.PAST]
MaybeSince: TypeAlias = Annotated[datetime | None, Moment.PAST]
MaybeUntil: TypeAlias = Annotated[datetime | None, Moment.DUE]
Times: TypeAlias = Annotated[tuple[datetime, ...], Moment.PAST]


def with_moments(model: M, moved: Callable[[datetime, Moment], datetime]) -> M:
    """Return the object with its marked moments, and those of the objects in it, as `moved` returns them.

    It is the same object where they are.
    """
    changes: dict[str, Any] = {}
    for name, mark in _fields_with_moments(cast("Hashable", type(model))):
        before = getattr(model, name)
        after = _moved(before, mark, moved)
        if after is not before:
            changes[name] = after
    result: M = replace(cast("Any", model), **changes) if changes else model  # each model is a dataclass
    return result


def _moved(value: Any, mark: Moment | None, moved: Callable[[datetime, Moment], datetime]) -> Any:  # noqa: ANN401 - of a field
    if isinstance(value, Model):
        return with_moments(value, moved)
    if isinstance(value, tuple):
        parts = tuple(_moved(part, mark, moved) for part in value)
        return parts if any(part is not before for part, before in zip(parts, value, strict=True)) else value
    return moved(value, mark) if mark is not None and isinstance(value, datetime) else value


@cache
def _fields_with_moments(model: type) -> tuple[tuple[str, Moment | None], ...]:
    """Return the names of the fields that are marked, or hold objects with such a field, and their marks."""
    marks = (
        (field, next((mark for mark in field.marks if isinstance(mark, Moment)), None)) for field in fields_of(model)
    )
    return tuple(
        (field.name, mark) for field, mark in marks if mark or any(map(_fields_with_moments, _models_in(field.kind)))
    )


def _models_in(kind: Any) -> Iterator[Hashable]:  # noqa: ANN401 - a type
    if isinstance(kind, type) and issubclass(kind, Model):
        yield cast("Hashable", kind)
    for part in get_args(kind):
        yield from _models_in(part)
