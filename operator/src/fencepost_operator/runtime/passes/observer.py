"""Looks at everything a decision needs, at once; what cannot be seen in time is Unknown, never absent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from fencepost.contract import ReportedLoss, commit_ms
from fencepost.fence import BatchProgress, FenceRow, heartbeat_key
from fencepost.fence.snapshots import Snapshot
from fencepost_operator.api import (
    ObjectKey,
    Pipeline,
    Reason,
    ReconcileConfig,
    Rewind,
    Rollback,
    RunStatus,
    Spec,
    Status,
    Trial,
    UpgradeStrategy,
)
from fencepost_operator.decision.cluster.silent_nodes import nodes_to_watch
from fencepost_operator.decision.durability import is_due
from fencepost_operator.decision.kafka.lag import unread_positions
from fencepost_operator.decision.kafka.snapshots import beyond, needs_list, whole_milliseconds
from fencepost_operator.decision.run.open_batch import is_open
from fencepost_operator.desired.connections import cassandra_connection, fence_place, kafka_connection, sink_connections
from fencepost_operator.desired.identity.code import finishing_spec, revision_in
from fencepost_operator.desired.identity.hashes import checkpoint_secrets, fingerprints, referenced
from fencepost_operator.desired.identity.revision import revision_of
from fencepost_operator.errors import Busy, Conflict, Denied, FencepostError, PortError, Rejected
from fencepost_operator.observation import (
    DRIVER_ONLY,
    Began,
    CassandraSettings,
    ClusterObjects,
    DurabilityFacts,
    Fact,
    Known,
    NodeState,
    NotAsked,
    Observation,
    References,
    RewindFacts,
    Run,
    RunList,
    SparkCluster,
    Unknown,
    UnknownReason,
    UnreadRecords,
    Watermarks,
    reports_matter,
)
from fencepost_operator.ports import Ports
from fencepost_operator.runtime.passes.rewind_observer import RewindObserver
from fencepost_operator.runtime.passes.spec_in_effect import SpecInEffect
from fencepost_operator.turns import time_limit

T = TypeVar("T")

INVALID_SPEC: Final = Unknown(reason=UnknownReason.REJECTED, message="the spec is invalid", remedy="correct the spec")


@dataclass(frozen=True, slots=True)
class Observer:
    """Makes observations of pipelines."""

    ports: Ports
    config: ReconcileConfig

    async def with_valid_spec(self, pipeline: Pipeline) -> Pipeline:
        """Return the pipeline with the spec in effect: the last valid or stable one, as far as it is kept."""
        return await SpecInEffect(self.ports, self._see).of(pipeline)

    async def observe(self, pipeline: Pipeline) -> Observation:
        """Return one snapshot; all facts are asked for at once, but what depends on others after them."""
        key, run, ports = pipeline.key, pipeline.status.run, self.ports
        async with asyncio.TaskGroup() as first:
            references_seen = first.create_task(self._references(pipeline, age=self.config.poll_interval))
            release = first.create_task(self._see(ports.releases.release(key)))
            cluster_seen = first.create_task(self._see(ports.releases.cluster(key)))
            runs_listed = first.create_task(self._see(ports.runs.list(key, pipeline.uid)))
            fence_seen = first.create_task(self._checkpoint(pipeline))
            source_seen = first.create_task(self._source(pipeline, age=self._age_of_ends(pipeline)))
        references, listed = references_seen.result(), runs_listed.result()
        cluster = _recorded(pipeline.status, cluster_seen.result())
        fence, source = fence_seen.result(), source_seen.result()
        runs = Known(listed.value.runs) if isinstance(listed, Known) else listed
        async with asyncio.TaskGroup() as then:
            run_node = then.create_task(self._run_node(run, runs))
            silent_nodes = then.create_task(self._silent_nodes(pipeline, runs, cluster))
            cluster_objects = then.create_task(self._cluster_objects(pipeline, runs, cluster))
            unread = then.create_task(self._unread(pipeline, source, fence))
            progress = then.create_task(self._progress(pipeline, fence, source))
            asked = whole_milliseconds(self.ports.clock.now())
            heartbeat = then.create_task(self._heartbeat(pipeline, fence))
            loss = then.create_task(self._loss(pipeline, runs, fence))
            durability = then.create_task(self._durability(pipeline, fence, source))
            snapshots_seen = then.create_task(self._snapshots(pipeline, fence))
            stored_revision = then.create_task(self._stored_revision(pipeline, references))
            began = then.create_task(self._began(pipeline, fence))
            working = then.create_task(self._working(pipeline, references))
            stable = then.create_task(self._stable(pipeline))
            upgrade_trial = then.create_task(self._upgrade_trial(pipeline))
            rewinds_seen = then.create_task(self._rewinds(pipeline))
            namespace_ends = then.create_task(self._namespace_ends(pipeline, fence))
        rewinds, rewind = rewinds_seen.result()
        snapshots, pinned = snapshots_seen.result()
        return Observation(
            now=whole_milliseconds(ports.clock.now()),
            references=references,
            release=release.result(),
            cluster=cluster,
            runs=runs,
            fence=fence,
            source=_source_seen(source, fence),
            run_terminated=self._run_terminated(run, listed),
            run_node=run_node.result(),
            silent_nodes=silent_nodes.result(),
            cluster_objects=cluster_objects.result(),
            unread=unread.result(),
            progress=progress.result(),
            heartbeat=heartbeat.result(),
            heartbeat_asked=None if isinstance(heartbeat.result(), NotAsked) else asked,
            loss=loss.result(),
            durability=durability.result(),
            snapshots=snapshots,
            pinned=pinned,
            stored_revision=stored_revision.result(),
            began=began.result(),
            working=working.result(),
            stable=stable.result(),
            upgrade_trial=upgrade_trial.result(),
            rewinds=rewinds,
            rewind=rewind,
            namespace_ends=namespace_ends.result(),
        )

    async def with_fence(self, pipeline: Pipeline, seen: Observation) -> Observation:
        """Return a snapshot of this pass with the fence row as it is now."""
        fence = await self._checkpoint(pipeline)
        return replace(seen, now=whole_milliseconds(self.ports.clock.now()), fence=fence)

    async def glance(self, pipeline: Pipeline, resting: Observation) -> Observation:
        """Return a snapshot of a pipeline at rest: of Kubernetes as it was, of Cassandra and Kafka as they are now."""
        async with asyncio.TaskGroup() as first:
            references = first.create_task(self._references(pipeline, age=self.config.references_interval))
            fence_seen = first.create_task(self._checkpoint(pipeline))
            source_seen = first.create_task(self._source(pipeline, age=self.config.refresh_interval))
        fence, source = fence_seen.result(), source_seen.result()
        async with asyncio.TaskGroup() as then:
            silent_nodes = then.create_task(self._silent_nodes(pipeline, resting.runs, resting.cluster))
            unread = then.create_task(self._unread(pipeline, source, fence))
            progress = then.create_task(self._progress(pipeline, fence, source))
            asked = whole_milliseconds(self.ports.clock.now())
            heartbeat = then.create_task(self._heartbeat(pipeline, fence))
            durability = then.create_task(self._durability(pipeline, fence, source))
            snapshots_seen = then.create_task(self._snapshots(pipeline, fence))
        snapshots, pinned = snapshots_seen.result()
        return replace(
            resting,
            now=whole_milliseconds(self.ports.clock.now()),
            references=references.result(),
            fence=fence,
            source=_source_seen(source, fence),
            silent_nodes=silent_nodes.result(),
            unread=unread.result(),
            progress=progress.result(),
            heartbeat=heartbeat.result(),
            heartbeat_asked=None if isinstance(heartbeat.result(), NotAsked) else asked,
            durability=durability.result(),
            snapshots=snapshots,
            pinned=pinned,
        )

    async def _references(self, pipeline: Pipeline, *, age: float) -> Fact[References]:
        spec, checkpoint = pipeline.spec, pipeline.checkpoint
        if checkpoint is None:
            return INVALID_SPEC
        wanted = referenced(spec) if isinstance(spec, Spec) else checkpoint_secrets(checkpoint)
        if not wanted:
            return Known(References(hashes={}))
        return await self._see(self.ports.objects.references(pipeline.key, wanted, age=age))

    async def _cluster_objects(
        self, pipeline: Pipeline, runs: Fact[tuple[Run, ...]], cluster: Fact[SparkCluster | None]
    ) -> Fact[ClusterObjects] | NotAsked:
        if pipeline.deleting_since is not None:
            return NotAsked()  # the garbage collector deletes what the pipeline owns
        urgent = _is_held_up(pipeline, runs, cluster)
        return await self._see(self.ports.releases.objects(pipeline.key, urgent=urgent))

    async def _checkpoint(self, pipeline: Pipeline) -> Fact[FenceRow | None]:
        if pipeline.checkpoint is None:
            return INVALID_SPEC
        place = fence_place(pipeline.key, pipeline.checkpoint, self.config.scope)
        return await self._see(self.ports.fences.read(*place))

    async def _progress(
        self, pipeline: Pipeline, fence: Fact[FenceRow | None], source: Fact[Watermarks | None] | NotAsked
    ) -> Fact[BatchProgress | None] | NotAsked:
        """Look at the driver's reports where they matter; a Cassandra that does not answer is not waited for twice."""
        if isinstance(fence, Unknown) or pipeline.checkpoint is None:
            return fence if isinstance(fence, Unknown) else INVALID_SPEC
        if fence.value is None or not reports_matter(fence.value, by_driver=source == Known(None)):
            return NotAsked()
        place = fence_place(pipeline.key, pipeline.checkpoint, self.config.scope)
        return await self._see(self.ports.fences.read_progress(*place))

    async def _heartbeat(
        self, pipeline: Pipeline, fence: Fact[FenceRow | None]
    ) -> Fact[BatchProgress | None] | NotAsked:
        """Look for the driver's heartbeat where neither the row nor the log's end shows that it needs none."""
        row, committed = fence.value if isinstance(fence, Known) else None, pipeline.status.committed
        run = pipeline.status.run
        if run is None or not run.is_active or pipeline.checkpoint is None:
            return NotAsked()
        if row is None or row.driver is None or committed is None:
            return NotAsked()
        if committed.since is None or committed.version != row.version:
            return NotAsked()
        connection, key = fence_place(pipeline.key, pipeline.checkpoint, self.config.scope)
        return await self._see(self.ports.fences.read_progress(connection, heartbeat_key(key)))

    async def _loss(
        self, pipeline: Pipeline, runs: Fact[tuple[Run, ...]], fence: Fact[FenceRow | None]
    ) -> Fact[ReportedLoss | None] | NotAsked:
        """Look for the loss that ended the newest run, as long as no later one has got past it."""
        loss = _loss_of(pipeline.status, runs)
        if not loss or not isinstance(pipeline.spec, Spec) or pipeline.deleting_since is not None:
            return NotAsked()
        if isinstance(fence, Unknown):
            return fence
        if fence.value is None:
            return NotAsked()
        place = fence_place(pipeline.key, pipeline.spec.checkpoint, self.config.scope)
        return await self._see(self.ports.fences.read_loss(*place, commit_ms(fence.value.committed_at), loss))

    def _age_of_ends(self, pipeline: Pipeline) -> float:
        """Return for how many seconds an answer of Kafka holds: positions are compared with the newest one."""
        return self.config.refresh_interval if pipeline.status.committed is None else 0.0

    async def _source(self, pipeline: Pipeline, *, age: float) -> Fact[Watermarks | None] | NotAsked:
        if not isinstance(pipeline.spec, Spec):
            return INVALID_SPEC
        if pipeline.deleting_since is not None:
            return NotAsked()
        return await self._see(self.ports.offsets.ends(kafka_connection(pipeline.key, pipeline.spec), age=age))

    async def _unread(
        self, pipeline: Pipeline, source: Fact[Watermarks | None] | NotAsked, fence: Fact[FenceRow | None]
    ) -> Fact[UnreadRecords] | NotAsked:
        """Look at what threatens the records from the committed offsets on; in whatever state the pipeline is."""
        if not isinstance(source, Known):
            return source
        if isinstance(fence, Unknown):
            return fence
        if source.value is None:
            return DRIVER_ONLY
        if not isinstance(pipeline.spec, Spec):
            return INVALID_SPEC
        row, spec = fence.value, pipeline.spec
        positions = unread_positions(spec, row, source.value) if row is not None else {}
        connection = kafka_connection(pipeline.key, spec)
        return await self._see(self.ports.offsets.unread(pipeline.key, connection, source.value, positions))

    async def _durability(
        self, pipeline: Pipeline, fence: Fact[FenceRow | None], source: Fact[Watermarks | None] | NotAsked
    ) -> DurabilityFacts | None:
        """Look at the durability settings when a check is due, once the fence answers and its row exists."""
        spec, offsets = pipeline.spec, self.ports.offsets
        if not isinstance(spec, Spec) or not is_due(pipeline, self.config, self.ports.clock.now()):
            return None
        if not isinstance(fence, Known) or fence.value is None or not isinstance(source, Known):
            return None
        sinks = sink_connections(pipeline.key, spec)
        async with asyncio.TaskGroup() as group:
            cassandra = group.create_task(self._cassandra_settings(pipeline.key, spec))
            topics = group.create_task(self._see(offsets.settings(kafka_connection(pipeline.key, spec))))
            of_sinks = {name: group.create_task(self._see(offsets.settings(sink))) for name, sink in sinks.items()}
        return DurabilityFacts(
            cassandra=cassandra.result(),
            topics=topics.result(),
            sinks={name: seen.result() for name, seen in of_sinks.items()},
        )

    async def _cassandra_settings(self, key: ObjectKey, spec: Spec) -> Fact[CassandraSettings] | NotAsked:
        fence = spec.checkpoint.cassandra
        if fence is None:
            return NotAsked()
        keyspaces = dict.fromkeys((fence.keyspace, *(sink.cassandra.keyspace for sink in spec.sinks if sink.cassandra)))
        connection = cassandra_connection(key, fence)
        return await self._see(self.ports.fences.settings(connection, tuple(keyspaces)))

    async def _snapshots(
        self, pipeline: Pipeline, fence: Fact[FenceRow | None]
    ) -> tuple[Fact[tuple[Snapshot, ...]] | NotAsked, Fact[frozenset[str]] | NotAsked]:
        """Look at the snapshots, and where some are due to go, at those that are pinned."""
        spec, now = pipeline.spec, self.ports.clock.now()
        if not isinstance(spec, Spec) or not needs_list(pipeline, now):
            return NotAsked(), NotAsked()
        if isinstance(fence, Unknown):
            return fence, NotAsked()  # a Cassandra that does not answer is not waited for twice
        place = fence_place(pipeline.key, spec.checkpoint, self.config.scope)
        found = await self._see(self.ports.fences.snapshots(*place))
        over = beyond(spec.snapshots.keep, found.value, now) if isinstance(found, Known) else ()
        if not over:
            return found, NotAsked()
        pinned = await self._see(self.ports.pipelines.pinned_snapshots(pipeline.key))
        return found, Known(pinned.value & {str(one.id) for one in over}) if isinstance(pinned, Known) else pinned

    async def _namespace_ends(self, pipeline: Pipeline, fence: Fact[FenceRow | None]) -> Fact[bool] | NotAsked:
        """Look at the namespace of a deleted pipeline while its Cassandra does not answer: it may never again."""
        if pipeline.deleting_since is None or isinstance(fence, Known):
            return NotAsked()
        return await self._see(self.ports.pipelines.namespace_ends(pipeline.key))

    async def _began(self, pipeline: Pipeline, fence: Fact[FenceRow | None]) -> Fact[Began] | NotAsked:
        """Look for the spec of the code that began the open batch, while no run is active or one finishes it."""
        run, row = pipeline.status.run, fence.value if isinstance(fence, Known) else None
        is_active = run is not None and run.is_active
        if row is None or pipeline.deleting_since is not None or (is_active and pipeline.status.finishing is None):
            return NotAsked()
        name = revision_in(pipeline.key.name, row.code)
        if not name or not isinstance(pipeline.spec, Spec) or not is_open(pipeline.status, row):
            return NotAsked()
        new = pipeline.spec
        return await self._kept(pipeline, name, lambda old: finishing_spec(old, new))

    async def _working(self, pipeline: Pipeline, references: Fact[References]) -> Fact[Began] | NotAsked:
        """Look for the spec of the active run where another one may start beside it."""
        run, spec, status = pipeline.status.run, pipeline.spec, pipeline.status
        if run is None or not run.is_active or not run.revision or status.handoff is not None:
            return NotAsked()
        if not isinstance(spec, Spec) or spec.upgrade.strategy is not UpgradeStrategy.HANDOFF:
            return NotAsked()
        if isinstance(references, Unknown) or pipeline.deleting_since is not None or pipeline.superseded is not None:
            return NotAsked()
        if run.spec_hash == fingerprints(spec, references.value.hashes, self.config.chart).run:
            return NotAsked()
        return await self._kept(pipeline, run.revision, lambda kept: kept)

    async def _stable(self, pipeline: Pipeline) -> Fact[Began] | NotAsked:
        """Look for the stable spec while a run of another one has ended, or not begun."""
        run, spec, stable = pipeline.status.run, pipeline.spec, pipeline.status.stable
        if stable is None or run is None or not isinstance(spec, Spec) or spec.upgrade.rollback is not Rollback.ENABLED:
            return NotAsked()
        is_over = pipeline.deleting_since is not None or pipeline.superseded is not None
        if is_over or (run.claimed_at is not None and run.ended_at is None):
            return NotAsked()
        return await self._kept(pipeline, stable.revision, lambda kept: kept)

    async def _upgrade_trial(self, pipeline: Pipeline) -> Fact[Trial | None] | NotAsked:
        """Look for the trial that the upgrade waits for."""
        tried = pipeline.status.held_trial
        if tried is None or pipeline.deleting_since is not None:
            return NotAsked()
        return await self._see(self.ports.trials.read(replace(pipeline.key, name=tried.name)))

    async def _kept(self, pipeline: Pipeline, name: str, as_used: Callable[[Spec], Spec]) -> Fact[Began]:
        """Look for a kept spec, and at what it names as it would be used now."""
        found = await self._see(self.ports.revisions.find(pipeline.key, pipeline.uid, name))
        if isinstance(found, Unknown):
            return found
        spec = found.value.spec if found.value is not None else ()
        if not isinstance(spec, Spec):
            return Known(Began(revision=found.value))
        references = await self._see(self.ports.objects.references(pipeline.key, referenced(as_used(spec))))
        if isinstance(references, Unknown):
            return references
        return Known(Began(revision=found.value, references=references.value))

    async def _stored_revision(self, pipeline: Pipeline, references: Fact[References]) -> Fact[str | None] | NotAsked:
        """Look whether this spec is stored while the recorded run names another one, as after a change of workers."""
        run, spec = pipeline.status.run, pipeline.spec
        if run is None or not run.is_active or not isinstance(spec, Spec):
            return NotAsked()
        if isinstance(references, Unknown) or pipeline.deleting_since is not None:
            return NotAsked()
        wanted = revision_of(pipeline, spec, references.value.hashes).name
        if run.revision == wanted:
            return NotAsked()
        return await self._see(self._stored(pipeline, wanted))

    async def _stored(self, pipeline: Pipeline, name: str) -> str | None:
        try:
            found = await self.ports.revisions.find(pipeline.key, pipeline.uid, name)
        except Rejected:
            return None  # it is replaced
        return found.name if found is not None else None

    async def _rewinds(self, pipeline: Pipeline) -> tuple[Fact[tuple[Rewind, ...]], RewindFacts]:
        expected = pipeline.status.rewind is not None
        rewinds = await self._see(self.ports.rewinds.unfinished(pipeline.key, expected=expected))
        return rewinds, await RewindObserver(self.ports, self.config, self._see).facts(pipeline, rewinds)

    def _run_terminated(self, run: RunStatus | None, listed: Fact[RunList]) -> bool:
        """Return whether the run's pod ended before the list: an older list may lack a second pod, which lives."""
        if run is None or run.pod_uid is None or isinstance(listed, Unknown):
            return False
        return self.ports.runs.terminated_by(run.pod_uid, listed.value.version)

    async def _run_node(self, run: RunStatus | None, runs: Fact[tuple[Run, ...]]) -> Fact[NodeState] | NotAsked:
        """Look at the node of a run whose pod is gone: it may prove that the driver is dead."""
        if run is None or run.node_name is None or run.dead or isinstance(runs, Unknown):
            return NotAsked()
        if any(job.name == run.name and job.pod is not None for job in runs.value):
            return NotAsked()
        return await self._see(self.ports.runs.node(run.node_name))

    async def _silent_nodes(
        self, pipeline: Pipeline, runs: Fact[tuple[Run, ...]], cluster: Fact[SparkCluster | None]
    ) -> Fact[frozenset[str]] | NotAsked:
        """Look whether the nodes of a run that commits nothing report."""
        names = nodes_to_watch(pipeline, runs, cluster, self.ports.clock.now())
        return await self._see(self.ports.runs.silent_nodes(names)) if names else NotAsked()

    async def _see(self, question: Awaitable[T]) -> Fact[T]:
        return await see(question, self.config.observation_timeout)


