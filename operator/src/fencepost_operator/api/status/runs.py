"""The runs of a pipeline, its Spark cluster, and which spec is in effect."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fencepost_operator.api.fields import FailureReason, Offsets
from fencepost_operator.api.model import Model
from fencepost_operator.api.moments import MaybeSince, MaybeUntil, Since


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus(Model):
    """The newest run, recorded before its Job exists."""

    name: str
    """Name of the Job."""
    epoch: int
    """Epoch under which the run may commit."""
    spec_hash: str
    """Hash of the part of the spec that the run was created from."""
    cluster_generation: int
    """Generation of the Spark cluster it runs on; 0 without workers."""
    recorded_at: Since
    """When it was recorded."""
    revision: str = ""
    """Name of the ControllerRevision with the spec that it runs with."""
    # Another committed_at of the row since is a commit of this run.
    resumed_from: datetime | None = None
    """Time of the last commit when the run was recorded."""
    # What this run has passed since is measured from it.
    resumed_offsets: int = 0
    """Sum of the committed offsets at that time."""
    # What this run has set aside since is measured from it.
    resumed_dead_letters: int = 0
    """Records that were set aside by that time."""
    # Set once the Job was seen.
    created_at: datetime | None = None
    """When its Job was created."""
    pod_name: str | None = None
    """Name of the driver's pod."""
    pod_uid: str | None = None
    """Uid of the driver's pod."""
    node_name: str | None = None
    """Node of the driver's pod."""
    node_uid: str | None = None
    """Uid of that node."""
    # Only where another pod would not know the run.
    master_uid: str | None = None
    """Uid of the pod of the Spark master that it started with."""
    started_at: datetime | None = None
    """When the driver's container started."""
    claimed_at: MaybeSince = None
    """When the fence row named its pod."""
    stop_requested_at: MaybeSince = None
    """When it was asked to stop."""
    ended_at: MaybeSince = None
    """When the run ended."""
    dead: bool | None = None
    """Whether it is proven that the run's process ended."""
    force_deleted: bool | None = None
    """Its pod was deleted with a grace period of zero, so that its absence proves nothing."""
    termination_grace: int | None = None
    """Seconds that its Job gives it to stop."""
    # The pod itself may be gone when its end is judged.
    disruption: str | None = None
    """Why Kubernetes ended its pod, such as EvictionByEvictionAPI or Evicted; absent where it did not."""
    finishes: bool | None = None
    """It only finishes a batch that its code began, and then exits; see finishing."""
    first_recorded_at: MaybeSince = None
    """When the first run in a row with the same spec was recorded."""
    commits: int | None = None
    """How often its offsets were seen to have grown; counted up to stableAfter."""
    code: str = ""
    """Hash of its code: images, codeFrom, entrypoint and args."""
    output: str = ""
    """Hash of everything that decides which rows it writes, such as its code, environment and sinks."""

    stood_by: bool | None = None
    """It was the standby of the run before; see spec.restart.standby."""

    @property
    def is_active(self) -> bool:
        """Whether its Job was seen and it has not ended."""
        return self.created_at is not None and self.ended_at is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus(Model):
    """The Spark cluster, recorded before Helm is called."""

    release: str
    """Name of the Helm release."""
    generation: int
    """Generation of the cluster. Two generations share no Secret, Service or pod."""
    config_hash: str
    """Hash of the values that the cluster was created from."""
    requested_at: Since
    """When the cluster was requested."""
    ready_at: datetime | None = None
    """When its master was first ready."""
    workers: int = 0
    """Number of workers requested."""
    ready_workers: int = 0
    """Number of ready workers."""
    selector: str = ""
    """Label selector of the workers' pods."""
    avoided_nodes: tuple[str, ...] = ()
    """Nodes that its pods keep away from where others have room; one was silent, or holds a driver that may live."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffStatus(Model):
    """The next run, which starts beside the one that works; see spec.upgrade.strategy and spec.restart.standby."""

    # Recorded before its cluster and its Job exist.
    name: str
    """Name of its Job."""
    epoch: int
    """Epoch that it awaits."""
    spec_hash: str
    """Hash of the part of the spec that it is created from."""
    cluster_generation: int
    """Generation of the Spark cluster that it starts on; 0 without workers."""
    revision: str
    """Name of the ControllerRevision with its spec."""
    code: str
    """Hash of its code: images, codeFrom, entrypoint and args."""
    since: Since
    """Since when it is to start."""
    # What status.cluster is not: it is the next run's in a handoff, and with a standby that of the run that works.
    cluster: ClusterStatus | None = None
    """The Spark cluster of the run that works; of a standby, its own."""
    standby: bool | None = None
    """It takes over only when the run that works fails; see spec.restart.standby."""
    given_up: str = ""
    """Why the run that works is stopped without waiting for the next one."""
    withdrawn: bool | None = None
    """It is not to take over any more, and its Job is deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyStatus(Model):
    """Why the standby of spec.restart.standby did not get warm, or ended; absent while none has failed."""

    revision: str
    """Name of the ControllerRevision with its spec; another spec is tried at once."""
    failures: int
    """Standbys in a row that failed."""
    message: str
    """How the newest one failed."""
    remedy: str
    """What to do."""
    next_attempt_at: MaybeUntil = None
    """When the next one starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverStatus(Model):
    """Which Kubernetes cluster has the pipeline, and how often this one took it over; absent without spec.failover."""

    owner: str
    """The uid of the cluster that owns the fence row, as it was last seen."""
    takeovers: int = 0
    """Takeovers by this cluster, each less than an hour after the one before. The next one waits for twice
    failover.takeOverAfter after the last one, for four times after two of them, and so on, up to half an hour."""
    taken_over_at: MaybeSince = None
    """When this cluster last took over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscaleStatus(Model):
    """The number of workers that the operator has chosen, and why; absent without spec.cluster.autoscale."""

    workers: int
    """Number of workers."""
    since: Since
    """Since when it is that number."""
    message: str = ""
    """Why it is that number."""
    # In backlogs of the run's spec; its hash is in `measured`.
    records_per_second: float | None = None
    """Records per second that one worker does of a backlog; absent until one was seen."""
    measured: str = ""
    """Hash of the part of the spec that was measured. With another one, the rate is measured again."""
    fewer: int | None = None
    """Number of workers that would have been enough since fewerSince."""
    fewer_since: MaybeSince = None
    """Since when fewer workers are enough."""
    limited_since: MaybeSince = None
    """Since when records wait for longer than targetTimeLag and more workers are not allowed, have no task, or do not
    get ready; the condition ScalingLimited follows after five minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureStatus(Model):
    """The newest failed run."""

    count: int
    """Failures in a row."""
    epoch: int
    """Epoch of the run."""
    at: Since
    """When it failed."""
    reason: FailureReason
    """Reason, in one CamelCase word."""
    message: str
    """What happened."""
    remedy: str
    """What to do."""
    exit_code: int | None = None
    """Exit code of the driver."""
    next_attempt_at: MaybeUntil = None
    """When the next run starts."""
    spec_hash: str = ""
    """Hash of the part of the spec that the run was created from."""
    repeats: int = 1
    """Failures in a row, up to this one, that had the same reason. NeverClaimed and Unresponsive count as one."""
    # None in the record of an older release, which counted all. The loss of a node or a pod is left out, and an outage
    # of a dependency, unless the operator sees none.
    attempts: int | None = None
    """Those of them that count towards restart.maxAttempts."""
    batch_records: int | None = None
    """Offsets that the batch covered that failed; absent where none was tried."""
    smallest: int = 0
    """Failures in a row in which a batch of one record ran out of memory."""
    log: tuple[str, ...] = ()
    """The last lines of the driver's log; the Job and its pod may be gone."""
    loss: str = ""
    """Id of the loss that ended the run; see status.loss."""
    retry: str = ""
    """restart.nonce and the annotation streaming.fencepost.dev/retry at that time. Another value resets the count."""
    batch_bounds: str = ""
    """Hash of the bounds of batches and of onPoison.failures at that time, absent at their defaults. Another value
    resets the count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishingStatus(Model):
    """A batch that other code began than what the spec names, while it is not committed. That code finishes it before
    the new code starts.
    """

    code: str
    """The code that began it."""
    revision: str
    """Name of the ControllerRevision with its spec."""
    since: Since
    """Since when it is to be finished."""
    until: Offsets
    """Where it ends, by topic/partition."""
    given_up: str = ""
    """Why its own code does not finish it; empty while that is tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StableStatus(Model):
    """The last spec that proved itself; see spec.upgrade.stableAfter."""

    revision: str
    """Name of the ControllerRevision with the spec."""
    epoch: int
    """Epoch of the run that proved it."""
    since: datetime
    """When it had proved itself."""
    outputs: tuple[str, ...] = ()
    """Hashes of what decides the rows of the last ten stable specs, the newest last. With upgrade.strategy Trial, a
    stateless pipeline whose images are named by digest goes back to one of them without a trial."""


