"""The chain as a table: from a pipeline that runs well, one thing is changed, and one rule must speak."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fakes.manifests import body
from fencepost.contract import DriverConfig
from fencepost.fence import BatchProgress, FenceRow
from fencepost_operator.actions import (
    AddFinalizer,
    CreateFence,
    InstallCluster,
    PruneCluster,
    ReleaseFence,
    RemoveFinalizer,
    StartRun,
    StopRun,
    TakeOverFence,
    UninstallCluster,
)
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
    State,
    Status,
    ThroughputStatus,
    read_pipeline,
)
from fencepost_operator.decision.chain import ActionFailure, Decision, decide
from fencepost_operator.decision.diagnosis import diagnose_end
from fencepost_operator.desired import run_config
from fencepost_operator.desired.hashes import fingerprints
from fencepost_operator.desired.revision import revision_of
from fencepost_operator.observation import (
    NODE_LOST,
    ClusterObject,
    DriverPod,
    Known,
    NodeState,
    Observation,
    PodIssue,
    References,
    Release,
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
    count=2, epoch=2, at=NOW, reason="RunFailed", message="it failed", remedy="mend it",
    next_attempt_at=NOW + timedelta(seconds=2), spec_hash=PRINTS.run,
)  # fmt: skip
READY = Condition(
    type="Ready", status="True", reason="Streaming", message="m", last_transition_time=LONG_AGO, observed_generation=1
)


@dataclass(frozen=True)
class World:
    """A pipeline that runs well and all that was seen of it; `seen` and `said` change parts."""

    pipeline: Pipeline
    observation: Observation

    def seen(self, **facts: Any) -> World:
        known: dict[str, Any] = {
            name: fact if isinstance(fact, Unknown) else Known(fact) for name, fact in facts.items()
        }
        return replace(self, observation=replace(self.observation, **known))

    def said(self, **status: Any) -> World:
        return replace(self, pipeline=replace(self.pipeline, status=replace(self.pipeline.status, **status)))

    def asked(self, **spec: Any) -> World:
        return replace(self, pipeline=replace(self.pipeline, spec=read_pipeline(body(**spec)).spec))

    def with_pipeline(self, **changes: Any) -> World:
        return replace(self, pipeline=replace(self.pipeline, **changes))

    def decide(self, **more: Any) -> Decision:
        return decide(self.pipeline, self.observation, POLICY, **more)


WELL = World(
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
        release=Known(Release(name="orders", revision=1, state=ReleaseState.DEPLOYED)),
        cluster=Known(CLUSTER),
        runs=Known((JOB,)),
        run_node=Known(None),
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

CASES: dict[str, tuple[World, str, type | None, State]] = {
    "all is well": (WELL, "Streaming", None, State.RUNNING),
    "far behind": (WELL.seen(source=Watermarks(ends={"orders/0": 10**6})), "CatchingUp", None, State.CATCHING_UP),
    # gates
    "no finalizer": (WELL.with_pipeline(finalizers=()), "Pending", AddFinalizer, State.RUNNING),
    "invalid spec": (WELL.asked(batchInterval="x"), "InvalidSpec", None, State.STALLED),
    "API server silent": (WELL.seen(runs=SILENT), "KubernetesUnreachable", None, State.RUNNING),
    "references unknown": (WELL.seen(references=SILENT), "KubernetesUnreachable", None, State.RUNNING),
    "Cassandra silent": (WELL.seen(fence=SILENT), "CassandraUnreachable", None, State.RUNNING),
    "Cassandra refuses": (WELL.seen(fence=DENIED), "CassandraCredentialsRejected", None, State.RUNNING),
    "Cassandra silent at first": (NEW.seen(fence=SILENT), "CassandraUnreachable", None, State.PENDING),
    "row elsewhere": (WELL.seen(fence=replace(ROW, owner="x/y")), "FenceOwnedElsewhere", None, State.STALLED),
    "row gone": (WELL.seen(fence=None), "FenceLost", None, State.STALLED),
    "row went back": (WELL.seen(fence=replace(ROW, epoch=1)), "FenceRolledBack", None, State.STALLED),
    "no row yet": (NEW.seen(fence=None), "Provisioning", CreateFence, State.PROVISIONING),
    # a run lives
    "fence moved on": (WELL.seen(fence=replace(ROW, epoch=3)), "Superseded", StopRun, State.RESTARTING),
    "no commit for long": (
        WELL.said(committed=COMMITTED).seen(**LAGGING), "Unresponsive", TakeOverFence, State.RESTARTING,
    ),
    "no commit, Kafka just back": (
        WELL.said(committed=replace(COMMITTED, observable_since=NOW)).seen(**LAGGING), "Streaming", None, State.RUNNING,
    ),
    "no commit, Kafka silent": (
        WELL.said(committed=COMMITTED).seen(source=SILENT), "KafkaUnreachable", None, State.RUNNING,
    ),
    "no commit, nothing to read": (WELL.said(committed=COMMITTED), "Streaming", None, State.RUNNING),
    "never claimed": (
        WELL.said(run=replace(RUN, claimed_at=None)).seen(fence=replace(ROW, driver=None)),
        "NeverClaimed", TakeOverFence,
        State.RESTARTING,
    ),
    "never claimed, Kafka silent": (
        WELL.said(run=replace(RUN, claimed_at=None)).seen(fence=replace(ROW, driver=None), source=SILENT),
        "KafkaUnreachable", None, State.STARTING,
    ),
    "starting": (
        WELL.said(run=replace(RUN, claimed_at=None, started_at=None)).seen(
            fence=replace(ROW, driver=None), runs=(replace(JOB, pod=replace(POD, started_at=NOW)),)
        ),
        "Starting", None, State.STARTING,
    ),
    "another image": (
        WELL.asked(job={"image": "b", "entrypoint": "a:b"}), "Upgrading", StopRun, State.UPGRADING,
    ),
    "another image, stopping": (
        WELL.asked(job={"image": "b", "entrypoint": "a:b"}).said(run=replace(RUN, stop_requested_at=NOW)).seen(
            runs=(replace(JOB, deleting=True),)
        ),
        "Stopping", None, State.UPGRADING,
    ),
    "asked to stop, crashed before": (
        WELL.said(run=replace(RUN, stop_requested_at=NOW)), "Stopping", StopRun, State.RESTARTING,
    ),
    "more workers": (WELL.asked(cluster={"workers": 3}), "Scaled", InstallCluster, State.RUNNING),
    "release lost": (WELL.seen(release=None), "Provisioning", InstallCluster, State.RUNNING),
    "topic gone": (
        WELL.seen(source=Watermarks(ends={}, missing_topics=("orders",))), "TopicNotFound", None, State.RUNNING,
    ),
    # suspended
    "suspend": (WELL.asked(suspend=True), "Stopping", StopRun, State.SUSPENDED),
    "suspend, run over": (
        WELL.asked(suspend=True).said(run=replace(RUN, ended_at=NOW, dead=True)).seen(runs=()), "Stopping",
        UninstallCluster, State.SUSPENDED,
    ),
    "suspend, run lost": (
        WELL.asked(suspend=True).said(**LOST).seen(runs=()), "Fenced", TakeOverFence, State.SUSPENDED,
    ),
    "suspended": (
        WELL.asked(suspend=True).said(run=replace(RUN, ended_at=NOW, dead=True)).seen(
            runs=(), release=None, cluster=None
        ),
        "Suspended", None, State.SUSPENDED,
    ),
    # no run lives
    "killed": (DEAD, "Fenced", TakeOverFence, State.RESTARTING),
    "killed and fenced": (FENCED, "RunStarted", StartRun,
                          State.RESTARTING),
    "failed again": (DEAD.said(run=replace(RUN, ended_at=NOW, dead=True), failure=FAILED), "BackingOff", None,
                     State.RESTARTING),
    "failed, spec changed": (
        DEAD.said(run=replace(RUN, ended_at=NOW, dead=True), failure=replace(FAILED, spec_hash="old")),
        "Fenced", TakeOverFence,
        State.RESTARTING,
    ),
    "bad code": (
        DEAD.said(run=replace(RUN, ended_at=NOW, dead=True), failure=replace(FAILED, reason="BadSpec")), "BadSpec",
        None, State.STALLED,
    ),
    "budget used up": (
        DEAD.asked(restart={"maxAttempts": 2}).said(run=replace(RUN, ended_at=NOW, dead=True), failure=FAILED),
        "RestartBudgetExhausted", None, State.STALLED,
    ),
    "lost": (WELL.said(**LOST).seen(runs=()), "Fenced", TakeOverFence, State.PROVISIONING),
    "orphaned": (
        WELL.seen(runs=(replace(JOB, deleting=True, orphaned=True),)), "Fenced", TakeOverFence, State.RESTARTING,
    ),
    "its Job gone, its pod finishing": (
        WELL.seen(runs=(replace(JOB, deleting=True, pod=replace(POD, deleting_since=NOW)),)), "Streaming", None,
        State.RUNNING,
    ),
    "lost, lingering": (
        WELL.said(**LOST).seen(fence=replace(ROW, epoch=3, driver=None)), "Stopping", StopRun, State.PROVISIONING,
    ),
    "lost, gone": (
        WELL.said(**LOST).seen(runs=(), fence=replace(ROW, epoch=3, driver=None)), "Provisioning", InstallCluster,
        State.PROVISIONING,
    ),
    "killed, Kafka silent": (DEAD.seen(source=SILENT), "KafkaUnreachable", None, State.RESTARTING),
    "killed, cluster unseen": (FENCED.seen(cluster=SILENT), "KubernetesUnreachable", None, State.RESTARTING),
    "first cluster": (NEW, "Provisioning", InstallCluster, State.PROVISIONING),
    "first topic missing": (
        NEW.seen(source=Watermarks(ends={}, missing_topics=("orders",))), "TopicNotFound", None, State.PENDING,
    ),
    "master not ready": (
        FENCED.seen(cluster=replace(CLUSTER, master_ready=False)), "Provisioning", None, State.RESTARTING,
    ),
    "new master starts": (
        FENCED.said(cluster=replace(RECORDED, ready_at=None)).seen(
            cluster=replace(CLUSTER, master_ready=False, master_runs=True, ready_workers=0)
        ),
        "RunStarted", StartRun, State.RESTARTING,
    ),
    "new master starts, no worker fits": (
        FENCED.said(cluster=replace(RECORDED, ready_at=None)).seen(
            cluster=replace(CLUSTER, master_ready=False, master_runs=True, ready_workers=0, issues=(TOO_LARGE,))
        ),
        "Unschedulable", None, State.RESTARTING,
    ),
    "master that was ready runs": (
        FENCED.seen(cluster=replace(CLUSTER, master_ready=False, master_runs=True)), "Provisioning", None,
        State.RESTARTING,
    ),
    "no master yet, epoch used": (
        DEAD.said(cluster=replace(RECORDED, ready_at=None), run=replace(RUN, ended_at=NOW, dead=True)).seen(
            cluster=replace(CLUSTER, master_ready=False), fence=replace(ROW, driver=None)
        ),
        "Fenced", TakeOverFence, State.PROVISIONING,
    ),
    "workers not ready": (
        FENCED.seen(cluster=replace(CLUSTER, ready_workers=0)), "RunStarted", StartRun, State.RESTARTING,
    ),
    "no worker fits": (
        FENCED.seen(cluster=replace(CLUSTER, ready_workers=0, issues=(TOO_LARGE,))), "Unschedulable", None,
        State.RESTARTING,
    ),
    "master's node lost": (
        FENCED.seen(cluster=replace(CLUSTER, master_ready=False, issues=(LOST_MASTER,))), "Provisioning",
        InstallCluster, State.RESTARTING,
    ),
    "only worker's node lost": (
        FENCED.seen(cluster=replace(CLUSTER, ready_workers=0, issues=(LOST_WORKER,))), "Provisioning",
        InstallCluster, State.RESTARTING,
    ),
    "one worker's node of two lost": (
        FENCED.seen(cluster=replace(CLUSTER, issues=(LOST_WORKER,))), "RunStarted", StartRun, State.RESTARTING,
    ),
    "master's node lost under a living run": (
        WELL.seen(cluster=replace(CLUSTER, master_ready=False, issues=(LOST_MASTER,))), "Streaming", None,
        State.RUNNING,
    ),
    "master's node lost before the run claimed": (
        YOUNG.seen(cluster=replace(CLUSTER, master_ready=False, issues=(LOST_MASTER,))),
        "PodLost", TakeOverFence, State.RESTARTING,
    ),
    "master not ready before the run claimed": (
        YOUNG.seen(cluster=replace(CLUSTER, master_ready=False)),
        "Starting", None, State.STARTING,
    ),
    "all workers' nodes lost under a living run": (
        WELL.seen(cluster=replace(CLUSTER, ready_workers=0, issues=(LOST_WORKER,))), "PodLost", TakeOverFence,
        State.RESTARTING,
    ),
    "a lost node of a cluster that the run does not use": (
        WELL.seen(cluster=replace(CLUSTER, generation=2, ready_workers=0, issues=(LOST_WORKER,))), "Provisioning",
        InstallCluster, State.RUNNING,
    ),
    "workers' node lost, more are asked for": (
        WELL.asked(cluster={"workers": 3}).seen(
            cluster=replace(CLUSTER, ready_workers=0, issues=(LOST_WORKER,))
        ),
        "Scaled", InstallCluster, State.RUNNING,
    ),
    "one worker of two does not fit": (
        FENCED.seen(cluster=replace(CLUSTER, issues=(TOO_LARGE,))), "RunStarted", StartRun, State.RESTARTING,
    ),
    "first epoch": (
        WELL.said(run=None, epoch=0).seen(runs=(), fence=replace(ROW, epoch=0, driver=None)), "Fenced", TakeOverFence,
        State.PROVISIONING,
    ),
    "first run": (
        WELL.said(run=None, epoch=1).seen(runs=(), fence=replace(ROW, epoch=1, driver=None)), "RunStarted", StartRun,
        State.STARTING,
    ),
    "recorded, crashed before its Job": (
        WELL.said(run=replace(RUN, created_at=None, claimed_at=None)).seen(runs=(), fence=replace(ROW, driver=None)),
        "RunStarted", StartRun, State.STARTING,
    ),
    "row of an earlier object": (
        WELL.said(run=None).seen(runs=(), fence=replace(ROW, driver=None, owner="cluster-1/old")),
        "Fenced", TakeOverFence,
        State.PROVISIONING,
    ),
    # deletion
    "deleted": (DELETED, "Stopping", StopRun, State.DELETING),
    "deleted, invalid spec": (DELETED.asked(batchInterval="x"), "Stopping", StopRun, State.DELETING),
    "deleted, stopping": (
        DELETED.said(run=replace(RUN, stop_requested_at=NOW)).seen(runs=(replace(JOB, deleting=True),)), "Stopping",
        None, State.DELETING,
    ),
    "deleted, run over": (
        OVER.seen(release=Release(name="orders", revision=1, state=ReleaseState.FAILED)), "Deleting", UninstallCluster,
        State.DELETING,
    ),
    "deleted, all gone": (OVER.seen(fence=SILENT), "Released", RemoveFinalizer, State.DELETING),
    "deleted, run lost": (OVER.said(**LOST), "Fenced", TakeOverFence, State.DELETING),
    "deleted with row": (
        DROPPED, "Deleting", ReleaseFence, State.DELETING,
    ),
    "deleted with row, Cassandra silent": (
        DROPPED.seen(fence=SILENT), "CassandraUnreachable", None, State.DELETING,
    ),
    "deleted with row that is elsewhere": (
        DROPPED.seen(fence=replace(ROW, owner="x/y")), "Released", RemoveFinalizer,
        State.DELETING,
    ),
    "deleted, runs unseen": (DELETED.seen(runs=SILENT), "KubernetesUnreachable", None, State.DELETING),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_rule(case: str) -> None:
    world, reason, action, state = CASES[case]
    decision = world.decide()
    assert (str(decision.reason), type(decision.action) if decision.action else None, decision.status.state) == (
        reason,
        action,
        state,
    ), decision.status.message


def test_a_lost_drivers_cluster_is_left_behind() -> None:
    decision = CASES["lost, gone"][0].decide()
    assert isinstance(decision.action, InstallCluster)
    assert decision.action.values["generation"] == 2


def test_a_dead_drivers_cluster_is_used_again() -> None:
    decision = CASES["killed and fenced"][0].decide()
    assert decision.status.run is not None
    assert (decision.status.run.epoch, decision.status.run.cluster_generation) == (3, 1)
    assert decision.status.restarts == 1


@pytest.mark.parametrize(
    ("node", "dead"),
    [
        (NodeState(name="node-1", uid="node-uid", ready=True), True),
        (NodeState(name="node-1", uid="node-uid", ready=False), False),
        (NodeState(name="node-1", uid="another", ready=True), False),
        (NodeState(name="node-1", uid=None, ready=False), False),
    ],
)
def test_a_vanished_pod_that_had_its_grace_period_is_proven_dead_by_its_node(node: NodeState, dead: bool) -> None:
    stopped = replace(RUN, stop_requested_at=NOW - timedelta(seconds=61), termination_grace=60)
    run = WELL.said(run=stopped).seen(runs=(), run_node=node).decide().status.run
    assert run is not None
    assert run.dead is dead


def test_a_vanished_pod_whose_node_nobody_can_see_is_waited_for() -> None:
    decision = WELL.seen(runs=(), run_node=SILENT).decide()
    assert decision.status.run is not None
    assert decision.status.run.ended_at is None
    assert decision.action is None


def test_a_budget_used_up_by_lost_pods_says_what_to_do_and_nothing_else() -> None:
    vanished = diagnose_end(None, RUN.name)
    failure = replace(FAILED, reason=vanished.category, message=vanished.message, remedy=vanished.remedy)
    world = BURIED.asked(restart={"maxAttempts": 2}).said(failure=failure)
    message = world.decide().status.message
    assert "nothing needs to be done" not in message
    assert "or set the annotation streaming.fencepost.dev/retry" in message


def test_an_action_that_fails_is_said_in_place_of_the_rules_words() -> None:
    due = NEW.decide().action
    assert due is not None
    failure = ActionFailure(
        action=due, reason=Reason.INSTALL_FAILED, message="exceeded quota", remedy="raise the quota.", attempts=3
    )
    decision = NEW.decide(failures=[failure])
    assert decision.reason == "InstallFailed"
    assert "exceeded quota (tried 3 times). Raise the quota." in decision.status.message
    assert isinstance(decision.action, InstallCluster)
    assert WELL.decide(failures=[failure]).reason == "Streaming"


def test_a_failure_of_the_old_spec_is_not_reported_for_the_new_one() -> None:
    due = NEW.decide().action
    assert due is not None
    failure = ActionFailure(
        action=due, reason=Reason.INSTALL_FAILED, message="tolerations[0]: invalid", remedy="correct it", attempts=9
    )
    fixed = NEW.asked(cluster={"tolerations": [{"key": "gpu", "operator": "Exists"}]}).decide(failures=[failure])
    assert fixed.reason == "Provisioning"
    assert "invalid" not in fixed.status.message


def test_a_long_error_keeps_the_name_of_the_field_at_either_end() -> None:
    due = NEW.decide().action
    assert due is not None
    text = "StatefulSet is invalid: " + "x" * 5000 + " spec.template.spec.affinity: Required value"
    failure = ActionFailure(action=due, reason=Reason.INSTALL_FAILED, message=text, remedy="", attempts=1)
    message = NEW.decide(failures=[failure]).status.message
    assert "StatefulSet is invalid" in message
    assert "spec.template.spec.affinity: Required value" in message
    assert len(message) < 1000


def test_no_message_ends_in_two_full_stops() -> None:
    failure = replace(FAILED, reason="BadSpec", message="it failed.", remedy="correct the spec.")
    decision = DEAD.said(run=replace(RUN, ended_at=NOW, dead=True), failure=failure).decide()
    assert ".." not in decision.status.message
    assert ".;" not in decision.status.message
    silent = replace(SILENT, message="no answer.", remedy="wait.")
    assert ".." not in WELL.seen(fence=silent).decide().status.message


BLIND = {"Cassandra silent": {"fence": SILENT}, "references unknown": {"references": SILENT}}


def test_a_run_that_claimed_its_epoch_unseen_may_live_and_its_cluster_is_not_shared() -> None:
    """Found by the simulation, seed 1900: its Job is not in the list, and its driver holds the fence."""
    unseen = RunStatus(
        name=RUN.name, epoch=2, spec_hash=RUN.spec_hash, cluster_generation=1, recorded_at=RUN.recorded_at
    )
    decision = WELL.said(run=unseen).seen(runs=()).decide()
    assert isinstance(decision.action, TakeOverFence)
    run = decision.status.run
    assert run is not None
    assert (run.ended_at, run.dead) == (NOW, False)
    fenced = WELL.said(run=run, failure=None).seen(runs=(), fence=replace(ROW, epoch=3, driver=None)).decide()
    assert isinstance(fenced.action, InstallCluster)
    assert fenced.action.values["generation"] == 2


@pytest.mark.parametrize("blindness", BLIND)
def test_a_new_generation_is_not_ready_before_it_is_rolled_out(blindness: str) -> None:
    world = WELL.asked(job={"image": "b", "entrypoint": "a:b"}).with_pipeline(generation=2).seen(**BLIND[blindness])
    status = world.decide().status
    ready = next(c for c in status.conditions if c.type == "Ready")
    assert (ready.status, status.observed_generation) == ("False", 2)


@pytest.mark.parametrize("blindness", BLIND)
def test_a_generation_that_is_rolled_out_stays_ready_while_its_facts_are_unknown(blindness: str) -> None:
    status = WELL.seen(**BLIND[blindness]).decide().status
    assert next(c for c in status.conditions if c.type == "Ready").status == "True"


HIDDEN = {
    "cluster": {"cluster": SILENT},
    "release": {"release": SILENT},
    "cluster and release": {"cluster": SILENT, "release": SILENT},
}


@pytest.mark.parametrize("hidden", ["cluster", "cluster and release"])
def test_a_scale_that_was_only_recorded_is_not_ready_while_the_cluster_is_unseen(hidden: str) -> None:
    """Injected: the operator records the target, and dies or fails before Helm applies it."""
    asked = WELL.asked(cluster={"workers": 3}).with_pipeline(generation=2)
    recorded = asked.with_pipeline(status=asked.decide().status).seen(**HIDDEN[hidden])
    assert ready_of(recorded) == ("False", 2)


@pytest.mark.parametrize("hidden", ["cluster", "cluster and release"])
def test_a_repair_is_not_ready_before_the_cluster_was_seen_again(hidden: str) -> None:
    damaged = WELL.seen(cluster=replace(CLUSTER, workers=0, ready_workers=0))
    recorded = damaged.with_pipeline(status=damaged.decide().status).seen(**HIDDEN[hidden])
    assert ready_of(recorded) == ("False", 1)


@pytest.mark.parametrize("hidden", HIDDEN)
def test_a_generation_that_was_ready_stays_ready_while_its_cluster_is_unseen(hidden: str) -> None:
    assert ready_of(WELL.seen(**HIDDEN[hidden])) == ("True", 1)


def ready_of(world: World) -> tuple[str, int | None]:
    status = world.decide().status
    return next(c for c in status.conditions if c.type == "Ready").status, status.observed_generation


def test_a_suspended_pipeline_whose_cluster_still_exists_is_not_ready_and_says_how_to_remove_it() -> None:
    """A build that named its releases otherwise, in the pipeline's namespace, installed the cluster."""
    assert ready_of(CASES["suspended"][0])[0] == "True"
    world = CASES["suspended"][0].seen(cluster=CLUSTER)
    decision = world.decide()
    assert ready_of(world)[0] == "False"
    assert "no cluster" not in decision.status.message
    assert "elm uninstall fencepost-orders --namespace shop" in decision.status.message
    litter = (ClusterObject(kind="StatefulSet", name="orders-g1-master", uid="u", generation=1),)
    later = world.with_pipeline(status=decision.status).seen(cluster_objects=litter).decide()
    assert later.action == PruneCluster(objects=litter)


