"""What ends a run whose loop hangs: a fence that moved on, executors that never came or are gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from fencepost.driver.watches import EXECUTOR_LIMIT, watch_executors, watch_fence
from fencepost.errors import DependencyDown, NoExecutors
from fencepost.fence import Fence, Fenced, FenceMissing, FenceUnavailable, Starting, open_to
from fencepost.fence.memory import MemoryFenceTable

PIPELINE = "scope/ns/name"


class Clock:
    """Time that passes by sleeping alone, and calls `at` once it is that late."""

    def __init__(self) -> None:
        self.now = 0.0
        self.at: dict[float, Callable[[], None]] = {}

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now > 10 * EXECUTOR_LIMIT:
            raise AssertionError("nothing ended the watch")
        for moment in [moment for moment in self.at if moment <= self.now]:
            self.at.pop(moment)()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ends() -> list[BaseException]:
    return []


class Held:
    """A fence whose epoch 1 is claimed by driver 'a'."""

    def __init__(self) -> None:
        self.table = MemoryFenceTable()
        self.fence = Fence(self.table, PIPELINE, sleep=lambda _: None)
        self.row = self.fence.take_over(self.fence.create("owner"), owner="owner")
        self.row = self.fence.claim(
            epoch=1, driver="a", code="c", start=lambda _: Starting(offsets={}, planned={}, topic_ids={})
        )

    def check(self, driver: str = "a") -> None:
        open_to(self.table.read(PIPELINE), PIPELINE, epoch=1, driver=driver)

    def take_over(self) -> None:
        self.fence.take_over(self.row, owner="owner")


@pytest.fixture
def held() -> Held:
    return Held()


def test_a_driver_that_was_replaced_is_ended_within_a_look(held: Held, clock: Clock, ends: list[BaseException]) -> None:
    clock.at[61.0] = held.take_over
    watch_fence(held.check, end=ends.append, sleep=clock.sleep)
    assert [type(error) for error in ends] == [Fenced]
    assert clock.now == 65.0


def test_a_twin_is_ended_at_the_first_look(held: Held, clock: Clock, ends: list[BaseException]) -> None:
    watch_fence(lambda: held.check("twin"), end=ends.append, sleep=clock.sleep)
    assert [type(error) for error in ends] == [Fenced]
    assert clock.now == 5.0


def test_a_row_that_is_deleted_ends_the_run(held: Held, clock: Clock, ends: list[BaseException]) -> None:
    clock.at[7.0] = held.table.rows.clear
    watch_fence(held.check, end=ends.append, sleep=clock.sleep)
    assert [type(error) for error in ends] == [FenceMissing]


def test_a_fence_that_does_not_answer_is_no_reason_to_end(held: Held, clock: Clock, ends: list[BaseException]) -> None:
    def down(_call: str) -> None:
        raise FenceUnavailable("down")

    def up() -> None:
        held.table.before = lambda _call: None
        held.take_over()

    held.table.before = down
    clock.at[200.0] = up
    watch_fence(held.check, end=ends.append, sleep=clock.sleep)
    assert [type(error) for error in ends] == [Fenced]
    assert clock.now == 200.0


def watch(counts: Iterator[int], clock: Clock, ends: list[BaseException]) -> list[float]:
    """Watch executors whose counts are given look by look; return when the first was said to be there."""
    arrivals: list[float] = []
    watch_executors(
        lambda: next(counts),
        arrived=lambda: arrivals.append(clock.now),
        end=ends.append,
        now=lambda: clock.now,
        sleep=clock.sleep,
    )
    return arrivals


def forever(count: int) -> Iterator[int]:
    while True:
        yield count


def test_a_run_whose_executors_never_come_is_starved(clock: Clock, ends: list[BaseException]) -> None:
    assert watch(forever(0), clock, ends) == []
    assert [type(error) for error in ends] == [NoExecutors]
    assert clock.now == pytest.approx(EXECUTOR_LIMIT, abs=1.0)


def test_a_run_that_loses_its_executors_for_long_is_starved(clock: Clock, ends: list[BaseException]) -> None:
    def counts() -> Iterator[int]:
        yield from [0, 0, 1, 2, 0, 0, 1]  # losing them for a moment is forgiven
        yield from forever(0)

    arrivals = watch(counts(), clock, ends)
    assert arrivals == [pytest.approx(0.6)]
    assert [type(error) for error in ends] == [NoExecutors]
    assert clock.now == pytest.approx(0.6 + 5 + EXECUTOR_LIMIT, abs=2.0)


def test_a_jvm_that_is_gone_ends_the_run_as_a_dependency(clock: Clock, ends: list[BaseException]) -> None:
    def counts() -> Iterator[int]:
        yield 1
        raise ConnectionRefusedError("py4j")

    watch(counts(), clock, ends)
    assert [type(error) for error in ends] == [DependencyDown]
    assert "py4j" in str(ends[0])
