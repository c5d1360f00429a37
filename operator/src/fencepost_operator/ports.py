"""What the loop needs of the world. Adapters and the tests' in-memory world implement these, under one test suite.

Every method may raise `PortError` (`Unreachable`, `Denied`, `Rejected`); writes that are conditional raise `Conflict`.
Every write is idempotent: done twice, it is done once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from fencepost.contract import ReportedLoss
from fencepost.fence import BatchProgress, FenceRow
from fencepost.fence.snapshots import Snapshot
from fencepost.state.state_check import StateCheck
from fencepost_operator.actions import Manifest
from fencepost_operator.api import (
    CassandraConnection,
    Event,
    FenceConnection,
    KafkaConnection,
    ObjectKey,
    Pipeline,
    Revision,
    Rewind,
    RewindStatus,
    Status,
    Trial,
    TrialStatus,
)
from fencepost_operator.observation import (
    Backlog,
    CassandraSettings,
    ClusterObject,
    ClusterObjects,
    NodeState,
    NoStart,
    PurgeJob,
    References,
    ReleaseState,
    RunList,
    SparkCluster,
    StartingPoint,
    TopicSettings,
    TrialJob,
    UnreadRecords,
    Watermarks,
)
from fencepost_operator.paging.page import NoPager, Pager


class Clock(Protocol):
    """Time, so that tests can set it."""

    def now(self) -> datetime:
        """Return the time now, in UTC."""
        ...


class SteadyClock(Clock, Protocol):
    """Time that also shows when the wall clock steps."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment of this process, which no step of the wall clock changes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """A Lease as it was read or is to be written: `holder` is '' without one; `duration` is in seconds.

    `uid` and `resource_version` are of the object that was read, '' where none was.  `shards` is the number by which
    whoever wrote it divides pipelines, 0 where that is not known.  `wanted_by` is the replica that asks its holder for
    it, and for which it is reserved once it is released; '' without one.  `troubles` is what keeps the holder from its
    work, in lines; '' while nothing does.
    """

    holder: str
    duration: float
    acquired_at: datetime
    renewed_at: datetime
    transitions: int = 0
    uid: str = ""
    resource_version: str = ""
    shards: int = 0
    wanted_by: str = ""
    troubles: str = ""


class Leases(Protocol):
    """One Lease of the operator's replicas."""

    async def read(self) -> LeaseRecord | None:
        """Return the Lease as the API server has it now, or None if it does not exist."""
        ...

    async def write(self, record: LeaseRecord) -> LeaseRecord:
        """Write it on condition of its resourceVersion, create it when the record has none; return it as written.

        Raises Conflict after another client's write, also when the Lease that was read is deleted.
        """
        ...


class ShardLeases(Protocol):
    """The Leases of all shards, whatever their number was when they were written."""

    async def all(self) -> Mapping[int, LeaseRecord]:
        """Return those that exist by shard, as the API server has them now."""
        ...

    def of(self, shard: int) -> Leases:
        """Return the Lease of one shard."""
        ...


class Pipelines(Protocol):
    """The StreamingPipeline objects: read one, write its status, its finalizer and its Events."""

    async def read(self, key: ObjectKey) -> Pipeline | None:
        """Return the pipeline as the API server has it now, or None when it is gone."""
        ...

    async def namespace_ends(self, key: ObjectKey) -> bool:
        """Return whether the pipeline's namespace is being deleted, with all that is in it."""
        ...

    async def pinned_snapshots(self, key: ObjectKey) -> frozenset[str]:
        """Return the ids of the pipeline's snapshots that pipelines of its namespace pin.

        By the specs of their objects, by the kept specs that may run in place of these, or by the trial of an upgrade.
        """
        ...

    async def write_status(self, pipeline: Pipeline, status: Status) -> Pipeline:
        """Replace the status, on condition of the resourceVersion of `pipeline`; return it as written.

        Raises Conflict when the object changed since it was read.
        """
        ...

    async def set_finalizer(self, pipeline: Pipeline, *, present: bool) -> None:
        """Add or remove our finalizer, on condition of the resourceVersion. Raises Conflict."""
        ...

    async def publish(self, pipeline: Pipeline, events: Sequence[Event]) -> None:
        """Record Kubernetes Events on the pipeline; repeats of one (reason, message) are counted, not added."""
        ...