class UpgradeTrialState(StrEnum):
    """Whether new code may run."""

    TRYING = "Trying"
    NOT_PASSED = "NotPassed"
    PASSED = "Passed"
    ACCEPTED = "Accepted"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeTrialStatus(Model):
    """The code of the object is new, and is tried before it runs; see spec.upgrade.strategy."""

    # Recorded before the PipelineTrial exists.
    name: str
    """Name of the PipelineTrial."""
    revision: str
    """Name of the ControllerRevision that is in effect until the new code may run."""
    code: str
    """Hash of what decides whether the object still asks for what is tried."""
    since: Since
    """Since when it is tried."""
    # Recorded before the PipelineTrial exists, so that retention keeps it.
    snapshot: str = ""
    """Id of the snapshot with which the trial of a stateful pipeline begins."""
    state: str = UpgradeTrialState.TRYING
    """Trying, NotPassed, Passed or Accepted. The new code runs once it is Passed or Accepted."""
    message: str = ""
    """What was found."""

    @property
    def may_run(self) -> bool:
        """Whether the new code may run."""
        return self.state in {UpgradeTrialState.PASSED, UpgradeTrialState.ACCEPTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackStatus(Model):
    """The spec of the object failed and was replaced by a stable one, until the spec changes."""

    revision: str
    """Name of the ControllerRevision that is in effect."""
    failed: str
    """Name of the ControllerRevision with the spec that failed."""
    failed_spec: str
    """Hash of what decides whether the object still asks for that spec."""
    at: datetime
    """When it was rolled back."""
    reason: str
    """Reason of the failure."""
    message: str
    """What failed."""
    retry: str = ""
    """Value of restart.nonce and the annotation retry at that time; another one tries again."""
