"""What counts as progress of a run, what its lag is, and what may not be read of both."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from fencepost.fence import BatchProgress
from fencepost_operator.api import Condition, State, ThroughputStatus
from fencepost_operator.decision.decision import Decision
from fencepost_operator.observation import Unknown, UnknownReason, Watermarks
from present import present
from unit.operator.scenes import COMMITTED, DENIED, NOW, POLICY, ROW, RUN, SILENT, SLOW, WELL


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


def test_the_next_look_is_not_later_than_the_moment_from_which_a_run_counts_as_stalled() -> None:
    since = NOW - timedelta(seconds=57)
    world = SLOW.said(committed=replace(COMMITTED, version=9, since=since)).decide()
    assert (world.reason, world.requeue_after) == ("Streaming", 3.0)
    assert WELL.decide().requeue_after == POLICY.resync_interval


@pytest.mark.parametrize(("resumed_from", "seconds"), [(ROW.committed_at, 30), (None, 20)])
def test_a_run_has_some_time_for_its_first_commit_however_short_the_timeout(
    resumed_from: datetime | None, seconds: int
) -> None:
    world = SLOW.asked(restart={"stallTimeout": "20s"}).said(run=replace(RUN, resumed_from=resumed_from))
    before, after = NOW - timedelta(seconds=seconds - 1), NOW - timedelta(seconds=seconds)
    assert world.said(committed=replace(COMMITTED, since=before)).decide().reason != "Unresponsive"
    assert world.said(committed=replace(COMMITTED, since=after)).decide().reason == "Unresponsive"


def test_a_slow_batch_that_makes_progress_is_not_unresponsive() -> None:
    assert SLOW.decide().reason == "Unresponsive"
    moving = SLOW.seen(progress=REPORT).decide()
    assert moving.reason == "Streaming"
    assert moving.status.committed is not None
    assert (moving.status.committed.done, moving.status.committed.done_at) == (7, NOW)


@pytest.mark.parametrize(
    "report", [replace(REPORT, version=8), replace(REPORT, epoch=1), replace(REPORT, done=0), None]
)
def test_a_report_without_news_of_this_batch_is_not_progress(report: BatchProgress | None) -> None:
    assert SLOW.seen(progress=report).decide().reason == "Unresponsive"


def test_progress_that_does_not_answer_fences_no_driver_and_restarts_the_timeout() -> None:
    decision = SLOW.seen(progress=SILENT).decide()
    assert decision.reason != "Unresponsive"
    assert present(decision.status.committed).observable_since is None
    answered = SLOW.with_pipeline(status=decision.status).seen(progress=REPORT).decide()
    assert present(answered.status.committed).observable_since == NOW


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
    found = present(unreadable(decision))
    assert (found.status, found.reason) == ("True", "ProgressUnreadable")
    assert "fence_progress cannot be read: wrong password" in found.message
    assert "twice" in found.message
    assert "rant the account SELECT" in found.message
    assert [str(event.reason) for event in decision.events] == ["ProgressUnreadable"]


def test_the_report_of_unreadable_progress_stays_until_progress_is_read() -> None:
    """Progress is read only while a batch is planned, so most observations say nothing about it."""
    first = WELL.seen(fence=IN_BATCH, progress=DENIED).decide()
    between = replace(ROW, planned=ROW.offsets)
    reporting = WELL.said(conditions=first.status.conditions).seen(fence=between)
    for later in (
        reporting,
        reporting.seen(fence=SILENT, progress=SILENT),
        reporting.seen(fence=DENIED, progress=DENIED),
        reporting.seen(fence=IN_BATCH, progress=SILENT),
        reporting.seen(fence=IN_BATCH, progress=DENIED),
        reporting.asked(batchInterval="x"),
    ):
        decision = later.decide()
        assert unreadable(decision) == unreadable(first)
        assert "ProgressUnreadable" not in [str(event.reason) for event in decision.events]
    assert unreadable(reporting.seen(fence=IN_BATCH, progress=REPORT).decide()) is None
    assert unreadable(reporting.seen(fence=IN_BATCH, progress=None).decide()) is None


@pytest.mark.parametrize("refused", [DENIED, replace(DENIED, reason=UnknownReason.REJECTED)])
def test_snapshots_that_may_not_be_read_are_reported_until_they_are_read(refused: Unknown) -> None:
    def reported(decision: Decision) -> Condition | None:
        return next((c for c in decision.status.conditions if c.type == "SnapshotsUnreadable"), None)

    decision = WELL.seen(snapshots=refused).decide()
    assert decision.reason == "Streaming"
    found = present(reported(decision))
    assert (found.status, found.reason) == ("True", "SnapshotsUnreadable")
    assert "GRANT SELECT, MODIFY ON fencepost.snapshots TO" in found.message
    assert "wrong password" in found.message
    assert [str(event.reason) for event in decision.events] == ["SnapshotsUnreadable"]
    reporting = WELL.said(conditions=decision.status.conditions)
    for later in (reporting, reporting.seen(snapshots=SILENT), reporting.seen(fence=DENIED, snapshots=DENIED)):
        assert reported(later.decide()) == found
        assert "SnapshotsUnreadable" not in [str(event.reason) for event in later.decide().events]
    assert reported(reporting.seen(snapshots=()).decide()) is None
    assert reported(WELL.seen(snapshots=SILENT).decide()) is None
    assert reported(WELL.seen(fence=DENIED, snapshots=DENIED).decide()) is None


def test_a_pipeline_that_falls_behind_says_so_and_continues() -> None:
    figures = ThroughputStatus(since=NOW, records=5, records_per_second=10, lag=10**6, growing_seconds=360)
    decision = WELL.said(throughput=figures).decide()
    assert decision.reason == "Streaming"
    found = next(c for c in decision.status.conditions if c.type == "FallingBehind")
    assert (found.status, found.reason) == ("True", "FallingBehind")
    assert "kubectl scale" in found.message
    assert "FallingBehind" in [str(event.reason) for event in decision.events]
    for others in (replace(figures, growing_seconds=60), replace(figures, growing_seconds=0)):
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


def test_an_open_transaction_is_reported_when_it_lasts() -> None:
    world = WELL.seen(source=Watermarks(ends={"orders/0": 50}, high_watermarks={"orders/0": 80}))
    fresh = world.decide().status
    assert [c.type for c in fresh.conditions] == ["Ready", "Streaming"]
    (seen,) = fresh.open_transactions
    old = replace(seen, since=NOW - timedelta(seconds=POLICY.transaction_timeout))
    decision = world.said(open_transactions=(old,)).decide()
    (found,) = (c for c in decision.status.conditions if c.type == "TransactionStalled")
    assert (found.status, found.reason) == ("True", "TransactionStalled")
    assert "orders/0@50" in found.message
    assert [str(event.reason) for event in decision.events] == ["TransactionStalled"]
    reporting = world.said(open_transactions=(old,), conditions=decision.status.conditions).decide()
    assert reporting.events == ()
    moved = replace(old, offset=40)
    assert world.said(open_transactions=(moved,)).decide().status.open_transactions == (seen,)
    assert WELL.said(open_transactions=(old,)).decide().status.open_transactions == ()
