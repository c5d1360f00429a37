"""What we say about a pipeline, as frozen dataclasses; `codec` turns them into the CR's status and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from fencepost_operator.api.fields import FailureReason, Model
from fencepost_operator.api.loss_status import AcceptedLossStatus, LossStatus
from fencepost_operator.api.moments import MaybeSince, MaybeUntil, Since, Times
from fencepost_operator.api.page_status import PageStatus
from fencepost_operator.api.vocabulary import Condition, State


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus(Model):
    """The run that the operator last recorded; written before its Job exists.

    `resumed_from` is the row's committed_at when the run was recorded: another one since is a commit of this run.
    `resumed_offsets` is the sum of the row's offsets then, and `resumed_dead_letters` its count of dead letters: what
    this run has passed and set aside since is measured from them.
    `created_at` is set once its Job was seen, `claimed_at` once the fence row named its pod, `ended_at` once it was
    over; `dead` then says whether its process is proven to have ended.
    """

    name: str
    epoch: int
    spec_hash: str
    cluster_generation: int
    recorded_at: Since
    revision: str = ""
    """The ControllerRevision with the spec that it runs with."""
    resumed_from: datetime | None = None
    resumed_offsets: int = 0
    resumed_dead_letters: int = 0
    created_at: datetime | None = None
    pod_name: str | None = None
    pod_uid: str | None = None
    node_name: str | None = None
    node_uid: str | None = None
    master_uid: str | None = None
    """Uid of the pod of the Spark master that it started with, where another pod would not know it."""
    started_at: datetime | None = None
    claimed_at: MaybeSince = None
    stop_requested_at: MaybeSince = None
    ended_at: MaybeSince = None
    dead: bool | None = None
    force_deleted: bool | None = None
    """Its pod was seen to be deleted with a grace period of zero: that it is gone proves nothing."""
    termination_grace: int | None = None
    """Its Job's terminationGracePeriodSeconds."""
    disruption: str | None = None
    """Why Kubernetes ended its pod, in Kubernetes' word; the pod itself may be gone when its end is judged."""
    finishes: bool | None = None
    """The run only finishes a batch that its code began, and then ends."""
    first_recorded_at: MaybeSince = None
    """When the first run of the same spec in a row was recorded."""
    commits: int | None = None
    """In how many passes its offsets had grown, as far as that is counted."""

    @property
    def is_active(self) -> bool:
        """Whether its Job was seen and it has not ended."""
        return self.created_at is not None and self.ended_at is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus(Model):
    """The Spark cluster that the operator last asked for; written before Helm is called.

    `ready_at` is when its master was first seen ready.  `avoided_nodes` fell silent, or hold a driver that may live,
    when it was requested: its pods prefer others.
    """

    release: str
    generation: int
    config_hash: str
    requested_at: Since
    ready_at: datetime | None = None
    workers: int = 0
    ready_workers: int = 0
    selector: str = ""
    avoided_nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedStatus(Model):
    """The newest commit that was seen in the fence row.

    `since` is when the offsets last moved or records began to wait for them, None while nothing waits.
    A new partition that the growth barrier holds back does not count as waiting.
    `observable_since` is since when Kafka and Cassandra have both answered, None while one does not: no driver is
    replaced for an outage of its dependencies.  `done` is what the driver reported of the batch that begins at
    `version`, and `done_at` when that last grew.  Where only the driver may connect to Kafka, `signed` is Cassandra's
    time of its newest sign of life, and `alive_at` when that, or a commit after it, was first seen.
    """

    version: int
    at: datetime | None = None
    since: MaybeSince = None
    observable_since: MaybeSince = None
    records: int | None = None
    offsets: Mapping[str, int] = field(default_factory=dict)
    done: int | None = None
    done_at: MaybeSince = None
    signed: datetime | None = None
    alive_at: MaybeSince = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputStatus(Model):
    """How fast records are committed, by the newest complete window, and the window that began at `since`.

    `estimated_catch_up` is a duration such as 12m: 0s when the pipeline keeps up, None when it is not known or not in
    sight.  `records` were committed since `since`, when `lag` records waited; `since` is None until the next commit
    begins a window.  `growing_seconds` is how long all windows in a row have lasted that ended with a larger lag than
    they began with, though more waited than a batch holds.
    """

    since: MaybeSince = None
    records_per_second: int | None = None
    estimated_catch_up: str | None = None
    records: int = 0
    lag: int = 0
    growing_seconds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction(Model):
    """A transaction that keeps consumers from reading past `offset` of a partition, since when it was first seen so.

    `records` is how far the high watermark is ahead.  The status has the ones that are open for longest.
    """

    partition: str
    offset: int
    since: Since
    records: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflinePartition(Model):
    """A partition for which no leader answers the operator, since when it was first seen so."""

    partition: str
    since: Since


