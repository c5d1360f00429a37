"""A pipeline that runs well, all that is seen of it, and the states that tests begin from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from fakes.manifests import body
from fencepost.contract import DriverConfig
from fencepost.fence import FenceRow
from fencepost_operator.actions import StartRun
from fencepost_operator.api import (
    FINALIZER,
    ClusterStatus,
    CommittedStatus,
    Condition,
    DeletionPolicy,
    FailureStatus,
    Pipeline,
    Reason,
    ReconcileConfig,
    RunStatus,
    Spec,
    Status,
    read_pipeline,
)
from fencepost_operator.decision.decide import decide
from fencepost_operator.decision.decision import Decision
from fencepost_operator.desired.identity.hashes import fingerprints
from fencepost_operator.desired.identity.revision import revision_of
from fencepost_operator.desired.jobs import run_config
from fencepost_operator.observation import (
    NODE_LOST,
    DriverPod,
    Known,
    NotAsked,
    Observation,
    PodIssue,
    References,
    ReleaseState,
    Run,
    SparkCluster,
    Unknown,
    UnknownReason,
    Watermarks,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(hours=1)
POLICY = ReconcileConfig(cluster_uid="cluster-1")
SILENT = Unknown(reason=UnknownReason.UNREACHABLE, message="no answer", remedy="wait")
DENIED = Unknown(reason=UnknownReason.DENIED, message="wrong password", remedy="correct the Secret")

GOOD = read_pipeline(body())
assert isinstance(GOOD.spec, Spec)
PRINTS = fingerprints(GOOD.spec, {})

LOST_WORKER = PodIssue(pod="orders-g1-worker-0", reason=NODE_LOST, message="node-3 is silent")
LOST_MASTER = replace(LOST_WORKER, pod="orders-g1-master-0")
TOO_LARGE = PodIssue(pod="orders-g1-worker-0", reason="Unschedulable", message="0/3 nodes: insufficient cpu")
STRANDED_MASTER = PodIssue(
    pod="orders-g1-master-0",
    reason="Unschedulable",
    message="0/3 nodes are available: 1 node(s) had volume node affinity conflict, 1 were unschedulable.",
)
POD = DriverPod(
    name="orders-run-2-x", uid="pod-2", phase="Running", node="node-1", node_uid="node-uid", node_ready=True,
    started_at=LONG_AGO, deleting_since=None, exit_code=None, termination_reason=None, finished_at=None, verdict=None,
    issue=None,
)  # fmt: skip
JOB = Run(
    name="orders-run-2", epoch=2, spec_hash=PRINTS.run, cluster_generation=1, created_at=LONG_AGO, deleting=False,
    finished=False, pod=POD,
)  # fmt: skip
ROW = FenceRow(
    pipeline="default/shop/orders", owner="cluster-1/uid-1", epoch=2, driver="pod-2", version=9,
    offsets={"orders/0": 50}, committed_at=NOW - timedelta(seconds=2), records=5, duration_ms=200,
)  # fmt: skip
CLUSTER = SparkCluster(generation=1, config_hash=PRINTS.cluster, workers=1, ready_workers=1, master_ready=True)
RUN = RunStatus(
    name="orders-run-2", epoch=2, spec_hash=PRINTS.run, cluster_generation=1, recorded_at=LONG_AGO,
    created_at=LONG_AGO, pod_name=POD.name, pod_uid="pod-2", node_name="node-1", node_uid="node-uid",
    started_at=LONG_AGO, claimed_at=LONG_AGO, revision=revision_of(GOOD, GOOD.spec, {}).name,
)  # fmt: skip
RECORDED = ClusterStatus(
    release="orders", generation=1, config_hash=PRINTS.cluster, requested_at=LONG_AGO, ready_at=LONG_AGO, workers=1,
    ready_workers=1,
)  # fmt: skip
COMMITTED = CommittedStatus(version=8, since=LONG_AGO, observable_since=LONG_AGO, offsets={"orders/0": 50})
FAILED = FailureStatus(
    count=2, epoch=2, at=NOW, reason=Reason.RUN_FAILED, message="it failed", remedy="fix it",
    next_attempt_at=NOW + timedelta(seconds=2), spec_hash=PRINTS.run,
)  # fmt: skip
READY = Condition(
    type="Ready", status="True", reason="Streaming", message="m", last_transition_time=LONG_AGO, observed_generation=1
)


@dataclass(frozen=True)
class Scene:
    """A pipeline that runs well and all that was seen of it; `seen` and `said` change parts."""

    pipeline: Pipeline
    observation: Observation

    def seen(self, **facts: Any) -> Scene:
        known: dict[str, Any] = {
            name: fact if isinstance(fact, Unknown | NotAsked) else Known(fact) for name, fact in facts.items()
        }
        return replace(self, observation=replace(self.observation, **known))

    def measured(self, *, stop_since: datetime, node_since: datetime | None = None) -> Scene:
        """Return the scene to an operator that knows since then of the request to stop, and of the node's state."""
        observation, node_since = self.observation, node_since or stop_since
        measured = replace(observation, stop_measured_since=stop_since, node_measured_since=node_since)
        return replace(self, observation=measured)

    def said(self, **status: Any) -> Scene:
        return replace(self, pipeline=replace(self.pipeline, status=replace(self.pipeline.status, **status)))

    def asked(self, **spec: Any) -> Scene:
        return replace(self, pipeline=replace(self.pipeline, spec=read_pipeline(body(**spec)).spec))

    def with_pipeline(self, **changes: Any) -> Scene:
        """Return the scene with another pipeline, whose deletion the operator has seen since it began."""
        pipeline = replace(self.pipeline, **changes)
        observation = replace(self.observation, deletion_measured_since=pipeline.deleting_since)
        return replace(self, pipeline=pipeline, observation=observation)

    def decide(self, **more: Any) -> Decision:
        return decide(self.pipeline, self.observation, POLICY, **more)


