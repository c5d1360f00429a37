"""Every kind of status against every kind of observation: what must hold for each decision, whatever was seen."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.manifests import KEY, body
from fencepost.contract import Acceptance, Loss, ReportedLoss, TopicChange, choice_problem
from fencepost.fence import FenceRow
from fencepost_operator.actions import (
    AcceptLoss,
    AddFinalizer,
    CreateFence,
    InstallCluster,
    ReleaseFence,
    RemoveFinalizer,
    StartRun,
    TakeOverFence,
)
from fencepost_operator.api import (
    ACCEPT_LOSS_ANNOTATION,
    FINALIZER,
    ClusterStatus,
    CommittedStatus,
    EventType,
    FailureStatus,
    Pipeline,
    Reason,
    RunStatus,
    Status,
    read_pipeline,
    read_status,
    write_status,
)
from fencepost_operator.decision.decide import decide
from fencepost_operator.decision.decision import Decision
from fencepost_operator.observation import (
    DriverPod,
    Fact,
    Known,
    NodeState,
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
from present import present
from unit.operator.scenes import NOW, POLICY, PRINTS

T = TypeVar("T")

MINE, THEIRS = "cluster-1/uid-1", "cluster-2/uid-9"

MOMENTS = (NOW, NOW - timedelta(seconds=5), NOW - timedelta(seconds=70), NOW - timedelta(hours=1))
POD_ISSUES = tuple(
    PodIssue(pod="p", reason=reason, message="m")
    for reason in ("ImagePullBackOff", "Unschedulable", "FailedCreate", "NodeLost", "Odd")
)
NODES = (NodeState(name="node-1", uid="node-uid", ready=True), NodeState(name="node-1", uid=None, ready=False))
CHANGES: tuple[dict[str, Any], ...] = (
    {"suspend": True},
    {"batchInterval": "soon"},
    {"deletionPolicy": "Delete"},
    {"restart": {"maxAttempts": 2}},
    {"cluster": {"workers": 2}},
    {"cluster": {"workers": 0}},
)
SOURCES = (
    Watermarks(ends={"orders/0": 1_000_000}),
    Watermarks(ends={"orders/0": 5}),
    Watermarks(ends={}, missing_topics=("orders",)),
)


LOST = (
    Loss(reason=Reason.OFFSET_OUT_OF_RANGE, ranges={"orders/0": (5, 9)}, topics={"orders": TopicChange("id", "id")}),
    Loss(
        reason=Reason.TOPIC_RECREATED,
        ranges={f"orders/{number}": (0, number) for number in range(1000)},
        topics={"orders": TopicChange("id", "new")},
    ),
)
ACCEPTANCES = tuple(
    f"{loss.id} by=kim{choice}" for loss in LOST for choice in ("", " continue=earliest", " continue=orders/0:3", " x")
)


class Dice:
    """Draws what is usual most of the time, so that walks get past the first rules, and now and then anything."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def any(self, *values: T) -> T:
        return self._draw(st.sampled_from(values))

    def often(self, usual: T, *odd: T) -> T:
        return self.any(*([usual] * 3 * len(odd)), *odd)

    def seldom(self, usual: T, *odd: T) -> T:
        return self.any(*([usual] * 12 * len(odd)), *odd)

    def fact(self, value: T) -> Fact[T]:
        return (
            Known(value)
            if self.seldom(True, False)
            else Unknown(reason=self.any(*UnknownReason), message="no answer", remedy="wait")
        )

    def moment(self) -> datetime:
        return self.any(*MOMENTS)


def a_pod(dice: Dice, epoch: int) -> DriverPod:
    code = dice.often(None, 0, 1, 50, 51, 52, 137)
    return DriverPod(
        name=f"pod-{epoch}",
        uid=f"pod-uid-{epoch}",
        phase="Running" if code is None else "Failed",
        node="node-1",
        node_uid="node-uid",
        node_ready=dice.often(True, False, None),
        started_at=dice.often(dice.moment(), None),
        deleting_since=dice.often(None, dice.moment()),
        exit_code=code,
        termination_reason=dice.any(None, "OOMKilled", "Error"),
        finished_at=NOW if code is not None else None,
        verdict=None,
        issue=dice.often(None, *POD_ISSUES),
    )


