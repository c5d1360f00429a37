"""Executors that end as fast as Spark launches them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost.driver.crash_loop import CrashLoop
from fencepost.driver.watchdogs import watch_log
from fencepost.errors import NoExecutors
from present import present

LINE = "12:00:00 INFO StandaloneAppClient$ClientEndpoint: Executor updated: app-2026/{} is now {}"
CRASH = "EXITED (Command exited with code 1)"


def ends(count: int, how: str = CRASH) -> list[str]:
    return [LINE.format(number, how) for number in range(count)]


def test_a_loop_ends_the_run_with_what_the_executors_ended_with() -> None:
    """724 launches in 195 s: an option that Java refuses."""
    clock = iter(float(second) for second in range(1000))
    loop = CrashLoop(2, now=lambda: next(clock) / 4)
    assert loop.see(ends(19)) is None
    found = present(loop.see(ends(1)))
    assert (found.reason, found.code) == ("ExecutorCrashLoop", 55)
    assert "20 executors ended within" in found.message
    assert found.message.endswith("the last one with: Command exited with code 1")


def test_executors_that_end_now_and_then_are_no_loop() -> None:
    seconds = iter(float(second) for second in range(0, 100_000, 10))
    loop = CrashLoop(1, now=lambda: next(seconds))
    for _ in range(100):
        assert loop.see(ends(1)) is None


@pytest.mark.parametrize(
    "how",
    [
        "RUNNING",
        "KILLED",
        "KILLED (Command exited with code 143)",
        "LOST (worker lost)",
        "FAILED (Worker shutting down)",
        "EXITED (Command exited with code 143)",
    ],
)
def test_an_executor_that_runs_or_was_removed_is_not_a_crash(how: str) -> None:
    assert CrashLoop(1, now=lambda: 0.0).see(ends(500, how)) is None


def test_the_watch_shows_every_line_and_ends_the_run_once() -> None:
    looks: Iterator[list[str]] = iter([["WARN a"], ends(10), ["WARN b"]])
    shown: list[str] = []
    failures: list[BaseException] = []
    loop = CrashLoop(1, now=lambda: 0.0)
    watch_log(lambda: next(looks), show=shown.extend, judge=loop.see, end=failures.append, sleep=lambda _: None)
    assert (len(shown), [type(error) for error in failures]) == (11, [NoExecutors])


def test_a_jvm_that_is_gone_ends_the_watch_alone() -> None:
    def gone() -> list[str]:
        raise ConnectionRefusedError

    failures: list[BaseException] = []
    watch_log(gone, show=lambda _: None, judge=lambda _: None, end=failures.append, sleep=lambda _: None)
    assert failures == []
