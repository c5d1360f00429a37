"""Fields of a pod that a spec hands to Kubernetes: environment, resources, tolerations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field

from fencepost_operator.api.checks import EXACTLY_ONE, Matching, Rule
from fencepost_operator.api.fields import Line, ObjectName, Resource
from fencepost_operator.api.model import Model

LABEL: Final = Matching("[A-Za-z0-9._/-]*", "letters, digits, dots, underscores, hyphens and slashes")
LabelText = Annotated[str, Field(max_length=63), LABEL]
"""The value of a label or a taint."""
LabelKey = Annotated[str, Field(max_length=317), LABEL]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectReference(Model):
    """A Secret in the pipeline's namespace, as pods refer to it."""

    name: ObjectName
    """Name of the Secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretReference(Model):
    """A Secret in the pipeline's namespace."""

    secret_name: ObjectName
    """Name of a Secret in the same namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyReference(Model):
    """A key of an object in the pipeline's namespace."""

    name: ObjectName
    """Name of the Secret or ConfigMap."""
    key: Annotated[Line, Field(max_length=253)]
    """Key in the object."""
    optional: bool | None = None
    """Start without the variable if the object or the key does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvVarSource(Model):
    """Source of the value. Exactly one of the fields must be set."""

    MARKS = (EXACTLY_ONE,)

    secret_key_ref: KeyReference | None = None
    """A key of a Secret in the same namespace."""
    config_map_key_ref: KeyReference | None = None
    """A key of a ConfigMap in the same namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvVar(Model):
    """An environment variable."""

    MARKS = (Rule("!(has(self.value) && has(self.valueFrom))", "give value or valueFrom, not both"),)

    name: Annotated[
        str,
        Field(max_length=200),
        Matching("[A-Za-z_][A-Za-z0-9_]*", "a variable's name: letters, digits and underscores"),
    ]
    """Name of the variable."""
    value: Annotated[Line, Field(max_length=32768)] | None = None
    """Value of the variable."""
    value_from: EnvVarSource | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvFromReference(Model):
    """An object in the pipeline's namespace whose keys become variables."""

    name: ObjectName
    """Name of the Secret or ConfigMap."""
    optional: bool | None = None
    """Start without the variables if the object does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvFromSource(Model):
    """Exactly one of the fields must be set."""

    MARKS = (EXACTLY_ONE,)

    secret_ref: EnvFromReference | None = None
    """A Secret in the same namespace."""
    config_map_ref: EnvFromReference | None = None
    """A ConfigMap in the same namespace."""


Resources = Annotated[Mapping[Annotated[str, Field(max_length=317)], Resource], Field(max_length=16)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRequirements(Model):
    """Compute resources of a container."""

    MARKS = (
        Rule(
            "!has(self.requests) || !has(self.limits) || self.requests.all(k, !(k in self.limits) ||"
            " quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0)",
            "a request is larger than its limit; lower the request or raise the limit",
        ),
    )

    requests: Resources | None = None
    """Resources that the scheduler reserves, by resource name."""
    limits: Resources | None = None
    """Maximum resources of the container, by resource name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration(Model):
    """A toleration of a taint."""

    key: LabelKey | None = None
    """Key of the taint. Empty matches every key."""
    operator: Literal["Exists", "Equal"] | None = None
    """How the value is compared."""
    value: LabelText | None = None
    """Value of the taint when the operator is Equal."""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint. Empty matches every effect."""
    toleration_seconds: int | None = None
    """Seconds that a NoExecute taint is tolerated. Without a limit by default."""
