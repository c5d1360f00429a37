"""Every phase of a pipeline against every kind of run, fence row, dependency and wish: each pair of them is decided.

`test_walk` draws details at random; here the kinds are multiplied out, so that no combination is left to chance.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Final

from fencepost.contract import Reason
from fencepost_operator.actions import (
    AcceptLoss,
    CreateFence,
    InstallCluster,
    ReleaseFence,
    RewindFence,
    StartPurge,
    StartRun,
    TakeOverFence,
)
from fencepost_operator.api import CONFIRM_DEAD_ANNOTATION, PAUSED_ANNOTATION, DeletionPolicy, State, Status
from fencepost_operator.decision.decision import Decision
from fencepost_operator.observation import ClusterObjects, LifeSigns, References, Unknown, UnknownReason, Watermarks
from generators.reference import ROOT
from unit.contract.test_guidance import given_reasons
from unit.operator.decision.test_walk import (
    action_is_allowed,
    conditions_are_whole,
    record_comes_first,
    status_survives_the_api_server,
    words_are_useful,
)
from unit.operator.scenes import (
    CLUSTER,
    COMMITTED,
    FAILED,
    JOB,
    LOST_WORKER,
    NOW,
    POD,
    ROW,
    RUN,
    SILENT,
    STRANDED_MASTER,
    TOO_LARGE,
    WELL,
    Scene,
)

Change = Callable[[Scene], Scene]

OVER: Final = replace(RUN, ended_at=NOW, dead=True)
LOST: Final = replace(RUN, ended_at=NOW, dead=False)
LATER: Final = NOW + timedelta(seconds=60)
REJECTED: Final = Unknown(reason=UnknownReason.REJECTED, message="no such table", remedy="create it")
QUEUED: Final = Unknown(reason=UnknownReason.BUSY, message="no turn", remedy="wait")
DENIED: Final = Unknown(reason=UnknownReason.DENIED, message="wrong password", remedy="correct the Secret")
DANGEROUS: Final = (
    StartRun | TakeOverFence | RewindFence | InstallCluster | CreateFence | ReleaseFence | AcceptLoss | StartPurge
)


def failed(reason: Reason, **more: object) -> Change:
    failure = replace(FAILED, reason=reason, next_attempt_at=NOW, **more)  # type: ignore[arg-type]
    return lambda scene: scene.said(run=OVER, failure=failure)


PHASES: Final[Mapping[str, Change]] = {
    "new": lambda scene: scene.with_pipeline(status=Status()),
    "provisioning": lambda scene: scene.said(run=None, epoch=0),
    "recorded": lambda scene: scene.said(run=replace(RUN, created_at=None, claimed_at=None, started_at=None)),
    "starting": lambda scene: scene.said(run=replace(RUN, claimed_at=None, started_at=NOW)),
    "starting for long": lambda scene: scene.said(run=replace(RUN, claimed_at=None)),
    "running": lambda scene: scene,
    "hanging": lambda scene: scene.said(committed=COMMITTED).seen(source=Watermarks(ends={"orders/0": 60})),
    "stopping": lambda scene: scene.said(run=replace(RUN, stop_requested_at=NOW)),
    "run over": lambda scene: scene.said(run=OVER),
    "run lost": lambda scene: scene.said(run=LOST),
    "backing off": lambda scene: scene.said(run=OVER, failure=replace(FAILED, next_attempt_at=LATER)),
    "may try again": failed(Reason.RUN_FAILED),
    "bad spec": failed(Reason.BAD_SPEC),
    "poison": failed(Reason.POISON_RECORD),
    "budget used up": failed(Reason.RUN_FAILED, count=20),
    "smallest batch too large": failed(Reason.OUT_OF_MEMORY, smallest=2),
    "lost records": failed(Reason.OFFSET_OUT_OF_RANGE),
}


def job(**pod: object) -> Change:
    changed = replace(POD, **pod)  # type: ignore[arg-type]
    return lambda scene: scene.seen(runs=(replace(JOB, finished=changed.exit_code is not None, pod=changed),))


RUNS: Final[Mapping[str, Change]] = {
    "unlisted": lambda scene: scene.seen(runs=SILENT),
    "none": lambda scene: scene.seen(runs=()),
    "without a pod": lambda scene: scene.seen(runs=(replace(JOB, pod=None),)),
    "refused": lambda scene: scene.seen(
        runs=(replace(JOB, pod=None, issue=replace(TOO_LARGE, reason="FailedCreate")),)
    ),
    "alive": job(),
    "alive, deleting": lambda scene: scene.seen(runs=(replace(JOB, deleting=True),)),
    "alive, orphaned": lambda scene: scene.seen(runs=(replace(JOB, deleting=True, orphaned=True),)),
    "on a lost node": job(node_ready=False, deleting_since=NOW - timedelta(minutes=5)),
    "failed": job(phase="Failed", exit_code=1),
    "stopped": job(phase="Succeeded", exit_code=0),
    "killed": job(phase="Failed", exit_code=137, termination_reason="OOMKilled"),
    "of another spec": lambda scene: scene.seen(runs=(replace(JOB, spec_hash="another"),)),
    "newer": lambda scene: scene.seen(runs=(replace(JOB, name="orders-run-3", epoch=3),)),
    "a second one, on a lost node": lambda scene: scene.seen(
        runs=(replace(JOB, created_at=NOW, pod=replace(POD, uid="pod-second", node_ready=False)),)
    ),
}
QUORUM: Final = {"cassandra": {"contactPoints": ["cassandra"], "consistency": "QUORUM"}}
FENCES: Final[Mapping[str, Change]] = {
    "held": lambda scene: scene,
    "held by a twin": lambda scene: scene.seen(fence=replace(ROW, driver="twin")),
    "free": lambda scene: scene.seen(fence=replace(ROW, driver=None)),
    "taken over": lambda scene: scene.seen(fence=replace(ROW, epoch=3, driver=None)),
    "claimed again": lambda scene: scene.seen(fence=replace(ROW, epoch=3, driver="pod-3")),
    "older": lambda scene: scene.seen(fence=replace(ROW, epoch=1)),
    "of another cluster": lambda scene: scene.seen(fence=replace(ROW, owner="cluster-2/uid-9")),
    "of another cluster, which lives": lambda scene: scene.asked(failover={}, checkpoint=QUORUM).seen(
        cluster=None,
        release=None,
        fence=replace(ROW, epoch=3, owner="cluster-2/uid-9"),
        other_cluster=LifeSigns(cluster="cluster-2", silent_for=5.0, has_moved=True),
    ),
    "of another cluster, which is lost": lambda scene: scene.asked(failover={}, checkpoint=QUORUM).seen(
        fence=replace(ROW, epoch=3, owner="cluster-2/uid-9"),
        other_cluster=LifeSigns(cluster="cluster-2", silent_for=30.0, has_moved=True),
    ),
    "gone": lambda scene: scene.seen(fence=None),
    "silent": lambda scene: scene.seen(fence=SILENT),
    "denied": lambda scene: scene.seen(fence=DENIED),
    "rejected": lambda scene: scene.seen(fence=REJECTED),
    "queued": lambda scene: scene.seen(fence=QUEUED),
}
WISHES: Final[Mapping[str, Change]] = {
    "another image": lambda scene: scene.asked(job={"image": "b", "entrypoint": "a:b"}),
    "more workers": lambda scene: scene.asked(cluster={"workers": 3}),
    "invalid": lambda scene: scene.asked(batchInterval="x"),
    "suspended": lambda scene: scene.asked(suspend=True),
    "waiting for proof": lambda scene: scene.asked(restart={"onUnprovenDeath": "wait"}),
    "confirmed dead": lambda scene: scene.asked(restart={"onUnprovenDeath": "wait"}).with_pipeline(
        annotations={CONFIRM_DEAD_ANNOTATION: RUN.name}
    ),
    "suspended, and its cluster gone": lambda scene: scene.asked(suspend=True).seen(cluster=None, release=None),
    "paused": lambda scene: scene.with_pipeline(annotations={PAUSED_ANNOTATION: "true"}),
    "deleted": lambda scene: scene.with_pipeline(deleting_since=NOW),
    "deleted with its offsets": lambda scene: scene.with_pipeline(
        deleting_since=NOW, deletion_policy=DeletionPolicy.DELETE
    ),
    "deleted, and its cluster gone": lambda scene: scene.with_pipeline(deleting_since=NOW).seen(release=None),
    "without a finalizer": lambda scene: scene.with_pipeline(finalizers=()),
}
DEPENDENCIES: Final[Mapping[str, Change]] = {
    "topic missing": lambda scene: scene.seen(source=Watermarks(ends={}, missing_topics=("orders",))),
    "Kafka silent": lambda scene: scene.seen(source=SILENT),
    "Kafka denies": lambda scene: scene.seen(source=DENIED),
    "Kafka rejects": lambda scene: scene.seen(source=REJECTED),
    "a backlog": lambda scene: scene.seen(source=Watermarks(ends={"orders/0": 10**6})),
    "references silent": lambda scene: scene.seen(references=SILENT),
    "a ConfigMap missing": lambda scene: scene.asked(
        job={"image": "a", "entrypoint": "a:b", "codeFrom": {"configMapName": "code"}}
    ).seen(references=References(hashes={"ConfigMap/code": None})),
    "a Secret missing": lambda scene: scene.asked(
        checkpoint={"cassandra": {"contactPoints": ["c"], "credentialsFrom": {"secretName": "account"}}}
    ).seen(references=References(hashes={"Secret/account": None})),
    "cluster unseen": lambda scene: scene.seen(cluster=SILENT),
    "no cluster": lambda scene: scene.seen(cluster=None, release=None),
    "master not ready": lambda scene: scene.seen(cluster=replace(CLUSTER, master_ready=False)),
    "master tied to a drained node": lambda scene: scene.seen(
        cluster=replace(CLUSTER, master_ready=False, issues=(STRANDED_MASTER,))
    ),
    "no worker fits": lambda scene: scene.seen(cluster=replace(CLUSTER, ready_workers=0, issues=(TOO_LARGE,))),
    "the worker's node lost": lambda scene: scene.seen(
        cluster=replace(CLUSTER, ready_workers=0, issues=(LOST_WORKER,))
    ),
    "a Service deleted": lambda scene: scene.seen(
        cluster_objects=ClusterObjects(damage=("Service orders-g1-master was deleted",))
    ),
    "rewinds unlisted": lambda scene: scene.seen(rewinds=SILENT),
}
UNREADABLE: Final = frozenset({"denied", "rejected", "queued"})
"""They take the way of "silent"."""
OURS: Final = frozenset({"held", "free", "taken over"})
"""With any other row, no rule asks for a dependency."""


def scenes() -> Iterator[tuple[str, Scene]]:
    """Yield each phase, run and fence with each wish, and with each dependency."""
    for phase, run, fence in itertools.product(PHASES, RUNS, FENCES):
        scene = FENCES[fence](RUNS[run](WELL))
        sides = {"all is well": scene}
        if fence not in UNREADABLE:
            sides |= {name: change(scene) for name, change in WISHES.items()}
        if fence in OURS:
            sides |= {name: change(scene) for name, change in DEPENDENCIES.items()}
        for side, changed in sides.items():
            yield f"{phase} | {run} | {fence} | {side}", PHASES[phase](changed)


def test_every_combination_is_decided_lawfully() -> None:
    states: set[State] = set()
    reasons: set[str] = set()
    for name, scene in scenes():
        try:
            decision = scene.decide()
            check(scene, decision)
        except Exception as error:
            error.add_note(f"in the scene: {name}")
            raise
        states.add(decision.status.state)
        reasons.update(condition.reason for condition in decision.status.conditions)
    assert {*State} - states <= {State.REWINDING}, "a phase is not reached"
    unreached = {Reason[name].value for name in reasons_of_rules()} - reasons
    assert unreached <= NEEDS_DETAILS, "a reason that a rule can give is not reached"


NEEDS_DETAILS: Final[set[str]] = {
    Reason.AUTOSCALED,
    Reason.HEARTBEAT_LOST,
    Reason.LOSS_ACCEPTED,
    Reason.PROGRESS_UNREADABLE,
    Reason.RESTART_QUEUED,
    Reason.ROLLED_BACK,
    Reason.TRYING,
}
"""Reasons of rules that need facts beyond the kinds above; each has tests of its own."""


def reasons_of_rules() -> set[str]:
    """Return the names of reasons that the preconditions and rules give."""
    folder = ROOT / "operator/src/fencepost_operator/decision/rules"
    return {name for module in folder.glob("*.py") for name in given_reasons(ast.parse(module.read_text()))}


def check(scene: Scene, decision: Decision) -> None:
    if decision.reason is Reason.PAUSED:
        left_alone(scene, decision)
        return
    conditions_are_whole(decision)
    words_are_useful(decision)
    action_is_allowed(scene.pipeline, scene.observation, decision)
    record_comes_first(decision)
    status_survives_the_api_server(decision)
    nothing_dangerous_while_stalled(scene, decision)


def nothing_dangerous_while_stalled(scene: Scene, decision: Decision) -> None:
    """A pipeline that waits for the user starts, fences and installs nothing, so that it never loops."""
    if decision.status.state is State.STALLED and not scene.pipeline.refused:
        assert not isinstance(decision.action, DANGEROUS)


def left_alone(scene: Scene, decision: Decision) -> None:
    """A paused pipeline gets a condition, and what threatens its records; nothing is done."""
    before, after = scene.pipeline.status, decision.status
    assert decision.action is None
    assert replace(after, conditions=(), data_risk=None) == replace(before, conditions=(), data_risk=None)
