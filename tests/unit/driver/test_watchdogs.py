"""What ends a run whose loop hangs: a fence that moved on, executors that never came or are gone."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from fakes.clock import Clock
from fencepost.batch import EMPTY
from fencepost.driver.loop import InProgress
from fencepost.driver.watchdogs import (
    AT_ONCE,
    COLLECT_INTERVAL,
    FIRST_EXECUTOR_LIMIT,
    beside,
    watch_executors,
    watch_fence,
    watch_files,
    watch_heartbeat,
    watch_life,
    watch_progress,
    watch_resources,
)
from fencepost.errors import DependencyDown, NoExecutors
from fencepost.fence import Fence, Fenced, FenceMissing, FenceRow, FenceUnavailable, Starting, heartbeat_key, open_to
from fencepost.fence.memory import MemoryFenceTable
from present import present

PIPELINE = "scope/ns/name"
ROW = FenceRow(pipeline=PIPELINE, owner="o", epoch=1, version=7)
LIMIT = 30.0
Ends = list[BaseException]
"""What ended the run."""


@dataclass
class Alarms(Clock):
    """A clock that calls `at` once it is that late."""

    at: dict[float, Callable[[], None]] = field(default_factory=dict)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.seconds > 10 * FIRST_EXECUTOR_LIMIT:
            raise AssertionError("nothing ended the watch")
        for moment in [moment for moment in self.at if moment <= self.seconds]:
            self.at.pop(moment)()


@pytest.fixture
def clock() -> Alarms:
    return Alarms()


@pytest.fixture
def ends() -> Ends:
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


def deleted(held: Held) -> None:
    held.table.rows.clear()


@pytest.mark.parametrize(
    ("driver", "fault", "error", "at"),
    [
        pytest.param("a", Held.take_over, Fenced, 65.0, id="replaced"),
        pytest.param("twin", None, Fenced, 5.0, id="a twin"),
        pytest.param("a", deleted, FenceMissing, 65.0, id="its row deleted"),
    ],
)
def test_a_driver_is_ended_at_the_next_look(
    held: Held, clock: Alarms, ends: Ends, driver: str, fault: Callable[[Held], None] | None, error: type, at: float
) -> None:
    if fault is not None:
        clock.at[61.0] = partial(fault, held)
    watch_fence(lambda: held.check(driver), end=ends.append, sleep=clock.sleep)
    assert ([type(each) for each in ends], clock.seconds) == ([error], at)


def test_a_fence_that_does_not_answer_does_not_end_the_driver(held: Held, clock: Alarms, ends: Ends) -> None:
    def down(_call: str) -> None:
        raise FenceUnavailable("down")

    def up() -> None:
        held.table.before = lambda _call: None
        held.take_over()

    held.table.before = down
    clock.at[200.0] = up
    watch_fence(held.check, end=ends.append, sleep=clock.sleep)
    assert [type(error) for error in ends] == [Fenced]
    assert clock.seconds == 200.0


def watch(counts: Iterator[int], clock: Alarms, ends: Ends) -> list[float]:
    """Watch executors whose counts are given look by look; return when the first was said to be there."""
    arrivals: list[float] = []
    arrived, now = lambda: arrivals.append(clock.seconds), clock.monotonic
    watch_executors(lambda: next(counts), arrived=arrived, end=ends.append, limit=LIMIT, now=now, sleep=clock.sleep)
    return arrivals


def forever(count: int) -> Iterator[int]:
    while True:
        yield count


def test_a_run_whose_executors_never_come_is_starved(clock: Alarms, ends: Ends) -> None:
    assert watch(forever(0), clock, ends) == []
    assert [type(error) for error in ends] == [NoExecutors]
    assert clock.seconds == pytest.approx(FIRST_EXECUTOR_LIMIT, abs=1.0)


def test_a_run_that_loses_its_executors_for_long_is_starved(clock: Alarms, ends: Ends) -> None:
    def counts() -> Iterator[int]:
        yield from [0, 0, 1, 2, 0, 0, 1]  # losing them for a moment is forgiven
        yield from forever(0)

    arrivals = watch(counts(), clock, ends)
    assert arrivals == [pytest.approx(0.3)]
    assert [type(error) for error in ends] == [NoExecutors]
    assert clock.seconds == pytest.approx(0.3 + 5 + LIMIT, abs=2.0)


def test_a_jvm_that_is_gone_ends_the_run_as_a_dependency(clock: Alarms, ends: Ends) -> None:
    def counts() -> Iterator[int]:
        yield 1
        raise ConnectionRefusedError("py4j")

    watch(counts(), clock, ends)
    assert [type(error) for error in ends] == [DependencyDown]
    assert "py4j" in str(ends[0])


class LongBatch:
    """A batch that began at second 0 on version 3 and whose work is reported second by second."""

    def __init__(self, clock: Alarms, done: Callable[[float], int]) -> None:
        self.clock = clock
        self._done = done
        row = FenceRow(pipeline=PIPELINE, owner="o", epoch=1, version=3)
        self.now: InProgress | None = InProgress(batch=EMPTY, row=row, since=0.0)
        self.reported: list[tuple[float, int, int]] = []

    def watch(self, *, until: float, fails_at: float | None = None) -> list[tuple[float, int, int]]:
        """Watch until that second and return (second, version, done) of each report."""

        class Over(BaseException):
            pass

        def sleep(seconds: float) -> None:
            self.clock.sleep(seconds)
            if self.clock.seconds > until:
                raise Over

        def report(batch: InProgress, done: int) -> None:
            if self.clock.seconds == fails_at:
                raise FenceUnavailable("down")
            self.reported.append((self.clock.seconds, batch.row.version, done))

        done, now = lambda: self._done(self.clock.seconds), self.clock.monotonic
        with pytest.raises(Over):
            watch_progress(lambda: self.now, done, report=report, now=now, sleep=sleep)
        return self.reported


@pytest.mark.parametrize(
    ("done", "until", "fails_at", "reported"),
    [
        pytest.param(lambda second: int(second) * 10, 16, None, [(5.0, 50), (10.0, 100), (15.0, 150)], id="long"),
        pytest.param(lambda second: min(int(second), 12), 60, None, [(5.0, 5), (10.0, 10), (15.0, 12)], id="hangs"),
        pytest.param(int, 16, 10.0, [(5.0, 5), (15.0, 15)], id="the next report makes up for one that fails"),
    ],
)
def test_a_batch_reports_its_progress_every_five_seconds(
    clock: Alarms, done: Callable[[float], int], until: float, fails_at: float | None, reported: list[tuple[float, int]]
) -> None:
    found = LongBatch(clock, done).watch(until=until, fails_at=fails_at)
    assert found == [(second, 3, work) for second, work in reported]


def test_short_batches_and_an_idle_loop_report_nothing(clock: Alarms) -> None:
    batch = LongBatch(clock, int)
    for second in range(1, 40):
        row = FenceRow(pipeline=PIPELINE, owner="o", epoch=1, version=second)
        started = InProgress(batch=EMPTY, row=row, since=float(second))
        clock.at[float(second)] = partial(setattr, batch, "now", started)
    clock.at[40.0] = lambda: setattr(batch, "now", None)
    assert batch.watch(until=100) == []


def test_a_loop_that_moves_gives_signs_of_life_and_one_that_hangs_gives_none(clock: Alarms) -> None:
    """Four signs fit into a stall timeout of 20 s; before the claim there is no row to give them for."""
    reported: list[tuple[float, int]] = []

    class Over(BaseException):
        pass

    def life() -> tuple[FenceRow, int] | None:
        second = int(clock.seconds)
        version, looks = 3 + (second >= 15), min(second, 25)
        return None if second < 10 else (FenceRow(pipeline=PIPELINE, owner="o", epoch=1, version=version), looks)

    def sign(row: FenceRow) -> None:
        reported.append((clock.seconds, row.version))
        if clock.seconds == 20.0:
            raise FenceUnavailable("down")

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if clock.seconds > 60:
            raise Over

    with pytest.raises(Over):
        watch_life(life, sign=sign, stall_timeout=20.0, sleep=sleep)
    assert reported == [(10.0, 3), (15.0, 4), (20.0, 4), (25.0, 4)]


def heartbeats(clock: Alarms, lives: Iterable[tuple[FenceRow, int] | None]) -> list[tuple[float, int]]:
    """When a driver gives heartbeats, and of which version, whose rows and looks are these, second by second."""
    given: list[tuple[float, int]] = []
    left = iter(lives)

    def life() -> tuple[FenceRow, int] | None:
        clock.seconds %= 10_000
        return next(left)

    def beat(held: FenceRow) -> None:
        given.append((clock.seconds, held.version))

    with pytest.raises(StopIteration):
        watch_heartbeat(life, beat=beat, interval=1.0, idle_interval=8.0, sleep=clock.sleep)
    return given


def pauses(given: list[tuple[float, int]]) -> set[float]:
    return {after - before for (before, _), (after, _) in itertools.pairwise(given)}


MOVED = replace(ROW, version=8)


def test_a_heartbeat_is_given_after_the_claim_and_where_the_row_stays_as_it_is(clock: Alarms) -> None:
    lives = [None, (ROW, 0), (ROW, 0), (MOVED, 0), (MOVED, 0)]
    assert heartbeats(clock, lives) == [(2.0, 7), (3.0, 7), (5.0, 8)]


def test_a_run_that_changes_its_row_each_second_has_a_heartbeat_now_and_then(clock: Alarms) -> None:
    """A report expires after an hour, and without one a driver that freezes then is not judged by its heartbeats."""
    assert pauses(heartbeats(clock, [(replace(ROW, version=version), 0) for version in range(1000)])) == {8.0}


@pytest.mark.parametrize("seconds", [1, 2])
def test_a_run_that_finds_nothing_to_read_has_few_heartbeats(clock: Alarms, seconds: int) -> None:
    """Kafka's answers may take longer than the interval between two heartbeats."""
    given = heartbeats(clock, [(ROW, number // seconds) for number in range(600)])
    assert pauses(given[1:]) == {8.0}
    assert 75 <= len(given) <= 76, "7.5 per minute"


def test_a_run_that_is_at_work_again_has_heartbeats_each_second_at_once(clock: Alarms) -> None:
    """It has planned a batch, or it hangs while it looks: its row says the former."""
    idle = [(ROW, number) for number in range(20)]
    planned, hangs = [(MOVED, 19)] * 20, [(ROW, 19)] * 20
    assert [at for at, _ in heartbeats(clock, idle + planned) if at > 20] == [*range(22, 41)]
    clock.seconds = 0.0
    assert [at for at, _ in heartbeats(clock, idle + hangs) if at > 20] == [*range(22, 41)]


def test_heartbeats_do_not_wait_for_one_that_gets_no_answer() -> None:
    """Injected: a node that does not answer, and one that refuses."""
    table = MemoryFenceTable()
    fence = Fence(table, PIPELINE, patience=0.0)
    held: list[Callable[[], None]] = []

    def act(row: FenceRow) -> None:
        if row.version == 99:
            raise FenceUnavailable("no answer")
        fence.beat(row)

    beat = beside(act, held.append)
    for version in range(50):
        beat(replace(ROW, version=version))
    assert len(held) == AT_ONCE, "more do not pile up"
    for run in held:
        run()
    beat(replace(ROW, version=99))
    held[-1]()
    assert table.read_progress(PIPELINE) is None, "the report of the batch stays"
    assert present(table.read_progress(heartbeat_key(PIPELINE))).version == AT_ONCE - 1
    table.forget(PIPELINE)
    assert not table.progress


def test_files_are_collected_soon_after_the_claim_and_then_at_intervals(clock: Alarms, ends: Ends) -> None:
    looks: list[float] = []

    def collect() -> bool:
        looks.append(clock.seconds)
        if len(looks) == 5:
            raise Fenced("replaced", seen=None)
        if len(looks) == 4:
            raise FenceUnavailable("no answer")
        return len(looks) >= 3

    watch_files(collect, end=ends.append, sleep=clock.sleep)
    assert looks == [10.0, 20.0, 30.0, 30.0 + COLLECT_INTERVAL, 30.0 + 2 * COLLECT_INTERVAL]
    assert [type(error) for error in ends] == [Fenced]


def test_resources_are_logged_until_the_jvm_is_gone(clock: Alarms, caplog: pytest.LogCaptureFixture) -> None:
    answers = [{"heap_mib": 100}, {"heap_mib": 120}]

    def measure() -> dict[str, int]:
        return answers.pop(0)

    with caplog.at_level("INFO", logger="fencepost.driver.watchdogs"):
        watch_resources(measure, sleep=clock.sleep)
    reported = [record.fields for record in caplog.records if record.message == "resources"]  # type: ignore[attr-defined]
    assert reported == [{"heap_mib": 100}, {"heap_mib": 120}]
    assert "cannot be read" in caplog.messages[-1]
