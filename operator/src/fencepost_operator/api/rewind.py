"""One PipelineRewind as the API server has it: what is asked for, and how far it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import Field

from fencepost_operator.api.checks import Rule, keyed_by
from fencepost_operator.api.codec import decode_leniently, encode
from fencepost_operator.api.fields import Count, PartitionKey, PipelineName, SnapshotName, Time, with_fallback
from fencepost_operator.api.model import Model
from fencepost_operator.api.moments import MaybeSince, Since
from fencepost_operator.api.requests import read_request
from fencepost_operator.api.spec import Violation
from fencepost_operator.api.vocabulary import FINALIZER, GROUP, Condition, ObjectKey

FINISHED_LABEL: Final = f"{GROUP}/finished"
"""On a rewind that is over: the operator lists those without it."""
MOST_OFFSETS: Final = 1000
"""Partitions that a rewind may name."""


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
    """Where to go back to. Exactly one of snapshot, timestamp and offsets."""

    MARKS = (
        Rule(
            "[has(self.snapshot), has(self.timestamp), has(self.offsets)].filter(given, given).size() == 1",
            "exactly one of snapshot, timestamp and offsets is needed",
        ),
    )

    snapshot: SnapshotName | None = None
    """Id or name of a snapshot of the pipeline; of two with one name, the newest."""
    timestamp: Time | None = None
    """Records with this timestamp or a later one are read again. RFC 3339 with a time zone, such as
    2026-01-31T12:00:00Z."""
    offsets: Annotated[Mapping[PartitionKey, Count], Field(min_length=1, max_length=MOST_OFFSETS)] | None = None
    """Next offset to read of each topic/partition. Partitions that are not named stay where they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindSpec(Model):
    """What is asked for. It does not change; a second attempt is a second object."""

    MARKS = (Rule("self == oldSelf", "a rewind does not change; create another PipelineRewind"),)

    pipeline: PipelineName
    """Name of the StreamingPipeline, in the same namespace."""
    to: RewindTarget
    delete_output: bool = True
    """Whether the rows of the records that are read again are deleted from the sinks first. Without it they stay until
    they are written again."""
    empty_state: bool = False
    """Whether a stateful pipeline starts with empty state at the target. Its records before the target then count for
    nothing. Only a snapshot has the state of its offsets, so a rewind to a timestamp or to offsets needs it."""
    dry_run: bool = False
    """Report the offsets, the records to repeat and the rows to delete, and change nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStatus(Model):
    """One step that has begun."""

    name: str
    """Count, Stop, BackUp, Resolve, Purge, SetOffsets, Resume or Check."""
    state: Annotated[StepState, with_fallback(StepState.RUNNING)]
    """Running, Done, Skipped or Failed."""
    message: str
    """What happens in the step."""
    started_at: Since
    """When it began."""
    finished_at: MaybeSince = None
    """When it was over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedTarget(Model):
    """Where the pipeline continues."""

    # A partition that the row has and this has not leaves the row.
    offsets: Mapping[str, int] = field(default_factory=dict)
    """Next offset to read of each topic/partition, also of those that stay."""
    leader_epochs: Mapping[str, int] = field(default_factory=dict)
    """Leader epochs of a snapshot's offsets."""
    growth_barrier: Mapping[str, int] = field(default_factory=dict)
    """Ends up to which older partitions are read before newer ones."""
    snapshot: str | None = None
    """Id of the snapshot whose state is set with the offsets; absent where the state is emptied, and without state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindStatus(Model):
    """How far the rewind is. Only the operator writes it."""

    observed_generation: int = -1
    """metadata.generation of the spec that this status describes; -1 before the first look."""
    phase: str = WAITING
    """The step in progress, or Waiting, Completed or Failed."""
    message: str = ""
    """What happens, and what to do."""
    conditions: Annotated[tuple[Condition, ...], keyed_by("type")] = ()
    """Ready is always present, and True once the rewind is completed. Reconciling and Stalled are present only while
    they are True, and never both."""
    steps: tuple[StepStatus, ...] = ()
    """The steps that have begun, in their order."""
    checked_snapshot: str | None = None
    """Id of the snapshot whose files were checked before anything was stopped; absent where its state is not set."""
    checked_files: int = 0
    """How many of its files are there as far as the check has come, in the order of their paths."""
    # Recorded before the fence is taken over.
    epoch: int | None = None
    """Epoch that is reserved for the rewind; no driver runs in it."""
    unclaimed_epoch: int | None = None
    """The epoch before it, where no driver had claimed that one; none can write under it any more."""
    version: int | None = None
    """The fence row's version: before the offsets are set, and from step Resume on after that."""
    backup: str | None = None
    """Id of the snapshot of the fence row before the rewind."""
    held_state: str | None = None
    """Id of the rewind's own copy of the snapshot whose state is set. With deleteOutput only: what deletes the snapshot
    that the spec names must not leave deleted output that cannot be written again."""
    target: ResolvedTarget | None = None
    records_to_repeat: int | None = None
    """Offsets between the target and what was committed."""
    rows_to_delete: int | None = None
    """Rows of the sinks that were counted before anything was stopped."""
    estimated_seconds: float | None = None
    """How long that count took."""

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
        spec=read_request(RewindSpec, raw, contradictions=_contradictions, remedy=_CORRECT),
        status=decode_leniently(RewindStatus, body.get("status")),
        deleting_since=datetime.fromisoformat(deleted) if deleted else None,
        finalizers=tuple(metadata.get("finalizers") or ()),
        is_marked_finished=FINISHED_LABEL in (metadata.get("labels") or {}),
    )


def write_rewind_status(status: RewindStatus) -> dict[str, Any]:
    """Return the body's `status` of a status: the whole of it, to replace what is there."""
    body: dict[str, Any] = encode(status)
    return body


def _contradictions(spec: RewindSpec) -> Iterator[Violation]:
    if sum(getattr(spec.to, part.name) is not None for part in fields(RewindTarget)) != 1:
        yield Violation("spec.to", "does not have exactly one of snapshot, timestamp and offsets", _CORRECT)


_CORRECT: Final = "create another PipelineRewind with what is right: a spec does not change"