def test_workers_that_are_not_as_many_as_asked_for_are_not_ready() -> None:
    capped = WELL.asked(cluster={"workers": 3}).said(cluster=replace(RECORDED, workers=3))
    decision = capped.decide()
    assert isinstance(decision.action, InstallCluster)
    assert next(c for c in decision.status.conditions if c.type == "Ready").status == "False"


def test_a_job_of_another_spec_than_was_recorded_is_replaced() -> None:
    decision = WELL.seen(runs=(replace(JOB, spec_hash="old"),)).decide()
    assert (str(decision.reason), type(decision.action)) == ("Upgrading", StopRun)


def test_only_a_run_that_is_given_up_while_it_may_commit_is_fenced_by_version() -> None:
    """A commit that comes in between wins over the takeover, and the run goes on."""
    fenced = {name: case[0].decide().action for name, case in CASES.items() if case[2] is TakeOverFence}
    by_version = {name for name, a in fenced.items() if isinstance(a, TakeOverFence) and a.version is not None}
    assert by_version == {
        "no commit for long",
        "never claimed",
        "master's node lost before the run claimed",
        "all workers' nodes lost under a living run",
    }
    assert len(fenced) > len(by_version)


def test_a_fence_that_was_found_is_not_told_as_one_that_began() -> None:
    found = NEW.seen(fence=replace(ROW, driver=None, owner="cluster-1/old"))
    told = [(str(event.reason), event.message) for event in found.decide().events]
    assert ("Resumed", "Found this pipeline's fence at epoch 2: it goes on from the last commit there") in told
    assert not any("began" in message for _, message in told)
    fenced = found.said(epoch=2).seen(fence=replace(ROW, epoch=3, driver=None)).decide()
    assert ("Fenced", "Epoch 3 began; no driver of an older epoch can commit") in [
        (str(event.reason), event.message) for event in fenced.events
    ]