@dataclass(frozen=True, slots=True, kw_only=True)
class DataRisk(Model):
    """The partition whose unread records Kafka deletes first. All times are moments, which waiting does not change.

    `offset` is the next one to read, and `oldest_uncommitted_at` since when its record has been there.  `expires_at` is
    when Kafka may delete it, by the topic's setting named in `limit`; by `retention.bytes` it is an estimate.
    `warn_at` is when the condition RetentionRisk begins.  `lost_records` are gone already.  `unknown` says what could
    not be found out, and what to do about it.
    """

    partition: str | None = None
    offset: int | None = None
    oldest_uncommitted_at: datetime | None = None
    expires_at: datetime | None = None
    warn_at: datetime | None = None
    limit: str | None = None
    retention_ms: int | None = None
    retention_bytes: int | None = None
    lost_records: int | None = None
    unknown: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeakSetting(Model):
    """A setting with which an acknowledged write can be lost: where it is, what it is, what it should be."""

    setting: str
    where: str
    found: str
    wanted: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DurabilityStatus(Model):
    """The newest check of the durability settings, of the spec of `generation`.

    `unknown` says what could not be read.  A check that is not `complete` had no answer from one side and is repeated
    sooner.
    """

    checked_at: Since
    generation: int
    complete: bool
    weak: tuple[WeakSetting, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureStatus(Model):
    """The newest failed run, and how many failed in a row without progress between them.

    `repeats` counts those of them, up to the newest, that failed for the same reason; NeverClaimed and
    Unresponsive count as one.  `attempts` counts those that restart.maxAttempts bounds, None in the record of an older
    release, which counted all: the loss of a node or a pod is left out, and an outage of a dependency, unless the
    operator sees none.
    `batch_records` is how many offsets the batch covered that failed, None where none was tried, as before the claim;
    `smallest` counts the failures in a row in which a batch of one record ran out of memory.
    """

    count: int
    epoch: int
    at: Since
    reason: FailureReason
    message: str
    remedy: str
    exit_code: int | None = None
    next_attempt_at: MaybeUntil = None
    spec_hash: str = ""
    repeats: int = 1
    attempts: int | None = None
    batch_records: int | None = None
    smallest: int = 0
    log: tuple[str, ...] = ()
    """The last lines of its log; the Job and its pod may be gone."""
    loss: str = ""
    """The id of the recorded loss that ended it; '' for any other failure."""
    retry: str = ""
    """The retry token at that time: restart.nonce and the annotation. Another one resets the budget."""
    batch_bounds: str = ""
    """The hash of the bounds of batches at that time, '' at their defaults. Another one resets the budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettersStatus(Model):
    """The records that were set aside, as the fence row counts them; `last` is 'topic/partition@offset'."""

    count: int
    last: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishingStatus(Model):
    """A batch that other code began than what the spec names, while it is not committed.

    `until` maps 'topic/partition' to where it ends.  `given_up` is why its own code does not finish it, '' while that
    is tried.
    """

    code: str
    revision: str
    since: Since
    until: Mapping[str, int]
    given_up: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StableStatus(Model):
    """The last spec that was proven: its ControllerRevision, and the run and the moment that proved it."""

    revision: str
    epoch: int
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackStatus(Model):
    """A spec that failed and was replaced by a stable one, until the spec changes or another attempt is asked for.

    `revision` is the one in effect and `failed` the one that is not; `failed_spec` and `retry` show whether the object
    still asks for that same one.
    """

    revision: str
    failed: str
    failed_spec: str
    at: datetime
    reason: str
    message: str
    retry: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange(Model):
    """Offsets [from_offset, until_offset) of a partition."""

    partition: str
    from_offset: int
    until_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedOutput(Model):
    """Records of which two codes may have written rows: `after` took over in `epoch`, because of `why`.

    `ranges` has the first ones; `records` counts the offsets of all `partitions`.
    """

    epoch: int
    at: datetime
    before: str
    after: str
    why: str
    records: int = 0
    partitions: int = 0
    ranges: tuple[OffsetRange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotStatus(Model):
    """One snapshot: `code` is the image and what ran of it."""

    id: str
    trigger: str
    at: datetime
    name: str = ""
    epoch: int | None = None
    version: int | None = None
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotsStatus(Model):
    """What is known of the snapshots: how many, the newest ones, and when the oldest was taken.

    `pending` is one that was decided on and not yet seen: recorded before it is written.  `requested` is the value of
    the snapshot annotation that was honoured last.  `message` says why one is not written.
    """

    count: int = 0
    oldest_at: datetime | None = None
    last: SnapshotStatus | None = None
    recent: tuple[SnapshotStatus, ...] = ()
    pending: SnapshotStatus | None = None
    requested: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status(Model):
    """What we say. `lag` counts records, None while unknown; `observed_generation` -1 before the first look."""

    observed_generation: int = -1
    observed_since: datetime | None = None
    """Since when the status is about that generation, None where an operator wrote it that does not know the field."""
    state: State = State.PENDING
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    epoch: int | None = None
    restarts: int = 0
    lag: int | None = None
    throughput: ThroughputStatus | None = None
    run: RunStatus | None = None
    cluster: ClusterStatus | None = None
    committed: CommittedStatus | None = None
    failure: FailureStatus | None = None
    dead_letters: DeadLettersStatus | None = None
    rewind: str | None = None
    """The PipelineRewind that keeps the pipeline from running."""
    open_transactions: tuple[OpenTransaction, ...] = ()
    offline_partitions: tuple[OfflinePartition, ...] = ()
    """Of these the lag is unknown: `lag` counts the others."""
    data_risk: DataRisk | None = None
    loss: LossStatus | None = None
    accepted_losses: tuple[AcceptedLossStatus, ...] = ()
    durability: DurabilityStatus | None = None
    snapshots: SnapshotsStatus | None = None
    finishing: FinishingStatus | None = None
    begun: Mapping[str, int] = field(default_factory=dict)
    """Where batches end that a rewind left open, as long as that is ahead: the row keeps no plan through a rewind."""
    mixed_output: tuple[MixedOutput, ...] = ()
    stable: StableStatus | None = None
    rolled_back: RollbackStatus | None = None
    fence_unreachable_since: MaybeSince = None
    """Of a deleted pipeline: since when its Cassandra has not answered, None after any answer, a refusal as well."""
    not_ready_since: MaybeSince = None
    """Since when the pipeline is neither ready, stalled, nor in a planned step."""
    unobserved_since: MaybeSince = None
    """Since when no pass has seen all that Ready is about: the driver's Jobs, the fence row, Kafka's offsets."""
    restarted_at: Times = ()
    """When the last four runs replaced one that had failed."""
    pages: tuple[PageStatus, ...] = ()
    """Written together with the condition that causes them."""
    planned_restart_since: MaybeSince = None
    """Since when a healthy run is replaced by plan, until its successor streams; it counts for the fleet's limit."""
