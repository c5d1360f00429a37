"""Each rule of the policy, alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from fencepost_operator.api import AutoscaleSpec, AutoscaleStatus
from fencepost_operator.autoscaling.arrivals import ArrivalWindow
from fencepost_operator.autoscaling.policy import FEWER_AFTER, SETTLED, UNMEASURED_AFTER, Load, first, scaled, time_lag

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LIMITS = AutoscaleSpec(min_workers=1, max_workers=8, target_time_lag=30.0)
THREE = AutoscaleStatus(workers=3, since=NOW - timedelta(hours=1), records_per_second=100.0, measured="v1")


def load(seconds: float = 0.0, **changes: Any) -> Load:
    usual = changes.pop("usual", 250.0)
    quiet = Load(
        now=NOW + timedelta(seconds=seconds), lag=250, arriving=usual, usual=usual, time_lag=1.0, measured="v1"
    )
    return replace(quiet, **changes)


def test_a_new_pipeline_begins_with_the_least_and_one_that_runs_with_what_it_has() -> None:
    assert first(replace(LIMITS, min_workers=2), None, NOW).workers == 2
    assert first(LIMITS, 5, NOW).workers == 5
    assert first(LIMITS, 50, NOW).workers == 8


def test_while_the_lag_does_not_grow_nothing_changes() -> None:
    assert scaled(THREE, LIMITS, load()) is THREE


def test_a_burst_is_followed_at_once_and_says_why() -> None:
    found = scaled(THREE, LIMITS, load(usual=250.0, arriving=700.0, time_lag=10.0, lag=3000))
    assert (found.workers, found.since) == (8, NOW)
    assert "700 records/s arrive, and one worker does 100" in found.message


def test_workers_that_are_about_to_start_are_waited_for() -> None:
    begun = replace(THREE, since=NOW - timedelta(seconds=5))
    late = load(usual=310.0, time_lag=40.0, lag=12_400)
    assert scaled(begun, LIMITS, late).workers == 4, "as many as what arrives needs"
    assert scaled(THREE, LIMITS, late).workers == 7, "and later those that work off the backlog"


def test_fewer_workers_must_have_been_enough_for_minutes() -> None:
    status, least = THREE, timedelta(0)
    for second in range(0, 600, 5):
        status = scaled(status, LIMITS, load(second, usual=150.0))
        if status.workers < 3:
            least = timedelta(seconds=second)
            break
    assert (status.workers, least) == (2, FEWER_AFTER)
    assert status.fewer is None


def test_one_look_that_needs_all_begins_the_wait_for_fewer_again() -> None:
    waiting = scaled(THREE, LIMITS, load(usual=150.0))
    assert (waiting.fewer, waiting.fewer_since) == (2, NOW)
    again = scaled(waiting, LIMITS, load(200, usual=295.0))
    assert (again.workers, again.fewer, again.fewer_since) == (3, None, None)


def test_a_few_records_that_wait_for_long_need_no_worker() -> None:
    """A slow request of the operator, or of the driver, delays some records by more than a short target."""
    short = replace(LIMITS, target_time_lag=5.0)
    status, least = replace(THREE, workers=2), timedelta(0)
    for second in range(0, 600, 2):
        is_slow = second % 60 == 0
        waiting = load(second, usual=5.0, lag=30 if is_slow else 1, time_lag=6.0 if is_slow else 0.5)
        status = scaled(status, short, waiting)
        if status.workers < 2:
            least = timedelta(seconds=second)
            break
    assert (status.workers, least) == (1, FEWER_AFTER)
    assert status.limited_since is None


def test_a_backlog_that_fewer_workers_do_not_work_off_in_time_keeps_them() -> None:
    late = load(usual=150.0, lag=3600, time_lag=24.0)
    assert scaled(THREE, LIMITS, replace(late, lag=200)).fewer == 2
    assert scaled(THREE, LIMITS, late).fewer is None


def test_the_most_that_was_needed_meanwhile_stays() -> None:
    status = replace(THREE, workers=8)
    for second in range(0, 301, 5):
        usual = 420.0 if SETTLED.total_seconds() + 20 < second < 120 else 90.0
        status = scaled(status, LIMITS, load(second, usual=usual))
    assert status.workers == 5


def test_a_restart_of_the_operator_changes_nothing() -> None:
    """A new process has measured no arrivals yet."""
    for status in (THREE, replace(THREE, workers=8)):
        found = scaled(status, LIMITS, load(arriving=None, usual=None, time_lag=0.0, lag=10**9))
        assert (found.workers, found.since) == (status.workers, status.since)


def test_records_that_would_be_deleted_are_read_in_time() -> None:
    hours = replace(LIMITS, target_time_lag=12 * 3600.0)
    waiting = load(usual=100.0, lag=1_800_000, time_lag=18_000.0)
    assert scaled(THREE, hours, replace(waiting, time_to_loss=86_400.0)).workers == 3
    found = scaled(THREE, hours, replace(waiting, time_to_loss=7200.0))
    assert found.workers == 6
    assert "Kafka may delete unread records in 2 h" in found.message


def test_a_target_that_the_most_workers_miss_is_said() -> None:
    found = scaled(THREE, LIMITS, load(usual=2000.0, time_lag=60.0, lag=120_000))
    assert (found.workers, found.limited_since) == (8, NOW)
    assert scaled(found, LIMITS, load(30, usual=2000.0, time_lag=90.0, lag=120_000)).limited_since == NOW
    assert scaled(found, LIMITS, load(60, usual=500.0, time_lag=5.0)).limited_since is None


def test_the_rate_is_measured_again_with_another_spec() -> None:
    assert scaled(THREE, LIMITS, load(rate=200.0)).records_per_second == 120.0
    assert scaled(THREE, LIMITS, load(rate=200.0, measured="v2")).records_per_second == 200.0
    assert scaled(THREE, LIMITS, load(measured="v2")).records_per_second is None


def test_without_a_rate_workers_are_removed_one_by_one() -> None:
    status = replace(THREE, records_per_second=None)
    seen: dict[int, int] = {}
    for second in range(0, 3600, 5):
        status = scaled(status, LIMITS, load(second))
        seen.setdefault(status.workers, second)
    assert list(seen) == [3, 2, 1]
    assert seen[2] == UNMEASURED_AFTER.total_seconds()


def test_without_a_rate_workers_are_added_by_half() -> None:
    unknown = replace(THREE, workers=4, records_per_second=None)
    assert scaled(unknown, LIMITS, load(time_lag=25.0)).workers == 6


def test_workers_that_are_not_ready_are_waited_for_before_more_are_added() -> None:
    unknown = replace(THREE, workers=4, records_per_second=None)
    found = scaled(unknown, LIMITS, load(time_lag=35.0, lacking=True))
    assert (found.workers, found.limited_since) == (4, NOW)


def test_more_workers_than_there_are_tasks_are_of_no_use() -> None:
    found = scaled(THREE, LIMITS, load(usual=2000.0, time_lag=60.0, lag=120_000, most_useful=4))
    assert found.workers == 4
    assert scaled(replace(THREE, workers=8), replace(LIMITS, max_workers=5), load()).workers == 5


def test_the_time_lag_is_that_of_the_partition_that_is_furthest_behind() -> None:
    lags, rates = {"t/0": 1000, "t/1": 1000, "t/2": 1}, {"t/0": 100.0, "t/1": 20.0, "t/2": 0.0}
    assert time_lag(lags, rates, None) == 50.0
    assert time_lag(lags, rates, 35.0) == 35.0, "Kafka's own answer is never too low"
    assert time_lag({"t/0": 0}, rates, 0.0) == 0.0


def test_arrivals_are_measured_over_seconds_and_over_a_minute() -> None:
    window = ArrivalWindow()
    assert window.seen(0.0, {"t/0": 0}) is None
    found = [window.seen(float(second), {"t/0": 100 * second}) for second in range(2, 61, 2)]
    assert found[8] is None, "not before 20 s"
    last = window.seen(70.0, {"t/0": 7000 + 900, "t/1": 5})
    assert last is not None
    assert last.recent["t/0"] == 190.0
    assert last.usual["t/0"] == (7900 - 600) / 64
    assert last.usual.keys() == {"t/0"}, "a partition that is new has no rate yet"
