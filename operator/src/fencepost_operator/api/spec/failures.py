"""`spec.restart`, `spec.upgrade` and `spec.onPoison`: what happens when a run fails."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from fencepost_operator.api.checks import DurationRange
from fencepost_operator.api.effects import Effect
from fencepost_operator.api.fields import Line, Seconds
from fencepost_operator.api.model import Model
from fencepost_operator.api.spec.trials import TrialCompare, TrialLimits, TrialPromotion


class UnprovenDeath(StrEnum):
    """What to do about a run whose driver may still live, as on a node that Kubernetes has lost."""

    FENCE = "fence"
    WAIT = "wait"


class Standby(StrEnum):
    """Whether a second run waits to take over from one that fails."""

    NONE = "None"
    WARM = "Warm"


class Rollback(StrEnum):
    """Whether a new spec that fails is replaced by the last stable one."""

    ENABLED = "enabled"
    DISABLED = "disabled"


class UpgradeStrategy(StrEnum):
    """How a new spec takes the place of the one that runs."""

    IMMEDIATE = "Immediate"
    TRIAL = "Trial"
    HANDOFF = "Handoff"


class PoisonAction(StrEnum):
    """What happens to a record that fails alone."""

    STOP = "stop"
    DEAD_LETTER = "deadLetter"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartSpec(Model):
    """When a run is replaced, and the backoff before it."""

    max_backoff: Annotated[Seconds, DurationRange("1s", "24h", "30s, 5m or 1h30m")] = 300.0
    """Maximum delay between two attempts. The delay is n²+n seconds after n failures in a row."""
    start_timeout: Annotated[Seconds, DurationRange("30s", "24h", "3m or 15m")] = 180.0
    """A run that has not claimed its epoch this long after its container started is replaced. The first tasks of an
    executor may take as long before restart.stallTimeout begins, because it imports the author's code in them. Raise it
    where imports take long. For the claim it doubles after each run in a row that was too slow."""
    stall_timeout: Annotated[Seconds, DurationRange("10s", "24h", "30s, 2m or 1h30m")] = 60.0
    """A run that has records to read and neither commits nor makes progress inside its batch for this long is replaced.
    The first tasks of an executor count as progress for restart.startTimeout."""
    stop_timeout: Annotated[Seconds, DurationRange("1s", "24h", "20s or 5m")] | None = None
    """A run that is asked to stop, as for a changed spec or a suspension, may finish and commit its batch for this
    long; then it is fenced, and the next run starts on a Spark cluster of its own. By default it has the whole of
    job.terminationGracePeriodSeconds, after which Kubernetes ends it."""
    max_attempts: Annotated[int, Field(ge=0, le=1000)] = 20
    """Failures in a row after which the pipeline is Stalled and waits for a human; 0 tries forever. 20 take about an
    hour. A dependency that does not answer, and a pod or node that is lost, do not count; a Kafka or Cassandra that
    does not answer the driver alone, and the operator always, does. A commit of records resets the count, unless the
    run set as many aside as it passed; so does a driver that lives for stallTimeout with nothing to read."""
    nonce: Annotated[Line, Field(max_length=64)] = ""
    """Any text. Another value resets the count and starts a run, also where the pipeline is Stalled; a run that streams
    continues."""
    standby: Standby = Standby.NONE
    """Warm: a second run of the same spec waits beside the one that works, on another node where there is one, with a
    Spark cluster of its own, and takes over as soon as that one fails; see the condition StandbyReady. It needs room
    for both. Another spec and another number of workers start another standby. With job.mode Stateful it is refused."""
    on_unproven_death: UnprovenDeath = UnprovenDeath.FENCE
    """What happens when the driver's node is lost and nothing proves that the driver is dead. fence: it is fenced, and
    the next run starts at once. wait: it may continue to commit, and the next run waits for the proof, or for an
    annotation that confirms the death."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StableAfterSpec(Model):
    """When a spec counts as stable, which status.stable then names."""

    commits: Annotated[int, Field(ge=1, le=1000)] = 3
    """Number of commits of one run that moved the offsets, as far as the operator has seen them."""
    window: Annotated[Seconds, DurationRange("1s", "24h", "5m or 1h")] = 300.0
    """How long that run has held the fence without a restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeTrialSpec(Model):
    """The trial of new code with strategy Trial."""

    since: Annotated[Seconds, DurationRange("1s", "168h", such_as="1h or 30m")] = 3600.0
    """The new code processes what the pipeline has committed so long before the trial, or since its first commit. That
    of a stateful pipeline begins with the newest snapshot that is so old; without one, the operator takes one and waits
    until it is."""
    promote_when: TrialPromotion = field(default_factory=TrialPromotion)
    """What the trial must find for the new code to run. It is applied to a trial that has ended, too."""
    compare: TrialCompare = field(default_factory=TrialCompare)
    limits: TrialLimits = field(default_factory=TrialLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeSpec(Model):
    """How new code takes the place of the code that runs, and what happens when a new spec fails before it is
    stable.
    """

    strategy: UpgradeStrategy = UpgradeStrategy.IMMEDIATE
    """Immediate: new code runs at once. Trial: at a change of job.image, cluster.image, job.codeFrom, job.entrypoint or
    job.args, the operator first creates a PipelineTrial, and the code before continues to run. The new code runs once
    the trial holds trial.promoteWhen; otherwise the pipeline is Stalled with reason TrialNotPassed until the code
    changes or is accepted. Handoff: at a change that needs another run, the next run starts beside the one that works,
    on a Spark cluster of its own, and takes over once it is warm; see status.handoff. It needs room for both. Where it
    has none, or a Secret or the operator's chart is all that changed, the run is stopped first, as with Immediate. A
    next run that fails before it takes over is deleted, the run before continues, and the pipeline is Stalled with
    reason RolledBack until the spec changes. With job.mode Stateful it is refused."""
    trial: UpgradeTrialSpec = field(default_factory=UpgradeTrialSpec)

    rollback: Rollback = Rollback.DISABLED
    """enabled: a new spec that causes a failure is replaced by the last stable one, which continues with the newest
    offsets; the object keeps its spec, and the pipeline is Stalled with reason RolledBack until the spec changes. An
    outage, a lost node, a quota or lost records never roll back. disabled: a new spec that fails is Stalled. With
    job.mode Stateful only disabled is accepted."""
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """Failures of the new spec's own runs in a row without progress after which it is rolled back. A bad spec and a
    poison record are rolled back at once, and a spent restart.maxAttempts in any case."""
    deadline: Annotated[Seconds, DurationRange("1m", "24h", "10m or 1h")] = 1800.0
    """How long after its first run started a failure of a spec that is not stable yet counts as the spec's. Later, only
    a spent restart.maxAttempts rolls back."""
    stable_after: StableAfterSpec = field(default_factory=StableAfterSpec)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverSpec(Model):
    """The same pipeline in several Kubernetes clusters with one fence: one runs it, and the others wait in the phase
    Standby until that one is lost. The namespace, the name and the operator's scope must be the same in each.
    """

    take_over_after: Annotated[Seconds, DurationRange("30s", "15m", "30s or 2m")] = 30.0
    """A cluster that waits takes over once the one that owns the fence has neither committed nor given a sign of life
    for this long, by the monotonic clock of the one that waits. The operator gives a sign every five seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnPoisonSpec(Model):
    """What happens to a record that fails the transform or a sink each time it is tried alone, while other records
    pass. A run looks for such a record when a batch has failed several times for what is in it.
    """

    action: PoisonAction = PoisonAction.STOP
    """stop: the pipeline is Stalled and names the record. deadLetter: the record goes to the table dead_letters in the
    fence's keyspace, and the pipeline continues after it. With job.mode Stateful only stop is accepted, and the run
    looks for the record with empty state."""
    failures: Annotated[int, Field(ge=1, le=100), Effect.NEXT_RUN] = 3
    """Failures in a row of the same batch; after these a run looks for the record. With restart.maxAttempts, its last
    attempt does so at the latest."""
    retention: Annotated[Seconds, DurationRange("1h", "8760h", "24h or 720h")] = 30 * 24 * 3600.0
    """How long a dead letter is kept, from 1h to 8760h."""