def test_last_transition_moves_only_with_the_status() -> None:
    ready = WELL.decide().status.conditions[0]
    assert ready.last_transition_time == LONG_AGO
    assert DEAD.decide().status.conditions[0].last_transition_time == NOW


def test_a_run_whose_record_was_lost_is_never_tidied_away() -> None:
    decision = WELL.said(run=None).seen(fence=SILENT).decide()
    assert decision.action is None


def test_old_runs_are_tidied_away_when_nothing_else_is_to_do() -> None:
    old = tuple(replace(JOB, name=f"orders-run-{n}", epoch=n, finished=True) for n in range(-2, 2))
    decision = WELL.seen(runs=(*old, JOB)).decide()
    assert decision.action is not None
    assert decision.action.name == "orders-run--2"  # type: ignore[union-attr]
    assert decision.reason == "Streaming"


def test_a_failed_run_is_history_before_its_jobs_condition_says_so() -> None:
    """On a real cluster the Job's condition comes seconds after its pod's end; deleting it would take the log away."""
    failed = replace(JOB, name="orders-run-1", epoch=1, pod=replace(POD, exit_code=137, phase="Failed"))
    assert WELL.seen(runs=(failed, JOB)).decide().action is None
    living = replace(failed, pod=POD)
    assert isinstance(WELL.seen(runs=(living, JOB)).decide().action, StopRun)


