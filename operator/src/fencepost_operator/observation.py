"""One frozen snapshot of everything that a decision depends on, as far as it could be observed.

Each fact is `Known(value)` or `Unknown(why)`.  Unknown never equals absent: `Known(None)` says that a thing does
not exist, `Unknown` that it could not be observed.  A fact that not every decision needs may also be `NotAsked()`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Generic, TypeAlias, TypeVar

from fencepost.contract import ReportedLoss, Verdict
from fencepost.contract.purge_request import PurgeReport
from fencepost.contract.trial import TrialReport
from fencepost.fence import BatchProgress, FenceRow
from fencepost.fence.snapshots import Snapshot
from fencepost.state.state_check import StateCheck
from fencepost_operator.api.pipeline import Pipeline
from fencepost_operator.api.revision import Revision
from fencepost_operator.api.rewind import Rewind
from fencepost_operator.api.trial import Trial
from fencepost_operator.autoscaling.arrivals import Arrivals

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Known(Generic[T_co]):
    """A fact that was observed."""

    value: T_co


class UnknownReason(StrEnum):
    """Why a fact could not be observed."""

    UNREACHABLE = "Unreachable"
    DENIED = "Denied"
    REJECTED = "Rejected"
    BUSY = "Busy"
    """The request waits for its turn in a queue of the operator: no server is at fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A fact that could not be observed; `message` and `remedy` are for the user."""

    reason: UnknownReason
    message: str
    remedy: str = ""

    @property
    def is_transient(self) -> bool:
        """Whether there was no answer; a refusal lasts until a user corrects its cause."""
        return self.reason in {UnknownReason.UNREACHABLE, UnknownReason.BUSY}


Fact: TypeAlias = Known[T_co] | Unknown


@dataclass(frozen=True, slots=True)
class NotAsked:
    """A fact that was not observed, because no decision depends on it now."""


Unseen: TypeAlias = Unknown | NotAsked


DRIVER_ONLY: Final = Unknown(
    reason=UnknownReason.DENIED,
    message="the age and the retention of unread records are unknown: only the driver may connect to this Kafka",
    remedy="watch the topics' retention yourself, or use TLS, PLAIN or SCRAM in source.kafka.propertiesFrom",
)
"""What the operator says of a source with OAuth, Kerberos or files, where it does not connect itself."""


class ReleaseState(StrEnum):
    """State of a pipeline's Helm release, from the label of its newest revision."""

    DEPLOYED = "deployed"
    PENDING = "pending"
    FAILED = "failed"
    UNINSTALLING = "uninstalling"


NODE_LOST: Final = "NodeLost"
"""An issue that the operator itself detects, under the name that Kubernetes once used for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodIssue:
    """A pod of the cluster or the run that cannot start, in the words of Kubernetes.

    `reason` is a container waiting reason or scheduling reason (ImagePullBackOff, Unschedulable, CrashLoopBackOff,
    CreateContainerConfigError, FailedCreate …) or NODE_LOST; `message` is the cluster's message.
    """

    pod: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryKill:
    """A container of the cluster that the kernel killed for memory; `limit` as the pod has it, '' without one."""

    pod: str
    at: datetime
    limit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkCluster:
    """The Spark cluster as it exists: its StatefulSets, by their labels and annotations.

    `config_hash` is the annotation that the values carried; it says whether the cluster is the desired one.
    `master_runs` says that the master's container runs, and that it is its first one: it is about to be ready.
    `master_uid` is that of the master's pod where the master's memory ends with it, and `master_created_at` is when
    that was created; None with a volume.
    """

    generation: int
    config_hash: str
    workers: int
    ready_workers: int
    master_ready: bool
    master_runs: bool = False
    master_uid: str | None = None
    master_created_at: datetime | None = None
    master_node: str | None = None
    worker_nodes: frozenset[str] = frozenset()
    issues: tuple[PodIssue, ...] = ()
    memory_kills: tuple[MemoryKill, ...] = ()
    """The newest of each pod, as far as its status has it."""
    others: tuple[SparkCluster, ...] = ()
    """What is there of other generations, the newest first."""

    def seen_from(self, generation: int) -> SparkCluster:
        """Return the cluster of a generation, with all others; this one where that generation has none."""
        there = (self, *self.others)
        found = next((each for each in there if each.generation == generation), self)
        return replace(found, others=tuple(replace(each, others=()) for each in there if each is not found))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterObject:
    """An object that Helm created for one generation of the pipeline's cluster, and that is not being deleted."""

    kind: str
    name: str
    uid: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterObjects:
    """What is there of all generations, and which objects of the deployed revision are missing or changed.

    `damage` is for messages, such as 'Service orders-g1-master was deleted'.
    """

    found: tuple[ClusterObject, ...] = ()
    damage: tuple[str, ...] = ()


