"""Faults are drawn by the seed, one at a time on a target, and counted by how they ended."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from harness.faults.schedule import Draw, NoTargetError, Pace, Schedule

NO_PAUSE = Pace(between=(0.0, 0.0))


def schedule(draw: Callable[[random.Random], Draw], *, seed: int = 1) -> tuple[Schedule, list[str]]:
    reports: list[str] = []
    made = Schedule(
        draw=draw,
        chance=random.Random(seed),
        pace=NO_PAUSE,
        report=reports.append,
        misses=(NoTargetError, ZeroDivisionError),
    )
    return made, reports


def fault(act: Callable[[], None], kind: str = "kill", target: str = "driver") -> Draw:
    return Draw(kind=kind, target=target, label=f"{kind} of {target}", act=act)


def waited(event: threading.Event) -> None:
    assert event.wait(60)


def test_a_seed_draws_the_same_faults_again() -> None:
    """What is drawn depends on the seed alone, whatever the faults do."""

    def drawn(seed: int) -> list[str]:
        kinds: list[str] = []

        def draw(chance: random.Random) -> Draw:
            kinds.append(chance.choice("abcdefgh"))
            return fault(lambda: None, kinds[-1], f"target {len(kinds)}")

        made, _ = schedule(draw, seed=seed)
        made.inject(until=lambda: len(kinds) == 40)
        return kinds

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


def test_two_faults_at_once_have_different_targets() -> None:
    """A target that has a fault gets no second one, and another target does."""
    held = threading.Event()
    targets = iter(["driver", "driver", "driver", "worker"])
    made, reports = schedule(lambda _: fault(lambda: waited(held), target=next(targets)))

    def both() -> bool:
        if len(reports) == 2:
            held.set()
        return held.is_set()

    made.inject(until=both)
    assert reports == ["fault: kill of driver", "fault: kill of worker"]
    assert made.injected == {"kill": 2}


def test_a_target_is_free_again_after_its_fault() -> None:
    """Also after a fault that missed."""
    made, _ = schedule(lambda _: fault(lambda: None))
    made.inject(until=lambda: False, count=3)
    assert made.injected.total() >= 3


def test_a_fault_without_a_target_is_missed_and_not_injected() -> None:
    """The report says why, and the count continues."""
    errors = iter([NoTargetError(), ZeroDivisionError("no pod")])

    def act() -> None:
        if error := next(errors, None):
            raise error

    made, reports = schedule(lambda _: fault(act))
    made.inject(until=lambda: False, count=1)
    assert made.missed == {"kill": 2}
    assert "fault: kill of driver found no target or ended early: ZeroDivisionError no pod" in reports


def test_the_last_faults_end_before_the_injection_does() -> None:
    """Nothing is left injected when the checker looks."""
    ended = threading.Event()
    started = threading.Event()

    def act() -> None:
        waited(started)
        ended.set()

    made, reports = schedule(lambda _: fault(act))

    def until() -> bool:
        if reports:
            started.set()
        return bool(reports)

    made.inject(until=until)
    assert ended.is_set()


def test_a_fault_that_has_to_be_alone_waits_for_the_others_and_for_what_they_left() -> None:
    """No other fault starts before it is over, and its error ends the injection."""
    events: list[str] = []
    begun = threading.Event()

    def lasting() -> None:
        waited(begun)
        events.append("driver ended")

    def drawn() -> Iterator[Draw]:
        yield fault(lasting)
        begun.set()
        yield replace(fault(alone, target="worker"), is_alone=True)

    def alone() -> None:
        events.append("alone")
        raise KeyError("elections")

    draws = drawn()
    made, _ = schedule(lambda _: next(draws))
    made.settle = lambda: events.append("settled")
    with pytest.raises(KeyError, match="elections"):
        made.inject(until=lambda: False)
    assert events == ["driver ended", "settled", "alone"]


def test_the_injection_ends_settled() -> None:
    """What faults left behind is over as well when the checker looks."""
    settled: list[int] = []
    made, _ = schedule(lambda _: fault(lambda: None))
    made.settle = lambda: settled.append(made.injected.total())
    made.inject(until=lambda: False, count=2)
    assert settled == [made.injected.total()]


def test_faults_since_a_moment_are_those_that_lasted_then() -> None:
    """A fault that was over before the moment is not among them; one that still lasts is."""
    held = threading.Event()
    acts: Iterator[Callable[[], None]] = iter([lambda: None, lambda: waited(held)])
    made, _ = schedule(lambda _: fault(next(acts), kind="first" if not made.since(0.0) else "second"))
    made.inject(until=lambda: bool(made.since(0.0)))
    moment = time.monotonic()
    seen: list[list[str]] = []

    def until() -> bool:
        now = [one.kind for one in made.since(moment)]
        if now:
            seen.append(now)
            held.set()
        return bool(now)

    made.inject(until=until)
    assert seen == [["second"]]
    assert made.lately(60.0).startswith("first of driver from ")