class PipelinesToTry(Protocol):
    """The pipelines of trials: read one, and promote the code of a trial."""

    async def read(self, key: ObjectKey) -> Pipeline | None:
        """Return the pipeline as the API server has it now, or None when it is gone."""
        ...

    async def set_job(self, pipeline: Pipeline, job: Mapping[str, Any]) -> None:
        """Set fields of spec.job, on condition of the resourceVersion of `pipeline`. Raises Conflict."""
        ...


class Trials(Protocol):
    """The PipelineTrial objects: read one, write its status and its Events, delete it."""

    async def read(self, key: ObjectKey) -> Trial | None:
        """Return the trial as the API server has it now, None when it is gone, or its kind is not installed."""
        ...

    async def write_status(self, trial: Trial, status: TrialStatus) -> Trial:
        """Replace the status, on condition of the resourceVersion; return it as written. Raises Conflict."""
        ...

    async def publish(self, trial: Trial, events: Sequence[Event]) -> None:
        """Record Kubernetes Events on the trial."""
        ...

    async def delete(self, trial: Trial) -> None:
        """Delete the trial; nothing to do when it is gone, or another one has its name."""
        ...


class UpgradeTrials(Protocol):
    """The PipelineTrial objects, for the pipelines whose upgrades wait for them."""

    async def read(self, key: ObjectKey) -> Trial | None:
        """Return the trial as the API server has it now, None when it is gone, or its kind is not installed."""
        ...

    async def create(self, manifest: Manifest) -> None:
        """Create the trial; nothing to do when it exists. Raises Rejected when another object has its name."""
        ...


class TrialJobs(Protocol):
    """The Jobs of trials; `pipeline` is the one whose code they stand in for."""

    async def find(self, pipeline: ObjectKey, name: str, owner: str) -> TrialJob | None:
        """Return the Job of this name that the object with the uid `owner` owns, None without one."""
        ...

    async def start(self, pipeline: ObjectKey, job: Manifest, config_map: Manifest) -> None:
        """Create the ConfigMap, then the Job; nothing to do when they exist.

        Raises Rejected when an object of that name has another owner.
        """
        ...

    async def stop(self, pipeline: ObjectKey, name: str, owner: str) -> None:
        """Delete the Job of this owner with its pod; nothing to do without one."""
        ...


class Rewinds(Protocol):
    """The PipelineRewind objects: list them, write their status, our marks and their Events."""

    async def unfinished(self, pipeline: ObjectKey, *, expected: bool) -> tuple[Rewind, ...]:
        """Return the pipeline's rewinds that are not marked as over.

        None where the kind is not installed, as with the CRDs of an older release.  With `expected` that is an error:
        one was seen, and an API server that starts may not know its kinds yet.
        """
        ...

    async def write_status(self, rewind: Rewind, status: RewindStatus) -> Rewind:
        """Replace the status, on condition of the resourceVersion; return it as written. Raises Conflict."""
        ...

    async def mark(self, rewind: Rewind, *, held: bool, finished: bool) -> None:
        """Set our finalizer, and the label of what is over, on condition of the resourceVersion. Raises Conflict."""
        ...

    async def publish(self, rewind: Rewind, events: Sequence[Event]) -> None:
        """Record Kubernetes Events on the rewind."""
        ...


class Purges(Protocol):
    """The Jobs that count or delete output for rewinds."""

    async def find(self, key: ObjectKey, name: str, owner: str) -> PurgeJob | None:
        """Return the Job of this name that the object with the uid `owner` owns, None without one."""
        ...

    async def start(self, key: ObjectKey, job: Manifest, config_map: Manifest) -> None:
        """Create the ConfigMap, then the Job; nothing to do when they exist.

        Raises Rejected when an object of that name has another owner.
        """
        ...