async def see(question: Awaitable[T], limit: float) -> Fact[T]:
    """Return what a port answers within so many seconds, or why that is not known."""
    try:
        async with time_limit(limit):
            return Known(await question)
    except TimeoutError:
        return Unknown(
            reason=UnknownReason.UNREACHABLE,
            message=f"no answer within {limit:.0f} s",
            remedy="check that it runs and that the operator can reach it",
        )
    except (PortError, Conflict) as error:
        remedy = error.remedy if isinstance(error, PortError) else ""
        return Unknown(reason=_why_unknown(error), message=str(error), remedy=remedy)


def _recorded(status: Status, cluster: Fact[SparkCluster | None]) -> Fact[SparkCluster | None]:
    """Return the recorded generation's cluster, with the others: a standby's is newer than the one that works."""
    if status.cluster is None or isinstance(cluster, Unknown) or cluster.value is None:
        return cluster
    return Known(cluster.value.seen_from(status.cluster.generation))


def _why_unknown(error: FencepostError) -> UnknownReason:
    match error:
        case Busy():
            return UnknownReason.BUSY
        case Denied():
            return UnknownReason.DENIED
        case Rejected():
            return UnknownReason.REJECTED
        case _:
            return UnknownReason.UNREACHABLE


def _loss_of(status: Status, runs: Fact[tuple[Run, ...]]) -> str:
    """Return the id of the loss that the recorded run's verdict, or else the status, names; '' without one."""
    recorded = status.run.name if status.run is not None else None
    for run in runs.value if isinstance(runs, Known) else ():
        if run.name == recorded and run.pod is not None and run.pod.verdict is not None and run.pod.verdict.loss:
            return run.pod.verdict.loss
    failure = status.failure
    if failure is not None and failure.count and failure.loss:
        return failure.loss
    return status.loss.id if status.loss is not None else ""


def _source_seen(
    source: Fact[Watermarks | None] | NotAsked, fence: Fact[FenceRow | None]
) -> Fact[Watermarks] | NotAsked:
    """Return the log's ends, by the driver's last commit where only the driver may connect to Kafka."""
    if not isinstance(source, Known):
        return source
    if source.value is not None:
        return Known(source.value)
    if isinstance(fence, Unknown):
        return fence
    return Known(Watermarks(ends=dict(fence.value.log_ends) if fence.value is not None else {}, by_driver=True))


def _is_held_up(pipeline: Pipeline, runs: Fact[tuple[Run, ...]], cluster: Fact[SparkCluster | None]) -> bool:
    """Return whether something keeps the cluster or the run from starting: a missing object may be why."""
    seen, failure = cluster.value if isinstance(cluster, Known) else None, pipeline.status.failure
    if pipeline.status.cluster is None or seen is None:
        return False
    found = runs.value if isinstance(runs, Known) else ()
    waits = any(run.issue is not None or (run.pod is not None and run.pod.issue is not None) for run in found)
    failed = failure is not None and failure.count > 0 and failure.reason is Reason.SPARK_UNREACHABLE
    return waits or failed or bool(seen.issues)
