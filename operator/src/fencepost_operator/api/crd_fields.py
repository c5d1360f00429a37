"""The fields of our kinds that a CustomResourceDefinition does not keep, as one of an older release does not.

Helm never upgrades a CRD, and a GitOps tool may apply it after the operator.  The API server drops what a CRD lacks
without a word: what a user writes in a spec, and what the operator writes in a status.  It refuses a whole status for
one value that a CRD has no room for.  So ours limit no value of a status but of its conditions; a CRD that does so is
another release's.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final

from pydantic.alias_generators import to_camel

from fencepost.contract.guidance.operations import APPLY_CRDS
from fencepost_operator.api.rewind import RewindSpec, RewindStatus
from fencepost_operator.api.spec import Spec
from fencepost_operator.api.status import Status
from fencepost_operator.api.vocabulary import GROUP, PLURAL, REWIND_PLURAL, VERSION, Event, EventType, Reason
from fencepost_operator.text import single_line

KINDS: Final[Mapping[str, Mapping[str, type]]] = {
    PLURAL: {"spec": Spec, "status": Status},
    REWIND_PLURAL: {"spec": RewindSpec, "status": RewindStatus},
}
"""By the plural of each kind: what its parts are read as."""
SELECTED: Final[Mapping[str, Sequence[str]]] = {REWIND_PLURAL: (".spec.pipeline",)}
"""By plural: the fields by which the operator lists objects."""
_SHOWN: Final = 5
_LIMITS: Final = frozenset({
    "enum", "pattern", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "uniqueItems",
    "minProperties", "maxProperties", "required", "allOf", "anyOf", "oneOf", "not", "x-kubernetes-validations",
})  # fmt: skip
"""What of a schema refuses a value of the right type."""
_STANDARD: Final = "status.conditions"
"""Kubernetes limits its conditions itself, and has always done so."""


def missing_fields(plural: str, crd: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the paths of our fields that a CRD of this kind lacks, such as `status.run.masterUid`, in order.

    Those of a status that it limits are there as well, and those that it does not let the operator select by.  Of an
    object that it lacks, that one alone.  Other fields of a CRD do not count.
    """
    versions = [version for version in crd["spec"]["versions"] if version["name"] == VERSION]
    schema = versions[0].get("schema", {}).get("openAPIV3Schema", {}) if versions else {}
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return ()
    parts = schema.get("properties", {})
    found = (_missing(kind, parts.get(part, {}), part) for part, kind in KINDS[plural].items())
    return tuple(sorted({path for each in (*found, _unselectable(plural, versions)) for path in each}))


def outdated(plural: str, missing: Sequence[str]) -> Event:
    """Return what is said of a CRD that does not keep fields."""
    shown = ", ".join(missing[:_SHOWN]) + (f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else "")
    message = (
        f"The CustomResourceDefinition {plural}.{GROUP} is older than the operator: the API server does not keep "
        f"{shown}. What depends on it works until the operator restarts, if at all. Apply the CRDs of the operator's "
        f"chart: {APPLY_CRDS}"
    )
    return Event(EventType.WARNING, Reason.CRD_OUTDATED, single_line(message))


def _unselectable(plural: str, versions: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    there = {each["jsonPath"] for version in versions for each in version.get("selectableFields", ())}
    return (f"selectableFields[{path}]" for path in SELECTED.get(plural, ()) if path not in there)


def _missing(hint: Any, schema: Any, path: str) -> Iterator[str]:  # noqa: ANN401 - a type, and JSON
    if not isinstance(schema, Mapping) or schema.get("x-kubernetes-preserve-unknown-fields"):
        return  # `additionalProperties: true` keeps all as well
    if path.startswith("status.") and not path.startswith(_STANDARD) and not _LIMITS.isdisjoint(schema):
        yield path
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        yield from _missing(parts[0], schema, path)
    elif origin in {types.UnionType, typing.Union}:
        for part in parts:
            yield from _missing(part, schema, path)
    elif is_dataclass(hint):
        yield from _of_object(hint, schema, path)
    elif origin is tuple:
        yield from _missing(parts[0], schema.get("items", {}), f"{path}[]")
    elif origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        yield from _missing(parts[1], schema.get("additionalProperties", {}), f"{path}{{}}")


def _of_object(kind: Any, schema: Mapping[str, Any], path: str) -> Iterator[str]:  # noqa: ANN401 - a dataclass
    hints = typing.get_type_hints(kind, include_extras=True)
    for part in fields(kind):
        place, found = path, schema
        for name in _steps(part.name, hints[part.name]):
            place, found = f"{place}.{name}", found.get("properties", {}).get(name)
            if found is None:
                yield place
                break
        else:
            yield from _missing(hints[part.name], found, place)


def _steps(name: str, hint: Any) -> Sequence[str]:  # noqa: ANN401 - a type
    """Return where a field is in JSON."""
    aliases = (getattr(extra, "validation_alias", None) for extra in getattr(hint, "__metadata__", ()))
    return next((alias.path for alias in aliases if alias is not None), (to_camel(name),))