def a_job(dice: Dice, epoch: int) -> Run:
    return Run(
        name=f"orders-run-{epoch}",
        epoch=epoch,
        spec_hash=dice.often(PRINTS.run, "another"),
        cluster_generation=dice.any(1, 2),
        created_at=dice.moment(),
        deleting=dice.often(False, True),
        finished=dice.often(False, True),
        pod=a_pod(dice, epoch) if dice.often(True, False) else None,
        issue=dice.seldom(None, *POD_ISSUES),
        orphaned=dice.seldom(False, True),
    )


def a_run(dice: Dice, epoch: int) -> RunStatus:
    ended = dice.often(None, dice.moment())
    return RunStatus(
        name=f"orders-run-{epoch}",
        epoch=epoch,
        spec_hash=dice.often(PRINTS.run, "another"),
        cluster_generation=dice.often(1, 2),
        recorded_at=NOW - timedelta(minutes=2),
        resumed_from=dice.any(None, dice.moment()),
        created_at=dice.often(dice.moment(), None),
        pod_name=f"pod-{epoch}",
        pod_uid=dice.often(f"pod-uid-{epoch}", None),
        node_name=dice.often("node-1", None),
        node_uid="node-uid",
        started_at=dice.often(dice.moment(), None),
        claimed_at=dice.often(dice.moment(), None),
        stop_requested_at=dice.often(None, dice.moment()),
        ended_at=ended,
        dead=dice.any(True, False) if ended else None,
    )


def a_failure(dice: Dice, epoch: int) -> FailureStatus:
    return FailureStatus(
        count=dice.any(0, 1, 2, 3),
        epoch=dice.often(epoch, max(0, epoch - 1)),
        at=NOW - timedelta(seconds=3),
        reason=dice.often(
            Reason.RUN_FAILED, Reason.BAD_SPEC, Reason.DATA_LOSS, Reason.OFFSET_OUT_OF_RANGE, Reason.TOPIC_RECREATED
        ),
        loss=dice.any("", *(loss.id for loss in LOST)),
        message="it failed",
        remedy="fix it",
        next_attempt_at=dice.any(None, NOW - timedelta(seconds=1), NOW + timedelta(seconds=9)),
        spec_hash=dice.often(PRINTS.run, "another"),
    )


def a_loss(dice: Dice) -> ReportedLoss:
    acceptance = Acceptance(by="kim", choice=dice.any("", "earliest"), at=dice.moment())
    return ReportedLoss(
        loss=dice.any(*LOST), epoch=dice.any(1, 2, 3), at=dice.moment(), acceptance=dice.any(None, acceptance)
    )


def a_row(dice: Dice, epoch: int) -> FenceRow:
    return FenceRow(
        pipeline="default/shop/orders",
        owner=dice.seldom(MINE, "cluster-1/old", THEIRS),
        epoch=epoch,
        driver=dice.any(None, f"pod-uid-{epoch}", f"pod-uid-{epoch}", "twin"),
        version=dice.any(1, 5),
        offsets=dice.any({}, {"orders/0": 5}),
        committed_at=dice.any(None, dice.moment()),
        duration_ms=dice.any(None, 200),
    )


def a_cluster(dice: Dice) -> SparkCluster:
    return SparkCluster(
        generation=dice.often(1, 2),
        config_hash=dice.seldom(PRINTS.cluster, "another"),
        workers=dice.often(1, 0, 2),
        ready_workers=dice.any(0, 1),
        master_ready=dice.often(True, False),
        master_runs=dice.often(True, False),
        issues=dice.often((), POD_ISSUES[:1], POD_ISSUES[3:4]),
    )


