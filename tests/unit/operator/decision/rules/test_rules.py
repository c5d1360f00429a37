"""The chain as a table: from a pipeline that runs well, one thing is changed, and one rule must speak."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from fencepost_operator.actions import (
    AddFinalizer,
    CreateFence,
    DeleteRun,
    InstallCluster,
    ReleaseFence,
    RemoveFinalizer,
    StartRun,
    StopRun,
    TakeOverFence,
    UninstallCluster,
)
from fencepost_operator.api import CommittedStatus, EventType, Reason, RunStatus, Spec, State
from fencepost_operator.decision.decision import ActionFailure
from fencepost_operator.decision.run.diagnosis import diagnose_end
from fencepost_operator.desired.identity.code import code_identity, output_shape
from fencepost_operator.observation import NodeState, References, ReleaseState, Watermarks
from present import present
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
    LONG_AGO,
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
    SLOW,
    TOO_LARGE,
    WELL,
    YOUNG,
    Scene,
    started,
    unclaimed_for,
)

MISSING = References(hashes={"ConfigMap/c": None, "Secret/s": None})
BATCH = 100_000
"""Records of a batch by default."""
ALONE = WELL.seen(source=Watermarks(ends={"orders/0": 50}, by_driver=True), fence=replace(ROW, planned=ROW.offsets))
"""Only the driver may connect to Kafka, and it has read all."""


def committed_before(seconds: float) -> CommittedStatus:
    return replace(COMMITTED, since=NOW - timedelta(seconds=seconds))


CASES: dict[str, tuple[Scene, str, type | None, State]] = {
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
    "a ConfigMap is missing": (
        WELL.seen(references=MISSING), "ConfigMapNotFound", None, State.RUNNING,
    ),
    "a Secret is missing, no run yet": (
        NEW.seen(references=References(hashes={"Secret/s": None})), "SecretNotFound", None, State.PENDING,
    ),
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
    "half of what began to be catching up": (
        WELL.said(state=State.CATCHING_UP).seen(source=Watermarks(ends={"orders/0": 50 + BATCH})), "Streaming", None,
        State.RUNNING,
    ),
    "more than half of what began to be catching up": (
        WELL.said(state=State.CATCHING_UP).seen(source=Watermarks(ends={"orders/0": 51 + BATCH})), "CatchingUp", None,
        State.CATCHING_UP,
    ),
    "two batches behind": (
        WELL.seen(source=Watermarks(ends={"orders/0": 50 + 2 * BATCH})), "Streaming", None, State.RUNNING,
    ),
    "more than two batches behind": (
        WELL.seen(source=Watermarks(ends={"orders/0": 51 + 2 * BATCH})), "CatchingUp", None, State.CATCHING_UP,
    ),
    "no commit for thrice the last batch": (
        SLOW.seen(fence=replace(ROW, duration_ms=40_000)).said(committed=committed_before(120)), "Unresponsive",
        TakeOverFence, State.RESTARTING,
    ),
    "no commit for less than thrice the last batch": (
        SLOW.seen(fence=replace(ROW, duration_ms=40_000)).said(committed=committed_before(119)), "Streaming", None,
        State.RUNNING,
    ),
    "no sign of life where the driver alone reads": (
        ALONE.said(committed=replace(COMMITTED, since=None, alive_at=LONG_AGO)), "Unresponsive", TakeOverFence,
        State.RESTARTING,
    ),
    "a sign of life where the driver alone reads": (
        ALONE.said(committed=replace(COMMITTED, since=None, alive_at=NOW)), "Streaming", None, State.RUNNING,
    ),
    "no sign of life, and signs are refused": (
        ALONE.seen(progress=DENIED).said(committed=replace(COMMITTED, since=None, alive_at=LONG_AGO)), "Streaming",
        None, State.RUNNING,
    ),
    "whether it lives cannot be read for long": (
        ALONE.seen(progress=SILENT).said(unobserved_since=LONG_AGO), "ProgressUnreadable", None, State.RUNNING,
    ),
    "whether it lives cannot be read": (
        ALONE.seen(progress=SILENT), "Streaming", None, State.RUNNING,
    ),
    "no sign of life, a batch is planned": (
        ALONE.seen(fence=replace(ROW, planned={"orders/0": 60})).said(
            committed=replace(COMMITTED, since=None, alive_at=LONG_AGO)
        ),
        "Streaming", None, State.RUNNING,
    ),
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
    "suspend, run lost, Cassandra silent": (
        WELL.asked(suspend=True).said(**LOST).seen(runs=(), fence=SILENT), "CassandraUnreachable", None,
        State.SUSPENDED,
    ),
    "suspend, run lost and fenced": (
        WELL.asked(suspend=True).said(**LOST).seen(runs=(), fence=replace(ROW, epoch=3, driver=None)), "Stopping",
        UninstallCluster, State.SUSPENDED,
    ),
    "suspend, run lost, its row gone": (
        WELL.asked(suspend=True).said(**LOST).seen(runs=(), fence=None), "Stopping", UninstallCluster,
        State.SUSPENDED,
    ),
    "suspend, release unseen": (
        WELL.asked(suspend=True).said(run=replace(RUN, ended_at=NOW, dead=True)).seen(runs=(), release=SILENT),
        "KubernetesUnreachable", None, State.SUSPENDED,
    ),
    "suspend, release gone, cluster there": (
        WELL.asked(suspend=True).said(run=replace(RUN, ended_at=NOW, dead=True)).seen(runs=(), release=None),
        "Stopping", None, State.SUSPENDED,
    ),
    "suspend, cluster unseen": (
        WELL.asked(suspend=True).said(run=replace(RUN, ended_at=NOW, dead=True)).seen(
            runs=(), release=None, cluster=SILENT
        ),
        "Suspended", None, State.SUSPENDED,
    ),
    # no run lives
    "killed": (DEAD, "Fenced", TakeOverFence, State.RESTARTING),
    "killed, its cluster gone": (BURIED.seen(release=None, cluster=None), "Fenced", TakeOverFence, State.RESTARTING),
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
    "starting after a failure": (
        unclaimed_for(10, replace(FAILED, epoch=1)).seen(**LAGGING), "Starting", None, State.RESTARTING,
    ),
    "starting after a failure before the last run": (
        unclaimed_for(10, replace(FAILED, epoch=0)).seen(**LAGGING), "Starting", None, State.STARTING,
    ),
    "starting after a failure that is over": (
        unclaimed_for(10, replace(FAILED, epoch=1, count=0)).seen(**LAGGING), "Starting", None, State.STARTING,
    ),
    # deletion
    "deleted, cleaned up": (OVER.with_pipeline(finalizers=()), "Released", None, State.DELETING),
    "deleted, a Job that was asked to stop": (
        OVER.seen(runs=(replace(JOB, deleting=True),)).with_pipeline(deleting_since=NOW - timedelta(seconds=30)),
        "Stopping", None, State.DELETING,
    ),
    "deleted, an orphan": (
        OVER.said(run=None).seen(runs=(replace(JOB, orphaned=True),)), "Fenced", TakeOverFence, State.DELETING,
    ),
    "deleted, invalid spec without a run": (
        DROPPED.asked(batchInterval="x").said(run=None, epoch=None).seen(fence=None), "Released", RemoveFinalizer,
        State.DELETING,
    ),
    "deleted with row, run lost": (
        DROPPED.said(**LOST), "Fenced", TakeOverFence, State.DELETING,
    ),
    "deleted with row, run lost and fenced": (
        DROPPED.said(**LOST).seen(fence=replace(ROW, epoch=3, driver=None)), "Deleting", ReleaseFence, State.DELETING,
    ),
    "deleted, run lost, row gone": (OVER.said(**LOST).seen(fence=None), "Released", RemoveFinalizer, State.DELETING),
    "deleted": (DELETED, "Stopping", StopRun, State.DELETING),
    "deleted, invalid spec": (DELETED.asked(batchInterval="x"), "Stopping", StopRun, State.DELETING),
    "deleted, stopping": (
        DELETED.said(run=replace(RUN, stop_requested_at=NOW)).seen(runs=(replace(JOB, deleting=True),)), "Stopping",
        None, State.DELETING,
    ),
    "deleted, run over": (
        OVER.seen(release=ReleaseState.FAILED), "Deleting", UninstallCluster,
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
    "deleted, release unseen": (OVER.seen(release=SILENT), "KubernetesUnreachable", None, State.DELETING),
    "deleted, invalid spec, run lost, row elsewhere": (
        OVER.asked(batchInterval="x").said(**LOST).seen(fence=None), "InvalidSpec", None, State.DELETING,
    ),
    "deleted, run lost, its spec does not say where the row is": (
        OVER.asked(batchInterval="x").said(**LOST).with_pipeline(written={}), "InvalidSpec", None, State.DELETING,
    ),
    "deleted, invalid spec, run lost and fenced": (
        OVER.asked(batchInterval="x").said(**LOST, epoch=3).seen(fence=None), "Released", RemoveFinalizer,
        State.DELETING,
    ),
    "deleted, runs refused": (DELETED.seen(runs=DENIED), "KubernetesForbidden", None, State.DELETING),
    "deleted, runs unseen": (DELETED.seen(runs=SILENT), "KubernetesUnreachable", None, State.DELETING),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_rule(case: str) -> None:
    scene, reason, action, state = CASES[case]
    decision = scene.decide()
    assert (str(decision.reason), type(decision.action) if decision.action else None, decision.status.state) == (
        reason,
        action,
        state,
    ), decision.status.message


QUIET = {
    "CatchingUp", "Deleting", "Provisioning", "Released", "RunStarted", "Scaled", "Starting", "Stopping", "Streaming",
    "Superseded", "Suspended", "Upgrading",
}  # fmt: skip
"""Reasons of what passes; each other one asks for the user's attention."""
UNKNOWN = {
    "CassandraCredentialsRejected", "CassandraUnreachable", "KafkaUnreachable", "KubernetesForbidden",
    "KubernetesUnreachable",
}  # fmt: skip
"""Reasons for which nothing is known: what runs is taken to run on."""