class Releases(Protocol):
    """Spark clusters as Helm releases, and the objects of these."""

    async def release(self, key: ObjectKey) -> ReleaseState | None:
        """Return the state of the pipeline's release, or None without one."""
        ...

    async def keys(self, namespaces: Sequence[str]) -> tuple[ObjectKey, ...]:
        """Return the pipelines, of these namespaces or of all, that have a release, whether or not they exist."""
        ...

    async def cluster(self, key: ObjectKey) -> SparkCluster | None:
        """Return what the StatefulSets and their pods show of each generation, or None without any."""
        ...

    async def install(self, key: ObjectKey, values: Manifest, *, keep: int | None = None) -> None:
        """Bring the release to these values, recovering one that a crash left pending.

        Objects of other generations are deleted, but for those of `keep`.
        """
        ...

    async def uninstall(self, key: ObjectKey) -> None:
        """Remove the release."""
        ...

    async def objects(self, key: ObjectKey, *, urgent: bool) -> ClusterObjects:
        """Return the objects of all generations, also those that Helm forgot, and what is wrong with the newest.

        The answer may be minutes old, seconds where it is `urgent`.  It is never older than the last call of `install`,
        `restore`, `uninstall` and `prune`, or than an event that shows a change of an object.
        """
        ...

    async def restore(self, key: ObjectKey) -> None:
        """Apply the objects of the newest revision again. What is changed again by others at once stays so."""
        ...

    async def prune(self, key: ObjectKey, objects: Sequence[ClusterObject]) -> None:
        """Delete these objects; nothing to do for one that is gone, or whose name now has another uid."""
        ...

    def forget(self, key: ObjectKey) -> None:
        """Drop what is known of a pipeline that is gone."""
        ...


class Runs(Protocol):
    """Driver Jobs."""

    async def list(self, key: ObjectKey, uid: str) -> RunList:
        """Return the Jobs owned by the pipeline object with this uid, oldest epoch first, each with its pod.

        A driver pod that outlives its Job stands for it, whoever owned that Job.
        """
        ...

    async def start(self, key: ObjectKey, job: Manifest, config_map: Manifest | None = None) -> None:
        """Create the ConfigMap that the Job mounts, then the Job; nothing to do when these very objects exist.

        Raises Rejected when an object of that name has another owner, or is ours and of another spec.
        """
        ...

    async def stop(self, key: ObjectKey, name: str) -> None:
        """Delete the run's ConfigMap, and its Job in the foreground; nothing to do when they are gone."""
        ...

    def terminated_by(self, pod_uid: str, version: int) -> bool:
        """Return whether an event or a list showed that the driver's container in this pod had terminated by then.

        `version` is that of a `RunList`.
        """
        ...

    async def node(self, name: str) -> NodeState:
        """Return the uid and readiness of a node; uid None when it is gone."""
        ...

    async def silent_nodes(self, names: Collection[str]) -> frozenset[str]:
        """Return those of the nodes that have not reported for some time, at each of several looks."""
        ...


class Revisions(Protocol):
    """Specs that were in effect, as a pipeline's ControllerRevisions keep them."""

    async def find(self, key: ObjectKey, uid: str, name: str) -> Revision | None:
        """Return the revision of this name, None if it does not exist.

        Raises Rejected for one whose content does not match its name, or that the pipeline does not own.
        """
        ...

    async def store(self, key: ObjectKey, revision: Manifest, keep: Collection[str]) -> None:
        """Create the revision unless it is there, and delete the oldest ones, but none that is in `keep`.

        Raises Rejected when an object of that name has another owner.
        """
        ...


@dataclass(frozen=True, slots=True)
class Digests:
    """Two numbers for a pipeline, each of which differs within a process after a change of an object.

    `objects` counts the pipeline without its status, its Jobs, pods, StatefulSets and Services, and the revisions of
    its Helm release; `parts` the StatefulSets, without their status, and the Services.
    """

    objects: int
    parts: int


class Inventory(Protocol):
    """All objects of all pipelines at once."""

    async def digests(self, namespaces: Sequence[str]) -> Mapping[ObjectKey, Digests]:
        """Return the digests of each pipeline of these namespaces, or of all."""
        ...


class SecretReader(Protocol):
    """The part of the Objects port that reads credentials."""

    async def secret(self, key: ObjectKey, name: str) -> Mapping[str, str]:
        """Return a Secret's decoded data, up to 90 s old. Raises Rejected, naming it, when it does not exist."""
        ...

    def forget_secrets(self, namespace: str) -> None:
        """Read the Secrets of a namespace again when they are asked for: a server refused what one of them says."""
        ...


class Objects(SecretReader, Protocol):
    """ConfigMaps and Secrets that the spec names."""

    async def references(self, key: ObjectKey, names: Sequence[str], *, age: float = 0.0) -> References:
        """Return content hashes for 'ConfigMap/name' and 'Secret/name' keys, at most `age` seconds old."""
        ...


