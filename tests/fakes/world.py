"""Kubernetes, Helm, Kafka and Cassandra in memory, with a clock that only `advance` moves.

`World` holds what is there and moves it; `fakes.ports` shows it to the operator through the ports.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from fakes.drivers import Driver
from fencepost.contract import DriverConfig, ExitCode
from fencepost.contract.purge_request import PURGE_FILE, PurgeRequest
from fencepost.fence import Fence, FenceUnavailable
from fencepost.fence.memory import MemoryFenceTable
from fencepost.fence.snapshots import Snapshot
from fencepost_operator.api import ObjectKey
from fencepost_operator.desired import labels
from fencepost_operator.desired.jobs import run_config
from fencepost_operator.observation import (
    ClusterObject,
    Fact,
    KeyspaceSettings,
    Known,
    PodIssue,
    Retention,
    TopicSettings,
)

REPLICATED = KeyspaceSettings(replication={"class": "NetworkTopologyStrategy", "datacenter1": "3"})
DURABLE_TOPIC = TopicSettings(replicas=3, min_insync_replicas=2, unclean_leader_election=False)
PARTS = ("Secret", "ConfigMap", "PodDisruptionBudget", "Service", "StatefulSet")
"""The kinds of the chart, in the order in which Helm creates them."""
SPARK_NODE, LOST_NODE = "node-8", "node-9"
"""Where the pods of a cluster are: of a part that was lost, and of the others."""
SILENCE = timedelta(seconds=20)
"""Until the operator takes a node for silent whose kubelet does not renew its Lease."""
NODE_LOSS = timedelta(seconds=55)
"""Until a silent node counts as lost."""
START = datetime(2026, 1, 1, tzinfo=UTC)
POD_DELAY = timedelta(seconds=1)
MASTER_STARTS = timedelta(seconds=1)
MASTER_DELAY = timedelta(seconds=3)
WORKER_DELAY = timedelta(seconds=5)
PURGE_DELAY = timedelta(seconds=2)
TICK = timedelta(milliseconds=500)


@dataclass(slots=True)
class Node:
    """A machine. `reachable` False: its kubelet is silent, its processes live on."""

    uid: str = "node-uid-1"
    reachable: bool = True
    changed_at: datetime | None = None
    """When it became ready or stopped to be, None where it has been ready since before the test."""


@dataclass(slots=True)
class Pod:
    """A driver's pod."""

    name: str
    uid: str
    node: str
    driver: Driver
    deleting_since: datetime | None = None
    force_deleted: bool = False