@pytest.mark.parametrize("case", CASES)
def test_the_reason_says_whether_its_event_is_a_warning_and_the_pipeline_ready(case: str) -> None:
    scene, reason, _, state = CASES[case]
    events = [event for event in scene.said(conditions=()).decide().events if event.reason == reason]
    assert {event.type is EventType.WARNING for event in events} <= {reason not in QUIET}
    is_ready = scene.decide().status.conditions[0].status == "True"
    assert is_ready == (
        reason in {"CatchingUp", "Streaming", "Suspended"} or (reason in UNKNOWN and state is State.RUNNING)
    )


def test_the_record_of_a_cluster_that_is_suspended_matches_no_other_one() -> None:
    for case in ("suspend, run over", "deleted, run over"):
        before, after = RECORDED, CASES[case][0].decide().status.cluster
        forgotten = replace(before, config_hash="", ready_at=None, workers=0, ready_workers=0)
        assert after == (forgotten if case.startswith("suspend") else before)


@pytest.mark.parametrize(("spec_hash", "since"), [(RUN.spec_hash, LONG_AGO), ("old", NOW)])
def test_the_first_run_of_a_spec_is_remembered_over_its_restarts(spec_hash: str, since: datetime) -> None:
    ended = replace(RUN, ended_at=NOW, dead=True, spec_hash=spec_hash, first_recorded_at=LONG_AGO)
    run = present(FENCED.said(run=ended).decide().status.run)
    assert (run.epoch, run.first_recorded_at) == (3, since)


