"""What a precondition or a rule looks at.

The type says what is known: every pipeline has a `Context`; a `SpecContext` adds a valid spec; a `RunContext` adds the
fence row and the fingerprints of what should run.  A rule that needs one of them cannot be called without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fencepost.fence import FenceRow
from fencepost_operator.api import (
    RETRY_ANNOTATION,
    FinishingStatus,
    Pipeline,
    ReconcileConfig,
    RunStatus,
    Spec,
    State,
    Status,
)
from fencepost_operator.desired.identity.hashes import Fingerprints, bounds_hash
from fencepost_operator.desired.names import fence_owner
from fencepost_operator.observation import Known, Observation, References, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One pipeline at one moment. `status` already holds what this observation adds to it (see `update_status`)."""

    pipeline: Pipeline
    status: Status
    observation: Observation
    config: ReconcileConfig

    @property
    def now(self) -> datetime:
        """When the observation was made."""
        return self.observation.now

    @property
    def runs(self) -> tuple[Run, ...]:
        """All driver Jobs that are known of."""
        runs = self.observation.runs
        return runs.value if isinstance(runs, Known) else ()

    @property
    def owner(self) -> str:
        """What the fence row's owner should be."""
        return fence_owner(self.config.cluster_uid, self.pipeline.uid)

    @property
    def run(self) -> RunStatus | None:
        """The recorded run."""
        return self.status.run

    @property
    def job(self) -> Run | None:
        """The recorded run's Job, if it exists."""
        return job_of(self.run, self.runs)

    @property
    def active_run(self) -> RunStatus | None:
        """The recorded run if its Job was seen and it has not ended."""
        run = self.run
        return run if run is not None and run.is_active else None

    @property
    def unconfirmed_run(self) -> RunStatus | None:
        """The recorded run if it was given up but its process may still live."""
        run = self.run
        return run if run is not None and run.ended_at is not None and not run.dead else None

    @property
    def is_streaming(self) -> bool:
        """Whether a driver lives that holds the fence, as far as was last seen."""
        return self.active_run is not None and self.active_run.claimed_at is not None

    @property
    def retry_token(self) -> str:
        """What resets the restart budget when it changes."""
        return retry_token(self.pipeline)

    @property
    def state(self) -> State:
        """The phase that follows from the recorded run; a rule that knows better overrides it."""
        run, failure = self.run, self.status.failure
        if self.is_streaming:
            return State.RUNNING
        if run is None:
            return State.PENDING if self.status.cluster is None else State.PROVISIONING
        if failure is not None and failure.count and failure.epoch in {run.epoch, run.epoch - 1}:
            return State.RESTARTING
        return State.STARTING


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecContext(Context):
    """A pipeline whose spec is valid."""

    spec: Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext(SpecContext):
    """A pipeline that may run: its references exist and its fence row is ours."""

    row: FenceRow
    references: References
    desired: Fingerprints
    finishes: FinishingStatus | None = None
    """The batch that other code began and finishes; `spec`, `references` and `desired` are of that code."""


def retry_token(pipeline: Pipeline) -> str:
    """Return the retry annotation, with restart.nonce in front where there is one."""
    annotation, spec = pipeline.annotations.get(RETRY_ANNOTATION, ""), pipeline.spec
    nonce = spec.restart.nonce if isinstance(spec, Spec) else ""
    return f"{nonce} {annotation}" if nonce else annotation


def bounds_token(pipeline: Pipeline) -> str:
    """Return the hash of the bounds of batches: with other bounds a run may succeed where one failed."""
    return bounds_hash(pipeline.spec) if isinstance(pipeline.spec, Spec) else ""


def job_of(run: RunStatus | None, runs: tuple[Run, ...]) -> Run | None:
    """Return the Job of a recorded run."""
    return next((job for job in runs if run is not None and job.name == run.name), None)
