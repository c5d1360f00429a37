"""`restart.standby: Warm`: a run that waits beside the one that works; `tests/crash/test_standby` plays it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fencepost.fence import BatchProgress
from fencepost_operator.actions import InstallCluster, StartRun, StopRun, TakeOverFence
from fencepost_operator.api import HandoffStatus, Reason, Spec, StandbyStatus, condition_of
from fencepost_operator.decision.decision import ActionFailure, Decision
from fencepost_operator.decision.rest import is_at_rest
from fencepost_operator.desired.identity.revision import revision_of
from fencepost_operator.observation import ClusterObject, ClusterObjects, Known, PodIssue, ReleaseState
from present import present
from unit.operator.scenes import (
    CLUSTER,
    COMMITTED,
    FAILED,
    JOB,
    LAGGING,
    LONG_AGO,
    NOW,
    POD,
    RECORDED,
    ROW,
    RUN,
    SILENT,
    WELL,
    Scene,
)

WARM = {"standby": "Warm"}
NEXT = replace(RECORDED, generation=RECORDED.generation + 1, ready_at=None, avoided_nodes=("n",))
ITS_CLUSTER = replace(CLUSTER, generation=NEXT.generation)


def asking(**restart: Any) -> Scene:
    """A pipeline that streams and is to have a standby."""
    return WELL.asked(restart={**WARM, **restart}).seen(cluster_objects=ClusterObjects())


def revision(scene: Scene) -> str:
    assert isinstance(scene.pipeline.spec, Spec)
    return revision_of(scene.pipeline, scene.pipeline.spec, {}).name


def recorded(**changes: Any) -> Scene:
    """A pipeline whose standby is recorded; its cluster is ready."""
    scene = asking()
    standby = HandoffStatus(
        name=f"orders-run-{RUN.epoch + 1}",
        epoch=RUN.epoch + 1,
        spec_hash=RUN.spec_hash,
        cluster_generation=NEXT.generation,
        revision=revision(scene),
        code="code",
        since=NOW - timedelta(seconds=10),
        cluster=NEXT,
        standby=True,
    )
    return scene.said(handoff=replace(standby, **changes)).seen(cluster=replace(CLUSTER, others=(ITS_CLUSTER,)))


def waiting(scene: Scene, *, ready: bool = True, pod: Any = None, **job: Any) -> Scene:
    """The same with the Job of the standby."""
    standby = present(scene.pipeline.status.handoff)
    its_pod = replace(POD, name=f"{standby.name}-pod", uid="its-uid", node="elsewhere", ready=ready)
    made = replace(
        JOB, name=standby.name, epoch=standby.epoch, cluster_generation=standby.cluster_generation, pod=pod or its_pod
    )
    runs = scene.observation.runs
    assert isinstance(runs, Known)
    return scene.seen(runs=(*runs.value, replace(made, **job)))


def dead(scene: Scene, **failure: Any) -> Scene:
    """The same where the run that works has ended, with a failure that counts."""
    run = replace(present(scene.pipeline.status.run), ended_at=NOW, dead=True)
    failed = replace(FAILED, count=1, epoch=run.epoch, reason=Reason.KILLED, next_attempt_at=NOW + timedelta(seconds=2))
    return scene.said(run=run, failure=replace(failed, **failure))


def said(decision: Decision) -> tuple[str, str]:
    found = present(condition_of(decision.status.conditions, "StandbyReady"))
    return found.status, found.reason


def test_its_cluster_is_recorded_and_installed_beside_the_one_that_works() -> None:
    decision = asking().decide()
    assert decision.reason == Reason.STREAMING, "the pipeline stays ready"
    standby = present(decision.status.handoff)
    assert (standby.standby, standby.epoch, standby.spec_hash) == (True, RUN.epoch + 1, RUN.spec_hash)
    assert isinstance(decision.action, InstallCluster)
    assert (decision.action.values["generation"], decision.action.keep) == (NEXT.generation, RUN.cluster_generation)
    assert present(decision.status.cluster).generation == RUN.cluster_generation
    assert present(standby.cluster).avoided_nodes == (RUN.node_name,)
    assert said(decision) == ("False", "StandbyStarting")


def test_its_job_awaits_the_next_epoch_with_the_code_of_the_run_that_works() -> None:
    decision = recorded().seen(fence=replace(ROW, code="the code of the row")).decide()
    assert isinstance(decision.action, StartRun)
    config = str(decision.action.config_map["data"])
    assert '"stands_by": true' in config.replace('\\"', '"').replace('":true', '": true')
    assert "the code of the row" in config


@pytest.mark.parametrize("fact", ["source", "release", "cluster", "cluster_objects", "rewinds"])
def test_nothing_is_started_while_something_is_unknown(fact: str) -> None:
    assert not isinstance(recorded().seen(**{fact: SILENT}).decide().action, StartRun)


def test_a_pipeline_with_a_warm_standby_is_at_rest_and_says_so() -> None:
    scene = waiting(recorded())
    decision = scene.decide()
    assert (decision.reason, decision.action) == (Reason.STREAMING, None)
    assert said(decision) == ("True", "StandbyWarm")
    assert ("Normal", "StandbyWarm") in [(event.type.value, event.reason) for event in decision.events]
    settled = scene.said(conditions=decision.status.conditions)
    assert is_at_rest(settled.pipeline, settled.observation, settled.decide())
    cold = waiting(recorded(), ready=False).said(conditions=decision.status.conditions)
    assert not is_at_rest(cold.pipeline, cold.observation, cold.decide())


def test_it_takes_over_as_soon_as_the_run_has_ended() -> None:
    decision = dead(waiting(recorded())).decide()
    assert isinstance(decision.action, TakeOverFence)
    assert (decision.action.epoch, decision.action.version) == (ROW.epoch, None)


def test_run_after_run_without_progress_backs_off_beside_a_warm_standby() -> None:
    assert dead(waiting(recorded()), count=2, repeats=2).decide().reason == Reason.BACKING_OFF


def test_the_epoch_begins_once_a_standby_that_is_to_stop_has_ended() -> None:
    stopping = waiting(recorded(withdrawn=True), pod=replace(POD, uid="its-uid", deleting_since=NOW), deleting=True)
    decision = dead(stopping).decide()
    assert (decision.reason, decision.action) == (Reason.STOPPING, None)
    ended = replace(POD, uid="its-uid", exit_code=0, phase="Succeeded")
    assert isinstance(dead(waiting(recorded(withdrawn=True), pod=ended, deleting=True)).decide().action, TakeOverFence)


def test_one_that_is_to_take_a_smaller_batch_is_another_run() -> None:
    row = replace(ROW, planned={key: at + 100 for key, at in ROW.offsets.items()})
    scene = dead(waiting(recorded()), reason=Reason.OUT_OF_MEMORY, batch_records=100).seen(fence=row)
    decision = scene.decide()
    assert decision.action == StopRun(name=present(scene.pipeline.status.handoff).name)
    assert present(decision.status.handoff).withdrawn
    stopping = scene.said(handoff=decision.status.handoff).decide()
    assert (stopping.reason, stopping.action) == (Reason.STOPPING, StopRun(name="orders-run-3")), "asked again"


@pytest.mark.parametrize(
    ("issue", "after", "fails"),
    [("FailedCreate", 1, True), ("Unschedulable", 60, False), ("Unschedulable", 121, True), (None, 400, True)],
)
def test_one_without_room_is_given_up(issue: str | None, after: int, fails: bool) -> None:
    message = "pods is forbidden: exceeded quota: compute"
    issues = (PodIssue(pod="worker-0", reason=issue, message=message),) if issue else ()
    scene = waiting(recorded(since=NOW - timedelta(seconds=after)), ready=False)
    decision = scene.seen(cluster=replace(CLUSTER, others=(replace(ITS_CLUSTER, issues=issues),))).decide()
    assert decision.reason == Reason.STREAMING
    assert said(decision)[1] == ("StandbyFailed" if fails else "StandbyStarting")
    assert (decision.action == StopRun(name="orders-run-3")) is fails
    assert bool(present(decision.status.handoff).withdrawn) is fails
    assert decision.status.failure == scene.pipeline.status.failure, "of the run that works nothing is said"


def test_one_that_failed_is_started_again_when_it_is_due_or_the_spec_has_changed() -> None:
    scene = asking()
    failed = StandbyStatus(
        revision=revision(scene), failures=2, message="no", remedy="do", next_attempt_at=NOW + timedelta(seconds=1)
    )
    soon = scene.said(standby=failed).decide()
    assert (soon.action, soon.status.handoff, said(soon)) == (None, None, ("False", "StandbyFailed"))
    for due in (replace(failed, next_attempt_at=NOW), replace(failed, revision="another")):
        assert present(scene.said(standby=due).decide().status.handoff).standby
    warm = waiting(recorded()).said(standby=failed).decide()
    assert warm.status.standby is None


@pytest.mark.parametrize("what", ["not asked for", "another spec", "more workers"])
def test_it_is_stopped_when_it_is_not_what_should_take_over(what: str) -> None:
    scene = waiting(recorded())
    if what == "not asked for":
        scene = scene.asked(restart={})
    elif what == "another spec":
        scene = scene.said(handoff=replace(present(scene.pipeline.status.handoff), revision="orders-other"))
    else:
        cluster = replace(NEXT, workers=NEXT.workers + 1)
        scene = scene.said(handoff=replace(present(scene.pipeline.status.handoff), cluster=cluster))
    decision = scene.decide()
    assert decision.action == StopRun(name="orders-run-3")
    assert present(decision.status.cluster).generation == RUN.cluster_generation


@pytest.mark.parametrize("state", [ReleaseState.FAILED, ReleaseState.PENDING])
def test_a_release_that_the_standby_left_undone_is_no_damage_of_the_cluster_that_works(state: ReleaseState) -> None:
    decision = recorded().seen(cluster=CLUSTER, release=state).decide()
    assert decision.reason == Reason.STREAMING
    assert isinstance(decision.action, InstallCluster)
    assert decision.action.keep == RUN.cluster_generation
    failed = StandbyStatus(
        revision="r", failures=1, message="no", remedy="do", next_attempt_at=NOW + timedelta(hours=1)
    )
    left = asking().said(standby=failed).seen(release=state).decide()
    ready = present(condition_of(left.status.conditions, "Ready"))
    assert (ready.status, type(left.action)) == ("True", InstallCluster)


def test_a_cluster_that_helm_refuses_is_a_standby_that_failed() -> None:
    scene = recorded().seen(cluster=CLUSTER)
    action = scene.decide().action
    assert isinstance(action, InstallCluster)
    failure = ActionFailure(
        action=action, reason=Reason.KUBERNETES_REJECTED, message="denied", remedy="ask", attempts=1
    )
    decision = scene.decide(failures=(failure,))
    assert (decision.reason, said(decision)) == (Reason.STREAMING, ("False", "StandbyFailed"))
    assert present(decision.status.handoff).withdrawn
    assert present(decision.status.standby).message.startswith("denied")


@pytest.mark.parametrize("waits", [True, False])
def test_a_run_that_hangs_is_not_fenced_beside_a_standby_where_its_death_is_waited_for(waits: bool) -> None:
    restart = {**WARM, "onUnprovenDeath": "wait" if waits else "fence"}
    scene = waiting(recorded()).asked(restart=restart)
    handoff = replace(present(scene.pipeline.status.handoff), revision=revision(scene))
    quiet = replace(COMMITTED, since=LONG_AGO, observable_since=LONG_AGO)
    hung = scene.said(handoff=handoff, committed=quiet).seen(**LAGGING)
    decision = hung.decide()
    assert (decision.reason, isinstance(decision.action, TakeOverFence)) == (Reason.UNRESPONSIVE, not waits)
    assert present(decision.status.run).ended_at == NOW
    if waits:
        after = replace(hung, pipeline=replace(hung.pipeline, status=decision.status)).decide()
        assert (after.reason, after.action) == (Reason.STOPPING, StopRun(name=RUN.name))


def test_a_warm_standby_that_does_not_claim_is_replaced_soon() -> None:
    run = replace(RUN, claimed_at=None, stood_by=True, started_at=LONG_AGO, recorded_at=NOW - timedelta(seconds=16))
    scene = (
        asking().said(run=run).seen(fence=replace(ROW, driver=None), runs=(replace(JOB, pod=replace(POD, ready=True)),))
    )
    decision = scene.decide()
    assert (decision.reason, type(decision.action)) == (Reason.NEVER_CLAIMED, TakeOverFence)
    sooner = scene.said(run=replace(run, recorded_at=NOW - timedelta(seconds=14)))
    assert sooner.decide().reason == Reason.STARTING


def test_the_run_beside_a_standby_is_recorded_again_where_the_status_is_lost() -> None:
    scene = waiting(recorded()).said(run=None, handoff=None)
    assert present(scene.decide().status.run).name == RUN.name


def test_no_cluster_is_freed_while_a_run_works_on_another_generation() -> None:
    """The newer generation is the one that it works on."""
    newer = ClusterObject(kind="Service", name="s", uid="u", generation=NEXT.generation)
    scene = asking().said(run=replace(RUN, cluster_generation=NEXT.generation))
    decision = scene.seen(cluster_objects=ClusterObjects(found=(newer,))).decide()
    assert not isinstance(decision.action, InstallCluster) or decision.action.keep is not None


@pytest.mark.parametrize(("is_warm", "seconds"), [(True, 5), (False, 10)])
def test_a_driver_without_heartbeats_is_replaced_sooner_where_a_standby_is_warm(is_warm: bool, seconds: int) -> None:
    beat = BatchProgress(epoch=ROW.epoch, version=ROW.version, done=0, at=LONG_AGO)
    scene = waiting(recorded(), ready=is_warm).seen(heartbeat=beat, **LAGGING)
    scene = replace(scene, observation=replace(scene.observation, heartbeat_asked=NOW))

    def silent(for_seconds: float) -> Decision:
        seen = NOW - timedelta(seconds=for_seconds)
        known = replace(COMMITTED, version=ROW.version, since=seen, heartbeat=LONG_AGO, heartbeat_at=seen)
        known = replace(known, heartbeat_asked=NOW - timedelta(seconds=1))
        return scene.said(committed=known, run=replace(RUN, resumed_from=LONG_AGO)).decide()

    assert silent(seconds - 0.1).reason == Reason.STREAMING
    assert silent(seconds).reason == Reason.HEARTBEAT_LOST