def test_what_is_recorded_of_a_run_before_it_is_started() -> None:
    row = replace(ROW, epoch=3, driver=None, version=10, offsets={"orders/0": 50, "orders/1": 7}, dead_letters=4)
    decision, spec = FENCED.seen(fence=row).decide(), FENCED.pipeline.spec
    assert isinstance(spec, Spec)
    assert decision.status.run == RunStatus(
        name="orders-run-3", epoch=3, spec_hash=RUN.spec_hash, cluster_generation=1, recorded_at=NOW,
        resumed_from=ROW.committed_at, resumed_offsets=57, resumed_dead_letters=4, revision=RUN.revision,
        first_recorded_at=NOW, code=code_identity(spec), output=output_shape(spec, {}),
    )  # fmt: skip
    assert (decision.status.restarts, decision.status.epoch) == (1, 3)
    crashed = replace(RUN, epoch=3, name="orders-run-3", recorded_at=LONG_AGO, created_at=None, claimed_at=None)
    again = FENCED.said(run=crashed).seen(fence=row, runs=()).decide().status
    assert (present(again.run).recorded_at, again.restarts) == (LONG_AGO, 0), "the same run, tried again"
    config = started(FENCED.seen(fence=row))
    assert (config.epoch, config.owner, config.first_batch_limit, config.isolate) == (3, "cluster-1/uid-1", None, False)
    assert config.finish_until == {}


@pytest.mark.parametrize("asked", [None, LONG_AGO])
def test_a_fenced_run_counts_as_asked_to_stop_since_it_was_first_asked(asked: datetime | None) -> None:
    lingering = WELL.said(run=replace(RUN, ended_at=NOW, dead=False, stop_requested_at=asked))
    run = present(lingering.seen(fence=replace(ROW, epoch=3, driver=None)).decide().status.run)
    assert run.stop_requested_at == (asked or NOW)


def test_an_earlier_run_that_is_stopping_is_waited_for_after_the_active_one() -> None:
    earlier = replace(JOB, name="orders-run-1", epoch=1, deleting=True)
    both = DELETED.said(run=replace(RUN, stop_requested_at=NOW)).seen(runs=(earlier, replace(JOB, deleting=True)))
    assert "Waiting for orders-run-2 to stop" in both.decide().status.message
    alone = OVER.seen(runs=(earlier,))
    assert "Waiting for orders-run-1 to stop" in alone.decide().status.message


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
    asked = NOW - timedelta(seconds=61)
    stopped = replace(RUN, stop_requested_at=asked, termination_grace=60)
    run = present(WELL.said(run=stopped).seen(runs=(), run_node=node).measured(stop_since=asked).decide().status.run)
    assert run.dead is dead