@pytest.mark.parametrize(
    ("starting", "offsets", "lag"),
    [
        ({}, {"orders/0": 50}, 10 + 40),
        ({}, {}, 60 + 40),
        ({"position": "latest"}, {}, 0),
        ({"position": "latest"}, {"orders/0": 50}, 10 + 40),
        ({"position": "latest", "partitions": {"orders/1": 30}}, {}, 10),
        ({}, {"orders/0": 70, "orders/1": 40}, 0),
    ],
)
def test_lag_counts_from_where_reading_is_or_will_begin(
    starting: dict[str, Any], offsets: dict[str, int], lag: int
) -> None:
    kafka = {"bootstrapServers": "kafka:9092", "topics": ["orders"], "startingOffsets": starting}
    world = WELL.asked(source={"kafka": kafka}).seen(
        source=Watermarks(ends={"orders/0": 60, "orders/1": 40}), fence=replace(ROW, offsets=offsets)
    )
    assert world.decide().status.lag == lag


@pytest.mark.parametrize("fact", ["fence", "source"])
def test_lag_is_not_guessed(fact: str) -> None:
    assert WELL.seen(**{fact: SILENT}).decide().status.lag is None


REPORT = BatchProgress(epoch=2, version=9, done=7, at=NOW)
SLOW = WELL.said(committed=COMMITTED, run=replace(RUN, resumed_from=ROW.committed_at)).seen(**LAGGING)
REPLACED = replace(FAILED, reason="Unresponsive", epoch=1, count=1)


