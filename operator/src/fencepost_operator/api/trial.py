"""One PipelineTrial as the API server has it: which code is tried on what, and what was found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import Field

from fencepost_operator.api.checks import DurationRange, Keywords, Rule, keyed_by
from fencepost_operator.api.codec import decode_leniently, encode
from fencepost_operator.api.fields import (
    Entrypoint,
    Image,
    Line,
    Offsets,
    PipelineName,
    Seconds,
    SnapshotName,
    Time,
)
from fencepost_operator.api.model import Model
from fencepost_operator.api.moments import MaybeSince
from fencepost_operator.api.requests import read_request
from fencepost_operator.api.spec import Violation
from fencepost_operator.api.spec.job import CodeFromSpec
from fencepost_operator.api.spec.trials import TrialCompare, TrialLimits, TrialPromotion
from fencepost_operator.api.vocabulary import KIND, Condition, ObjectKey


class TrialPhase(StrEnum):
    """How far a trial is."""

    WAITING = "Waiting"
    STARTING = "Starting"
    RUNNING = "Running"
    COMPLETED = "Completed"
    FAILED = "Failed"


class PromotionState(StrEnum):
    """What a trial did to the pipeline."""

    NOT_MET = "NotMet"
    PROMOTING = "Promoting"
    PROMOTED = "Promoted"
    REPORTED = "Reported"
    REFUSED = "Refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialJob(Model):
    """What of the pipeline's spec.job is different in the trial."""

    MARKS = (Keywords({"minProperties": 1}),)

    image: Image | None = None
    """Image of the trial, and so its code and its version of Spark."""
    code_from: CodeFromSpec | None = None
    entrypoint: Annotated[Entrypoint, Field(max_length=200)] | None = None
    """The author's function as module:function."""
    args: Annotated[tuple[Annotated[Line, Field(max_length=4096)], ...], Field(max_length=100)] | None = None
    """Arguments for the author's function, in context.args."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSince(Model):
    """From where on the new code reads. Exactly one of snapshot, timestamp and duration."""

    MARKS = (
        Rule(
            "[has(self.snapshot), has(self.timestamp), has(self.duration)].filter(given, given).size() == 1",
            "exactly one of snapshot, timestamp and duration is needed",
        ),
    )

    snapshot: SnapshotName | None = None
    """Id or name of a snapshot of the pipeline; of two with one name, the newest."""
    timestamp: Time | None = None
    """What the pipeline had committed then, at most seven days ago and not before its first run. RFC 3339 with a time
    zone, such as 2026-01-31T12:00:00Z."""
    duration: Annotated[Seconds, DurationRange("1s", "168h", such_as="1h or 30m")] | None = None
    """What the pipeline had committed so long before the trial was created, such as 1h; of a younger pipeline, what its
    history begins with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSpec(Model):
    """What is tried. It does not change; a second trial is a second object."""

    MARKS = (Rule("self == oldSelf", "a trial does not change; create another PipelineTrial"),)

    pipeline: PipelineName
    """Name of the StreamingPipeline, in the same namespace."""
    job: TrialJob
    since: TrialSince
    compare: TrialCompare = field(default_factory=TrialCompare)
    limits: TrialLimits = field(default_factory=TrialLimits)
    promote_when: TrialPromotion | None = None
    """When the operator sets spec.job of the pipeline to that of the trial. Without it no trial is promoted."""
    ttl_after_finished: Annotated[Seconds, DurationRange("1s", "8760h", such_as="1h or 168h")] | None = None
    """The operator deletes the trial, with what it found, so long after its end. Without it the trial is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts(Model):
    """Rows by what was found."""

    compared: int = 0
    """Rows that the new code would leave and that were compared: equal, changed and added."""
    equal: int = 0
    """Rows that the table has with the same cells."""
    changed: int = 0
    """Rows of which the table has other cells."""
    missing: int | None = None
    """Rows that the table has of these records and the new code does not write; absent where they were not looked
    for."""
    added: int = 0
    """Rows that the table does not have."""
    overwritten: int = 0
    """Rows with other cells that the pipeline has written again since the trial began, which are not compared."""
    undecided: int = 0
    """Rows that cannot be compared: the table's row may have expired, may have been deleted later, or has no write
    time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSink(Model):
    """What was found in one sink."""

    MARKS = (Keywords({"required": ["name"]}),)

    name: str
    """The sink's name."""
    rows: RowCounts | None = None
    message: str = ""
    """What is not compared, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSample(Model):
    """One row that differs."""

    sink: str
    """The sink's name."""
    kind: str
    """Changed, Missing or Added."""
    key: str
    """The row's primary key."""
    columns: str = ""
    """The columns that differ; with compare.showValues the table's value and the new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUse(Model):
    """What the processes of one kind used."""

    MARKS = (Keywords({"required": ["name"]}),)

    name: str
    """driver, jvm or workers."""
    peak_memory: Annotated[int, Field(ge=0)] = 0
    """Most resident bytes of all of them together."""
    cpu_seconds: float = 0.0
    """Seconds of CPU time."""
    peak_cpu: float = 0.0
    """Most CPUs that they used, over five seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResources(Model):
    """What the trial used, beside its limits."""

    processes: Annotated[tuple[ProcessUse, ...], keyed_by("name")] = ()
    """By kind: the driver's Python, its JVM, which also runs the tasks, and the Python workers."""
    peak_memory: int | None = None
    """Most bytes that the pod used, without the page cache."""
    memory_limit: int | None = None
    """The pod's limit in bytes."""
    fits: bool | None = None
    """Whether the trial ended in time, and its memory stayed below nine tenths of the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoisonFound(Model):
    """Records that the new code cannot process."""

    records: int = 0
    """How many records failed alone."""
    first: str = ""
    """topic/partition@offset of the first one."""
    error: str = ""
    """Why that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion(Model):
    """Whether the code of the trial is the pipeline's."""

    state: str
    """NotMet, Promoting, Promoted, Reported or Refused."""
    message: str = ""
    """Why, and what to do."""
    patch: str = ""
    """The merge patch of the pipeline that promotes the code, in JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStatus(Model):
    """How far the trial is, and what it found. Only the operator writes it."""

    observed_generation: int = -1
    """metadata.generation of the spec that this status describes; -1 before the first look."""
    phase: str = TrialPhase.WAITING
    """Waiting, Starting, Running, Completed or Failed."""
    message: str = ""
    """What happens, and what to do."""
    conditions: Annotated[tuple[Condition, ...], keyed_by("type")] = ()
    """Ready is always present, and True once the trial is completed; with promoteWhen only if that holds and the
    pipeline's spec has not changed. Reconciling and Stalled are present only while they are True, and never both."""
    # Recorded before the Job exists.
    pipeline_generation: int | None = None
    """metadata.generation of the pipeline when the trial began: a changed spec is not promoted."""
    pipeline_uid: str | None = None
    """metadata.uid of the pipeline when the trial began."""
    job: str | None = None
    """Name of the trial's Job."""
    start: Offsets = field(default_factory=dict)
    """First offset of each topic/partition that the new code reads."""
    until: Offsets = field(default_factory=dict)
    """Offset of each topic/partition where it ends: what the pipeline had committed."""
    snapshot: str = ""
    """Id of the snapshot that the new code begins with, with its state where the pipeline is stateful."""
    written_after: int | None = None
    """The fence row's clock at the start, in µs: rows of these records were written after it."""
    written_until: int | None = None
    """The fence row's clock when the trial began, in µs: a row that differs is not compared if it was written later."""
    started_at: MaybeSince = None
    """When the Job was created."""
    finished_at: MaybeSince = None
    """When the trial was over."""
    records_total: int | None = None
    """Offsets between the start and the end."""
    records: int | None = None
    """Offsets that the new code has processed."""
    complete: bool | None = None
    """Whether all records were processed, and their rows in each sink compared. Without it the counts say nothing of
    the rest."""
    seconds: float | None = None
    """How long it took, without the start."""
    records_per_second: float | None = None
    """How fast a backlog would be processed by one such pod, with the comparison."""
    rows: RowCounts | None = None
    sinks: Annotated[tuple[TrialSink, ...], keyed_by("name")] = ()
    """What was found by sink."""
    samples: tuple[TrialSample, ...] = ()
    """Some of the rows that differ, at most ten of each kind."""
    poison: PoisonFound | None = None
    resources: TrialResources | None = None
    promotion: Promotion | None = None

    @property
    def is_finished(self) -> bool:
        """Whether nothing more is compared."""
        return self.phase in {TrialPhase.COMPLETED, TrialPhase.FAILED}

    @property
    def has_begun(self) -> bool:
        """Whether its offsets are recorded, so that its Job may exist."""
        return self.job is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Identity, spec and status. `spec` holds the violations instead when it cannot be understood."""

    key: ObjectKey
    """Of the trial itself."""
    pipeline: str
    uid: str
    resource_version: str
    generation: int
    created_at: datetime
    spec: TrialSpec | tuple[Violation, ...]
    status: TrialStatus = field(default_factory=TrialStatus)
    deleting_since: datetime | None = None
    owner_uid: str = ""
    """The uid of the pipeline whose upgrade it is a part of, '' of a trial that a user created."""


def read_trial(body: Mapping[str, Any]) -> Trial:
    """Return the trial in a body from the API server; a spec of any shape is read, none raises."""
    metadata, raw = body["metadata"], body.get("spec")
    deleted = metadata.get("deletionTimestamp")
    pipeline = raw.get("pipeline") if isinstance(raw, Mapping) else None
    return Trial(
        key=ObjectKey(metadata["namespace"], metadata["name"]),
        pipeline=pipeline if isinstance(pipeline, str) else "",
        uid=metadata["uid"],
        resource_version=metadata.get("resourceVersion", ""),
        generation=metadata.get("generation", 0),
        created_at=datetime.fromisoformat(metadata["creationTimestamp"]),
        spec=read_trial_spec(raw),
        status=decode_leniently(TrialStatus, body.get("status")),
        deleting_since=datetime.fromisoformat(deleted) if deleted else None,
        owner_uid=_pipeline_of(metadata),
    )


def _pipeline_of(metadata: Mapping[str, Any]) -> str:
    """Return the uid of the pipeline that controls an object, '' without one."""
    owners = metadata.get("ownerReferences") or ()
    return next((str(each["uid"]) for each in owners if each.get("controller") and each.get("kind") == KIND), "")


def read_trial_spec(raw: object) -> TrialSpec | tuple[Violation, ...]:
    """Return the spec of a trial, or what is wrong with it. Raises nothing."""
    return read_request(TrialSpec, raw, contradictions=_contradictions, remedy=_CORRECT)


def write_trial_status(status: TrialStatus) -> dict[str, Any]:
    """Return the body's `status` of a status: the whole of it, to replace what is there."""
    body: dict[str, Any] = encode(status)
    return body


def _contradictions(spec: TrialSpec) -> Iterator[Violation]:
    if sum(getattr(spec.since, part.name) is not None for part in fields(TrialSince)) != 1:
        yield Violation("spec.since", "does not have exactly one of snapshot, timestamp and duration", _CORRECT)
    if all(getattr(spec.job, part.name) is None for part in fields(TrialJob)):
        yield Violation("spec.job", "has none of image, codeFrom, entrypoint and args", _CORRECT)


_CORRECT: Final = "create another PipelineTrial with what is right: a spec does not change"
