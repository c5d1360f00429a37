"""What a rule looks at, and what it says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from fencepost.fence import FenceRow
from fencepost_operator.actions import Action
from fencepost_operator.api import RETRY_ANNOTATION, Pipeline, Reason, ReconcileConfig, RunStatus, Spec, State, Status
from fencepost_operator.desired.hashes import Fingerprints, fingerprints
from fencepost_operator.desired.names import fence_owner
from fencepost_operator.observation import Known, Observation, Run, Unknown

USUAL_GRACE: Final = 60
"""Seconds, where a spec that cannot be understood does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One pipeline at one moment. `status` already holds what this observation adds to it (see tracking)."""

    pipeline: Pipeline
    status: Status
    observation: Observation
    config: ReconcileConfig

    @property
    def now(self) -> datetime:
        """When the observation was made."""
        return self.observation.now

    @property
    def spec(self) -> Spec:
        """The spec, for rules behind the one that refuses an invalid spec."""
        if not isinstance(self.pipeline.spec, Spec):
            raise TypeError("the spec is invalid, and a rule before this one must have said so")
        return self.pipeline.spec

    @property
    def row(self) -> FenceRow:
        """The fence row, for rules behind those that refuse when there is none or nobody can read it."""
        fence = self.observation.fence
        if isinstance(fence, Unknown) or fence.value is None:
            raise TypeError("the fence row is not there, and a rule before this one must have said so")
        return fence.value

    @property
    def desired(self) -> Fingerprints:
        """Fingerprints of what should be there, for rules behind the one that waits for the references."""
        references = self.observation.references
        if isinstance(references, Unknown):
            raise TypeError("the references are unknown, and a rule before this one must have said so")
        return fingerprints(self.spec, references.value.hashes)

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs, for rules behind the one that waits for Kubernetes."""
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
        """The recorded run's Job, if it is there."""
        return job_of(self.run, self.runs)

    @property
    def active_run(self) -> RunStatus | None:
        """The recorded run if its Job was seen and it is not over."""
        run = self.run
        return run if run is not None and run.created_at is not None and run.ended_at is None else None

    @property
    def unconfirmed_run(self) -> RunStatus | None:
        """The recorded run if it is over but its process may live on."""
        run = self.run
        return run if run is not None and run.ended_at is not None and not run.dead else None

    @property
    def streams(self) -> bool:
        """Whether a driver lives that holds the fence, as far as was last seen."""
        return self.active_run is not None and self.active_run.claimed_at is not None

    @property
    def retry(self) -> str:
        """The value of the annotation that starts the restart budget anew."""
        return self.pipeline.annotations.get(RETRY_ANNOTATION, "")

    @property
    def state(self) -> State:
        """The phase as far as the recorded run tells it; a rule that knows better says so."""
        run, failure = self.run, self.status.failure
        if self.streams:
            return State.RUNNING
        if run is None:
            return State.PENDING if self.status.cluster is None else State.PROVISIONING
        if failure is not None and failure.count and failure.epoch in {run.epoch, run.epoch - 1}:
            return State.RESTARTING
        return State.STARTING


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a rule says. `status` is what must be recorded before the action; `again` is in seconds.

    Neither ready nor stalled means on the way (Reconciling).  `warning` makes its Event one.
    """

    reason: Reason
    message: str
    state: State
    status: Status
    ready: bool = False
    stalled: bool = False
    warning: bool = False
    action: Action | None = None
    requeue_after: float | None = None


def job_of(run: RunStatus | None, runs: tuple[Run, ...]) -> Run | None:
    """Return the Job of a recorded run."""
    return next((job for job in runs if run is not None and job.name == run.name), None)


def waiting(  # what most rules say: something is to come
    context: Context,
    reason: Reason,
    message: str,
    *,
    remedy: str = "",
    state: State | None = None,
    action: Action | None = None,
    status: Status | None = None,
    warning: bool = False,
    requeue_after: float | None = None,
) -> Outcome:
    """Rule that the pipeline is on its way."""
    return Outcome(
        reason=reason,
        message=with_remedy(message, remedy),
        state=state or context.state,
        status=status or context.status,
        action=action,
        warning=warning,
        requeue_after=context.config.moving if requeue_after is None else requeue_after,
    )


def not_observable(context: Context, reason: Reason, unknown: Unknown, *, what: str) -> Outcome:
    """Rule that something cannot be seen: what runs is left running, nothing is started or replaced."""
    effect = "the run goes on" if context.streams else "nothing is started until it is known"
    outcome = waiting(
        context,
        reason,
        f"{what}: {unknown.message}; {effect}",
        remedy=unknown.remedy,
        warning=True,
        requeue_after=context.config.resync,
    )
    return replace(outcome, ready=context.streams)


def stalled(context: Context, reason: Reason, message: str, *, remedy: str) -> Outcome:
    """Rule that a person must do something first."""
    return Outcome(
        reason=reason,
        message=with_remedy(message, remedy),
        state=State.STALLED,
        status=context.status,
        stalled=True,
        warning=True,
        requeue_after=context.config.resync,
    )


def with_remedy(message: str, remedy: str) -> str:
    """Return what happened and what to do, in one line."""
    if not remedy:
        return message
    return f"{message.rstrip('.')}. {remedy[:1].upper()}{remedy[1:].rstrip('.')}."