def test_the_next_look_is_not_later_than_the_moment_from_which_a_run_counts_as_stalled() -> None:
    since = NOW - timedelta(seconds=57)
    world = SLOW.said(committed=replace(COMMITTED, version=9, since=since)).decide()
    assert (world.reason, world.requeue_after) == ("Streaming", 3.0)
    assert WELL.decide().requeue_after == POLICY.resync_interval


def test_a_slow_batch_that_makes_progress_is_not_unresponsive() -> None:
    assert SLOW.decide().reason == "Unresponsive"
    moving = SLOW.seen(progress=REPORT).decide()
    assert moving.reason == "Streaming"
    assert moving.status.committed is not None
    assert (moving.status.committed.done, moving.status.committed.done_at) == (7, NOW)


@pytest.mark.parametrize(
    "report", [replace(REPORT, version=8), replace(REPORT, epoch=1), replace(REPORT, done=0), None]
)
def test_a_report_that_says_nothing_new_about_this_batch_is_no_progress(report: BatchProgress | None) -> None:
    assert SLOW.seen(progress=report).decide().reason == "Unresponsive"


def test_progress_that_does_not_answer_fences_no_driver_and_restarts_the_timeout() -> None:
    decision = SLOW.seen(progress=SILENT).decide()
    assert decision.reason != "Unresponsive"
    assert decision.status.committed is not None
    assert decision.status.committed.observable_since is None
    answered = SLOW.with_pipeline(status=decision.status).seen(progress=REPORT).decide()
    assert answered.status.committed is not None
    assert answered.status.committed.observable_since == NOW