WELL = Scene(
    replace(
        GOOD,
        finalizers=(FINALIZER,),
        status=Status(
            epoch=2, run=RUN, cluster=RECORDED, committed=replace(COMMITTED, since=None), conditions=(READY,)
        ),
    ),
    Observation(
        now=NOW,
        references=Known(References(hashes={})),
        release=Known(ReleaseState.DEPLOYED),
        cluster=Known(CLUSTER),
        runs=Known((JOB,)),
        fence=Known(ROW),
        source=Known(Watermarks(ends={"orders/0": 50})),
    ),
)
NEW = WELL.with_pipeline(status=Status(), finalizers=(FINALIZER,)).seen(
    release=None, cluster=None, runs=(), fence=replace(ROW, epoch=0, driver=None, offsets={}, committed_at=None)
)  # fmt: skip
DEAD = WELL.seen(runs=(replace(JOB, finished=True, pod=replace(POD, exit_code=137, phase="Failed")),))
BURIED = DEAD.said(run=replace(RUN, ended_at=NOW, dead=True), failure=replace(FAILED, count=1, next_attempt_at=NOW))
FENCED = BURIED.seen(fence=replace(ROW, epoch=3, driver=None, version=10))
LAGGING = {"source": Watermarks(ends={"orders/0": 60})}
DELETED = WELL.with_pipeline(deleting_since=NOW)
OVER = DELETED.said(run=replace(RUN, stop_requested_at=NOW, ended_at=NOW, dead=True)).seen(runs=(), release=None)
DROPPED = OVER.with_pipeline(deletion_policy=DeletionPolicy.DELETE)
YOUNG = WELL.said(run=replace(RUN, claimed_at=None, started_at=NOW)).seen(
    runs=(replace(JOB, pod=replace(POD, started_at=NOW)),), fence=replace(ROW, driver=None)
)
LOST = {"run": replace(RUN, ended_at=NOW, dead=False)}
SLOW = WELL.said(committed=COMMITTED, run=replace(RUN, resumed_from=ROW.committed_at)).seen(**LAGGING)
REPLACED = replace(FAILED, reason=Reason.UNRESPONSIVE, epoch=1, count=1)


def unclaimed_for(seconds: int, failure: FailureStatus | None) -> Scene:
    run = replace(RUN, claimed_at=None, resumed_from=ROW.committed_at, started_at=NOW - timedelta(seconds=seconds))
    pod = replace(POD, started_at=run.started_at)
    return WELL.said(run=run, failure=failure).seen(fence=replace(ROW, driver=None), runs=(replace(JOB, pod=pod),))


def started(scene: Scene) -> DriverConfig:
    action = scene.decide().action
    assert isinstance(action, StartRun)
    return DriverConfig.from_json(action.config_map["data"][run_config.KEY])