def test_a_vanished_pod_is_waited_for_while_its_node_is_unknown() -> None:
    decision = WELL.seen(runs=(), run_node=SILENT).decide()
    assert present(decision.status.run).ended_at is None
    assert decision.action is None


def test_a_budget_used_up_by_lost_pods_says_what_to_do_and_nothing_else() -> None:
    vanished = diagnose_end(None, RUN.name)
    failure = replace(FAILED, reason=vanished.category, message=vanished.message, remedy=vanished.remedy)
    scene = BURIED.asked(restart={"maxAttempts": 2}).said(failure=failure)
    message = scene.decide().status.message
    assert "nothing needs to be done" not in message
    assert "or set the annotation streaming.fencepost.dev/retry" in message


def refused(message: str, *, remedy: str = "", attempts: int = 1) -> ActionFailure:
    due = NEW.decide().action
    assert due is not None
    return ActionFailure(action=due, reason=Reason.INSTALL_FAILED, message=message, remedy=remedy, attempts=attempts)


def test_an_action_that_fails_is_said_in_place_of_the_rules_words() -> None:
    failure = refused("exceeded quota", remedy="raise the quota.", attempts=3)
    decision = NEW.decide(failures=[failure])
    assert decision.reason == "InstallFailed"
    assert "exceeded quota (tried 3 times). Raise the quota." in decision.status.message
    assert isinstance(decision.action, InstallCluster)
    assert WELL.decide(failures=[failure]).reason == "Streaming"


def test_a_failure_of_the_old_spec_is_not_reported_for_the_new_one() -> None:
    failure = refused("tolerations[0]: invalid", remedy="correct it", attempts=9)
    fixed = NEW.asked(cluster={"tolerations": [{"key": "gpu", "operator": "Exists"}]}).decide(failures=[failure])
    assert fixed.reason == "Provisioning"
    assert "invalid" not in fixed.status.message


def test_a_long_error_keeps_the_name_of_the_field_at_either_end() -> None:
    text = "StatefulSet is invalid: " + "x" * 5000 + " spec.template.spec.affinity: Required value"
    message = NEW.decide(failures=[refused(text)]).status.message
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
    run = present(decision.status.run)
    assert (run.ended_at, run.dead) == (NOW, False)
    fenced = WELL.said(run=run, failure=None).seen(runs=(), fence=replace(ROW, epoch=3, driver=None)).decide()
    assert isinstance(fenced.action, InstallCluster)
    assert fenced.action.values["generation"] == 2


def test_a_job_of_another_spec_than_was_recorded_is_replaced() -> None:
    decision = WELL.seen(runs=(replace(JOB, spec_hash="old"),)).decide()
    assert (str(decision.reason), type(decision.action)) == ("Upgrading", StopRun)


def test_only_a_run_that_is_given_up_while_it_may_commit_is_fenced_by_version() -> None:
    """A commit that comes in between wins over the takeover, and the run continues."""
    fenced = {name: case[0].decide().action for name, case in CASES.items() if case[2] is TakeOverFence}
    by_version = {name for name, a in fenced.items() if isinstance(a, TakeOverFence) and a.version is not None}
    assert by_version == {
        "no commit for long",
        "no commit for thrice the last batch",
        "no sign of life where the driver alone reads",
        "never claimed",
        "master's node lost before the run claimed",
        "all workers' nodes lost under a living run",
    }
    assert len(fenced) > len(by_version)


def test_a_fence_that_was_found_is_not_reported_as_one_that_began() -> None:
    found = NEW.seen(fence=replace(ROW, driver=None, owner="cluster-1/old"))
    events = [(str(event.reason), event.message) for event in found.decide().events]
    assert ("Resumed", "Found this pipeline's fence at epoch 2: it continues from the last commit there") in events
    assert not any("began" in message for _, message in events)
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
    assert decision.action == DeleteRun(name="orders-run--2")
    assert decision.reason == "Streaming"


def test_a_failed_run_is_history_before_its_jobs_condition_says_so() -> None:
    """On a real cluster the Job's condition comes seconds after its pod's end; deleting it would take the log away."""
    failed = replace(JOB, name="orders-run-1", epoch=1, pod=replace(POD, exit_code=137, phase="Failed"))
    assert WELL.seen(runs=(failed, JOB)).decide().action is None
    living = replace(failed, pod=POD)
    assert isinstance(WELL.seen(runs=(living, JOB)).decide().action, StopRun)


def test_a_run_knows_whose_row_it_may_claim() -> None:
    assert started(FENCED).owner == "cluster-1/uid-1"
