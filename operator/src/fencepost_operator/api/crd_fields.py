"""The fields of our kinds that a CustomResourceDefinition lacks: the API server drops them without an error."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, Final

from fencepost_operator.api.model import fields_of, without_marks
from fencepost_operator.api.rewind import RewindSpec, RewindStatus
from fencepost_operator.api.spec import Spec
from fencepost_operator.api.status import Status
from fencepost_operator.api.trial import TrialSpec, TrialStatus
from fencepost_operator.api.vocabulary import PLURAL, REWIND_PLURAL, TRIAL_PLURAL, VERSION

KINDS: Final[Mapping[str, Mapping[str, type]]] = {
    PLURAL: {"spec": Spec, "status": Status},
    REWIND_PLURAL: {"spec": RewindSpec, "status": RewindStatus},
    TRIAL_PLURAL: {"spec": TrialSpec, "status": TrialStatus},
}
"""By the plural of each kind: what its parts are read as."""
SELECTED: Final[Mapping[str, Sequence[str]]] = {REWIND_PLURAL: (".spec.pipeline",)}
"""By plural: the fields by which the operator lists objects."""


def missing_fields(plural: str, crd: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the paths of our fields that a CRD of this kind lacks, such as `status.run.masterUid`, in order.

    `selectableFields[PATH]` is a field by which the operator selects and the CRD does not.  Of an object that is
    missing, the path of the object alone is returned; of a CRD without our version, `versions[NAME]`.
    """
    versions = [version for version in crd["spec"]["versions"] if version["name"] == VERSION]
    if not versions:
        return (f"versions[{VERSION}]",)
    schema = versions[0].get("schema", {}).get("openAPIV3Schema", {})
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return ()
    parts = schema.get("properties", {})
    found = (_missing(kind, parts.get(part, {}), part) for part, kind in KINDS[plural].items())
    return tuple(sorted({path for each in (*found, _unselectable(plural, versions)) for path in each}))


def _unselectable(plural: str, versions: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    there = {each["jsonPath"] for version in versions for each in version.get("selectableFields", ())}
    return (f"selectableFields[{path}]" for path in SELECTED.get(plural, ()) if path not in there)


def _missing(hint: Any, schema: Any, path: str) -> Iterator[str]:  # noqa: ANN401 - a type, and JSON
    if not isinstance(schema, Mapping) or schema.get("x-kubernetes-preserve-unknown-fields"):
        return  # `additionalProperties: true` keeps all as well
    kind, _ = without_marks(hint)
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if is_dataclass(kind):
        properties = schema.get("properties", {})
        for field in fields_of(kind):
            place = f"{path}.{field.in_json}"
            if field.in_json in properties:
                yield from _missing(field.kind, properties[field.in_json], place)
            else:
                yield place
    elif origin is tuple:
        yield from _missing(parts[0], schema.get("items", {}), f"{path}[]")
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        yield from _missing(parts[1], schema.get("additionalProperties", {}), f"{path}{{}}")