@pytest.mark.parametrize("refused", [DENIED, replace(DENIED, reason=UnknownReason.REJECTED)])
def test_progress_that_may_not_be_read_doubles_the_timeout_and_the_message_says_how_to_allow_it(
    refused: Unknown,
) -> None:
    once, twice = NOW - timedelta(seconds=61), NOW - timedelta(seconds=121)
    world = SLOW.seen(progress=refused)
    assert world.said(committed=replace(COMMITTED, since=once)).decide().reason != "Unresponsive"
    decision = world.said(committed=replace(COMMITTED, since=twice)).decide()
    assert decision.reason == "Unresponsive"
    assert "fence_progress cannot be read: wrong password" in decision.status.message
    assert "rant the account SELECT" in decision.status.message
    assert "createSchema" in decision.status.message


IN_BATCH = replace(ROW, planned={"orders/0": 60})


def unreadable(decision: Decision) -> Condition | None:
    return next((c for c in decision.status.conditions if c.type == "ProgressUnreadable"), None)


@pytest.mark.parametrize("refused", [DENIED, replace(DENIED, reason=UnknownReason.REJECTED)])
def test_progress_that_may_not_be_read_is_reported_before_a_run_is_replaced_for_it(refused: Unknown) -> None:
    decision = WELL.seen(fence=IN_BATCH, progress=refused).decide()
    assert decision.reason == "Streaming"
    found = unreadable(decision)
    assert found is not None
    assert (found.status, found.reason) == ("True", "ProgressUnreadable")
    assert "fence_progress cannot be read: wrong password" in found.message
    assert "twice" in found.message
    assert "rant the account SELECT" in found.message
    assert [str(event.reason) for event in decision.events] == ["ProgressUnreadable"]


def test_the_report_of_unreadable_progress_stays_until_progress_is_read() -> None:
    """Progress is read only while a batch is planned, so most observations say nothing about it."""
    first = WELL.seen(fence=IN_BATCH, progress=DENIED).decide()
    between = replace(ROW, planned=ROW.offsets)
    told = WELL.said(conditions=first.status.conditions).seen(fence=between)
    for later in (
        told,
        told.seen(fence=SILENT, progress=SILENT),
        told.seen(fence=DENIED, progress=DENIED),
        told.seen(fence=IN_BATCH, progress=SILENT),
        told.seen(fence=IN_BATCH, progress=DENIED),
        told.asked(batchInterval="x"),
    ):
        decision = later.decide()
        assert unreadable(decision) == unreadable(first)
        assert "ProgressUnreadable" not in [str(event.reason) for event in decision.events]
    assert unreadable(told.seen(fence=IN_BATCH, progress=REPORT).decide()) is None
    assert unreadable(told.seen(fence=IN_BATCH, progress=None).decide()) is None


@pytest.mark.parametrize("refused", [DENIED, replace(DENIED, reason=UnknownReason.REJECTED)])
def test_snapshots_that_may_not_be_read_are_reported_until_they_are_read(refused: Unknown) -> None:
    def reported(decision: Decision) -> Condition | None:
        return next((c for c in decision.status.conditions if c.type == "SnapshotsUnreadable"), None)

    decision = WELL.seen(snapshots=refused).decide()
    assert decision.reason == "Streaming"
    found = reported(decision)
    assert found is not None
    assert (found.status, found.reason) == ("True", "SnapshotsUnreadable")
    assert "GRANT SELECT, MODIFY ON fencepost.snapshots TO" in found.message
    assert "wrong password" in found.message
    assert [str(event.reason) for event in decision.events] == ["SnapshotsUnreadable"]
    told = WELL.said(conditions=decision.status.conditions)
    for later in (told, told.seen(snapshots=SILENT), told.seen(fence=DENIED, snapshots=DENIED)):
        assert reported(later.decide()) == found
        assert "SnapshotsUnreadable" not in [str(event.reason) for event in later.decide().events]
    assert reported(told.seen(snapshots=()).decide()) is None
    assert reported(WELL.seen(snapshots=SILENT).decide()) is None
    assert reported(WELL.seen(fence=DENIED, snapshots=DENIED).decide()) is None


def test_a_pipeline_that_falls_behind_says_so_and_goes_on() -> None:
    figures = ThroughputStatus(
        since=NOW, records=5, records_per_second=10, lag=10**6, growing_since=NOW - timedelta(minutes=6)
    )
    decision = WELL.said(throughput=figures).decide()
    assert decision.reason == "Streaming"
    found = next(c for c in decision.status.conditions if c.type == "FallingBehind")
    assert (found.status, found.reason) == ("True", "FallingBehind")
    assert "kubectl scale" in found.message
    assert "FallingBehind" in [str(event.reason) for event in decision.events]
    for others in (replace(figures, growing_since=NOW - timedelta(minutes=1)), replace(figures, growing_since=None)):
        kinds = [condition.type for condition in WELL.said(throughput=others).decide().status.conditions]
        assert "FallingBehind" not in kinds


@pytest.mark.parametrize(("estimate", "state"), [("50s", "Running"), ("1h20m", "CatchingUp"), (None, "Running")])
def test_small_batches_with_hours_to_go_are_catching_up(estimate: str | None, state: str) -> None:
    figures = ThroughputStatus(since=NOW, records=5, records_per_second=10, estimated_catch_up=estimate, lag=500)
    assert WELL.said(throughput=figures).decide().status.state == state


