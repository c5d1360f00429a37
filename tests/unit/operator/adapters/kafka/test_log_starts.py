"""The speed of a log's start, between its jumps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from fencepost_operator.adapters.kafka.log_starts import LogStarts

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def watched(minutes: int, *, every: int, by: int, until: int | None = None) -> tuple[LogStarts, datetime]:
    """Watch a log every minute; its start jumps `by` offsets `every` so many minutes."""
    starts, now = LogStarts(), NOW
    for minute in range(minutes + 1):
        now = NOW + timedelta(minutes=minute)
        starts.saw({"t/0": by * (min(minute, until or minute) // every)}, now)
    return starts, now


def test_the_speed_is_that_between_jumps_and_not_that_since_the_first_look() -> None:
    starts, now = watched(65, every=30, by=1800)
    found = starts.trends(now)["t/0"]
    assert (found.offset, found.at, found.per_second) == (3600, NOW + timedelta(minutes=60), 1.0)


def test_one_jump_says_nothing() -> None:
    starts, now = watched(45, every=30, by=1800)
    assert starts.trends(now) == {}


def test_a_log_that_is_not_deleted_any_more_slows_down() -> None:
    starts, now = watched(60 + 60 + 30, every=30, by=1800, until=60)
    assert starts.trends(now)["t/0"].per_second == 1800 / (90 * 60)


def test_a_start_that_creeps_is_measured_over_minutes() -> None:
    starts = LogStarts()
    for second in range(3600):
        starts.saw({"t/0": second}, NOW + timedelta(seconds=second))
    found = starts.trends(NOW + timedelta(hours=1))["t/0"]
    assert 0.9 <= found.per_second <= 1.1


def test_another_log_begins_again() -> None:
    starts, now = watched(65, every=30, by=1800)
    starts.saw({"t/0": 0}, now)
    assert starts.trends(now) == {}


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(-(2**63), 2**63 - 1)), max_size=60))
def test_nonsense_gives_a_speed_that_is_a_number(looks: list[tuple[int, int]]) -> None:
    starts, now = LogStarts(), NOW
    for seconds, offset in looks:
        now += timedelta(seconds=seconds)
        starts.saw({"t/0": offset}, now)
        assert all(0 < found.per_second < float("inf") for found in starts.trends(now).values())