class FenceStore(Protocol):
    """The fence rows. `credentials` are (username, password) or None."""

    async def read(self, connection: FenceConnection, pipeline: str) -> FenceRow | None:
        """Return the row by a linearizable read, or None (also when the table does not exist yet)."""
        ...

    async def read_progress(self, connection: FenceConnection, pipeline: str) -> BatchProgress | None:
        """Return the driver's newest report from inside a batch, of whichever epoch and version; None without one."""
        ...

    async def give_sign(
        self, connection: FenceConnection, key: str, *, epoch: int, version: int, number: int, note: str
    ) -> None:
        """Record that an operator works, for `read_progress` of the same key: unconditionally, and for an hour.

        `number` differs from that of the sign before; `epoch` and `version` are of the row that the operator has read,
        and `note` is what keeps it from running the pipeline.
        """
        ...

    async def create(self, connection: FenceConnection, pipeline: str, owner: str) -> None:
        """Insert the row at epoch 0 unless it is there, making the schema first when the connection allows it."""
        ...

    async def take_over(
        self, connection: FenceConnection, pipeline: str, epoch: int, version: int | None, owner: str
    ) -> FenceRow:
        """Move the row from `epoch` to (epoch + 1, no driver), at `version` only unless that is None.

        Without a version, commits of the driver of `epoch` do not stop the takeover.  Raises Conflict when the row is
        elsewhere.
        """
        ...

    async def read_loss(
        self, connection: FenceConnection, pipeline: str, committed_ms: int, loss: str
    ) -> ReportedLoss | None:
        """Return the loss with this id that was reported since that commit; None without one."""
        ...

    async def accept_loss(
        self, connection: FenceConnection, pipeline: str, committed_ms: int, loss: str, *, by: str, choice: str
    ) -> None:
        """Record who accepts a loss and how to continue, now. Raises Conflict when the loss does not exist."""
        ...

    async def settings(self, connection: CassandraConnection, keyspaces: Sequence[str]) -> CassandraSettings:
        """Return Cassandra's nodes, how these keyspaces are replicated, and how the commit log is synced."""
        ...

    async def snapshots(self, connection: FenceConnection, pipeline: str) -> tuple[Snapshot, ...]:
        """Return the facts of the pipeline's snapshots, the newest first; none without their table."""
        ...

    async def take_snapshot(
        self,
        connection: FenceConnection,
        pipeline: str,
        *,
        owner: str,
        snapshot: str,
        trigger: str,
        name: str,
        of: str | None = None,
    ) -> None:
        """Copy the row, or the snapshot `of`, into the snapshot with this id unless it is there.

        Raises Conflict when the row is another's, or claimed by the run that the snapshot was to precede, Rejected when
        there is no snapshot `of`.
        """
        ...

    async def find_snapshot(self, connection: FenceConnection, pipeline: str, wanted: str) -> Snapshot | None:
        """Return the snapshot with this id, or the newest one of this name, with its offsets; None without one."""
        ...

    async def check_state(
        self, connection: FenceConnection, pipeline: str, checkpoint: bytes, *, start: int
    ) -> StateCheck:
        """Return whether the next files of a checkpoint are there, after the first `start` ones."""
        ...

    async def drop_snapshots(self, connection: FenceConnection, pipeline: str, ids: Sequence[str]) -> None:
        """Delete snapshots; nothing to do for one that is gone."""
        ...

    async def rewind(
        self,
        connection: FenceConnection,
        pipeline: str,
        *,
        epoch: int,
        version: int,
        offsets: Mapping[str, int],
        leader_epochs: Mapping[str, int],
        growth_barrier: Mapping[str, int],
        keeps_output: bool,
        snapshot: str | None,
    ) -> None:
        """Set the offsets of an unclaimed row back, and its state to that of the snapshot with this id, or to none.

        Raises Conflict when the row is elsewhere, or claimed; Rejected without the snapshot.
        """
        ...

    async def first_commit(
        self, connection: FenceConnection, pipeline: str, *, epoch: int, version: int, since: datetime
    ) -> Mapping[str, int] | None:
        """Return the offsets at which the first commit after that change began; None while the history has none.

        `since` is when the change was made, or a little later.
        """
        ...

    async def committed_at(
        self, connection: FenceConnection, pipeline: str, moment: datetime, topics: frozenset[str]
    ) -> StartingPoint | NoStart:
        """Return what was committed at a moment by the history, if that has offsets of each of these topics then.

        Raises Rejected where the history of an hour is too long to read.
        """
        ...

    async def release(self, connection: FenceConnection, pipeline: str, epoch: int, version: int) -> None:
        """Release the row, and delete its history and its snapshots. Raises Conflict when the row is elsewhere."""
        ...


