"""The ports to what runs in Kubernetes, on a `World`: Spark clusters, drivers, and Jobs that delete output."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from fakes.gate import Gate
from fakes.world import (
    LOST_NODE,
    MASTER_STARTS,
    NODE_LOSS,
    PURGE_DELAY,
    SPARK_NODE,
    WORKER_DELAY,
    Job,
    RefusedError,
    Sets,
    World,
)
from fencepost.contract.purge_request import PurgeReport
from fencepost_operator.actions import Manifest
from fencepost_operator.api import ObjectKey
from fencepost_operator.desired import labels
from fencepost_operator.errors import Conflict, Rejected
from fencepost_operator.observation import (
    NODE_LOST,
    ClusterObject,
    ClusterObjects,
    DriverPod,
    NodeState,
    PodIssue,
    PurgeJob,
    ReleaseState,
    Run,
    RunList,
    SparkCluster,
)

NO_NODE = {
    "master": "0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) had volume node affinity conflict.",
    "worker": "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient memory.",
}
"""What the scheduler says of pods that were evicted from a node."""
OVER_QUOTA = PodIssue(pod="worker-0", reason="FailedCreate", message="pods is forbidden: exceeded quota: compute")


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
        if self.world.purge_issue is not None or self.world.purge_hangs:
            found.created_at = self.world.now  # its pod starts to work afterwards
            return PurgeJob(name=name, issue=self.world.purge_issue)
        ended = self.world.now - found.created_at >= PURGE_DELAY
        if found.exit_code is not None:
            return PurgeJob(name=name, is_failed=ended, exit_code=found.exit_code)
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
    forgotten: list[ObjectKey] = field(default_factory=list)

    async def release(self, key: ObjectKey) -> ReleaseState | None:
        return await self.gate.read("release", lambda: self._release(key))

    def _release(self, key: ObjectKey) -> ReleaseState | None:
        found = self.world.releases.get(key)
        return ReleaseState(found.state) if found else None

    async def keys(self, namespaces: Sequence[str]) -> tuple[ObjectKey, ...]:
        found = [key for key in self.world.releases if not namespaces or key.namespace in namespaces]
        return await self.gate.read("releases", lambda: tuple(found))

    async def cluster(self, key: ObjectKey) -> SparkCluster | None:
        return await self.gate.read("cluster", lambda: self._cluster(key))

    def _cluster(self, key: ObjectKey) -> SparkCluster | None:
        seen = [self._generation(key, each) for each in sorted(self.world.sets.get(key, ()), reverse=True)]
        return replace(seen[0], others=tuple(seen[1:])) if seen else None

    def _generation(self, key: ObjectKey, generation: int) -> SparkCluster:
        found = self.world.sets[key][generation]
        workers = found.values["workers"]
        lost = [part for part, since in found.lost.items() if self.world.now - since >= NODE_LOSS]
        waiting = sorted(found.evicted)
        workers_ready = self.world.ready(key, generation, WORKER_DELAY) and not found.lacks("worker")
        return SparkCluster(
            generation=generation,
            config_hash=found.values["annotations"][labels.CONFIG_HASH],
            workers=workers,
            ready_workers=workers if workers_ready else 0,
            master_ready=self.world.master_is_ready(key, generation),
            master_uid=None if self.world.volumes else f"master-{generation}-{found.masters}",
            master_created_at=None if self.world.volumes else found.master_since,
            master_runs=self.world.ready(key, generation, MASTER_STARTS) and not found.lacks("master"),
            master_node=_node_of("master", found),
            worker_nodes=frozenset({_node_of("worker", found)}) if workers else frozenset(),
            issues=(
                *(PodIssue(pod=f"{part}-0", reason=NODE_LOST, message=f"{LOST_NODE} is silent") for part in lost),
                *(PodIssue(pod=f"{part}-0", reason="Unschedulable", message=NO_NODE[part]) for part in waiting),
                *((self.world.issue,) if self.world.issue else ()),
                *((OVER_QUOTA,) if self.world.is_crowded_out(key, generation) else ()),
            ),
        )

    async def install(self, key: ObjectKey, values: Manifest, *, keep: int | None = None) -> None:
        try:
            await self.gate.write("install", lambda: self.world.install(key, values, keep=keep))
        except RefusedError as error:
            raise Rejected(str(error)) from error

    async def uninstall(self, key: ObjectKey) -> None:
        await self.gate.write("uninstall", lambda: self.world.uninstall(key))

    async def restore(self, key: ObjectKey) -> None:
        await self.gate.write("restore", lambda: self.world.damage.pop(key, None))

    async def objects(self, key: ObjectKey, *, urgent: bool) -> ClusterObjects:
        del urgent
        return await self.gate.read("objects", lambda: self._objects(key))

    def _objects(self, key: ObjectKey) -> ClusterObjects:
        found, damage = tuple(self.world.parts.get(key, ())), self.world.damage.get(key, ())
        return ClusterObjects(found=found, damage=damage if key in self.world.releases else ())

    async def prune(self, key: ObjectKey, objects: Sequence[ClusterObject]) -> None:
        await self.gate.write("prune", lambda: self.world.prune(key, {found.uid for found in objects}))

    def forget(self, key: ObjectKey) -> None:
        self.forgotten.append(key)


@dataclass(slots=True)
class FakeRuns:
    world: World
    gate: Gate

    async def list(self, key: ObjectKey, uid: str) -> RunList:
        return await self.gate.read("runs", lambda: self._list(key, uid))

    def _list(self, key: ObjectKey, uid: str) -> RunList:
        mine = [job for job in self.world.jobs if job.key == key and (job.owner == uid or job.gone)]
        there = {job.epoch for job in mine if not job.gone}
        shown = [job for job in mine if not job.gone or (job.epoch not in there and self._may_live(job))]
        runs = tuple(self._run(job) for job in sorted(shown, key=lambda job: job.epoch))
        return RunList(runs=runs, version=self.world.pod_version())

    async def start(self, key: ObjectKey, job: Manifest, config_map: Manifest | None = None) -> None:
        def effect() -> None:
            if config_map is not None:
                self.world.config_maps[key, job["metadata"]["name"]] = config_map
            self.world.create_job(key, job)

        try:
            await self.gate.write("start", effect)
        except FileExistsError as error:
            name = job["metadata"]["name"]
            known = self.world.job(key, name)
            if known is None:
                raise Conflict(f"Job {name} is gone") from error
            _refuse_another_job(name, _identity(job), known.manifest)

    async def stop(self, key: ObjectKey, name: str) -> None:
        await self.gate.write("stop", lambda: self.world.delete_job(key, name))

    def terminated_by(self, pod_uid: str, version: int) -> bool:
        return self.world.pod_ends.get(pod_uid, version + 1) <= version

    async def node(self, name: str) -> NodeState:
        return await self.gate.read("node", lambda: self._node(name))

    async def silent_nodes(self, names: Collection[str]) -> frozenset[str]:
        return await self.gate.read("silent_nodes", lambda: frozenset(filter(self.world.is_silent, names)))

    def _node(self, name: str) -> NodeState:
        node = self.world.nodes.get(name)
        if node is None:
            return NodeState(name=name, uid=None, ready=False)
        return NodeState(name=name, uid=node.uid, ready=node.reachable, ready_since=node.changed_at)

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
            node_ready_since=node.changed_at if node else None,
            started_at=driver.started_at,
            deleting_since=pod.deleting_since,
            exit_code=driver.exit_code if ended else None,
            termination_reason="Error" if ended and driver.exit_code else None,
            finished_at=driver.finished_at if ended else None,
            verdict=driver.verdict if ended else None,
            issue=self.world.issue if driver.started_at is None else None,
            force_deleted=pod.force_deleted and not ended,
            ready=not ended and (driver.is_warm if driver.config.awaits_epoch else driver.started_at is not None),
        )


def _node_of(part: str, found: Sets) -> str:
    """Return the node of a part's pods; the lost ones have a node of their own."""
    return LOST_NODE if part in found.lost else SPARK_NODE


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
