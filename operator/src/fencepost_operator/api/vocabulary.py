"""The words of the API: names, states, and what every report is made of; reasons are the contract's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

from fencepost.contract import Reason
from fencepost_operator.api.checks import Keywords
from fencepost_operator.api.model import Model

__all__ = [
    "ABANDON_ANNOTATION",
    "ACCEPT_CODE_ANNOTATION",
    "ACCEPT_LOSS_ANNOTATION",
    "ADOPT_ANNOTATION",
    "CONFIRM_DEAD_ANNOTATION",
    "FAIL_OVER_ANNOTATION",
    "FINALIZER",
    "GROUP",
    "KIND",
    "PAUSED_ANNOTATION",
    "PLURAL",
    "RETRY_ANNOTATION",
    "REWIND_KIND",
    "REWIND_PLURAL",
    "SERVED_TOO",
    "SILENCE_ANNOTATION",
    "SNAPSHOT_ANNOTATION",
    "TRIAL_KIND",
    "TRIAL_PLURAL",
    "VERSION",
    "Condition",
    "Event",
    "EventType",
    "ObjectKey",
    "Reason",
    "State",
    "asks_for_pause",
    "asks_to_abandon",
]

GROUP: Final = "streaming.fencepost.dev"
VERSION: Final = "v1beta1"
"""The version of the kinds that the operator and the CLI use, and the API server stores."""
SERVED_TOO: Final = ("v1alpha1",)
"""Versions that are served beside it, with the same schema."""
PLURAL: Final = "streamingpipelines"
KIND: Final = "StreamingPipeline"
REWIND_PLURAL: Final = "pipelinerewinds"
REWIND_KIND: Final = "PipelineRewind"
TRIAL_PLURAL: Final = "pipelinetrials"
TRIAL_KIND: Final = "PipelineTrial"
FINALIZER: Final = f"{GROUP}/cleanup"
ABANDON_ANNOTATION: Final = f"{GROUP}/abandon-fence"
"""Set when a deletion is to leave the fence row as it is, as when its Cassandra is gone for good."""
ACCEPT_CODE_ANNOTATION: Final = f"{GROUP}/accept-code"
"""The name of the PipelineTrial whose code a user accepts, whatever it found; it has no effect on other code."""
ACCEPT_LOSS_ANNOTATION: Final = f"{GROUP}/accept-loss"
"""Which loss a user accepts: `<id> by=<who> [continue=<how>]`; it has no effect on another loss."""
ADOPT_ANNOTATION: Final = f"{GROUP}/adopt-fence"
"""Whom to take a fence row over from: `<uid of that cluster>@<epoch>`, spent as soon as the epoch moves on."""
CONFIRM_DEAD_ANNOTATION: Final = f"{GROUP}/confirm-dead"
"""The name of the run whose driver a user has found dead; it has no effect on another run."""
FAIL_OVER_ANNOTATION: Final = f"{GROUP}/fail-over"
"""To which Kubernetes cluster to move the pipeline: `<uid of that cluster>@<epoch>`, spent as soon as the epoch moves
on."""
PAUSED_ANNOTATION: Final = f"{GROUP}/paused"
"""Set while nothing may be done for the pipeline, and nothing of its status but a condition be written."""
SNAPSHOT_ANNOTATION: Final = f"{GROUP}/snapshot"
"""The name of a snapshot to take; each value is honoured once."""
SILENCE_ANNOTATION: Final = f"{GROUP}/silence-until"
"""Until when the pipeline causes no pages, in RFC 3339."""
RETRY_ANNOTATION: Final = f"{GROUP}/retry"
"""Any new value resets the restart budget, e.g. the time of day."""


def asks_for_pause(annotation: str | None) -> bool:
    """Return whether the value of PAUSED_ANNOTATION pauses; any value but 'false' does, to be on the safe side."""
    return (annotation or "").strip().lower() not in {"", "false"}


def asks_to_abandon(annotation: str | None) -> bool:
    """Return whether the value of ABANDON_ANNOTATION gives the fence row up: only 'true' does."""
    return (annotation or "").strip().lower() == "true"


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """A pipeline's place: namespace and name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class State(StrEnum):
    """The phase shown by `kubectl get spl`; computed each time, never an input of a decision."""

    PENDING = "Pending"
    PROVISIONING = "Provisioning"
    STARTING = "Starting"
    RUNNING = "Running"
    CATCHING_UP = "CatchingUp"
    RESTARTING = "Restarting"
    UPGRADING = "Upgrading"
    REWINDING = "Rewinding"
    SUSPENDED = "Suspended"
    STANDBY = "Standby"
    STALLED = "Stalled"
    DELETING = "Deleting"


class EventType(StrEnum):
    """Kubernetes' two types of Events."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Event:
    """One Event, a line of `kubectl describe`."""

    type: EventType
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition(Model):
    """A standard condition of Kubernetes."""

    MARKS = (Keywords({"required": ["type", "status", "reason", "message", "lastTransitionTime"]}),)

    type: Annotated[str, Keywords({"maxLength": 316})]
    """Name of the condition."""
    status: Annotated[str, Keywords({"enum": ["True", "False", "Unknown"]})]
    """Status of the condition."""
    reason: Annotated[str, Keywords({"minLength": 1, "maxLength": 1024})]
    """Reason in one CamelCase word, stable between releases."""
    message: Annotated[str, Keywords({"maxLength": 32768})]
    """Description of the reason, and what to do."""
    last_transition_time: datetime
    """When status last changed."""
    observed_generation: int
    """metadata.generation that the condition describes."""


def condition_of(conditions: Iterable[Condition], kind: str) -> Condition | None:
    """Return the condition of a type."""
    return next((condition for condition in conditions if condition.type == kind), None)


def condition_after(
    before: Iterable[Condition], kind: str, status: str, reason: str, message: str, *, now: datetime, generation: int
) -> Condition:
    """Return a condition; as long as its status is as before, so is the moment of its last transition."""
    was = condition_of(before, kind)
    kept = was.last_transition_time if was is not None and was.status == status else None
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=kept or now.replace(microsecond=0),
        observed_generation=generation,
    )


def conditions_after(
    before: Sequence[Condition],
    reason: str,
    message: str,
    *,
    is_ready: bool,
    other: str | None,
    now: datetime,
    generation: int,
) -> tuple[Condition, ...]:
    """Return the conditions of an object that asks for something once: Ready, and `other` where there is one."""
    wanted = [("Ready", "True" if is_ready else "False"), *([(other, "True")] if other else ())]
    return tuple(
        condition_after(before, kind, status, reason, message, now=now, generation=generation)
        for kind, status in wanted
    )