def a_status(dice: Dice, epoch: int) -> Status:
    cluster = ClusterStatus(
        release="orders",
        generation=dice.often(1, 2),
        config_hash=dice.seldom(PRINTS.cluster, "another", ""),
        requested_at=NOW,
        workers=dice.often(1, 0, 2),
    )
    committed = CommittedStatus(
        version=1,
        since=dice.any(None, dice.moment()),
        observable_since=dice.often(NOW - timedelta(hours=1), None, dice.moment()),
        offsets={"orders/0": 5},
    )
    return Status(
        epoch=dice.often(epoch, None),
        run=a_run(dice, epoch) if epoch and dice.seldom(True, False) else None,
        cluster=cluster if dice.seldom(True, False) else None,
        failure=a_failure(dice, epoch) if dice.any(True, False) else None,
        committed=committed if dice.seldom(True, False) else None,
    )


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Pipeline, Observation]:
    dice = Dice(draw)
    epoch = dice.any(0, 1, 2, 3)
    in_row = dice.often(epoch, epoch + 1, max(0, epoch - 1))
    with_jobs = [at for at in (1, 2, 3) if (dice.often(True, False) if at == epoch else dice.seldom(False, True))]
    release = dice.seldom(ReleaseState.DEPLOYED, *ReleaseState)
    observation = Observation(
        now=NOW,
        references=dice.fact(References(hashes={})),
        release=dice.fact(dice.seldom(release, None)),
        cluster=dice.fact(a_cluster(dice) if dice.seldom(True, False) else None),
        runs=dice.fact(tuple(a_job(dice, at) for at in with_jobs)),
        run_node=dice.fact(dice.any(*NODES)),
        fence=dice.fact(a_row(dice, in_row) if dice.seldom(True, False) else None),
        source=dice.fact(dice.any(*SOURCES)),
        loss=dice.fact(a_loss(dice) if dice.often(False, True) else None),
    )
    pipeline = replace(
        read_pipeline(body(**dice.often({}, *CHANGES))),
        status=a_status(dice, epoch),
        finalizers=dice.seldom((FINALIZER,), ()),
        deleting_since=dice.seldom(None, NOW, NOW - timedelta(hours=1)),
        annotations={
            **dice.seldom({}, {"streaming.fencepost.dev/adopt-fence": f"cluster-2@{in_row}"}),
            **dice.any({}, *({ACCEPT_LOSS_ANNOTATION: text} for text in ACCEPTANCES)),
        },
    )
    return pipeline, replace(observation, deletion_measured_since=pipeline.deleting_since)


def known(fact: Fact[Any] | NotAsked) -> Any:
    assert isinstance(fact, Known)
    return fact.value


def unknown(observation: Observation) -> list[str]:
    """Return which facts that a start needs are not known."""
    names = ("references", "release", "cluster", "runs", "fence", "source", "rewinds")
    return [name for name in names if isinstance(getattr(observation, name), Unknown)]


@settings(max_examples=400, deadline=None, derandomize=True)
@given(scenes())
def test_every_decision_keeps_the_rules(scene: tuple[Pipeline, Observation]) -> None:
    pipeline, observation = scene
    decision = decide(pipeline, observation, POLICY)
    conditions_are_whole(decision)
    words_are_useful(decision)
    action_is_allowed(pipeline, observation, decision)
    record_comes_first(decision)
    status_survives_the_api_server(decision)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(scenes())
def test_a_world_that_stands_still_is_written_about_only_so_often(scene: tuple[Pipeline, Observation]) -> None:
    pipeline, observation = scene
    for _ in range(4):
        pipeline = replace(pipeline, status=decide(pipeline, observation, POLICY).status)
    decision = decide(pipeline, observation, POLICY)
    assert decision.status == pipeline.status
    assert decision.events == ()


