"""The operator's ports on a `World`. Every write passes a gate, where tests let it fail before or after its effect."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from fakes.world import MASTER_DELAY, NODE_LOSS, PURGE_DELAY, REPLICATED, WORKER_DELAY, Job, RefusedError, World
from fencepost.contract import Acceptance, ReportedLoss
from fencepost.contract.purge import PurgeReport
from fencepost.fence import BatchProgress, Fenced, FenceRow, FenceUnavailable
from fencepost.fence.snapshots import Snapshot, Trigger, snapshot_of
from fencepost_operator.actions import Manifest
from fencepost_operator.api import (
    FINALIZER,
    FINISHED_LABEL,
    CassandraConnection,
    Event,
    KafkaConnection,
    ObjectKey,
    Pipeline,
    Rewind,
    RewindStatus,
    Status,
    read_pipeline,
    read_rewind,
    write_rewind_status,
    write_status,
)
from fencepost_operator.desired import labels, names
from fencepost_operator.errors import Conflict, Rejected, Unreachable
from fencepost_operator.observation import (
    NO_RECORD,
    NODE_LOST,
    Backlog,
    CassandraSettings,
    ClusterObject,
    DriverPod,
    NodeState,
    PodIssue,
    PurgeJob,
    References,
    Release,
    ReleaseState,
    Run,
    SparkCluster,
    TopicSettings,
    UnreadRecords,
    Watermarks,
)
from fencepost_operator.runtime.reconciler import Ports

T = TypeVar("T")


class Gate:
    """What every call of one operator passes: a point before its effect and a point after it, where others may move.

    Here nobody moves (see `fakes.interleaving`).  Writes are counted; `before` and `after` see each one's number and
    name and may raise.
    """

    def __init__(self) -> None:
        self.writes: list[str] = []
        self.before: Callable[[int, str], None] = lambda _number, _name: None
        self.after: Callable[[int, str], None] = lambda _number, _name: None

    async def point(self) -> None:
        """Let others move."""

    async def read(self, name: str, fact: Callable[[], T]) -> T:
        """Read at one moment, and answer at a later one."""
        del name
        await self.point()
        found = fact()
        await self.point()
        return found

    async def write(self, name: str, effect: Callable[[], object]) -> None:
        """Write at one moment, and answer at a later one."""
        await self.point()
        number = len(self.writes)
        self.writes.append(name)
        self.before(number, name)
        self.apply(name, effect)
        self.after(number, name)
        await self.point()

    def apply(self, name: str, effect: Callable[[], object]) -> None:
        """Let a write take effect."""
        del name
        effect()


@dataclass(slots=True)
class FakeClock:
    world: World

    def now(self) -> datetime:
        return self.world.now


@dataclass(slots=True)
class FakePipelines:
    world: World
    gate: Gate

    async def read(self, key: ObjectKey) -> Pipeline | None:
        return await self.gate.read("pipeline", lambda: self._read(key))

    def _read(self, key: ObjectKey) -> Pipeline | None:
        found = self.world.objects.get(key)
        return read_pipeline(copy.deepcopy(found)) if found is not None else None

    async def write_status(self, pipeline: Pipeline, status: Status) -> Pipeline:
        written: list[Pipeline] = []

        def effect() -> None:
            self._check(pipeline)
            self.world.objects[pipeline.key]["status"] = write_status(status)
            self.world.touch(pipeline.key)
            written.append(read_pipeline(copy.deepcopy(self.world.objects[pipeline.key])))

        await self.gate.write("write_status", effect)
        return written[0]

    async def set_finalizer(self, pipeline: Pipeline, *, present: bool) -> None:
        def effect() -> None:
            self._check(pipeline)
            found = self.world.objects[pipeline.key]
            found["metadata"]["finalizers"] = [FINALIZER] if present else []
            self.world.touch(pipeline.key)
            if "deletionTimestamp" in found["metadata"] and not present:
                self.world.forget(pipeline.key)

        await self.gate.write("set_finalizer", effect)

    async def publish(self, pipeline: Pipeline, events: Sequence[Event]) -> None:
        del pipeline
        self.world.events.extend((event.reason, event.message) for event in events)

    def _check(self, pipeline: Pipeline) -> None:
        found = self.world.objects.get(pipeline.key)
        if found is None or found["metadata"]["resourceVersion"] != pipeline.resource_version:
            raise Conflict("the object has been modified")


@dataclass(slots=True)
class FakeRewinds:
    world: World
    gate: Gate

    async def unfinished(self, pipeline: ObjectKey, *, expected: bool) -> tuple[Rewind, ...]:
        del expected
        return await self.gate.read("rewinds", lambda: self._unfinished(pipeline))

    def _unfinished(self, pipeline: ObjectKey) -> tuple[Rewind, ...]:
        found = [read_rewind(copy.deepcopy(body)) for body in self.world.rewinds.values()]
        return tuple(
            rewind
            for rewind in found
            if (rewind.key.namespace, rewind.pipeline) == (pipeline.namespace, pipeline.name)
            and not rewind.is_marked_finished
        )

    async def write_status(self, rewind: Rewind, status: RewindStatus) -> Rewind:
        def effect() -> None:
            self._touched(rewind)["status"] = write_rewind_status(status)

        await self.gate.write("write_rewind", effect)
        return read_rewind(copy.deepcopy(self.world.rewinds[rewind.key]))

    async def mark(self, rewind: Rewind, *, held: bool, finished: bool) -> None:
        def effect() -> None:
            metadata = self._touched(rewind)["metadata"]
            metadata["finalizers"] = [FINALIZER] if held else []
            metadata["labels"] = {FINISHED_LABEL: "true"} if finished else {}
            if "deletionTimestamp" in metadata and not held:
                del self.world.rewinds[rewind.key]

        await self.gate.write("mark_rewind", effect)

    async def publish(self, rewind: Rewind, events: Sequence[Event]) -> None:
        del rewind
        self.world.events.extend((event.reason, event.message) for event in events)

    def _touched(self, rewind: Rewind) -> dict[str, Any]:
        found = self.world.rewinds.get(rewind.key)
        if found is None or found["metadata"]["resourceVersion"] != rewind.resource_version:
            raise Conflict("the object has been modified")
        found["metadata"]["resourceVersion"] = str(int(rewind.resource_version) + 1)
        return found


@dataclass(slots=True)
class FakePurges:
    world: World
    gate: Gate

    async def find(self, key: ObjectKey, name: str, owner: str) -> PurgeJob | None:
        del key
        return await self.gate.read("purge", lambda: self._find(name, owner))

    def _find(self, name: str, owner: str) -> PurgeJob | None:
        found = self.world.purges.get(name)
        if found is None or found.owner != owner:
            return None
        ended = self.world.now - found.created_at >= PURGE_DELAY
        if found.failure:
            return PurgeJob(name=name, is_failed=ended, message=found.failure if ended else "")
        rows = sum(until - start for start, until in found.request.ranges.values())
        report = PurgeReport(rows=rows, left=found.left, seconds=2.0)
        return PurgeJob(name=name, is_done=ended, report=report if ended else None)

    async def start(self, key: ObjectKey, job: Manifest, config_map: Manifest) -> None:
        del key
        await self.gate.write("start_purge", lambda: self.world.create_purge(job, config_map))


@dataclass(slots=True)
class FakeReleases:
    world: World
    gate: Gate

    async def release(self, key: ObjectKey) -> Release | None:
        return await self.gate.read("release", lambda: self._release(key))

    def _release(self, key: ObjectKey) -> Release | None:
        found = self.world.releases.get(key)
        if found is None:
            return None
        return Release(name=names.release_name(key), revision=found.revision, state=ReleaseState(found.state))

    async def cluster(self, key: ObjectKey) -> SparkCluster | None:
        return await self.gate.read("cluster", lambda: self._cluster(key))

    def _cluster(self, key: ObjectKey) -> SparkCluster | None:
        generation = self.world.newest_generation(key)
        if generation is None:
            return None
        found = self.world.sets[key][generation]
        workers = found.values["workers"]
        lost = [part for part, since in found.lost.items() if self.world.now - since >= NODE_LOSS]
        workers_ready = self.world.ready(key, generation, WORKER_DELAY) and "worker" not in found.lost
        return SparkCluster(
            generation=generation,
            config_hash=found.values["annotations"][labels.CONFIG_HASH],
            workers=workers,
            ready_workers=workers if workers_ready else 0,
            master_ready=self.world.ready(key, generation, MASTER_DELAY) and "master" not in found.lost,
            issues=(
                *(PodIssue(pod=f"{part}-0", reason=NODE_LOST, message="node-9 is silent") for part in lost),
                *((self.world.issue,) if self.world.issue else ()),
            ),
        )

    async def install(self, key: ObjectKey, values: Manifest) -> None:
        try:
            await self.gate.write("install", lambda: self.world.install(key, values))
        except RefusedError as error:
            raise Rejected(str(error)) from error

    async def uninstall(self, key: ObjectKey) -> None:
        await self.gate.write("uninstall", lambda: self.world.uninstall(key))

    async def objects(self, key: ObjectKey, uid: str) -> tuple[ClusterObject, ...]:
        del uid
        return await self.gate.read("objects", lambda: self._objects(key))

    def _objects(self, key: ObjectKey) -> tuple[ClusterObject, ...]:
        return tuple(self.world.parts.get(key, ()))

    async def prune(self, key: ObjectKey, objects: Sequence[ClusterObject]) -> None:
        await self.gate.write("prune", lambda: self.world.prune(key, {found.uid for found in objects}))


@dataclass(slots=True)
class FakeRuns:
    world: World
    gate: Gate

    async def list(self, key: ObjectKey, uid: str) -> tuple[Run, ...]:
        return await self.gate.read("runs", lambda: self._list(key, uid))

    def _list(self, key: ObjectKey, uid: str) -> tuple[Run, ...]:
        mine = [job for job in self.world.jobs if job.key == key and (job.owner == uid or job.gone)]
        there = {job.epoch for job in mine if not job.gone}
        shown = [job for job in mine if not job.gone or (job.epoch not in there and self._may_live(job))]
        return tuple(self._run(job) for job in sorted(shown, key=lambda job: job.epoch))

    async def start(self, key: ObjectKey, job: Manifest, config_map: Manifest | None = None) -> None:
        def effect() -> None:
            self.world.create_job(key, job)
            if config_map is not None:
                self.world.config_maps[key, job["metadata"]["name"]] = config_map

        try:
            await self.gate.write("start", effect)
        except FileExistsError as error:
            name = job["metadata"]["name"]
            there = self.world.job(key, name)
            if there is None:
                raise Conflict(f"Job {name} is gone") from error
            _refuse_another_job(name, _identity(job), there.manifest)

    async def stop(self, key: ObjectKey, name: str) -> None:
        await self.gate.write("stop", lambda: self.world.delete_job(key, name))

    def saw_termination(self, pod_uid: str) -> bool:
        return any(driver.uid == pod_uid and not driver.alive for driver in self.world.buried)

    async def node(self, name: str) -> NodeState:
        return await self.gate.read("node", lambda: self._node(name))

    def _node(self, name: str) -> NodeState:
        node = self.world.nodes.get(name)
        return NodeState(name=name, uid=node.uid if node else None, ready=node.reachable if node else False)

    def _may_live(self, job: Job) -> bool:
        pod = self._pod(job)
        return pod is not None and pod.phase == "Running"

    def _run(self, job: Job) -> Run:
        notes = job.manifest["metadata"]["annotations"]
        return Run(
            name=job.name,
            epoch=job.epoch,
            spec_hash=notes[labels.SPEC_HASH],
            cluster_generation=int(notes[labels.GENERATION]),
            created_at=job.created_at,
            deleting=job.deleting,
            finished=job.finished,
            pod=self._pod(job),
            orphaned=job.orphaned and job.pod is not None and job.pod.deleting_since is None,
            termination_grace=job.termination_grace,
            had_pod=job.had_pod,
        )

    def _pod(self, job: Job) -> DriverPod | None:
        pod = job.pod
        if pod is None:
            return None
        driver, node = pod.driver, self.world.nodes.get(pod.node)
        reachable = node is not None and node.reachable
        ended = driver.exit_code is not None and reachable
        return DriverPod(
            name=pod.name,
            uid=pod.uid,
            phase="Running" if not ended else "Succeeded" if driver.exit_code == 0 else "Failed",
            node=pod.node,
            node_uid=node.uid if node else None,
            node_ready=reachable,
            started_at=driver.started_at,
            deleting_since=pod.deleting_since,
            exit_code=driver.exit_code if ended else None,
            termination_reason="Error" if ended and driver.exit_code else None,
            finished_at=driver.finished_at if ended else None,
            verdict=driver.verdict if ended else None,
            issue=self.world.issue if driver.started_at is None else None,
            force_deleted=pod.force_deleted and not ended,
        )


def _refuse_another_job(name: str, wanted: Sequence[str], there: Manifest) -> None:
    owner, *marks = _identity(there)
    if owner != wanted[0]:
        reference = there["metadata"]["ownerReferences"][0]
        raise Rejected(
            f"Job {name} exists and belongs to {reference['kind']} {reference['name']}",
            remedy=f"kubectl delete job {name}",
        )
    if marks != wanted[1:]:
        raise Rejected(f"Job {name} exists and was created for another spec")


def _identity(job: Manifest) -> Sequence[str]:
    metadata = job["metadata"]
    notes, owner = metadata["annotations"], metadata["ownerReferences"][0]["uid"]
    return [owner, metadata["labels"][labels.EPOCH], notes[labels.SPEC_HASH], notes[labels.GENERATION]]


@dataclass(slots=True)
class FakeObjects:
    world: World
    gate: Gate

    async def references(self, key: ObjectKey, names: Sequence[str]) -> References:
        return await self.gate.read("references", lambda: self._references(key, names))

    def _references(self, key: ObjectKey, names: Sequence[str]) -> References:
        return References(hashes={name: self.world.references.get((key.namespace, name)) for name in names})

    async def secret(self, key: ObjectKey, name: str) -> Mapping[str, str]:
        if (key.namespace, f"Secret/{name}") not in self.world.references:
            raise Rejected(f"Secret {name} does not exist")
        return {}


@dataclass(slots=True)
class FakeFences:
    world: World
    gate: Gate

    async def read(self, connection: CassandraConnection, pipeline: str) -> FenceRow | None:
        return await self.gate.read("fence", lambda: self._read(connection, pipeline))

    def _read(self, connection: CassandraConnection, pipeline: str) -> FenceRow | None:
        del connection
        return self._read_row(pipeline)

    def _read_row(self, pipeline: str) -> FenceRow | None:
        try:
            return self.world.fence(pipeline).read()
        except FenceUnavailable as error:
            raise Unreachable(str(error), remedy="check Cassandra") from error

    async def read_progress(self, connection: CassandraConnection, pipeline: str) -> BatchProgress | None:
        del connection
        return await self.gate.read("progress", lambda: self._read_progress(pipeline))

    def _read_progress(self, pipeline: str) -> BatchProgress | None:
        try:
            return self.world.table.read_progress(pipeline)
        except FenceUnavailable as error:
            raise Unreachable(str(error), remedy="check Cassandra") from error

    async def create(self, connection: CassandraConnection, pipeline: str, owner: str) -> None:
        del connection
        await self._write("create", lambda: self.world.fence(pipeline).create(owner))

    async def take_over(
        self, connection: CassandraConnection, pipeline: str, epoch: int, version: int | None, owner: str
    ) -> FenceRow:
        row = await self.read(connection, pipeline)
        if row is None or (row.epoch, row.version) != (epoch, row.version if version is None else version):
            raise Conflict("the row is elsewhere")
        fence = self.world.fence(pipeline)
        if version is None:
            await self._write("take_over", lambda: fence.take_over_epoch(epoch, owner=owner))
        else:
            await self._write("take_over", lambda: fence.take_over(row, owner=owner))
        after = await self.read(connection, pipeline)
        assert after is not None
        return after

    async def read_loss(
        self, connection: CassandraConnection, pipeline: str, committed_ms: int, loss: str
    ) -> ReportedLoss | None:
        del connection
        return await self.gate.read("loss", lambda: self._read_loss(pipeline, committed_ms, loss))

    def _read_loss(self, pipeline: str, committed_ms: int, loss: str) -> ReportedLoss | None:
        try:
            reports = self.world.table.read_losses(pipeline, committed_ms)
        except FenceUnavailable as error:
            raise Unreachable(str(error), remedy="check Cassandra") from error
        return next((report for report in reports if report.loss.id == loss), None)

    async def accept_loss(
        self, connection: CassandraConnection, pipeline: str, committed_ms: int, loss: str, *, by: str, choice: str
    ) -> None:
        del connection
        report = self._read_loss(pipeline, committed_ms, loss)
        if report is None:
            raise Conflict("there is no such loss")
        found, acceptance = report.loss, Acceptance(by=by, choice=choice, at=self.world.now)
        await self._write("accept_loss", lambda: self.world.table.accept_loss(pipeline, found, acceptance))

    async def settings(self, connection: CassandraConnection, keyspaces: Sequence[str]) -> CassandraSettings:
        return await self.gate.read("cassandra_settings", lambda: self._settings(connection, keyspaces))

    def _settings(self, connection: CassandraConnection, keyspaces: Sequence[str]) -> CassandraSettings:
        del connection
        if self.world.cassandra_down:
            raise Unreachable("no node of Cassandra answers", remedy="check Cassandra")
        return CassandraSettings(
            nodes={"datacenter1": 3},
            keyspaces={name: self.world.keyspaces.get(name, REPLICATED) for name in keyspaces},
            commitlog_sync=self.world.commitlog_sync,
        )

    async def snapshots(self, connection: CassandraConnection, pipeline: str) -> tuple[Snapshot, ...]:
        del connection
        return await self.gate.read("snapshots", lambda: self._snapshots(pipeline))

    def _snapshots(self, pipeline: str) -> tuple[Snapshot, ...]:
        self._read_row(pipeline)  # the same Cassandra: it answers or it does not
        found = [one for (row, _), one in self.world.snapshots.items() if row == pipeline]
        return tuple(sorted(found, key=lambda one: one.id.time, reverse=True))

    async def take_snapshot(
        self, connection: CassandraConnection, pipeline: str, *, owner: str, snapshot: str, trigger: str, name: str
    ) -> None:
        row = await self.read(connection, pipeline)
        if row is None or row.owner != owner:
            raise Conflict("the row is another's")
        if trigger == Trigger.SPEC_CHANGE and row.driver is not None:
            raise Conflict("the row was claimed")
        made = snapshot_of(row, id=UUID(snapshot), trigger=trigger, name=name)
        await self._write("take_snapshot", lambda: self.world.snapshots.setdefault((pipeline, snapshot), made))

    async def find_snapshot(self, connection: CassandraConnection, pipeline: str, wanted: str) -> Snapshot | None:
        found = await self.snapshots(connection, pipeline)
        return next((one for one in found if wanted in {str(one.id), one.name}), None)

    async def rewind(
        self,
        connection: CassandraConnection,
        pipeline: str,
        *,
        epoch: int,
        version: int,
        offsets: Mapping[str, int],
        leader_epochs: Mapping[str, int],
        growth_barrier: Mapping[str, int],
    ) -> None:
        row = await self.read(connection, pipeline)
        if row is None or (row.epoch, row.version, row.driver) != (epoch, version, None):
            raise Conflict("the row is elsewhere")
        fence = self.world.fence(pipeline)
        await self._write(
            "rewind",
            lambda: fence.rewind(row, offsets=offsets, leader_epochs=leader_epochs, growth_barrier=growth_barrier),
        )

    async def first_commit(
        self, connection: CassandraConnection, pipeline: str, *, epoch: int, version: int, since: datetime
    ) -> Mapping[str, int] | None:
        del connection, epoch, since
        rows = [row for row in self.world.table.history if row.pipeline == pipeline and row.version >= version]
        pairs = itertools.pairwise(rows)
        return next((before.offsets for before, after in pairs if after.committed_at != before.committed_at), None)

    async def drop_snapshots(self, connection: CassandraConnection, pipeline: str, ids: Sequence[str]) -> None:
        del connection
        await self._write("drop_snapshots", lambda: [self.world.snapshots.pop((pipeline, one), None) for one in ids])

    async def release(self, connection: CassandraConnection, pipeline: str, epoch: int, version: int) -> None:
        row = await self.read(connection, pipeline)
        if row is None:
            return
        if (row.epoch, row.version) != (epoch, version):
            raise Conflict("the row is elsewhere")
        await self._write("delete_fence", lambda: self.world.fence(pipeline).release(row))

    async def _write(self, name: str, effect: Callable[[], object]) -> None:
        try:
            await self.gate.write(name, effect)
        except Fenced as error:
            raise Conflict(str(error)) from error
        except FenceUnavailable as error:
            raise Unreachable(str(error), remedy="check Cassandra") from error


@dataclass(slots=True)
class FakeOffsets:
    world: World
    gate: Gate

    async def ends(self, connection: KafkaConnection) -> Watermarks:
        return await self.gate.read("source", lambda: self._ends(connection))

    def _ends(self, connection: KafkaConnection) -> Watermarks:
        if self.world.kafka_down:
            raise Unreachable("no broker answers", remedy="check Kafka")
        topics = {key.rpartition("/")[0] for key in self.world.ends}
        missing = tuple(topic for topic in connection.topics if topic not in topics)
        ends = {key: end for key, end in self.world.ends.items() if key.rpartition("/")[0] in connection.topics}
        starts = {key: self.world.starts.get(key, 0) for key in ends}
        present = [topic for topic in connection.topics if topic in topics]
        ids = {topic: self.world.topic_ids.get(topic, f"id-{topic}") for topic in present}
        return Watermarks(ends=ends, starts=starts, missing_topics=missing, topic_ids=ids)

    async def at(self, connection: KafkaConnection, timestamp: datetime) -> Mapping[str, int]:
        return await self.gate.read("at", lambda: self._at(connection, timestamp))

    def _at(self, connection: KafkaConnection, timestamp: datetime) -> Mapping[str, int]:
        keys = self._ends(connection).ends
        return {
            key: next((end for end, at in self.world.growth.get(key, ()) if at >= timestamp), NO_RECORD) for key in keys
        }

    async def unread(
        self, reader: ObjectKey, connection: KafkaConnection, source: Watermarks, positions: Mapping[str, int]
    ) -> UnreadRecords:
        del reader, source
        return await self.gate.read("unread", lambda: self._unread(connection, positions))

    def _unread(self, connection: KafkaConnection, positions: Mapping[str, int]) -> UnreadRecords:
        if self.world.kafka_down:
            raise Unreachable("no broker answers", remedy="check Kafka")
        retention = dict.fromkeys(connection.topics, self.world.retention)
        return UnreadRecords(
            retention=retention, oldest={key: self.world.arrived(key, at) for key, at in positions.items()}
        )

    async def settings(self, connection: KafkaConnection) -> Mapping[str, TopicSettings]:
        return await self.gate.read("topic_settings", lambda: self._settings(connection))

    def _settings(self, connection: KafkaConnection) -> Mapping[str, TopicSettings]:
        if self.world.kafka_down:
            raise Unreachable("no broker answers", remedy="check Kafka")
        return dict.fromkeys(connection.topics, self.world.topic_settings)


@dataclass(slots=True)
class FakeMetrics:
    outcomes: list[str] = field(default_factory=list)
    successes: list[datetime] = field(default_factory=list)
    backlogs: dict[ObjectKey, Backlog | None] = field(default_factory=dict)

    def reconciled(self, key: ObjectKey, *, outcome: str, seconds: float) -> None:
        del key, seconds
        self.outcomes.append(outcome)

    def observed(self, key: ObjectKey, status: Status, committed: Mapping[str, int], backlog: Backlog | None) -> None:
        del status, committed
        self.backlogs[key] = backlog

    def heartbeat(self, key: ObjectKey, now: datetime) -> None:
        pass

    def succeeded(self, key: ObjectKey, now: datetime) -> None:
        del key
        self.successes.append(now)

    def forget(self, key: ObjectKey) -> None:
        pass


def ports_of(world: World, gate: Gate | None = None) -> Ports:
    """Return every port on a world."""
    gate = gate or Gate()
    return Ports(
        pipelines=FakePipelines(world, gate),
        releases=FakeReleases(world, gate),
        runs=FakeRuns(world, gate),
        rewinds=FakeRewinds(world, gate),
        purges=FakePurges(world, gate),
        objects=FakeObjects(world, gate),
        fences=FakeFences(world, gate),
        offsets=FakeOffsets(world, gate),
        metrics=FakeMetrics(),
        clock=FakeClock(world),
    )