@dataclass(slots=True)
class Job:
    """A driver Job."""

    manifest: Mapping[str, Any]
    key: ObjectKey
    owner: str
    created_at: datetime
    epoch: int
    pod: Pod | None = None
    deleting: bool = False
    had_pod: bool = False
    gone: bool = False
    """Only its pod is left of it."""
    orphaned: bool = False

    @property
    def name(self) -> str:
        name: str = self.manifest["metadata"]["name"]
        return name

    @property
    def termination_grace(self) -> int:
        """Seconds between SIGTERM and SIGKILL."""
        seconds: int = self.manifest["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        return seconds

    @property
    def finished(self) -> bool:
        """Whether the Job controller has seen its end."""
        return (self.had_pod and self.pod is None) or (self.pod is not None and not self.pod.driver.alive)


@dataclass(slots=True)
class Purge:
    """A Job that counts or deletes output. It ends after PURGE_DELAY, with `failure` if that is set."""

    owner: str
    request: PurgeRequest
    created_at: datetime
    failure: str = ""
    left: int = 0
    exit_code: int | None = None
    """How its pod ended without saying why."""


def owner_uid(manifest: Mapping[str, Any]) -> str:
    """Return the uid of an object's owner."""
    uid: str = manifest["metadata"]["ownerReferences"][0]["uid"]
    return uid


class RefusedError(Exception):
    """The API server refuses an object."""


@dataclass(slots=True)
class Release:
    """A Helm release, by its newest revision."""

    values: Mapping[str, Any]
    revision: int
    state: str = "deployed"
    deployed: int | None = None
    """The generation of the last revision that the API server took as a whole."""


@dataclass(slots=True)
class Sets:
    """The StatefulSets of one generation."""

    values: Mapping[str, Any]
    created_at: datetime
    lost: dict[str, datetime] = field(default_factory=dict)
    """Since when a component's pods ("master", "worker") are on a node that is silent; nothing replaces them."""
    evicted: frozenset[str] = frozenset()
    """Components whose pods wait for a node, as after a drain: the master's volume is on the node that was drained."""

    masters: int = 0
    """How many masters there were before this one, which knows nothing of what they knew."""
    master_since: datetime | None = None
    """When this master took the place of another one."""
    executors_since: int = 0
    """The first master of whose executors some may be there: those before it were evicted."""

    def lacks(self, component: str) -> bool:
        """Return whether none of a component's pods can be used."""
        return component in self.lost or component in self.evicted


@dataclass(slots=True)
class World:
    """All that exists. Tests change it at will; `advance` lets time pass."""

    now: datetime = START
    objects: dict[ObjectKey, dict[str, Any]] = field(default_factory=dict)
    releases: dict[ObjectKey, Release] = field(default_factory=dict)
    parts: dict[ObjectKey, list[ClusterObject]] = field(default_factory=dict)
    """All that Helm created, of all generations."""
    kept: set[tuple[ObjectKey, int]] = field(default_factory=set)
    """Generations whose objects Helm does not delete."""
    sets: dict[ObjectKey, dict[int, Sets]] = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)
    config_maps: dict[tuple[ObjectKey, str], Mapping[str, Any]] = field(default_factory=dict)
    """What each Job mounts."""
    buried: list[Driver] = field(default_factory=list)
    """Drivers whose pod is gone; those on a lost node may live."""
    nodes: dict[str, Node] = field(default_factory=lambda: {"node-1": Node()})
    table: MemoryFenceTable = field(default_factory=MemoryFenceTable)
    revisions: dict[ObjectKey, dict[str, Any]] = field(default_factory=dict)
    """ControllerRevisions by their own key."""
    rewinds: dict[ObjectKey, dict[str, Any]] = field(default_factory=dict)
    """PipelineRewind objects by their own key."""
    trials: dict[ObjectKey, dict[str, Any]] = field(default_factory=dict)
    """PipelineTrial objects by their own key."""
    purges: dict[str, Purge] = field(default_factory=dict)
    """The Jobs that count or delete output, by name."""
    purged: list[PurgeRequest] = field(default_factory=list)
    """What was deleted, in order."""
    snapshots: dict[tuple[str, str], Snapshot] = field(default_factory=dict)
    damaged: set[bytes] = field(default_factory=set)
    """Checkpoints of which a file is gone."""
    ends: dict[str, int] = field(default_factory=lambda: {"orders/0": 100, "orders/1": 100})
    leaderless: set[str] = field(default_factory=set)
    """Partitions of `ends` for which no leader answers."""
    held: dict[str, int] = field(default_factory=dict)
    """Records after the end of a partition that an open transaction keeps from being read."""
    starts: dict[str, int] = field(default_factory=dict)
    """Where the logs begin, if not at 0; only what the operator sees of it."""
    purge_failure: str = ""
    count_fails: bool = False
    """Whether counting fails with `purge_failure` too."""
    purge_exit_code: int | None = None
    damage: dict[ObjectKey, tuple[str, ...]] = field(default_factory=dict)
    """Objects of clusters that a user deleted or changed."""
    purge_issue: PodIssue | None = None
    """What keeps the pods of such Jobs from starting."""
    purge_hangs: bool = False
    """Whether such a Job neither ends nor says anything."""
    topic_ids: dict[str, str] = field(default_factory=dict)
    """Ids of topics that were recreated."""
    retention: Fact[Retention] = field(default_factory=lambda: Known(Retention()))
    growth: dict[str, list[tuple[int, datetime]]] = field(default_factory=dict)
    """Log ends of each partition, and from when on it was that long."""
    rate: float = 10.0
    """Records per second that each partition gets."""
    lost: dict[str, Any] = field(default_factory=dict)
    """What Kafka no longer has, for drivers that start from now on; see `Driver.lost`."""
    references: dict[tuple[str, str], str] = field(default_factory=dict)
    keyspaces: dict[str, KeyspaceSettings | None] = field(default_factory=dict)
    """Those that are not here are REPLICATED."""
    volumes: bool = False
    """Whether masters keep what they know on a volume, which ties them to its node."""
    commitlog_sync: str | None = "periodic"
    topic_settings: TopicSettings = field(default_factory=lambda: DURABLE_TOPIC)
    """Of every topic."""
    driver_only: bool = False
    """Whether only the driver may connect to Kafka, as with OAuth."""
    kafka_down: bool = False
    cassandra_down: bool = False
    room: int | None = None
    """How many Spark clusters have their pods at the same time; a quota refuses those of further ones."""
    issue: PodIssue | None = None
    """Of every pod that is made from now on; it never starts then."""
    kubelet_kills: bool = True
    """Whether a process that outlives its grace period is killed."""
    broken_images: dict[str, int] = field(default_factory=dict)
    """The exit codes with which drivers of an image end before they claim."""
    created_jobs: list[str] = field(default_factory=list)
    """The names of all Jobs, but for those that awaited their epoch."""
    waiting_jobs: list[str] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)
    ending_namespaces: set[str] = field(default_factory=set)
    """Namespaces that are being deleted."""
    uids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    pod_versions: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    """The resourceVersions of pods and of their lists."""
    pod_ends: dict[str, int] = field(default_factory=dict)
    """By the uid of a pod, the resourceVersion with which it first showed that its driver has ended."""

    def __post_init__(self) -> None:
        self.table.before = self._answer
        self.table.now = self._micros

    def _answer(self, _call: str) -> None:
        if self.cassandra_down:
            raise FenceUnavailable("no node of Cassandra answers")

    def _micros(self) -> int:
        return int(self.now.timestamp() * 1e6)

    def _seconds(self) -> float:
        return (self.now - START).total_seconds()

    def fence(self, row: str) -> Fence:
        """Return the fence of a row, on this world's clock; it gives up at once."""
        return Fence(
            self.table, row, patience=0.0, now=self._micros, monotonic=self._seconds, sleep=lambda _seconds: None
        )

    def lose_node(self, key: ObjectKey, component: str, *, ago: timedelta = timedelta(0)) -> None:
        """Silence the node of the cluster's master or of its workers."""
        self._newest(key).lost[component] = self.now - ago

    def drain(self, key: ObjectKey, components: Collection[str], *, generation: int | None = None) -> None:
        """Evict components of the cluster; they start again once the node takes pods: see `uncordon`.

        A master without a volume starts at once on another node. Without a generation it is the newest cluster.
        """
        sets = self._newest(key) if generation is None else self.sets[key][generation]
        sets.evicted = frozenset(components)
        if "master" in components and not self.volumes:
            sets.evicted -= {"master"}
            sets.masters, sets.master_since = sets.masters + 1, self.now
        if "worker" in components:
            sets.executors_since = sets.masters

    def uncordon(self, key: ObjectKey) -> None:
        """Let every node take pods."""
        for sets in self.sets.get(key, {}).values():
            sets.evicted = frozenset()

    def is_silent(self, node: str) -> bool:
        """Return whether a node has not reported for SILENCE; of a driver's node, at all."""
        if node == LOST_NODE:
            lost = (since for sets in self.sets.values() for found in sets.values() for since in found.lost.values())
            return any(self.now - since >= SILENCE for since in lost)
        return node in self.nodes and not self.nodes[node].reachable

    def recover_nodes(self, key: ObjectKey) -> None:
        """Let the nodes of the cluster report again."""
        self._newest(key).lost.clear()

    # what users do

    def apply(self, body: dict[str, Any]) -> None:
        """Create an object, or change the spec of the one that is there."""
        metadata = body["metadata"]
        key = ObjectKey(metadata["namespace"], metadata["name"])
        present = self.objects.get(key)
        if present is None:
            self.objects[key] = body
            return
        if present["spec"] != body["spec"]:
            present["spec"] = body["spec"]
            present["metadata"]["generation"] += 1
            self.touch(key)

    def change(self, key: ObjectKey, **fields: Any) -> None:
        """Replace top-level fields of a spec."""
        present = self.objects[key]
        self.apply({"metadata": present["metadata"], "spec": {**present["spec"], **fields}})

    def delete(self, key: ObjectKey) -> None:
        """Ask for an object's deletion."""
        present = self.objects[key]
        if not present["metadata"].get("finalizers"):
            self.forget(key)
            return
        present["metadata"].setdefault("deletionTimestamp", self.now.isoformat())
        self.touch(key)

    def ask_for_rewind(self, name: str, to: dict[str, Any], *, pipeline: ObjectKey, **spec: Any) -> None:
        """Create a PipelineRewind."""
        asked = {"pipeline": pipeline.name, "to": to, "deleteOutput": False, **spec}
        created = self.now.replace(microsecond=0).isoformat()
        identity = {"namespace": pipeline.namespace, "name": name, "uid": f"rewind-{name}", "generation": 1}
        metadata = {**identity, "resourceVersion": "1", "creationTimestamp": created}
        self.rewinds[ObjectKey(pipeline.namespace, name)] = {"metadata": metadata, "spec": asked}

    def create_trial(self, key: ObjectKey, manifest: Mapping[str, Any]) -> None:
        """Create a PipelineTrial, which nothing runs: see `end_trial`."""
        created = self.now.replace(microsecond=0).isoformat()
        identity = {"uid": f"trial-{next(self.uids)}", "generation": 1, "resourceVersion": "1"}
        metadata = {**manifest["metadata"], **identity, "creationTimestamp": created}
        self.trials[key] = {**manifest, "metadata": metadata, "status": {"observedGeneration": -1, "phase": "Waiting"}}

    def end_trial(self, phase: str = "Completed", message: str = "", *, rows: Mapping[str, int] | None = None) -> None:
        """End each trial that runs: with these rows, or without a result."""
        counts = {"compared": 10, "equal": 10, "changed": 0, "missing": 0, "added": 0, **(rows or {})}
        found = {"records": 10, "recordsTotal": 10, "complete": True, "rows": counts} if phase == "Completed" else {}
        for trial in self.trials.values():
            if trial["status"]["phase"] not in {"Completed", "Failed"}:
                trial["status"] = {"observedGeneration": 1, "phase": phase, "message": message, **found}

    def create_purge(self, job: Mapping[str, Any], config_map: Mapping[str, Any]) -> None:
        """Create a Job that counts or deletes output, unless it is there."""
        name, owner = job["metadata"]["name"], job["metadata"]["ownerReferences"][0]["uid"]
        request = PurgeRequest.from_json(config_map["data"][PURGE_FILE])
        failure = self.purge_failure if request.timestamp is not None or self.count_fails else ""
        purge = Purge(owner, request, self.now, failure=failure, exit_code=self.purge_exit_code)
        if self.purges.setdefault(name, purge) is purge and request.timestamp is not None:
            self.purged.append(request)

    def delete_rewind(self, key: ObjectKey) -> None:
        """Ask for a rewind's deletion."""
        metadata = self.rewinds[key]["metadata"]
        if not metadata.get("finalizers"):
            del self.rewinds[key]
            return
        metadata.setdefault("deletionTimestamp", self.now.isoformat())
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)

    def touch(self, key: ObjectKey) -> None:
        """Move an object's resourceVersion."""
        metadata = self.objects[key]["metadata"]
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)

    def forget(self, key: ObjectKey) -> None:
        """Remove an object; what it owns is collected."""
        uid = self.objects.pop(key)["metadata"]["uid"]
        for job in [job for job in self.jobs if job.owner == uid]:
            self._bury(job)
            self.jobs.remove(job)
        self.parts.pop(key, None)
        self.sets.pop(key, None)
        for name in [name for name, found in self.revisions.items() if owner_uid(found) == uid]:
            del self.revisions[name]

    # what the operator does

    def create_job(self, key: ObjectKey, manifest: Mapping[str, Any]) -> None:
        """Create a Job. Raises FileExistsError when its name is taken."""
        name = manifest["metadata"]["name"]
        if self.job(key, name) is not None:
            raise FileExistsError(name)
        owner = manifest["metadata"]["ownerReferences"][0]["uid"]
        epoch = int(manifest["metadata"]["labels"][labels.EPOCH])
        job = Job(manifest, key, owner, self.now, epoch)
        self.jobs.append(job)
        waits = "startupProbe" in manifest["spec"]["template"]["spec"]["containers"][0]
        (self.waiting_jobs if waits else self.created_jobs).append(name)

    def job(self, key: ObjectKey, name: str) -> Job | None:
        """Return the Job of that name."""
        return next((job for job in self.jobs if job.key == key and job.name == name and not job.gone), None)

    def delete_job(self, key: ObjectKey, name: str, *, cascade: str = "foreground") -> None:
        """Delete a Job as `kubectl delete --cascade` does: after its pod, before it, or without it ("orphan")."""
        for job in [job for job in self.jobs if job.key == key and job.name == name and not job.gone]:
            job.deleting, job.gone, job.orphaned = True, cascade != "foreground", cascade == "orphan"
            if job.pod is None:
                self.jobs.remove(job)
            elif not job.orphaned:
                self.delete_pod(job.pod)

    def delete_pod(self, pod: Pod, *, force: bool = False) -> None:
        """Ask a pod to end: SIGTERM."""
        pod.deleting_since, pod.force_deleted = pod.deleting_since or self.now, pod.force_deleted or force
        if self.nodes[pod.node].reachable:
            pod.driver.asked_at = pod.driver.asked_at or self.now

    def install(self, key: ObjectKey, values: Mapping[str, Any], *, keep: int | None = None) -> None:
        """helm upgrade --install, StatefulSets last. Raises RefusedError when the API server refuses them.

        What the last deployed revision had and these values have not is deleted, unless something is refused.  Helm
        leaves what is marked, as the objects of the generation `keep` are from here on.
        """
        if keep is not None:
            self.kept.add((key, keep))
        before, generation = self.releases.get(key), values["generation"]
        revision = before.revision + 1 if before is not None else 1
        deployed = before.deployed if before is not None else None
        if any(taint.get("operator") == "Exists" and taint.get("value") for taint in values["tolerations"]):
            self._create(key, generation, PARTS[:-1])
            self.releases[key] = Release(values, revision, "failed", deployed)
            raise RefusedError("spec.template.spec.tolerations[0].operator: its value must be empty")
        current = deployed if deployed is not None or before is None else before.values["generation"]
        if current not in {None, generation} and (key, current) not in self.kept:
            self._drop(key, current)
        self._create(key, generation, PARTS)
        self.sets.setdefault(key, {}).setdefault(generation, Sets(values, self.now)).values = values
        self.releases[key] = Release(values, revision, deployed=generation)
        self.damage.pop(key, None)

    def uninstall(self, key: ObjectKey) -> None:
        """helm uninstall: what the newest revision names goes, and nothing else."""
        release = self.releases.pop(key, None)
        if release is not None and (key, release.values["generation"]) not in self.kept:
            self._drop(key, release.values["generation"])

    def prune(self, key: ObjectKey, uids: Collection[str]) -> None:
        """Delete objects by their uid."""
        for part in self.parts.get(key, []):
            if part.uid in uids and part.kind == PARTS[-1]:
                self.sets[key].pop(part.generation, None)
        self.parts[key] = [part for part in self.parts.get(key, []) if part.uid not in uids]

    def _newest(self, key: ObjectKey) -> Sets:
        return self.sets[key][max(self.sets[key])]

    def _create(self, key: ObjectKey, generation: int, kinds: Sequence[str]) -> None:
        present = self.parts.setdefault(key, [])
        there = {(part.kind, part.generation) for part in present}
        for kind in kinds:
            if (kind, generation) not in there:
                name, uid = f"{key.name}-g{generation}-{kind.lower()}", f"part-{next(self.uids)}"
                present.append(ClusterObject(kind=kind, name=name, uid=uid, generation=generation))

    def _drop(self, key: ObjectKey, generation: int | None) -> None:
        self.prune(key, {part.uid for part in self.parts.get(key, []) if part.generation == generation})

    # what time does

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + timedelta(seconds=seconds)
        while self.now < end:
            step = min(TICK, end - self.now)
            self.now += step
            for partition in (key for key in self.ends if key not in self.leaderless):
                self.ends[partition] += round(self.rate * step.total_seconds())
                grown = self.growth.setdefault(partition, [])
                if not grown or grown[-1][0] < self.ends[partition]:
                    grown.append((self.ends[partition], self.now))
            for job in list(self.jobs):
                self._move(job)
            for driver in self.buried:
                driver.step(self.now, executors=driver.row is not None)

    def ready(self, key: ObjectKey, generation: int, delay: timedelta) -> bool:
        """Return whether the pods of a generation have had that long to get ready."""
        found = self.sets.get(key, {}).get(generation)
        if found is None or self.issue is not None or self.is_crowded_out(key, generation):
            return False
        return self.now - found.created_at >= delay

    def is_crowded_out(self, key: ObjectKey, generation: int) -> bool:
        """Return whether older generations take all the room."""
        older = sum(each < generation for each in self.sets.get(key, {}))
        return self.room is not None and older >= self.room

    def _move(self, job: Job) -> None:
        if job.pod is None and not job.had_pod and self.now - job.created_at >= POD_DELAY:
            job.pod, job.had_pod = self._pod(job), True
        pod = job.pod
        if pod is None:
            return
        driver = pod.driver
        driver.step(self.now, executors=self._has_executors(job, driver))
        grace = timedelta(seconds=0 if pod.force_deleted else job.termination_grace)
        overdue = pod.deleting_since is not None and self.now - pod.deleting_since > grace
        if overdue and driver.alive and self.kubelet_kills and self.nodes[pod.node].reachable:
            driver.end(self.now, 137)
        if pod.deleting_since is not None and (not driver.alive or driver.started_at is None):
            self._bury(job)
            if job.deleting:
                self.jobs.remove(job)

    def master_is_ready(self, key: ObjectKey, generation: int) -> bool:
        """Return whether a generation has a master; one that follows another waits until that has no executors left."""
        if not self.ready(key, generation, MASTER_DELAY) or (sets := self.sets[key][generation]).lacks("master"):
            return False
        if sets.master_since is None:
            return True
        before = {(generation, number) for number in range(sets.executors_since, sets.masters)}
        executors = not sets.lacks("worker") and any(
            driver.alive and driver.master in before for driver in self.drivers
        )
        return self.now - sets.master_since >= MASTER_DELAY and not executors

    def _has_executors(self, job: Job, driver: Driver) -> bool:
        """Return whether executors are there; those that a driver has outlive the master, but no eviction.

        A driver without a cluster is its own.
        """
        if driver.config.spark_master.startswith("local"):
            return True
        generation = int(job.manifest["metadata"]["annotations"][labels.GENERATION])
        if not self.ready(job.key, generation, WORKER_DELAY):
            return False
        sets = self.sets[job.key][generation]
        if sets.lacks("worker") or (sets.lacks("master") and driver.row is None):
            return False
        if driver.master is None and self.master_is_ready(job.key, generation):
            driver.master = (generation, sets.masters)
        return driver.master is not None and driver.master[1] >= sets.executors_since

    def _pod(self, job: Job) -> Pod:
        config, uid = DriverConfig.from_json(self._config(job)), f"pod-{next(self.uids)}"
        driver = Driver(config, uid, self.fence(config.pipeline), self._ends, lost=self.lost)
        driver.fails_with = self._fault_of(job)
        if self.issue is None:
            driver.started_at = self.now
        return Pod(f"{job.name}-{uid}", uid, next(iter(self.nodes)), driver)

    def _fault_of(self, job: Job) -> ExitCode | None:
        image = job.manifest["spec"]["template"]["spec"]["containers"][0]["image"]
        return ExitCode(self.broken_images[image]) if image in self.broken_images else None

    def _config(self, job: Job) -> str:
        return str(self.config_maps[job.key, job.name]["data"][run_config.KEY])

    def arrived(self, partition: str, offset: int) -> datetime:
        """Return when the record at an offset came, as exactly as the clock moves."""
        return next((at for end, at in self.growth.get(partition, ()) if end > offset), self.now)

    def _ends(self) -> Mapping[str, int] | None:
        return None if self.kafka_down else {k: end for k, end in self.ends.items() if k not in self.leaderless}

    def pod_version(self) -> int:
        """Return the resourceVersion of the pods as they are now, once each end that they show has one."""
        for job in self.jobs:
            self._show_end(job.pod)
        return next(self.pod_versions)

    def _show_end(self, pod: Pod | None) -> None:
        """Show the end of a pod's driver, unless its node is silent."""
        node = self.nodes.get(pod.node) if pod is not None else None
        if pod is not None and not pod.driver.alive and node is not None and node.reachable:
            self.pod_ends.setdefault(pod.uid, next(self.pod_versions))

    def _bury(self, job: Job) -> None:
        if job.pod is not None:
            self._show_end(job.pod)
            self.buried.append(job.pod.driver)
            job.pod = None

    # what tests look at

    @property
    def drivers(self) -> list[Driver]:
        """All drivers that ever had a pod, the living ones last."""
        return [*self.buried, *(job.pod.driver for job in self.jobs if job.pod is not None)]

    def kill_driver(self, code: int = 137) -> Driver:
        """End the newest run's process."""
        driver = self.newest_pod().driver
        driver.end(self.now, code)
        return driver

    def newest_pod(self) -> Pod:
        """Return the pod of the newest run that has one."""
        return max((job for job in self.jobs if job.pod is not None), key=lambda job: job.epoch).pod  # type: ignore[return-value]
