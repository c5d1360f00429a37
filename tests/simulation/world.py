"""The world of `fakes.world` with more of its faults: several nodes, a second pod, late writes, clocks that differ."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from fakes.world import SILENCE, START, Job, Node, Pod, RefusedError, Release, World
from fencepost.contract import DriverConfig, ReportedLoss, split_offset_key
from fencepost.fence import Fence, FenceRow, FenceUnavailable
from fencepost.fence.memory import MemoryFenceTable
from fencepost_operator.api import ObjectKey, Pipeline, Status, read_pipeline
from fencepost_operator.desired import labels
from fencepost_operator.errors import Conflict
from simulation.content import Contents
from simulation.drivers import SimulatedDriver
from simulation.failure import require
from simulation.invariants import Invariants

TICK = timedelta(seconds=1)
EVICTION = timedelta(seconds=30)
"""How long a pod tolerates a node that is silent."""


@dataclass(slots=True)
class RecordedTable(MemoryFenceTable):
    """Shows each change of a row."""

    seen: Callable[[FenceRow], None] = lambda _row: None
    reported: Callable[[ReportedLoss], None] = lambda _report: None

    def report_loss(self, pipeline: str, report: ReportedLoss) -> None:
        """Keep the loss, once it was looked at."""
        self.reported(report)
        MemoryFenceTable.report_loss(self, pipeline, report)

    def _put(self, row: FenceRow) -> None:
        MemoryFenceTable._put(self, row)
        self.seen(row)


@dataclass(slots=True, kw_only=True)
class SimulatedWorld(World):
    """All that exists in one history."""

    invariants: Invariants
    pipelines: dict[ObjectKey, Pipeline] = field(default_factory=dict)
    """The pipeline objects as they were read last; see `pipeline`."""
    table: RecordedTable = field(default_factory=RecordedTable)
    nodes: dict[str, Node] = field(default_factory=lambda: {f"node-{n}": Node(uid=f"node-uid-{n}") for n in (1, 2, 3)})
    silent_since: dict[str, datetime] = field(default_factory=dict)
    twins: list[tuple[Job, Pod]] = field(default_factory=list)
    """Second pods of Jobs, which the operator's list does not show while the first one lives."""
    driver_skew: float = 0.0
    batch_takes: float = 1.0
    contents: Contents = field(default_factory=Contents)
    former_growth: dict[str, dict[str, list[tuple[int, datetime]]]] = field(default_factory=dict)
    """By the id of a topic that was recreated since, the `growth` of its partitions."""
    ends_at_claim: list[int] = field(default_factory=list)
    """Exit codes with which drivers end as soon as they have claimed, one each."""
    lose_answers: list[tuple[str, bool]] = field(default_factory=list)
    """Requests to the fence that time out, once each, and whether they are applied."""
    busy_until: datetime = START
    """Until when other pipelines have all the permits to restart."""
    lost_until: datetime = START
    """Until when other pipelines have all the permits to be replaced for want of heartbeats."""
    restarts: set[datetime] = field(default_factory=set)
    """When planned restarts began."""
    failing_code: int | None = None
    slow_batches: float | None = None
    fits: int | None = None
    """All three: of drivers that start from now on."""
    installs: str = ""
    """How installs fail, '' when they do not."""
    chosen: set[int] = field(default_factory=set)
    """Numbers of workers that an operator has chosen and recorded."""
    late: list[tuple[datetime, Callable[[], object]]] = field(default_factory=list)
    tick: timedelta = TICK
    waited: float = 0.0
    """Seconds that clients of the fence have waited for answers; the world does not move meanwhile."""

    def __post_init__(self) -> None:
        World.__post_init__(self)
        rows = self.invariants.rows
        self.table.seen, self.table.reported = rows.put, rows.report
        rows.table, rows.ends, rows.begins = self.table, self.ends, self.starts
        self.table.after = self._answered

    def pipeline(self, key: ObjectKey) -> Pipeline | None:
        """Return a pipeline as the API server has it: reading and writing JSON is not what a history is about."""
        body = self.objects.get(key)
        if body is None:
            self.pipelines.pop(key, None)
            return None
        metadata, known = body["metadata"], self.pipelines.get(key)
        if known is None or known.uid != metadata["uid"]:
            self.pipelines[key] = read_pipeline(copy.deepcopy(body))
        elif known.resource_version != metadata["resourceVersion"]:
            self.pipelines[key] = replace(read_pipeline(copy.deepcopy(body)), status=known.status)
        return self.pipelines[key]

    def write_status(self, key: ObjectKey, status: Status) -> Pipeline:
        """Replace a pipeline's status, if that is lawful."""
        before = self.pipelines[key]
        ended = {driver.config.epoch for driver in self.processes if not driver.alive}
        self.invariants.statuses.put(before, status, self.now, ended)
        self.invariants.output.codes.record(status.mixed_output)
        if status.autoscale is not None:
            self.chosen.add(status.autoscale.workers)
        self.touch(key)
        version = self.objects[key]["metadata"]["resourceVersion"]
        self.pipelines[key] = replace(before, status=status, resource_version=version)
        return self.pipelines[key]

    # the fence

    def _answer(self, call: str) -> None:
        World._answer(self, call)
        if (call, False) in self.lose_answers:
            self.lose_answers.remove((call, False))
            raise FenceUnavailable("timed out, and not applied")

    def _answered(self, call: str) -> None:
        if (call, True) in self.lose_answers:
            self.lose_answers.remove((call, True))
            raise FenceUnavailable("timed out, and applied")

    def fence(self, row: str, *, skew: float = 0.0) -> Fence:
        """Return the fence of a row, on a clock that is ahead by some seconds."""
        ahead = round(skew * 1e6)
        return Fence(
            self.table,
            row,
            patience=3.0,
            now=lambda: self._micros() + self.contents.micros + ahead,
            monotonic=lambda: self.now.timestamp() + self.waited,
            sleep=self._wait,
        )

    def _wait(self, seconds: float) -> None:
        self.waited += seconds

    # what the operator does

    def create_job(self, key: ObjectKey, manifest: Mapping[str, Any]) -> None:
        """Create a Job, if that is safe."""
        if self.job(key, manifest["metadata"]["name"]) is None:
            metadata = manifest["metadata"]
            living = [(d.config.epoch, d.generation, d.uid) for d in self.processes if d.alive]
            generation = int(metadata["annotations"][labels.GENERATION])
            row, pipeline = next(iter(self.table.rows.values()), None), self.pipeline(key)
            status = pipeline.status if pipeline is not None else None
            if pipeline is not None and metadata["ownerReferences"][0]["uid"] == pipeline.uid:
                self.invariants.start(int(metadata["labels"][labels.EPOCH]), generation, row, status, living)
        World.create_job(self, key, manifest)

    def create_purge(self, job: Mapping[str, Any], config_map: Mapping[str, Any]) -> None:
        """Create a Job that counts or deletes output; nothing fails here, and what is deleted goes at once."""
        before = len(self.purged)
        World.create_purge(self, job, config_map)
        for request in self.purged[before:]:
            assert request.timestamp is not None
            self.invariants.output.codes.delete(request.ranges, request.timestamp)

    def install(self, key: ObjectKey, values: Mapping[str, Any], *, keep: int | None = None) -> None:
        """helm upgrade --install, as long as nothing makes it fail."""
        if "autoscale" in self.objects.get(key, {}).get("spec", {}).get("cluster", {}):
            require(values["workers"] in self.chosen, f"{values['workers']} workers were not recorded before")
        if self.installs == "refused":
            raise RefusedError("admission webhook denied the request")
        if self.installs == "pending":
            before = self.releases.get(key)
            revision, deployed = (before.revision + 1, before.deployed) if before else (1, None)
            self._create(key, values["generation"], ("Secret", "ConfigMap"))
            self.releases[key] = Release(values, revision, "pending", deployed)
            raise RefusedError("context deadline exceeded")
        World.install(self, key, values, keep=keep)

    # what time does

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + timedelta(seconds=seconds)
        while self.now < end:
            step = min(self.tick, end - self.now)
            self.now += step
            self._produce(step.total_seconds())
            for job in list(self.jobs):
                self._move(job)
            for job, pod in list(self.twins):
                self._move_twin(job, pod)
            for driver in self.buried:
                if driver.exit_code is None:
                    driver.step(self.now, executors=driver.row is not None)
            self._land()

    def _produce(self, seconds: float) -> None:
        for partition in self.ends:
            self.ends[partition] += round(self.rate * seconds)
            grown = self.growth.setdefault(partition, [])
            if not grown or grown[-1][0] < self.ends[partition]:
                grown.append((self.ends[partition], self.now))

    def _land(self) -> None:
        for landing in [one for one in self.late if one[0] <= self.now]:
            self.late.remove(landing)
            try:
                landing[1]()
            except (Conflict, KeyError, FileExistsError, RefusedError):
                continue

    def _move(self, job: Job) -> None:
        pod = job.pod
        if pod is not None and pod.driver.started_at is None and self.issue is None and self.is_heard(pod.node):
            pod.driver.started_at = self.now
        if pod is None or self.is_heard(pod.node):
            World._move(self, job)
            return
        pod.driver.step(self.now, executors=self._has_executors(job, pod.driver))
        if self.now - self.silent_since[pod.node] >= EVICTION:
            pod.deleting_since = pod.deleting_since or self.now
        if pod.force_deleted:
            self._end_pod(job)

    def _move_twin(self, job: Job, twin: Pod) -> None:
        twin.driver.step(self.now, executors=self._has_executors(job, twin.driver))
        if job not in self.jobs or not twin.driver.alive:
            if twin.driver.alive:
                twin.driver.end(self.now, 137)
            self.twins.remove((job, twin))
            self._show_end(twin)
            self.buried.append(twin.driver)
        elif job.pod is None or not job.pod.driver.alive:
            World._bury(self, job)
            self._delete_twin(job, twin)

    def _delete_twin(self, job: Job, twin: Pod) -> None:
        """The Job has failed with its first pod: its controller deletes the second one, the only one that is left."""
        self.twins.remove((job, twin))
        job.pod = twin
        self.delete_pod(twin)

    def _bury(self, job: Job) -> None:
        if job.pod is not None and job.pod.driver.alive and job.pod.driver.started_at is None:
            job.pod.driver.end(self.now, 137)  # a pod that goes before its container started never starts it
        World._bury(self, job)

    def _end_pod(self, job: Job) -> None:
        self._bury(job)
        twin = next((pod for owner, pod in self.twins if owner is job and pod.driver.alive), None)
        if twin is not None:
            self._delete_twin(job, twin)
        elif job.deleting and job in self.jobs:
            self.jobs.remove(job)

    def _has_executors(self, job: Job, driver: Any) -> bool:
        generation = int(job.manifest["metadata"]["annotations"][labels.GENERATION])
        return (not generation or generation in self.sets.get(job.key, {})) and World._has_executors(self, job, driver)

    def _pod(self, job: Job) -> Pod:
        number = next(self.uids)
        uid, config = f"pod-{number}", DriverConfig.from_json(self._config(job))
        driver = SimulatedDriver(
            config,
            uid,
            self.fence(config.pipeline, skew=self.driver_skew),
            self._ends,
            lost=self.lost,
            output=self.invariants.output,
            contents=self.contents,
            ends_at_claim=self.ends_at_claim,
            generation=int(job.manifest["metadata"]["annotations"][labels.GENERATION]),
            batch_takes=timedelta(seconds=self.slow_batches or self.batch_takes),
            fits=self.fits,
        )
        driver.fails_with = self._fault_of(job)
        if self.failing_code is not None:
            driver.fails_with = self.failing_code  # type: ignore[assignment]
        heard = [name for name in self.nodes if self.is_heard(name)]
        if self.issue is None and heard:
            driver.started_at = self.now
        names = heard or list(self.nodes)
        return Pod(f"{job.name}-{uid}", uid, names[number % len(names)], driver)

    def start_twin(self, job: Job) -> None:
        """Let the Job controller start a second pod."""
        if job.pod is not None and job.pod.driver.alive and not job.deleting:
            self.twins.append((job, self._pod(job)))

    # topics

    def grow(self, topic: str) -> None:
        """Give a topic another partition: a key of its records has older ones in other partitions.

        What no driver has seen when the topic grows again is one growth with that, see `driver.planning.plan`.
        """
        present = {key: end for key, end in self.ends.items() if split_offset_key(key)[0] == topic}
        row = next(iter(self.table.rows.values()), None)
        known = {**row.growth_barrier, **row.offsets} if row is not None else {}
        older = {key: end for key, end in present.items() if key in known}
        key = f"{topic}/{len(present)}"
        self.invariants.output.grown.setdefault(self.topic_ids.get(topic, f"id-{topic}"), {})[key] = older
        self.ends[key], self.growth[key] = 0, [(0, self.now)]

    def recreate(self, topic: str) -> None:
        """Replace a topic by one of the same name and as many partitions, with a few records each."""
        before = self.topic_ids.get(topic, f"id-{topic}")
        self.topic_ids[topic] = f"{before}x"
        self.former_growth[before] = dict(self.growth)
        self.growth.clear()
        self.starts.clear()
        for key in self.ends:
            self.ends[key] = 10

    def at(self, moment: datetime) -> dict[str, int]:
        """Return the first offsets that are not before a moment, of partitions that have one.

        They are of the log that the fence row's offsets are of, also when the topic was recreated since.
        """
        row = next(iter(self.table.rows.values()), None)
        ids = row.topic_ids if row is not None else {}
        found: dict[str, int] = {}
        for key in self.ends:
            growth = self.former_growth.get(ids.get(split_offset_key(key)[0], ""), self.growth)
            offset = next((end for end, at in growth.get(key, ()) if at >= moment), None)
            if offset is not None:
                found[key] = offset
        return found

    # nodes

    def is_heard(self, node: str) -> bool:
        """Return whether a node's kubelet answers."""
        found = self.nodes.get(node)
        return found is not None and found.reachable

    def is_silent(self, node: str) -> bool:
        """Return whether a node has not reported for so long that the operator takes it for silent."""
        since = self.silent_since.get(node)
        return World.is_silent(self, node) and (since is None or self.now - since >= SILENCE)

    def silence(self, node: str) -> None:
        """Let a node's kubelet be silent; its processes live on."""
        self.nodes[node].reachable, self.nodes[node].changed_at = False, self.now
        self.silent_since.setdefault(node, self.now)

    def remove_node(self, name: str) -> None:
        """Delete a Node object: its pods are collected, its processes live on for as long as the machine does."""
        if name in self.nodes:
            self.nodes[name] = Node(uid=f"{self.nodes[name].uid}x", reachable=False)
        for job in list(self.jobs):
            if job.pod is not None and job.pod.node == name:
                self._end_pod(job)

    def hear(self, name: str) -> None:
        """Let a node report again: its kubelet ends what was deleted meanwhile."""
        self.nodes[name].reachable, self.nodes[name].changed_at = True, self.now
        self.silent_since.pop(name, None)
        known = set()
        for job in self.jobs:
            if job.pod is not None and job.pod.node == name:
                known.add(job.pod.uid)
                if job.pod.deleting_since is not None:
                    job.pod.driver.asked_at = job.pod.driver.asked_at or self.now
        for _, twin in self.twins:
            known.add(twin.uid)
        for driver in self.buried:
            if driver.alive and driver.uid not in known:
                driver.end(self.now, 137)

    # what events look at

    @property
    def processes(self) -> list[SimulatedDriver]:
        """All driver processes that ever were, the living ones last."""
        found: list[Any] = list(itertools.chain(self.drivers, (pod.driver for _, pod in self.twins)))
        return found

    @property
    def newest(self) -> Job | None:
        """The newest Job that has a pod."""
        return max((job for job in self.jobs if job.pod is not None), key=lambda job: job.epoch, default=None)
