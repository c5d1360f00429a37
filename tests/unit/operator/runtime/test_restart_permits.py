"""Permits of planned restarts: a bound, an order, and an end for those who never come back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fencepost_operator.api import ObjectKey
from fencepost_operator.runtime.permits.restart import ASKS_AGAIN, RestartPermits

NOW, MINUTE = 1000.0, 60.0
"""Seconds of the monotonic clock."""
WALL = datetime(2026, 1, 1, tzinfo=UTC)
A, B, C, D = (ObjectKey("shop", name) for name in "abcd")


@pytest.fixture
def permits() -> RestartPermits:
    return RestartPermits(limit=2, timeout=10 * MINUTE)


def wall(at: float) -> datetime:
    """Return what a wall clock that never steps shows at a moment of the monotonic one."""
    return WALL + timedelta(seconds=at - NOW)


def take(permits: RestartPermits, key: ObjectKey, at: float = NOW) -> bool:
    """Ask as a pass over an outdated pipeline does, and restart or wait as answered."""
    may = permits.may_restart(key, at)
    permits.note(key, since=wall(at) if may else None, queued=not may, wall=wall(at), now=at)
    return may


def test_no_more_than_the_limit_restart_at_the_same_time(permits: RestartPermits) -> None:
    assert [take(permits, key) for key in (A, B, C, D)] == [True, True, False, False]
    assert (permits.in_progress(NOW), permits.queued(NOW)) == (2, 2)
    permits.note(A, since=None, queued=False, wall=WALL, now=NOW)
    assert [take(permits, key) for key in (D, C, D)] == [False, True, False], "the first one that waits comes first"


def test_whoever_restarts_keeps_its_permit(permits: RestartPermits) -> None:
    take(permits, A)
    take(permits, B)
    assert permits.may_restart(A, NOW + 9 * MINUTE)


def test_a_pipeline_that_does_not_come_up_loses_its_permit(permits: RestartPermits) -> None:
    take(permits, A)
    take(permits, B)
    later = NOW + 10 * MINUTE
    assert [take(permits, key, later) for key in (C, D)] == [True, True]


def test_a_pipeline_that_does_not_ask_again_loses_its_place(permits: RestartPermits) -> None:
    for key in (A, B, C):
        take(permits, key)
    permits.forget(A)
    later = NOW + ASKS_AGAIN + 1
    assert take(permits, D, later)


def test_zero_means_no_limit() -> None:
    permits = RestartPermits(limit=0, timeout=10 * MINUTE)
    assert all(take(permits, key) for key in (A, B, C, D))


def test_a_new_leader_continues_from_the_statuses_and_ignores_future_times(permits: RestartPermits) -> None:
    permits.begin({A: WALL - timedelta(minutes=1), B: WALL + timedelta(days=365)}, WALL, NOW)
    assert not take(permits, C)
    assert take(permits, C, NOW + 10 * MINUTE)


@pytest.mark.parametrize("hours", [2, -2])
def test_a_step_of_the_wall_clock_frees_no_permit_and_takes_no_place(permits: RestartPermits, hours: int) -> None:
    for key in (A, B, C):
        take(permits, key)
    later, ahead = NOW + MINUTE, timedelta(hours=hours)
    permits.note(A, since=WALL + ahead, queued=False, wall=wall(later) + ahead, now=later)
    assert (permits.in_progress(later), permits.queued(later)) == (2, 1)
    assert not permits.may_restart(D, later)
    assert permits.in_progress(NOW + 11 * MINUTE) == 0


def of(namespace: str, count: int) -> list[ObjectKey]:
    return [ObjectKey(namespace, f"{namespace}-{number}") for number in range(count)]


def test_namespaces_take_turns(permits: RestartPermits) -> None:
    many, few = of("many", 10), of("few", 2)
    assert [take(permits, key) for key in many] == [True, True] + [False] * 8
    assert [take(permits, key) for key in few] == [False, False], "it began to wait last"
    permits.note(many[0], since=None, queued=False, wall=WALL, now=NOW)
    assert [take(permits, key) for key in (*many[2:], few[1], few[0])] == [False] * 9 + [True]
    permits.note(few[0], since=None, queued=False, wall=WALL, now=NOW)
    assert not take(permits, many[2]), "half of the permits are its own"
    assert take(permits, few[1])
    permits.note(few[1], since=None, queued=False, wall=WALL, now=NOW)
    assert take(permits, many[2]), "no other pipeline waits"


@pytest.mark.parametrize("limit", range(1, 8))
def test_no_namespace_that_never_comes_up_holds_back_another(limit: int) -> None:
    """The pipelines of one began to wait first, and each keeps its permit until that expires."""
    permits = RestartPermits(limit=limit, timeout=10 * MINUTE)
    stuck, others = of("stuck", 100), [*of("one", 10), *of("two", 5)]
    began = {key: NOW for key in stuck if take(permits, key)}
    last = 200 if limit == 1 else 30
    for minute in range(1, last):
        now = NOW + minute * MINUTE
        for key in stuck:
            if key in began:
                permits.note(key, since=wall(began[key]), queued=False, wall=wall(now), now=now)
            elif take(permits, key, now):
                began[key] = now
        for key in tuple(others):
            if take(permits, key, now):
                permits.note(key, since=None, queued=False, wall=wall(now), now=now)  # it came up
                others.remove(key)
    assert not others
    assert len(began) < len(stuck)


@pytest.mark.parametrize("limit", range(1, 8))
def test_no_permit_is_idle_while_a_pipeline_waits(limit: int) -> None:
    permits = RestartPermits(limit=limit, timeout=10 * MINUTE)
    waiting, began = [*of("one", 50), *of("two", 50), *of("three", 1)], dict[ObjectKey, float]()
    for minute in range(25):
        now = NOW + minute * MINUTE
        for key in (*waiting, *waiting):
            if key not in began and permits.may_restart(key, now):
                began[key] = now
            since = wall(began[key]) if key in began else None
            permits.note(key, since=since, queued=key not in began, wall=wall(now), now=now)
        assert permits.in_progress(now) == limit