def conditions_are_whole(decision: Decision) -> None:
    kinds = [condition.type for condition in decision.status.conditions]
    assert kinds.count("Ready") == 1
    assert kinds.count("Streaming") == 1
    assert not {"Stalled", "Reconciling"} <= set(kinds)
    ready = next(c for c in decision.status.conditions if c.type == "Ready")
    assert (ready.status == "True") != ({"Stalled", "Reconciling"} & set(kinds) != set())
    assert ready.reason == decision.reason


def words_are_useful(decision: Decision) -> None:
    assert decision.status.message
    assert decision.requeue_after > 0
    if "Stalled" in {condition.type for condition in decision.status.conditions}:
        assert decision.status.message.endswith("."), "a stalled pipeline says what to do"
    for event in decision.events:
        assert event.type is not EventType.WARNING or event.message.endswith("."), "a warning says what to do"


def start_is_allowed(pipeline: Pipeline, observation: Observation, decision: Decision, start: StartRun) -> None:
    row, run = known(observation.fence), decision.status.run
    assert row.epoch == start.epoch > 0
    assert row.driver is None
    assert row.owner == MINE
    assert run is not None
    assert (run.epoch, run.name) == (start.epoch, start.job["metadata"]["name"])
    assert not [job for job in known(observation.runs) if job.epoch == start.epoch]
    assert pipeline.deleting_since is None
    assert not unknown(observation), "never a start on what is not known"


def action_is_allowed(pipeline: Pipeline, observation: Observation, decision: Decision) -> None:
    match decision.action:
        case StartRun() as start:
            start_is_allowed(pipeline, observation, decision, start)
        case AcceptLoss(loss=loss, by=by, choice=choice):
            report = known(observation.loss)
            assert report.loss.id == loss
            assert not choice_problem(report.loss, choice)
            assert pipeline.annotations[ACCEPT_LOSS_ANNOTATION].startswith(f"{loss} by={by}")
            assert report.acceptance is None or (report.acceptance.by, report.acceptance.choice) != (by, choice)
        case TakeOverFence(epoch=epoch, version=version):
            row, run = known(observation.fence), decision.status.run
            assert row.epoch == epoch
            is_lost = not row.owner.startswith(
                "cluster-1/"
            )  # the row is another cluster's, which gives no signs of life
            by_version = is_lost or decision.reason in {"Unresponsive", "NeverClaimed", "PodLost"}
            assert version == (row.version if by_version else None)
            assert run is None or run.created_at is None or run.ended_at is not None, "the run is not given up"
            assert isinstance(observation.runs, Known)
        case CreateFence():
            assert known(observation.fence) is None
            assert not pipeline.status.epoch
        case ReleaseFence():
            row = known(observation.fence)
            assert row.owner.startswith("cluster-1/")
            assert pipeline.deleting_since is not None
            assert pipeline.deletion_policy == "Delete"
        case RemoveFinalizer():
            assert pipeline.deleting_since is not None
            assert known(observation.release) is None
        case InstallCluster(values=values):
            cluster = present(decision.status.cluster)
            assert (cluster.generation, cluster.workers) == (values["generation"], values["workers"])
            run = decision.status.run
            if run is not None and run.created_at is not None and run.ended_at is None:
                before = pipeline.status.cluster
                assert before is None or cluster.generation == before.generation, "a living run keeps its cluster"
        case AddFinalizer():
            assert not pipeline.has_finalizer
        case _:
            pass


def record_comes_first(decision: Decision) -> None:
    """What an action makes is named by the status that is written before it."""
    if isinstance(decision.action, StartRun):
        run, cluster = decision.status.run, decision.status.cluster
        assert cluster is not None
        assert present(run).cluster_generation == cluster.generation


def status_survives_the_api_server(decision: Decision) -> None:
    assert read_status(write_status(decision.status)) == decision.status


def test_the_walk_is_about_this_pipeline() -> None:
    assert read_pipeline(body()).key == KEY
