"""How long a run may take, what it may wait for, and what the next one gets after one that was too slow."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fencepost_operator.api import FailureStatus, Reason
from fencepost_operator.observation import Watermarks
from present import present
from unit.operator.scenes import COMMITTED, FAILED, FENCED, NOW, REPLACED, ROW, RUN, SLOW, WELL, started, unclaimed_for

GREW = {"orders/0": 50, "orders/1": 9}


@pytest.mark.parametrize(
    ("barrier", "ends", "high", "reason"),
    [
        ({"orders/0": 60, "orders/1": 0}, GREW, {"orders/0": 60, "orders/1": 9}, "Streaming"),
        ({}, GREW, {"orders/0": 60, "orders/1": 9}, "Streaming"),  # a driver with nothing to read records no barrier
        ({"orders/0": 40}, GREW, {"orders/0": 60, "orders/1": 9}, "Streaming"),  # nor does it drop an older one
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
    "no leader, and its end was never seen": ({"offsets": BOTH_READ}, LEADERLESS, False),
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
    failure = present(claimed.seen(fence=replace(ROW, **row), source=source).decide().status.failure)
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
    assert again.said(failure=replace(REPLACED, reason=Reason.RUN_FAILED)).decide().reason == "Unresponsive"


def test_the_start_timeout_doubles_after_each_run_that_was_too_slow() -> None:
    """On an overloaded machine five drivers that started together were each replaced at 3 minutes, again and again."""
    assert start_timeout(None) == 180
    assert start_timeout(replace(REPLACED, reason=Reason.NEVER_CLAIMED)) == 360
    assert start_timeout(replace(REPLACED, repeats=3)) == 1440
    assert start_timeout(replace(REPLACED, reason=Reason.RUN_FAILED)) == 180


def start_timeout(failure: FailureStatus | None) -> int:
    """Return after how many seconds without a claim a run is replaced, after a failure."""
    return next(
        seconds for seconds in range(0, 3600, 20) if unclaimed_for(seconds, failure).decide().reason == "NeverClaimed"
    )


@pytest.mark.parametrize(
    ("before", "repeats"), [(Reason.NEVER_CLAIMED, 2), (Reason.UNRESPONSIVE, 2), (Reason.OUT_OF_MEMORY, 1)]
)
def test_runs_that_are_too_slow_at_different_points_count_together(before: Reason, repeats: int) -> None:
    longer = replace(COMMITTED, since=NOW - timedelta(seconds=1000))
    failure = present(SLOW.said(failure=replace(REPLACED, reason=before), committed=longer).decide().status.failure)
    assert (failure.reason, failure.repeats) == ("Unresponsive", repeats)


def test_failures_for_one_reason_are_counted_until_another_comes_between() -> None:
    failure = present(SLOW.said(failure=REPLACED, committed=COMMITTED).decide().status.failure)
    assert (failure.count, failure.repeats) == (2, 2)
    failure = present(SLOW.said(failure=replace(REPLACED, reason=Reason.RUN_FAILED)).decide().status.failure)
    assert (failure.count, failure.repeats) == (2, 1)


@pytest.mark.parametrize(
    ("reason", "repeats", "limit"),
    [
        (Reason.OUT_OF_MEMORY, 1, 500),
        (Reason.UNRESPONSIVE, 1, 500),
        (Reason.UNRESPONSIVE, 3, 500),  # the claims of the runs before have cut the planned batch already
        (Reason.OUT_OF_MEMORY, 40, 500),
        (Reason.RUN_FAILED, 1, None),
    ],
)
def test_a_batch_that_was_too_large_is_tried_again_at_half_its_size(
    reason: Reason, repeats: int, limit: int | None
) -> None:
    row = replace(ROW, epoch=3, driver=None, version=10, planned={"orders/0": 1050})
    failure = replace(
        FAILED, count=repeats, repeats=repeats, attempts=1, reason=reason, next_attempt_at=NOW, batch_records=1000
    )
    assert started(FENCED.said(failure=failure).seen(fence=row)).first_batch_limit == limit
    changed = replace(failure, spec_hash="old")
    assert started(FENCED.said(failure=changed).seen(fence=row)).first_batch_limit is None


def test_a_batch_that_stays_too_large_is_halved_once_per_run_down_to_one_record() -> None:
    """The limit used to be planned >> repeats of a batch that each claim had cut: 1000, 500, 125, 15, 1."""
    limits = []
    planned = 10
    for repeats in range(1, 6):
        failure = replace(
            FAILED,
            count=repeats,
            repeats=repeats,
            reason=Reason.OUT_OF_MEMORY,
            next_attempt_at=NOW,
            batch_records=planned,
        )
        row = replace(ROW, epoch=3, driver=None, version=10, planned={"orders/0": 50 + planned})
        planned = started(FENCED.said(failure=failure).seen(fence=row)).first_batch_limit or 0
        limits.append(planned)
    assert limits == [5, 2, 1, 1, 1]