class Liveness(StrEnum):
    """Whether a run's driver is known to be dead."""

    ALIVE = "Alive"
    """Its container runs, or may start at any moment."""
    DEAD = "Proven"
    """Its container terminated, or its pod is gone while its node (same uid) is Ready, or no pod ever was."""
    UNKNOWN = "Unproven"
    """Its pod is gone or stuck, and nothing proves that the process ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPod:
    """The run's pod. Times are when Kubernetes says that they happened, but for `deleting_since` in a decision.

    That is since when this process has seen that the pod is being deleted, by its monotonic clock.
    """

    name: str
    uid: str
    phase: str
    node: str | None
    node_uid: str | None
    node_ready: bool | None
    started_at: datetime | None
    deleting_since: datetime | None
    exit_code: int | None
    termination_reason: str | None
    """OOMKilled, Error, Completed … once the container has terminated."""
    finished_at: datetime | None
    verdict: Verdict | None
    issue: PodIssue | None
    log: tuple[str, ...] = ()
    """The last lines of its log, from its verdict or as the kubelet kept them."""
    disruption: str = ""
    """Why Kubernetes ended it: the reason of its condition DisruptionTarget, or Evicted, Preempting … of its status."""
    disruption_message: str = ""
    node_ready_since: datetime | None = None
    """As `NodeState.ready_since`."""
    force_deleted: bool = False
    """It was deleted with a grace period of zero before its container ended: that it vanishes proves nothing."""
    ready: bool = False
    """Its startup probe has succeeded, where it has one: a run that awaits its epoch is warm."""


DEFAULT_GRACE: Final = 30
"""Kubernetes' own terminationGracePeriodSeconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A driver Job, named `<pipeline>-run-<epoch>`, and its pod when there is one; or the pod that outlives its Job."""

    name: str
    epoch: int
    spec_hash: str
    cluster_generation: int
    created_at: datetime
    deleting: bool
    """Nothing needs to delete the Job any more: it is being deleted, or gone."""
    finished: bool
    """The Job controller says Complete or Failed."""
    pod: DriverPod | None
    issue: PodIssue | None = None
    """What keeps the Job from a pod: quota, admission."""
    orphaned: bool = False
    """The Job is gone and its pod was left without an owner (`--cascade=orphan`): nothing asks it to end."""
    termination_grace: int = DEFAULT_GRACE
    """Seconds between SIGTERM and SIGKILL, as the Job was created; the spec may ask for another value by now."""
    had_pod: bool = False
    """A pod is there, or the Job controller has counted one. False: no driver has started so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunList:
    """The runs of a pipeline, oldest epoch first, and the resourceVersion of the pods as of which they are listed."""

    runs: tuple[Run, ...]
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """What is known of the node that the recorded run's pod was on: its uid and readiness, or that it is gone.

    `ready_since` is when it became ready or stopped to be, by a clock of the cluster; None where that is not known.
    """

    name: str
    uid: str | None
    ready: bool
    ready_since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermarks:
    """Kafka's side, offsets per 'topic/partition', and the topics that do not exist.

    `ends` is how far a consumer with the pipeline's isolation level may read.  `starts` and `high_watermarks` hold what
    is known; a high watermark past the end means that a transaction is open.
    """

    ends: Mapping[str, int]
    missing_topics: tuple[str, ...] = ()
    starts: Mapping[str, int] = field(default_factory=dict)
    high_watermarks: Mapping[str, int] = field(default_factory=dict)
    by_driver: bool = False
    """Only the driver may connect to Kafka: `ends` is what it saw at its last commit, and says nothing of now."""
    offline: tuple[str, ...] = ()
    """Partitions that exist and for which no leader answers, sorted; they have no end."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """As far as known; a topic that is deleted and created again has another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """After what time, and beyond what size in bytes, Kafka deletes a topic's records; None is without that limit."""

    time: timedelta | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStart:
    """Where a partition's log began when its start last advanced, and how many offsets per second it advances."""

    offset: int
    at: datetime
    per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadRecords:
    """What threatens records that are not committed: retention per topic, the other facts per 'topic/partition'.

    `oldest` is since when the oldest uncommitted record of a partition has been there: at most 5 s, or 1 % of its age,
    and the 15 s for which an answer is kept, before its timestamp.  A partition that has none, or where it is not found
    yet, is absent, and so is the log start of one that was not seen to advance.
    """

    retention: Mapping[str, Fact[Retention]] = field(default_factory=dict)
    oldest: Mapping[str, datetime] = field(default_factory=dict)
    log_starts: Mapping[str, LogStart] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What is not committed, in figures at one moment: durations in seconds, None where unknown or without an end.

    `lags` are records per 'topic/partition'.
    """

    time_lag: float | None = None
    time_to_loss: float | None = None
    lags: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """Objects that the spec names: a hash of each one's content, None where it does not exist.

    Keys are 'ConfigMap/name' and 'Secret/name'.
    """

    hashes: Mapping[str, str | None]

    def missing(self) -> tuple[str, ...]:
        """Return the names of what does not exist, sorted."""
        return tuple(sorted(name for name, digest in self.hashes.items() if digest is None))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyspaceSettings:
    """How a keyspace is replicated: CQL's map, with `class` and the replicas of each datacenter or in total."""

    replication: Mapping[str, str]
    durable_writes: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CassandraSettings:
    """The nodes of each datacenter, the keyspaces that were asked for (None: absent), and how the log is synced.

    `commitlog_sync` is None where it cannot be read; `unreadable` then says why, or what grant is missing.
    """

    nodes: Mapping[str, int]
    keyspaces: Mapping[str, KeyspaceSettings | None]
    commitlog_sync: str | None = None
    unreadable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """What decides whether an acknowledged record survives: `replicas` is the least of any partition.

    None is what may not be read or is not said.
    """

    replicas: int | None = None
    min_insync_replicas: int | None = None
    unclean_leader_election: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DurabilityFacts:
    """What a check of the durability settings found. Cassandra is not asked without a fence in it.

    The topics are None where only the driver connects to Kafka.
    """

    cassandra: Fact[CassandraSettings] | NotAsked
    topics: Fact[Mapping[str, TopicSettings] | None]
    sinks: Mapping[str, Fact[Mapping[str, TopicSettings] | None]] = field(default_factory=dict)
    """Of each Kafka sink, by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeSigns:
    """What this process has seen of the operator of another Kubernetes cluster with the same fence.

    `cluster` is its uid.  `silent_for` is in seconds of this process's monotonic clock, and `has_moved` says whether a
    sign was given since this process looks.  `note` is why that cluster could not run the pipeline, '' where it could.
    """

    cluster: str
    silent_for: float
    has_moved: bool
    note: str = ""


def reports_matter(row: FenceRow, *, by_driver: bool) -> bool:
    """Return whether a driver's reports are read: inside a batch, or where only the driver may connect to Kafka."""
    return row.driver is not None and (by_driver or not row.is_between_batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeJob:
    """The Job that counts or deletes output for a rewind.

    `message` is why its newest pod failed, `exit_code` how that pod's container ended, None where neither is known.
    `issue` is what keeps it from a pod that runs.
    """

    name: str
    is_done: bool = False
    is_failed: bool = False
    report: PurgeReport | None = None
    message: str = ""
    exit_code: int | None = None
    issue: PodIssue | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialJob:
    """The Job of a trial: as a run's, with the report that its pod wrote, and whether it took too long."""

    run: Run
    report: TrialReport | None = None
    is_late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingPoint:
    """What a pipeline had committed at a moment, of each topic; `clock` is the fence row's, in µs."""

    offsets: Mapping[str, int]
    topic_ids: Mapping[str, str]
    clock: int
    snapshot: str = ""
    """The id of the snapshot that it is, '' where it is of the history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoStart:
    """The history has no offsets of that moment, or not of each topic.

    `earliest` is the first moment that has one; None where no later one has, and for a snapshot.
    """

    earliest: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFacts:
    """What a trial depends on, as far as its next step needs it; `now` is when it was seen."""

    now: datetime
    pipeline: Fact[Pipeline | None]
    row: Fact[FenceRow | None] | NotAsked = NotAsked()
    start: Fact[StartingPoint | NoStart] | NotAsked = NotAsked()
    """What the pipeline had committed where the trial begins."""
    references: Fact[References] | NotAsked = NotAsked()
    """The objects that the spec names that is tried."""
    job: Fact[TrialJob | None] | NotAsked = NotAsked()
    progress: Fact[BatchProgress | None] | NotAsked = NotAsked()


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindFacts:
    """What the current rewind depends on besides its pipeline, as far as its next step needs it."""

    snapshot: Fact[Snapshot | None] | NotAsked = NotAsked()
    """The one that the target names."""
    state: Fact[StateCheck] | NotAsked = NotAsked()
    """Whether the files of its state are there, before anything is stopped."""
    positions: Fact[Mapping[str, int]] | NotAsked = NotAsked()
    """Kafka's first offsets at or after the target's timestamp; NO_RECORD if no such record exists."""
    backup: Fact[Snapshot | None] | NotAsked = NotAsked()
    held: Fact[Snapshot | None] | NotAsked = NotAsked()
    """The rewind's own copy of the one that the target names."""
    job: Fact[PurgeJob | None] | NotAsked = NotAsked()
    """The Job of the step: the one that counts, or the one that deletes."""
    first_commit: Fact[Mapping[str, int] | None] | NotAsked = NotAsked()
    """The offsets at which the first commit after the rewind began, by the fence's history; Known(None) without one."""


NO_RECORD: Final = -1
"""Kafka's answer for a timestamp after which there is no record. librdkafka has a lower one for no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """A kept spec, as of the code that began the open batch: None where it is gone, and what it names now."""

    revision: Revision | None
    references: References = field(default_factory=lambda: References(hashes={}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The world around one pipeline at one moment."""

    now: datetime
    references: Fact[References]
    release: Fact[ReleaseState | None]
    cluster: Fact[SparkCluster | None]
    runs: Fact[tuple[Run, ...]]
    """All driver Jobs of the pipeline that the operator made, and pods that outlive theirs, oldest epoch first."""
    fence: Fact[FenceRow | None]
    source: Fact[Watermarks] | NotAsked
    run_node: Fact[NodeState] | NotAsked = NotAsked()
    """The node of the pod in status.run, when its pod is gone."""
    silent_nodes: Fact[frozenset[str]] | NotAsked = NotAsked()
    """Of the nodes of the run and its cluster, those that are silent."""
    unread: Fact[UnreadRecords] | NotAsked = NotAsked()
    cluster_objects: Fact[ClusterObjects] | NotAsked = NotAsked()
    """Up to minutes old."""
    progress: Fact[BatchProgress | None] | NotAsked = NotAsked()
    """The driver's newest report, where `reports_matter`."""
    heartbeat: Fact[BatchProgress | None] | NotAsked = NotAsked()
    """The driver's newest heartbeat, asked for while records wait and the row stays as it is."""
    heartbeat_asked: datetime | None = None
    """When it was asked for; None where it was not."""
    other_cluster: Fact[LifeSigns | None] | NotAsked = NotAsked()
    """With spec.failover, of the Kubernetes cluster that owns the row, or to which this one is to move it; Known(None)
    where it has given no sign of life within an hour."""
    loss: Fact[ReportedLoss | None] | NotAsked = NotAsked()
    """The loss that ended the newest run, with its acceptance; Known(None) if a later run has got past it."""
    durability: DurabilityFacts | None = None
    """None when no check was due."""
    snapshots: Fact[tuple[Snapshot, ...]] | NotAsked = NotAsked()
    """The facts of the pipeline's snapshots, the newest first."""
    pinned: Fact[frozenset[str]] | NotAsked = NotAsked()
    """The ids of those that retention does not keep, and pipelines of the namespace pin."""
    arrivals: Arrivals | None = None
    """How fast records arrive by what this process has seen of the log; None where that is not needed or not known."""
    is_first: bool = False
    """Whether this process has recorded no pass over the pipeline yet: what the status says is by another clock."""
    measured_since: datetime | None = None
    """Since when no other operator has written to the status moments of its own clock; None where that is not known."""
    stop_measured_since: datetime | None = None
    """Since when this process has known that the run in status.run was asked to stop, by its monotonic clock; None
    where it was not asked."""
    node_measured_since: datetime | None = None
    """Since when this process has seen the node of the run in status.run in its state, by its monotonic clock; None
    where it is not seen."""
    deletion_measured_since: datetime | None = None
    """Since when this process has known that the pipeline is being deleted, by its monotonic clock; None where it is
    not."""
    may_restart: bool = True
    """Whether the fleet's limit lets a healthy run be replaced by plan now."""
    may_replace: bool = True
    """Whether a run may be replaced now for want of heartbeats: not where many have lost them at once."""
    run_terminated: bool = False
    """The container of the pod in status.run terminated no later than `runs` was listed; False proves nothing."""
    stored_revision: Fact[str | None] | NotAsked = NotAsked()
    """The name of the revision of this very spec, if it is stored."""
    began: Fact[Began] | NotAsked = NotAsked()
    """Of the open batch, while no run is active or one finishes it."""
    namespace_ends: Fact[bool] | NotAsked = NotAsked()
    """Whether the pipeline's namespace is being deleted."""
    working: Fact[Began] | NotAsked = NotAsked()
    """Of the revision that the active run runs with, where another one is asked for that may start beside it."""
    stable: Fact[Began] | NotAsked = NotAsked()
    """Of the stable revision, while a run has ended or not claimed."""
    upgrade_trial: Fact[Trial | None] | NotAsked = NotAsked()
    """The PipelineTrial that the upgrade waits for, while it does."""
    rewinds: Fact[tuple[Rewind, ...]] = Known(())
    """The pipeline's rewinds that are not over, in any order."""
    rewind: RewindFacts = RewindFacts()
    """Of the rewind that is next."""

    def node_of(self, run: str) -> NodeState | None:
        """Return what is known of the node of the run in status.run, by its name: with its pod, or after it."""
        runs = self.runs.value if isinstance(self.runs, Known) else ()
        pod = next((each.pod for each in runs if each.name == run), None)
        if pod is None:
            return self.run_node.value if isinstance(self.run_node, Known) else None
        if pod.node is None or pod.node_ready is None:
            return None
        return NodeState(name=pod.node, uid=pod.node_uid, ready=pod.node_ready, ready_since=pod.node_ready_since)

    def seen_from(self, generation: int) -> Observation:
        """Return the observation in which the cluster of a generation is the pipeline's, where there is one."""
        if not isinstance(self.cluster, Known) or self.cluster.value is None:
            return self
        return replace(self, cluster=Known(self.cluster.value.seen_from(generation)))

    def cluster_of(self, generation: int) -> SparkCluster | None:
        """Return the Spark cluster of a generation; None where it is unknown, or not there."""
        recorded = self.cluster.value if isinstance(self.cluster, Known) else None
        seen = (recorded, *recorded.others) if recorded is not None else ()
        return next((each for each in seen if each.generation == generation), None)
