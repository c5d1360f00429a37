"""Types of fields: how each is read from JSON, for `pydantic.TypeAdapter`. Python code builds them unchecked.

Objects of this API are plain frozen dataclasses with `CONFIG`. Only reading validates: `dataclasses.replace` in a
decision costs what it costs for any dataclass.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Callable, Hashable
from dataclasses import MISSING, dataclass
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Literal, cast

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from fencepost.contract import Reason
from fencepost.contract.guidance import Severity
from fencepost_operator.api.quantities import parse_bytes, parse_duration, parse_quantity


def name_in_json(name: str) -> str:
    """Return the name that a field has in JSON; a name that Python reserves ends in `_`."""
    return to_camel(name).rstrip("_")


CONFIG: Final = ConfigDict(alias_generator=name_in_json, strict=True, extra="ignore")
"""camelCase in JSON, no conversion between JSON's types, unknown fields ignored."""


class Model:
    """Base of the objects that are read and written as JSON."""

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelField:
    """A field of a model: its name in Python and in JSON, its type and the marks of its `Annotated`.

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
    return tuple(
        ModelField(
            name=field.name,
            in_json=name_in_json(field.name),
            kind=typing.get_args(hint)[0] if (is_marked := typing.get_origin(hint) is Annotated) else hint,
            marks=hint.__metadata__ if is_marked else (),
            default=field.default if field.default_factory is MISSING else field.default_factory(),
        )
        for field, hint in ((field, hints[field.name]) for field in dataclasses.fields(model))
    )


_ENTRYPOINT: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_SINK_NAME: Final = re.compile(r"[a-z]([-_a-z0-9]*[a-z0-9])?")
_PLUGIN_NAME: Final = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?")
_HOST: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9._]*[A-Za-z0-9])?|[0-9A-Fa-f:.]+")
_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_OBJECT_NAME: Final = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")
_IDENTIFIER: Final = re.compile(r"[a-z][a-z0-9_]*")
_ANNOTATION: Final = re.compile(r"([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?")
_RESERVED: Final = re.compile(r"([^/]*[.])?(kubernetes[.]io|k8s[.]io|fencepost[.]dev)/|io[.](kubernetes|containerd)[.]")
"""Annotations by which Kubernetes, container runtimes and the operator take instructions: AppArmor's profile."""
_SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"


def _matching(pattern: re.Pattern[str], meaning: str) -> AfterValidator:
    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(f"is not {meaning}")
        return text

    return AfterValidator(check)


def _annotation(key: str) -> str:
    if not _ANNOTATION.fullmatch(key):
        raise ValueError("is not the key of an annotation, such as example.com/team")
    if _RESERVED.match(key) and key != _SAFE_TO_EVICT:
        raise ValueError("is an annotation by which Kubernetes or Fencepost takes instructions; remove it")
    return key


def _quantity(read: Callable[[str | float], Any]) -> BeforeValidator:
    def check(raw: object) -> object:
        if not isinstance(raw, str | int | float) or isinstance(raw, bool):
            raise ValueError("is not a quantity such as 512Mi, 2Gi or 500m")
        return read(raw)

    return BeforeValidator(check)


def _quantity_text(raw: str | float) -> str:
    parse_quantity(raw)
    return str(raw)


def _duration(raw: object) -> float:
    if not isinstance(raw, str):
        raise ValueError("is not a duration such as 500ms, 5s or 1m30s")
    return parse_duration(raw)


def is_object_name(text: str) -> bool:
    """Return whether a ConfigMap or a Secret can have this name."""
    return _OBJECT_NAME.fullmatch(text) is not None


def with_fallback(fallback: StrEnum) -> BeforeValidator:
    """Read a word that this release does not know as the fallback: another release of the operator may have stored it.

    A value that is not a string stays an error.
    """
    known = frozenset(type(fallback))

    def check(raw: object) -> object:
        return fallback if isinstance(raw, str) and raw not in known else raw

    return BeforeValidator(check)


Text = Annotated[str, Field(min_length=1)]
"""Text that must not be empty."""
Entrypoint = Annotated[str, _matching(_ENTRYPOINT, "module:function, such as flights.departures:transform")]
Identifier = Annotated[str, _matching(_IDENTIFIER, "a Cassandra name: lower-case letters, digits and underscores")]
ColumnName = Annotated[
    str, _matching(re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}"), "a column's name: letters, digits and underscores")
]
ClusteringOrder = Literal["ASC", "DESC"]
TableOption = Annotated[str, _matching(re.compile(r"[A-Za-z0-9_.-]{1,100}"), "letters, digits, _, . and -")]
"""The name or the value of an option in CQL's maps, such as those of a compaction."""
SinkName = Annotated[
    str, Field(max_length=40), _matching(_SINK_NAME, "a sink's name: lower-case letters, digits, - and _")
]
"""Also the name of a folder in the driver's pod."""
PluginName = Annotated[
    str, Field(max_length=100), _matching(_PLUGIN_NAME, "the name of an entry point: letters, digits, -, _ and .")
]
GroupId = Annotated[
    str,
    _matching(
        re.compile(r"[A-Za-z0-9._-]{1,249}"),
        "a consumer group's id: at most 249 letters, digits, dots, underscores and hyphens",
    ),
]
AnnotationKey = Annotated[str, Field(max_length=317), AfterValidator(_annotation)]
AnnotationText = Annotated[str, Field(max_length=1024)]
Position = Annotated[str, _matching(re.compile("earliest|latest"), "earliest or latest")]
SerialConsistency = Annotated[str, _matching(re.compile("SERIAL|LOCAL_SERIAL"), "SERIAL or LOCAL_SERIAL")]
ObjectName = Annotated[
    str, _matching(_OBJECT_NAME, "the name of an object: at most 253 lower-case letters, digits, - and .")
]
"""A DNS-1123 subdomain, as ConfigMaps and Secrets have it."""
HostName = Annotated[str, Field(max_length=253), _matching(_HOST, "a host name or an address")]
Bytes = Annotated[int, _quantity(parse_bytes)]
"""A quantity, as whole bytes."""
QuantityText = Annotated[str, _quantity(_quantity_text)]
"""A quantity as it was written."""
Seconds = Annotated[float, BeforeValidator(_duration)]
"""A duration, as seconds."""
Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
FailureReason = Annotated[Reason, with_fallback(Reason.RUN_FAILED)]
"""The stored reason of a failed run. RunFailed stands in for an unknown one: the run is restarted within the budget."""
PageSeverity = Annotated[Severity, with_fallback(Severity.CRITICAL)]
"""A stored severity. Critical stands in for an unknown one: a page too many is better than none."""
