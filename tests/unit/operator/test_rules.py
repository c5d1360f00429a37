"""The chain as a table: from a pipeline that runs well, one thing is changed, and one rule must speak."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from fencepost_operator.actions import (
    AddFinalizer,
    CreateFence,
    InstallCluster,
    ReleaseFence,
    RemoveFinalizer,
    StartRun,
    StopRun,
    TakeOverFence,
    UninstallCluster,
)
from fencepost_operator.api import (
    Reason,
    RunStatus,
    State,
)
from fencepost_operator.decision.decision import ActionFailure
from fencepost_operator.decision.run.diagnosis import diagnose_end
from fencepost_operator.observation import (
    NodeState,
    Release,
    ReleaseState,
    Watermarks,
)
from unit.operator.scenes import (
    BURIED,
    CLUSTER,
    COMMITTED,
    DEAD,
    DELETED,
    DENIED,
    DROPPED,
    FAILED,
    FENCED,
    JOB,
    LAGGING,
    LOST,
    LOST_MASTER,
    LOST_WORKER,
    NEW,
    NOW,
    OVER,
    POD,
    RECORDED,
    ROW,
    RUN,
    SILENT,
    TOO_LARGE,
    WELL,
    YOUNG,
    World,
    started,
)

CASES: dict[str, tuple[World, str, type | None, State]] = {
    "all is well": (WELL, "Streaming", None, State.RUNNING),
    "far behind": (WELL.seen(source=Watermarks(ends={"orders/0": 10**6})), "CatchingUp", None, State.CATCHING_UP),
    # gates
    "no finalizer": (WELL.with_pipeline(finalizers=()), "Pending", AddFinalizer, State.RUNNING),
    "invalid spec": (WELL.asked(batchInterval="x"), "InvalidSpec", None, State.STALLED),
    "API server silent": (WELL.seen(runs=SILENT), "KubernetesUnreachable", None, State.RUNNING),
    "API server refuses": (WELL.seen(runs=DENIED), "KubernetesForbidden", None, State.RUNNING),
    "references unknown": (WELL.seen(references=SILENT), "KubernetesUnreachable", None, State.RUNNING),
    "references refused": (WELL.seen(references=DENIED), "KubernetesForbidden", None, State.RUNNING),
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
        DEAD.said(run=replace(RUN, ended_at=NOW, dead=True), failure=replace(FAILED, reason=Reason.BAD_SPEC)),
        "BadSpec", None, State.STALLED,
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
    "killed, cluster refused": (FENCED.seen(cluster=DENIED), "KubernetesForbidden", None, State.RESTARTING),
    "killed, cluster unseen": (FENCED.seen(cluster=SILENT), "KubernetesUnreachable", None, State.RESTARTING),
    "first cluster": (NEW, "Provisioning", InstallCluster, State.PROVISIONING),
    "first topic missing": (
        NEW.seen(source=Watermarks(ends={}, missing_topics=("orders",))), "TopicNotFound", None, State.PENDING,
    ),
    "master not ready": (
        FENCED.seen(cluster=replace(CLUSTER, master_ready=False)), "Provisioning", None, State.RESTARTING,
    ),
    "new cluster, its master's volume is not there": (
        FENCED.said(cluster=replace(RECORDED, ready_at=None, requested_at=NOW - timedelta(seconds=29))).seen(
            cluster=replace(CLUSTER, master_ready=False, ready_workers=0)
        ),
        "RunStarted", StartRun, State.RESTARTING,
    ),
    "cluster whose master takes long": (
        FENCED.said(cluster=replace(RECORDED, ready_at=None, requested_at=NOW - timedelta(seconds=30))).seen(
            cluster=replace(CLUSTER, master_ready=False, ready_workers=0)
        ),
        "Provisioning", None, State.RESTARTING,
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
    "deleted, runs refused": (DELETED.seen(runs=DENIED), "KubernetesForbidden", None, State.DELETING),
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
    failure = replace(FAILED, reason=Reason.BAD_SPEC, message="it failed.", remedy="correct the spec.")
    decision = DEAD.said(run=replace(RUN, ended_at=NOW, dead=True), failure=failure).decide()
    assert ".." not in decision.status.message
    assert ".;" not in decision.status.message
    silent = replace(SILENT, message="no answer.", remedy="wait.")
    assert ".." not in WELL.seen(fence=silent).decide().status.message


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


def test_a_run_is_told_whose_row_it_may_claim() -> None:
    assert started(FENCED).owner == "cluster-1/uid-1"
