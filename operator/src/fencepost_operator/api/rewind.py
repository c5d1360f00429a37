"""One PipelineRewind as the API server has it: what is asked for, and how far it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import AfterValidator, ValidationError

from fencepost_operator.api.codec import decode, decode_leniently, encode
from fencepost_operator.api.fields import Count, Model, Text, with_fallback
from fencepost_operator.api.forbidden_text import forbidden_text, printable
from fencepost_operator.api.parsing import PARTITION
from fencepost_operator.api.spec import Violation
from fencepost_operator.api.vocabulary import FINALIZER, GROUP, Condition, ObjectKey

FINISHED_LABEL: Final = f"{GROUP}/finished"
"""On a rewind that is over: the operator lists those without it."""
MOST_OFFSETS: Final = 1000
"""Partitions that a rewind may name; the CRD's maximum."""


def _with_zone(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("is not RFC 3339 with a time zone, such as 2026-01-31T12:00:00Z")
    return moment


class RewindStep(StrEnum):
    """The steps, in their order."""

    COUNT = "Count"
    STOP = "Stop"
    BACK_UP = "BackUp"
    RESOLVE = "Resolve"
    PURGE = "Purge"
    SET_OFFSETS = "SetOffsets"
    RESUME = "Resume"
    CHECK = "Check"


class StepState(StrEnum):
    """How far a step is."""

    RUNNING = "Running"
    DONE = "Done"
    SKIPPED = "Skipped"
    FAILED = "Failed"


COMPLETED: Final = "Completed"
FAILED: Final = "Failed"
WAITING: Final = "Waiting"
"""Phases besides the names of the steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindTarget(Model):
    """Where to go back to: exactly one of the three.

    `snapshot` is an id or a name; records at or after `timestamp` are repeated; `offsets` maps 'topic/partition' to the
    next offset to read, and partitions that it does not name stay where they are.
    """

    snapshot: Text | None = None
    timestamp: Annotated[datetime, AfterValidator(_with_zone)] | None = None
    offsets: Mapping[str, Count] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindSpec(Model):
    """What is asked for."""

    pipeline: Text
    to: RewindTarget
    delete_output: bool = True
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStatus(Model):
    """One step that has begun."""

    name: str
    state: Annotated[StepState, with_fallback(StepState.RUNNING)]
    message: str
    started_at: datetime
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedTarget(Model):
    """Where the pipeline continues: all partitions of the fence row after the rewind.

    A partition that the row has and `offsets` has not leaves the row. `leader_epochs` are those of a snapshot.
    """

    offsets: Mapping[str, int] = field(default_factory=dict)
    leader_epochs: Mapping[str, int] = field(default_factory=dict)
    growth_barrier: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindStatus(Model):
    """How far a rewind is. `observed_generation` is -1 before the first look.

    `epoch` is the one without a driver, in which the pipeline is rewound, recorded before the fence is taken over;
    `unclaimed_epoch` the one before it where no driver has claimed that one, so that none can write under it;
    `version` the row's when the target was recorded, one before the offsets are set.  `backup` is the snapshot of the
    row before the rewind.  `rows_to_delete` were counted before anything was stopped, in `estimated_seconds`.
    """

    observed_generation: int = -1
    phase: str = WAITING
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    steps: tuple[StepStatus, ...] = ()
    epoch: int | None = None
    unclaimed_epoch: int | None = None
    version: int | None = None
    backup: str | None = None
    target: ResolvedTarget | None = None
    records_to_repeat: int | None = None
    rows_to_delete: int | None = None
    estimated_seconds: float | None = None

    @property
    def has_begun(self) -> bool:
        """Whether it keeps the pipeline from running, or has done so."""
        return self.step(RewindStep.STOP) is not None

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to do."""
        return self.phase in {COMPLETED, FAILED}

    def step(self, name: RewindStep) -> StepStatus | None:
        """Return a step that has begun."""
        return next((step for step in self.steps if step.name == name), None)

    def has_done(self, name: RewindStep) -> bool:
        """Return whether a step is over, with success or because it is not needed."""
        step = self.step(name)
        return step is not None and step.state in {StepState.DONE, StepState.SKIPPED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind:
    """Identity, spec and status. `spec` holds the violations instead when it cannot be understood."""

    key: ObjectKey
    """Of the rewind itself."""
    pipeline: str
    uid: str
    resource_version: str
    generation: int
    created_at: datetime
    spec: RewindSpec | tuple[Violation, ...]
    status: RewindStatus = field(default_factory=RewindStatus)
    deleting_since: datetime | None = None
    finalizers: tuple[str, ...] = ()
    is_marked_finished: bool = False
    """Whether its label says that it is over."""

    @property
    def is_held(self) -> bool:
        """Whether the API server waits for us before it forgets the object."""
        return FINALIZER in self.finalizers

    @property
    def is_cancelled(self) -> bool:
        """Whether it was deleted while it could still be cancelled."""
        return self.deleting_since is not None and not self.is_held


def read_rewind(body: Mapping[str, Any]) -> Rewind:
    """Return the rewind in a body from the API server; a spec of any shape is read, none raises."""
    metadata, raw = body["metadata"], body.get("spec")
    deleted = metadata.get("deletionTimestamp")
    pipeline = raw.get("pipeline") if isinstance(raw, Mapping) else None
    return Rewind(
        key=ObjectKey(metadata["namespace"], metadata["name"]),
        pipeline=pipeline if isinstance(pipeline, str) else "",
        uid=metadata["uid"],
        resource_version=metadata.get("resourceVersion", ""),
        generation=metadata.get("generation", 0),
        created_at=datetime.fromisoformat(metadata["creationTimestamp"]),
        spec=_parse(raw),
        status=decode_leniently(RewindStatus, body.get("status")),
        deleting_since=datetime.fromisoformat(deleted) if deleted else None,
        finalizers=tuple(metadata.get("finalizers") or ()),
        is_marked_finished=FINISHED_LABEL in (metadata.get("labels") or {}),
    )


def write_rewind_status(status: RewindStatus) -> dict[str, Any]:
    """Return the body's `status` of a status: the whole of it, to replace what is there."""
    body: dict[str, Any] = encode(status)
    return body


def _parse(raw: object) -> RewindSpec | tuple[Violation, ...]:
    """Return the spec, or what is wrong with it: the CRD refuses most of that already."""
    if found := tuple(forbidden_text(raw)):
        return found
    try:
        spec = decode(RewindSpec, raw)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        return tuple(
            Violation(".".join(["spec", *(printable(str(step)) for step in each["loc"])]), each["msg"], _CORRECT)
            for each in problems[:_SHOWN]
        )
    except (ValueError, RecursionError):
        return (Violation("spec", "is not JSON of a reasonable depth and size", _CORRECT),)
    return tuple(_contradictions(spec.to)) or spec


def _contradictions(to: RewindTarget) -> Iterator[Violation]:
    if sum(getattr(to, part.name) is not None for part in fields(RewindTarget)) != 1:
        yield Violation("spec.to", "does not have exactly one of snapshot, timestamp and offsets", _CORRECT)
    if to.offsets is None:
        return
    if not 0 < len(to.offsets) <= MOST_OFFSETS:
        yield Violation("spec.to.offsets", f"does not name 1 to {MOST_OFFSETS} partitions", _CORRECT)
    if wrong := [key for key in to.offsets if not PARTITION.fullmatch(key)]:
        yield Violation("spec.to.offsets", f"{printable(wrong[0])!r} is not topic/partition", _CORRECT)


_CORRECT: Final = "create another PipelineRewind with what is right: a spec does not change"
_SHOWN: Final = 3