@pytest.mark.parametrize(("estimate", "state"), [("50s", "CatchingUp"), (None, "CatchingUp"), ("20s", "Running")])
def test_an_estimate_that_varies_from_window_to_window_does_not_turn_the_state(
    estimate: str | None, state: str
) -> None:
    figures = ThroughputStatus(since=NOW, records=5, records_per_second=10, estimated_catch_up=estimate, lag=500)
    behind = WELL.said(throughput=figures, state=State.CATCHING_UP).seen(source=Watermarks(ends={"orders/0": 500}))
    assert behind.decide().status.state == state


def test_the_lag_is_no_larger_than_the_api_server_takes() -> None:
    ends = {f"orders/{number}": 2**63 - 1 for number in range(3)}
    assert WELL.seen(source=Watermarks(ends=ends)).decide().status.lag == 2**63 - 1


def test_without_a_run_there_is_no_rate() -> None:
    ended = replace(RUN, ended_at=NOW, dead=True)
    figures = ThroughputStatus(since=NOW, records=5, records_per_second=10, estimated_catch_up="5m")
    assert WELL.said(run=ended, throughput=figures).decide().status.throughput is None


@pytest.mark.parametrize("fact", [SILENT, DENIED])
def test_a_fence_that_cannot_be_read_says_nothing_about_progress(fact: Unknown) -> None:
    assert unreadable(WELL.seen(fence=fact, progress=fact).decide()) is None
    assert unreadable(WELL.seen(fence=IN_BATCH, progress=SILENT).decide()) is None


def test_a_batch_whose_progress_stopped_is_unresponsive_after_the_timeout() -> None:
    stuck = replace(COMMITTED, version=9, done=7, done_at=NOW - timedelta(seconds=59))
    world = SLOW.said(committed=stuck).seen(progress=REPORT)
    assert world.decide().reason == "Streaming"
    older = replace(stuck, done_at=NOW - timedelta(seconds=60))
    assert world.said(committed=older).decide().reason == "Unresponsive"


GREW = {"orders/0": 50, "orders/1": 9}


@pytest.mark.parametrize(
    ("barrier", "ends", "high", "reason"),
    [
        ({"orders/0": 60, "orders/1": 0}, GREW, {"orders/0": 60, "orders/1": 9}, "Streaming"),
        ({}, GREW, {"orders/0": 60, "orders/1": 9}, "Streaming"),  # a driver with nothing to read records no barrier
        ({}, {"orders/1": 9}, {"orders/1": 9}, "Streaming"),  # orders/0 has no leader
        ({"orders/0": 50, "orders/1": 0}, GREW, {"orders/0": 60, "orders/1": 9}, "Unresponsive"),
        ({}, GREW, GREW, "Unresponsive"),
        ({"orders/0": 60, "orders/1": 0}, {**GREW, "orders/0": 51}, {**GREW, "orders/0": 60}, "Unresponsive"),
    ],
)
def test_a_driver_that_must_not_read_a_new_partition_yet_is_not_unresponsive(
    barrier: dict[str, int], ends: dict[str, int], high: dict[str, int], reason: str
) -> None:
    """Injected: an open transaction in orders/0 holds orders/1 back, and the operator replaced run after run."""
    row = replace(ROW, growth_barrier=barrier)
    decision = SLOW.seen(fence=row, source=Watermarks(ends=ends, high_watermarks=high)).decide()
    assert decision.reason == reason
    assert decision.status.lag == sum(ends.values()) - (50 if "orders/0" in ends else 0)


UNREAD, READ = {"orders/0": 60}, {"orders/0": 50}
HELD = Watermarks(ends=GREW, high_watermarks={"orders/0": 60, "orders/1": 9})
"""A new partition has records, and an open transaction keeps the old one from passing the barrier."""
LEADERLESS = Watermarks(ends={"orders/1": 9}, high_watermarks={"orders/1": 9})
BOTH_READ = {"orders/0": 50, "orders/1": 9}

READABLE: dict[str, tuple[dict[str, Any], Watermarks, bool]] = {
    "nothing": ({}, Watermarks(ends=READ), True),
    "records": ({}, Watermarks(ends=UNREAD), False),
    "only records behind the growth barrier": ({"growth_barrier": {"orders/0": 60, "orders/1": 0}}, HELD, True),
    "only records behind a barrier that is not recorded yet": ({}, HELD, True),
    "records behind a barrier that is passed": ({}, Watermarks(ends=GREW, high_watermarks=GREW), False),
    "no leader, and unread records were seen": ({"offsets": BOTH_READ, "log_ends": UNREAD}, LEADERLESS, False),
    "no leader, and nobody has seen its end": ({"offsets": BOTH_READ}, LEADERLESS, False),
    "no leader, and all was read": ({"offsets": BOTH_READ, "log_ends": READ}, LEADERLESS, True),
    "no leader, and its topic left the spec": ({"offsets": {**READ, "old/0": 7}}, Watermarks(ends=READ), True),
}
"""What the run could read now: the row, the log, and whether the run is idle."""


@pytest.mark.parametrize("case", READABLE)
def test_a_run_has_started_when_it_knows_of_nothing_that_it_could_read(case: str) -> None:
    row, source, idle = READABLE[case]
    claimed = WELL.said(run=replace(RUN, resumed_from=ROW.committed_at), conditions=())
    decision = claimed.seen(fence=replace(ROW, **row), source=source).decide()
    assert decision.reason == ("Streaming" if idle else "Starting")


@pytest.mark.parametrize("case", READABLE)
def test_only_a_run_that_could_read_nothing_resets_the_restart_budget_without_a_commit(case: str) -> None:
    row, source, idle = READABLE[case]
    claimed = WELL.said(run=replace(RUN, resumed_from=ROW.committed_at), failure=replace(FAILED, epoch=1))
    failure = claimed.seen(fence=replace(ROW, **row), source=source).decide().status.failure
    assert failure is not None
    assert (failure.count == 0) is idle


