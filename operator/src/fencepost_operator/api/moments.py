"""Moments by the operator's own clock, in what it records: how long something lasts is measured from them.

Other moments are of another clock, identify something, or are for people only; they stay as they were recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, TypeAlias, TypeVar, cast

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
    for field in fields_of(model):
        before = getattr(model, field.name)
        mark = next((mark for mark in field.marks if isinstance(mark, Moment)), None)
        after = _moved(before, mark, moved)
        if after is not before:
            changes[field.name] = after
    result: M = replace(cast("Any", model), **changes) if changes else model  # each model is a dataclass
    return result


def _moved(value: Any, mark: Moment | None, moved: Callable[[datetime, Moment], datetime]) -> Any:  # noqa: ANN401 - of a field
    if isinstance(value, Model):
        return with_moments(value, moved)
    if isinstance(value, tuple):
        parts = tuple(_moved(part, mark, moved) for part in value)
        return parts if any(part is not before for part, before in zip(parts, value, strict=True)) else value
    return moved(value, mark) if mark is not None and isinstance(value, datetime) else value
