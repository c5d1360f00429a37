"""Every kind of status against every kind of observation: what must hold for each decision, whatever was seen."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.manifests import KEY, body
from fencepost.fence import FenceRow
from fencepost_operator.actions import (
    AddFinalizer,
    CreateFence,
    DeleteFence,
    Fence,
    InstallCluster,
    RemoveFinalizer,
    StartRun,
)
from fencepost_operator.api import (
    FINALIZER,
    ClusterStatus,
    CommittedStatus,
    FailureStatus,
    Pipeline,
    Policy,
    RunStatus,
    Spec,
    Status,
    read_pipeline,
    read_status,
    write_status,
)
from fencepost_operator.decision import Decision, decide
from fencepost_operator.desired.hashes import fingerprints
from fencepost_operator.observation import (
    DriverPod,
    Fact,
    Known,
    Nodes,
    Observation,
    Obstacle,
    PodTrouble,
    References,
    Release,
    ReleaseState,
    Run,
    Source,
    SparkCluster,
    Unknown,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
POLICY = Policy(cluster_uid="cluster-1")
MINE, THEIRS = "cluster-1/uid-1", "cluster-2/uid-9"

parsed = read_pipeline(body()).spec
assert isinstance(parsed, Spec)
PRINTS = fingerprints(parsed, {})

unknowns = st.builds(Unknown, obstacle=st.sampled_from(Obstacle), message=st.just("no answer"), remedy=st.just("wait"))
moments = st.sampled_from([NOW, NOW - timedelta(seconds=5), NOW - timedelta(seconds=70), NOW - timedelta(hours=1)])
maybe_moments = st.none() | moments
epochs = st.integers(0, 3)
hashes = st.sampled_from([PRINTS.run, "another"])
troubles = st.none() | st.builds(
    PodTrouble,
    pod=st.just("p"),
    reason=st.sampled_from(["ImagePullBackOff", "Unschedulable", "FailedCreate", "Odd"]),
    message=st.just("m"),
)


def facts(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(Known, values) | unknowns


@st.composite
def pods(draw: st.DrawFn, epoch: int) -> DriverPod:
    exit_code = draw(st.sampled_from([None, None, None, 0, 1, 50, 51, 52, 137]))
    return DriverPod(
        name=f"pod-{epoch}",
        uid=f"pod-uid-{epoch}",
        phase="Running" if exit_code is None else "Failed",
        node="node-1",
        node_uid="node-uid",
        node_ready=draw(st.sampled_from([True, False, None])),
        started_at=draw(maybe_moments),
        deleting_since=draw(maybe_moments),
        exit_code=exit_code,
        termination_reason=draw(st.sampled_from([None, "OOMKilled", "Error"])),
        finished_at=NOW if exit_code is not None else None,
        verdict=None,
        trouble=draw(troubles),
    )


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Run, ...]:
    found = draw(st.sets(st.integers(1, 3), max_size=3))
    return tuple(
        Run(
            name=f"orders-run-{epoch}",
            epoch=epoch,
            spec_hash=draw(hashes),
            cluster_generation=draw(st.integers(1, 2)),
            created_at=draw(moments),
            deleting=draw(st.booleans()),
            finished=draw(st.booleans()),
            pod=draw(st.none() | pods(epoch)),
            trouble=draw(troubles),
        )
        for epoch in sorted(found)
    )


@st.composite
def rows(draw: st.DrawFn) -> FenceRow:
    epoch = draw(epochs)
    return FenceRow(
        pipeline="default/shop/orders",
        owner=draw(st.sampled_from([MINE, MINE, MINE, "cluster-1/old", THEIRS])),
        epoch=epoch,
        driver=draw(st.sampled_from([None, f"pod-uid-{epoch}", "twin"])),
        version=draw(st.integers(0, 9)),
        offsets=draw(st.sampled_from([{}, {"orders/0": 5}, {"orders/0": 10}])),
        committed_at=draw(maybe_moments),
        duration_ms=draw(st.sampled_from([None, 200])),
    )


@st.composite
def statuses(draw: st.DrawFn) -> Status:
    epoch = draw(epochs)
    run = RunStatus(
        name=f"orders-run-{epoch}",
        epoch=epoch,
        spec_hash=draw(hashes),
        cluster_generation=draw(st.integers(1, 2)),
        recorded_at=NOW - timedelta(minutes=2),
        resumed_from=draw(maybe_moments),
        created_at=draw(maybe_moments),
        pod_name=f"pod-{epoch}",
        pod_uid=draw(st.sampled_from([None, f"pod-uid-{epoch}"])),
        node_name=draw(st.sampled_from([None, "node-1"])),
        node_uid="node-uid",
        started_at=draw(maybe_moments),
        claimed_at=draw(maybe_moments),
        stop_requested_at=draw(maybe_moments),
        ended_at=draw(maybe_moments),
        dead=draw(st.sampled_from([None, True, False])),
    )
    cluster = ClusterStatus(
        release="orders",
        generation=draw(st.integers(1, 2)),
        config_hash=draw(st.sampled_from([PRINTS.cluster, "another", ""])),
        requested_at=NOW,
        workers=draw(st.integers(0, 2)),
    )
    failure = FailureStatus(
        count=draw(st.integers(0, 3)),
        epoch=draw(st.sampled_from([epoch, max(0, epoch - 1)])),
        at=NOW - timedelta(seconds=3),
        reason=draw(st.sampled_from(["RunFailed", "BadSpec", "DataLoss"])),
        message="it failed",
        remedy="mend it",
        next_attempt_at=draw(st.sampled_from([None, NOW - timedelta(seconds=1), NOW + timedelta(seconds=9)])),
        spec_hash=draw(hashes),
    )
    committed = CommittedStatus(
        version=1, since=draw(maybe_moments), observable_since=draw(maybe_moments), offsets={"orders/0": 5}
    )
    return Status(
        epoch=draw(st.none() | epochs),
        run=draw(st.none() | st.just(run)),
        cluster=draw(st.none() | st.just(cluster)),
        failure=draw(st.none() | st.just(failure)),
        committed=draw(st.none() | st.just(committed)),
    )


clusters = st.builds(
    SparkCluster,
    generation=st.integers(1, 2),
    config_hash=st.sampled_from([PRINTS.cluster, "another"]),
    workers=st.integers(0, 2),
    ready_workers=st.integers(0, 2),
    master_ready=st.booleans(),
    troubles=st.builds(lambda trouble: (trouble,) if trouble else (), troubles),
)
releases = st.builds(Release, name=st.just("orders"), revision=st.just(1), state=st.sampled_from(ReleaseState))
sources = st.sampled_from(
    [
        Source(ends={"orders/0": 10}),
        Source(ends={"orders/0": 1_000_000}),
        Source(ends={}, missing_topics=("orders",)),
    ]
)
observations = st.builds(
    Observation,
    now=st.just(NOW),
    references=facts(st.just(References(hashes={}))),
    release=facts(st.none() | releases),
    cluster=facts(st.none() | clusters),
    runs=facts(jobs()),
    run_node=facts(
        st.sampled_from(
            [None, Nodes(name="node-1", uid="node-uid", ready=True), Nodes(name="node-1", uid=None, ready=False)]
        )
    ),
    fence=facts(st.none() | rows()),
    source=facts(sources),
)


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    changes = draw(
        st.sampled_from(
            [
                {},
                {"suspend": True},
                {"batchInterval": "soon"},
                {"deletionPolicy": "Delete"},
                {"restart": {"maxAttempts": 2}},
                {"cluster": {"workers": 2}},
            ]
        )
    )
    return replace(
        read_pipeline(body(**changes)),
        status=draw(statuses()),
        finalizers=draw(st.sampled_from([(FINALIZER,), (FINALIZER,), ()])),
        deleting_since=draw(st.sampled_from([None, None, NOW, NOW - timedelta(hours=1)])),
        annotations=draw(st.sampled_from([{}, {"streaming.fencepost.dev/adopt-fence": "true"}])),
    )


def known(fact: Fact[Any]) -> Any:
    assert isinstance(fact, Known)
    return fact.value


@settings(max_examples=600, deadline=None, derandomize=True)
@given(pipelines(), observations)
def test_every_decision_keeps_the_rules(pipeline: Pipeline, observation: Observation) -> None:
    decision = decide(pipeline, observation, POLICY)
    conditions_are_whole(decision)
    words_are_useful(decision)
    action_is_allowed(pipeline, observation, decision)
    record_comes_first(decision)
    status_survives_the_api_server(decision)


@settings(max_examples=250, deadline=None, derandomize=True)
@given(pipelines(), observations)
def test_a_world_that_stands_still_is_written_about_only_so_often(pipeline: Pipeline, observation: Observation) -> None:
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
    assert decision.again > 0
    if "Stalled" in {condition.type for condition in decision.status.conditions}:
        assert decision.status.message.endswith("."), "a stalled pipeline says what to do"


def action_is_allowed(pipeline: Pipeline, observation: Observation, decision: Decision) -> None:
    match decision.action:
        case StartRun(epoch=epoch, job=job):
            row, run = known(observation.fence), decision.status.run
            assert row.epoch == epoch > 0
            assert row.driver is None
            assert row.owner == MINE
            assert run is not None
            assert (run.epoch, run.name) == (epoch, job["metadata"]["name"])
            assert not [job for job in known(observation.runs) if job.epoch == epoch]
            assert pipeline.deleting_since is None
        case Fence(epoch=epoch, version=version):
            row, run = known(observation.fence), decision.status.run
            assert (row.epoch, row.version) == (epoch, version)
            assert run is None or run.created_at is None or run.ended_at is not None, "the run is not given up"
            assert isinstance(observation.runs, Known)
        case CreateFence():
            assert known(observation.fence) is None
            assert not pipeline.status.epoch
        case DeleteFence():
            row = known(observation.fence)
            assert row.owner.startswith("cluster-1/")
            assert pipeline.deleting_since is not None
            assert pipeline.deletion_policy == "Delete"
        case RemoveFinalizer():
            assert pipeline.deleting_since is not None
            assert known(observation.release) is None
        case InstallCluster(values=values):
            cluster = decision.status.cluster
            assert cluster is not None
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
        assert run is not None
        assert cluster is not None
        assert run.cluster_generation == cluster.generation


def status_survives_the_api_server(decision: Decision) -> None:
    assert read_status(write_status(decision.status)) == decision.status


def test_the_walk_is_about_this_pipeline() -> None:
    assert read_pipeline(body()).key == KEY