def test_a_run_that_waits_for_a_leader_names_the_partition() -> None:
    row = replace(ROW, offsets=BOTH_READ, log_ends=UNREAD)
    claimed = WELL.said(run=replace(RUN, resumed_from=ROW.committed_at), conditions=())
    message = claimed.seen(fence=row, source=LEADERLESS).decide().status.message
    assert "Kafka does not answer for orders/0" in message
    assert "brokers" in message


def test_the_stall_timeout_doubles_after_each_unresponsive_run() -> None:
    waiting = SLOW.said(committed=replace(COMMITTED, since=NOW - timedelta(seconds=100)))
    assert waiting.decide().reason == "Unresponsive"
    again = waiting.said(failure=REPLACED)
    assert again.decide().reason == "Streaming"
    assert again.said(committed=replace(COMMITTED, since=NOW - timedelta(seconds=130))).decide().reason == (
        "Unresponsive"
    )
    assert again.said(failure=replace(REPLACED, reason="RunFailed")).decide().reason == "Unresponsive"


def test_the_start_timeout_doubles_after_each_run_that_was_too_slow() -> None:
    """On an overloaded machine five drivers that started together were each replaced at 3 minutes, again and again."""
    assert start_timeout(None) == 180
    assert start_timeout(replace(REPLACED, reason="NeverClaimed")) == 360
    assert start_timeout(replace(REPLACED, repeats=3)) == 1440
    assert start_timeout(replace(REPLACED, reason="RunFailed")) == 180


def start_timeout(failure: FailureStatus | None) -> int:
    """Return after how many seconds without a claim a run is replaced, after a failure."""
    return next(
        seconds for seconds in range(0, 3600, 20) if unclaimed_for(seconds, failure).decide().reason == "NeverClaimed"
    )


def unclaimed_for(seconds: int, failure: FailureStatus | None) -> World:
    run = replace(RUN, claimed_at=None, resumed_from=ROW.committed_at, started_at=NOW - timedelta(seconds=seconds))
    pod = replace(POD, started_at=run.started_at)
    return WELL.said(run=run, failure=failure).seen(fence=replace(ROW, driver=None), runs=(replace(JOB, pod=pod),))


@pytest.mark.parametrize(("before", "repeats"), [("NeverClaimed", 2), ("Unresponsive", 2), ("OutOfMemory", 1)])
def test_runs_that_are_too_slow_at_different_points_count_together(before: str, repeats: int) -> None:
    longer = replace(COMMITTED, since=NOW - timedelta(seconds=1000))
    failure = SLOW.said(failure=replace(REPLACED, reason=before), committed=longer).decide().status.failure
    assert failure is not None
    assert (failure.reason, failure.repeats) == ("Unresponsive", repeats)


def test_failures_for_one_reason_are_counted_until_another_comes_between() -> None:
    failure = SLOW.said(failure=REPLACED, committed=COMMITTED).decide().status.failure
    assert failure is not None
    assert (failure.count, failure.repeats) == (2, 2)
    failure = SLOW.said(failure=replace(REPLACED, reason="RunFailed")).decide().status.failure
    assert failure is not None
    assert (failure.count, failure.repeats) == (2, 1)


@pytest.mark.parametrize(
    ("reason", "repeats", "limit"),
    [
        ("OutOfMemory", 1, 500),
        ("Unresponsive", 1, 500),
        ("Unresponsive", 3, 500),  # the claims of the runs before have cut the planned batch already
        ("OutOfMemory", 40, 500),
        ("RunFailed", 1, None),
    ],
)
def test_a_batch_that_was_too_large_is_tried_again_at_half_its_size(
    reason: str, repeats: int, limit: int | None
) -> None:
    row = replace(ROW, epoch=3, driver=None, version=10, planned={"orders/0": 1050})
    failure = replace(FAILED, count=repeats, repeats=repeats, attempts=1, reason=reason, next_attempt_at=NOW)
    assert started(FENCED.said(failure=failure).seen(fence=row)).first_batch_limit == limit
    changed = replace(failure, spec_hash="old")
    assert started(FENCED.said(failure=changed).seen(fence=row)).first_batch_limit is None


def test_a_batch_that_stays_too_large_is_halved_once_per_run_down_to_one_record() -> None:
    """The limit used to be planned >> repeats of a batch that each claim had cut: 1000, 500, 125, 15, 1."""
    limits = []
    planned = 10
    for repeats in range(1, 6):
        failure = replace(FAILED, count=repeats, repeats=repeats, reason="OutOfMemory", next_attempt_at=NOW)
        row = replace(ROW, epoch=3, driver=None, version=10, planned={"orders/0": 50 + planned})
        planned = started(FENCED.said(failure=failure).seen(fence=row)).first_batch_limit or 0
        limits.append(planned)
    assert limits == [5, 2, 1, 1, 1]


def started(world: World) -> DriverConfig:
    action = world.decide().action
    assert isinstance(action, StartRun)
    return DriverConfig.from_json(action.config_map["data"][run_config.KEY])


def test_a_run_is_told_whose_row_it_may_claim() -> None:
    assert started(FENCED).owner == "cluster-1/uid-1"


def test_an_open_transaction_is_reported_when_it_lasts() -> None:
    world = WELL.seen(source=Watermarks(ends={"orders/0": 50}, high_watermarks={"orders/0": 80}))
    fresh = world.decide().status
    assert [c.type for c in fresh.conditions] == ["Ready", "Streaming"]
    (seen,) = fresh.open_transactions
    old = replace(seen, since=NOW - timedelta(seconds=POLICY.transaction_timeout))
    decision = world.said(open_transactions=(old,)).decide()
    (found,) = (c for c in decision.status.conditions if c.type == "TransactionStalled")
    assert (found.status, found.reason) == ("True", "TransactionStalled")
    assert "orders/0 at offset 50" in found.message
    assert [str(event.reason) for event in decision.events] == ["TransactionStalled"]
    told = world.said(open_transactions=(old,), conditions=decision.status.conditions).decide()
    assert told.events == ()
    moved = replace(old, offset=40)
    assert world.said(open_transactions=(moved,)).decide().status.open_transactions == (seen,)
    assert WELL.said(open_transactions=(old,)).decide().status.open_transactions == ()