class Offsets(Protocol):
    """Kafka's log ends, and what threatens the records before them."""

    async def ends(self, connection: KafkaConnection, *, age: float = 0.0) -> Watermarks | None:
        """Return the log end of each partition of the connection's topics, and the topics that do not exist.

        What any pipeline of the namespace was answered within `age` seconds, with the same credentials, holds.
        None means that only the driver may connect: with OAuth, Kerberos or files.  The fence row has what it saw.
        """
        ...

    async def at(self, connection: KafkaConnection, timestamp: datetime) -> Mapping[str, int]:
        """Return each partition's first offset whose record is at least that young, NO_RECORD without one.

        A partition without an answer is absent.
        """
        ...

    async def unread(
        self, reader: ObjectKey, connection: KafkaConnection, source: Watermarks, positions: Mapping[str, int]
    ) -> UnreadRecords:
        """Return the topics' retention and how old the record at each of a pipeline's positions is, as far as known.

        `source` is what `ends` has just returned for the connection.  Retention may be minutes old.  Without a
        change, Kafka gets no request; a search for an age may take several calls.
        """
        ...

    async def settings(self, connection: KafkaConnection) -> Mapping[str, TopicSettings] | None:
        """Return what decides how durable the records of each topic are; None as for `ends`."""
        ...


class Access(StrEnum):
    """Whether a client may read the metrics."""

    GRANTED = "granted"
    DENIED = "denied"
    UNKNOWN = "unknown"
    """The client cannot be identified now."""
    LIMITED = "limited"
    """Its address has sent too many unknown tokens."""


class LoopMetrics(Protocol):
    """Where loops of whichever kind report their passes."""

    def reconciled(self, key: ObjectKey, *, outcome: str, seconds: float) -> None:
        """Count a pass of the loop and its duration."""
        ...

    def heartbeat(self, key: ObjectKey, now: datetime) -> None:
        """Say that the loop of an object is alive: it begins a pass."""
        ...

    def forget(self, key: ObjectKey) -> None:
        """Drop the series of an object that is gone."""
        ...


class Uncounted:
    """Loops that report nothing: those of trials, which end."""

    def reconciled(self, key: ObjectKey, *, outcome: str, seconds: float) -> None:
        """Count nothing."""

    def heartbeat(self, key: ObjectKey, now: datetime) -> None:
        """Say nothing."""

    def forget(self, key: ObjectKey) -> None:
        """Drop nothing."""


class Metrics(LoopMetrics, Protocol):
    """Where the loop of a pipeline reports its figures."""

    def observed(self, key: ObjectKey, status: Status, committed: Mapping[str, int], backlog: Backlog | None) -> None:
        """Set the pipeline's gauges; `backlog` is None while it is unknown."""
        ...

    def committed(self, key: ObjectKey, row: FenceRow) -> None:
        """Count the last commit of the fence row, once."""
        ...

    def succeeded(self, key: ObjectKey, now: datetime) -> None:
        """Say that a pass saw the runs and recorded what it decided: a dead driver would have been replaced."""
        ...

    def recorded(self) -> None:
        """Say that a status was written, of whichever pipeline."""
        ...

    def restarts(self, *, in_progress: int, queued: int) -> None:
        """Set how many pipelines are restarted by plan, and how many wait for their turn."""
        ...

    def silent_drivers(self, *, silent: int, waiting: int) -> None:
        """Set how many drivers are missed, and how many of them wait for their turn to be replaced."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """All ports of the loop."""

    pipelines: Pipelines
    releases: Releases
    runs: Runs
    revisions: Revisions
    rewinds: Rewinds
    purges: Purges
    trials: UpgradeTrials
    objects: Objects
    fences: FenceStore
    offsets: Offsets
    metrics: Metrics
    clock: SteadyClock
    pager: Pager = field(default_factory=NoPager)
    may_write: Callable[[], None] = lambda: None
    """Raises NotLeading while another replica of the operator may act."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPorts:
    """The ports of the loop of trials."""

    trials: Trials
    jobs: TrialJobs
    pipelines: PipelinesToTry
    objects: Objects
    fences: FenceStore
    clock: Clock
    may_write: Callable[[], None] = lambda: None
    """Raises NotLeading while another replica of the operator may act."""
