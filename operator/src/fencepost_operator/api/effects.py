"""What a change of a field of a spec does to a pipeline that runs: each field of `api.spec` has it as an annotation.

A field without one has the effect of the object that it is in. The hashes (`desired.identity.hashes`), the spec that
stands in for one that failed (`desired.identity.spec_identity`) and the table of docs/reference.md follow from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass, replace
from enum import StrEnum
from typing import Any, TypeVar

from fencepost_operator.api.codec import encode
from fencepost_operator.api.model import ModelField, fields_of

T = TypeVar("T")


class Effect(StrEnum):
    """What happens when a field changes."""

    AT_ONCE = "takes effect at once; the driver keeps running"
    NEXT_RUN = "takes effect with the next run, whatever starts it; the driver keeps running"
    NEW_RUN = "the run finishes its batch, and a new run starts on the same Spark cluster"
    NEW_CLUSTER = "the run finishes its batch, and a new run starts on a new Spark cluster"
    SUSPENDS = "the run finishes its batch, and driver and Spark cluster are removed; false starts both again"

    @property
    def starts_a_run(self) -> bool:
        """Whether another value needs another run."""
        return self in {Effect.NEW_RUN, Effect.NEW_CLUSTER}


@dataclass(frozen=True, slots=True)
class Setting:
    """A field that is not at its default: its path such as 'job.image', what a change of it does, its JSON.

    Of an object that may be absent the value is {}; its fields are settings of their own.
    """

    path: str
    effect: Effect
    value: Any


def settings(model: object, path: str = "", effect: Effect | None = None) -> Iterator[Setting]:
    """Yield what an object of a spec sets, at any depth. A field at its default is left out, whatever its name."""
    for field in fields_of(model):
        value = getattr(model, field.name)
        if value == field.default:
            continue
        inner, found = f"{path}.{field.in_json}" if path else field.in_json, _effect(field, effect)
        if is_dataclass(value) and is_dataclass(field.default):
            yield from settings(value, inner, found)
        else:
            yield from _settings(value, inner, found)


def _settings(value: object, path: str, effect: Effect) -> Iterator[Setting]:
    if is_dataclass(value):
        yield Setting(path, effect, {})
        yield from settings(value, path, effect)
    elif isinstance(value, tuple):
        for index, part in enumerate(value):
            yield from _settings(part, f"{path}[{index}]", effect)
    else:
        yield Setting(path, effect, encode(value))


def _effect(field: ModelField, of_object: Effect | None) -> Effect:
    """Return what a change of a field does. Raises TypeError where neither the field nor its object says so."""
    found = next((mark for mark in field.marks if isinstance(mark, Effect)), of_object)
    if found is None:
        raise TypeError(f"{field.name} has no Effect")
    return found


def declared_effects(model: object, path: str = "") -> Iterator[tuple[str, Effect]]:
    """Yield the path of each field of a model that has an effect of its own, and the effect."""
    for field in fields_of(model):
        inner = f"{path}.{field.in_json}" if path else field.in_json
        yield from ((inner, mark) for mark in field.marks if isinstance(mark, Effect))
        if is_dataclass(field.kind):
            yield from declared_effects(field.kind, inner)


def standing_in(stable: T, own: T, effect: Effect | None = None) -> T:
    """Return an object of a stable spec with the fields of the object's own spec that need no other run.

    These stay in effect while the stable spec is run in place of the object's own one.
    """
    changes: dict[str, Any] = {}
    for field in fields_of(stable):
        found = _effect(field, effect)
        kept, changed = getattr(stable, field.name), getattr(own, field.name)
        if is_dataclass(kept) and is_dataclass(changed):
            changes[field.name] = standing_in(kept, changed, found)
        elif not found.starts_a_run:
            changes[field.name] = changed
    return replace(stable, **changes)  # type: ignore[type-var]
