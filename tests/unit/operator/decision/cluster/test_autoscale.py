"""The number of workers follows the load: what the policy is given, when that counts, and what is reported."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fencepost.fence import FenceRow
from fencepost.fence.figures import Figure
from fencepost_operator.actions import InstallCluster, StopRun
from fencepost_operator.api import AutoscaleStatus, Condition, Reason, Spec, ThroughputStatus, condition_of
from fencepost_operator.autoscaling.arrivals import Arrivals
from fencepost_operator.decision.cluster.autoscale import LIMITED_AFTER
from fencepost_operator.decision.decision import Decision
from fencepost_operator.observation import Watermarks
from present import present
from unit.operator.scenes import (
    BURIED,
    CLUSTER,
    COMMITTED,
    LONG_AGO,
    NEW,
    NOW,
    RECORDED,
    ROW,
    RUN,
    SILENT,
    WELL,
    YOUNG,
    Scene,
)

LIMITS: dict[str, Any] = {"autoscale": {"maxWorkers": 8}}
TWO = AutoscaleStatus(workers=2, since=LONG_AGO, records_per_second=100.0, measured=RUN.spec_hash)


def with_workers(count: int, scene: Scene = WELL, *, cluster: dict[str, Any] = LIMITS) -> Scene:
    """Return a pipeline whose workers follow the load, and that has so many of them."""
    asked = scene.asked(cluster=cluster).said(cluster=replace(RECORDED, workers=count, ready_workers=count))
    return asked.seen(cluster=replace(CLUSTER, workers=count, ready_workers=count))


BUSY = with_workers(2).said(autoscale=TWO)


def loaded(
    scene: Scene = BUSY, *, usual: float = 150.0, recent: float | None = None, lag: int = 0, by_driver: bool = False
) -> Scene:
    """Return the scene with so many records per second in one partition, of which `lag` are not committed."""
    arrivals = Arrivals(recent={"orders/0": usual if recent is None else recent}, usual={"orders/0": usual})
    seen = scene.seen(source=Watermarks(ends={"orders/0": 50 + lag}, by_driver=by_driver))
    return replace(seen, observation=replace(seen.observation, arrivals=arrivals))


LATE = loaded(usual=250.0, lag=10_000)
"""Records wait for 40 s, 30 s are the target, and each second 50 more arrive than two workers do."""


def workers(decision: Decision) -> int:
    return present(decision.status.autoscale).workers


def of_backlog(**changes: Any) -> FenceRow:
    """Return the row between two batches of a backlog, of 100 records each, in a second on one core."""
    row = replace(ROW, version=10, records=100, duration_ms=1000, planned={"orders/0": 150})
    return replace(row, figures={Figure.LIMIT: 100, Figure.CORES: 1}, **changes)


def test_a_new_pipeline_begins_with_the_least() -> None:
    decision = NEW.asked(cluster={"autoscale": {"minWorkers": 2, "maxWorkers": 4}}).decide()
    assert isinstance(decision.action, InstallCluster)
    assert (decision.action.values["workers"], workers(decision)) == (2, 2)


def test_a_pipeline_that_runs_begins_with_what_it_has() -> None:
    decision = with_workers(3).decide()
    assert (decision.reason, decision.action, workers(decision)) == ("Streaming", None, 3)


def test_a_load_that_fits_changes_nothing() -> None:
    decision = loaded().decide()
    assert (decision.reason, decision.action, decision.status.autoscale) == ("Streaming", None, TWO)


def test_more_workers_are_recorded_and_installed_under_the_living_driver_and_the_pipeline_stays_ready() -> None:
    decision = LATE.decide()
    assert isinstance(decision.action, InstallCluster)
    assert decision.action.values["workers"] == workers(decision) == present(decision.status.cluster).workers == 6
    assert decision.action.values["generation"] == 1
    ready = present(condition_of(decision.status.conditions, "Ready"))
    assert (ready.status, ready.reason) == ("True", Reason.AUTOSCALED)
    assert [str(event.reason) for event in decision.events] == ["Autoscaled"]
    assert decision.events[0].message.startswith("Scaling from 2 to 6 workers: unread records wait for 40 s")


def test_an_event_comes_once() -> None:
    first = LATE.decide()
    again = LATE.with_pipeline(status=first.status).seen(cluster=replace(CLUSTER, workers=6, ready_workers=2)).decide()
    assert "Autoscaled" not in [str(event.reason) for event in again.events]
    assert workers(again) == 6


@pytest.mark.parametrize("fact", ["source", "fence"])
def test_what_is_unknown_changes_nothing(fact: str) -> None:
    assert workers(LATE.seen(**{fact: SILENT}).decide()) == 2


@pytest.mark.parametrize("fact", ["source", "fence"])
def test_other_limits_are_recorded_while_the_load_is_unknown(fact: str) -> None:
    raised = LATE.asked(cluster={"autoscale": {"minWorkers": 4, "maxWorkers": 8}}).seen(**{fact: SILENT})
    found = raised.decide().status.autoscale
    assert found is not None
    assert found.workers == 4


def test_an_operator_that_has_just_begun_changes_nothing() -> None:
    assert workers(replace(LATE, observation=replace(LATE.observation, arrivals=None)).decide()) == 2


@pytest.mark.parametrize("scene", [YOUNG, BURIED], ids=["starts", "is over"])
def test_while_no_run_works_nothing_but_the_limits_counts(scene: Scene) -> None:
    waiting = replace(TWO, fewer=1, fewer_since=LONG_AGO, limited_since=LONG_AGO)
    found = loaded(with_workers(2, scene).said(autoscale=waiting), usual=250.0, lag=10_000).decide()
    assert found.status.autoscale == TWO, "and what has lasted begins again"
    raised = loaded(with_workers(2, scene, cluster={"autoscale": {"minWorkers": 4, "maxWorkers": 8}}))
    assert workers(raised.said(autoscale=TWO).decide()) == 4


@pytest.mark.parametrize(("recorded", "allowed"), [(10**12, 8), (-1, 1)])
@pytest.mark.parametrize("fact", ["source", "nothing"])
def test_a_recorded_number_that_is_not_allowed_has_no_effect(recorded: int, allowed: int, fact: str) -> None:
    unknown = {"source": SILENT} if fact == "source" else {}
    decision = loaded(BUSY.said(autoscale=replace(TWO, workers=recorded))).seen(**unknown).decide()
    assert isinstance(decision.action, InstallCluster)
    assert decision.action.values["workers"] == allowed


def test_without_the_field_the_spec_says_the_number_and_the_status_nothing() -> None:
    decision = LATE.asked(cluster={"workers": 3}).decide()
    assert isinstance(decision.action, InstallCluster)
    assert (decision.action.values["workers"], decision.status.autoscale) == (3, None)
    assert decision.reason == "Scaled"


def test_a_batch_of_a_backlog_says_once_what_a_worker_does() -> None:
    unknown = BUSY.said(autoscale=replace(TWO, records_per_second=None))
    first = loaded(unknown).seen(fence=of_backlog()).decide()
    assert present(first.status.autoscale).records_per_second == 100.0
    seen = loaded(unknown.said(committed=replace(COMMITTED, version=10))).seen(fence=of_backlog()).decide()
    assert present(seen.status.autoscale).records_per_second is None
    two_cores = loaded(unknown.asked(cluster={**LIMITS, "worker": {"cores": 2, "memory": "2Gi"}}))
    run = replace(RUN, spec_hash="another")
    found = two_cores.said(run=run).seen(fence=of_backlog()).decide()
    assert present(found.status.autoscale).records_per_second == 200.0, "a worker has two cores"


@pytest.mark.parametrize("of_another", [{"epoch": 1}, {"committed_at": LONG_AGO}])
def test_a_batch_of_a_run_before_does_not_count(of_another: dict[str, Any]) -> None:
    unknown = BUSY.said(autoscale=replace(TWO, records_per_second=None), run=replace(RUN, resumed_from=LONG_AGO))
    found = loaded(unknown).seen(fence=of_backlog(**of_another)).decide()
    assert present(found.status.autoscale).records_per_second is None


def test_another_chart_leaves_the_rate_as_it_is() -> None:
    run = replace(RUN, spec_hash=f"{RUN.spec_hash}.chart")
    assert present(loaded(BUSY.said(run=run)).decide().status.autoscale).records_per_second == 100.0


def test_no_more_workers_are_added_than_there_are_partitions_where_each_stays_in_one_task() -> None:
    kafka = {"bootstrapServers": "kafka:9092", "topics": ["orders"], "splitPartitions": False}
    late = LATE.asked(cluster=LIMITS, source={"kafka": kafka})
    assert workers(late.seen(source=Watermarks(ends={"orders/0": 10_050, "orders/1": 0, "orders/2": 0})).decide()) == 3


def test_bursts_are_not_seen_where_the_driver_alone_asks_kafka() -> None:
    burst = {"usual": 150.0, "recent": 900.0, "lag": 1500}
    assert workers(loaded(**burst).decide()) > 2  # type: ignore[arg-type]
    assert workers(loaded(**burst, by_driver=True).decide()) == 2  # type: ignore[arg-type]


def limited(decision: Decision) -> Condition | None:
    return condition_of(decision.status.conditions, "ScalingLimited")


MOST = replace(TWO, workers=8, limited_since=NOW - LIMITED_AFTER)
FULL = loaded(with_workers(8).said(autoscale=MOST), usual=2000.0, lag=200_000)


def test_a_target_that_the_most_workers_miss_for_minutes_is_reported() -> None:
    decision = FULL.decide()
    found = present(limited(decision))
    assert (decision.reason, found.status, found.reason) == ("Streaming", "True", "ScalingLimited")
    assert "longer than targetTimeLag, 30 s, with 8 workers, which is maxWorkers" in found.message
    assert "Raise cluster.autoscale.maxWorkers" in found.message
    assert "ScalingLimited" in [str(event.reason) for event in decision.events]
    recent = replace(MOST, limited_since=NOW - LIMITED_AFTER + timedelta(seconds=1))
    assert limited(FULL.said(autoscale=recent).decide()) is None
    assert limited(loaded(FULL, usual=100.0).decide()) is None


def test_workers_that_do_not_get_ready_are_named_and_not_followed_by_more() -> None:
    waiting = FULL.seen(cluster=replace(CLUSTER, workers=8, ready_workers=3))
    unmeasured = LATE.said(autoscale=replace(TWO, records_per_second=None))
    assert workers(unmeasured.decide()) == 3
    lacking = unmeasured.seen(cluster=replace(CLUSTER, workers=2, ready_workers=1)).decide()
    assert (workers(lacking), present(lacking.status.autoscale).limited_since) == (2, NOW)
    message = present(limited(waiting.decide())).message
    assert "with 8 workers, of which 3 are ready" in message
    assert "quota" in message


def test_the_remedy_of_a_pipeline_that_falls_behind_is_not_kubectl_scale() -> None:
    figures = ThroughputStatus(since=NOW, records=5, records_per_second=10, lag=10**6, growing_seconds=360)
    found = present(condition_of(FULL.said(throughput=figures).decide().status.conditions, "FallingBehind"))
    assert "kubectl scale" not in found.message
    assert "maxWorkers" in found.message


NEW_CONFIG: dict[str, Any] = {"job": {"image": "registry.example/job:2", "entrypoint": "orders.job:transform"}}


@pytest.mark.parametrize(("recorded", "goes_ahead"), [(1, True), (4, False)])
def test_more_workers_go_ahead_of_a_queued_restart_and_fewer_wait_for_it(recorded: int, goes_ahead: bool) -> None:
    """The new number needs the new configuration, as the cluster would else be installed twice."""
    changed = loaded(with_workers(recorded).asked(cluster=LIMITS, **NEW_CONFIG).said(autoscale=TWO))
    queued = replace(changed, observation=replace(changed.observation, may_restart=False)).decide()
    assert isinstance(queued.action, StopRun) is goes_ahead
    assert (queued.reason == "RestartQueued") is not goes_ahead


@pytest.mark.parametrize(
    ("cluster", "field"),
    [
        ({"workers": 3, **LIMITS}, "spec.cluster.workers"),
        ({"workers": 0, **LIMITS}, "spec.cluster.workers"),
        ({"autoscale": {"minWorkers": 3, "maxWorkers": 2}}, "spec.cluster.autoscale.minWorkers"),
    ],
)
def test_a_spec_that_contradicts_itself_is_refused_by_the_field(cluster: dict[str, Any], field: str) -> None:
    found = WELL.asked(cluster=cluster).pipeline.spec
    assert not isinstance(found, Spec)
    assert [violation.field for violation in found] == [field]
